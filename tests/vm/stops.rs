//! Guests that stop and continue, as under a debugger, while programs exchange messages.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
};

use niclab_harness::{Niclab, eventually};
use serde_json::Value;

/// Makes QEMU of the node of this rank stop its machine, and continue it.
pub fn stop_and_continue(niclab: &Niclab, rank: usize) {
    let socket = niclab.runtime().join("niclab").join(format!("{rank}.qmp"));
    let mut qemu = UnixStream::connect(&socket).expect("QEMU's socket");
    let mut answers = BufReader::new(qemu.try_clone().expect("a descriptor"));
    for command in ["qmp_capabilities", "stop", "cont"] {
        writeln!(qemu, "{{\"execute\":\"{command}\"}}").expect("QEMU reads");
        loop {
            let mut line = String::new();
            assert_ne!(answers.read_line(&mut line).expect("an answer"), 0, "QEMU has hung up");
            assert!(!line.contains("\"error\""), "{command}: {line}");
            if line.contains("\"return\"") {
                break;
            }
        }
    }
}

fn inspect(niclab: &Niclab) -> Value {
    niclab.run(["inspect", "--json"]).json()
}

/// The messages that each node's card has delivered so far.
fn received(niclab: &Niclab) -> Vec<u64> {
    let nodes = inspect(niclab)["device"]["nodes"].as_array().cloned().unwrap_or_default();
    nodes.iter().map(|node| node["messages_received"].as_u64().expect("a count")).collect()
}

#[test]
fn messages_continue_after_machine_stops() {
    for nic in ["ultra", "match", "gamma"] {
        let niclab = Niclab::new();
        niclab.run(["up", "--nic", nic, "--nodes", "2"]).success();
        // A program stores the time of each round trip, so it cannot run forever.
        let perf = "while niclab-perf pingpong -s 16 --iterations 500000; do :; done; exit 1";
        let mut programs =
            ["node0", "node1"].map(|node| niclab.start(["exec", node, "--", "sh", "-c", perf]));
        let has_grown = |before: &[u64]| {
            let now = received(&niclab);
            now.len() == before.len() && now.iter().zip(before).all(|(now, before)| now > before)
        };
        assert!(eventually(|| has_grown(&[0, 0])), "{nic}: messages before the stops");
        for rank in [0, 1, 0, 1, 1, 0] {
            stop_and_continue(&niclab, rank);
        }
        let before = received(&niclab);
        assert!(eventually(|| has_grown(&before)), "{nic}: messages after the stops");
        for program in &mut programs {
            assert!(program.is_running(), "{nic}: a program failed");
        }
        let connections = &inspect(&niclab)["connections"]["nodes"];
        for node in connections.as_array().expect("nodes") {
            assert!(
                node["cluster_driver_ok"] == true && node["ethernet_driver_ok"] == true,
                "{connections:#}"
            );
        }
        niclab.run(["down"]).success();
    }
}
