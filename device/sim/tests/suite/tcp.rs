//! Streams over TCP: their model time on the platform of the GAMMA paper's figure 1, and their delivery on any network.

use niclab_sim::run::{Options, RunError, run};
use niclab_spec::report::Report;
use niclab_spec::{
    ClusterFile, Faults, Forwarding, Function, SimConfig, Source, TcpTerms, Workload, WorkloadKind,
};

const PROFILE: &str = "fast-ethernet-3c905-pii300";
/// Bytes of a message's tag, which is not payload.
const TAG_BYTES: u32 = 16;

fn config(nodes: u32, kind: WorkloadKind, bytes: u32) -> SimConfig {
    let file =
        ClusterFile { nodes: Some(nodes), profile: Some(PROFILE.to_owned()), ..ClusterFile::default() };
    let message_bytes = bytes - TAG_BYTES;
    let workload =
        Workload { function: Function::Tcp, message_bytes, count: 20, warmup: 4, ..Workload::new(kind) };
    SimConfig::new(&Source::default().resolve(&file).unwrap(), "tcp", &workload)
}

fn ping_pong(bytes: u32) -> SimConfig {
    config(2, WorkloadKind::PingPong, bytes)
}

fn sound(config: &SimConfig) -> Report {
    let outcome = run(config, &Options::default()).unwrap();
    let failed: Vec<_> = outcome.report.checks.iter().filter(|check| !check.held).collect();
    assert!(failed.is_empty(), "{failed:?}");
    outcome.report
}

/// Half of a round trip, in microseconds, on average.
fn one_way_us(config: &SimConfig) -> f64 {
    let latencies = sound(config).nodes.into_iter().map(|node| node.ethernet_model_latency);
    let (sum, count) = latencies.fold((0, 0), |(sum, count), of| (sum + of.sum_ps, count + of.count));
    assert_eq!(count, 2 * config.workload.count, "each message's time is known");
    sum as f64 / count as f64 / 1e6
}

fn megabytes_per_s(config: &SimConfig) -> f64 {
    f64::from(config.workload.message_bytes + TAG_BYTES) / one_way_us(config)
}

/// The same configuration with other TCP terms.
fn with(config: &SimConfig, tcp: TcpTerms) -> SimConfig {
    SimConfig { workload: Workload { tcp, ..config.workload.clone() }, ..config.clone() }
}

fn on(config: &SimConfig, forwarding: Forwarding) -> SimConfig {
    SimConfig { forwarding, ..config.clone() }
}

#[test]
fn shortest_message_takes_the_time_that_the_stack_was_fitted_to() {
    let us = one_way_us(&ping_pong(TAG_BYTES));
    assert!((us - 77.4).abs() < 0.1, "{us}");
}

#[test]
fn long_messages_reach_the_half_duplex_rate() {
    let long = ping_pong(1 << 20);
    let full = megabytes_per_s(&on(&long, Forwarding::CutThrough));
    let half = megabytes_per_s(&long);
    let captured = megabytes_per_s(&on(&long, Forwarding::Repeater));
    // 1,460 of 1,538 bytes on the wire are data.
    assert!((11.8..11.87).contains(&full), "{full}");
    assert!((half / 10.8 - 1.0).abs() < 0.02, "{half}");
    assert!(captured < 0.8 * half, "{captured}");
}

/// Sizes at which throughput is half of that of long messages, each within one step of sizes.
#[test]
fn second_segment_reduces_throughput_below_half() {
    let rate = |bytes| megabytes_per_s(&ping_pong(bytes));
    let half = rate(1 << 20) / 2.0;
    assert!(rate(1_000) < half && rate(1_460) > half, "one segment reaches half");
    assert!(rate(1_500) < half && rate(1_750) > half, "two segments reach it again");
}

#[test]
fn nagle_and_delayed_acks_hold_the_last_segment_for_200_ms() {
    // Of 5,000 bytes the fourth segment is not full. It leaves when the three before it are read and acknowledged.
    let plain = one_way_us(&ping_pong(5_000));
    let nagle = TcpTerms { nagle: true, ..TcpTerms::default() };
    let held = one_way_us(&with(&ping_pong(5_000), nagle));
    assert!(held > plain + 50.0 && held < 2_000.0, "{plain} {held}");
    // Two messages in a row without an answer. The second one leaves only after the timeout of the acknowledgement.
    let mut stream = config(2, WorkloadKind::Stream, 100);
    stream.workload.tcp = nagle;
    let both = sound(&stream).model.time_ps;
    stream.workload.tcp.delayed_acks = false;
    assert!(both > 200_000_000_000 && sound(&stream).model.time_ps < 10_000_000_000);
}

