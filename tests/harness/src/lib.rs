//! The harness of the tests of the `niclab` command: runs it as a user would, and reads its output.
//!
//! It uses no internals of `niclab`. A test is a command line, an exit code, and the output.

mod documented;

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use std::{env, fs};

pub use documented::{Documented, documented, invalid};

/// The release build of a binary of this workspace.
///
/// If it was not built: `ci/test` builds it before the tests that boot guests.
pub fn binary(name: &str) -> PathBuf {
    let path = release_folder().join(name);
    assert!(
        path.is_file(),
        "{} is missing: run cargo build --release --workspace --bin niclab",
        path.display()
    );
    path
}

/// The folder of this workspace's release builds.
pub fn release_folder() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target")), PathBuf::from);
    target.join("release")
}

/// How a command ended, and its output.
#[derive(Debug)]
pub struct Outcome {
    /// Exit code or signal.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Wall time.
    pub took: Duration,
}

impl Outcome {
    /// Runs this command to its end.
    ///
    /// # Panics
    /// When it does not start.
    pub fn of(command: &mut Command) -> Self {
        let start = Instant::now();
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            took: start.elapsed(),
        }
    }

    /// The exit code.
    ///
    /// If a signal ended the command.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("ended by a signal:\n{self}"))
    }

    /// This outcome, which must be a success.
    ///
    /// If the exit code is not 0; shows the output.
    #[track_caller]
    pub fn success(self) -> Self {
        assert!(self.status.success(), "expected exit code 0:\n{self}");
        self
    }

    /// Standard output as JSON.
    ///
    /// If it is not one JSON document.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("not JSON: {error}\n{self}"))
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { status, stdout, stderr, took } = self;
        write!(f, "{status} after {took:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}

/// The `niclab` command with its own folder and runtime folder.
pub struct Niclab {
    folder: tempfile::TempDir,
    program: PathBuf,
    cache: Option<PathBuf>,
}

impl Niclab {
    /// Runs the release build in a new folder, with the user's cache. Clusters of other tests are not visible.
    ///
    /// If no temporary folder can be made, or there is no release build.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self::in_new_place(binary("niclab"))
    }

    /// Runs this build in a new folder, with an empty cache: for tests that boot no guests.
    ///
    /// If no temporary folder can be made.
    pub fn without_guests(program: &str) -> Self {
        let mut place = Self::in_new_place(program.into());
        place.cache = Some(place.folder().join("cache"));
        place
    }

    fn in_new_place(program: PathBuf) -> Self {
        let folder = tempfile::Builder::new().prefix("niclab-vm").tempdir().expect("a temporary folder");
        Self { folder, program, cache: None }
    }

    /// The folder in which the command runs, and which the guests see.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The runtime folder, which has state and sockets. `niclab` creates it. `NICLAB_RUNTIME_DIR` names it in each
    /// command's environment: otherwise `niclab` would first choose a default folder that already has clusters, perhaps
    /// the user's.
    pub fn runtime(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    /// The command, not yet started.
    pub fn command(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("NICLAB_RUNTIME_DIR", self.runtime())
            .envs(self.cache.iter().map(|cache| ("NICLAB_CACHE", cache)))
            .stdin(Stdio::null());
        command
    }

    /// Runs the command to its end.
    ///
    /// # Panics
    /// When it does not start.
    pub fn run(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Outcome {
        Outcome::of(&mut self.command(arguments))
    }

    /// Processes whose command line or environment names this runtime folder. A run must leave none.
    pub fn processes(&self) -> Vec<String> {
        let marker = self.folder.path().to_string_lossy().into_owned();
        let mut found = Vec::new();
        let Ok(entries) = fs::read_dir("/proc") else { return found };
        for entry in entries.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            if pid == std::process::id() {
                continue;
            }
            let read = |file: &str| {
                let bytes = fs::read(entry.path().join(file)).unwrap_or_default();
                String::from_utf8_lossy(&bytes).replace('\0', " ")
            };
            let command_line = read("cmdline");
            // A zombie has neither.
            if command_line.contains(&marker) || read("environ").contains(&marker) {
                found.push(format!("{pid}: {command_line}"));
            }
        }
        found
    }
}

impl Drop for Niclab {
    fn drop(&mut self) {
        // A failed test may have left a cluster up, which would disturb later tests.
        if !self.processes().is_empty() {
            let _ = self.command(["down", "--all"]).output();
        }
    }
}

/// `command`, started by a shell script in a separate mount namespace, in which an ordinary user may mount. The script
/// gets `folder` as `$1` and the command after it.
///
/// If the system denies user namespaces. niclab needs them, too, to build its images without root.
pub fn in_mount_namespace(script: &str, folder: &Path, command: &Command) -> Command {
    const UNSHARE: [&str; 2] = ["unshare", "-Urm"];
    let mut unshare = Command::new(UNSHARE[0]);
    let is_allowed = unshare.args(&UNSHARE[1..]).arg("true").status().is_ok_and(|status| status.success());
    assert!(
        is_allowed,
        "{UNSHARE:?} fails: allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1)"
    );
    let mut unshare = Command::new(UNSHARE[0]);
    unshare.args(&UNSHARE[1..]).args(["--", "sh", "-c", script, "sh"]).arg(folder);
    unshare.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    unshare.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = command.get_current_dir() {
        unshare.current_dir(folder);
    }
    unshare
}

/// Compiles a C program to the folder that the guests see. It is linked statically, and so runs in any guest.
///
/// If there is no compiler, or the compiler fails.
pub fn compile(niclab: &Niclab, name: &str, text: &str) {
    let source = niclab.folder().join(name).with_extension("c");
    fs::write(&source, text).expect("a source");
    let mut cc = Command::new("cc");
    let built = cc
        .args(["-O2", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-static", "-o", name])
        .arg(&source)
        .current_dir(niclab.folder())
        .output()
        .expect("cc starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

/// Builds the library's examples in C in the folder that the guests see.
///
/// If they cannot be built.
pub fn build_c_examples(niclab: &Niclab) {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest-driver/lib");
    let built = release_folder().join("libniclab_user.a");
    let cargo = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--release", "--package", "niclab-user", "--lib"])
        .current_dir(&library)
        .output()
        .expect("cargo");
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let make = Command::new("make")
        .arg("-C")
        .arg(library.join("examples"))
        .arg(format!("LIBRARY={}", built.display()))
        .arg(format!("OUT={}", niclab.folder().display()))
        .output()
        .expect("make");
    assert!(make.status.success(), "{}", String::from_utf8_lossy(&make.stderr));
}

/// The kernel driver's test program, statically linked; built once.
static SELFTEST: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest-driver/kernel/selftest");
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../device/abi/include");
    let files = fs::read_dir(&sources)
        .expect("the test program's sources")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"));
    let folder = tempfile::tempdir().expect("a folder");
    let built = Command::new("cc")
        .args([
            "-O2",
            "-std=gnu11",
            "-D_GNU_SOURCE",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
            "-static",
            "-I",
        ])
        .arg(header)
        .args(files)
        .args(["-o", SELFTEST_NAME])
        .current_dir(folder.path())
        .output()
        .expect("cc starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    fs::read(folder.path().join(SELFTEST_NAME)).expect("the program")
});

const SELFTEST_NAME: &str = "niclab-selftest";

/// Copies the kernel driver's test program, `niclab-selftest`, to the folder that guests see.
///
/// # Panics
/// When it cannot be built.
pub fn put_selftest(niclab: &Niclab) {
    let path = niclab.folder().join(SELFTEST_NAME);
    fs::write(&path, &*SELFTEST).expect("the program's place");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
}

/// Builds an example of the Rust library in the folder that guests see.
///
/// # Panics
/// When it cannot be built.
pub fn build_rust_example(niclab: &Niclab, name: &str) {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest-driver/lib");
    let cargo = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--release", "--package", "niclab-user", "--example", name])
        .current_dir(&library)
        .output()
        .expect("cargo");
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let built = release_folder().join("examples").join(name);
    std::fs::copy(&built, niclab.folder().join(name)).expect("the example");
}

/// The limit of each wait: long enough to build a template on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(240);

/// Checks `condition` until it is true. Returns false at the limit.
pub fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + TIMEOUT;
    while !condition() {
        if Instant::now() >= end {
            return false;
        }
        // This process is not notified of the end of a process that is not its child, so it polls.
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}

/// A running command.
pub struct Started {
    child: std::process::Child,
    lines: std::sync::mpsc::Receiver<Line>,
    start: Instant,
    stdout: String,
    stderr: String,
}

/// One line of a started command's output.
enum Line {
    Out(String),
    Err(String),
}

impl Niclab {
    /// Starts the command; it is killed if the test ends before it.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Started {
        Started::new(self.command(arguments))
    }

    /// Sends a signal to every process of this place whose command line contains `name`.
    ///
    /// If there is none.
    pub fn signal_processes(&self, name: &str, signal: i32) {
        let processes = self.processes();
        let pids: Vec<i32> = processes
            .iter()
            .filter(|process| process.contains(name))
            .filter_map(|process| process.split(':').next()?.parse().ok())
            .collect();
        assert!(!pids.is_empty(), "no process {name} among {processes:#?}");
        for pid in pids {
            // SAFETY: kill has no effect on this process's memory.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

impl Started {
    /// Starts a command; it is killed if the test ends before it.
    ///
    /// # Panics
    /// When it does not start.
    pub fn new(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", command.get_program().to_string_lossy()));
        let (sender, lines) = std::sync::mpsc::channel();
        let errors = sender.clone();
        let stdout = child.stdout.take().expect("a pipe");
        let stderr = child.stderr.take().expect("a pipe");
        std::thread::spawn(move || forward(stdout, |line| sender.send(Line::Out(line)).is_ok()));
        std::thread::spawn(move || forward(stderr, |line| errors.send(Line::Err(line)).is_ok()));
        Started { child, lines, start: Instant::now(), stdout: String::new(), stderr: String::new() }
    }
}

fn forward(stream: impl std::io::Read, mut send: impl FnMut(String) -> bool) {
    let mut reader = std::io::BufReader::new(stream);
    let mut line = Vec::new();
    while std::io::BufRead::read_until(&mut reader, b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        if !send(String::from_utf8_lossy(&line).into_owned()) {
            return;
        }
        line.clear();
    }
}

impl Started {
    /// Waits until a line that contains `text` is printed, and returns it.
    ///
    /// If the command ends without it, or at the limit.
    #[track_caller]
    pub fn wait_for_line(&mut self, text: &str) -> String {
        let end = Instant::now() + TIMEOUT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("no line with {text:?}\n--- stdout\n{}\n--- stderr\n{}", self.stdout, self.stderr);
            };
            let line = self.keep(line);
            if line.contains(text) {
                return line;
            }
        }
    }

    fn keep(&mut self, line: Line) -> String {
        let (kept, line) = match line {
            Line::Out(line) => (&mut self.stdout, line),
            Line::Err(line) => (&mut self.stderr, line),
        };
        kept.push_str(&line);
        line
    }

    /// Sends a signal to the command.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill has no effect on this process's memory.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Whether the command still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the end.
    ///
    /// At the limit; the command is then killed.
    #[track_caller]
    pub fn finish(mut self) -> Outcome {
        let end = Instant::now() + TIMEOUT;
        // Both pipes end when the command and all processes that it started have ended.
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.keep(line);
        }
        let ended = eventually(|| matches!(self.child.try_wait(), Ok(Some(_))));
        let outcome = |started: &mut Self, status| Outcome {
            status,
            stdout: std::mem::take(&mut started.stdout),
            stderr: std::mem::take(&mut started.stderr),
            took: started.start.elapsed(),
        };
        if !ended {
            let _ = self.child.kill();
            let status = self.child.wait().expect("a killed child ends");
            panic!("did not end within {TIMEOUT:?}:\n{}", outcome(&mut self, status));
        }
        let status = self.child.wait().expect("it has ended");
        outcome(&mut self, status)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Both calls fail if the command has ended, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
