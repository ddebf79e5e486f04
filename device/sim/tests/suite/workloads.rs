//! Every kind of workload completes, holds every check, and gives the same bytes each time.

use niclab_sim::run::{Options, RunError, run};
use niclab_spec::report::Report;
use niclab_spec::{
    ClusterFile, Function, NicConfig, NicModel, SimConfig, Source, Value, Workload, WorkloadKind,
};

fn config(nodes: u32, workload: &Workload) -> SimConfig {
    let file = ClusterFile { nodes: Some(nodes), ..ClusterFile::default() };
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
    let latency = report.model.latency;
    assert_eq!(latency.count, 400);
    // No two messages contend, so all have the same latency, and the run takes at least the sum of all latencies.
    assert_eq!((latency.min_ps, latency.sum_ps), (latency.max_ps, 400 * latency.max_ps));
    assert!(report.model.is_exact && report.model.time_ps >= latency.sum_ps);
}

/// Neither frame numbers nor the positions in the card's ring buffers matter.
#[test]
fn measured_time_does_not_depend_on_the_warmup() {
    let nic = NicConfig::of(NicModel::named("grim").unwrap());
    for (nodes, kind) in [(2, WorkloadKind::PingPong), (2, WorkloadKind::Stream), (4, WorkloadKind::Incast)] {
        let file = ClusterFile { nodes: Some(nodes), nic: nic.clone(), ..ClusterFile::default() };
        let cluster = Source::default().resolve(&file).unwrap();
        // After multiples of the number of messages that a receiver releases at a time.
        let parts = [16, 32, 48, 80].map(|warmup| {
            let workload = Workload { count: 24, warmup, message_bytes: 10_000, ..Workload::new(kind) };
            let report = sound(&SimConfig::new(&cluster, "test", &workload));
            let ledgers: Vec<_> = report.nodes.into_iter().map(|node| node.ledger).collect();
            (report.model.time_ps, report.model.latency, ledgers)
        });
        assert!(parts.iter().all(|part| *part == parts[0]), "{kind:?}: {parts:?}");
    }
}

/// Only the wire spaces the frames, and both cards send as fast as they receive.
#[test]
fn fifo_of_a_few_frames_never_overflows_at_wire_speed() {
    for (profile, fifo_bytes) in
        [("fast-ethernet-p133", 2_048), ("fast-ethernet-p133", 4_096), ("fast-ethernet-pii350", 4_096)]
    {
        for message_bytes in [4, 1_464, 20_000] {
            let mut nic = NicConfig::of(NicModel::named("gamma").unwrap());
            nic.set("window_frames", Value::Number(0)).unwrap();
            nic.set("receive_fifo_bytes", Value::Number(fifo_bytes)).unwrap();
            let profile = Some(profile.to_owned());
            let file = ClusterFile { nodes: Some(2), profile, nic, ..ClusterFile::default() };
            let cluster = Source::default().resolve(&file).unwrap();
            let workload = Workload { message_bytes, count: 100, ..Workload::new(WorkloadKind::AllToAll) };
            let report = sound(&SimConfig::new(&cluster, "test", &workload));
            for node in &report.nodes {
                assert!(node.messages_received > 0);
                assert_eq!(node.nic_counts.get("fifo_overflows"), None, "{fifo_bytes} {message_bytes}");
            }
        }
    }
}

#[test]
fn every_workload_ends_with_all_messages_received() {
    let random = Workload { neighbours: Some(3), message_bytes: 64, ..Workload::new(WorkloadKind::Random) };
    let ring = Workload { neighbours: Some(4), ..Workload::new(WorkloadKind::NeighbourExchange) };
    for (nodes, workload, expected) in [
        (2, Workload::new(WorkloadKind::PingPong), 2 * 300),
        (5, Workload::new(WorkloadKind::Stream), 2 * 301),
        (9, Workload::new(WorkloadKind::AllToAll), 9 * 8 * 300),
        (12, ring, 12 * 4 * 300),
        (20, Workload::new(WorkloadKind::Incast), 19 * 300),
        (10, random, 10 * 300),
    ] {
        let report = sound(&config(nodes, &Workload { count: 300, ..workload }));
        let received: u64 = report.nodes.iter().map(|node| node.messages_received).sum();
        assert_eq!(received, expected, "{:?}", report.workload);
    }
}

#[test]
fn same_seed_gives_the_same_bytes_and_another_seed_others() {
    let workload = Workload { count: 100, neighbours: Some(4), ..Workload::new(WorkloadKind::Random) };
    let mut config = config(12, &workload);
    let first = sound(&config).to_json();
    assert_eq!(first, sound(&config).to_json());
    config.seed += 1;
    assert_ne!(first, sound(&config).to_json());
}

#[test]
fn ethernet_function_is_priced_like_the_models() {
    let workload =
        Workload { function: Function::Ethernet, count: 100, ..Workload::new(WorkloadKind::PingPong) };
    let ethernet = sound(&config(2, &workload));
    let ultra = sound(&config(2, &Workload { function: Function::Cluster, ..workload.clone() }));
    for node in &ethernet.nodes {
        assert_eq!((node.ethernet.sent_frames, node.ethernet.received_frames), (100, 100));
        assert_eq!((node.doorbells, node.interrupts["ethernet_receive"]), (100, 100));
        assert_eq!(node.ethernet_model_latency.count, 100);
    }
    assert!(ethernet.model.latency.p50_ps > ultra.model.latency.p50_ps);
    let exchange = Workload { kind: WorkloadKind::AllToAll, message_bytes: 1_000, ..workload };
    let report = sound(&config(12, &exchange));
    let received: u64 = report.nodes.iter().map(|node| node.ethernet.received_frames).sum();
    assert_eq!(received, 12 * 11 * 100);
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
fn impossible_workloads_are_refused_before_the_run() {
    let error = run(&config(10, &Workload::new(WorkloadKind::AllToAll)), &Options::default()).unwrap_err();
    assert!(matches!(error, RunError::Workload(_)), "{error}");
    assert!(error.to_string().contains("at most 9 nodes"), "{error}");
}

#[test]
fn run_past_the_end_of_model_time_is_an_error() {
    let days = |count: u64, threads: usize| {
        let mut config = config(2, &Workload { count, warmup: 0, ..Workload::new(WorkloadKind::PingPong) });
        // Each message takes two days.
        config.nodes.iter_mut().for_each(|node| node.link.latency_ns = 86_400 * 1_000_000_000);
        run(&config, &Options { threads, ..Options::default() })
    };
    for threads in 0..3 {
        let report = days(20, threads).unwrap().report;
        assert!(report.model.is_exact && report.model.time_ps > 20 * 4 * 86_400 * 1_000_000_000_000);
        let error = days(200, threads).unwrap_err();
        assert!(matches!(error, RunError::EndOfTime(_)), "{error}");
    }
}
