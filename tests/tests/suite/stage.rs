//! Runs workloads in this process: in a live cluster whose nodes are threads that pause at random, and in the
//! simulator, which runs the same code.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use niclab_abi::config::{FEATURE_CHANNELS, FEATURE_LISTS, FEATURE_POSTS, FEATURE_SLICES};
use niclab_abi::control::OP_PING;
use niclab_device::frontend::matching::{ChannelPort, ListPort, PostPort};
use niclab_device::frontend::{ClusterGuest, GuestPort};
use niclab_device::lab::Lab;
use niclab_device::monitor::answer;
use niclab_model::random::Random;
use niclab_sim::run::{Options, run};
use niclab_spec::monitor::{Answer, DaemonStats, Request};
use niclab_spec::report::{LedgerEntry, NodeFigures};
use niclab_spec::{ClusterFile, NicConfig, NicModel, SimConfig, Source, Workload};
use niclab_workloads::grim::ChannelTransport;
use niclab_workloads::inic::PostTransport;
use niclab_workloads::matching::ListTransport;
use niclab_workloads::slices::SliceTransport;
use niclab_workloads::{
    AtomicMemory, InTurn, Plan, PortPlan, Ports, Program, Script, Transport, Verifier, Workload as Programs,
};

const TIMEOUT: Duration = Duration::from_secs(120);
/// The number of event buffers for interrupts.
const EVENTS: u16 = 64;

/// A cluster of `nodes` cards of this model, with the workload.
pub fn config(model: NicModel, nodes: u32, workload: &Workload) -> SimConfig {
    let file = ClusterFile { nodes: Some(nodes), nic: NicConfig::of(model), ..ClusterFile::default() };
    SimConfig::new(&Source::default().resolve(&file).unwrap(), "stage", workload)
}

pub fn ask(lab: &Lab, request: &Request) -> DaemonStats {
    match answer(lab.daemon().shell(), request) {
        Answer::Stats(stats) => stats,
        other => panic!("{other:?}"),
    }
}

/// The simulator's counts of the measured part; it replays `recording`.
pub fn simulated(config: &SimConfig, recording: Option<&str>) -> DaemonStats {
    let outcome = run(config, &Options { recording, ..Options::default() }).unwrap();
    assert!(outcome.is_sound(), "{:?}", outcome.report.checks);
    let report = outcome.report;
    DaemonStats { model: report.model, nodes: report.nodes, fabric: report.fabric, ..DaemonStats::default() }
}

/// How programs proceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as they can.
    Free,
    /// In lockstep: one operation at a time, in the order of model time.
    Turns,
}

/// A live cluster's counts of the measured part, in which every message was verified.
pub fn live(config: &SimConfig, recording: Option<&str>, seed: u64, pace: Pace) -> DaemonStats {
    let recorded = recording.map(|text| config.recorded_in(Path::new("recording"), text).unwrap());
    let programs = config.programs(recorded.unwrap_or_default());
    let plan = Plan::new(&programs);
    let has = |feature| config.nodes.iter().all(|node| node.nic.model.has(feature));
    if has(FEATURE_LISTS) {
        let terms = programs.terms(plan.max_partners());
        return perform_live(config, &programs, &plan, seed, pace, |node, port| {
            ListTransport::new(node, port, terms)
        });
    }
    if has(FEATURE_POSTS) {
        let terms = programs.post_terms();
        return perform_live(config, &programs, &plan, seed, pace, |node, port| {
            PostTransport::new(node, port, terms)
        });
    }
    if has(FEATURE_CHANNELS) {
        let terms = programs.channel_terms();
        return perform_live(config, &programs, &plan, seed, pace, |node, port| {
            ChannelTransport::new(node, port, terms)
        });
    }
    assert!(has(FEATURE_SLICES), "a card with another interface needs a transport here");
    perform_live(config, &programs, &plan, seed, pace, SliceTransport::new)
}

/// Opens ports of a kind of card in process.
trait Card: Transport<Records: Send> + Send {
    type Port: Send;
    fn open(guest: &Arc<ClusterGuest>, slices: u32) -> Self::Port;
    fn port(port: &Self::Port) -> &GuestPort<Self::Records>;
    /// Registers memory, if `region` has any. Returns the region's name.
    fn register(port: &Self::Port, region: (u64, u64)) -> u32;
}

impl Card for SliceTransport {
    type Port = GuestPort;

    fn open(guest: &Arc<ClusterGuest>, slices: u32) -> GuestPort {
        GuestPort::open(guest, slices).unwrap()
    }

    fn port(port: &GuestPort) -> &GuestPort {
        port
    }

    fn register(_: &GuestPort, _: (u64, u64)) -> u32 {
        0
    }
}

impl Card for ListTransport {
    type Port = ListPort;

