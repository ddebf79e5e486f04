//! The programs of guests, with the same code, on every kind of card and with rule checking. No rule is reported, in
//! any order of operations and with faulty cards.

use niclab_device::shell::idle::deadlines;
use niclab_device::shell::settings;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use niclab_abi::config::{FEATURE_CHANNELS, FEATURE_LISTS, FEATURE_POSTS, FEATURE_RINGS};
use niclab_abi::event::Event;
use niclab_device::frontend::ClusterGuest;
use niclab_device::frontend::matching::RegionPort;
use niclab_device::lab::Lab;
use niclab_spec::{DeviceFaults, RuleChecking, SimConfig, Source, WaitPolicy};
use niclab_workloads::grim::ChannelTransport;
use niclab_workloads::inic::PostTransport;
use niclab_workloads::matching::ListTransport;
use niclab_workloads::slices::SliceTransport;
use niclab_workloads::{
    AtomicMemory, InTurn, Plan, PortPlan, Ports, Program, Script, Transport, Verifier, Workload,
};
use proptest::prelude::*;

use crate::common::{Stop, lab_with, stats, until};

/// Time limit of a program with faulty cards, which may leave it waiting for ever.
const FAULTY_TIMEOUT: Duration = Duration::from_millis(300);
/// Time limit of a program with fault-free cards.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An open port, with address and length of its region.
type TestPort<T> = (RegionPort<<T as Transport>::Records>, (u64, u64));

/// Ports of a guest, each with its region, and the event buffers that its driver returns.
struct TestPorts<T: Transport> {
    guest: Arc<ClusterGuest>,
    open: Vec<TestPort<T>>,
}

impl<T: Transport> Ports for TestPorts<T> {
    type Memory<'a>
        = AtomicMemory<'a>
    where
        Self: 'a;

    fn memory(&mut self, place: usize) -> AtomicMemory<'_> {
        let (port, region) = &self.open[place];
        port.port().memory(*region)
    }

    fn announce(&mut self) {
        self.guest.announce();
    }

    fn completer(&self) -> &[AtomicU64] {
        self.open.first().map_or(&[], |(port, region)| port.port().memory(*region).records.completer)
    }
}

/// A node's program and its ports.
struct Player<T: Transport> {
    ports: TestPorts<T>,
    program: Program<T>,
    verifier: Verifier,
    expected: u64,
    script: Script,
}

impl<T: Transport> Player<T> {
    fn new(
        lab: &Lab,
        workload: &Workload,
        plan: &Plan,
        rank: u16,
        transport: impl Fn(&PortPlan) -> T,
    ) -> Self {
        let guest = lab.guest(rank.into()).unwrap();
        guest.offer_event_buffers(64).unwrap();
        let ports = TestPorts { guest, open: Vec::new() };
        let verifier = Verifier::new(plan.flows.clone(), workload.promise);
        let script = plan.measured.get(usize::from(rank)).cloned().unwrap_or_else(Script::idle);
        let expected = plan.expected(&plan.measured, rank);
        let mut this = Self { ports, program: Program::default(), verifier, expected, script };
        for port in plan.ports_of(workload, rank, false) {
            this.open(workload, &port, transport(&port));
        }
        this
    }

    fn open(&mut self, workload: &Workload, plan: &PortPlan, transport: T) {
        let Self { ports, program, .. } = self;
        let place = ports.open.len();
        let port = RegionPort::<T::Records>::open_unreleased(&ports.guest, workload.slices).unwrap();
        assert_eq!(port.port().number(), plan.number, "ports are opened in their order");
        let bytes = transport.region_bytes().next_multiple_of(4096);
        let (mut region, mut name) = ((0, 0), 0);
        if bytes > 0 {
            region = (ports.guest.memory().allocate(bytes, 4096).unwrap(), bytes);
            name = port.register(region.0, bytes).unwrap();
        }
        ports.open.push((port, region));
        let credits = transport.credits(workload.slices);
        program.open(plan, transport, workload.slices, ports);
        if let Some(credits) = credits {
            let port = ports.open[place].0.port();
            for (_, partner) in &plan.partners {
                port.authorize(partner.node.into(), partner.port.into(), credits).unwrap();
            }
            for (_, target) in &plan.sends {
                port.route(target.node.into(), target.port.into()).unwrap();
            }
        }
        for (operation, mut body) in program.begin(place, name) {
            // The driver sets the port of a request.
            body[..4].copy_from_slice(&plan.number.to_le_bytes());
            ports.guest.request(operation, &body).unwrap();
        }
    }

    fn is_done(&self) -> bool {
        self.program.is_done() && self.program.received() >= self.expected
    }

    /// Executes the transport's own operations, such as posting receives, until the card has taken all of them.
    fn settle(&mut self) {
        while self.program.step(&mut self.ports, &mut self.verifier).unwrap() {}
        self.ports.guest.statistics().unwrap();
    }

