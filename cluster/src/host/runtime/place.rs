//! Finds the folder of this user's clusters.

use std::{
    env, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{MAX_SOCKET_PATH_BYTES, RuntimeError, RuntimeRoot, SOCKET_NAME_BYTES};

/// Bytes that are reserved for a cluster's name and its separator.
const NAME_BYTES: usize = 40;

impl RuntimeRoot {
    /// Finds the folder, and makes it if needed: `NICLAB_RUNTIME_DIR`, else the first default place that belongs to the
    /// user or can be made. Another user can block the place in `/tmp`, because its name is known. The place in the
    /// user's home then serves; other users cannot write there. A place with clusters takes precedence over one that
    /// became free since they were booted, so that later commands find them.
    ///
    /// # Errors
    /// [`RuntimeError`] if there is none.
    pub fn locate() -> Result<Self, RuntimeError> {
        match absolute("NICLAB_RUNTIME_DIR") {
            Some(path) => Self::at(path),
            None => Self::among(&usual_places()),
        }
    }

    /// The first of `places` that has clusters of this user, else the first usable one. If an earlier place is
    /// unusable, it logs why.
    ///
    /// # Errors
    /// Why the first place is unusable, if all are.
    pub fn among(places: &[PathBuf]) -> Result<Self, RuntimeError> {
        let holds_clusters = |place: &PathBuf| {
            let root = Self::existing(place).ok().flatten();
            root.is_some_and(|root| root.names().is_ok_and(|names| !names.is_empty()))
        };
        let holder = places.iter().position(holds_clusters).unwrap_or(0);
        let mut in_the_way = None;
        for (position, place) in places.iter().enumerate() {
            let found = if position < holder {
                // Do not create a folder in a place that will not be used.
                Self::existing(place).map(|_| None)
            } else {
                Self::at(place.clone()).map(Some)
            };
            match found {
                Ok(None) => {}
                Ok(Some(root)) => {
                    if let Some(error) = in_the_way {
                        log::warn!("{error}; clusters are in {} instead", place.display());
                    }
                    return Ok(root);
                }
                Err(error) => in_the_way = in_the_way.or(Some(error)),
            }
        }
        Err(in_the_way.unwrap_or(RuntimeError::NoPlace))
    }
}

/// The absolute path in an environment variable.
fn absolute(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn usual_places() -> Vec<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let is_short =
        |path: &PathBuf| path.as_os_str().len() <= MAX_SOCKET_PATH_BYTES - SOCKET_NAME_BYTES - NAME_BYTES;
    let session = absolute("XDG_RUNTIME_DIR").filter(|path| path.is_dir()).map(|path| path.join("niclab"));
    let temporary = PathBuf::from(format!("/tmp/niclab-{uid}"));
    // The owner of the parent folder could replace our folder, so the owner must be this user.
    let is_private = |path: &PathBuf| is_private(path, uid);
    let state = absolute("XDG_STATE_HOME").filter(is_private);
    let state = state.or_else(|| Some(absolute("HOME").filter(is_private)?.join(".local/state")));
    let home = state.map(|path| path.join("niclab/run"));
    session.into_iter().chain([temporary]).chain(home).filter(is_short).collect()
}

fn is_private(path: &Path, uid: u32) -> bool {
    fs::metadata(path).is_ok_and(|about| about.is_dir() && about.uid() == uid && about.mode() & 0o022 == 0)
}
