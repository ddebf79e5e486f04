//! Commands whose output is a result, on fake guests.

use std::time::Duration;

use crate::support::{GOOD_DAEMON, TIMEOUT, name, plan};
use niclab_agent::message::WINDOW_BYTES;
use niclab_bench::baseline;
use niclab_cluster::{
    boot::{
        command::{self, NodeCommand},
        running::{Event, Failure, RunningCluster},
    },
    host::runtime::RuntimeRoot,
};

/// Runs `measure` in a cluster of two nodes. Commands never end on the first node.
fn with_cluster(measure: impl FnOnce(&mut RunningCluster)) {
    let folder = tempfile::tempdir().unwrap();
    let root = RuntimeRoot::at(folder.path().join("r")).unwrap();
    let claimed = root.claim(&name("c")).unwrap();
    let plan = plan(root.path(), "c", GOOD_DAEMON, &["busy", "good"]);
    let mut cluster = RunningCluster::boot(plan, claimed, TIMEOUT, &mut |_| {}).unwrap();
    measure(&mut cluster);
    cluster.shut_down(false);
}

/// A command for the fake agent, which takes the command's name as its exit code.
fn on(rank: usize, command: &str) -> NodeCommand {
    NodeCommand { rank, argv: vec![command.to_owned()] }
}

#[test]
fn command_output_is_returned_completely() {
    with_cluster(|cluster| {
        assert_eq!(command::run(cluster, &[on(1, "0")], TIMEOUT).unwrap(), ["1 of 2\n"]);
        // More than the window allows without an acknowledgement.
        let outputs = command::run(cluster, &[on(1, "flood")], TIMEOUT).unwrap();
        assert!(outputs[0].len() > WINDOW_BYTES as usize);
        assert!(command::run(cluster, &[], TIMEOUT).unwrap().is_empty());
    });
}

#[test]
fn failed_command_is_reported_at_once_with_its_output() {
    with_cluster(|cluster| {
        // The first node's command never ends, and must not delay the error.
        let error = command::run(cluster, &[on(0, "0"), on(1, "7")], TIMEOUT).unwrap_err().to_string();
        assert!(error.contains("`7` failed on node1 with code 7: oops"), "{error}");
    });
}

#[test]
fn missing_node_is_an_error_and_no_panic() {
    with_cluster(|cluster| {
        let error = command::run(cluster, &[on(9, "0")], TIMEOUT).unwrap_err().to_string();
        assert!(error.contains("no such node"), "{error}");
    });
}

#[test]
fn time_out_and_signal_end_the_wait() {
    with_cluster(|cluster| {
        let limit = Duration::from_millis(50);
        let error = command::run(cluster, &[on(0, "0")], limit).unwrap_err().to_string();
        assert!(error.contains("`0` had not ended"), "{error}");
        cluster.sender().send(Event::Signal(2)).unwrap();
        let error = command::run(cluster, &[on(0, "0")], TIMEOUT).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(Failure::Signal(2))), "{error}");
    });
}

#[test]
fn baseline_is_one_qemu_stream_between_the_first_two_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = plan(folder.path(), "c", GOOD_DAEMON, &["good", "good", "good"]);
    let before = plan.clone();
    baseline::STREAM.add(&mut plan, std::path::Path::new("/a,b"));
    let added = |rank: usize| plan.nodes[rank].qemu.args[before.nodes[rank].qemu.args.len()..].join(" ");
    assert_eq!(
        added(0),
        "-netdev stream,id=baseline,server=on,addr.type=unix,addr.path=/a,,b/baseline \
         -device virtio-net-pci,netdev=baseline,mac=52:54:00:78:00:01,romfile="
    );
    assert!(added(1).contains("server=off,reconnect-ms=") && added(1).contains("mac=52:54:00:78:00:02"));
    assert_eq!(plan.nodes[2], before.nodes[2], "a stream has two ends");
}