    /// Runs until all programs are done, or the time is over.
    fn perform(&mut self, is_over: &AtomicBool, all_done: impl Fn(bool) -> bool) {
        self.program.perform(std::mem::replace(&mut self.script, Script::idle()));
        let mut has_reported = false;
        while !is_over.load(Ordering::Relaxed) {
            let Self { ports, program, verifier, .. } = self;
            // A faulty card may have lost the next event.
            if program.step(ports, verifier).unwrap_or(false) {
                continue;
            }
            // A driver's interrupt handler does the same.
            let events: Vec<Event> = ports.guest.take_events().unwrap();
            if !events.is_empty() {
                ports.guest.offer_event_buffers(events.len() as u16).unwrap();
            }
            let is_done = self.is_done();
            if all_done(is_done && !has_reported) {
                return;
            }
            has_reported |= is_done;
            std::thread::yield_now();
        }
    }
}

/// A cluster, and what its programs do.
#[derive(Clone, Debug)]
struct Case {
    model: &'static str,
    kind: &'static str,
    nodes: u16,
    count: u64,
    bytes: u32,
    interrupt_every: u64,
    wait: WaitPolicy,
    is_faulty: bool,
    /// Whether machines stop and continue all the time.
    is_stopping: bool,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let models = prop::sample::select(vec!["ultra", "mailbox", "match", "inic", "grim"]);
    let kinds = prop::sample::select(vec!["ping-pong", "stream", "all-to-all", "random"]);
    let waits = prop::sample::select(vec![WaitPolicy::Block, WaitPolicy::Poll, WaitPolicy::Adaptive]);
    (models, kinds, 1..120_u64, 1..8_u32, 0..4_u64, waits, prop::bool::weighted(0.3), any::<u32>()).prop_map(
        |(model, kind, count, words, interrupt_every, wait, is_faulty, seed)| Case {
            model,
            kind,
            nodes: if kind == "ping-pong" || kind == "stream" { 2 } else { 3 },
            count,
            bytes: 8 * words,
            interrupt_every,
            wait,
            is_faulty,
            is_stopping: false,
            seed: seed.into(),
        },
    )
}

fn workload(case: &Case) -> (SimConfig, Workload) {
    let Case { model, kind, nodes, count, bytes, interrupt_every, seed, .. } = case;
    let text = format!(
        "mode = \"live\"\ncluster = {{ nodes = {nodes}, seed = {seed}, nic = {{ model = \"{model}\" }} }}\n\
         [workload]\nkind = \"{kind}\"\ncount = {count}\nmessage_bytes = {bytes}\n\
         interrupt_every = {interrupt_every}\nslices = 64\n"
    );
    let scenario = Source::from_text("case", text).scenario().unwrap();
    let config = SimConfig::new(&scenario.cluster, "", &scenario.workload);
    let programs = config.programs(Vec::new());
    (config, programs)
}

