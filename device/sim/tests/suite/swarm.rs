//! A swarm holds every check, prints the same on any number of threads, and finds bugs that are seeded in cards.

use crate::tampered::{Tamper, Tampered};
use niclab_abi::config::FEATURE_SLICES;
use niclab_sim::run::Options;
use niclab_sim::swarm::{Swarm, configuration, configuration_of, run_seed_of};
use niclab_spec::{Function, NicModel, Receive, WorkloadKind};

#[test]
fn random_configurations_hold_every_check() {
    let swarm = Swarm::new(1, 300, 2);
    assert!(swarm.is_sound(), "{swarm}");
}

/// All workloads except those that need cards with groups.
fn drawn_kinds() -> impl Iterator<Item = WorkloadKind> {
    WorkloadKind::ALL.into_iter().filter(|kind| !matches!(kind, WorkloadKind::Reduce | WorkloadKind::Echo))
}

#[test]
fn swarm_has_every_workload_over_both_functions() {
    let drawn = |kind, function| {
        let is_it = |seed| {
            let workload = configuration(seed).workload;
            workload.kind == kind && workload.function == function
        };
        (1..=500).any(is_it)
    };
    for kind in drawn_kinds() {
        for function in [Function::Cluster, Function::Ethernet] {
            assert!(drawn(kind, function), "{kind:?} over {function:?}");
        }
    }
}

#[test]
fn swarm_has_every_workload_and_way_of_receiving_of_match_cards() {
    for kind in drawn_kinds() {
        for receive in Receive::OF_LISTS {
            let is_it = |seed| {
                let config = configuration(seed);
                let is_match = config.nodes[0].nic.model.name == "match";
                is_match && config.workload.kind == kind && config.workload.receive == receive
            };
            assert!((1..=1_000).any(is_it), "{kind:?} received as {receive:?}");
        }
    }
}

#[test]
fn swarm_of_one_model_has_only_that_model() {
    for model in NicModel::all() {
        let of_it = |seed| configuration_of(seed, Some(model)).nodes[0].nic.model;
        assert!((1..=100).all(|seed| of_it(seed) == model), "{model:?}");
        let swarm = Swarm::of(Some(model), None, 1, 20, 2);
        assert!(swarm.is_sound(), "{swarm}");
    }
}

/// With this seed one card has a slow link, and messages wait 1 us before the first retransmission. The retransmissions
/// must not fill the link for ever.
#[test]
fn retransmissions_leave_room_for_acknowledgements() {
    let run = run_seed_of(Some(model("mailbox")), None, 3_788, &Options::default());
    assert!(run.broken.is_empty() && run.events < 1_000_000, "{run:?}");
}

#[test]
fn swarm_does_not_depend_on_the_number_of_threads() {
    let one = Swarm::new(7, 40, 1).to_string();
    for threads in [2, 5] {
        assert_eq!(Swarm::new(7, 40, threads).to_string(), one);
    }
}

/// Maximum number of runs within which a bug must be found.
const MAX_RUNS: u64 = 1_000;

/// The first seed whose run finds the bug in a card of this model, and the failed checks. With `is_drawn`, only seeds
/// that choose this model at random.
fn found(tamper: Tamper, model: NicModel, is_drawn: bool) -> (u64, Vec<String>) {
    let broken = |seed: u64| {
        if is_drawn && configuration(seed).nodes[0].nic.model != model {
            return None;
        }
        let wrap = |node, nic| Tampered::boxed(tamper, seed, node, nic);
        let only = if is_drawn { None } else { Some(model) };
        let run = run_seed_of(only, None, seed, &Options { wrap: &wrap, ..Options::default() });
        let names: Vec<_> = run.broken.into_iter().map(|checked| checked.name).collect();
        (!names.is_empty()).then_some((seed, names))
    };
    (1..=MAX_RUNS).find_map(broken).unwrap_or_else(|| panic!("{tamper:?} was never found"))
}

fn model(name: &str) -> NicModel {
    NicModel::all().find(|model| model.name == name).unwrap()
}

#[test]
fn each_seeded_bug_of_a_model_is_found() {
    let ultra = Tamper::ALL.map(|tamper| (tamper, "ultra"));
    let matching = Tamper::MATCH.map(|tamper| (tamper, "match"));
    for (tamper, name) in ultra.into_iter().chain(matching) {
        let (seed, names) = found(tamper, model(name), true);
        println!("{tamper:?}: found by seed {seed}: {names:?}");
        assert!(names.iter().any(|name| name == tamper.found_by()), "{tamper:?}: {names:?}");
    }
}

#[test]
fn each_receive_queue_bug_is_found_in_every_card_that_has_one() {
    for model in NicModel::all().filter(|model| model.has(FEATURE_SLICES)) {
        for tamper in Tamper::SLICES {
            let (_, names) = found(tamper, model, false);
            assert!(!names.is_empty(), "{tamper:?} in {}", model.name);
        }
    }
}
