//! The guests' Ethernet functions.

use std::fs;

use niclab_harness::Niclab;

use crate::stops::stop_and_continue;

/// Standard output of a script in a node.
fn output(niclab: &Niclab, node: &str, script: &str) -> String {
    niclab.run(["exec", node, "--", "sh", "-c", script]).success().stdout.trim().to_owned()
}

/// Interrupts of each receive queue of a node.
fn receive_interrupts(niclab: &Niclab, node: &str) -> Vec<u64> {
    let lines = output(niclab, node, "grep -e '-input' /proc/interrupts");
    let sum = |line: &str| line.split_whitespace().skip(1).map_while(|count| count.parse::<u64>().ok()).sum();
    lines.lines().map(sum).collect()
}

#[test]
fn eth0_has_the_queue_pairs_of_the_cluster_file() {
    let niclab = Niclab::new();
    // Linux enables one queue pair per processor: all of the first node, and half of the second one.
    let file = "vcpus = 2\nqueues = 2\n[[node]]\n[[node]]\nqueues = 4\n[[node]]\nqueues = 1\n";
    fs::write(niclab.folder().join("queues.toml"), file).expect("a cluster file");
    niclab.run(["up", "--cluster", "queues.toml"]).success();
    let queues = |node| output(&niclab, node, "cd /sys/class/net/eth0/queues; echo *");
    assert_eq!(queues("node0"), "rx-0 rx-1 tx-0 tx-1");
    assert_eq!(queues("node1"), "rx-0 rx-1 tx-0 tx-1");
    assert_eq!(queues("node2"), "rx-0 tx-0");
    let interrupts = |node| receive_interrupts(&niclab, node);
    assert_eq!(["node0", "node1", "node2"].map(|node| interrupts(node).len()), [2, 4, 1]);

    // A stopped device continues also if the driver has disabled some of its pairs.
    stop_and_continue(&niclab, 1);
    niclab.run(["exec", "node0", "--", "ping", "-q", "-c", "2", "-W", "9", "node1"]).success();

    // Each port gets a packet of a different flow. No program listens there, and each connection is reset.
    let connect = "for port in $(seq 1 24); do nc -w 9 $PEER $port < /dev/null; done; true";
    for peer in ["node1", "node2"] {
        let before = ["node0", "node1"].map(interrupts);
        output(&niclab, "node0", &format!("PEER={peer}; {connect}"));
        output(&niclab, peer, &format!("PEER=node0; {connect}"));
        let after = ["node0", "node1"].map(interrupts);
        let grown = |node: usize| before[node].iter().zip(&after[node]).map(|(before, after)| after > before);
        assert!(grown(0).all(|grown| grown), "node0 with {peer}: {before:?}, then {after:?}");
        if peer == "node1" {
            assert!(grown(1).eq([true, true, false, false]), "{before:?}, then {after:?}");
        }
    }
    let seen = niclab.run(["inspect", "--json"]).success().json();
    for node in seen["device"]["nodes"].as_array().expect("nodes") {
        assert_eq!(node["violations"], serde_json::json!({}), "{node}");
    }
    niclab.run(["down"]).success();
}
