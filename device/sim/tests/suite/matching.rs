//! Match cards: every kind of workload, with every way of receiving, holds every check on any link.

use niclab_sim::run::{Options, run};
use niclab_spec::report::Report;
use niclab_spec::{
    ClusterFile, Faults, NicConfig, NicModel, Receive, SimConfig, Source, Workload, WorkloadKind,
};

fn config(nodes: u32, workload: &Workload) -> SimConfig {
    let nic = NicConfig::of(NicModel::named("match").unwrap());
    let file = ClusterFile { nodes: Some(nodes), nic, ..ClusterFile::default() };
    SimConfig::new(&Source::default().resolve(&file).unwrap(), "test", workload)
}

fn sound(config: &SimConfig) -> Report {
    let outcome = run(config, &Options::default()).unwrap();
    let broken: Vec<_> = outcome.report.checks.iter().filter(|checked| !checked.held).collect();
    assert!(broken.is_empty(), "{:?}: {broken:#?}", config.workload);
    outcome.report
}

#[test]
fn a_ping_pong_is_counted_exactly() {
    let workload = Workload { count: 200, warmup: 20, ..Workload::new(WorkloadKind::PingPong) };
    let report = sound(&config(2, &workload));
    for node in &report.nodes {
        assert_eq!((node.messages_sent, node.messages_received), (200, 200), "{}", node.name);
    }
    assert_eq!(report.model.latency.count, 400);
    assert!(report.model.is_exact);
}

#[test]
fn every_workload_completes_with_every_way_of_receiving() {
    let random =
        Workload { neighbours: Some(3), message_bytes: 6_000, ..Workload::new(WorkloadKind::Random) };
    let ring = Workload { neighbours: Some(4), ..Workload::new(WorkloadKind::NeighbourExchange) };
    for receive in Receive::OF_LISTS {
        for (nodes, workload, expected) in [
            (2, Workload::new(WorkloadKind::PingPong), 2 * 60),
            (5, Workload { message_bytes: 3_001, ..Workload::new(WorkloadKind::Stream) }, 2 * 61),
            (9, Workload::new(WorkloadKind::AllToAll), 9 * 8 * 60),
            (12, ring.clone(), 12 * 4 * 60),
            (20, Workload { message_bytes: 1, ..Workload::new(WorkloadKind::Incast) }, 19 * 60),
            (10, random.clone(), 10 * 60),
        ] {
            let config = config(nodes, &Workload { count: 60, receive, ..workload });
            let outcome = run(&config, &Options::default()).unwrap();
            let broken: Vec<_> = outcome.report.checks.iter().filter(|checked| !checked.held).collect();
            assert!(broken.is_empty(), "{:?}: {broken:#?}", config.workload);
            assert_eq!(outcome.received, expected, "{:?}", config.workload);
        }
    }
}

#[test]
fn messages_survive_loss_duplication_corruption_and_reordering() {
    let faults = Faults { loss: 0.05, duplicate: 0.05, corrupt: 0.05, reorder: 0.05, ..Faults::default() };
    for receive in Receive::OF_LISTS {
        let workload =
            Workload { count: 100, message_bytes: 5_000, receive, ..Workload::new(WorkloadKind::AllToAll) };
        let mut config = config(4, &workload);
        config.nodes.iter_mut().for_each(|node| node.link.faults = faults);
        let outcome = run(&config, &Options::default()).unwrap();
        assert!(outcome.is_sound(), "{:#?}", outcome.report.checks);
        assert_eq!(outcome.received, 4 * 3 * 100);
    }
}

#[test]
fn switch_queue_of_three_frames_loses_no_message() {
    let kind = WorkloadKind::NeighbourExchange;
    let workload = Workload {
        count: 60,
        message_bytes: 5_000,
        receive: Receive::Get,
        neighbours: Some(7),
        ..Workload::new(kind)
    };
    let mut config = config(16, &workload);
    config.nodes.iter_mut().for_each(|node| node.link.queue_frames = 3);
    config.nodes[1].link.bandwidth_bits_per_s = 1_000_000_000;
    sound(&config);
}

#[test]
fn messages_of_a_megabyte_arrive_intact() {
    let workload = Workload { count: 5, message_bytes: 1 << 20, ..Workload::new(WorkloadKind::Stream) };
    for receive in Receive::OF_LISTS {
        let report = sound(&config(2, &Workload { receive, ..workload.clone() }));
        assert!(report.nodes[1].bytes_received >= 5 << 20, "{receive:?}");
    }
}

#[test]
fn every_tenth_message_raises_an_interrupt() {
    let workload = Workload { count: 100, interrupt_every: 10, ..Workload::new(WorkloadKind::PingPong) };
    let report = sound(&config(2, &workload));
    for node in &report.nodes {
        assert_eq!(node.interrupts["message"], 10, "{}", node.name);
    }
}

#[test]
fn port_that_exceeds_the_card_memory_is_refused() {
    let mut config = config(2, &Workload::new(WorkloadKind::PingPong));
    config.workload.slices = 8;
    config.workload.receive = Receive::Get;
    let error = run(&config, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("refuses operation"), "{error}");
}
