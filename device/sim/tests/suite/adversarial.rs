//! Adversarial cards in the simulator: whatever they do breaks no promise, and is the same again.

use std::collections::BTreeMap;

use niclab_sim::run::{Options, run};
use niclab_sim::swarm::{Swarm, configuration_of};
use niclab_spec::report::NodeFigures;
use niclab_spec::{NicModel, SimConfig};

fn config(model: NicModel, seed: u64, adversarial: Option<u64>) -> SimConfig {
    let mut config = configuration_of(seed, Some(model));
    config.nodes.iter_mut().for_each(|node| node.adversarial = adversarial);
    config
}

#[test]
fn a_swarm_of_adversarial_cards_of_each_model_is_sound() {
    for model in NicModel::all() {
        let swarm = Swarm::of(Some(model), Some(7), 1, 30, 2);
        assert!(swarm.is_sound(), "{swarm}");
    }
}

#[test]
fn a_failure_of_an_adversarial_swarm_says_how_to_see_it_again() {
    let mut swarm = Swarm::of(Some(NicModel::default()), Some(9), 4, 1, 1);
    swarm.runs[0].broken.push(niclab_spec::report::Checked {
        name: "drained".into(),
        held: false,
        detail: "x".into(),
    });
    assert!(swarm.to_string().contains("--seed 4 --nic ultra --adversarial 9"), "{swarm}");
}

/// Each kind happened on some node, as often as before where the seed is the same.
#[test]
fn the_same_seed_is_adversarial_in_the_same_way() {
    // A lossless run whose every message has company.
    let seed = (1..).find(|&seed| {
        let config = config(NicModel::default(), seed, None);
        config.nodes.len() > 3 && config.workload.count > 50 && config.workload.interrupt_every == 1
    });
    let figures = |adversarial| -> (Vec<NodeFigures>, BTreeMap<String, u64>) {
        let config = config(NicModel::default(), seed.unwrap(), adversarial);
        let outcome = run(&config, &Options::default()).unwrap();
        assert!(outcome.is_sound(), "{:?}", outcome.report.checks);
        let mut counts = BTreeMap::new();
        for (kind, count) in outcome.report.nodes.iter().flat_map(|node| node.adversarial.clone()) {
            *counts.entry(kind).or_insert(0) += count;
        }
        (outcome.report.nodes, counts)
    };
    let (kind, adversarial, again, other) =
        (figures(None), figures(Some(1)), figures(Some(1)), figures(Some(2)));
    assert!(kind.1.is_empty());
    assert_eq!(
        adversarial.1.keys().collect::<Vec<_>>(),
        ["completion_late", "interrupt_late", "status_late"]
    );
    assert_eq!(adversarial, again);
    assert!(adversarial.1 != other.1);
}
