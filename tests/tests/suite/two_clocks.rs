//! The model time of a live run is that of its programs, however wall time mixed their operations: a live shell in this
//! process, whose guests are threads that lose their time at random, against the simulator.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use niclab_device::frontend::{ClusterGuest, GuestPort};
use niclab_device::lab::Lab;
use niclab_device::monitor::answer;
use niclab_model::parts::random::Random;
use niclab_sim::run::{Options, run};
use niclab_spec::monitor::{Answer, DaemonStats, Request};
use niclab_spec::report::{LedgerEntry, NodeFigures};
use niclab_spec::{ClusterFile, NicConfig, Profile, SimConfig, Source, Value, Workload, WorkloadKind};

const PATIENCE: Duration = Duration::from_secs(60);

/// Loses a random while of wall time, now and then a long one.
fn dawdle(random: &mut Random) {
    match random.below(64) {
        0 => thread::sleep(Duration::from_micros(u64::from(random.below(300)))),
        1..16 => thread::yield_now(),
        _ => {}
    }
}

struct Program<'a> {
    port: &'a mut GuestPort,
    random: Random,
    begin: Instant,
}

impl Program<'_> {
    fn pause(&mut self, what: &str) {
        assert!(self.begin.elapsed() < PATIENCE, "{what}: {:?}", self.port.status_line());
        dawdle(&mut self.random);
        thread::yield_now();
    }

    fn send(&mut self, words: usize) {
        while !self.port.try_launch(&[7; 8][..words], [0, 0], 0) {
            self.pause("no slot is free");
        }
        self.port.announce();
        dawdle(&mut self.random);
    }

    fn receive(&mut self) {
        while self.port.try_receive().is_none() {
            self.pause("nothing arrives");
        }
        if self.port.release_lazily() {
            self.port.announce();
        }
        dawdle(&mut self.random);
    }
}