fn perform<T: Transport>(
    case: &Case,
    lab: &Lab,
    workload: &Workload,
    transport: impl Fn(u16, &PortPlan) -> T + Sync,
) {
    let plan = Plan::new(workload);
    let mut players: Vec<Player<T>> = (0..case.nodes)
        .map(|rank| Player::new(lab, workload, &plan, rank, |port| transport(rank, port)))
        .collect();
    players.iter_mut().for_each(Player::settle);
    if case.is_faulty {
        let faults = DeviceFaults {
            stale: 0.02,
            short: 0.02,
            bad_status: 0.02,
            delay: 0.05,
            lost_interrupt: 0.05,
            duplicated_interrupt: 0.05,
            ..DeviceFaults::default()
        };
        let mut locked = lab.daemon().shell().lock_all();
        (0..case.nodes).for_each(|node| settings::set_device_faults(&mut locked, node.into(), &faults));
    }
    let (is_over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let nodes = u64::from(case.nodes);
    let guests: Vec<_> = players.iter().map(|player| Arc::clone(&player.ports.guest)).collect();
    if case.is_stopping {
        guests[1].connection().stop_machine().unwrap();
    }
    let timeout = if case.is_faulty { FAULTY_TIMEOUT } else { TIMEOUT };
    std::thread::scope(|scope| {
        let _stop = Stop(&is_over);
        let (is_over, done) = (&is_over, &done);
        let threads: Vec<_> = players
            .iter_mut()
            .map(|player| {
                scope.spawn(move || {
                    player.perform(is_over, |is_new| {
                        done.fetch_add(is_new.into(), Ordering::Relaxed) + u64::from(is_new) >= nodes
                    });
                })
            })
            .collect();
        let begin = Instant::now();
        if case.is_stopping {
            stop_machines(lab, &guests, || threads.iter().all(|thread| thread.is_finished()));
        }
        while begin.elapsed() < timeout && !threads.iter().all(|thread| thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    assert!(case.is_faulty || players.iter().all(Player::is_done), "{case:?}: {} done", done.into_inner());
    for player in players {
        for (port, _) in player.ports.open {
            port.close().unwrap();
        }
    }
}

/// Continues the machine of node 1 when a frame waits for it. Then stops and continues all machines until `is_over` is
/// true.
fn stop_machines(lab: &Lab, guests: &[Arc<ClusterGuest>], is_over: impl Fn() -> bool) {
    let is_held = || {
        let locked = lab.daemon().shell().lock_all();
        let stopped = locked.nodes.card(1).and_then(|card| card.host.state.stopped.as_ref());
        stopped.is_some_and(|stopped| stopped.holds_from(0))
    };
    until("a frame for a stopped card", is_held);
    assert!(
        !deadlines::is_waiting(&lab.daemon().shell().lock_all()),
        "a deadline must not pass before the card has answered"
    );
    guests[1].connection().continue_machine(guests[1].memory()).unwrap();
    for guest in guests.iter().cycle() {
        if is_over() {
            break;
        }
        guest.connection().stop_machine().unwrap();
        std::thread::yield_now();
        guest.connection().continue_machine(guest.memory()).unwrap();
    }
}

fn assert_no_rule_is_reported(case: &Case) {
    let (config, workload) = workload(case);
    let lab = lab_with(case.nodes, |daemon| {
        daemon.rules = RuleChecking::Report;
        for (node, of_case) in daemon.nodes.iter_mut().zip(&config.nodes) {
            node.nic = of_case.nic.clone();
            node.nic.wait = case.wait;
        }
    });
    let model = config.nodes[0].nic.model;
    assert!(!model.has(FEATURE_RINGS), "its driver is in the kernel");
    if model.has(FEATURE_POSTS) {
        perform(case, &lab, &workload, |rank, port| PostTransport::new(rank, port, workload.post_terms()));
    } else if model.has(FEATURE_CHANNELS) {
        perform(case, &lab, &workload, |rank, port| {
            ChannelTransport::new(rank, port, workload.channel_terms())
        });
    } else if model.has(FEATURE_LISTS) {
        let terms = workload.terms(Plan::new(&workload).max_partners());
        perform(case, &lab, &workload, |rank, port| ListTransport::new(rank, port, terms));
    } else {
        perform(case, &lab, &workload, SliceTransport::new);
    }
    for node in 0..case.nodes {
        let figures = stats(&lab, node.into());
        assert!(figures.broken_rules.is_empty(), "{case:?}: {:#?}", figures.broken_rule_log);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 4, ..ProptestConfig::default() })]

    #[test]
    fn programs_that_keep_the_rules_are_never_reported(case in cases()) {
        assert_no_rule_is_reported(&case);
    }
}

#[test]
fn machine_stops_lose_no_message_and_break_no_rule() {
    for model in ["ultra", "mailbox", "match", "inic", "grim"] {
        assert_no_rule_is_reported(&Case {
            model,
            kind: "stream",
            nodes: 2,
            count: 100,
            bytes: 64,
            interrupt_every: 3,
            wait: WaitPolicy::Block,
            is_faulty: false,
            is_stopping: true,
            seed: 5,
        });
    }
}

#[test]
fn programs_in_lockstep_keep_the_rules() {
    for model in ["ultra", "mailbox"] {
        let case = Case {
            model,
            kind: "all-to-all",
            nodes: 3,
            count: 20,
            bytes: 16,
            interrupt_every: 3,
            wait: WaitPolicy::Block,
            is_faulty: false,
            is_stopping: false,
            seed: 7,
        };
        let (config, workload) = workload(&case);
        let lab = lab_with(case.nodes, |daemon| {
            daemon.rules = RuleChecking::Report;
            daemon.lockstep = true;
            for (node, of_case) in daemon.nodes.iter_mut().zip(&config.nodes) {
                node.nic = of_case.nic.clone();
            }
        });
        let plan = Plan::new(&workload);
        let mut players: Vec<Player<SliceTransport>> = (0..case.nodes)
            .map(|rank| Player::new(&lab, &workload, &plan, rank, |port| SliceTransport::new(rank, port)))
            .collect();
        for Player { program, ports, script, .. } in &mut players {
            program.perform_in_turns(std::mem::replace(script, Script::idle()), ports);
        }
        let begin = Instant::now();
        // Each program is notified of the end once, in any round.
        let mut waiting: Vec<_> = players.iter_mut().collect();
        while !waiting.is_empty() {
            assert!(begin.elapsed() < TIMEOUT, "{model}");
            waiting.retain_mut(|Player { program, ports, verifier, .. }| {
                program.take_turn(ports, verifier).unwrap() != InTurn::Over
            });
        }
        assert!(players.iter().all(Player::is_done));
        for node in 0..case.nodes {
            assert!(stats(&lab, node.into()).broken_rules.is_empty(), "{model}");
        }
    }
}
