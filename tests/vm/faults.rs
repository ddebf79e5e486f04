//! Messages to users when the daemon, QEMU or a guest dies.

use niclab_harness::{Niclab, Outcome};

/// A run with an endless command, which `fault` ends.
fn struck(niclab: &Niclab, fault: impl FnOnce(&Niclab)) -> Outcome {
    let mut run = niclab.start(["run", "--", "sh", "-c", "echo started; exec sleep 1000"]);
    run.wait_for_line("started");
    fault(niclab);
    let outcome = run.finish();
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
    outcome
}

#[test]
fn a_killed_daemon_ends_the_cluster_and_is_named() {
    let niclab = Niclab::new();
    let outcome = struck(&niclab, |niclab| niclab.signal_processes("niclab-device", libc::SIGKILL));
    assert!(outcome.stderr.contains("daemon ended"), "{outcome}");
}

#[test]
fn a_killed_qemu_ends_the_cluster_and_is_named() {
    let niclab = Niclab::new();
    let outcome = struck(&niclab, |niclab| niclab.signal_processes("/node1 ", libc::SIGKILL));
    assert!(outcome.stderr.contains("QEMU of node1 ended"), "{outcome}");
}

#[test]
fn a_panic_ends_the_cluster_and_shows_the_console() {
    let niclab = Niclab::new();
    let script = "[ $NICLAB_RANK = 1 ] && echo c > /proc/sysrq-trigger; sleep 1000";
    let outcome = niclab.run(["run", "--", "sh", "-c", script]);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(outcome.stderr.contains("node1") && outcome.stderr.contains("Kernel panic"), "{outcome}");
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
}

#[test]
fn a_guest_that_never_becomes_healthy_is_named_with_its_console() {
    let niclab = Niclab::new();
    // A cold boot, because a restored guest may be healthy within a second.
    let outcome = niclab.run(["run", "--cold", "--boot-timeout", "1", "--", "true"]);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(outcome.stderr.contains("node0") && outcome.stderr.contains("console"), "{outcome}");
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
}

#[test]
fn guests_notice_a_dead_daemon_in_bounded_time() {
    let niclab = Niclab::new();
    // The daemon is stopped and not killed: niclab would notice a killed one, and end the cluster at once.
    let mut run =
        niclab.start(["run", "--", "sh", "-c", "echo started; niclab-perf pingpong --iterations 100000000"]);
    run.wait_for_line("started");
    niclab.signal_processes("niclab-device", libc::SIGSTOP);
    let seen = run.wait_for_line("the device is gone");
    niclab.signal_processes("niclab-device", libc::SIGCONT);
    run.signal(libc::SIGTERM);
    let outcome = run.finish();
    assert!(seen.contains("niclab0"), "the device is named: {seen}\n{outcome}");
}

/// The guest can switch off the power of a restored card's slot, which removes the card from its QEMU.
#[test]
fn a_guest_that_removes_its_card_harms_only_itself() {
    let niclab = Niclab::new();
    niclab.run(["up", "--nodes", "3"]).success();
    let script = "echo 0 >/sys/bus/pci/slots/0/power; while [ -e /dev/niclab0 ]; do sleep 0.1; done";
    niclab.run(["exec", "node0", "--", "sh", "-c", script]).success();
    let seen = niclab.run(["inspect", "--json"]).json();
    let health = |rank: usize| seen["nodes"][rank]["health"]["Ok"]["driver"].as_str().is_some();
    assert_eq!([0, 1, 2].map(health), [false, true, true], "{seen:#}");
    let perf = ["niclab-perf", "pingpong", "-s", "16", "-n", "50", "--peer", "2"];
    let peer = niclab.start([
        "exec",
        "node2",
        "--",
        "niclab-perf",
        "pingpong",
        "-s",
        "16",
        "-n",
        "50",
        "--peer",
        "1",
    ]);
    niclab.run([&["exec", "node1", "--"][..], &perf].concat()).success();
    peer.finish().success();
    niclab.run(["down"]).success();
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
}
