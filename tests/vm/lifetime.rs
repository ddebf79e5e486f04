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
fn run_keeps_going_when_one_node_reboots() {
    let niclab = Niclab::new();
    // The other nodes notice that node1 is gone, and still reach each other.
    let script = "case $NICLAB_RANK in
            0) other=node2 ;;
            1) echo the last words >/dev/console; reboot -f; sleep 60 ;;
            2) other=node0 ;;
        esac
        while ping -q -c 1 -W 1 node1 >/dev/null; do sleep 0.1; done
        ping -q -c 2 -W 5 $other >/dev/null && echo finished";
    let run =
        ["run", "--keep-going", "--nodes", "3", "--timeout", "120", "--report", "json", "--", "sh", "-c"];
    let outcome = niclab.run([&run[..], &[script]].concat());
    assert_eq!(outcome.code(), 125, "{outcome}");
    let reason = "node1 powered off or rebooted";
    assert!(outcome.stderr.contains(&format!("niclab: {reason}; the other nodes continue")), "{outcome}");
    for node in ["node0", "node2"] {
        assert!(outcome.stderr.contains(&format!("{node} | finished\n")), "{node}: {outcome}");
    }
    let report = outcome.json();
    assert_eq!(report["exit_code"], 125);
    let nodes = report["nodes"].as_array().expect("nodes");
    let ends: Vec<_> = nodes.iter().map(|node| (&node["exit_code"], &node["error"])).collect();
    let none = serde_json::Value::Null;
    assert_eq!(ends, [(&0.into(), &none), (&none, &reason.into()), (&0.into(), &none)], "{report:#}");
    assert!(nodes[1]["console"].to_string().contains("the last words"), "{:#}", nodes[1]);
    // The other nodes still report their kernels' counts.
    let has_counts = |node: &serde_json::Value| node["guest_interrupts"].is_object();
    assert_eq!(nodes.iter().map(has_counts).collect::<Vec<_>>(), [true, false, true], "{report:#}");
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
}

#[test]
fn cluster_that_is_up_keeps_going_when_nodes_end() {
    let niclab = Niclab::new();
    std::fs::write(niclab.folder().join("c.toml"), "nodes = 3\non_node_exit = \"continue\"\n")
        .expect("a file");
    niclab.run(["up", "--cluster", "c.toml"]).success();
    let pids = niclab.run(["inspect", "--json"]).success().json();
    let killed = pids["nodes"][2]["pid"].as_i64().expect("a pid") as i32;
    // SAFETY: kill has no effect on this process's memory.
    assert_eq!(unsafe { libc::kill(killed, libc::SIGKILL) }, 0);
    let command = niclab.run(["exec", "node1", "--", "sh", "-c", "reboot -f; sleep 60"]);
    let ends = ["node1 powered off or rebooted", "QEMU of node2 ended (signal 9)"];
    assert!(command.code() == 125 && command.stderr.contains(ends[0]), "{command}");
    let inspected = niclab.run(["inspect"]);
    assert!(ends.iter().all(|end| inspected.stdout.contains(end)), "{inspected}");
    assert_eq!(inspected.code(), 1, "{inspected}");
    let refused = niclab.run(["exec", "node2", "--", "true"]);
    assert!(refused.code() == 125 && refused.stderr.contains(ends[1]), "{refused}");
    let other = niclab.run(["exec", "node0", "--", "hostname"]).success();
    assert_eq!(other.stdout.trim(), "node0");
    niclab.run(["down"]).success();
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
}

#[test]
fn clusters_with_different_names_are_separate() {
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
