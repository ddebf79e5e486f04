//! What a guest finds at its Ethernet function.

use std::fs;

use niclab_harness::Niclab;

/// What a command says in a node.
fn said(niclab: &Niclab, node: &str, script: &str) -> String {
    niclab.run(["exec", node, "--", "sh", "-c", script]).success().stdout.trim().to_owned()
}

/// Interrupts of the receive queues of a node, by queue.
fn received(niclab: &Niclab, node: &str) -> Vec<u64> {
    let lines = said(niclab, node, "grep -e '-input' /proc/interrupts");
    let sum = |line: &str| line.split_whitespace().skip(1).map_while(|count| count.parse::<u64>().ok()).sum();
    lines.lines().map(sum).collect()
}

#[test]
fn eth0_has_its_links_mtu_and_speed_and_the_queues_asked_for() {
    let niclab = Niclab::new();
    let file = "nodes = 2\nvcpus = 2\nqueues = 2\n[[link]]\nbandwidth_bits_per_s = 2_500_000_000\n";
    fs::write(niclab.folder().join("queues.toml"), file).expect("a cluster file");
    niclab.run(["up", "--cluster", "queues.toml"]).success();
    let about = "cd /sys/class/net/eth0; echo $(cat speed duplex mtu) $(ls queues)";
    assert_eq!(said(&niclab, "node0", about), "2500 full 1500 rx-0 rx-1 tx-0 tx-1");

    let long = niclab.run(["exec", "node0", "--", "ip", "link", "set", "eth0", "mtu", "1501"]);
    assert!(!long.status.success() && long.stderr.contains("Invalid argument"), "{long}");
    niclab.run(["exec", "node0", "--", "ping", "-q", "-c", "2", "-W", "9", "-s", "1472", "node1"]).success();

    let before = received(&niclab, "node1");
    assert_eq!(before.len(), 2, "one interrupt for each queue");
    // Nothing listens there: a packet of a flow of its own goes there for each, and one comes back.
    said(&niclab, "node0", "for port in $(seq 1 24); do nc -w 9 node1 $port < /dev/null; done; true");
    for (pair, (before, after)) in before.iter().zip(received(&niclab, "node1")).enumerate() {
        assert!(after > *before, "the second node's receive queue {pair} got nothing");
    }
    let seen = niclab.run(["inspect", "--json"]).success().json();
    for node in seen["device"]["nodes"].as_array().expect("nodes") {
        assert_eq!(
            (&node["violations"], &node["link_events"]),
            (&serde_json::json!({}), &serde_json::json!({}))
        );
    }
    niclab.run(["down"]).success();
}
