//! GAMMA cards in real guests: what `niclab run` shows, exact counts, ports that are kept apart, and an owner that is killed.

use niclab_tests::{Niclab, Outcome, eventually};

/// A counter of a node's card or of its driver, below `/sys/class/niclab/niclab0`.
fn count(niclab: &Niclab, node: &str, path: &str) -> u64 {
    let path = format!("/sys/class/niclab/niclab0/{path}");
    let outcome = niclab.run(["exec", node, "--", "cat", &path]).success();
    outcome.stdout.trim().parse().expect("a count")
}

/// The number that a text begins with.
fn number(text: &str) -> Option<u64> {
    text.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

/// Runs a command at both nodes.
fn both(niclab: &Niclab, command: &[&str]) -> [Outcome; 2] {
    let started = ["node0", "node1"].map(|node| niclab.start([&["exec", node, "--"][..], command].concat()));
    started.map(|program| program.finish().success())
}

#[test]
fn the_demonstration_runs_on_gamma_cards_and_nothing_interrupts_who_polls() {
    let niclab = Niclab::new();
    let text = niclab.run(["run", "--nic", "gamma", "--nodes", "4"]).success();
    for word in ["pingpong", "stream", "check guest-interrupts: held: node0: 0 raised"] {
        assert!(text.stdout.contains(word), "the report says {word:?}\n{text}");
    }
}

#[test]
fn a_ping_pong_from_c_is_what_was_sent() {
    let niclab = Niclab::new();
    niclab_tests::build_c_examples(&niclab);
    let outcome = niclab.run(["run", "--nic", "gamma", "--nodes", "2", "--", "./gamma_pingpong"]).success();
    assert_eq!(outcome.stdout.matches("50 messages of 5000 bytes").count(), 2, "{outcome}");
}

#[test]
fn a_killed_owner_frees_its_port_and_harms_no_other() {
    let niclab = Niclab::new();
    niclab.run(["up", "--nic", "gamma", "--nodes", "2"]).success();
    let stream = ["niclab-perf", "stream", "-s", "9000", "--iterations", "100000000"];
    let start = |node: &str| niclab.start([&["exec", node, "--"][..], &stream].concat());
    let kill = |node| {
        niclab.run(["exec", node, "--", "killall", "-9", "niclab-perf"]).success();
    };
    let (sender, mut receiver) = (start("node0"), start("node1"));
    assert!(
        eventually(|| count(&niclab, "node1", "statistics/bytes_received") > 1_000_000),
        "no stream begins"
    );
    kill("node0");
    assert!(receiver.is_running(), "it waits for the rest");
    kill("node1");
    drop((sender, receiver));
    // The same port for others, and another one at once.
    let pingpong = ["niclab-perf", "pingpong", "-s", "3000", "-n", "100"];
    let other: Vec<_> = ["node0", "node1"]
        .map(|node| niclab.start([&["exec", node, "--"][..], &pingpong, &["--port", "5"]].concat()))
        .into();
    both(&niclab, &pingpong);
    for program in other {
        program.finish().success();
    }
    for node in ["node0", "node1"] {
        for raised in ["lost_frames", "damaged_frames", "messages_without_buffer", "stalled_windows"] {
            assert_eq!(count(&niclab, node, &format!("active/{raised}")), 0, "{node}: {raised}");
        }
        assert_eq!(count(&niclab, node, "interrupts"), 0, "{node} polls");
    }
    niclab.run(["down"]).success();
}

#[test]
fn each_frame_interrupts_unless_the_driver_is_at_work_and_each_takes_its_descriptors() {
    let niclab = Niclab::new();
    let cluster = "[nic]\nmodel = \"gamma\"\n[nic.gamma]\ninterrupt_frames = 1\ninterrupt_delay_us = 0\nwindow_frames = 0\n";
    std::fs::write(niclab.folder().join("gamma.toml"), cluster).expect("a cluster file");
    niclab.run(["up", "--cluster", "gamma.toml", "--nodes", "2"]).success();
    // 200 messages are sent before those that are counted one by one.
    let [first, _] = both(&niclab, &["niclab-perf", "pingpong", "-s", "16", "-n", "300", "--poll", "block"]);
    let interrupts: Vec<u64> = first.stdout.split(": interrupts ").skip(1).map_while(number).collect();
    // Guests run freely: a frame may come, in model time, while the driver is at work on the one before, and finds it there.
    let is_one_for_each = |count: &u64| (475..=500).contains(count);
    assert!(interrupts.len() == 2 && interrupts.iter().all(is_one_for_each), "one for each message\n{first}");
    for node in ["node0", "node1"] {
        let [frames_in, frames_out, taken] = ["frames_in", "frames_out", "descriptors_taken"]
            .map(|name| count(&niclab, node, &format!("statistics/{name}")));
        assert_eq!(taken, frames_in + frames_out + 1, "{node}: one for each frame, and one for the next");
    }
    niclab.run(["down"]).success();
}

/// Starts a command at both nodes.
fn start_both(niclab: &Niclab, command: &[&str]) -> [niclab_tests::Started; 2] {
    ["node0", "node1"].map(|node| niclab.start([&["exec", node, "--"][..], command].concat()))
}

/// A command of `niclab-perf` over IP by the cards' own interfaces.
const OVER_CARDS: &str = "export NICLAB_ADDRESSES=$NICLAB_NIC_ADDRESSES; exec niclab-perf";

/// IP and active ports share the card: TCP and UDP between the guests' cards while messages flow, in both directions and of each
/// kind. Nothing is lost of messages, nothing is starved, and IP keeps to its part of the buffers.
fn shares_with_ip(parameters: &str) {
    let niclab = Niclab::new();
    let cluster = format!("nodes = 2\n[nic]\nmodel = \"gamma\"\n[nic.gamma]\n{parameters}");
    std::fs::write(niclab.folder().join("gamma.toml"), cluster).expect("a cluster file");
    niclab.run(["up", "--cluster", "gamma.toml"]).success();
    let pinged = niclab.run(["exec", "node0", "--", "ping", "-c", "3", "-A", "node1-gamma"]).success();
    assert!(pinged.stdout.contains("3 packets received"), "{pinged}");
    let neighbours = niclab.run(["exec", "node0", "--", "cat", "/proc/net/arp"]).success().stdout;
    let of_peer = neighbours.lines().find(|line| line.starts_with("10.78.0.2 ")).expect("a neighbour");
    assert!(of_peer.contains("02:6e:6c:01:00:01") && of_peer.ends_with("niclab0"), "{neighbours}");

    let messages = start_both(&niclab, &["niclab-perf", "stream", "-s", "9000", "--iterations", "100000000"]);
    let received = || count(&niclab, "node1", "statistics/bytes_received");
    assert!(eventually(|| received() > 100_000), "no stream begins");
    let before = received();
    let over_cards = |arguments: &str| both(&niclab, &["sh", "-c", &format!("{OVER_CARDS} {arguments}")]);
    over_cards("pingpong -t tcp -s 1000 -n 300");
    over_cards("stream -t udp -s 1000 -n 50 --warmup 10");
    let [first, second] = over_cards("stream -t tcp -s 16384 -n 1000");
    assert!(received() > before + 1_000_000, "messages went on\n{first}\n{second}");
    for node in ["node0", "node1"] {
        niclab.run(["exec", node, "--", "killall", "-9", "niclab-perf"]).success();
    }
    drop(messages);
    let other_buffers = 1_024 - 32 - 1;
    for node in ["node0", "node1"] {
        for raised in ["lost_frames", "damaged_frames", "messages_without_buffer", "stalled_windows"] {
            assert_eq!(count(&niclab, node, &format!("active/{raised}")), 0, "{node}: {raised}");
        }
        for lost in ["missed_frames", "fifo_overflows"] {
            assert_eq!(count(&niclab, node, &format!("statistics/{lost}")), 0, "{node}: {lost}");
        }
        let most = count(&niclab, node, "active/other_buffers_most");
        assert!((1..=other_buffers).contains(&most), "{node}: {most} of {other_buffers}");
        let others = count(&niclab, node, "statistics/other_frames_in");
        assert!(others > 1_000, "{node}: {others} frames of IP");
    }
    niclab.run(["down"]).success();
}

#[test]
fn ip_shares_rings_and_wire_with_messages_that_are_polled_for() {
    shares_with_ip("");
}

#[test]
fn ip_shares_rings_and_wire_with_messages_that_interrupt() {
    shares_with_ip("interrupt_frames = 1\n");
}
