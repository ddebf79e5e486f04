//! Where a running cluster keeps its sockets, logs and state.
//!
//! Each cluster has one folder below `$NICLAB_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/niclab`, else `/tmp/niclab-UID`.
//! Its owner (a `niclab run`, or the supervisor of a `niclab up`) holds a lock on a file in it for as long as it lives;
//! the kernel gives the lock back however the owner ends. So a folder whose lock is free is a leftover.

use std::{
    env,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use crate::process::ProcessId;

/// The longest path that `sun_path` of a unix socket takes, without its final zero.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Bytes that the longest name of a socket adds to a cluster's folder.
const SOCKET_NAME_BYTES: usize = "/monitor.sock".len();

const LOCK: &str = "lock";
const PROCESSES: &str = "processes.json";

/// The cluster's folder cannot be used.
#[derive(Debug, Error)]
pub enum RuntimeError {
    /// A file operation failed.
    #[error("cannot {action} {}: {error}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        error: io::Error,
    },
    /// Somebody else could put files there.
    #[error("{} belongs to somebody else or is open to others; remove it, or set NICLAB_RUNTIME_DIR", .0.display())]
    NotOurs(PathBuf),
    /// Unix sockets in it would have too long a path.
    #[error("the path {} is too long for unix sockets; set NICLAB_RUNTIME_DIR to a shorter folder", .0.display())]
    TooLong(PathBuf),
    /// The name is in use.
    #[error(
        "a cluster called `{0}` is already there; use --name for another one, or `niclab down --name {0}`"
    )]
    Taken(String),
}

trait At<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, RuntimeError>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, RuntimeError> {
        self.map_err(|error| RuntimeError::Io { action, path: path.to_owned(), error: error.into() })
    }
}

/// The folder of all clusters of this user.
#[derive(Clone, Debug)]
pub struct RuntimeRoot(PathBuf);

impl RuntimeRoot {
    /// Finds the folder and makes it if needed.
    ///
    /// # Errors
    /// [`RuntimeError`] if it cannot be made or is somebody else's.
    pub fn locate() -> Result<Self, RuntimeError> {
        let folder = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let short = |path: &PathBuf| path.as_os_str().len() <= MAX_SOCKET_PATH_BYTES - SOCKET_NAME_BYTES - 40;
        let uid = rustix::process::getuid().as_raw();
        let path = folder("NICLAB_RUNTIME_DIR")
            .or_else(|| {
                folder("XDG_RUNTIME_DIR").filter(|p| p.is_dir()).map(|p| p.join("niclab")).filter(short)
            })
            .unwrap_or_else(|| format!("/tmp/niclab-{uid}").into());
        Self::at(path)
    }

    /// The folder at a path of the caller's choice.
    ///
    /// # Errors
    /// See [`Self::locate`].
    pub fn at(path: PathBuf) -> Result<Self, RuntimeError> {
        match DirBuilder::new().recursive(true).mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error).at("make", &path)?,
            _ => {}
        }
        // In /tmp anybody may have made it first, or a link in its place.
        let about = fs::symlink_metadata(&path).at("look at", &path)?;
        let is_ours =
            about.is_dir() && about.uid() == rustix::process::getuid().as_raw() && about.mode() & 0o022 == 0;
        if is_ours { Ok(Self(path)) } else { Err(RuntimeError::NotOurs(path)) }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The names of all clusters, alive or left over, sorted.
    ///
    /// # Errors
    /// [`RuntimeError::Io`].
    pub fn names(&self) -> Result<Vec<String>, RuntimeError> {
        let mut names: Vec<String> = fs::read_dir(&self.0)
            .at("list", &self.0)?
            .flatten()
            .filter(|entry| entry.path().join(LOCK).exists())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        Ok(names)
    }

    /// The folder that a cluster of this name has or would have.
    #[must_use]
    pub fn folder(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Takes the name for a new cluster. What a dead owner left under it is cleaned up first.
    ///
    /// # Errors
    /// [`RuntimeError::Taken`] while its owner lives; others as for [`Self::locate`].
    pub fn claim(&self, name: &str) -> Result<ClusterFolder, RuntimeError> {
        let path = self.folder(name);
        if path.as_os_str().len() + SOCKET_NAME_BYTES > MAX_SOCKET_PATH_BYTES {
            return Err(RuntimeError::TooLong(path));
        }
        if path.exists() && !self.clean(name)? {
            return Err(RuntimeError::Taken(name.to_owned()));
        }
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(RuntimeError::Taken(name.to_owned()))
            }
            made => made.at("make", &path),
        }?;
        ClusterFolder::lock(path.clone())?.ok_or_else(|| RuntimeError::Taken(name.to_owned()))
    }

    /// Ends what a dead owner left running under the name and removes its folder. `false` if the owner lives, and
    /// then nothing is done.
    ///
    /// # Errors
    /// [`RuntimeError::Io`].
    pub fn clean(&self, name: &str) -> Result<bool, RuntimeError> {
        let path = self.folder(name);
        if !path.exists() {
            return Ok(true);
        }
        let Some(folder) = ClusterFolder::lock(path)? else { return Ok(false) };
        for process in folder.processes() {
            process.kill();
        }
        folder.remove()?;
        Ok(true)
    }

    /// Cleans up after every `niclab run` that died. An `up` that died is left for `down`, whose user wants to know.
    pub fn sweep(&self) {
        for name in self.names().unwrap_or_default() {
            if name.starts_with(RUN_PREFIX)
                && let Err(error) = self.clean(&name)
            {
                log::warn!("cannot clean up after {name}: {error}");
            }
        }
    }

    /// Whether the owner of this name lives.
    #[must_use]
    pub fn is_alive(&self, name: &str) -> bool {
        matches!(ClusterFolder::lock(self.folder(name)), Ok(None))
    }
}

