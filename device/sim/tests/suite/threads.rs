//! One simulation by phases, on any number of threads, is the one that is carried out event by event, byte for byte.

use niclab_sim::run::{Options, Outcome, run};
use niclab_sim::swarm::{configuration_of, recording};
use niclab_sim::world::MAX_NODES;
use niclab_spec::{ClusterFile, Function, NicModel, SimConfig, Source, Workload, WorkloadKind};

fn on_threads(config: &SimConfig, threads: usize) -> Option<Outcome> {
    let recording = recording(config);
    let options = Options { heals: true, recording: recording.as_deref(), threads, ..Options::default() };
    run(config, &options).ok()
}

/// Whether it was carried out by phases on so many threads. They must have seen what is seen event by event: every
/// count, time and verdict.
fn is_divided(config: &SimConfig, threads: usize, one: &Outcome, what: &str) -> bool {
    let several = on_threads(config, threads).unwrap();
    assert_eq!(several.report.to_json(), one.report.to_json(), "{what} on {threads} threads");
    assert_eq!((several.events, several.received), (one.events, one.received), "{what} on {threads} threads");
    several.threads == threads.min(config.nodes.len())
}

/// Compares seeds of a swarm event by event and on 1, 2 and 5 threads; how many runs were by phases, of how many.
fn compared(seeds: std::ops::RangeInclusive<u64>, model: Option<NicModel>) -> (u32, u32) {
    let (mut divided, mut runs) = (0, 0);
    for seed in seeds {
        let config = configuration_of(seed, model);
        let Some(one) = on_threads(&config, 0) else { continue };
        for threads in [1, 2, 5] {
            let name = config.nodes[0].nic.model.name;
            divided += u32::from(is_divided(&config, threads, &one, &format!("seed {seed}, {name}")));
            runs += 1;
        }
    }
    (divided, runs)
}

#[test]
fn any_number_of_threads_sees_the_same_of_every_seed() {
    let (divided, runs) = compared(1..=60, None);
    assert!(3 * divided > runs, "{divided} of {runs} runs were carried out by phases");
}

#[test]
fn any_number_of_threads_sees_the_same_of_every_model() {
    for model in NicModel::all() {
        let (divided, runs) = compared(1..=6, Some(model));
        println!("{}: {divided} of {runs}", model.name);
    }
}

#[test]
fn any_number_of_threads_sees_the_same_of_more_nodes_than_share_a_link() {
    for kind in [WorkloadKind::NeighbourExchange, WorkloadKind::Incast, WorkloadKind::Random] {
        let neighbours = (kind != WorkloadKind::Incast).then_some(6);
        let workload = Workload { count: 20, neighbours, ..Workload::new(kind) };
        let file = ClusterFile { nodes: Some(41), ..ClusterFile::default() };
        let config = SimConfig::new(&Source::default().resolve(&file).unwrap(), "test", &workload);
        let one = on_threads(&config, 0).unwrap();
        assert!(one.is_sound(), "{:?}", one.report.checks);
        for threads in [1, 2, 3, 40, 100] {
            assert!(is_divided(&config, threads, &one, &format!("{kind:?}")), "{kind:?}");
        }
    }
}

/// Over the Ethernet function, whose nodes take little memory: the last node's number is the largest that 16 bits hold.
#[test]
fn there_can_be_as_many_nodes_as_numbers() {
    let workload = Workload {
        function: Function::Ethernet,
        count: 1,
        warmup: 0,
        neighbours: Some(2),
        ..Workload::new(WorkloadKind::NeighbourExchange)
    };
    let file = ClusterFile { nodes: Some(2), ..ClusterFile::default() };
    let mut config = SimConfig::new(&Source::default().resolve(&file).unwrap(), "test", &workload);
    let node = config.nodes[0].clone();
    config.nodes = vec![node; MAX_NODES];
    let one = on_threads(&SimConfig { workload: workload.clone(), ..config.clone() }, 1).unwrap();
    assert!(one.is_sound(), "{:?}", one.report.checks);
    assert_eq!(
        one.received,
        2 * 2 * MAX_NODES as u64,
        "each node sends to two, and again when all is healed"
    );
    assert_eq!((one.report.nodes.len(), one.report.fabric.frames_out), (65_536, 2 * 65_536));
    config.nodes.push(config.nodes[0].clone());
    assert!(on_threads(&config, 1).is_none(), "one more has no number");
}
