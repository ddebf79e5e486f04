//! What users are told when something dies.

use std::time::Duration;

use niclab_tests::{Niclab, Outcome};

/// A run whose command would go on for ever, until `fault` strikes it.
fn struck(niclab: &Niclab, fault: impl FnOnce(&Niclab)) -> Outcome {
    let mut run = niclab.start(["run", "--", "sh", "-c", "echo started; exec sleep 1000"]);
    run.wait_for_line("started");
    fault(niclab);
    let outcome = run.finish(Duration::from_secs(30));
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
fn a_guest_that_never_gets_healthy_is_named_with_its_console() {
    let niclab = Niclab::new();
    // A restored guest may well be healthy by then.
    let outcome = niclab.run(["run", "--cold", "--boot-timeout", "1", "--", "true"]);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(outcome.stderr.contains("node0") && outcome.stderr.contains("console"), "{outcome}");
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
}

#[test]
fn guests_notice_a_dead_daemon_in_bounded_time() {
    let niclab = Niclab::new();
    // Stopped and not killed: niclab, which would end the cluster at once, sees nothing.
    let mut run =
        niclab.start(["run", "--", "sh", "-c", "echo started; niclab-perf pingpong --iterations 100000000"]);
    run.wait_for_line("started");
    niclab.signal_processes("niclab-device", libc::SIGSTOP);
    let seen = run.wait_for_line("the device is gone");
    niclab.signal_processes("niclab-device", libc::SIGCONT);
    run.signal(libc::SIGTERM);
    let outcome = run.finish(Duration::from_secs(30));
    assert!(seen.contains("niclab0"), "the device is named: {seen}\n{outcome}");
}