    fn open(guest: &Arc<ClusterGuest>, slices: u32) -> ListPort {
        ListPort::open_unreleased(guest, slices).unwrap()
    }

    fn port(port: &ListPort) -> &GuestPort<Self::Records> {
        port.port()
    }

    fn register(port: &ListPort, (address, bytes): (u64, u64)) -> u32 {
        port.register(address, bytes).unwrap()
    }
}

impl Card for PostTransport {
    type Port = PostPort;

    fn open(guest: &Arc<ClusterGuest>, slices: u32) -> PostPort {
        PostPort::open_unreleased(guest, slices).unwrap()
    }

    fn port(port: &PostPort) -> &GuestPort<Self::Records> {
        port.port()
    }

    fn register(port: &PostPort, (address, bytes): (u64, u64)) -> u32 {
        port.register(address, bytes).unwrap()
    }
}

impl Card for ChannelTransport {
    type Port = ChannelPort;

    fn open(guest: &Arc<ClusterGuest>, slices: u32) -> ChannelPort {
        ChannelPort::open_unreleased(guest, slices).unwrap()
    }

    fn port(port: &ChannelPort) -> &GuestPort<Self::Records> {
        port.port()
    }

    /// A port that receives no payload has no region.
    fn register(port: &ChannelPort, (address, bytes): (u64, u64)) -> u32 {
        if bytes == 0 { 0 } else { port.register(address, bytes).unwrap() }
    }
}

/// A guest and its open ports, each with its region.
struct Guest<T: Card> {
    guest: Arc<ClusterGuest>,
    ports: Vec<(T::Port, (u64, u64))>,
}

impl<T: Card> Ports for Guest<T> {
    type Memory<'a>
        = AtomicMemory<'a>
    where
        Self: 'a;

    fn memory(&mut self, place: usize) -> AtomicMemory<'_> {
        let (port, region) = &self.ports[place];
        T::port(port).memory(*region)
    }

    fn announce(&mut self) {
        self.guest.announce();
    }

    fn completer(&self) -> &[AtomicU64] {
        let (port, region) = &self.ports[0];
        T::port(port).memory(*region).records.completer
    }
}

/// A node: its guest and its program.
struct Node<T: Card> {
    guest: Guest<T>,
    program: Program<T>,
    verifier: Verifier,
}

impl<T: Card> Node<T> {
    fn open(&mut self, plan: &PortPlan, slices: u32, transport: T) {
        let Self { guest, program, .. } = self;
        let place = guest.ports.len();
        let bytes = transport.region_bytes().next_multiple_of(4096);
        let region = (guest.guest.memory().allocate(bytes.max(8), 4096).unwrap(), bytes);
        guest.ports.push((T::open(&guest.guest, slices), region));
        let credits = transport.credits(slices);
        program.open(plan, transport, slices, guest);
        let (opened, region) = &guest.ports[place];
        let port = T::port(opened);
        assert_eq!(port.number(), plan.number);
        if let Some(credits) = credits {
            for (_, end) in &plan.partners {
                port.authorize(end.node.into(), end.port.into(), credits).unwrap();
            }
            for (_, end) in &plan.sends {
                port.route(end.node.into(), end.port.into()).unwrap();
            }
        }
        let name = T::register(opened, *region);
        for (operation, body) in program.begin(place, name) {
            guest.guest.request(operation, &body).unwrap();
        }
    }

    /// Runs a script until all messages to this node have arrived.
    fn perform(&mut self, script: Script, expected: u64, random: &mut Random, pace: Pace) {
        let Self { guest, program, verifier } = self;
        let (begin, due) = (Instant::now(), program.received() + expected);
        match pace {
            Pace::Free => program.perform(script),
            Pace::Turns => program.perform_in_turns(script, guest),
        }
        loop {
            let is_over = match pace {
                Pace::Free if program.is_done() && program.received() >= due => true,
                Pace::Free => {
                    if !program.step(guest, verifier).unwrap() {
                        thread::yield_now();
                    }
                    false
                }
                Pace::Turns => match program.take_turn(guest, verifier).unwrap() {
                    InTurn::Over => true,
                    InTurn::Taken => false,
                    InTurn::Waits => {
                        thread::yield_now();
                        false
                    }
                },
            };
            assert_eq!(verifier.take_wrong(), None);
            if is_over {
                break;
            }
            assert!(begin.elapsed() < TIMEOUT, "{} of {due} received", program.received());
            pause(random);
        }
        assert!(program.is_done());
        assert_eq!(program.received(), due);
    }
}

/// Pauses for a random wall time, sometimes a long one.
fn pause(random: &mut Random) {
    match random.below(64) {
        0 => thread::sleep(Duration::from_micros(u64::from(random.below(300)))),
        1..16 => thread::yield_now(),
        _ => {}
    }
}

