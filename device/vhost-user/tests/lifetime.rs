//! How the daemon's process ends. A program of its own, without the test harness, because the main thread gets the
//! signals.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use niclab_device::lab::Lab;
use niclab_device::lifetime::Lifetime;
use niclab_spec::daemon::{DaemonConfig, NodeSockets, READY_LINE};
use niclab_spec::{ClusterFile, ClusterName, Source};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Time limit of any step.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Environment variable: the role of this program when it starts itself again.
const PART: &str = "NICLAB_TEST_PART";
const CONFIG: &str = "NICLAB_TEST_CONFIG";

fn main() {
    match std::env::var(PART).as_deref() {
        Ok("parent") => return play_parent(),
        Ok("stuck") => return play_stuck(),
        _ => {}
    }
    let tests: [(&str, fn()); 4] = [
        ("daemon_that_handles_no_signal_dies_with_its_parent", dies_with_its_parent),
        ("daemon_with_stuck_locks_ends_on_sigterm", ends_though_stuck),
        ("daemon_ends_in_good_order_on_request", ends_in_good_order),
        ("sockets_are_private_with_any_umask", makes_private_sockets),
    ];
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_listing = arguments.iter().any(|argument| argument == "--list");
    // As in the test harness, an argument is a part of the names of tests to run.
    let wanted = arguments.iter().find(|argument| !argument.starts_with('-'));
    for (name, test) in
        tests.into_iter().filter(|(name, _)| wanted.is_none_or(|part| name.contains(part.as_str())))
    {
        if is_listing {
            println!("{name}: test");
        } else {
            println!("test {name} ...");
            test();
        }
    }
    if !is_listing {
        println!("test result: ok");
    }
}

fn config(folder: &Path) -> std::path::PathBuf {
    let cluster = Source::default().resolve(&ClusterFile::default()).unwrap();
    let config = DaemonConfig::new(&cluster, &ClusterName::default(), folder.join("monitor"), |rank| {
        let place = |kind: &str| folder.join(format!("{rank}.{kind}"));
        NodeSockets { cluster_socket: place("cluster"), ethernet_socket: place("ethernet") }
    });
    let path = folder.join("daemon.json");
    std::fs::write(&path, serde_json::to_string(&config).unwrap()).unwrap();
    path
}

/// Starts the daemon, and waits until it is ready. Its standard input stays open.
fn start(command: &mut Command) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), READY_LINE);
    child
}

fn daemon(config: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_niclab-device"));
    command.arg("--config").arg(config);
    command
}

fn part(part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(PART, part);
    command
}

/// The state letter of a process, if it exists.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < TIMEOUT, "timed out: {what}");
        std::thread::yield_now();
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap())
}

/// Starts a daemon, prints its process id, and waits to be killed. The daemon gets a session of its own: the kernel
/// continues stopped processes of a session when the last process dies that could have continued them.
fn play_parent() {
    let config = std::env::var_os(CONFIG).unwrap();
    let mut command = Command::new("setsid");
    command.arg(env!("CARGO_BIN_EXE_niclab-device")).arg("--config").arg(config);
    let mut daemon = start(&mut command);
    println!("{READY_LINE}\n{}", daemon.id());
    // The daemon's standard input stays open, because its end must not be the cause of the daemon's death.
    let _stdin = daemon.stdin.take();
    daemon.wait().unwrap();
}

fn dies_with_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = part("parent");
    command.env(CONFIG, config(folder.path())).stdout(Stdio::piped());
    let mut parent = command.spawn().unwrap();
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), READY_LINE);
    let daemon: u32 = lines.next().unwrap().unwrap().parse().unwrap();
    // A stopped daemon handles neither signals nor the end of its standard input.
    kill(Pid::from_raw(daemon.try_into().unwrap()), Signal::SIGSTOP).unwrap();
    until("the daemon to stop", || state(daemon) == Some('T'));
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("the daemon to die with its parent", || matches!(state(daemon), None | Some('Z' | 'X')));
}

/// A daemon whose locks are never released.
fn play_stuck() {
    let lifetime = Lifetime::begin().unwrap();
    let lab = Lab::new(2, |_| ()).unwrap();
    std::mem::forget(lab.daemon().shell().lock_all());
    println!("{READY_LINE}");
    lifetime.wait().unwrap();
    drop(lab);
    println!("the locked was not stuck");
}

fn ends_though_stuck() {
    // The daemon dies before it can clear its folder, so the folder is inside one of this process.
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = start(part("stuck").env("TMPDIR", folder.path()));
    kill(pid(&daemon), Signal::SIGTERM).unwrap();
    let mut ended = None;
    until("the kernel to end it", || {
        ended = daemon.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.and_then(|status| status.signal()), Some(Signal::SIGALRM as i32));
}

fn ends_in_good_order() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let mut told = start(&mut daemon(&config));
    kill(pid(&told), Signal::SIGTERM).unwrap();
    assert!(told.wait().unwrap().success(), "by a signal");
    assert!(!folder.path().join("monitor").exists());
    let mut left = start(daemon(&config).process_group(0));
    drop(left.stdin.take());
    assert!(left.wait().unwrap().success(), "by the end of its standard input");
    assert!(!folder.path().join("monitor").exists());

    // A killed daemon leaves its sockets, and the next daemon replaces them. A file of another owner stays.
    let mut killed = start(&mut daemon(&config));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let mut next = start(&mut daemon(&config));
    kill(pid(&next), Signal::SIGTERM).unwrap();
    assert!(next.wait().unwrap().success());
    let precious = folder.path().join("0.cluster");
    std::fs::write(&precious, "text").unwrap();
    let output = daemon(&config).stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success());
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("0.cluster") && words.contains("is not a socket"), "{words}");
    assert_eq!(std::fs::read(&precious).unwrap(), b"text");
}

fn makes_private_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0; exec \"$0\" --config \"$1\"", env!("CARGO_BIN_EXE_niclab-device")]);
    let mut daemon = start(command.arg(config(folder.path())));
    for name in ["monitor", "0.cluster", "0.ethernet", "1.cluster", "1.ethernet"] {
        let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name}: {mode:o}");
    }
    drop(daemon.stdin.take());
    assert!(daemon.wait().unwrap().success());
}
