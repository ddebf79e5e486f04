//! Firmware reloads of cards under load.

use niclab_model::models::MODELS;
use niclab_model::random::Random;
use niclab_sim::run::{Options, Outcome, run};
use niclab_spec::sim::SimFirmwareReload;
use niclab_spec::{ClusterFile, Faults, NicModel, SimConfig, Source, Workload, WorkloadKind};

/// A cluster of this model on its paper's platform, with `count` reloads of random programs.
fn config(model: &'static niclab_model::nic::registry::Model, count: usize, faults: Faults) -> SimConfig {
    let source = Source::from_text("handed over", format!("nodes = 4\n[nic]\nmodel = \"{}\"\n", model.name));
    let cluster = source.resolve(&source.parse::<ClusterFile>().unwrap()).unwrap();
    let workload = Workload { count: 300, message_bytes: 2_000, ..Workload::new(WorkloadKind::AllToAll) };
    let mut config = SimConfig::new(&cluster, "handed over", &workload);
    for node in &mut config.nodes {
        node.link.faults = faults;
    }
    let mut random = Random::new(7, 0);
    let programs = model.programs.as_ref().unwrap();
    config.firmware_reloads = (0..count as u64)
        .map(|number| SimFirmwareReload {
            model_time_ps: number * 200_000_000,
            image: (programs.draw)(&mut |below| random.below(below), 4),
        })
        .collect();
    config
}

fn sound(config: &SimConfig) -> Outcome {
    let outcome = run(config, &Options { heals: true, ..Options::default() }).unwrap();
    let broken: Vec<_> = outcome.report.checks.iter().filter(|checked| !checked.held).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    outcome
}

fn firmware_reloads(outcome: &Outcome) -> Vec<u64> {
    let count =
        |counts: &std::collections::BTreeMap<String, u64>| counts.get("hand_overs").copied().unwrap_or(0);
    outcome.report.nodes.iter().map(|node| count(&node.nic_counts)).collect()
}

#[test]
fn consecutive_firmware_reloads_complete_under_load() {
    let models: Vec<_> = MODELS.iter().filter(|model| model.programs.is_some()).collect();
    assert!(!models.is_empty());
    let lossy = Faults { loss: 0.02, duplicate: 0.02, ..Faults::default() };
    for (model, faults) in models.iter().flat_map(|model| [(model, Faults::default()), (model, lossy)]) {
        let outcome = sound(&config(model, 6, faults));
        // All reloads take place in the measured part, which takes milliseconds of model time.
        assert_eq!(firmware_reloads(&outcome), [6; 4], "{}", model.name);
        let again = sound(&config(model, 6, faults));
        assert_eq!(
            (outcome.events, outcome.report.model),
            (again.events, again.report.model),
            "the same again"
        );
    }
}

#[test]
fn reload_of_a_card_without_firmware_fails_with_the_reason() {
    let mut refused =
        config(MODELS.iter().find(|model| model.programs.is_some()).unwrap(), 1, Faults::default());
    let fixed = NicModel::default();
    for node in &mut refused.nodes {
        node.nic = niclab_spec::NicConfig::of(fixed);
    }
    refused.workload.message_bytes = 16;
    let outcome = run(&refused, &Options::default()).unwrap();
    let broken: Vec<&str> =
        outcome.report.checks.iter().filter(|it| !it.held).map(|checked| checked.detail.as_str()).collect();
    assert!(broken.iter().any(|detail| detail.contains("cannot load firmware")), "{broken:?}");
}
