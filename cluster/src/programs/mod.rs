//! Finds niclab's own programs: the daemon and tools for the host, the agent and the benchmark for the guests.
//!
//! If `NICLAB_PROGRAMS` names a folder, that folder must contain all of them, and niclab builds none. Otherwise a
//! `niclab` in a source tree builds them with cargo if needed, and an installed `niclab` finds them in its own folder.

pub mod simulator;

use std::{
    env, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use niclab_images::Progress;
use thiserror::Error;

use crate::host::process::die_with_owner;

/// The daemon.
const DEVICE: &str = "niclab-device";
/// The guests' programs.
const GUEST_PROGRAMS: [&str; 2] = ["niclab-agent", "niclab-perf"];
/// The target of the guests' programs. They link the C library statically, because guests may run any Debian release.
const GUEST_TARGET: &str = "x86_64-unknown-linux-gnu";
/// Why niclab builds no program if the user has set `NICLAB_PROGRAMS`.
const NO_BUILD_REASON: &str = "NICLAB_PROGRAMS is set to this folder";

/// A host program that runs without guests and without the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// The name of its file, and of the binary that cargo builds.
    pub program: &'static str,
    /// Its name in progress messages and errors.
    pub what: &'static str,
}

/// The simulator.
pub const SIMULATOR: Tool = Tool { program: "niclab-sim", what: "the simulator" };

/// One of niclab's programs is not available.
#[derive(Debug, Error)]
pub enum ToolError {
    /// There is neither a source tree nor an installation.
    #[error(
        "cannot find {program}: it is not in {}, and niclab does not build it, because {why}; build niclab in its \
         source tree, or set NICLAB_PROGRAMS to a folder that contains {program}",
        folder.display()
    )]
    Missing {
        /// The program.
        program: &'static str,
        /// The folder that does not contain it.
        folder: PathBuf,
        /// Why niclab does not build it.
        why: String,
    },
    /// Cargo cannot be started.
    #[error("cannot start cargo: {0}; install the Rust toolchain, or add it to PATH")]
    Cargo(#[source] io::Error),
    /// Cargo failed.
    #[error("cargo cannot build {what}:\n{output}")]
    Build {
        /// Name of the program or programs in messages.
        what: &'static str,
        /// Cargo's output.
        output: String,
    },
}

/// The paths of niclab's programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// The daemon.
    pub device: PathBuf,
    /// The guests' programs.
    pub guest: Vec<PathBuf>,
}

impl Programs {
    /// Finds the programs, or builds them.
    ///
    /// # Errors
    /// [`ToolError`].
    pub fn locate(offline: bool, progress: &dyn Progress) -> Result<Self, ToolError> {
        if let Some(folder) = env::var_os("NICLAB_PROGRAMS").filter(|folder| !folder.is_empty()) {
            return Self::in_folder(Path::new(&folder), NO_BUILD_REASON);
        }
        let own = env::current_exe().map_err(ToolError::Cargo)?;
        let folder = own.parent().unwrap_or(Path::new("/"));
        match SourceTree::find(&own) {
            Ok(tree) => tree.build(offline, progress),
            Err(why) => Self::in_folder(folder, &why),
        }
    }

    /// Finds all programs in `folder`; `why` is the reason why niclab does not build them.
    fn in_folder(folder: &Path, why: &str) -> Result<Self, ToolError> {
        let guest = GUEST_PROGRAMS.into_iter().map(|program| find(program, folder, why));
        Ok(Self { guest: guest.collect::<Result<_, _>>()?, device: find(DEVICE, folder, why)? })
    }
}

/// Finds a tool, or builds it.
///
/// # Errors
/// [`ToolError`].
pub fn locate(tool: Tool, offline: bool, progress: &dyn Progress) -> Result<PathBuf, ToolError> {
    if let Some(folder) = env::var_os("NICLAB_PROGRAMS").filter(|folder| !folder.is_empty()) {
        return find(tool.program, Path::new(&folder), NO_BUILD_REASON);
    }
    let own = env::current_exe().map_err(ToolError::Cargo)?;
    match SourceTree::find(&own) {
        Ok(tree) => tree.build_tool(tool, offline, progress),
        Err(why) => find(tool.program, own.parent().unwrap_or(Path::new("/")), &why),
    }
}

