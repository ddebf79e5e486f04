//! Faults on the links of running clusters.

use std::fs;

use niclab_harness::{Niclab, Outcome};
use serde_json::Value;

/// Runs a ping-pong through the NICs on both nodes, and returns node 0's outcome.
fn pingpong(niclab: &Niclab, timeout_s: &str) -> Outcome {
    let perf =
        ["niclab-perf", "pingpong", "--iterations", "50", "--poll", "adaptive", "--timeout", timeout_s];
    let on = |node| [&["exec", node, "--"][..], &perf].concat();
    let peer = niclab.start(on("node1"));
    let outcome = niclab.run(on("node0"));
    let peer = peer.finish();
    assert_eq!(
        outcome.status.success(),
        peer.status.success(),
        "both succeed or both fail\n{outcome}\n{peer}"
    );
    outcome
}

fn ping(niclab: &Niclab) -> Outcome {
    niclab.run(["exec", "node0", "--", "ping", "-q", "-c", "3", "-i", "0.2", "-W", "1", "node1"])
}

/// A file of the network interface of a node, in the guest.
fn of_interface(niclab: &Niclab, node: &str, file: &str) -> String {
    let path = format!("/sys/class/net/eth0/{file}");
    niclab.run(["exec", node, "--", "cat", &path]).success().stdout.trim().to_owned()
}

/// Frames that both nodes sent and received, and those dropped at the cut link of node 1.
fn frames(niclab: &Niclab) -> [u64; 3] {
    let seen = niclab.run(["inspect", "--json"]).json();
    let nodes = seen["device"]["nodes"].as_array().expect("nodes");
    let sum = |key: &str| {
        let of_node = |node: &Value| ["cluster", "ethernet"].map(|function| node[function][key].as_u64());
        nodes.iter().flat_map(of_node).flatten().sum()
    };
    let dropped = nodes[1]["link_events"]["dropped_down"].as_u64().unwrap_or_default();
    [sum("sent_frames"), sum("received_frames"), dropped]
}

#[test]
fn cut_link_stops_and_counts_traffic_until_it_is_healed() {
    let niclab = Niclab::new();
    let file =
        "nodes = 2\n[[link]]\nmtu_bytes = 9000\n[[link]]\nnode = \"node1\"\nfaults = { partition = true }\n";
    fs::write(niclab.folder().join("cut.toml"), file).expect("a cluster file");
    niclab.run(["up", "--cluster", "cut.toml"]).success();
    assert_eq!(of_interface(&niclab, "node1", "carrier"), "0", "cut from the start");
    assert_eq!(of_interface(&niclab, "node0", "mtu"), "9000");
    let healed = niclab.run(["fault", "node1", "--heal"]).success();
    assert!(healed.stdout.contains("intact"), "{healed}");
    niclab.run(["exec", "node1", "--", "sh", "-c", "until ping -c 1 -W 1 node0; do :; done"]).success();
    pingpong(&niclab, "20").success();

    let cut = niclab.run(["fault", "node1", "--partition", "--json"]).success().json();
    assert_eq!(cut["nodes"][0]["faults"]["partition"], true, "{cut}");
    assert_eq!(of_interface(&niclab, "node1", "carrier"), "0");
    assert_eq!(of_interface(&niclab, "node0", "carrier"), "1", "the other link is intact");
    let before = frames(&niclab);
    assert!(!ping(&niclab).status.success());
    let silent = pingpong(&niclab, "1");
    assert_ne!(silent.code(), 0, "{silent}");
    let after = frames(&niclab);
    let [sent, received, dropped] = [0, 1, 2].map(|at| after[at] - before[at]);
    assert_eq!((received, dropped), (0, sent), "every sent frame counts as dropped");
    assert!(sent >= 4, "at least a ping and greetings");

    // A change of other faults leaves the cut in place.
    let changed = niclab.run(["fault", "node1", "--loss", "0.5", "--json"]).success().json();
    let faults = &changed["nodes"][0]["faults"];
    assert_eq!((&faults["loss"], &faults["partition"]), (&0.5.into(), &true.into()), "{changed}");
    niclab.run(["fault", "node1", "--heal"]).success();
    assert_eq!(of_interface(&niclab, "node1", "carrier"), "1");
    niclab.run(["exec", "node1", "--", "sh", "-c", "until ping -c 1 -W 1 node0; do :; done"]).success();
    ping(&niclab).success();
    pingpong(&niclab, "20").success();

    let shown = niclab.run(["fault", "--show"]).success();
    assert!(shown.stdout.contains("dropped_down") && shown.stdout.contains("node0"), "{shown}");
    let unknown = niclab.run(["fault", "node9", "--loss", "0.1"]);
    assert!(unknown.code() != 0 && unknown.stderr.contains("node0, node1"), "{unknown}");
    niclab.run(["down"]).success();
}

/// The Ethernet functions' link loses frames. A stream of datagrams still ends, and reports as many lost datagrams as
/// the link, except for frames of the control connection.
#[test]
fn a_stream_of_datagrams_counts_lost_frames() {
    let niclab = Niclab::new();
    let file = "nodes = 2\n[[link]]\nnode = \"node1\"\nfaults = { loss = 0.05 }\n";
    fs::write(niclab.folder().join("lossy.toml"), file).expect("a cluster file");
    let run = ["run", "--cluster", "lossy.toml", "--report", "json", "--"];
    let stream =
        ["niclab-perf", "stream", "--transport", "udp", "-s", "1392", "-n", "2000", "-w", "100", "--json"];
    let outcome = niclab.run([&run[..], &stream].concat()).success();
    let report = outcome.json();
    let result = &report["wall"]["results"][0];
    assert_eq!((&result["transport"], &result["messages"]), (&"udp".into(), &2000.into()), "{outcome}");
    let lost = result["lost_datagrams"].as_u64().expect("a count");
    assert!((20..2000).contains(&lost), "{outcome}");
    let ethernet = |node: usize, key: &str| report["nodes"][node]["ethernet"][key].as_u64().expect("a count");
    let came = ethernet(1, "received_frames");
    assert!(ethernet(0, "sent_frames") >= 2100 && came >= 2000 - lost, "{outcome}");
}
