//! A simulation that several threads process by phases equals the one that one thread processes event by event, byte
//! for byte.

use niclab_sim::run::{Options, Outcome, run};
use niclab_sim::simulation::MAX_NODES;
use niclab_sim::swarm::{configuration_of, recording};
use niclab_spec::{ClusterFile, Function, NicModel, SimConfig, Source, Workload, WorkloadKind};

fn on_threads(config: &SimConfig, threads: usize) -> Option<Outcome> {
    let recording = recording(config);
    let options = Options { heals: true, recording: recording.as_deref(), threads, ..Options::default() };
    run(config, &options).ok()
}

/// Whether `threads` threads processed it by phases. Asserts that every count, time and check equals that of one
/// thread.
fn is_divided(config: &SimConfig, threads: usize, one: &Outcome, what: &str) -> bool {
    let several = on_threads(config, threads).unwrap();
    assert_eq!(several.report.to_json(), one.report.to_json(), "{what} on {threads} threads");
    assert_eq!((several.events, several.received), (one.events, one.received), "{what} on {threads} threads");
    several.threads == threads.min(config.nodes.len())
}

/// Compares seeds of a swarm event by event and on 1, 2 and 5 threads. Returns the number of runs by phases, and of all
/// runs.
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
fn every_seed_gives_the_same_on_any_number_of_threads() {
    let (divided, runs) = compared(1..=60, None);
    assert!(3 * divided > runs, "{divided} of {runs} runs were processed by phases");
}

#[test]
fn every_model_gives_the_same_on_any_number_of_threads() {
    for model in NicModel::all() {
        let (divided, runs) = compared(1..=6, Some(model));
        println!("{}: {divided} of {runs}", model.name);
    }
}

#[test]
fn clusters_of_41_nodes_give_the_same_on_any_number_of_threads() {
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

/// The Ethernet function is used because its nodes take little memory. The last node has the largest number of 16 bits.
#[test]
fn cluster_of_65536_nodes_runs_and_one_more_is_refused() {
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
    assert!(on_threads(&config, 1).is_none(), "one more node has no number");
}
