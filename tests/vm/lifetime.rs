//! `niclab up` to `niclab down`, and interrupted runs.

use niclab_harness::{Niclab, Started, eventually};

#[test]
fn a_cluster_stays_up_until_it_is_taken_down() {
    let niclab = Niclab::new();
    niclab.run(["up"]).success();

    let seen = niclab.run(["inspect", "--json"]).success().json();
    let nodes = seen["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 2, "{seen:#}");
    let table = niclab.run(["inspect"]).success();
    assert!(table.stdout.contains("node0") && table.stdout.contains("node1"), "{table}");

    let said = niclab.run(["exec", "node1", "--", "sh", "-c", "hostname; exit 9"]);
    assert_eq!((said.stdout.trim(), said.code()), ("node1", 9), "{said}");
    niclab.run(["exec", "node0", "--", "sh", "-c", "echo to the console >/dev/console"]).success();
    let console = niclab.run(["logs", "node0"]).success();
    assert!(console.stdout.contains("to the console"), "{console}");

    niclab.run(["down"]).success();
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
    let gone = niclab.run(["inspect"]);
    assert_ne!(gone.code(), 0, "{gone}");
}

#[test]
fn clusters_of_different_names_do_not_meet() {
    let niclab = Niclab::new();
    niclab.run(["up", "--name", "one", "--nodes", "1"]).success();
    niclab.run(["up", "--name", "two", "--nodes", "1"]).success();
    let again = niclab.run(["up", "--name", "one", "--nodes", "1"]);
    assert_ne!(again.code(), 0, "a name is taken once\n{again}");
    niclab.run(["down", "--name", "one"]).success();
    niclab.run(["exec", "--name", "two", "node0", "--", "true"]).success();
    niclab.run(["down", "--name", "two"]).success();
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
}

#[test]
fn down_cleans_up_after_a_killed_niclab() {
    let niclab = Niclab::new();
    niclab.run(["up", "--nodes", "1"]).success();
    niclab.signal_processes("supervise", libc::SIGKILL);
    let outcome = niclab.run(["down"]);
    assert!(eventually(|| niclab.processes().is_empty()), "{:#?}\n{outcome}", niclab.processes());
    niclab.run(["up", "--nodes", "1"]).success();
    niclab.run(["down"]).success();
}

#[test]
fn ctrl_c_during_the_boot_leaves_nothing() {
    let niclab = Niclab::new();
    let run = niclab.start(["run", "--", "true"]);
    assert!(
        eventually(|| niclab.processes().iter().any(|process| process.contains("qemu"))),
        "a guest starts"
    );
    interrupted(&niclab, run);
}

#[test]
fn ctrl_c_during_a_command_leaves_nothing() {
    let niclab = Niclab::new();
    let mut run = niclab.start(["run", "--", "sh", "-c", "echo started; exec sleep 1000"]);
    run.wait_for_line("started");
    interrupted(&niclab, run);
}

fn interrupted(niclab: &Niclab, run: Started) {
    run.signal(libc::SIGINT);
    let outcome = run.finish();
    assert_eq!(outcome.code(), 128 + libc::SIGINT, "{outcome}");
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
}
