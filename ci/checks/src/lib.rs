//! Checks that the layering and the style of the house hold.
//!
//! `tests/layering.rs` compares who imports whom with the one table of who may; `tests/style.rs` holds every source to
//! the limits of CONTRIBUTING.md.

use std::path::{Path, PathBuf};

/// The repository's top folder.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file that git knows (tracked, or new and not ignored) and that is still there, relative to [`repository`].
///
/// # Panics
/// When git cannot list them: a check without its subject must not pass.
pub fn sources() -> Vec<PathBuf> {
    let listed = std::process::Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(repository())
        .output()
        .unwrap_or_else(|error| panic!("git ls-files did not start: {error}"));
    assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8_lossy(&listed.stdout);
    let files: Vec<_> =
        names.lines().map(PathBuf::from).filter(|file| repository().join(file).is_file()).collect();
    assert!(files.len() > 20, "git ls-files named only {} files", files.len());
    files
}