fn perform_live<T: Card>(
    config: &SimConfig,
    programs: &Programs,
    plan: &Plan,
    seed: u64,
    pace: Pace,
    transport: impl Fn(u16, &PortPlan) -> T,
) -> DaemonStats {
    let lab = Lab::new(config.nodes.len() as u16, |daemon| {
        daemon.profile = config.profile.clone();
        daemon.framing = config.framing;
        daemon.lockstep = pace == Pace::Turns;
        for (node, simulated) in daemon.nodes.iter_mut().zip(&config.nodes) {
            (node.nic, node.link) = (simulated.nic.clone(), simulated.link);
            node.adversarial = simulated.adversarial;
        }
    });
    let lab = lab.unwrap();
    let new = |rank: u16| {
        let guest = lab.guest(rank.into()).unwrap();
        // Buffers for all interrupts of the run, because no program takes them.
        guest.offer_event_buffers(EVENTS).unwrap();
        let guest = Guest { guest, ports: Vec::new() };
        Node {
            guest,
            program: Program::default(),
            verifier: Verifier::new(plan.flows.clone(), programs.promise),
        }
    };
    let mut nodes: Vec<Node<T>> = (0..config.nodes.len() as u16).map(new).collect();
    for (rank, node) in (0..).zip(&mut nodes) {
        let mut ports = plan.ports_of(programs, rank, pace == Pace::Turns);
        // The card assigns the first free port.
        ports.sort_by_key(|port| port.number);
        for port in ports {
            node.open(&port, config.workload.slices, transport(rank, &port));
        }
        if pace == Pace::Free {
            node.perform(Script::idle(), 0, &mut Random::new(seed, 0), pace);
            // A card handles earlier posts before it answers a request. So no node sends to entries that are not yet
            // posted.
            node.guest.guest.request(OP_PING, &[]).unwrap();
        }
    }
    let mut all = |scripts: &[Script], seed: u64| {
        thread::scope(|scope| {
            for (rank, (node, script)) in (0..).zip(nodes.iter_mut().zip(scripts)) {
                let (expected, mut random) = (plan.expected(scripts, rank), Random::new(seed, rank.into()));
                scope.spawn(move || node.perform(script.clone(), expected, &mut random, pace));
            }
        });
    };
    if pace == Pace::Turns {
        all(&vec![Script::idle(); plan.ports.len()], seed);
    }
    all(&plan.warmup, seed);
    let before = ask(&lab, &Request::BeginMeasurement);
    all(&plan.measured, seed + 1);
    ask(&lab, &Request::Stats).since(&before)
}

/// The figures of a node that must be equal live and simulated. `unordered` is one of them, except for overcautious
/// cards.
fn of_node(node: &NodeFigures, is_overcautious: bool) -> impl PartialEq + std::fmt::Debug {
    let sorted = |ledger: &[LedgerEntry]| {
        let line = |line: &LedgerEntry| {
            (line.transaction.clone(), line.count, line.bytes, line.model_price_ps, line.model_waited_ps)
        };
        let mut lines: Vec<_> = ledger.iter().map(line).collect();
        lines.sort();
        lines
    };
    let unordered = if is_overcautious { 0 } else { node.unordered };
    (
        (node.messages_sent, node.messages_received, node.bytes_sent, node.bytes_received),
        (node.cluster, node.interrupts.clone(), unordered, node.model_time_ps),
        sorted(&node.ledger),
        node.peripheral_ledgers().map(|(name, ledger)| (name, sorted(ledger))).collect::<Vec<_>>(),
        node.model_latency,
    )
}

/// Checks that live runs of these seeds take the simulation's model time and have all its counts.
#[track_caller]
pub fn assert_same(config: &SimConfig, recording: Option<&str>, seeds: std::ops::Range<u64>, pace: Pace) {
    let expected = simulated(config, recording);
    // A card with channels reports each sent message with payload to its program. It cannot know whether a program's
    // access crosses the bus before or after the report, so it counts each report as race-decided, although most
    // workloads fix the order.
    let is_overcautious = config.nodes.iter().all(|node| node.nic.model.has(FEATURE_CHANNELS));
    for seed in seeds {
        let found = live(config, recording, seed, pace);
        for (expected, found) in expected.nodes.iter().zip(&found.nodes) {
            let (expected, found) = (of_node(expected, is_overcautious), of_node(found, is_overcautious));
            assert!(expected == found, "seed {seed}\nsimulated: {expected:#?}\nlive: {found:#?}");
        }
        let is_exact = found.model.why_estimate.is_none() || is_overcautious;
        assert!(is_exact, "seed {seed}: {:?}", found.model.why_estimate);
        assert_eq!(found.fabric, expected.fabric, "seed {seed}");
        assert_eq!(found.model.time_ps, expected.model.time_ps, "seed {seed}");
        assert_eq!(found.model.latency, expected.model.latency, "seed {seed}");
    }
}
