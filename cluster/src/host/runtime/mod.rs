//! The folder of a running cluster, with its sockets, logs and state.
//!
//! Each cluster has one folder below `$NICLAB_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/niclab`, else `/tmp/niclab-UID`,
//! else `~/.local/state/niclab/run` ([`place`] has the rules). A file in it, the mark, shows that niclab made the
//! folder. Its owner (a `niclab run`, or the supervisor of a `niclab up`) holds a lock on the folder as long as it
//! lives. The kernel releases the lock when the owner ends. So a marked folder whose lock is free is a leftover. niclab
//! never removes a folder without the mark.
//!
//! The lock is a BSD lock on the folder itself, because systemd-tmpfiles, which removes old files from /tmp, skips
//! folders with such a lock (tmpfiles.d(5)). Other programs that clean /tmp ignore locks. If one of them removed the
//! mark, niclab finds the owner by its open descriptors ([`holder`]), and writes the mark again.
//!
//! A folder is made under a temporary name, marked, locked, and then renamed. Before its removal it is renamed again,
//! and it loses its mark last. Each niclab that makes, lists or removes folders holds a lock on the folder of all
//! clusters meanwhile. So a folder under a temporary name was left by a niclab that died, and is removed.

mod holder;
mod kept;
mod place;

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::DirBuilderExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use niclab_spec::ClusterName;
use rustix::{
    fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, fchmod, flock, mkdirat, openat, renameat, unlinkat},
    io::{Errno, retry_on_intr},
};
use thiserror::Error;

use self::holder::holder_of;
use super::{
    own::{self, Foreign, Found},
    process::ProcessId,
};

/// Maximum length of a unix socket's path (`sun_path`), without the final zero.
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Length of the longest socket name in a cluster's folder.
const SOCKET_NAME_BYTES: usize = "/monitor.sock".len();

/// The mark: the file that shows that niclab made the folder.
const MARK: &str = "niclab-cluster";
const PROCESSES: &str = "processes.json";

/// The name of a folder that is being made. No cluster can have this name or the next one.
const NEW: &str = ".niclab-new";
/// The name of a folder that is being removed.
const GONE: &str = ".niclab-gone";

/// The cluster's folder cannot be used.
#[derive(Debug, Error)]
pub enum RuntimeError {
    /// A file operation failed.
    #[error("cannot {action} {}: {error}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// Its object.
        path: PathBuf,
        /// Why it failed.
        #[source]
        error: io::Error,
    },
    /// Another user could put files there.
    #[error(
        "{} cannot be the folder for clusters, because {why}; remove it, or set NICLAB_RUNTIME_DIR",
        path.display()
    )]
    NotOurs {
        /// The folder of all clusters.
        path: PathBuf,
        /// Why it is unusable.
        #[source]
        why: Foreign,
    },
    /// There is no usable folder for clusters.
    #[error("there is no usable folder for clusters; set NICLAB_RUNTIME_DIR to a folder of your own")]
    NoPlace,
    /// The path of a cluster's folder is taken by something else.
    #[error(
        "{} is not a cluster's folder, because {why}; niclab leaves it alone: remove it yourself, or use --name for \
         another cluster",
        path.display()
    )]
    NotACluster {
        /// The folder.
        path: PathBuf,
        /// Why it is unusable.
        #[source]
        why: Foreign,
    },
    /// Unix sockets in it would exceed the maximum path length.
    #[error("the path {} is too long for unix sockets; set NICLAB_RUNTIME_DIR to a shorter folder", .0.display())]
    TooLong(PathBuf),
    /// The name is in use.
    #[error("a cluster named `{0}` is already up; use --name for another one, or `niclab down --name {0}`")]
    Taken(ClusterName),
}

trait At<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, RuntimeError>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, RuntimeError> {
        self.map_err(|error| RuntimeError::Io { action, path: path.to_owned(), error: error.into() })
    }
}

/// The state of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is no cluster of the name.
    Absent,
    /// The path of its folder is taken by something else.
    Foreign(Foreign),
    /// Its owner has ended.
    Dead,
    /// Its owner lives.
    Alive,
}

/// The folder of all clusters of this user.
#[derive(Clone, Debug)]
pub struct RuntimeRoot {
    path: PathBuf,
    folder: Arc<OwnedFd>,
}

/// Proof that no other niclab makes, lists or removes folders.
struct Guard {
    _lock: OwnedFd,
}

