//! Adversarial cards in the simulator break no promise, and behave the same with the same seed.

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
fn swarm_of_adversarial_cards_of_each_model_holds_all_checks() {
    for model in NicModel::all() {
        let swarm = Swarm::of(Some(model), Some(7), 1, 30, 2);
        assert!(swarm.is_sound(), "{swarm}");
    }
}

#[test]
fn failed_adversarial_swarm_prints_the_command_to_reproduce_it() {
    let mut swarm = Swarm::of(Some(NicModel::default()), Some(9), 4, 1, 1);
    swarm.runs[0].broken.push(niclab_spec::report::Checked {
        name: "drained".into(),
        held: false,
        detail: "x".into(),
    });
    assert!(swarm.to_string().contains("--seed 4 --nic ultra --adversarial 9"), "{swarm}");
}

/// Each kind of behaviour occurs on some node. With the same seed, it occurs equally often.
#[test]
fn same_seed_gives_the_same_adversarial_behaviour() {
    // A lossless run with many messages, each with an interrupt.
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
