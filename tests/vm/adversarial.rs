//! Adversarial devices in guests: with niclab's own driver and library, every card's messages arrive complete, and no
//! rule of the manual is broken.

use std::collections::BTreeSet;

use niclab_harness::{Niclab, Outcome};

/// Programs that sleep, so that interrupts and events matter, and programs that poll. niclab-perf compares received
/// data with sent data.
const SHORT: &str = "niclab-perf pingpong --poll block -n 20 -w 2 && niclab-perf stream -s 48 -n 50 -w 2";

/// The kinds of adversarial behaviour at any node of a successful run.
fn kinds(outcome: Outcome, what: &str) -> BTreeSet<String> {
    println!("{what}: {:?}", outcome.took);
    let outcome = outcome.success();
    assert!(!outcome.stderr.contains("broken rule"), "{what}: {outcome}");
    let report = outcome.json();
    let nodes = report["nodes"].as_array().unwrap_or_else(|| panic!("{what}: no nodes: {outcome}"));
    let mut kinds = BTreeSet::new();
    for node in nodes {
        let counts = node["adversarial"]
            .as_object()
            .unwrap_or_else(|| panic!("{what}: no adversarial card: {outcome}"));
        kinds.extend(
            counts.iter().filter(|(_, count)| count.as_u64() > Some(0)).map(|(kind, _)| kind.clone()),
        );
    }
    kinds
}

/// The kinds in runs with these seeds. The runs are concurrent, because each mostly waits for delayed events.
fn at_once(seeds: &[u64], run: impl Fn(u64) -> BTreeSet<String> + Sync) -> BTreeSet<String> {
    std::thread::scope(|scope| {
        let runs: Vec<_> = seeds.iter().map(|seed| scope.spawn(|| run(*seed))).collect();
        let ends =
            runs.into_iter().map(|run| run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ends.flatten().collect()
    })
}

/// Kinds that must occur with this number of requests, messages and interrupts, at any speed of the guests. The report
/// of a run does not contain the driver's start; `device/vhost-user/tests/suite/adversarial` tests it.
const KINDS: [&str; 12] = [
    "buffer_reordered",
    "completion_late",
    "doorbell_changed",
    "event_late",
    "interrupt_late",
    "interrupt_shared",
    "interrupt_spurious",
    "ports_reordered",
    "reply_at_limit",
    "reply_late",
    "slots_left",
    "status_late",
];

/// With seed 1 a card answers a request just before the limit, which takes seconds. With the other seeds no card does
/// so early.
#[test]
fn the_own_driver_serves_adversarial_cards_of_every_model() {
    let mut met = BTreeSet::new();
    let runs: [(&str, &[u64]); 5] =
        [("ultra", &[1, 2]), ("mailbox", &[2]), ("match", &[2, 25]), ("grim", &[2, 25]), ("inic", &[2, 25])];
    for (model, seeds) in runs {
        met.extend(at_once(seeds, |seed| {
            let (niclab, number) = (Niclab::new(), seed.to_string());
            let run =
                ["run", "--nic", model, "--adversarial", &number, "--rules", "fail", "--report", "json"];
            let outcome = niclab.run(run.iter().chain(&["--", "sh", "-c", SHORT]));
            kinds(outcome, &format!("{model}, seed {seed}"))
        }));
    }
    for kind in KINDS {
        assert!(met.contains(kind), "{kind} never happened: {met:?}");
    }
}

/// The driver refills a GAMMA card's descriptor rings when the card reports used descriptors. Here interrupts are late,
/// spurious or merged, and messages go around the rings several times.
#[test]
fn rings_are_refilled_despite_an_adversarial_cards_interrupts() {
    let script =
        "niclab-perf pingpong --poll block -n 30 -w 2 && niclab-perf stream -s 60000 -n 40 -w 2 --poll block";
    let met = at_once(&[2, 25], |seed| {
        let niclab = Niclab::new();
        let cluster = format!(
            "nodes = 2\nadversarial = {seed}\nrules = \"fail\"\n[nic]\nmodel = \"gamma\"\n\
             [nic.gamma]\ninterrupt_frames = 1\ninterrupt_delay_us = 0\n"
        );
        std::fs::write(niclab.folder().join("gamma.toml"), cluster).expect("a cluster file");
        let outcome =
            niclab.run(["run", "--cluster", "gamma.toml", "--report", "json", "--", "sh", "-c", script]);
        kinds(outcome, &format!("gamma, seed {seed}"))
    });
    for kind in ["event_late", "event_merged", "interrupt_late", "interrupt_shared", "interrupt_spurious"] {
        assert!(met.contains(kind), "{kind} never happened: {met:?}");
    }
}