/// Both ends of the workload, as the simulator's scripts have them.
fn perform(workload: &Workload, [first, second]: [&mut Program<'_>; 2], count: u64) {
    let words = workload.message_bytes as usize / 8;
    thread::scope(|scope| {
        let is_stream = workload.kind == WorkloadKind::Stream;
        scope.spawn(move || {
            for _ in 0..count {
                first.send(words);
                if !is_stream {
                    first.receive();
                }
            }
            if is_stream {
                first.receive();
            }
        });
        scope.spawn(move || {
            for _ in 0..count {
                second.receive();
                if !is_stream {
                    second.send(words);
                }
            }
            if is_stream {
                second.send(0);
            }
        });
    });
}

fn ask(lab: &Lab, request: &Request) -> DaemonStats {
    match answer(lab.daemon().shell(), request) {
        Answer::Stats(stats) => stats,
        other => panic!("{other:?}"),
    }
}

/// A port of each, with all slices set aside for the other.
fn connected(guests: &[Arc<ClusterGuest>; 2], slices: u32) -> [GuestPort; 2] {
    let ports = guests.each_ref().map(|guest| GuestPort::open(guest, slices).unwrap());
    let numbers = ports.each_ref().map(GuestPort::number);
    for (node, port) in ports.iter().enumerate() {
        port.promise_lazy_release();
        port.authorize(1 - node as u32, numbers[1 - node], slices).unwrap();
        port.route(1 - node as u32, numbers[1 - node]).unwrap();
    }
    ports
}

/// Prices, and how the FIFO memories of both cards are shared out.
#[derive(Clone)]
struct Platform {
    profile: Profile,
    fifo_words: [u16; 8],
}

fn share_fifo(nic: &mut NicConfig, platform: &Platform) {
    let words = platform.fifo_words.map(u64::from).to_vec();
    nic.set("fifo_words_per_port", Value::Numbers(words)).unwrap();
}

fn live(workload: &Workload, platform: &Platform, seed: u64) -> DaemonStats {
    let lab = Lab::new(2, |config| {
        config.profile = platform.profile.clone();
        config.nodes.iter_mut().for_each(|node| share_fifo(&mut node.nic, platform));
    });
    let lab = lab.unwrap();
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = connected(&guests, workload.slices);
    let begin = Instant::now();
    let mut first = Program { port: &mut a, random: Random::new(seed, 0), begin };
    let mut second = Program { port: &mut b, random: Random::new(seed, 1), begin };
    if workload.warmup > 0 {
        perform(workload, [&mut first, &mut second], workload.warmup);
    }
    let before = ask(&lab, &Request::BeginMeasurement);
    perform(workload, [&mut first, &mut second], workload.count);
    ask(&lab, &Request::Stats).since(&before)
}

/// The default platform, as `change` changes it.
fn platform(change: impl FnOnce(&mut Platform)) -> Platform {
    let mut platform = Platform { profile: Profile::bundled("htx-200mhz").unwrap(), fifo_words: [16; 8] };
    change(&mut platform);
    platform
}

fn simulated(workload: &Workload, platform: &Platform) -> DaemonStats {
    let source = Source::from_text("two", "nodes = 2".to_owned());
    let cluster = source.resolve(&source.parse::<ClusterFile>().unwrap()).unwrap();
    let options = Options { folder: PathBuf::new(), ..Options::default() };
    let mut config =
        SimConfig { profile: platform.profile.clone(), ..SimConfig::new(&cluster, "two", workload) };
    config.nodes.iter_mut().for_each(|node| share_fifo(&mut node.nic, platform));
    let outcome = run(&config, &options).unwrap();
    assert!(outcome.is_sound(), "{:?}", outcome.report.checks);
    let report = outcome.report;
    DaemonStats { model: report.model, nodes: report.nodes, fabric: report.fabric, ..DaemonStats::default() }
}

/// All of a node that both shells must count alike.
fn of_node(node: &NodeFigures) -> impl PartialEq + std::fmt::Debug {
    let sorted = |ledger: &[LedgerEntry]| {
        let mut lines: Vec<_> = ledger
            .iter()
            .map(|line| {
                (line.crossing.clone(), line.count, line.bytes, line.model_price_ps, line.model_waited_ps)
            })
            .collect();
        lines.sort();
        lines
    };
    (
        (node.messages_sent, node.messages_received, node.bytes_sent, node.bytes_received),
        (node.cluster, node.interrupts.clone(), node.unordered, node.model_time_ps),
        sorted(&node.ledger),
        node.model_latency,
    )
}

fn assert_same(workload: &Workload, seeds: Range<u64>) {
    assert_same_on(workload, &platform(|_| ()), seeds);
}

fn assert_same_on(workload: &Workload, platform: &Platform, seeds: Range<u64>) {
    let expected = simulated(workload, platform);
    for seed in seeds {
        let found = live(workload, platform, seed);
        for (expected, found) in expected.nodes.iter().zip(&found.nodes) {
            pretty_eq(&of_node(expected), &of_node(found), seed);
        }
        assert_eq!(found.model.why_estimate, None, "seed {seed}");
        assert_eq!(found.fabric, expected.fabric, "seed {seed}");
        assert_eq!(found.model.time_ps, expected.model.time_ps, "seed {seed}");
        assert_eq!(found.model.latency, expected.model.latency, "seed {seed}");
    }
}

#[track_caller]
fn pretty_eq<T: PartialEq + std::fmt::Debug>(expected: &T, found: &T, seed: u64) {
    assert!(expected == found, "seed {seed}\nsimulated: {expected:#?}\nlive: {found:#?}");
}

fn workload(kind: WorkloadKind, count: u64, message_bytes: u32) -> Workload {
    Workload { count, message_bytes, ..Workload::new(kind) }
}

#[test]
fn a_race_is_called_an_estimate() {
    let lab = Lab::new(2, |_| ()).unwrap();
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = connected(&guests, 64);
    let before = ask(&lab, &Request::BeginMeasurement);
    assert!(a.try_launch(&[1], [0, 0], 0) && b.try_launch(&[2], [0, 0], 0), "both at once");
    let since = ask(&lab, &Request::Stats).since(&before);
    let raced: u64 = since.nodes.iter().map(|node| node.unordered).sum();
    assert_eq!(raced, 1, "one was taken before the other's message was stored");
    let why = since.model.why_estimate.unwrap();
    assert!(!since.model.is_exact && why.contains("order of operations"), "{why}");
}

#[test]
fn a_ping_pong_takes_the_same_model_time_live_as_simulated() {
    assert_same(&workload(WorkloadKind::PingPong, 200, 16), 0..20);
}

#[test]
fn so_it_does_after_a_warm_up_that_ends_between_two_releases() {
    assert_same(&Workload { warmup: 77, ..workload(WorkloadKind::PingPong, 300, 64) }, 20..25);
}

#[test]
fn a_stream_takes_the_same_model_time_live_as_simulated() {
    assert_same(&workload(WorkloadKind::Stream, 2_000, 16), 0..10);
}

#[test]
fn a_stream_to_a_slow_receiver_too_which_waits_for_credit_and_for_slots() {
    let slow = platform(|platform| platform.profile.host.receive_ps.value = 1_500_000);
    for slices in [8, 16, 64] {
        assert_same_on(&Workload { slices, ..workload(WorkloadKind::Stream, 500, 64) }, &slow, 0..10);
    }
    // More packets wait in the card than a page has slots, whose freeing is seen late.
    let mut deep = Platform { fifo_words: [128, 0, 0, 0, 0, 0, 0, 0], ..slow };
    deep.profile.bus.dma_write.latency_ps.value = 20_000_000;
    assert_same_on(&Workload { slices: 8, ..workload(WorkloadKind::Stream, 500, 8) }, &deep, 0..10);
    assert_same_on(&Workload { slices: 64, ..workload(WorkloadKind::Stream, 500, 8) }, &deep, 0..10);
    // So long a wait for credit that the simulated card asks for it. A live one does not know how long it is.
    let raced = live(&workload(WorkloadKind::Stream, 500, 8), &deep, 0);
    assert!(raced.nodes[0].unordered > 0 && !raced.model.is_exact, "{raced:?}");
}

#[test]
fn both_do_on_a_bus_that_goes_one_way_at_a_time() {
    let half = platform(|platform| platform.profile.bus.directions.value = 1);
    assert_same_on(&workload(WorkloadKind::PingPong, 200, 16), &half, 0..5);
    assert_same_on(&workload(WorkloadKind::Stream, 1_000, 64), &half, 0..5);
}
