//! Failures while a cluster boots and runs: each is reported, and nothing remains.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, Instant},
};

use niclab_cluster::host::deadline::Deadline;
use niclab_cluster::{
    boot::{
        command::{self, CommandError, NodeCommand},
        progress::Stage,
        running::{Event, Failure, RunningCluster},
    },
    host::runtime::RuntimeRoot,
};
use niclab_spec::OnNodeExit;

use crate::support::{
    GOOD_DAEMON, OOPS, TEMPLATES_CONSOLE, TIMEOUT, lives, name, plan, restored_plan, template_in,
};

struct Case {
    _folder: tempfile::TempDir,
    root: RuntimeRoot,
}

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = RuntimeRoot::at(folder.path().join("r")).unwrap();
        Self { _folder: folder, root }
    }

    fn boot(&self, daemon: &str, modes: &[&str], timeout: Duration) -> Result<RunningCluster, Failure> {
        let folder = self.root.claim(&name("c")).unwrap();
        RunningCluster::boot(plan(self.root.path(), "c", daemon, modes), folder, timeout, &mut |_| {})
    }

    /// The report of a boot that times out at a stage that only one node has reached. On a busy machine nodes need more
    /// time to reach it, so this tries longer time-outs.
    fn failure_at(&self, stage: &str, modes: &[&str]) -> String {
        let boot = |seconds| self.failure(GOOD_DAEMON, modes, Duration::from_secs(seconds));
        let is_at = |text: &String| text.contains(stage) && text.matches(" waits for ").count() == 1;
        [1, 2, 4, 8, 16, 32].into_iter().map(boot).find(is_at).expect("one of the time-outs is long enough")
    }

    /// The report of a boot that fails. Nothing may remain.
    fn failure(&self, daemon: &str, modes: &[&str], timeout: Duration) -> String {
        let failure = self.boot(daemon, modes, timeout).err().expect("the boot fails").to_string();
        assert!(!self.root.folder(&name("c")).exists(), "the folder remains");
        failure
    }
}

#[test]
fn good_cluster_boots_and_leaves_nothing() {
    let shut_down = || {
        let case = Case::new();
        let cluster = case.boot(GOOD_DAEMON, &["good", "good"], TIMEOUT).unwrap();
        let (guests, daemon) = cluster.pids();
        assert_eq!(cluster.agents().count(), 2);
        assert!(guests.iter().chain([&daemon]).all(|&pid| lives(pid)));
        let begin = Instant::now();
        cluster.shut_down(false);
        let took = begin.elapsed();
        assert!(!guests.iter().chain([&daemon]).any(|&pid| lives(pid)));
        assert!(!case.root.folder(&name("c")).exists());
        took
    };
    // On a busy machine one shutdown of obedient guests may exceed the limit, but not all five.
    let is_at_once = (0..5).any(|_| shut_down() < Duration::from_secs(4));
    assert!(is_at_once, "the shutdown waits for guests that have ended");
}

#[test]
fn daemon_that_exits_at_once_is_reported_with_its_output() {
    let text = Case::new().failure("echo no such profile >&2; exit 7", &["good"], TIMEOUT);
    assert!(text.contains("daemon ended (exit code 7)") && text.contains("no such profile"), "{text}");
}

#[test]
fn a_daemon_that_cannot_start_is_named() {
    let case = Case::new();
    let folder = case.root.claim(&name("c")).unwrap();
    let mut plan = plan(case.root.path(), "c", GOOD_DAEMON, &["good"]);
    plan.daemon.program = "/no/such/daemon".into();
    let failure = RunningCluster::boot(plan, folder, TIMEOUT, &mut |_| {}).err().unwrap().to_string();
    assert!(failure.contains("/no/such/daemon"), "{failure}");
    assert!(!case.root.folder(&name("c")).exists());
}

#[test]
fn a_qemu_that_dies_is_reported_with_log_and_console() {
    let text = Case::new().failure(GOOD_DAEMON, &["good", "dies"], TIMEOUT);
    assert!(text.contains("QEMU of node1 ended (exit code 1)"), "{text}");
    assert!(text.contains("no such device") && text.contains("booting in mode dies"), "{text}");
}

#[test]
fn a_guest_panic_is_reported_with_the_console() {
    let text = Case::new().failure(GOOD_DAEMON, &["panics", "good"], TIMEOUT);
    assert!(text.contains("kernel of node0 panicked") && text.contains("not syncing: test"), "{text}");
}