/// Finds the daemon if it was already built. This function builds nothing.
#[must_use]
pub fn built_device() -> Option<PathBuf> {
    if let Some(folder) = env::var_os("NICLAB_PROGRAMS").filter(|folder| !folder.is_empty()) {
        return find(DEVICE, Path::new(&folder), NO_BUILD_REASON).ok();
    }
    let own = env::current_exe().ok()?;
    let folder = match SourceTree::find(&own) {
        Ok(tree) => tree.target.join("release"),
        Err(_) => own.parent()?.to_owned(),
    };
    find(DEVICE, &folder, "it was not built yet").ok()
}

/// Finds a program in `folder`; `why` is the reason why niclab does not build it.
fn find(program: &'static str, folder: &Path, why: &str) -> Result<PathBuf, ToolError> {
    let path = folder.join(program);
    let missing = || ToolError::Missing { program, folder: folder.to_owned(), why: why.to_owned() };
    if path.is_file() { Ok(path) } else { Err(missing()) }
}

/// The source tree that this niclab was built from.
#[derive(Debug)]
struct SourceTree {
    root: PathBuf,
    target: PathBuf,
}

impl SourceTree {
    /// Finds the source tree and the target folder of the executable `own`. The error is the reason why this failed.
    fn find(own: &Path) -> Result<Self, String> {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = package.parent().filter(|root| root.join("Cargo.lock").is_file());
        let root = root
            .ok_or_else(|| format!("niclab's source tree {} no longer exists", package.display()))?
            .to_owned();
        // Cargo creates this file in each target folder. A `niclab` outside a target folder is an installed one.
        let target = own.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
        let target = target.ok_or("this niclab does not run from a cargo target folder")?.to_owned();
        Ok(Self { root, target })
    }

    fn build(&self, offline: bool, progress: &dyn Progress) -> Result<Programs, ToolError> {
        // The guests' programs need other compiler flags than the host's. In one target folder, cargo would rebuild
        // everything each time the flags change.
        let guest_target = self.target.join("guest");
        let mut guest = self.cargo(&guest_target, offline);
        guest.args(["--target", GUEST_TARGET, "-p", "niclab-agent", "-p", "niclab-tools"]);
        for program in GUEST_PROGRAMS {
            guest.args(["--bin", program]);
        }
        guest.env("RUSTFLAGS", "-Ctarget-feature=+crt-static");
        // The programs are unpacked into each guest's memory. Without symbols they take a quarter of the memory and of
        // the boot time that they take with symbols.
        guest.envs([("CARGO_PROFILE_RELEASE_DEBUG", "false"), ("CARGO_PROFILE_RELEASE_STRIP", "symbols")]);
        run(guest, "the guests' programs", progress)?;
        run(self.host_program(DEVICE, offline), "the daemon", progress)?;
        let guest_folder = guest_target.join(GUEST_TARGET).join("release");
        Ok(Programs {
            device: self.target.join("release").join(DEVICE),
            guest: GUEST_PROGRAMS.iter().map(|program| guest_folder.join(program)).collect(),
        })
    }

    fn build_tool(&self, tool: Tool, offline: bool, progress: &dyn Progress) -> Result<PathBuf, ToolError> {
        run(self.host_program(tool.program, offline), tool.what, progress)?;
        Ok(self.target.join("release").join(tool.program))
    }

    /// Prepares cargo to build one program of the host. A shared package gets the features that any requested package
    /// needs, so cargo rebuilds it if the requested packages change. Like the `niclab` script, this function always
    /// requests the whole workspace, so cargo builds shared packages only once.
    fn host_program(&self, program: &str, offline: bool) -> Command {
        let mut cargo = self.cargo(&self.target, offline);
        cargo.args(["--workspace", "--bin", program]);
        cargo
    }

