//! Adversarial cards live: programs on niclab's half of a port work with all behaviour that the manual allows.

use std::collections::BTreeSet;

use niclab_abi::config::{FEATURE_LISTS, FEATURE_RINGS};
use niclab_spec::{NicModel, Receive, SimConfig, Workload, WorkloadKind};

use crate::stage::{Pace, config, live, simulated};

/// The number of seeds with which programs run freely.
const SEEDS: u64 = 75;

/// The models whose ports are the card's. Tests in guests cover the other models' drivers.
fn models() -> Vec<NicModel> {
    NicModel::all().filter(|model| !model.has(FEATURE_RINGS)).collect()
}

/// A different run for each seed: model, kind of workload, lengths and interrupts.
fn sampled(seed: u64) -> SimConfig {
    const KINDS: [WorkloadKind; 5] = [
        WorkloadKind::PingPong,
        WorkloadKind::Stream,
        WorkloadKind::AllToAll,
        WorkloadKind::Incast,
        WorkloadKind::NeighbourExchange,
    ];
    let models = models();
    let model = models[seed as usize % models.len()];
    let kind = KINDS[seed as usize / models.len() % KINDS.len()];
    let receive = if model.has(FEATURE_LISTS) && seed.is_multiple_of(3) {
        Receive::Unexpected
    } else {
        Workload::new(kind).receive
    };
    let workload = Workload {
        count: 20 + seed % 30,
        warmup: 5,
        interrupt_every: seed % 5,
        slices: 64,
        message_bytes: 8 * (seed % 9) as u32,
        receive,
        ..Workload::new(kind)
    };
    adversarial(config(model, 2 + (seed % 2) as u32 * 2, &workload), seed)
}

fn adversarial(mut config: SimConfig, seed: u64) -> SimConfig {
    config.nodes.iter_mut().for_each(|node| node.adversarial = Some(seed));
    config
}

/// Counts of the run's messages, which no allowed behaviour changes.
#[test]
fn every_message_arrives_from_adversarial_cards() {
    let mut kinds = BTreeSet::new();
    for seed in 0..SEEDS {
        let config = sampled(seed);
        let (expected, found) = (simulated(&config, None), live(&config, None, seed, Pace::Free));
        for (expected, found) in expected.nodes.iter().zip(found.nodes) {
            let what = format!("seed {seed}, {}, {}", config.nodes[0].nic.model.name, expected.name);
            let bytes = (found.bytes_sent, found.bytes_received);
            assert_eq!(bytes, (expected.bytes_sent, expected.bytes_received), "{what}");
            assert!(found.violations.is_empty(), "{what}: {:?}", found.violations);
            kinds.extend(found.adversarial.into_keys());
        }
    }
    // All kinds that a program without a driver can meet. Requests come one at a time here, and before the measured
    // part.
    for kind in
        ["completion_late", "status_late", "interrupt_late", "event_late", "doorbell_changed", "slots_left"]
    {
        assert!(kinds.contains(kind), "{kind} never happened: {kinds:?}");
    }
}
