//! Device faults in simulations. Each fault affects only its own message, the checker excuses it and still finds a
//! broken model, and the same seed gives the same faults.

use crate::tampered::{Tamper, Tampered};
use niclab_sim::run::{Options, run};
use niclab_sim::swarm::{configuration, recording};
use niclab_spec::report::Report;
use niclab_spec::{ClusterFile, DeviceFaults, SimConfig, Source, Workload, WorkloadKind};

/// Two nodes, the second with these faults.
fn config(kind: WorkloadKind, faults: DeviceFaults) -> SimConfig {
    let cluster = Source::default().resolve(&ClusterFile::default()).unwrap();
    let workload = Workload { count: 100, warmup: 0, ..Workload::new(kind) };
    let mut config = SimConfig::new(&cluster, "test", &workload);
    config.nodes[1].device_faults = faults;
    config
}

fn sound(config: &SimConfig) -> Report {
    let report = run(config, &Options::default()).unwrap().report;
    let broken: Vec<_> = report.checks.iter().filter(|checked| !checked.held).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    report
}

#[test]
fn fault_is_applied_to_the_named_message() {
    let stale = DeviceFaults { stale_at: vec![5, 100], ..DeviceFaults::default() };
    let short = DeviceFaults { short_at: vec![7], ..DeviceFaults::default() };
    let bad = DeviceFaults { bad_status_at: vec![1], ..DeviceFaults::default() };
    for (faults, name, hits) in
        [(stale, "stale", vec![5, 100]), (short, "short", vec![7]), (bad, "bad_status", vec![1])]
    {
        let report = sound(&config(WorkloadKind::Stream, faults));
        let node = &report.nodes[1];
        assert_eq!(node.device_faults, [(name.to_owned(), hits.len() as u64)].into());
        let messages: Vec<_> = node
            .device_fault_log
            .iter()
            .map(|fault| (fault.message_from, fault.message_number.unwrap()))
            .collect();
        assert_eq!(messages, hits.into_iter().map(|number| (Some(0), number)).collect::<Vec<_>>());
        assert!(report.nodes[0].device_faults.is_empty());
    }
}

#[test]
fn invalid_value_is_refused_without_a_driver_in_a_guest() {
    let faults = DeviceFaults { invalid_value_at: vec![1], ..DeviceFaults::default() };
    let refused = run(&config(WorkloadKind::Stream, faults), &Options::default()).err().unwrap();
    assert!(refused.to_string().contains("`invalid_value`"), "{refused}");
}

#[test]
fn lost_and_duplicated_interrupts_keep_the_ledger_balanced() {
    let faults = DeviceFaults {
        lost_interrupt_at: vec![1, 2],
        duplicated_interrupt_at: vec![5],
        ..DeviceFaults::default()
    };
    let mut config = config(WorkloadKind::Stream, faults);
    config.workload.interrupt_every = 10;
    assert_eq!(sound(&config).nodes[1].interrupts["message"], 10 - 2 + 1);
}

#[test]
fn late_completion_delays_a_ping_pong_by_the_same_time() {
    let of = |delay_at: Vec<u64>| {
        let faults = DeviceFaults { delay_at, delay_ns: 3_000, ..DeviceFaults::default() };
        config(WorkloadKind::PingPong, faults)
    };
    let late_ps = sound(&of(vec![50])).model.time_ps - sound(&of(Vec::new())).model.time_ps;
    // The card has already charged the host for receiving the message during the delay.
    assert_eq!(late_ps, 3_000_000 - of(Vec::new()).profile.host.receive_ps.value);
}

#[test]
fn same_seed_gives_the_same_faults_and_another_seed_others() {
    let faults = DeviceFaults { stale: 0.05, delay: 0.05, short: 0.05, ..DeviceFaults::default() };
    let config = config(WorkloadKind::Stream, faults);
    let first = sound(&config);
    assert!(!first.nodes[1].device_fault_log.is_empty());
    assert_eq!(sound(&config).to_json(), first.to_json());
    let other = sound(&SimConfig { seed: 2, ..config });
    assert_ne!(other.nodes[1].device_fault_log, first.nodes[1].device_fault_log);
}

/// A lossless workload with faults of every kind on every node; none if the seed gives cards of another model.
fn amid_faults(seed: u64, model: &str) -> Option<SimConfig> {
    let faults = DeviceFaults {
        stale: 0.01,
        short: 0.01,
        bad_status: 0.01,
        delay: 0.01,
        lost_interrupt: 0.01,
        duplicated_interrupt: 0.01,
        ..DeviceFaults::default()
    };
    let mut config = configuration(seed);
    config.nodes.iter_mut().for_each(|node| node.device_faults = faults.clone());
    config.nodes.iter().all(|node| node.nic.model.name == model).then_some(config)
}

#[test]
fn checker_excuses_device_faults() {
    let drawn = |model| (1..=140).filter_map(move |seed| Some((seed, amid_faults(seed, model)?)));
    for (seed, config) in drawn("ultra").chain(drawn("match")) {
        let recording = recording(&config);
        let options = Options { heals: true, recording: recording.as_deref(), ..Options::default() };
        let outcome = run(&config, &options).unwrap();
        let broken: Vec<_> = outcome.report.checks.iter().filter(|checked| !checked.held).collect();
        assert!(broken.is_empty(), "seed {seed}: {broken:#?}");
    }
}

#[test]
fn broken_model_is_found_despite_device_faults() {
    let all = Tamper::ALL.map(|tamper| (tamper, "ultra")).into_iter();
    for (tamper, model) in all.chain(Tamper::AMID_FAULTS.map(|tamper| (tamper, "match"))) {
        let is_found = |seed: u64| {
            let wrap = |node, nic| Tampered::boxed(tamper, seed, node, nic);
            let Some(config) = amid_faults(seed, model) else { return false };
            let recording = recording(&config);
            let recording = recording.as_deref();
            let options = Options { wrap: &wrap, heals: true, recording, ..Options::default() };
            let checks = run(&config, &options).unwrap().report.checks;
            checks.iter().any(|checked| !checked.held && checked.name == tamper.found_by())
        };
        assert!((1..=200).any(is_found), "{tamper:?} was never found");
    }
}