#[test]
fn panics_of_both_nodes_are_reported_with_reason_and_trace() {
    let case = Case::new();
    let mut cluster = case.boot(GOOD_DAEMON, &["good", "good"], TIMEOUT).unwrap();
    let panic = ["panic".to_owned()];
    let commands = [0, 1].map(|rank| NodeCommand { rank, argv: panic.to_vec() });
    let error = command::run(&mut cluster, &commands, TIMEOUT).unwrap_err();
    let failure = error.downcast::<Failure>().expect("a panic, not a lost connection");
    cluster.shut_down(false);
    let text = failure.to_string();
    let (Failure::Panicked(panics), Some(folder)) = failure.into_parts() else { panic!("{text}") };
    assert_eq!(panics.iter().map(|panic| panic.node.as_str()).collect::<Vec<_>>(), ["node0", "node1"]);
    for panic in &panics {
        let reason = "BUG: kernel NULL pointer dereference, address: 0000000000000008; Oops: 0002 [#1] PREEMPT SMP PTI";
        assert_eq!(panic.reason, reason);
        assert!(panic.text.contains("RIP: 0010:own_write+0x4/0x10 [own]"), "{}", panic.text);
        let console = fs::read_to_string(folder.join(format!("{}.console", panic.node))).unwrap();
        assert!(console.contains("booting in mode good") && console.ends_with(OOPS), "{console}");
    }
    assert!(text.contains("the kernel of node1 panicked: BUG: kernel NULL"), "{text}");
    assert!(text.contains(&format!("kept in {}", folder.display())), "{text}");
}

#[test]
fn guest_that_stays_unhealthy_is_reported_with_the_reason() {
    let text = Case::new().failure_at("node1 waits for its NIC", &["good", "sick"]);
    assert!(text.contains("BAR magic not seen") && text.contains("booting in mode sick"), "{text}");
    assert!(!text.contains("node0"), "a healthy node is not blamed: {text}");
}

#[test]
fn a_guest_that_never_answers_is_reported() {
    for (mode, words) in [("mute", "QEMU to start"), ("silent", "its agent to answer")] {
        Case::new().failure_at(&format!("node0 waits for {words}"), &[mode]);
    }
}

#[test]
fn guest_that_does_not_join_is_reported() {
    let text = Case::new().failure(GOOD_DAEMON, &["good", "refuses"], TIMEOUT);
    assert!(text.contains("node1: the guest's agent does not join the cluster: not me"), "{text}");
    Case::new().failure_at("node0 waits for it to become a node", &["loiters"]);
}

/// A cluster whose guests are restored from a template. `harm` damages the template after the plan is made.
fn restore(case: &Case, modes: &[&str], harm: impl FnOnce(&Path)) -> Result<RunningCluster, String> {
    let template = case.root.path().join("template");
    let folder = case.root.claim(&name("c")).unwrap();
    template_in(&template);
    let plan = restored_plan(case.root.path(), &template, modes);
    harm(&template);
    let result = RunningCluster::boot(plan, folder, TIMEOUT, &mut |_| {});
    result.map_err(|failure| {
        assert!(!case.root.folder(&name("c")).exists(), "the folder remains");
        failure.to_string()
    })
}

#[test]
fn restored_guests_have_memory_console_and_their_cards() {
    let case = Case::new();
    let cluster = restore(&case, &["good", "good", "good"], |_| ()).unwrap();
    assert_eq!(cluster.agents().count(), 3);
    for stage in Stage::ALL {
        assert_eq!(cluster.progress().took(stage).len(), 3, "{}", stage.name());
    }
    for node in &cluster.plan().nodes {
        let console = fs::read_to_string(&node.console).unwrap();
        assert_eq!(console, format!("{TEMPLATES_CONSOLE}booting in mode good\n"), "{}", node.name);
    }
    cluster.shut_down(false);
}

#[test]
fn a_guest_that_cannot_be_restored_is_named_with_the_reason() {
    let refused = restore(&Case::new(), &["good", "cardless"], |_| ()).err().unwrap();
    for words in ["node1 cannot be restored", "no slot is left", "--cold"] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    let lost = restore(&Case::new(), &["lost", "good"], |_| ()).err().unwrap();
    for words in ["QEMU of node0 ended (exit code 1)", "error while loading state"] {
        assert!(lost.contains(words), "{words}: {lost}");
    }
}

