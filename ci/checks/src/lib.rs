//! Checks of the source: who imports whom, and the style that CONTRIBUTING.md asks for.
//!
//! `tests/layering.rs` compares who imports whom with the one table of who may; `tests/circles.rs` does it with the
//! files of a package; `tests/models.rs` finds shared code that names a NIC model, and `tests/constants.rs` numbers of
//! models that do not say where they are from; `tests/outputs.rs` holds that commands write by `niclab-output` alone,
//! and `tests/messages.rs` that texts have no stray spaces; `tests/examples.rs` holds that examples in documentation
//! are run; `tests/style.rs` holds every source to the limits of CONTRIBUTING.md. `tests/language.rs` compares private
//! words, long names and long sentences with the record in `language.txt`.

pub mod modules;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// The repository's top folder.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file that git knows (tracked, or new and not ignored) and that is still there, relative to [`repository`].
///
/// # Panics
/// When git cannot list them: a check without its subject must not pass.
pub fn sources() -> Vec<PathBuf> {
    let listed = Command::new("git")
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

/// A package of the workspace, as cargo describes it.
#[derive(Debug, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// The packages that it depends on; tests and build scripts count as well.
    pub dependencies: Vec<Dependency>,
    /// Its crates: library, binaries, tests, examples.
    pub targets: Vec<Target>,
}

/// A package that another one depends on.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// Its name.
    pub name: String,
    /// Where it is, if it is of this workspace.
    pub path: Option<String>,
}

/// A crate of a package.
#[derive(Debug, Deserialize)]
pub struct Target {
    /// What it is: `lib`, `bin`, `test`, among others.
    pub kind: Vec<String>,
    /// Its root file.
    pub src_path: PathBuf,
    /// Whether the examples of its documentation are run.
    pub doctest: bool,
}

/// The packages of the workspace.
///
/// # Panics
/// When cargo cannot list them: a check without its subject must not pass.
pub fn packages() -> Vec<Package> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }

    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(repository())
        .output()
        .unwrap_or_else(|error| panic!("cargo metadata did not start: {error}"));
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("cargo's metadata: {error}"));
    metadata.packages
}
