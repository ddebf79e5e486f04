//! Where the clusters of this user are.

use std::{
    env, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{MAX_SOCKET_PATH_BYTES, RuntimeError, RuntimeRoot, SOCKET_NAME_BYTES};

/// Bytes that are left for a cluster's name and what stands before it.
const NAME_BYTES: usize = 40;

impl RuntimeRoot {
    /// Finds the folder and makes it if needed: the one that `NICLAB_RUNTIME_DIR` names, else the first usual place
    /// that is ours or can be. Anybody may stand in the way of the place in `/tmp`, whose name is known; then it is the
    /// one in the user's home, where nobody else can put anything. A place that holds clusters wins over one that
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

    /// The first of `places` that holds clusters of ours, else the first that can be used. What keeps an earlier one
    /// from being used is said.
    ///
    /// # Errors
    /// What keeps the first from being used, if none can be.
    pub fn among(places: &[PathBuf]) -> Result<Self, RuntimeError> {
        let holds_clusters = |place: &PathBuf| {
            let root = Self::existing(place).ok().flatten();
            root.is_some_and(|root| root.names().is_ok_and(|names| !names.is_empty()))
        };
        let holder = places.iter().position(holds_clusters).unwrap_or(0);
        let mut in_the_way = None;
        for (position, place) in places.iter().enumerate() {
            let found = if position < holder {
                // Nothing is made where nothing is to be.
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

/// The folder that a variable names.
fn absolute(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn usual_places() -> Vec<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let is_short =
        |path: &PathBuf| path.as_os_str().len() <= MAX_SOCKET_PATH_BYTES - SOCKET_NAME_BYTES - NAME_BYTES;
    let session = absolute("XDG_RUNTIME_DIR").filter(|path| path.is_dir()).map(|path| path.join("niclab"));
    let temporary = PathBuf::from(format!("/tmp/niclab-{uid}"));
    // Whose owner it is could put another folder in the place of ours, so that must be us.
    let is_private = |path: &PathBuf| is_private(path, uid);
    let state = absolute("XDG_STATE_HOME").filter(is_private);
    let state = state.or_else(|| Some(absolute("HOME").filter(is_private)?.join(".local/state")));
    let home = state.map(|path| path.join("niclab/run"));
    session.into_iter().chain([temporary]).chain(home).filter(is_short).collect()
}

fn is_private(path: &Path, uid: u32) -> bool {
    fs::metadata(path).is_ok_and(|about| about.is_dir() && about.uid() == uid && about.mode() & 0o022 == 0)
}
