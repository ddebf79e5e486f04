//! The programs of workloads, live: a shell in this process whose guests are threads that lose their time at random, against
//! the simulator, which runs the same code.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use niclab_abi::control::OP_PING;
use niclab_device::frontend::lists::ListPort;
use niclab_device::frontend::{ClusterGuest, GuestPort};
use niclab_device::lab::Lab;
use niclab_device::monitor::answer;
use niclab_model::parts::random::Random;
use niclab_port::Kind;
use niclab_sim::run::{Options, run};
use niclab_spec::monitor::{Answer, DaemonStats, Request};
use niclab_spec::report::{LedgerEntry, NodeFigures};
use niclab_spec::{ClusterFile, SimConfig, Source, Workload, WorkloadKind};
use niclab_workloads::lists::{Limits, ListTransport, Receive, Terms};
use niclab_workloads::slices::SliceTransport;
use niclab_workloads::{
    AtomicMemory, End, InTurn, Listener, Mark, PortPlan, Ports, Program, Script, Sizes, Transport, Wrong,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Loses a random while of wall time, now and then a long one.
fn dawdle(random: &mut Random) {
    match random.below(64) {
        0 => thread::sleep(Duration::from_micros(u64::from(random.below(300)))),
        1..16 => thread::yield_now(),
        _ => {}
    }
}

/// What a program of a kind of card needs besides its code.
trait Card: Transport {
    type Port: Send;
    fn model() -> &'static str;
    fn new(node: u16, plan: &PortPlan, workload: &Workload) -> Self;
    fn open(guest: &Arc<ClusterGuest>, slices: u32) -> Self::Port;
    fn port(port: &Self::Port) -> &GuestPort<Self::Records>;
    /// Lets the peer send, or registers memory; the region's name.
    fn connect(&self, port: &Self::Port, peer: u32, region: (u64, u64)) -> u32;
}

impl Card for SliceTransport {
    type Port = GuestPort;
    fn model() -> &'static str {
        "ultra"
    }
    fn new(node: u16, plan: &PortPlan, _: &Workload) -> Self {
        Self::new(node, plan)
    }
    fn open(guest: &Arc<ClusterGuest>, slices: u32) -> GuestPort {
        GuestPort::open(guest, slices).unwrap()
    }
    fn port(port: &GuestPort) -> &GuestPort {
        port
    }
    fn connect(&self, port: &GuestPort, peer: u32, _: (u64, u64)) -> u32 {
        let credits = self.credits(256).unwrap();
        port.authorize(peer, 0, credits).unwrap();
        port.route(peer, 0).unwrap();
        0
    }
}

impl Card for ListTransport {
    type Port = ListPort;
    fn model() -> &'static str {
        "match"
    }
    fn new(node: u16, plan: &PortPlan, workload: &Workload) -> Self {
        let limits =
            Limits { events: workload.slices, entries: 1024 / 8, unexpected_messages: 1024, partners: 2 };
        Self::new(node, plan, Terms::new(Receive::Posted, workload.message_bytes.into(), &limits))
    }
    fn open(guest: &Arc<ClusterGuest>, slices: u32) -> ListPort {
        ListPort::open_unreleased(guest, slices).unwrap()
    }
    fn port(port: &ListPort) -> &GuestPort<Self::Records> {
        port.port()
    }
    fn connect(&self, port: &ListPort, _: u32, (address, bytes): (u64, u64)) -> u32 {
        port.register(address, bytes).unwrap()
    }
}

/// A guest and its port.
struct Side<T: Card> {
    guest: Arc<ClusterGuest>,
    port: T::Port,
    region: (u64, u64),
}

impl<T: Card> Ports for Side<T> {
    type Memory<'a>
        = AtomicMemory<'a>
    where
        Self: 'a;

    fn memory(&mut self, _: usize) -> AtomicMemory<'_> {
        T::port(&self.port).memory(self.region)
    }

    fn announce(&mut self) {
        self.guest.announce();
    }

    fn completer(&self) -> &[AtomicU64] {
        T::port(&self.port).memory(self.region).records.completer
    }
}

/// Looks at every message, and panics where it is not the one that was sent.
struct Strict;

impl Listener for Strict {
    fn on_message(&mut self, at: End, from: End, mark: &Mark, payload: impl Iterator<Item = u64>) {
        assert_eq!((at.port, from), (0, End { node: 1 - at.node, port: 0 }));
        assert!(payload.eq(mark.payload()), "{mark:?} at {at:?}");
    }

