//! Guests with the debug kernel: it finds planted faults and names their function, file and line, and it finds none in
//! niclab's own driver. `niclab kernel build` must run first. Such guests are many times slower, so only `ci/extended`
//! runs these tests.

use std::path::{Path, PathBuf};

use niclab_harness::{Niclab, Outcome, put_selftest};
use niclab_spec::NicModel;
use serde_json::Value;

/// The seeds of an adversarial device for each model: 1,002 over all six models.
const SEEDS: &str = "167";

/// Each fault of the planted driver, and the kind of its finding.
const PLANTED: [(&str, &str); 5] = [
    ("locks", "lockdep"),
    ("sleep", "atomic-sleep"),
    ("shift", "ubsan"),
    ("leak", "kmemleak"),
    ("use-after-free", "kasan"),
];

fn tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path).canonicalize().expect("a path in the tree")
}

/// A run on the debug kernel, and the nodes of its report.
fn run(niclab: &Niclab, options: &[&str], command: &[&str]) -> (Outcome, Vec<Value>) {
    let report = niclab.folder().join("report.json");
    let file = report.display().to_string();
    let fixed = ["run", "--kernel", "debug", "--report-file", &file];
    let outcome = niclab.run(fixed.iter().chain(options).chain(&["--"]).chain(command));
    let text =
        std::fs::read_to_string(&report).unwrap_or_else(|error| panic!("no report: {error}\n{outcome}"));
    let report: Value = serde_json::from_str(&text).expect("a report is JSON");
    (outcome, report["nodes"].as_array().expect("a report has nodes").clone())
}

fn findings(node: &Value) -> Vec<Value> {
    node["kernel_findings"].as_array().cloned().unwrap_or_default()
}

/// Asserts that the kernel found nothing, with every debugging tool on.
fn assert_no_findings(outcome: &Outcome, nodes: &[Value]) {
    for node in nodes {
        assert!(findings(node).is_empty(), "{outcome}");
        let tools = node["kernel_debug_tools"].as_array().cloned().unwrap_or_default();
        for tool in ["kasan", "lockdep", "kmemleak", "ubsan", "dma-debug"] {
            assert!(tools.contains(&tool.into()), "{tool} was not active\n{outcome}");
        }
    }
    assert_eq!(outcome.code(), 0, "{outcome}");
}

#[test]
fn each_planted_fault_is_found_with_its_source_line() {
    let niclab = Niclab::new();
    let source = tree("tests/debug_kernel/planted/planted.c");
    let text = std::fs::read_to_string(&source).expect("the planted driver");
    let driver = tree("tests/debug_kernel/planted").display().to_string();
    let faults = PLANTED.map(|(fault, _)| fault).join(" ");
    let script = format!("for fault in {faults}; do echo $fault >/dev/planted || exit; done");
    let options = ["--nodes", "1", "--driver", &driver];
    let (outcome, nodes) = run(&niclab, &options, &["sh", "-c", &script]);
    let found = findings(&nodes[0]);
    for (fault, kind) in PLANTED {
        let line =
            1 + text.lines().position(|line| line.contains(&format!("planted: {fault} "))).expect("its line");
        let file = source.display().to_string();
        let is_it = |found: &&Value| found["kind"] == kind && found["file"] == *file && found["line"] == line;
        assert!(
            found.iter().any(|found| is_it(&found)),
            "{fault}: no {kind} at {file}:{line} among\n{found:#?}\n{outcome}"
        );
        assert!(outcome.stderr.contains(&format!("{file}:{line})")), "{outcome}");
    }
    assert_eq!(outcome.code(), 1, "{outcome}");
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
}

#[test]
fn messages_cause_no_kernel_findings_on_any_card() {
    for model in NicModel::names() {
        let niclab = Niclab::new();
        let (outcome, nodes) = run(&niclab, &["--nic", model], &["niclab-perf", "demo", "--json"]);
        assert_eq!(nodes.len(), 2, "{model}");
        assert_no_findings(&outcome, &nodes);
    }
}

