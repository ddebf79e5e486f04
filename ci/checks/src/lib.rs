//! Checks of the source: imports between packages and files, and the style that CONTRIBUTING.md requires.
//!
//! Each file in `tests` has one check:
//! * `layering.rs`: packages import only what the table there allows;
//! * `circles.rs`: files of a package do not import each other in a circle;
//! * `models.rs`: shared code names no NIC model;
//! * `constants.rs`: numbers in models name their source;
//! * `outputs.rs`: commands write with `niclab-output` only;
//! * `messages.rs`: texts have no stray spaces;
//! * `examples.rs`: examples in documentation are run;
//! * `links.rs`: links between pages resolve;
//! * `versions.rs`: docs/VERSIONS.md has the versions of the source;
//! * `workflows.rs`: workflows of GitHub Actions and their scripts parse;
//! * `style.rs`: every source file keeps the limits of CONTRIBUTING.md;
//! * `language.rs`: private words, long names and long sentences need an exemption.

pub mod modules;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// The repository's top folder.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All existing files that git tracks, or would track (new and not ignored), relative to [`repository`].
///
/// If git cannot list the files: a check without its subject must not pass.
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
    /// The packages that it depends on, also for tests and build scripts.
    pub dependencies: Vec<Dependency>,
    /// Its crates: library, binaries, tests, examples.
    pub targets: Vec<Target>,
}

/// A package that another one depends on.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// Its name.
    pub name: String,
    /// Its folder, if it belongs to this workspace.
    pub path: Option<String>,
}

/// A crate of a package.
#[derive(Debug, Deserialize)]
pub struct Target {
    /// Its kinds: `lib`, `bin`, `test`, and others.
    pub kind: Vec<String>,
    /// Its root file.
    pub src_path: PathBuf,
    /// Whether cargo runs the examples of its documentation.
    pub doctest: bool,
}

/// The packages of the workspace.
///
/// If cargo cannot list the packages: a check without its subject must not pass.
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