/// The content of the mark in a cluster's folder.
fn mark_of(name: &ClusterName) -> String {
    format!("niclab cluster folder, version 1: {name}\n")
}

impl RuntimeRoot {
    /// Opens the folder at `path`, and makes it if needed.
    ///
    /// # Errors
    /// [`RuntimeError`] if it cannot be made or belongs to another user.
    pub fn at(path: PathBuf) -> Result<Self, RuntimeError> {
        match DirBuilder::new().recursive(true).mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error).at("make", &path)?,
            _ => {}
        }
        let missing = || Err(Errno::NOENT).at("open", &path);
        Self::existing(&path)?.map_or_else(missing, Ok)
    }

    /// Opens the folder at a path, if it exists.
    fn existing(path: &Path) -> Result<Option<Self>, RuntimeError> {
        let path = path.to_owned();
        // In /tmp another user may have made it first, or a link in its place.
        match own::open_path(&path).at("open", &path)? {
            Found::Nothing => Ok(None),
            Found::Foreign(why) => Err(RuntimeError::NotOurs { path, why }),
            Found::Ours(folder) => Ok(Some(Self { path, folder: Arc::new(folder) })),
        }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the folder for a cluster of this name; the folder need not exist.
    #[must_use]
    pub fn folder(&self, name: &ClusterName) -> PathBuf {
        self.path.join(name.as_str())
    }

    /// The names of all clusters, alive or left over, sorted. Other entries of the folder are ignored.
    ///
    /// # Errors
    /// [`RuntimeError::Io`].
    pub fn names(&self) -> Result<Vec<ClusterName>, RuntimeError> {
        let _guard = self.guard()?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&*self.folder).at("list", &self.path)? {
            let entry = entry.at("list", &self.path)?;
            let Some(name) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if matches!(self.open(&name)?, Found::Ours(_)) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Waits until no other niclab changes the folder, which takes only a moment.
    fn guard(&self) -> Result<Guard, RuntimeError> {
        // A new open file: the lock belongs to it, and clones of one descriptor would share the lock.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let lock = openat(&*self.folder, ".", flags, Mode::empty()).at("open", &self.path)?;
        retry_on_intr(|| flock(&lock, FlockOperation::LockExclusive)).at("lock", &self.path)?;
        Ok(Guard { _lock: lock })
    }

    /// Opens the folder of a cluster, without its lock. If the mark is missing but an owner lives, it writes the mark
    /// again.
    fn open(&self, name: &ClusterName) -> Result<Found<Opened>, RuntimeError> {
        let path = self.folder(name);
        let folder = match own::open_in(&*self.folder, name.as_str()).at("open", &path)? {
            Found::Nothing => return Ok(Found::Nothing),
            Found::Foreign(why) => return Ok(Found::Foreign(why)),
            Found::Ours(folder) => folder,
        };
        let text = mark_of(name);
        if !own::is_there(&folder, MARK) && holder_of(&folder, &text).is_some() {
            mark_folder(&folder, &text).at("write", &path.join(MARK))?;
        }
        let mark = own::open_file(&folder, MARK).at("open", &path.join(MARK))?;
        match mark.filter(|mark| says(mark, &text)) {
            Some(mark) => Ok(Found::Ours(Opened { folder, mark })),
            None => Ok(Found::Foreign(Foreign::Unmarked)),
        }
    }

    /// The state of the cluster of this name.
    ///
    /// # Errors
    /// [`RuntimeError::Io`].
    pub fn condition(&self, name: &ClusterName) -> Result<Condition, RuntimeError> {
        // Checking whether a lock is free means holding it for a moment. The guard keeps other niclabs from trying
        // then.
        let _guard = self.guard()?;
        Ok(match self.open(name)? {
            Found::Nothing => Condition::Absent,
            Found::Foreign(why) => Condition::Foreign(why),
            Found::Ours(opened) => match opened.try_lock().at("lock", &self.folder(name))? {
                true => Condition::Dead,
                false => Condition::Alive,
            },
        })
    }

    /// Whether the owner of this name lives.
    #[must_use]
    pub fn is_alive(&self, name: &ClusterName) -> bool {
        matches!(self.condition(name), Ok(Condition::Alive))
    }

    /// The owner of a cluster, if it lives.
    #[must_use]
    pub fn owner(&self, name: &ClusterName) -> Option<ProcessId> {
        // Another niclab that checks the lock holds it for a moment; the guard excludes that.
        let _guard = self.guard().ok()?;
        match own::open_in(&*self.folder, name.as_str()).ok()? {
            Found::Ours(folder) => holder_of(&folder, &mark_of(name)),
            Found::Nothing | Found::Foreign(_) => None,
        }
    }

    /// Takes the name for a new cluster. It first cleans up what a dead owner left.
    ///
    /// # Errors
    /// [`RuntimeError::Taken`] while its owner lives; [`RuntimeError::NotACluster`] if something else has the path;
    /// others as for [`Self::locate`].
    pub fn claim(&self, name: &ClusterName) -> Result<ClusterFolder, RuntimeError> {
        let path = self.folder(name);
        if path.as_os_str().len() + SOCKET_NAME_BYTES > MAX_SOCKET_PATH_BYTES {
            return Err(RuntimeError::TooLong(path));
        }
        let guard = self.guard()?;
        self.clear_leftovers(&guard)?;
        if !self.clean_guarded(name, &guard)? {
            return Err(RuntimeError::Taken(name.clone()));
        }
        let new = self.path.join(NEW);
        mkdirat(&*self.folder, NEW, Mode::RWXU).at("make", &new)?;
        let folder = match own::open_in(&*self.folder, NEW).at("open", &new)? {
            Found::Ours(folder) => folder,
            Found::Nothing => return Err(Errno::NOENT).at("open", &new),
            Found::Foreign(why) => return Err(RuntimeError::NotACluster { path: new, why }),
        };
        // The user's umask may have removed permissions.
        fchmod(&folder, Mode::RWXU).at("protect", &new)?;
        let mark = mark_folder(&folder, &mark_of(name)).at("write", &new)?;
        let opened = Opened { folder, mark };
        opened.lock().at("lock", &new)?;
        let folder = ClusterFolder { path, name: name.clone(), root: self.clone(), opened };
        renameat(&*self.folder, NEW, &*self.folder, name.as_str()).at("make", &folder.path)?;
        Ok(folder)
    }

    /// Ends the processes that a dead owner left under the name, and removes its folder. If the owner lives, it does
    /// nothing and returns `false`.
    ///
    /// # Errors
    /// [`RuntimeError::NotACluster`] if something else has the path, which stays untouched; [`RuntimeError::Io`].
    pub fn clean(&self, name: &ClusterName) -> Result<bool, RuntimeError> {
        self.clean_guarded(name, &self.guard()?)
    }

    fn clean_guarded(&self, name: &ClusterName, guard: &Guard) -> Result<bool, RuntimeError> {
        let path = self.folder(name);
        let opened = match self.open(name)? {
            Found::Nothing => return Ok(true),
            Found::Foreign(why) => return Err(RuntimeError::NotACluster { path, why }),
            Found::Ours(opened) => opened,
        };
        if !opened.try_lock().at("lock", &path)? {
            return Ok(false);
        }
        let folder = ClusterFolder { path, name: name.clone(), root: self.clone(), opened };
        for process in folder.processes() {
            process.kill();
        }
        folder.remove_guarded(guard)?;
        Ok(true)
    }

    /// Cleans up after every `niclab run` that died. A dead `up` is left for `down`, which reports it to the user.
    pub fn sweep(&self) {
        for name in self.names().unwrap_or_default().iter().filter(|name| name.is_of_run()) {
            if let Err(error) = self.clean(name) {
                log::warn!("cannot clean up after {name}: {error}");
            }
        }
        let cleared = self.guard().and_then(|guard| self.clear_leftovers(&guard));
        if let Err(error) = cleared {
            log::warn!("{error}");
        }
    }

    /// Removes the folders of a niclab that died while it made or removed them.
    fn clear_leftovers(&self, guard: &Guard) -> Result<(), RuntimeError> {
        for name in [NEW, GONE] {
            let path = self.path.join(name);
            match own::open_in(&*self.folder, name).at("open", &path)? {
                Found::Nothing => {}
                Found::Foreign(why) => return Err(RuntimeError::NotACluster { path, why }),
                Found::Ours(folder) => self.remove_as(name, &folder, guard).at("remove", &path)?,
            }
        }
        Ok(())
    }

    /// Removes a folder that niclab made or began to make, its mark last. A folder without a mark must be empty; if it
    /// is not, it stays.
    fn remove_as(&self, name: &str, folder: &OwnedFd, _guard: &Guard) -> io::Result<()> {
        if own::open_file(folder, MARK)?.is_some() {
            own::empty(folder, MARK)?;
            unlinkat(folder, MARK, AtFlags::empty())?;
        }
        Ok(unlinkat(&*self.folder, name, AtFlags::REMOVEDIR)?)
    }
}

/// Whether a file has exactly this content.
fn says(file: &File, text: &str) -> bool {
    let mut found = Vec::new();
    let read = file.take(text.len() as u64 + 1).read_to_end(&mut found);
    read.is_ok() && found == text.as_bytes()
}

/// Writes the mark into a folder without one.
fn mark_folder(folder: &impl AsFd, text: &str) -> io::Result<File> {
    let mut mark = own::create_file(folder, Path::new(MARK))?;
    mark.write_all(text.as_bytes())?;
    Ok(mark)
}

/// A folder with its mark.
#[derive(Debug)]
struct Opened {
    /// Holds the lock, once it is taken. The kernel releases it when the last descriptor is closed.
    folder: OwnedFd,
    /// Locked like the folder, because an older niclab locks only the mark. The open file identifies the folder's
    /// owner, even after its name is gone.
    mark: File,
}

impl Opened {
    fn try_lock(&self) -> io::Result<bool> {
        let try_lock = |file: BorrowedFd<'_>| match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(io::Error::from(error)),
        };
        Ok(try_lock(self.folder.as_fd())? && try_lock(self.mark.as_fd())?)
    }

    /// Locks a folder that no other niclab knows. systemd-tmpfiles may hold the lock for a moment, because it locks
    /// each folder that it enters.
    fn lock(&self) -> io::Result<()> {
        let lock = |file: BorrowedFd<'_>| retry_on_intr(|| flock(file, FlockOperation::LockExclusive));
        lock(self.folder.as_fd())?;
        Ok(lock(self.mark.as_fd())?)
    }
}

