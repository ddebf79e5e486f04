//! Groups of INIC cards in real guests: the cards wait, send and combine, and wake no host.

use niclab_harness::{Niclab, Outcome, Started};

/// Starts the same command on all four nodes.
fn start(niclab: &Niclab, command: &[&str]) -> Vec<Started> {
    let nodes = ["node0", "node1", "node2", "node3"];
    nodes.map(|node| niclab.start([&["exec", node, "--"][..], command].concat())).into()
}

fn finish(started: Vec<Started>) -> Vec<Outcome> {
    started.into_iter().map(|program| program.finish()).collect()
}

/// Every operator on every type of value, at odd sizes: among all nodes, among some in another order, and in two
/// overlapping groups at once. The program computes each result itself, and compares the device's counters of waiting
/// hosts.
#[test]
fn groups_of_cards_compute_correctly_and_wake_no_host() {
    let niclab = Niclab::new();
    let script = "
        niclab-perf collective -n 20 --json >all.$NICLAB_RANK || exit 11
        niclab-perf collective -n 5 -s 2808 --group 3,0,2 || exit 12
        niclab-perf collective -n 20 -s 24 --group 0,1,2 --group 3,2,1 --poll block || exit 13
        niclab-perf collective -n 2 -s 4072 --only multicast || exit 14";
    let outcome = niclab.run(["run", "--nic", "inic", "--nodes", "4", "--", "sh", "-c", script]).success();
    let all = std::fs::read(niclab.folder().join("all.0")).expect("the first member's report");
    let report: serde_json::Value = serde_json::from_slice(&all).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    // A barrier, a multicast, and three operators on five types. In the multicast the root is the late node.
    assert_eq!((rows.len(), report["watched"].as_u64()), (17, Some(16)), "{report:#}");
    assert!(rows.iter().all(|row| row["latency"]["p50_wall_ns"].as_u64() > Some(0)), "{report:#}");
    assert_eq!(outcome.stdout.matches("none of them woke it").count(), 3, "{outcome}");
    assert!(outcome.stderr.contains("node 1 is in no group"), "{outcome}");
}

#[test]
fn a_group_ends_when_a_member_is_lost_and_can_be_made_again() {
    let niclab = Niclab::new();
    niclab.run(["up", "--nic", "inic", "--nodes", "4"]).success();
    let endless = ["niclab-perf", "collective", "-n", "100000000", "--only", "barrier", "--timeout", "60"];
    let sound = ["niclab-perf", "collective", "-n", "10", "--operator", "sum"];
    let kill = "until killall -9 niclab-perf; do sleep 0.1; done";

    let programs = start(&niclab, &endless);
    niclab.run(["exec", "node3", "--", "sh", "-c", &format!("sleep 2; {kill}")]).success();
    for (node, ended) in finish(programs).into_iter().enumerate().take(3) {
        assert!(ended.code() == 1 && ended.stderr.contains("has left the group"), "node {node}\n{ended}");
    }
    finish(start(&niclab, &sound)).into_iter().for_each(|ended| drop(ended.success()));

    let programs = start(&niclab, &endless);
    niclab.run(["exec", "node0", "--", "sleep", "2"]).success();
    niclab.run(["fault", "node3", "--partition"]).success();
    for (node, ended) in finish(programs).into_iter().enumerate() {
        assert!(ended.code() == 1 && ended.stderr.contains("does not answer"), "node {node}\n{ended}");
    }
    niclab.run(["fault", "node3", "--heal"]).success();
    finish(start(&niclab, &sound)).into_iter().for_each(|ended| drop(ended.success()));
    niclab.run(["down"]).success();
}

#[test]
fn a_c_program_adds_values_over_a_group() {
    let niclab = Niclab::new();
    niclab_harness::build_c_examples(&niclab);
    let outcome = niclab.run(["run", "--nic", "inic", "--nodes", "4", "--", "./inic_collective"]).success();
    assert_eq!(outcome.stdout.matches("4 nodes have added 100 values").count(), 4, "{outcome}");
}