    /// Prepares a release build of the source tree in the folder `target`.
    fn cargo(&self, target: &Path, offline: bool) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&self.root).args(["build", "--release", "--target-dir"]).arg(target);
        if offline {
            cargo.arg("--offline");
        }
        // Variables that are set for the build of niclab itself must not affect these builds.
        for variable in ["CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR"] {
            cargo.env_remove(variable);
        }
        cargo
    }
}

/// Whether this line of cargo's output says that cargo waits for a lock. The wait may take minutes.
fn is_waiting(line: &str) -> bool {
    line.starts_with("Blocking waiting for file lock")
}

/// Runs cargo to build `what`, and shows its output as progress.
fn run(mut cargo: Command, what: &'static str, progress: &dyn Progress) -> Result<(), ToolError> {
    use io::{BufRead, BufReader};
    cargo.env("CARGO_TERM_COLOR", "never").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    die_with_owner(&mut cargo);
    let begin = std::time::Instant::now();
    let mut child = cargo.spawn().map_err(ToolError::Cargo)?;
    let mut output = String::new();
    let mut announced = false;
    for line in child
        .stderr
        .take()
        .into_iter()
        .flat_map(|stderr| BufReader::new(stderr).lines())
        .map_while(Result::ok)
    {
        let line = line.trim();
        // Cargo prints other lines even if nothing needs to be built. They are not shown.
        let is_build_step =
            ["Compiling", "Downloading", "Downloaded"].iter().any(|word| line.starts_with(word));
        if is_build_step && !std::mem::replace(&mut announced, true) {
            progress.started(what);
        }
        if is_build_step {
            progress.detail(what, line);
        }
        if is_waiting(line) {
            progress.note(&format!("{what}: another cargo is at work ({line}); niclab waits until it ends"));
        }
        output += line;
        output.push('\n');
    }
    if !child.wait().map_err(ToolError::Cargo)?.success() {
        return Err(ToolError::Build { what, output });
    }
    if announced {
        progress.done(what, begin.elapsed());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_the_missing_program_the_reason_and_the_fix() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("niclab-agent"), "").unwrap();
        let error = Programs::in_folder(folder.path(), "reason").unwrap_err().to_string();
        assert!(
            error.contains("niclab-perf") && error.contains("reason") && error.contains("NICLAB_PROGRAMS"),
            "{error}"
        );
    }

    /// Records the notes of a build.
    #[derive(Default)]
    struct Notes(std::sync::Mutex<Vec<String>>);

    impl Progress for Notes {
        fn started(&self, _: &str) {}
        fn detail(&self, _: &str, _: &str) {}
        fn done(&self, _: &str, _: std::time::Duration) {}
        fn note(&self, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
    }

    #[test]
    fn cargo_that_waits_for_a_lock_is_reported() {
        let notes = Notes::default();
        let mut cargo = Command::new("sh");
        cargo.args(["-c", "echo '    Blocking waiting for file lock on artifact directory' >&2"]);
        run(cargo, "the simulator", &notes).unwrap();
        let notes = notes.0.into_inner().unwrap();
        assert!(
            notes.len() == 1 && notes[0].contains("the simulator: another cargo is at work"),
            "{notes:?}"
        );
    }

    #[test]
    fn only_a_niclab_in_a_target_folder_has_a_source_tree() {
        let own = env::current_exe().unwrap();
        let tree = SourceTree::find(&own).unwrap();
        assert!(tree.root.join("cluster/Cargo.toml").is_file());
        assert!(own.starts_with(&tree.target));
        assert!(SourceTree::find(Path::new("/usr/bin/niclab")).is_err());
        let error = find(SIMULATOR.program, Path::new("/nowhere"), "reason").unwrap_err().to_string();
        assert!(error.contains("niclab-sim") && error.contains("/nowhere"), "{error}");
    }
}