#[test]
fn cpu_driven_transfers_reduce_throughput() {
    let driven = TcpTerms { cpu_driven: true, ..TcpTerms::default() };
    // On a processor that is slow enough to be the bottleneck.
    let file = ClusterFile {
        nodes: Some(2),
        profile: Some("fast-ethernet-3c595-p133".to_owned()),
        ..ClusterFile::default()
    };
    let cluster = Source::default().resolve(&file).unwrap();
    let by_descriptors = SimConfig::new(&cluster, "tcp", &ping_pong(65_536).workload);
    let by_processor = megabytes_per_s(&with(&by_descriptors, driven));
    let by_descriptors = megabytes_per_s(&by_descriptors);
    assert!(by_processor < 0.95 * by_descriptors, "{by_processor} {by_descriptors}");
    let quick = megabytes_per_s(&on(&ping_pong(65_536), Forwarding::CutThrough));
    assert!(by_descriptors < quick, "{by_descriptors} {quick}");
}

#[test]
fn windows_of_two_segments_reduce_throughput() {
    let narrow = TcpTerms { window_bytes: 4_096, ..TcpTerms::default() };
    let wide = megabytes_per_s(&ping_pong(65_536));
    let narrow = megabytes_per_s(&with(&ping_pong(65_536), narrow));
    assert!(narrow < 0.9 * wide, "{narrow} {wide}");
}

#[test]
fn tcp_data_arrives_once_and_in_order_on_any_network() {
    let kinds = [WorkloadKind::AllToAll, WorkloadKind::Incast, WorkloadKind::Random, WorkloadKind::Stream];
    for (seed, kind) in (1..).zip(kinds) {
        for forwarding in [Forwarding::CutThrough, Forwarding::RepeaterWithoutCapture] {
            for faults in [0.0, 0.05] {
                let mut config = on(&config(4, kind, 3_000), forwarding);
                config.seed = seed;
                for node in &mut config.nodes {
                    let faults =
                        Faults { loss: faults, corrupt: faults, duplicate: faults, ..node.link.faults };
                    node.link.faults = Faults { reorder: faults.loss, ..faults };
                }
                let outcome = run(&config, &Options::default()).unwrap();
                let failed: Vec<_> = outcome.report.checks.iter().filter(|check| !check.held).collect();
                assert!(failed.is_empty(), "{kind:?} {forwarding:?} {faults}: {failed:?}");
                assert!(outcome.received >= 40, "{kind:?} {forwarding:?} {faults}");
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let config = config(3, WorkloadKind::AllToAll, 5_000);
    assert_eq!(sound(&config).to_json(), sound(&config).to_json());
    let other = SimConfig { seed: config.seed + 1, ..config.clone() };
    assert_ne!(sound(&config).model.time_ps, sound(&other).model.time_ps, "collisions are random");
}

#[test]
fn invalid_tcp_configurations_are_refused() {
    let mut file = ClusterFile { nodes: Some(2), ..ClusterFile::default() };
    let workload = Workload { function: Function::Tcp, ..Workload::new(WorkloadKind::PingPong) };
    let cluster = Source::default().resolve(&file).unwrap();
    let without = SimConfig::new(&cluster, "tcp", &workload);
    let error = run(&without, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("[host.stack]"), "{error}");
    file.profile = Some(PROFILE.to_owned());
    let cluster = Source::default().resolve(&file).unwrap();
    let wrong = |change: &dyn Fn(&mut Workload)| {
        let mut workload = workload.clone();
        change(&mut workload);
        let refused = run(&SimConfig::new(&cluster, "tcp", &workload), &Options::default());
        matches!(refused, Err(RunError::Workload(_)))
    };
    assert!(wrong(&|workload| workload.kind = WorkloadKind::Reduce));
    assert!(wrong(&|workload| workload.interrupt_every = 1));
    assert!(wrong(&|workload| workload.tcp.window_bytes = 65_536));
    assert!(wrong(&|workload| workload.message_bytes = 1 << 30));
    assert!(wrong(&|workload| (workload.function, workload.tcp.nagle) = (Function::Ethernet, true)));
}
