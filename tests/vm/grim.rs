//! GRIM cards in real guests: the report of `niclab run`, handlers in C that call one another, and an owner that is
//! killed.

use niclab_harness::{Niclab, eventually};

#[test]
fn demo_runs_on_grim_and_a_poller_gets_no_interrupt() {
    let niclab = Niclab::new();
    let text = niclab.run(["run", "--nic", "grim", "--report", "text"]).success();
    for word in ["pingpong", "stream", "bulk_sent", "check guest-interrupts: held: node0: 0 raised"] {
        assert!(text.stdout.contains(word), "the report contains {word:?}\n{text}");
    }
}

#[test]
fn handlers_call_one_another_from_c() {
    let niclab = Niclab::new();
    niclab_harness::build_c_examples(&niclab);
    let outcome = niclab.run(["run", "--nic", "grim", "--nodes", "3", "--", "./grim_handlers"]).success();
    assert!(outcome.stdout.contains("node 0: 2 questions, 0 answers"), "{outcome}");
    assert_eq!(outcome.stdout.matches("0 questions, 1 answers").count(), 2, "{outcome}");
}

#[test]
fn a_killed_owner_frees_its_channel_and_harms_no_other() {
    let niclab = Niclab::new();
    niclab.run(["up", "--nic", "grim", "--nodes", "2"]).success();
    let stream = ["--", "niclab-perf", "stream", "-s", "9000", "--iterations", "100000000"];
    let received = || {
        let command = "cat /sys/class/niclab/niclab0/statistics/bytes_received";
        let outcome = niclab.run(["exec", "node1", "--", "sh", "-c", command]).success();
        outcome.stdout.trim().parse::<u64>().expect("a count")
    };
    let both = |command: &[&str]| {
        ["node0", "node1"].map(|node| niclab.start([&["exec", node][..], command].concat()))
    };
    let kill = |node| {
        niclab.run(["exec", node, "--", "killall", "-9", "niclab-perf"]).success();
    };
    let [sender, mut receiver] = both(&stream);
    assert!(eventually(|| received() > 1_000_000), "the stream did not begin");
    kill("node0");
    assert!(receiver.is_running(), "the receiver waits for the other messages");
    kill("node1");
    drop((sender, receiver));
    // Other programs use the same channels at once. They get nothing of the messages in flight, and no interrupt that
    // they did not request.
    for program in both(&["--", "niclab-perf", "interrupts", "-n", "100", "-k", "10"]) {
        let outcome = program.finish().success();
        assert!(
            outcome.stdout.contains("expected 10, program 10, /proc/interrupts 10, device 10"),
            "{outcome}"
        );
    }
    for program in both(&["--", "niclab-perf", "rate", "-s", "4096", "--iterations", "500"]) {
        program.finish().success();
    }
    niclab.run(["down"]).success();
}
