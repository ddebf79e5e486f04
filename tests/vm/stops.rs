//! Guests that stop and continue, as under a debugger, while programs exchange messages.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    time::Duration,
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

/// The host stops the guests and the daemon, as a host that is itself a virtual machine does. The clocks of the guests
/// continue meanwhile, past the time limit of the sender, which waits for its window.
#[test]
fn time_limits_stand_still_while_the_machine_does() {
    let niclab = Niclab::new();
    niclab.run(["up", "--nic", "gamma", "--nodes", "2"]).success();
    let perf = ["niclab-perf", "stream", "-s", "9000", "--iterations", "100000000", "--timeout", "20"];
    let mut programs =
        ["node0", "node1"].map(|node| niclab.start([&["exec", node, "--"][..], &perf].concat()));
    assert!(eventually(|| received(&niclab)[1] > 1_000), "messages before the stop");
    const ALL: [&str; 3] = ["/node1 ", "/node0 ", "niclab-device"];
    // Without its receiver, the sender uses up its window.
    niclab.signal_processes(ALL[0], libc::SIGSTOP);
    let mut before = Vec::new();
    let has_window = |before: &mut Vec<u64>| std::mem::replace(before, received(&niclab)) != *before;
    assert!(eventually(|| !has_window(&mut before)), "the sender continues without a receiver");
    ALL.iter().for_each(|name| niclab.signal_processes(name, libc::SIGSTOP));
    std::thread::sleep(Duration::from_secs(23));
    // The sender sees its clock before its receiver sends anything.
    niclab.signal_processes(ALL[1], libc::SIGCONT);
    std::thread::sleep(Duration::from_millis(200));
    ALL.iter().for_each(|name| niclab.signal_processes(name, libc::SIGCONT));
    assert!(eventually(|| received(&niclab)[1] > before[1] + 100), "messages after the stop");
    assert!(programs.iter_mut().all(|program| program.is_running()), "a program failed");
    niclab.run(["down"]).success();
}