/// Names of clusters that `niclab run` makes for itself begin so.
pub const RUN_PREFIX: &str = "run-";

/// A cluster's folder, locked by this process.
#[derive(Debug)]
pub struct ClusterFolder {
    path: PathBuf,
    /// Holds the lock. The kernel frees it when the last descriptor goes.
    _lock: File,
}

impl ClusterFolder {
    /// Locks the folder, or says that another process has.
    ///
    /// # Errors
    /// [`RuntimeError::Io`].
    pub fn lock(path: PathBuf) -> Result<Option<Self>, RuntimeError> {
        let lock_path = path.join(LOCK);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .at("open", &lock_path)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { path, _lock: lock })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error).at("lock", &lock_path),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file in it.
    ///
    /// # Errors
    /// [`RuntimeError::Io`].
    pub fn write(&self, name: &str, text: &str) -> Result<(), RuntimeError> {
        let path = self.path.join(name);
        fs::write(&path, text).at("write", &path)
    }

    /// Remembers the processes, so that they can be ended if this one dies.
    ///
    /// # Errors
    /// [`RuntimeError::Io`].
    pub fn record(&self, processes: &[ProcessId]) -> Result<(), RuntimeError> {
        let text = serde_json::to_string(processes).map_err(io::Error::from);
        self.write(PROCESSES, &text.at("write", &self.path.join(PROCESSES))?)
    }

    fn processes(&self) -> Vec<ProcessId> {
        let text = fs::read(self.path.join(PROCESSES)).unwrap_or_default();
        // An owner that died before it recorded any left none to end: they die with it.
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Removes the folder with everything in it.
    ///
    /// # Errors
    /// [`RuntimeError::Io`].
    pub fn remove(self) -> Result<(), RuntimeError> {
        fs::remove_dir_all(&self.path).at("remove", &self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn root() -> (tempfile::TempDir, RuntimeRoot) {
        let folder = tempfile::tempdir().unwrap();
        let root = RuntimeRoot::at(folder.path().join("r")).unwrap();
        (folder, root)
    }

    #[test]
    fn a_name_is_taken_while_its_owner_lives_and_no_longer() {
        let (_folder, root) = root();
        let claimed = root.claim("a").unwrap();
        assert!(root.is_alive("a"));
        assert!(matches!(root.claim("a"), Err(RuntimeError::Taken(name)) if name == "a"));
        assert!(!root.clean("a").unwrap());
        drop(claimed);
        assert!(!root.is_alive("a"));
        assert_eq!(root.names().unwrap(), ["a"]);
        root.claim("a").unwrap().remove().unwrap();
        assert!(root.names().unwrap().is_empty());
    }

    #[test]
    fn cleaning_ends_what_a_dead_owner_left() {
        let (_folder, root) = root();
        let claimed = root.claim("a").unwrap();
        let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let id = ProcessId::of(child.id()).unwrap();
        let other = ProcessId { start_time: id.start_time + 1, pid: std::process::id() };
        claimed.record(&[id, other]).unwrap();
        drop(claimed);
        assert!(root.clean("a").unwrap());
        assert!(!child.wait().unwrap().success());
        assert!(!root.folder("a").exists());
    }

    #[test]
    fn sweeping_takes_dead_runs_only() {
        let (_folder, root) = root();
        drop(root.claim("run-1").unwrap());
        drop(root.claim("mine").unwrap());
        let live = root.claim("run-2").unwrap();
        root.sweep();
        assert_eq!(root.names().unwrap(), ["mine", "run-2"]);
        drop(live);
    }

    #[test]
    fn a_folder_of_others_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(matches!(RuntimeRoot::at(open.clone()), Err(RuntimeError::NotOurs(_))));
        let link = folder.path().join("link");
        symlink(folder.path(), &link).unwrap();
        assert!(matches!(RuntimeRoot::at(link), Err(RuntimeError::NotOurs(_))));
    }

    #[test]
    fn paths_too_long_for_sockets_are_refused() {
        let (_folder, root) = root();
        assert!(matches!(root.claim(&"x".repeat(100)), Err(RuntimeError::TooLong(_))));
    }
}
