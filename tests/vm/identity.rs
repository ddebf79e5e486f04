//! The identity of a node, which the launcher gives to its agent. No two nodes have the same.

use std::time::{SystemTime, UNIX_EPOCH};

use niclab_harness::{Niclab, eventually};

#[test]
fn each_node_has_its_own_machine_id_and_the_hosts_time() {
    let niclab = Niclab::new();
    // The guests' own clocks are wrong, as those of guests that were saved long ago.
    std::fs::write(niclab.folder().join("c.toml"), "qemu_args = [\"-rtc\", \"base=2001-01-01T00:00:00\"]\n")
        .expect("a cluster file");
    let script = "cat /etc/machine-id; date +%s";
    let outcome = niclab.run(["run", "--cluster", "c.toml", "--", "sh", "-c", script]).success();
    assert!(outcome.stderr.contains("the nodes boot: qemu_args has `-rtc`"), "{outcome}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs();
    let of = |node: &str| -> Vec<String> {
        let lines = outcome.stdout.lines().filter_map(|line| line.strip_prefix(&format!("{node} | ")));
        lines.map(str::to_owned).collect()
    };
    let (one, other) = (of("node0"), of("node1"));
    assert_eq!(one[0].len(), 32, "{outcome}");
    assert_ne!(one[0], other[0], "{outcome}");
    for node in [one, other] {
        let time: u64 = node[1].parse().expect("seconds");
        assert!(time.abs_diff(now) < 60, "{time} there, {now} here");
    }
}

#[test]
fn a_guest_stays_its_node_when_its_agent_ends() {
    let niclab = Niclab::new();
    niclab.run(["up", "--nodes", "1"]).success();
    let who = |script: &str| niclab.run(["exec", "node0", "--", "sh", "-c", script]);
    let script = "echo rank $NICLAB_RANK in $PWD; cat /etc/machine-id; ip -4 addr show; mount | grep -c 9p; \
                  stat -c %y /etc/hosts";
    let before = who(script).success().stdout;
    assert!(before.starts_with(&format!("rank 0 in {}\n", niclab.folder().display())), "{before}");
    let killed = who("kill -9 $(pidof niclab-agent); sleep 60");
    assert_ne!(killed.code(), 0, "the command cannot outlive its agent\n{killed}");
    assert!(eventually(|| who("true").code() == 0), "{}", who("true"));
    assert_eq!(who(script).success().stdout, before, "the new agent sets up nothing again");
    let console = niclab.run(["logs", "node0"]).success();
    assert!(!console.stdout.contains("niclab-agent: cannot"), "no step failed\n{console}");
    niclab.run(["down"]).success();
}

#[test]
fn free_memory_is_cleared_without_killing_a_program() {
    let niclab = Niclab::new();
    let script = "niclab-agent --release-memory && free && dmesg | grep -ci 'out of memory'; true";
    let outcome = niclab.run(["run", "--nodes", "1", "--", "sh", "-c", script]).success();
    let words: Vec<&str> = outcome.stdout.lines().next().expect("a line").split_whitespace().collect();
    let ["node0", "|", kib, "KiB", "of", "free", "memory", "cleared"] = words[..] else {
        panic!("{outcome}")
    };
    // Most of the default 256 MiB.
    assert!(kib.parse::<u64>().is_ok_and(|kib| kib > 100 * 1024), "{outcome}");
    assert!(outcome.stdout.trim_end().ends_with("node0 | 0"), "{outcome}");
}