#[test]
fn the_drivers_own_tests_pass_without_kernel_findings() {
    for model in NicModel::names() {
        let niclab = Niclab::new();
        put_selftest(&niclab);
        let (outcome, nodes) = run(&niclab, &["--nic", model, "--nodes", "1"], &["./niclab-selftest"]);
        let passed = outcome.stdout.matches("| ok ").count() - outcome.stdout.matches("# SKIP").count();
        assert!(passed > 10 && !outcome.stdout.contains("| not ok "), "{model}: {passed} passed\n{outcome}");
        assert_no_findings(&outcome, &nodes);
        println!("{model}: {passed} passed");
    }
}

#[test]
fn the_active_port_tests_pass_without_kernel_findings() {
    let niclab = Niclab::new();
    put_selftest(&niclab);
    let cluster = "nodes = 2\n[nic]\nmodel = \"gamma\"\n[nic.gamma]\ninterrupt_frames = 1\n";
    std::fs::write(niclab.folder().join("gamma.toml"), cluster).expect("a cluster file");
    let script = "[ $NICLAB_RANK = 1 ] || ./niclab-selftest active";
    let (outcome, nodes) = run(&niclab, &["--cluster", "gamma.toml"], &["sh", "-c", script]);
    assert!(outcome.stdout.contains("| # 5 passed, 0 failed"), "{outcome}");
    assert_no_findings(&outcome, &nodes);
}

/// Runs `niclab conform` with these options for niclab's own driver on each model's cards, and prints each model's
/// table.
fn assert_all_conform(options: &[&str]) {
    let mut failed = Vec::new();
    for model in NicModel::names() {
        let niclab = Niclab::new();
        // A card that never interrupts cannot lose an interrupt, so that case would not be exercised.
        let own = if model == "gamma" { "[nic.gamma]\ninterrupt_frames = 1\n" } else { "" };
        let cluster = format!("nodes = 2\n[nic]\nmodel = \"{model}\"\n{own}");
        std::fs::write(niclab.folder().join("card.toml"), cluster).expect("a cluster file");
        let fixed = ["conform", "--kernel", "debug", "--cluster", "card.toml"];
        let outcome = niclab.run(fixed.iter().chain(options));
        println!("{model}, {:.0} s:\n{}", outcome.took.as_secs_f64(), outcome.stdout);
        if outcome.code() != 0 {
            failed.push(outcome);
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn all_conformance_cases_pass_on_every_card() {
    assert_all_conform(&[]);
}

#[test]
fn a_thousand_adversarial_seeds_pass_on_every_card() {
    assert_all_conform(&["--case", "adversarial", "--seeds", SEEDS, "--one-boot"]);
}

#[test]
fn reloads_and_rebinding_cause_no_kernel_findings() {
    let niclab = Niclab::new();
    let script = "niclab-perf pingpong -s 16 -n 50 && rmmod niclab && modprobe niclab && niclab-perf pingpong \
        -s 16 -n 50 && \
                  cd /sys/bus/virtio/drivers/niclab && device=$(echo virtio*) && echo $device >unbind && \
                  echo $device >bind && sleep 2 && niclab-perf pingpong -s 16 -n 50";
    let (outcome, nodes) = run(&niclab, &[], &["sh", "-c", script]);
    assert_no_findings(&outcome, &nodes);
}

#[test]
fn coverage_names_the_drivers_lines_by_the_users_path() {
    let niclab = Niclab::new();
    let source = tree("guest-driver/examples/ultra");
    let (driver, file) = (source.display().to_string(), niclab.folder().join("c.info"));
    let script =
        "if [ $NICLAB_RANK = 0 ]; then printf hello >/dev/example; else dd if=/dev/example bs=64 count=1; fi";
    let coverage = file.display().to_string();
    let options = ["--driver", &driver, "--coverage", &coverage];
    let (outcome, nodes) = run(&niclab, &options, &["sh", "-c", script]);
    assert_no_findings(&outcome, &nodes);
    let text = std::fs::read_to_string(&file).expect("the tracefile");
    assert!(text.contains(&format!("SF:{driver}/example.c\n")), "{text}");
    let called = |name: &str| {
        let end = format!(",{name}");
        let line = text.lines().find(|line| line.starts_with("FNDA:") && line.ends_with(&end));
        line.is_some_and(|line| !line.starts_with("FNDA:0,"))
    };
    assert!(called("example_write") && called("example_read"), "{text}");
    // The driver is removed after the counts are read.
    assert!(!called("example_remove"), "{text}");
}