#[test]
fn template_removed_or_truncated_after_planning_is_named() {
    let removed = restore(&Case::new(), &["good"], |template| fs::remove_dir_all(template).unwrap());
    let cut = restore(&Case::new(), &["good"], |template| {
        File::options().write(true).open(template.join("memory")).unwrap().set_len(4096).unwrap();
    });
    for (text, words) in [(removed, "its folder does not exist"), (cut, "its file memory is damaged")] {
        let text = text.err().unwrap();
        assert!(text.contains("the template of node0 cannot be used") && text.contains(words), "{text}");
    }
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_daemon_killed_while_guests_run_ends_the_cluster() {
    let case = Case::new();
    let mut cluster = case.boot(GOOD_DAEMON, &["good"], TIMEOUT).unwrap();
    let (_, daemon) = cluster.pids();
    kill(daemon);
    let failure = cluster.next_event(Deadline::after(TIMEOUT)).unwrap_err();
    assert!(failure.to_string().contains("daemon ended (signal 9)"), "{failure}");
    cluster.shut_down(false);
}

#[test]
fn a_qemu_killed_while_it_runs_ends_the_cluster() {
    let case = Case::new();
    let mut cluster = case.boot(GOOD_DAEMON, &["good", "good"], TIMEOUT).unwrap();
    let (guests, _) = cluster.pids();
    kill(guests[1]);
    let failure = cluster.next_event(Deadline::after(TIMEOUT)).unwrap_err();
    assert!(failure.to_string().contains("QEMU of node1 ended (signal 9)"), "{failure}");
    cluster.shut_down(false);
    assert!(!lives(guests[0]), "the other guest ends too");
}

/// A cluster whose nodes may end without the others.
fn keeping_going(case: &Case, daemon: &str, modes: &[&str]) -> Result<RunningCluster, Failure> {
    let folder = case.root.claim(&name("c")).unwrap();
    let mut plan = plan(case.root.path(), "c", daemon, modes);
    plan.on_node_exit = OnNodeExit::Continue;
    RunningCluster::boot(plan, folder, TIMEOUT, &mut |_| {})
}

fn end_reason(cluster: &RunningCluster, rank: usize) -> Option<&str> {
    cluster.ended_nodes().get(&rank).map(|end| end.reason.as_str())
}

#[test]
fn killed_qemu_leaves_the_others_until_the_last_one_ends() {
    let case = Case::new();
    let mut cluster = keeping_going(&case, GOOD_DAEMON, &["good", "good"]).unwrap();
    let (guests, _) = cluster.pids();
    kill(guests[1]);
    let event = cluster.next_event(Deadline::after(TIMEOUT)).unwrap();
    assert!(matches!(&event, Some(Event::Ended(name)) if name == "node1"), "{event:?}");
    assert_eq!(end_reason(&cluster, 1), Some("QEMU of node1 ended (signal 9)"));
    assert!(lives(guests[0]) && end_reason(&cluster, 0).is_none());
    kill(guests[0]);
    let failure = cluster.next_event(Deadline::after(TIMEOUT)).unwrap_err();
    assert!(failure.to_string().contains("QEMU of node0 ended (signal 9)"), "{failure}");
    cluster.shut_down(false);
    assert!(!case.root.folder(&name("c")).exists());
}

#[test]
fn panic_fails_the_commands_of_its_own_node_only() {
    let case = Case::new();
    let mut cluster = keeping_going(&case, GOOD_DAEMON, &["good", "good", "good"]).unwrap();
    let on = |rank, word: &str| NodeCommand { rank, argv: vec![word.to_owned()] };
    let error = command::run(&mut cluster, &[on(0, "0"), on(1, "panic")], TIMEOUT).unwrap_err();
    assert!(error.is::<CommandError>(), "{error}");
    let reason = "the kernel of node1 panicked: BUG: kernel NULL pointer dereference";
    assert!(
        end_reason(&cluster, 1).is_some_and(|text| text.starts_with(reason)),
        "{:?}",
        cluster.ended_nodes()
    );
    assert!(cluster.ended_nodes()[&1].details.contains("own_write+0x4"));
    let texts = command::run_on_all(&mut cluster, |rank, _| on(rank, "0"), TIMEOUT).unwrap();
    assert_eq!(texts, [Some("0 of 3\n".to_owned()), None, Some("2 of 3\n".to_owned())]);
    // A second node ends for its own reason.
    assert!(command::run(&mut cluster, &[on(2, "quit")], TIMEOUT).is_err());
    assert_eq!(end_reason(&cluster, 2), Some("node2 powered off or rebooted"));
    cluster.shut_down(false);
}

#[test]
fn cluster_ends_if_a_node_ends_in_the_boot_or_the_daemon_ends() {
    let case = Case::new();
    let failure = keeping_going(&case, GOOD_DAEMON, &["good", "dies"]).err().unwrap();
    assert!(failure.to_string().contains("QEMU of node1 ended (exit code 1)"), "{failure}");
    let mut cluster = keeping_going(&case, GOOD_DAEMON, &["good", "good"]).unwrap();
    kill(cluster.pids().1);
    let failure = cluster.next_event(Deadline::after(TIMEOUT)).unwrap_err();
    assert!(failure.to_string().contains("daemon ended (signal 9)"), "{failure}");
    cluster.shut_down(false);
}

#[test]
fn a_signal_ends_the_wait_at_every_stage() {
    let case = Case::new();
    let mut cluster = case.boot(GOOD_DAEMON, &["good"], TIMEOUT).unwrap();
    cluster.sender().send(Event::Signal(15)).unwrap();
    let failure = cluster.next_event(Deadline::after(TIMEOUT)).unwrap_err();
    assert!(matches!(failure, Failure::Signal(15)), "{failure}");
    cluster.shut_down(false);
}
