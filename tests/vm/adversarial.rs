//! Adversarial devices in guests: niclab's own driver and library carry every card's messages whole, and break no rule of
//! the manual meanwhile.

use std::collections::BTreeSet;

use niclab_harness::{Niclab, Outcome};

/// Ends that sleep, so that interrupts and events matter, and ends that poll; niclab-perf compares what arrives with
/// what was sent.
const SHORT: &str = "niclab-perf pingpong --poll block -n 20 -w 2 && niclab-perf stream -s 48 -n 50 -w 2";

/// The kinds that happened at any node of a run that went well.
fn kinds(outcome: Outcome, what: &str) -> BTreeSet<String> {
    println!("{what}: {:?}", outcome.took);
    let outcome = outcome.success();
    assert!(!outcome.stderr.contains("broken rule"), "{what}: {outcome}");
    let report = outcome.json();
    let nodes = report["nodes"].as_array().unwrap_or_else(|| panic!("{what}: no nodes: {outcome}"));
    let mut kinds = BTreeSet::new();
    for node in nodes {
        let counts =
            node["adversarial"].as_object().unwrap_or_else(|| panic!("{what}: a kind card: {outcome}"));
        kinds.extend(
            counts.iter().filter(|(_, count)| count.as_u64() > Some(0)).map(|(kind, _)| kind.clone()),
        );
    }
    kinds
}

/// The kinds that happened in runs with these seeds, at the same time: most of each is waiting for what is late.
fn at_once(seeds: &[u64], run: impl Fn(u64) -> BTreeSet<String> + Sync) -> BTreeSet<String> {
    std::thread::scope(|scope| {
        let runs: Vec<_> = seeds.iter().map(|seed| scope.spawn(|| run(*seed))).collect();
        let ends =
            runs.into_iter().map(|run| run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ends.flatten().collect()
    })
}

/// Kinds that this many requests, messages and interrupts meet, whatever the guests' speed. What happens while a driver
/// begins is not in the report of a run: `device/vhost-user/tests/suite/adversarial` has that.
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

/// With seed 1 a card answers a request just before the limit, which takes seconds; with the others none does so soon.
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

/// A GAMMA card's descriptors lie in rings of the driver's, which feeds them as it is told that some were used: here
/// behind interrupts that come late, for nothing or together, with messages that go round the rings several times.
#[test]
fn rings_are_fed_behind_the_interrupts_of_an_adversarial_card() {
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