/// A cluster's folder, locked by this process.
#[derive(Debug)]
pub struct ClusterFolder {
    path: PathBuf,
    name: ClusterName,
    root: RuntimeRoot,
    opened: Opened,
}

impl ClusterFolder {
    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file in it, which only this user can read.
    ///
    /// # Errors
    /// [`RuntimeError::Io`].
    pub fn write(&self, name: &str, text: &str) -> Result<(), RuntimeError> {
        let file = own::create_file(&self.opened.folder.as_fd(), Path::new(name));
        file.and_then(|mut file| file.write_all(text.as_bytes())).at("write", &self.path.join(name))
    }

    /// Records the processes, so that another niclab can end them if this one dies.
    ///
    /// # Errors
    /// [`RuntimeError::Io`].
    pub fn record(&self, processes: &[ProcessId]) -> Result<(), RuntimeError> {
        let text = serde_json::to_string(processes).map_err(io::Error::from);
        self.write(PROCESSES, &text.at("write", &self.path.join(PROCESSES))?)
    }

    fn processes(&self) -> Vec<ProcessId> {
        let text = fs::read(self.path.join(PROCESSES)).unwrap_or_default();
        // Without a record there is nothing to end: the kernel kills the processes of an owner that dies.
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Removes the folder with all its contents.
    ///
    /// # Errors
    /// [`RuntimeError::Io`]; [`RuntimeError::NotACluster`] if another folder has its name by now.
    pub fn remove(self) -> Result<(), RuntimeError> {
        let guard = self.root.clone().guard()?;
        self.remove_guarded(&guard)
    }

    fn remove_guarded(self, guard: &Guard) -> Result<(), RuntimeError> {
        let Self { path, name, root, opened } = self;
        if !own::is_still(&*root.folder, name.as_str(), &opened.folder).at("look at", &path)? {
            return Err(RuntimeError::NotACluster { path, why: Foreign::Unmarked });
        }
        root.clear_leftovers(guard)?;
        if !own::is_there(&opened.folder, MARK) {
            // A program that cleans /tmp removed the mark. The folder is still the locked one.
            mark_folder(&opened.folder, &mark_of(&name)).at("write", &path.join(MARK))?;
        }
        // From here on any niclab removes this folder, even if this process dies.
        renameat(&*root.folder, name.as_str(), &*root.folder, GONE).at("remove", &path)?;
        root.remove_as(GONE, &opened.folder, guard).at("remove", &path)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::{PermissionsExt, symlink},
        process::{Command, Stdio},
    };

    use super::*;

    fn root() -> (tempfile::TempDir, RuntimeRoot) {
        let folder = tempfile::tempdir().unwrap();
        let root = RuntimeRoot::at(folder.path().join("r")).unwrap();
        (folder, root)
    }

    fn name(text: &str) -> ClusterName {
        text.parse().unwrap()
    }

    fn names(root: &RuntimeRoot) -> Vec<String> {
        root.names().unwrap().into_iter().map(String::from).collect()
    }

    #[test]
    fn name_is_taken_only_while_its_owner_lives() {
        let (_folder, root) = root();
        let a = name("a");
        let claimed = root.claim(&a).unwrap();
        assert_eq!(root.condition(&a).unwrap(), Condition::Alive);
        assert!(matches!(root.claim(&a), Err(RuntimeError::Taken(name)) if name == a));
        assert!(!root.clean(&a).unwrap());
        assert_eq!(root.owner(&a), ProcessId::of(std::process::id()));
        drop(claimed);
        assert_eq!(root.condition(&a).unwrap(), Condition::Dead);
        assert_eq!((root.owner(&a), names(&root)), (None, vec!["a".to_owned()]));
        root.claim(&a).unwrap().remove().unwrap();
        assert_eq!(root.condition(&a).unwrap(), Condition::Absent);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "nothing at all is left");
    }

