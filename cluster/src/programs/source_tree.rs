//! Builds niclab's programs with cargo, in the source tree of this `niclab`.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{ChildStderr, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use niclab_images::Progress;

use super::{DEVICE, GUEST_PROGRAMS, Programs, Tool, ToolError};
use crate::host::process::die_with_owner;

/// The target of the guests' programs. They link the C library statically, because guests may run any Debian release.
const GUEST_TARGET: &str = "x86_64-unknown-linux-gnu";

/// This package's folder where this `niclab` was built. A `niclab` of a release has none: its archive must not contain
/// paths of the machine that built it.
const PACKAGE: Option<&str> = match option_env!("NICLAB_RELEASE") {
    Some(_) => None,
    None => Some(env!("CARGO_MANIFEST_DIR")),
};

/// The source tree that this niclab was built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTree {
    /// Its folder.
    pub root: PathBuf,
    /// The target folder in which cargo builds the programs.
    pub target: PathBuf,
    /// Whether this niclab runs from that target folder. Otherwise, `cargo install` copied it from there.
    pub is_own: bool,
}

impl SourceTree {
    /// Finds the source tree of the executable `own`. The error is the reason why there is none.
    pub(super) fn find(own: &Path) -> Result<Self, String> {
        Self::of_package(PACKAGE, own)
    }

    fn of_package(package: Option<&str>, own: &Path) -> Result<Self, String> {
        let package = package.map(Path::new).ok_or("this niclab belongs to a release")?;
        let root = package.parent().filter(|root| root.join("Cargo.lock").is_file());
        let root = root
            .ok_or_else(|| format!("niclab's source tree {} no longer exists", package.display()))?
            .to_owned();
        // Cargo creates this file in each target folder. A `niclab` outside a target folder is an installed one.
        let target = own.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
        Ok(Self {
            target: target.map_or_else(|| root.join("target"), Path::to_owned),
            root,
            is_own: target.is_some(),
        })
    }

    /// The folder of the programs that run on the host.
    #[must_use]
    pub fn host_folder(&self) -> PathBuf {
        self.target.join("release")
    }

    /// The target folder of the guests' programs. They need other compiler flags than the host's. In one target folder,
    /// cargo would rebuild everything each time the flags change.
    fn guest_target(&self) -> PathBuf {
        self.target.join("guest")
    }

    /// The folder of the programs that run in guests.
    #[must_use]
    pub fn guest_folder(&self) -> PathBuf {
        self.guest_target().join(GUEST_TARGET).join("release")
    }

    /// Builds the programs of a cluster.
    pub(super) fn build(&self, offline: bool, progress: &dyn Progress) -> Result<Programs, ToolError> {
        let mut guest = self.cargo(&self.guest_target(), offline);
        guest.args(["--target", GUEST_TARGET, "-p", "niclab-agent", "-p", "niclab-tools"]);
        for program in GUEST_PROGRAMS {
            guest.args(["--bin", program]);
        }
        guest.env("RUSTFLAGS", "-Ctarget-feature=+crt-static");
        // The programs are unpacked into each guest's memory. Without symbols they take a quarter of the memory and of
        // the boot time that they take with symbols.
        guest.envs([("CARGO_PROFILE_RELEASE_DEBUG", "false"), ("CARGO_PROFILE_RELEASE_STRIP", "symbols")]);
        let device = self.host_program(DEVICE, offline);
        // At once: the last package of each is compiled on one core.
        thread::scope(|scope| {
            let device = scope.spawn(|| run(device, "the daemon", progress));
            let guest = run(guest, "the guests' programs", progress);
            device.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(guest)
        })?;
        Ok(Programs {
            device: self.host_folder().join(DEVICE),
            guest: GUEST_PROGRAMS.iter().map(|program| self.guest_folder().join(program)).collect(),
        })
    }

    /// Builds one tool.
    pub(super) fn build_tool(
        &self,
        tool: Tool,
        offline: bool,
        progress: &dyn Progress,
    ) -> Result<PathBuf, ToolError> {
        run(self.host_program(tool.program, offline), tool.what, progress)?;
        Ok(self.host_folder().join(tool.program))
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

/// A wait for a lock is reported after this time. The two builds of a cluster's programs wait for each other briefly.
const GRACE: Duration = Duration::from_secs(1);

/// Runs cargo to build `what`, and shows its output as progress.
fn run(mut cargo: Command, what: &'static str, progress: &dyn Progress) -> Result<(), ToolError> {
    cargo.env("CARGO_TERM_COLOR", "never").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    die_with_owner(&mut cargo);
    let begin = Instant::now();
    let mut child = cargo.spawn().map_err(ToolError::Cargo)?;
    let lines = lines_of(child.stderr.take());
    let mut output = String::new();
    let mut announced = false;
    let mut waiting = None;
    loop {
        let line = match lines.recv_timeout(if waiting.is_some() { GRACE } else { Duration::MAX }) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(line) = waiting.take() {
                    progress.note(&format!(
                        "{what}: another cargo is at work ({line}); niclab waits until it ends"
                    ));
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
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
        waiting = is_waiting(line).then(|| line.to_owned());
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

/// Receives the lines that a program writes, until it ends.
fn lines_of(stderr: Option<ChildStderr>) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let lines = stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).lines());
        // The receiver exists until the last line.
        let _ = lines.map_while(Result::ok).try_for_each(|line| sender.send(line));
    });
    receiver
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use super::*;
    use crate::notes::Notes;

    #[test]
    fn cargo_that_waits_for_a_lock_is_reported() {
        let notes = Notes::default();
        // The first wait is short.
        let blocking = "echo '    Blocking waiting for file lock on artifact directory' >&2";
        let mut cargo = Command::new("sh");
        cargo.args(["-c", &format!("{blocking}; echo Compiling >&2; {blocking}; sleep 2")]);
        run(cargo, "the simulator", &notes).unwrap();
        let notes = notes.0.into_inner().unwrap();
        assert!(
            notes.len() == 1 && notes[0].contains("the simulator: another cargo is at work"),
            "{notes:?}"
        );
    }

    #[test]
    fn niclab_of_a_target_folder_builds_in_that_folder() {
        let own = env::current_exe().unwrap();
        let tree = SourceTree::find(&own).unwrap();
        assert!(tree.root.join("cluster/Cargo.toml").is_file());
        assert!(tree.is_own && own.starts_with(&tree.target));
    }

    #[test]
    fn niclab_that_cargo_installed_builds_in_its_source_tree() {
        let tree = SourceTree::find(Path::new("/home/user/.cargo/bin/niclab")).unwrap();
        assert_eq!((tree.is_own, &tree.target), (false, &tree.root.join("target")));
    }

    #[test]
    fn removed_source_tree_and_release_have_no_source_tree() {
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("cluster");
        fs::create_dir(&package).unwrap();
        let own = env::current_exe().unwrap();
        let removed = SourceTree::of_package(package.to_str(), &own).unwrap_err();
        assert!(removed.contains("no longer exists"), "{removed}");
        let release = SourceTree::of_package(None, &own).unwrap_err();
        assert!(release.contains("release"), "{release}");
    }
}