    fn on_wrong(&mut self, wrong: Wrong, what: impl FnOnce() -> String) {
        panic!("{wrong:?}: {}", what());
    }
}

/// Lets a program perform its script, until it has received what is sent to it.
fn perform<T: Card>(
    program: &mut Program<T>,
    side: &mut Side<T>,
    script: Script,
    expected: u64,
    random: &mut Random,
    pace: Pace,
) {
    if pace == Pace::Turns {
        return perform_in_turns(program, side, script, expected, random);
    }
    let (begin, due) = (Instant::now(), program.received() + expected);
    program.perform(script);
    while !program.is_done() || program.received() < due {
        assert!(begin.elapsed() < PATIENCE, "{} of {due} received", program.received());
        if !program.step(side, &mut Strict).unwrap() {
            thread::yield_now();
        }
        dawdle(random);
    }
}

/// The same in turns, until all programs are done.
fn perform_in_turns<T: Card>(
    program: &mut Program<T>,
    side: &mut Side<T>,
    script: Script,
    expected: u64,
    random: &mut Random,
) {
    let (begin, due) = (Instant::now(), program.received() + expected);
    program.perform_in_turns(script, side);
    loop {
        match program.take_turn(side, &mut Strict).unwrap() {
            InTurn::Over => break,
            InTurn::Taken => {}
            InTurn::Waits => thread::yield_now(),
        }
        assert!(begin.elapsed() < PATIENCE, "{} of {due} received", program.received());
        dawdle(random);
    }
    assert!(program.is_done());
    assert_eq!(program.received(), due);
}

/// How programs go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// As fast as they can.
    Free,
    /// One operation at a time, in the order of model time.
    Turns,
}

fn ask(lab: &Lab, request: &Request) -> DaemonStats {
    match answer(lab.daemon().shell(), request) {
        Answer::Stats(stats) => stats,
        other => panic!("{other:?}"),
    }
}

/// Both nodes' scripts, and how many messages each receives.
fn scripts(workload: &Workload, count: u64) -> [(Script, u64); 2] {
    let sizes = Sizes { bytes: workload.message_bytes, interrupt_every: workload.interrupt_every };
    match workload.kind {
        WorkloadKind::PingPong => {
            [(Script::ping(sizes, 0, count), count), (Script::pong(sizes, 1, count), count)]
        }
        _ => [(Script::burst(sizes, vec![0], count), 1), (Script::confirm(sizes, 1, count), count)],
    }
}

fn live<T: Card + Send>(workload: &Workload, seed: u64, pace: Pace) -> DaemonStats
where
    T::Records: Kind + Send,
{
    let lab = Lab::new(2, |config| {
        let model = niclab_spec::NicModel::named(T::model()).unwrap();
        let simulation = simulation::<T>(workload);
        config.profile = simulation.profile;
        config.lockstep = pace == Pace::Turns;
        for (node, simulated) in config.nodes.iter_mut().zip(simulation.nodes) {
            node.link = simulated.link;
        }
        config.nodes.iter_mut().for_each(|node| node.nic = niclab_spec::NicConfig::of(model));
    });
    let lab = lab.unwrap();
    let mut nodes: Vec<(Program<T>, Side<T>)> = (0..2_u16)
        .map(|node| {
            let guest = lab.guest(node.into()).unwrap();
            let peer = End { node: 1 - node, port: 0 };
            let plan = PortPlan {
                number: 0,
                sends: Some((node.into(), peer)),
                partners: vec![(1 - u32::from(node), peer)],
            };
            let transport = T::new(node, &plan, workload);
            let bytes = transport.region_bytes().next_multiple_of(4096);
            let region = (guest.memory().allocate(bytes.max(8), 4096).unwrap(), bytes);
            let port = T::open(&guest, workload.slices);
            let mut side = Side::<T> { guest, port, region };
            let mut program = Program::default();
            program.open(transport, workload.slices, &mut side);
            (program, side)
        })
        .collect();
    for (node, (program, side)) in nodes.iter_mut().enumerate() {
        let peer = End { node: 1 - node as u16, port: 0 };
        let plan = PortPlan { number: 0, sends: Some((node as u32, peer)), partners: vec![] };
        let region = T::new(node as u16, &plan, workload).connect(&side.port, 1 - node as u32, side.region);
        program.begin(0, region);
        if pace == Pace::Turns {
            continue;
        }
        while !program.is_done() {
            program.step(side, &mut Strict).unwrap();
        }
        // A card takes what was launched before a request, before it answers: nobody sends to entries that are not posted.
        side.guest.request(OP_PING, &[]).unwrap();
    }
    let mut both = |scripts: [(Script, u64); 2], seed: u64| {
        thread::scope(|scope| {
            for ((node, (program, side)), (script, expected)) in (0..).zip(&mut nodes).zip(scripts) {
                let mut random = Random::new(seed, node);
                scope.spawn(move || perform(program, side, script, expected, &mut random, pace));
            }
        });
    };
    if pace == Pace::Turns {
        both([(Script::idle(), 0), (Script::idle(), 0)], seed);
    }
    if workload.warmup > 0 {
        both(scripts(workload, workload.warmup), seed);
    }
    let before = ask(&lab, &Request::BeginMeasurement);
    both(scripts(workload, workload.count), seed + 1);
    ask(&lab, &Request::Stats).since(&before)
}