    #[test]
    fn folder_of_a_live_cluster_is_locked_for_tmpfiles() {
        let (_folder, root) = root();
        let claimed = root.claim(&name("a")).unwrap();
        // As systemd-tmpfiles does before it enters a folder.
        let enter = || {
            let folder = File::open(root.folder(&name("a"))).unwrap();
            flock(&folder, FlockOperation::NonBlockingLockExclusive)
        };
        assert_eq!(enter(), Err(Errno::WOULDBLOCK));
        drop(claimed);
        assert_eq!(enter(), Ok(()), "a leftover may be cleaned away");
    }

    #[test]
    fn live_cluster_that_lost_its_files_is_known_and_removed() {
        for lost in ["all files", "all files, and a socket stays"] {
            let (_folder, root) = root();
            let claimed = root.claim(&name("a")).unwrap();
            claimed.write("plan.json", "{}").unwrap();
            fs::read_dir(claimed.path())
                .unwrap()
                .for_each(|file| fs::remove_file(file.unwrap().path()).unwrap());
            let socket = claimed.path().join("control.sock");
            let _listener = lost.contains("socket").then(|| std::os::unix::net::UnixListener::bind(&socket));
            assert_eq!(root.owner(&name("a")), ProcessId::of(std::process::id()), "{lost}");
            assert_eq!(root.condition(&name("a")).unwrap(), Condition::Alive, "{lost}");
            assert_eq!(names(&root), ["a"], "{lost}");
            fs::remove_file(claimed.path().join(MARK)).unwrap();
            claimed.remove().unwrap();
            assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "{lost}: nothing is left");
        }
    }

    #[test]
    fn lock_by_a_process_without_the_mark_makes_no_cluster() {
        let (_folder, root) = root();
        // Other tests of this process have marks of clusters with other names open.
        let path = root.folder(&name("unmarked"));
        fs::create_dir(&path).unwrap();
        let folder = File::open(&path).unwrap();
        flock(&folder, FlockOperation::LockExclusive).unwrap();
        assert_eq!(root.condition(&name("unmarked")).unwrap(), Condition::Foreign(Foreign::Unmarked));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "nothing is written there");
    }

    #[test]
    fn cluster_of_a_niclab_that_locks_the_mark_alone_is_alive() {
        let (_folder, root) = root();
        let path = root.folder(&name("a"));
        drop(root.claim(&name("a")).unwrap());
        let mark = File::open(path.join(MARK)).unwrap();
        flock(&mark, FlockOperation::LockExclusive).unwrap();
        assert_eq!(root.condition(&name("a")).unwrap(), Condition::Alive);
    }

    #[test]
    fn cleaning_ends_processes_of_a_dead_owner() {
        let (_folder, root) = root();
        let claimed = root.claim(&name("a")).unwrap();
        let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let id = ProcessId::of(child.id()).unwrap();
        let other = ProcessId { start_time: id.start_time + 1, pid: std::process::id() };
        claimed.record(&[id, other]).unwrap();
        drop(claimed);
        assert!(root.clean(&name("a")).unwrap());
        assert!(!child.wait().unwrap().success());
        assert!(!root.folder(&name("a")).exists());
    }

    #[test]
    fn sweep_removes_only_dead_runs() {
        let (_folder, root) = root();
        drop(root.claim(&name("run-1")).unwrap());
        drop(root.claim(&name("mine")).unwrap());
        let live = root.claim(&name("run-2")).unwrap();
        // A folder of the user's own, which looks like a leftover.
        fs::create_dir(root.path().join("run-3")).unwrap();
        fs::write(root.path().join("run-3/lock"), "").unwrap();
        root.sweep();
        assert_eq!(names(&root), ["mine", "run-2"]);
        assert!(root.path().join("run-3/lock").exists());
        drop(live);
    }

    type Make = fn(&Path);

    /// Files and folders that niclab did not make, at the path of a cluster's folder; each function makes one.
    fn foreign_files() -> [(&'static str, Make); 8] {
        [
            ("a folder", |path| fs::create_dir(path).unwrap()),
            ("with a lock", |path| {
                fs::create_dir(path).unwrap();
                fs::write(path.join("lock"), "").unwrap();
            }),
            ("with a mark of another cluster", |path| {
                fs::create_dir(path).unwrap();
                fs::write(path.join(MARK), mark_of(&name("other"))).unwrap();
            }),
            ("with a mark that is a link", |path| {
                fs::create_dir(path).unwrap();
                fs::write(path.join("text"), mark_of(&name("a"))).unwrap();
                symlink("text", path.join(MARK)).unwrap();
            }),
            ("with a pipe for a mark", |path| {
                fs::create_dir(path).unwrap();
                let made = Command::new("mkfifo").arg(path.join(MARK)).status().unwrap();
                assert!(made.success());
            }),
            ("open to others", |path| {
                fs::create_dir(path).unwrap();
                fs::write(path.join(MARK), mark_of(&name("a"))).unwrap();
                fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
            }),
            ("a link", |path| {
                let target = path.with_file_name("target");
                fs::create_dir(&target).unwrap();
                fs::write(target.join(MARK), mark_of(&name("a"))).unwrap();
                symlink(target, path).unwrap();
            }),
            ("a file", |path| fs::write(path, "text").unwrap()),
        ]
    }

    #[test]
    fn foreign_folders_are_neither_listed_nor_removed() {
        for (what, make) in foreign_files() {
            let (_folder, root) = root();
            let path = root.folder(&name("a"));
            make(&path);
            let before = fs::symlink_metadata(&path).unwrap().modified().unwrap();
            assert!(names(&root).is_empty(), "{what}");
            assert!(matches!(root.condition(&name("a")).unwrap(), Condition::Foreign(_)), "{what}");
            for refused in [root.clean(&name("a")).map(drop), root.claim(&name("a")).map(drop)] {
                assert!(matches!(refused, Err(RuntimeError::NotACluster { .. })), "{what}: {refused:?}");
            }
            assert_eq!(fs::symlink_metadata(&path).unwrap().modified().unwrap(), before, "{what}: untouched");
            if what == "a link" {
                assert!(path.with_file_name("target").join(MARK).exists());
            }
        }
    }

    #[test]
    fn folder_that_replaced_a_clusters_folder_is_kept() {
        let (_folder, root) = root();
        let claimed = root.claim(&name("a")).unwrap();
        let path = claimed.path().to_owned();
        fs::rename(&path, path.with_file_name("elsewhere")).unwrap();
        fs::create_dir(&path).unwrap();
        fs::write(path.join("precious"), "").unwrap();
        assert!(matches!(claimed.remove(), Err(RuntimeError::NotACluster { .. })));
        assert!(path.join("precious").exists());
    }

    #[test]
    fn links_in_a_clusters_folder_are_removed_not_followed() {
        let (folder, root) = root();
        let precious = folder.path().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("file"), "").unwrap();
        let claimed = root.claim(&name("a")).unwrap();
        fs::create_dir_all(claimed.path().join("x/y")).unwrap();
        for place in ["link", "x/y/link"] {
            symlink(&precious, claimed.path().join(place)).unwrap();
        }
        claimed.remove().unwrap();
        assert!(precious.join("file").exists());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn leftovers_of_a_dead_niclab_are_removed() {
        let halves: [(&str, Make); 4] = [
            (NEW, |path| fs::create_dir(path).unwrap()),
            (NEW, |path| {
                fs::create_dir(path).unwrap();
                fs::write(path.join(MARK), "nicl").unwrap();
            }),
            (GONE, |path| {
                fs::create_dir(path).unwrap();
                fs::write(path.join(MARK), mark_of(&name("a"))).unwrap();
                fs::write(path.join("0.console"), "text").unwrap();
            }),
            (GONE, |path| fs::create_dir(path).unwrap()),
        ];
        for (place, make) in halves {
            let (_folder, root) = root();
            make(&root.path().join(place));
            assert!(names(&root).is_empty());
            root.claim(&name("a")).unwrap().remove().unwrap();
            assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
            make(&root.path().join(place));
            root.sweep();
            assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "swept, too");
        }
        let (_folder, root) = root();
        fs::create_dir(root.path().join(NEW)).unwrap();
        fs::write(root.path().join(NEW).join("precious"), "").unwrap();
        assert!(root.claim(&name("a")).is_err(), "niclab puts the mark there first");
        assert!(root.path().join(NEW).join("precious").exists());
    }

    #[test]
    fn reading_the_condition_does_not_disturb_claims() {
        let (_folder, root) = root();
        let claimed = root.claim(&name("a")).unwrap();
        drop(root.claim(&name("dead")).unwrap());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        assert_eq!(root.condition(&name("a")).unwrap(), Condition::Alive);
                        assert_eq!(root.condition(&name("dead")).unwrap(), Condition::Dead);
                        root.condition(&name("b")).unwrap();
                    }
                });
            }
            for _ in 0..50 {
                assert!(root.claim(&name("b")).is_ok(), "it has no owner");
            }
        });
        drop(claimed);
    }

    #[test]
    fn folder_of_another_user_is_refused_for_the_next_place() {
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
        let refused = RuntimeRoot::at(open.clone()).unwrap_err();
        assert!(matches!(refused, RuntimeError::NotOurs { why: Foreign::Open(0o777), .. }), "{refused}");
        let link = folder.path().join("link");
        symlink(folder.path(), &link).unwrap();
        let refused = RuntimeRoot::at(link.clone()).unwrap_err();
        assert!(matches!(refused, RuntimeError::NotOurs { why: Foreign::NotAFolder, .. }), "{refused}");

        let own = folder.path().join("home/run");
        let places = [open, link, own.clone()];
        assert_eq!(RuntimeRoot::among(&places).unwrap().path(), own);
        let none = RuntimeRoot::among(&places[..2]).unwrap_err().to_string();
        assert!(none.contains("/open") && none.contains("NICLAB_RUNTIME_DIR"), "{none}");
        assert!(matches!(RuntimeRoot::among(&[]), Err(RuntimeError::NoPlace)));
    }

    #[test]
    fn clusters_are_found_after_a_blocked_place_becomes_free() {
        let folder = tempfile::tempdir().unwrap();
        let places = ["first", "second"].map(|place| folder.path().join(place));
        symlink("/", &places[0]).unwrap();
        let claimed = RuntimeRoot::among(&places).unwrap().claim(&name("a")).unwrap();
        fs::remove_file(&places[0]).unwrap();
        let later = RuntimeRoot::among(&places).unwrap();
        assert_eq!((later.path(), names(&later)), (places[1].as_path(), vec!["a".to_owned()]));
        claimed.remove().unwrap();
        assert_eq!(RuntimeRoot::among(&places).unwrap().path(), places[0]);
    }

    #[test]
    fn paths_too_long_for_sockets_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = RuntimeRoot::at(folder.path().join("x".repeat(80))).unwrap();
        assert!(matches!(root.claim(&name("a")), Err(RuntimeError::TooLong(_))));
    }

    #[test]
    fn files_are_private() {
        let (_folder, root) = root();
        let claimed = root.claim(&name("a")).unwrap();
        claimed.write("text", "secret").unwrap();
        for (path, mode) in
            [(root.path(), 0o700), (claimed.path(), 0o700), (&claimed.path().join("text"), 0o600)]
        {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
        }
        claimed.remove().unwrap();
    }
}
