//! The subcommands on a cluster that is up, and the supervisor behind them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking, helpers included")]

mod support;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdout, Command, Output, Stdio},
    time::Duration,
};

use niclab_cluster::{
    control::{self, Reply, Request},
    supervisor::{Order, Progress},
};
use rustix::process::{Pid, Signal, kill_process};
use support::{GOOD_DAEMON, PATIENCE, lives, plan, wait_for};

#[test]
fn play_guest() {
    support::play_guest();
}

struct Up {
    _folder: tempfile::TempDir,
    root: std::path::PathBuf,
    supervisor: Child,
    progress: BufReader<ChildStdout>,
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
    }
}

fn niclab(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_niclab"));
    command.args(arguments).env("NICLAB_RUNTIME_DIR", root).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Up {
    fn begin(daemon: &str, modes: &[&str], boot_timeout: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("r");
        let mut supervisor =
            niclab(&root, &["supervise"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let order = Order { root: root.clone(), plan: plan(&root, "niclab", daemon, modes), boot_timeout };
        control::write_line(&mut supervisor.stdin.take().unwrap(), &order).unwrap();
        let progress = BufReader::new(supervisor.stdout.take().unwrap());
        Self { _folder: folder, root, supervisor, progress }
    }

    fn new(modes: &[&str]) -> Self {
        let mut up = Self::begin(GOOD_DAEMON, modes, PATIENCE);
        while up.next_progress() != Progress::Up {}
        up
    }

    fn next_progress(&mut self) -> Progress {
        let mut line = String::new();
        self.progress.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn niclab(&self, arguments: &[&str]) -> Output {
        niclab(&self.root, arguments).output().unwrap()
    }

    fn pids(&self) -> Vec<u32> {
        match control::ask(&self.root.join("niclab"), &Request::Status).unwrap() {
            Reply::Status(status) => {
                status.nodes.iter().map(|node| node.pid).chain([status.daemon_pid]).collect()
            }
            reply => panic!("{reply:?}"),
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.supervisor), signal).unwrap();
    }
}

#[test]
fn exec_gives_output_and_code_and_knows_its_rank() {
    let up = Up::new(&["good", "good"]);
    let output = up.niclab(&["exec", "node1", "--", "7"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("1 of 2\n", "oops\n"));

    let output = up.niclab(&["exec", "node7", "--", "0"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("the nodes are node0, node1"), "{}", text(&output.stderr));
}

#[test]
fn exec_carries_more_input_than_its_window() {
    let up = Up::new(&["good"]);
    let mut child = niclab(&up.root, &["exec", "node0", "--", "wait"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent: Vec<u8> = (0..1_000_000u32).flat_map(|n| n.to_le_bytes()).collect();
    let copy = sent.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&copy).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout == sent, "{} bytes came back", output.stdout.len());
}

#[test]
fn an_agent_that_is_lost_is_told_and_connected_to_again() {
    let up = Up::new(&["good"]);
    let output = up.niclab(&["exec", "node0", "--", "crash"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("agent is gone"), "{}", text(&output.stderr));
    assert_eq!(up.niclab(&["exec", "node0", "--", "0"]).status.code(), Some(0));
}

#[test]
fn inspect_shows_nodes_and_health_as_table_and_json() {
    let up = Up::new(&["good", "good"]);
    let output = up.niclab(&["inspect"]);
    assert_eq!(output.status.code(), Some(0));
    let table = text(&output.stdout);
    assert!(table.contains("node1") && table.contains("10.77.0.2") && table.contains("healthy"), "{table}");
    let json: serde_json::Value = serde_json::from_slice(&up.niclab(&["inspect", "--json"]).stdout).unwrap();
    assert_eq!(json["nodes"][0]["health"]["Ok"]["interrupts"], 3, "{json}");
}

#[test]
fn logs_show_console_and_daemon() {
    let up = Up::new(&["good"]);
    assert_eq!(text(&up.niclab(&["logs", "node0"]).stdout), "booting in mode good\n");
    assert_eq!(up.niclab(&["logs", "daemon"]).status.code(), Some(0));
    assert!(text(&up.niclab(&["logs", "x"]).stderr).contains("there are node0, and `daemon`"));
}

#[test]
fn down_ends_everything_and_says_so_once() {
    let mut up = Up::new(&["good", "good"]);
    let pids = up.pids();
    let output = up.niclab(&["down"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!pids.iter().any(|&pid| lives(pid)));
    assert!(!up.root.join("niclab").exists());
    assert!(up.supervisor.wait().unwrap().success());
    let again = up.niclab(&["down"]);
    assert_eq!(again.status.code(), Some(125));
    assert!(text(&again.stderr).contains("no cluster is up"), "{}", text(&again.stderr));
}

#[test]
fn down_cleans_up_after_a_supervisor_that_was_killed() {
    let mut up = Up::new(&["good", "good"]);
    let pids = up.pids();
    up.signal(Signal::KILL);
    up.supervisor.wait().unwrap();
    wait_for("the guests to die with their owner", || !pids.iter().any(|&pid| lives(pid)));
    let inspect = up.niclab(&["inspect"]);
    assert!(text(&inspect.stderr).contains("niclab down"), "{}", text(&inspect.stderr));
    assert_eq!(up.niclab(&["down"]).status.code(), Some(0));
    assert!(!up.root.join("niclab").exists());
}

#[test]
fn a_name_can_be_up_once() {
    let up = Up::new(&["good"]);
    let folder = up.root.clone();
    let mut second =
        niclab(&folder, &["supervise"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let order = Order {
        root: folder,
        plan: plan(&up.root, "niclab", GOOD_DAEMON, &["good"]),
        boot_timeout: PATIENCE,
    };
    control::write_line(&mut second.stdin.take().unwrap(), &order).unwrap();
    let output = second.wait_with_output().unwrap();
    assert!(text(&output.stdout).contains("already there; use --name"), "{}", text(&output.stdout));
    assert_eq!(up.niclab(&["exec", "node0", "--", "0"]).status.code(), Some(0), "the first one goes on");
}

#[test]
fn a_cluster_that_ends_by_itself_leaves_the_reason() {
    let mut up = Up::new(&["good", "good"]);
    let output = up.niclab(&["exec", "node1", "--", "quit"]);
    assert_eq!(output.status.code(), Some(125));
    up.supervisor.wait().unwrap();
    let inspect = up.niclab(&["inspect"]);
    assert_eq!(inspect.status.code(), Some(125));
    let message = text(&inspect.stderr);
    assert!(message.contains("node1 switched itself off") && message.contains("niclab down"), "{message}");
    assert_eq!(text(&up.niclab(&["logs", "node1"]).stdout), "booting in mode good\n", "logs are still there");
    assert_eq!(up.niclab(&["down"]).status.code(), Some(0));
    assert!(!up.root.join("niclab").exists());
}

#[test]
fn a_boot_that_fails_is_told_and_leaves_nothing() {
    let mut up = Up::begin(GOOD_DAEMON, &["sick"], Duration::from_secs(1));
    match up.next_progress() {
        Progress::Failed { message } => assert!(message.contains("not healthy after 1 s"), "{message}"),
        other => panic!("{other:?}"),
    }
    up.supervisor.wait().unwrap();
    assert!(!up.root.join("niclab").exists());
}

#[test]
fn a_signal_while_it_boots_ends_everything() {
    let mut up = Up::begin(GOOD_DAEMON, &["mute", "mute"], PATIENCE);
    let processes = up.root.join("niclab/processes.json");
    let is_booting = |text: String| text.matches("pid").count() == 3;
    wait_for("the guests to be started", || fs::read_to_string(&processes).is_ok_and(is_booting));
    up.signal(Signal::TERM);
    assert!(up.supervisor.wait().unwrap().success());
    assert!(!up.root.join("niclab").exists());
}

#[test]
fn a_signal_while_it_is_up_ends_everything() {
    let mut up = Up::new(&["good"]);
    let pids = up.pids();
    up.signal(Signal::TERM);
    assert!(up.supervisor.wait().unwrap().success());
    assert!(!pids.iter().any(|&pid| lives(pid)));
    assert!(!up.root.join("niclab").exists());
}