fn simulation<T: Card>(workload: &Workload) -> SimConfig {
    let source = Source::from_text("two", format!("nodes = 2\n[nic]\nmodel = \"{}\"\n", T::model()));
    let cluster = source.resolve(&source.parse::<ClusterFile>().unwrap()).unwrap();
    SimConfig::new(&cluster, "two", workload)
}

fn simulated<T: Card>(workload: &Workload) -> DaemonStats {
    let outcome = run(&simulation::<T>(workload), &Options::default()).unwrap();
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

fn assert_same<T: Card + Send>(workload: &Workload, seeds: std::ops::Range<u64>, pace: Pace)
where
    T::Records: Kind + Send,
{
    let expected = simulated::<T>(workload);
    for seed in seeds {
        let found = live::<T>(workload, seed, pace);
        for (expected, found) in expected.nodes.iter().zip(&found.nodes) {
            let (expected, found) = (of_node(expected), of_node(found));
            assert!(expected == found, "seed {seed}\nsimulated: {expected:#?}\nlive: {found:#?}");
        }
        assert_eq!(found.model.why_estimate, None, "seed {seed}");
        assert_eq!(found.fabric, expected.fabric, "seed {seed}");
        assert_eq!(found.model.time_ps, expected.model.time_ps, "seed {seed}");
        assert_eq!(found.model.latency, expected.model.latency, "seed {seed}");
    }
}

fn workload(kind: WorkloadKind, count: u64) -> Workload {
    Workload { count, warmup: 30, ..Workload::new(kind) }
}

#[test]
fn ultra_programs_take_the_same_model_time_live_as_simulated() {
    assert_same::<SliceTransport>(&workload(WorkloadKind::PingPong, 200), 0..5, Pace::Free);
    assert_same::<SliceTransport>(&workload(WorkloadKind::Stream, 1_000), 5..10, Pace::Free);
}

#[test]
fn a_ping_pong_of_match_cards_takes_the_same_model_time_live_as_simulated() {
    assert_same::<ListTransport>(&workload(WorkloadKind::PingPong, 200), 0..20, Pace::Free);
}

/// In turns everything takes the same model time: entries that are posted anew between messages, and counters that a sender
/// waits for, too.
#[test]
fn programs_in_turns_take_the_same_model_time_live_as_simulated() {
    for kind in [WorkloadKind::PingPong, WorkloadKind::Stream] {
        assert_same::<SliceTransport>(&workload(kind, 200), 0..3, Pace::Turns);
        assert_same::<ListTransport>(&workload(kind, 200), 0..20, Pace::Turns);
    }
}

/// The receiver of a stream posts each entry anew between messages, and its sender waits for a counter: wall time decides
/// between which messages, and the device is not told when a counter was seen. So only counts are the same.
#[test]
fn a_stream_of_match_cards_counts_what_the_simulator_counts() {
    let workload = workload(WorkloadKind::Stream, 500);
    let expected = simulated::<ListTransport>(&workload);
    for seed in 0..5 {
        let found = live::<ListTransport>(&workload, seed, Pace::Free);
        let sum = |of: fn(&NodeFigures) -> u64, stats: &DaemonStats| stats.nodes.iter().map(of).sum::<u64>();
        assert!(
            found.model.why_estimate.is_some(),
            "seed {seed}: nobody told the card when a counter was seen"
        );
        for of in [|node: &NodeFigures| node.messages_received, |node: &NodeFigures| node.bytes_received] {
            assert_eq!(sum(of, &found), sum(of, &expected), "seed {seed}");
        }
    }
}
