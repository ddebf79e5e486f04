//! The subcommands on a running cluster, and its supervisor.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
    time::Duration,
};

use crate::support::{GOOD_DAEMON, TIMEOUT, lives, plan, wait_for};
use niclab_agent::{Exec, Join, ToGuest, ToHost};
use niclab_cluster::{
    host::runtime::RuntimeRoot,
    plan::Plan,
    supervisor::{
        HandedOver, Order, Progress,
        control::{self, Reply, Request},
    },
};
use niclab_spec::{
    OnNodeExit,
    monitor::{Answer, Heartbeat, STATS_VERSION, Stuck},
    watch::{ChunkWriter, WatchSummary},
};
use rustix::process::{Pid, Signal, kill_process};

struct Up {
    _folder: tempfile::TempDir,
    root: std::path::PathBuf,
    supervisor: Child,
    /// The pipe whose end tells the supervisor that the process which started it is gone.
    orderer: Option<ChildStdin>,
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
        Self::begin_by(env!("CARGO_BIN_EXE_niclab"), &["supervise"], daemon, modes, boot_timeout)
    }

    /// Begins with a supervisor that this command starts by exec.
    fn begin_by(
        program: &str,
        arguments: &[&str],
        daemon: &str,
        modes: &[&str],
        boot_timeout: Duration,
    ) -> Self {
        Self::begin_changed(program, arguments, boot_timeout, |root| plan(root, "niclab", daemon, modes))
    }

    /// Begins with the plan that `plan` makes for the folder of all clusters.
    fn begin_changed(
        program: &str,
        arguments: &[&str],
        boot_timeout: Duration,
        plan: impl Fn(&Path) -> Plan,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("r");
        let mut supervisor = Command::new(program);
        supervisor.args(arguments).env("NICLAB_RUNTIME_DIR", &root);
        let mut supervisor = supervisor.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let order = Order { root: root.clone(), plan: plan(&root), boot_timeout };
        let mut orderer = supervisor.stdin.take().unwrap();
        control::write_line(&mut orderer, &order).unwrap();
        let progress = BufReader::new(supervisor.stdout.take().unwrap());
        Self { _folder: folder, root, supervisor, orderer: Some(orderer), progress }
    }

    fn new(modes: &[&str]) -> Self {
        Self::begin(GOOD_DAEMON, modes, TIMEOUT).until_up()
    }

    /// A cluster whose nodes may end without the others.
    fn keeping_going(modes: &[&str]) -> Self {
        let program = env!("CARGO_BIN_EXE_niclab");
        let plan = |root: &Path| {
            let plan = plan(root, "niclab", GOOD_DAEMON, modes);
            Plan { on_node_exit: OnNodeExit::Continue, ..plan }
        };
        Self::begin_changed(program, &["supervise"], TIMEOUT, plan).until_up()
    }

    fn until_up(self) -> Self {
        let mut up = self;
        while up.next_progress() != Progress::Up {}
        // As `niclab up` does before it exits.
        control::write_line(&mut up.orderer.take().unwrap(), &HandedOver {}).unwrap();
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
                status.nodes.iter().filter_map(|node| node.pid).chain([status.daemon_pid]).collect()
            }
            reply => panic!("{reply:?}"),
        }
    }

    /// Whether the supervisor ends by itself, with success.
    fn ends_well(&mut self) -> bool {
        let mut ended = None;
        wait_for("the supervisor to end", || {
            ended = self.supervisor.try_wait().unwrap();
            ended.is_some()
        });
        ended.is_some_and(|status| status.success())
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
fn client_reaches_its_command_but_not_the_agent() {
    let up = Up::new(&["good"]);
    let exec = Exec { argv: vec!["wait".to_owned()], ..Exec::default() };
    let mut command = control::RemoteCommand::start(&up.root.join("niclab"), "node0", exec).unwrap();
    let mut input = command.input().unwrap();
    for message in [ToGuest::Join(Join::default()), ToGuest::QueryHealth, ToGuest::PowerOff] {
        input.send(message).unwrap();
    }
    input.send(ToGuest::Stdin(b"word".to_vec())).unwrap();
    let mut said = Vec::new();
    while said.last() != Some(&ToHost::Stdout(b"word".to_vec())) {
        said.push(command.receive().unwrap());
    }
    assert!(!said.iter().any(|message| matches!(message, ToHost::Health(_) | ToHost::Joined)), "{said:?}");
    let output = up.niclab(&["exec", "node0", "--", "0"]);
    assert_eq!(text(&output.stdout), "0 of 1\n", "its identity has not changed");
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
fn lost_agent_is_reported_and_reconnected() {
    let up = Up::new(&["good"]);
    let output = up.niclab(&["exec", "node0", "--", "crash"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("agent is gone"), "{}", text(&output.stderr));
    let output = up.niclab(&["exec", "node0", "--", "0"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "0 of 1\n", "the new agent got the identity, too");
}

/// Gives this answer to each request to the daemon's monitor, until the test ends.
fn fake_monitor(up: &Up, answer: &Answer) {
    let listener = UnixListener::bind(up.root.join("niclab/monitor.sock")).unwrap();
    let line = serde_json::to_string(answer).unwrap() + "\n";
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            BufReader::new(&stream).read_line(&mut String::new()).unwrap();
            let _ = stream.write_all(line.as_bytes());
        }
    });
}

#[test]
fn inspect_shows_nodes_and_health_as_table_and_json() {
    let up = Up::new(&["good", "good"]);
    fake_monitor(&up, &Answer::Heartbeat(Heartbeat { version: STATS_VERSION, wall_waited_ns: 5 }));
    let output = up.niclab(&["inspect"]);
    assert_eq!(output.status.code(), Some(0));
    let table = text(&output.stdout);
    assert!(table.contains("node1") && table.contains("10.77.0.2") && table.contains("healthy"), "{table}");
    let json: serde_json::Value = serde_json::from_slice(&up.niclab(&["inspect", "--json"]).stdout).unwrap();
    assert_eq!(json["nodes"][0]["health"]["Ok"]["interrupts"], 3, "{json}");
    assert_eq!(json["daemon"]["state"], "answers", "{json}");
}

#[test]
fn inspect_shows_a_stuck_or_silent_daemon() {
    let up = Up::new(&["good"]);
    let output = up.niclab(&["inspect"]);
    assert_eq!(output.status.code(), Some(1));
    let table = text(&output.stdout);
    assert!(table.contains("SILENT") && !table.contains("healthy"), "{table}");

    fake_monitor(&up, &Answer::Stuck(Stuck { version: STATS_VERSION, wall_held_ms: 7_300 }));
    let output = up.niclab(&["inspect"]);
    assert_eq!(output.status.code(), Some(1));
    let table = text(&output.stdout);
    assert!(table.contains("STUCK: its global lock has been held for at least 7.3 s"), "{table}");
    assert!(table.contains("the daemon is stuck") && !table.contains("healthy"), "{table}");
    let json: serde_json::Value = serde_json::from_slice(&up.niclab(&["inspect", "--json"]).stdout).unwrap();
    assert_eq!((&json["daemon"]["state"], &json["daemon"]["wall_held_ms"]), (&"stuck".into(), &7_300.into()));
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

/// Programs that remove old files from /tmp do this; some remove sockets, too.
#[test]
fn down_ends_a_cluster_whose_files_were_cleaned_away() {
    for with_sockets in [false, true] {
        let mut up = Up::new(&["good"]);
        let pids = up.pids();
        let folder = up.root.join("niclab");
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            if with_sockets || entry.file_type().unwrap().is_file() {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        if !with_sockets {
            assert_eq!(up.niclab(&["exec", "node0", "--", "0"]).status.code(), Some(0));
        }
        let logs = text(&up.niclab(&["logs", "node0"]).stderr);
        assert!(logs.contains("plan.json is gone") && logs.contains("niclab down"), "{logs}");
        let output = up.niclab(&["down"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(!pids.iter().any(|&pid| lives(pid)), "sockets gone: {with_sockets}");
        assert!(up.supervisor.wait().unwrap().success());
        assert_eq!(fs::read_dir(&up.root).unwrap().count(), 0, "nothing is left");
    }
}

#[test]
fn down_leaves_a_run_alone_and_names_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let root = RuntimeRoot::at(folder.path().join("r")).unwrap();
    // This process owns the cluster and is no supervisor.
    let claimed = root.claim(&"mine".parse().unwrap()).unwrap();
    let output = niclab(root.path(), &["down", "--name", "mine"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(
        said.contains(&format!("(process {})", std::process::id())) && said.contains("owns the cluster"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(125));
    claimed.remove().unwrap();
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
fn second_cluster_of_the_same_name_is_refused() {
    let up = Up::new(&["good"]);
    let folder = up.root.clone();
    let mut second =
        niclab(&folder, &["supervise"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let order =
        Order { root: folder, plan: plan(&up.root, "niclab", GOOD_DAEMON, &["good"]), boot_timeout: TIMEOUT };
    control::write_line(&mut second.stdin.take().unwrap(), &order).unwrap();
    let output = second.wait_with_output().unwrap();
    assert!(text(&output.stdout).contains("already up; use --name"), "{}", text(&output.stdout));
    assert_eq!(
        up.niclab(&["exec", "node0", "--", "0"]).status.code(),
        Some(0),
        "the first cluster still runs"
    );
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
    assert!(message.contains("node1 powered off") && message.contains("niclab down"), "{message}");
    assert_eq!(text(&up.niclab(&["logs", "node1"]).stdout), "booting in mode good\n", "logs are still there");
    assert_eq!(up.niclab(&["down"]).status.code(), Some(0));
    assert!(!up.root.join("niclab").exists());
}

#[test]
fn exec_and_inspect_name_an_ended_node_while_others_run() {
    let mut up = Up::keeping_going(&["good", "good", "good"]);
    let pids = up.pids();
    let reason = "node1 powered off or rebooted";
    // The command during which the node ends, and a later one.
    for word in ["quit", "0"] {
        let output = up.niclab(&["exec", "node1", "--", word]);
        assert_eq!(output.status.code(), Some(125), "{word}");
        assert!(text(&output.stderr).contains(reason), "{word}: {}", text(&output.stderr));
    }
    let output = up.niclab(&["exec", "node2", "--", "0"]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "2 of 3\n"));
    fake_monitor(&up, &Answer::Heartbeat(Heartbeat { version: STATS_VERSION, wall_waited_ns: 5 }));
    let output = up.niclab(&["inspect"]);
    assert_eq!(output.status.code(), Some(1), "a node is not healthy");
    let table = text(&output.stdout);
    assert!(table.contains(reason) && table.matches(" healthy ").count() == 2, "{table}");
    let json: serde_json::Value = serde_json::from_slice(&up.niclab(&["inspect", "--json"]).stdout).unwrap();
    assert!(json["nodes"][1]["pid"].is_null() && json["nodes"][0]["pid"].is_u64(), "{json:#}");
    assert_eq!(text(&up.niclab(&["logs", "node1"]).stdout), "booting in mode good\n");
    let output = up.niclab(&["down"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(up.supervisor.wait().unwrap().success());
    assert!(!pids.iter().any(|&pid| lives(pid)) && !up.root.join("niclab").exists());
}

#[test]
fn panic_is_reported_to_the_running_command_and_to_inspect() {
    let mut up = Up::new(&["good", "good"]);
    let output = up.niclab(&["exec", "node1", "--", "panic"]);
    assert_eq!(output.status.code(), Some(125));
    let message = text(&output.stderr);
    let reason = "the kernel of node1 panicked: BUG: kernel NULL pointer dereference";
    assert!(message.contains(reason) && message.contains("own_write+0x4"), "{message}");
    up.supervisor.wait().unwrap();
    let message = text(&up.niclab(&["inspect"]).stderr);
    assert!(message.contains(reason), "{message}");
    assert_eq!(up.niclab(&["down"]).status.code(), Some(0));
}

#[test]
fn failed_boot_is_reported_and_leaves_nothing() {
    let mut up = Up::begin(GOOD_DAEMON, &["sick"], Duration::from_secs(1));
    match up.next_progress() {
        Progress::Failed { message } => assert!(message.contains("not healthy after 1 s"), "{message}"),
        other => panic!("{other:?}"),
    }
    up.supervisor.wait().unwrap();
    assert!(!up.root.join("niclab").exists());
}

#[test]
fn signal_during_the_boot_ends_everything() {
    let mut up = Up::begin(GOOD_DAEMON, &["mute", "mute"], TIMEOUT);
    let processes = up.root.join("niclab/processes.json");
    let is_booting = |text: String| text.matches("pid").count() == 3;
    wait_for("the guests to be started", || fs::read_to_string(&processes).is_ok_and(is_booting));
    up.signal(Signal::TERM);
    assert!(up.supervisor.wait().unwrap().success());
    assert!(!up.root.join("niclab").exists());
}

#[test]
fn signal_to_the_supervisor_ends_everything() {
    let mut up = Up::new(&["good"]);
    let pids = up.pids();
    up.signal(Signal::TERM);
    assert!(up.supervisor.wait().unwrap().success());
    assert!(!pids.iter().any(|&pid| lives(pid)));
    assert!(!up.root.join("niclab").exists());
}

#[test]
fn cluster_ends_if_niclab_up_dies_before_it_is_up() {
    let mut up = Up::begin(GOOD_DAEMON, &["mute"], TIMEOUT);
    let processes = up.root.join("niclab/processes.json");
    let is_booting = |text: String| text.matches("pid").count() == 2;
    wait_for("the guest to be started", || fs::read_to_string(&processes).is_ok_and(is_booting));
    up.orderer.take();
    assert!(up.ends_well());
    assert!(!up.root.join("niclab").exists());

    // The process died when the cluster was up, before it could report that.
    let mut up = Up::begin(GOOD_DAEMON, &["good"], TIMEOUT);
    while up.next_progress() != Progress::Up {}
    let pids = up.pids();
    up.orderer.take();
    assert!(up.ends_well());
    assert!(!up.root.join("niclab").exists() && !pids.iter().any(|&pid| lives(pid)));
}

/// A daemon that ignores signals and the end of its standard input.
const DEAF_DAEMON: &str = "trap '' TERM INT HUP; echo ready; exec sleep 100000";

#[test]
fn down_ends_a_daemon_that_ignores_signals() {
    let mut up = Up::begin(DEAF_DAEMON, &["good", "good"], TIMEOUT).until_up();
    let pids = up.pids();
    let output = up.niclab(&["down"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        !text(&output.stderr).contains("was killed"),
        "only the daemon was killed: {}",
        text(&output.stderr)
    );
    assert!(!pids.iter().any(|&pid| lives(pid)) && !up.root.join("niclab").exists());
    assert!(up.ends_well());
}

#[test]
fn daemon_that_ignores_signals_dies_with_its_owner() {
    let mut up = Up::begin(DEAF_DAEMON, &["good"], TIMEOUT).until_up();
    let pids = up.pids();
    up.signal(Signal::KILL);
    up.supervisor.wait().unwrap();
    wait_for("guest and daemon to die with their owner", || !pids.iter().any(|&pid| lives(pid)));
    assert_eq!(up.niclab(&["down"]).status.code(), Some(0));
    assert!(!up.root.join("niclab").exists());
}

#[test]
fn down_cleans_up_after_a_daemon_that_was_killed() {
    let mut up = Up::new(&["good"]);
    let daemon = *up.pids().last().unwrap();
    kill_process(Pid::from_raw(daemon.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    up.supervisor.wait().unwrap();
    assert_eq!(up.niclab(&["down"]).status.code(), Some(0));
    assert!(!up.root.join("niclab").exists());
}

#[test]
fn down_ends_a_supervisor_that_hangs_or_boots_guests() {
    let mut up = Up::new(&["good"]);
    let pids = up.pids();
    up.signal(Signal::STOP);
    let output = up.niclab(&["down", "--within", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("did not end it in time and was killed"),
        "{}",
        text(&output.stderr)
    );
    assert!(!up.ends_well());
    wait_for("all processes to end", || !pids.iter().any(|&pid| lives(pid)));
    assert!(!up.root.join("niclab").exists());

    let mut up = Up::begin(GOOD_DAEMON, &["mute"], TIMEOUT);
    wait_for("the boot to begin", || up.root.join("niclab/plan.json").exists());
    let output = up.niclab(&["down"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(up.ends_well(), "with success");
    assert!(!up.root.join("niclab").exists());
}

#[test]
fn files_of_a_cluster_are_private_with_any_umask() {
    let script = "umask 0; exec \"$0\" supervise";
    let begun =
        Up::begin_by("sh", &["-c", script, env!("CARGO_BIN_EXE_niclab")], GOOD_DAEMON, &["good"], TIMEOUT);
    let up = begun.until_up();
    let mut names = Vec::new();
    for entry in fs::read_dir(up.root.join("niclab")).unwrap().map(Result::unwrap) {
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", entry.path().display());
        names.push(entry.file_name().into_string().unwrap());
    }
    for name in ["control.sock", "0.agent", "0.console", "daemon.json", "daemon.log", "plan.json"] {
        assert!(names.iter().any(|there| there == name), "{name}: {names:?}");
    }
    for folder in [&up.root, &up.root.join("niclab")] {
        assert_eq!(fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[test]
fn names_with_paths_are_refused_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let (root, outside) = (folder.path().join("r/clusters"), folder.path().join("r/outside"));
    for path in [&root, &outside] {
        fs::create_dir_all(path).unwrap();
        // niclab must not take a folder with only this file for a cluster.
        fs::write(path.join("lock"), "").unwrap();
    }
    let absolute = outside.to_str().unwrap();
    for name in ["..", "../outside", absolute, ".", "", "a/../../outside", "./x", "/"] {
        for arguments in [
            &["down", "--name", name][..],
            &["inspect", "--name", name],
            &["exec", "--name", name, "node0", "--", "true"],
            &["shell", "--name", name, "node0"],
            &["logs", "--name", name, "node0"],
            &["fault", "--name", name],
            &["trace", "--name", name],
            &["capture", "--name", name],
            &["record", "--name", name],
            &["up", "--name", name],
            &["run", "--name", name],
            &["plan", "--name", name],
        ] {
            let output = niclab(&root, arguments).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
            assert!(text(&output.stderr).contains("is not a cluster name"), "{}", text(&output.stderr));
        }
        assert!(root.join("lock").exists() && outside.join("lock").exists(), "{name}");
    }
}

#[test]
fn names_with_paths_are_refused_in_the_default_folder() {
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("session");
    fs::create_dir_all(session.join("niclab")).unwrap();
    fs::write(session.join("lock"), "").unwrap();
    let down = |name: &str| {
        let mut command = niclab(folder.path(), &["down", "--name", name]);
        command.env_remove("NICLAB_RUNTIME_DIR").env("XDG_RUNTIME_DIR", &session).output().unwrap()
    };
    assert_eq!(down("..").status.code(), Some(2));
    assert_eq!(down("other").status.code(), Some(125));
    assert!(session.join("lock").exists());
}

#[test]
fn down_keeps_folders_that_niclab_did_not_make() {
    let folder = tempfile::tempdir().unwrap();
    let (root, precious) = (folder.path().join("r"), folder.path().join("precious"));
    fs::create_dir_all(&precious).unwrap();
    fs::create_dir(&root).unwrap();
    fs::set_permissions(&root, PermissionsExt::from_mode(0o700)).unwrap();
    fs::write(precious.join("lock"), "").unwrap();
    symlink(&precious, root.join("link")).unwrap();
    for name in ["mine", "run-1"] {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("lock"), "").unwrap();
    }
    for (name, why) in [("link", "a link"), ("mine", "no mark"), ("run-1", "no mark")] {
        for arguments in
            [&["down", "--name", name][..], &["inspect", "--name", name], &["logs", "--name", name, "x"]]
        {
            let output = niclab(&root, arguments).output().unwrap();
            assert_eq!(output.status.code(), Some(125), "{arguments:?}");
            let words = text(&output.stderr);
            assert!(words.contains("is not a cluster's folder") && words.contains(why), "{words}");
        }
    }
    assert_eq!(niclab(&root, &["down", "--all"]).output().unwrap().status.code(), Some(0));
    for path in
        [precious.join("lock"), root.join("link/lock"), root.join("mine/lock"), root.join("run-1/lock")]
    {
        assert!(path.exists(), "{}", path.display());
    }
}

#[test]
fn unusable_default_folder_is_replaced_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("session");
    fs::create_dir(&session).unwrap();
    symlink("/", session.join("niclab")).unwrap();
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    let inspect = || {
        let mut command = niclab(folder.path(), &["inspect", "--name", "surely-not-up"]);
        command
            .env_remove("NICLAB_RUNTIME_DIR")
            .env("XDG_RUNTIME_DIR", &session)
            .env("XDG_STATE_HOME", &state);
        text(&command.output().unwrap().stderr)
    };
    let why = "session/niclab cannot be the folder for clusters, because it is a link";
    let words = inspect();
    assert!(words.contains(why) && words.contains("; clusters are in "), "{words}");
    // In the last of the default folders. The user who runs this test may have clusters in the one before.
    let _up = RuntimeRoot::at(state.join("niclab/run")).unwrap().claim(&"found".parse().unwrap()).unwrap();
    let words = inspect();
    assert!(words.contains(why) && words.contains("; clusters are in "), "{words}");
    assert!(words.contains("there are: "), "{words}");
}

/// A daemon's monitor that sends every watch one piece of a file, and then nothing until the watch ends.
fn fake_watch(up: &Up, piece: &'static [u8]) {
    let listener = UnixListener::bind(up.root.join("niclab/monitor.sock")).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                let answer = |answer: &Answer| serde_json::to_string(answer).unwrap() + "\n";
                stream.write_all(answer(&Answer::Watching).as_bytes()).unwrap();
                let mut chunks = ChunkWriter::new(stream.try_clone().unwrap());
                chunks.write_all(piece).unwrap();
                // A watch that is not live gets nothing before its end.
                if line.contains("\"live\":true") {
                    chunks.flush().unwrap();
                }
                stream.read_to_end(&mut Vec::new()).unwrap();
                // The other end may be gone.
                let _ = chunks.end().and_then(|mut stream| {
                    stream.write_all(answer(&Answer::Watched(WatchSummary::default())).as_bytes())
                });
            });
        }
    });
}

#[test]
fn capture_streams_to_standard_output_until_its_reader_leaves() {
    let up = Up::new(&["good"]);
    fake_watch(&up, b"frame");
    let mut capture = niclab(&up.root, &["capture", "-o", "-"]);
    let mut capture = capture.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut frame = [0; 5];
    let mut stdout = capture.stdout.take().unwrap();
    stdout.read_exact(&mut frame).unwrap();
    assert_eq!(&frame, b"frame");
    // Nothing more is written, but niclab must still notice that the reader is gone.
    drop(stdout);
    let ended = capture.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(text(&ended.stderr), "niclab: watching niclab; Ctrl-C ends it\n");
    assert!(!Path::new("-").exists());
}

#[test]
fn extcap_shows_wireshark_clusters_links_and_frames() {
    let up = Up::new(&["good", "good"]);
    fake_watch(&up, b"frame");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/wireshark/niclab-extcap");
    let extcap = |arguments: &[&str]| {
        let mut command = Command::new(script);
        command.args(arguments).env("NICLAB", env!("CARGO_BIN_EXE_niclab"));
        command.env("NICLAB_RUNTIME_DIR", &up.root).stdin(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let asked = |arguments: &[&str]| {
        let output = extcap(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        text(&output.stdout)
    };
    let interfaces = asked(&["--extcap-interfaces", "--extcap-version=4.4"]);
    assert!(interfaces.starts_with("extcap {version="), "{interfaces}");
    assert!(
        interfaces.ends_with("\ninterface {value=niclab-niclab}{display=niclab cluster niclab}\n"),
        "{interfaces}"
    );
    let of = ["--extcap-interface", "niclab-niclab"];
    assert_eq!(
        asked(&[&of[..], &["--extcap-dlts"]].concat()),
        "dlt {number=1}{name=EN10MB}{display=Ethernet}\n"
    );
    let options = asked(&[&of[..], &["--extcap-config"]].concat());
    assert!(options.contains("{call=--link}") && options.contains("value {arg=0}{value=node1}"), "{options}");
    assert_eq!(asked(&[&of[..], &["--extcap-capture-filter", ""]].concat()), "");
    assert!(asked(&[&of[..], &["--extcap-capture-filter", "tcp"]].concat()).contains("display filter"));

    let fifo = up.root.join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let fifo_name = fifo.to_str().unwrap();
    let mut capture =
        extcap(&[&of[..], &["--capture", "--fifo", fifo_name, "--link", "*"]].concat()).spawn().unwrap();
    let mut reader = fs::File::open(&fifo).unwrap();
    let mut frame = [0; 5];
    reader.read_exact(&mut frame).unwrap();
    assert_eq!(&frame, b"frame");
    // Wireshark ends a capture by a signal, or by closing the FIFO.
    kill_process(Pid::from_child(&capture), Signal::TERM).unwrap();
    assert!(capture.wait().unwrap().success());
    drop(reader);
    let mut capture = extcap(&[&of[..], &["--capture", "--fifo", fifo_name]].concat()).spawn().unwrap();
    drop(fs::File::open(&fifo).unwrap());
    assert!(capture.wait().unwrap().success());
}

#[test]
fn closed_standard_output_ends_exec_quietly() {
    let up = Up::new(&["good"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = niclab(&up.root, &["exec", "node0", "--", "0"]).stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(141), "{output:?}");
    assert!(!text(&output.stderr).contains("niclab:"), "{output:?}");
}
