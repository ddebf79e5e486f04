//! Two clusters with the same inputs, one of them without the fast path, have the same state to the last bit.

use crate::shell::dispatch::{self, run_until_idle};
use crate::shell::idle::deadlines;
use crate::shell::ledgers;
use crate::shell::service;
use crate::shell::service::device;
use crate::shell::settings;
use std::cell::Cell;
use std::os::unix::fs::FileExt;

use niclab_abi::bar::{
    CODE_ACKNOWLEDGE, CODE_INTERRUPT, CODE_LENGTH_SHIFT, CODE_NOTIFY, COMPLETER_ARMED_OFFSET,
    COMPLETER_INTERVAL_OFFSET, COMPLETER_RELEASED_OFFSET, LAUNCH_SEQUENCE_SHIFT, RECEIVED_KNOWN,
    SLOT_LAUNCH_WORD, SLOT_RECEIVED_WORD, SLOT_WORDS, slot_of,
};
use niclab_abi::control::{
    Authorize, OP_AUTHORIZE, OP_COUNTERS, OP_PORT_CLOSE, OP_PORT_OPEN, OP_REVOKE, OP_ROUTE, PortName,
    PortOpen, Request, Revoke, Route,
};
use niclab_abi::{FromBytes, PAGE_BYTES, ToBytes};
use niclab_model::models::MODELS;
use niclab_model::nic::registry::{DrawnWorkload, Model};
use niclab_model::nic::{Input, ShellCounts};
use niclab_model::time::Time;
use niclab_spec::daemon::{DaemonConfig, NodeSockets};
use niclab_spec::scenario::ScenarioFile;
use niclab_spec::{ClusterFile, ClusterName, NicConfig, Source};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::*;
use crate::config::build;
use crate::memory::DmaMemory;
use crate::shell::budget::Budget;
use crate::shell::cluster::Cluster;
use crate::shell::dispatch::pages;
use crate::shell::locks::Common;

/// Guest memory of a node.
const MEMORY_BYTES: usize = 1 << 17;
/// Guest memory of each port: slices from its beginning, the status line at its end.
const PORT_BYTES: u64 = 1 << 14;
/// Ports that scripts use.
const PORTS: u32 = 3;

/// Frames that went in batches.
fn batched(locked: &LockedNodes<'_>) -> u64 {
    locked.nodes.cards().map(|(_, card)| card.counts.batched).sum()
}

/// One of the two clusters.
struct Side {
    cluster: Cluster,
    memories: Vec<GuestMemoryMmap>,
    /// Posts so far, by node and port.
    launched: Vec<[u32; PORTS as usize]>,
}

impl Side {
    fn new(config: &DaemonConfig, has_fast_path: bool) -> Self {
        let (cluster, _) = build(config, 2).unwrap();
        let mut locked = cluster.lock_all();
        let nodes = locked.nodes.len();
        settings::set_fast_path(&mut locked, has_fast_path);
        let memory = |_| GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY_BYTES)]).unwrap();
        let memories: Vec<GuestMemoryMmap> = (0..nodes).map(memory).collect();
        for (node, memory) in memories.iter().enumerate() {
            locked.nodes[node].card.host.memory = DmaMemory::new(memory, None).into();
            locked.nodes[node].card.host.state.is_running = true;
            settings::set_link_up(&mut locked, node, true);
        }
        drop(locked);
        Self { cluster, memories, launched: vec![[0; PORTS as usize]; nodes] }
    }

    /// Handles a control request as [`service::queues`] does.
    fn request<T: ToBytes + FromBytes>(&mut self, node: usize, operation: u32, body: &T) {
        let mut body_bytes = vec![0; T::BYTES];
        body.to_bytes(&mut body_bytes);
        let mut request = vec![0; Request::BYTES];
        Request { operation, body_bytes: body_bytes.len() as u32 }.to_bytes(&mut request);
        request.extend(body_bytes);
        let locked = &mut self.cluster.lock_all();
        locked.common.budget = Budget::FULL;
        pages::serve_ports(locked, node);
        let (card, bus) = locked.nodes.card_and_bus(node).unwrap();
        card.host.state.is_running = true;
        card.nic.handle(bus.clock(), Input::ShellCounts(ShellCounts::default()), bus);
        card.nic.handle(bus.clock(), Input::Control { token: 7, request: &request }, bus);
        card.follow_ports();
        for port in 0..PORTS {
            if !locked.nodes[node].card.is_open(port) {
                self.launched[node][port as usize] = 0;
            }
        }
        outputs::drain(locked, node);
        locked.common.budget = Budget::FULL;
        run_until_idle(locked, node);
        pages::serve_stalled(locked);
    }

    fn store(&self, node: usize, page: u32, offset: usize, word: u64) {
        let nodes = self.cluster.lock_one(node);
        let file = nodes[node].card.host.pages.bar.file();
        file.write_all_at(&word.to_le_bytes(), u64::from(page) * PAGE_BYTES + offset as u64).unwrap();
    }

    fn launch(&mut self, node: usize, port: u32, code: u32, payload: u64, is_received_known: bool) {
        let page = self.cluster.lock_one(node)[node].card.host.pages.bar.requester_page(port);
        let sequence = self.launched[node][port as usize] + 1;
        self.launched[node][port as usize] = sequence;
        let slot = slot_of(sequence) as usize * SLOT_WORDS * 8;
        for word in 0..10 {
            self.store(node, page, slot + 8 * word, payload.wrapping_mul(word as u64 + 3));
        }
        let delivered = self.cluster.lock_one(node)[node].card.nic.delivered(port);
        let received = if is_received_known { delivered | RECEIVED_KNOWN } else { 0 };
        self.store(node, page, slot + SLOT_RECEIVED_WORD * 8, received);
        let launch = u64::from(code) | u64::from(sequence) << LAUNCH_SEQUENCE_SHIFT;
        self.store(node, page, slot + SLOT_LAUNCH_WORD * 8, launch);
    }

    fn register(&mut self, node: usize, port: u32, offset: u64, value: u64) {
        let page = self.cluster.lock_one(node)[node].card.host.pages.bar.completer_page(port);
        self.store(node, page, offset as usize, value);
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Launch { node, port, code, payload, is_received_known, count } => {
                let is_open = self.cluster.lock_one(node)[node].card.is_open(port);
                for number in 0..u64::from(count) * u64::from(is_open) {
                    self.launch(node, port, code, payload + number, is_received_known);
                }
            }
            Act::Serve { node } => {
                service::serve_pages(&mut self.cluster.lock_all(), node);
            }
            Act::Release { node, port, behind, is_served } => {
                let delivered = self.cluster.lock_one(node)[node].card.nic.delivered(port);
                self.register(node, port, COMPLETER_RELEASED_OFFSET, delivered.wrapping_sub(behind));
                if is_served {
                    service::serve_pages(&mut self.cluster.lock_all(), node);
                }
            }
            Act::Arm { node, port, ahead } => {
                let delivered = self.cluster.lock_one(node)[node].card.nic.delivered(port);
                self.register(node, port, COMPLETER_ARMED_OFFSET, delivered + ahead);
            }
            Act::Interval { node, port, slices } => {
                self.register(node, port, COMPLETER_INTERVAL_OFFSET, slices);
            }
            Act::Open { node, port, slices_log, fifo_words } => {
                let slices_address = PORT_BYTES * u64::from(port);
                let status_address = slices_address + PORT_BYTES - 64;
                let slices = 1 << slices_log;
                let open = PortOpen { port, slices, slices_address, status_address, fifo_words, flags: 0 };
                self.request(node, OP_PORT_OPEN, &open);
            }
            Act::Close { node, port } => {
                self.request(node, OP_PORT_CLOSE, &PortName { port, reserved: 0 });
            }
            Act::Connect { from: (node, port), to: (other, other_port), credits } => {
                let route = Route { port, node: other as u32, node_port: other_port, reserved: 0 };
                self.request(node, OP_ROUTE, &route);
                let entry = Authorize { port: other_port, node: node as u32, node_port: port, credits };
                self.request(other, OP_AUTHORIZE, &entry);
            }
            Act::Revoke { node, port, from: (other, other_port) } => {
                let entry = Revoke { port, node: other as u32, node_port: other_port, reserved: 0 };
                self.request(node, OP_REVOKE, &entry);
            }
            Act::Statistics { node } => self.request(node, OP_COUNTERS, &PortName::default()),
            Act::HostReset { node } => {
                device::reset(&mut self.cluster.lock_all(), node);
                self.launched[node] = [0; PORTS as usize];
            }
            Act::PassTime => deadlines::pass_time(&mut self.cluster.lock_all()),
            Act::Resume => {
                dispatch::resume(&mut self.cluster.lock_all());
            }
            Act::Ledgers { is_on, stages } => {
                let mut locked = self.cluster.lock_all();
                ledgers::set_on(&mut locked, is_on);
                ledgers::for_each(&mut locked, |ledger| ledger.record_stages(stages));
            }
            Act::Link { node, is_up } => settings::set_link_up(&mut self.cluster.lock_all(), node, is_up),
            Act::Faults { node, loss } => {
                let faults =
                    niclab_spec::Faults { loss, reorder: loss, duplicate: loss, ..Default::default() };
                settings::set_link_faults(&mut self.cluster.lock_all(), node as u16, &faults);
            }
            Act::Measure => ledgers::begin_measurement(&mut self.cluster.lock_all()),
            Act::Wait { node, until_ps } => {
                let mut locked = self.cluster.lock_all();
                locked.nodes[node].bus.wait_until(Time::from_ps(until_ps));
            }
        }
    }

    /// The complete state as text, and the number of batched frames.
    fn whole(&mut self) -> (String, u64) {
        let mut locked = self.cluster.lock_all();
        let node = |(_, node): (usize, &mut Node)| {
            let rest = (&node.port, &node.bus, node.latest, &node.unsent, node.borrowed_frames, node.left_by);
            format!("{rest:#?}\n{}", node.card.whole())
        };
        let nodes: Vec<String> = locked.nodes.iter_mut().map(node).collect();
        let Common { network, activity, budget, latest, stalled, has_deferred, .. } = &*locked.common;
        let whole = format!("{:#?}\n{}", (activity, budget, latest, stalled, has_deferred), network.whole());
        let batched = batched(&locked);
        (format!("{}\n{whole}", nodes.join("\n")), batched)
    }

    fn memory(&self) -> Vec<u8> {
        let mut all = vec![0; MEMORY_BYTES * self.memories.len()];
        for (memory, bytes) in self.memories.iter().zip(all.chunks_mut(MEMORY_BYTES)) {
            memory.read_slice(bytes, GuestAddress(0)).unwrap();
        }
        all
    }
}

/// One step of a program, a driver, a user or the shell.
#[derive(Clone, Debug)]
enum Act {
    Launch { node: usize, port: u32, code: u32, payload: u64, is_received_known: bool, count: u8 },
    Serve { node: usize },
    Release { node: usize, port: u32, behind: u64, is_served: bool },
    Arm { node: usize, port: u32, ahead: u64 },
    Interval { node: usize, port: u32, slices: u64 },
    Open { node: usize, port: u32, slices_log: u32, fifo_words: u32 },
    Close { node: usize, port: u32 },
    Connect { from: (usize, u32), to: (usize, u32), credits: u32 },
    Revoke { node: usize, port: u32, from: (usize, u32) },
    Statistics { node: usize },
    HostReset { node: usize },
    PassTime,
    Resume,
    Ledgers { is_on: bool, stages: usize },
    Link { node: usize, is_up: bool },
    Faults { node: usize, loss: f64 },
    Measure,
    Wait { node: usize, until_ps: u64 },
}

fn end(nodes: usize) -> impl Strategy<Value = (usize, u32)> + Clone {
    (0..nodes, 0..PORTS)
}

/// Steps of programs that send and receive.
fn traffic(nodes: usize) -> impl Strategy<Value = Act> {
    let code = prop_oneof![
        6 => (0..=8_u32).prop_map(|begin| begin << CODE_LENGTH_SHIFT),
        2 => (0..=8_u32, 0..8_u32).prop_map(|(begin, flags)| {
            let flag = |bit: u32, flag: u16| if flags >> bit & 1 == 1 { u32::from(flag) } else { 0 };
            begin << CODE_LENGTH_SHIFT
                | flag(0, CODE_NOTIFY) | flag(1, CODE_INTERRUPT) | flag(2, CODE_ACKNOWLEDGE)
        }),
        1 => any::<u32>(),
    ];
    let launch = (end(nodes), code, any::<u64>(), prop::bool::weighted(0.9), 1..20_u8).prop_map(
        |((node, port), code, payload, is_received_known, count)| {
            let payload = payload >> 1;
            Act::Launch { node, port, code, payload, is_received_known, count }
        },
    );
    let release = (end(nodes), prop_oneof![6 => Just(0), 2 => 0..4_u64, 1 => any::<u64>()], any::<bool>());
    let release =
        release.prop_map(|((node, port), behind, is_served)| Act::Release { node, port, behind, is_served });
    prop_oneof![
        8 => launch,
        8 => (0..nodes).prop_map(|node| Act::Serve { node }),
        6 => release,
        1 => (end(nodes), 0..6_u64).prop_map(|((node, port), ahead)| Act::Arm { node, port, ahead }),
    ]
}

/// Steps of drivers, users and the shell.
fn changes(nodes: usize) -> impl Strategy<Value = Act> {
    let connect = (end(nodes), end(nodes), 1..9_u32);
    let node = move || 0..nodes;
    prop_oneof![
        6 => connect.prop_map(|(from, to, credits)| Act::Connect { from, to, credits }),
        2 => (end(nodes), 3..6_u32, prop::option::of(0..40_u32)).prop_map(|((node, port), slices_log, words)| {
            Act::Open { node, port, slices_log, fifo_words: words.unwrap_or_default() }
        }),
        1 => end(nodes).prop_map(|(node, port)| Act::Close { node, port }),
        1 => (end(nodes), end(nodes)).prop_map(|((node, port), from)| Act::Revoke { node, port, from }),
        2 => (end(nodes), 0..9_u64).prop_map(|((node, port), slices)| Act::Interval { node, port, slices }),
        1 => node().prop_map(|node| Act::Statistics { node }),
        1 => node().prop_map(|node| Act::HostReset { node }),
        2 => Just(Act::PassTime),
        1 => Just(Act::Resume),
        1 => (prop::bool::weighted(0.8), prop_oneof![Just(0_usize), Just(50), Just(100_000)])
            .prop_map(|(is_on, stages)| Act::Ledgers { is_on, stages }),
        1 => (node(), any::<bool>()).prop_map(|(node, is_up)| Act::Link { node, is_up }),
        1 => (node(), prop_oneof![3 => Just(0.0), 1 => Just(0.3)])
            .prop_map(|(node, loss)| Act::Faults { node, loss }),
        1 => Just(Act::Measure),
    ]
}

/// The steps that connect a cluster, and then a number of random ones within `steps`.
fn script(nodes: usize, steps: core::ops::Range<usize>) -> impl Strategy<Value = Vec<Act>> {
    let interval = prop_oneof![Just(0), Just(4), Just(8)];
    let steps = prop::collection::vec(prop_oneof![12 => traffic(nodes), 1 => changes(nodes)], steps);
    (interval, 1..9_u32, steps).prop_map(move |(slices, credits, steps)| {
        let ends = || (0..nodes).flat_map(|node| (0..PORTS).map(move |port| (node, port)));
        let opened = ends().flat_map(|(node, port)| {
            let open = Act::Open { node, port, slices_log: 4, fifo_words: 0 };
            [open, Act::Interval { node, port, slices }]
        });
        // Each port sends to the next node's port. Later steps connect it to further ones.
        let connected = ends().map(|(node, port)| Act::Connect {
            from: (node, port),
            to: ((node + 1) % nodes, port),
            credits,
        });
        opened.chain(connected).chain(steps).collect()
    })
}

fn config(text: &str) -> DaemonConfig {
    let source = Source::from_text("twin", text.to_owned());
    config_of(&source, &source.parse::<ClusterFile>().unwrap())
}

fn config_of(source: &Source, file: &ClusterFile) -> DaemonConfig {
    let cluster = source.resolve(file).unwrap();
    DaemonConfig::new(&cluster, &ClusterName::default(), "/m".into(), |rank| NodeSockets {
        cluster_socket: format!("/{rank}.c").into(),
        ethernet_socket: format!("/{rank}.e").into(),
    })
}

/// Runs the steps on both clusters, and compares them regularly. Returns the number of batched frames.
fn compare(config: &DaemonConfig, acts: &[Act]) -> Result<u64, TestCaseError> {
    let (mut slow, mut fast) = (Side::new(config, false), Side::new(config, true));
    for (number, act) in acts.iter().enumerate() {
        slow.act(act);
        fast.act(act);
        if number % 8 == 7 || number + 1 == acts.len() {
            let ((whole, none), (other, _)) = (slow.whole(), fast.whole());
            let first = || whole.lines().zip(other.lines()).find(|(here, there)| here != there);
            prop_assert_eq!(none, 0);
            prop_assert!(whole == other, "after {} acts, last {:?}: {:?}", number + 1, act, first());
            prop_assert!(slow.memory() == fast.memory(), "memory after {} acts", number + 1);
        }
    }
    let stages = |side: &mut Side| {
        let mut all = Vec::new();
        ledgers::for_each(&mut side.cluster.lock_all(), |ledger| all.push(ledger.take_stages()));
        all
    };
    prop_assert_eq!(stages(&mut slow), stages(&mut fast));
    Ok(fast.whole().1)
}

/// The models with a fast path.
fn models() -> Vec<&'static Model> {
    let has_fast_path = |model: &&'static Model| {
        let (cluster, _) = build(&config(&format!("nodes = 2\nnic.model = \"{}\"", model.name)), 2).unwrap();
        let mut locked = cluster.lock_all();
        locked.nodes[0].card.nic.batching().is_some()
    };
    MODELS.iter().copied().filter(has_fast_path).collect()
}

const NODES: usize = 3;

/// A random configuration. The share `drawn` of all cases has cards with random values.
fn any_config(drawn: f64) -> impl Strategy<Value = DaemonConfig> {
    let choice = |words: &'static [&'static str]| prop::sample::select(words);
    (
        prop::sample::select(models()),
        choice(&["", "framing = \"native\"\n", "framing = \"ethernet\"\n"]),
        choice(&["", "forwarding = \"cut-through\"\n", "forwarding = \"store-and-forward\"\n"]),
        choice(&[
            "htx-200mhz",
            "htx-200mhz-fitted",
            "htx-asic-1ghz",
            "pci-32-33",
            "i960-32-33",
            "pcie4-100g",
        ]),
        prop::option::weighted(drawn, prop::collection::vec(any::<u32>(), 12)),
        prop_oneof![1 => Just(0_u64), 2 => 1..4_u64, 1 => Just(40)],
    )
        .prop_map(|(model, framing, forwarding, profile, draws, queue)| {
            let mut text = format!("nodes = {NODES}\nprofile = \"{profile}\"\n{framing}{forwarding}");
            text += &format!("nic.model = \"{}\"\n", model.name);
            if queue > 0 {
                text += &format!("[[link]]\nqueue_frames = {queue}\n");
            }
            let mut config = config(&text);
            let Some(draws) = draws else { return config };
            let mut draws = draws.into_iter().cycle();
            for node in &mut config.nodes {
                let mut below = |most: u32| draws.next().unwrap_or_default() % most.max(1);
                let mut workload = DrawnWorkload {
                    nodes: NODES as u32,
                    message_bytes: 16,
                    slices: 16,
                    receive: 0,
                    echoes: false,
                    datagram_every: 0,
                };
                node.nic = NicConfig::with_values((model.swarm.draw)(&mut below, &mut workload));
            }
            config
        })
}

/// A random configuration, and random steps.
fn any_run() -> impl Strategy<Value = (DaemonConfig, Vec<Act>)> {
    (any_config(0.9), script(NODES, 30..160))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn fast_path_leaves_the_state_of_the_slow_path((config, acts) in any_run()) {
        compare(&config, &acts)?;
    }
}

/// Bursts of one or two senders to one receiver, and what ends a batch: status lines on a shared bus, registers, other
/// senders, late credit, full queues and FIFOs, and other steps.
fn bursts() -> impl Strategy<Value = Vec<Act>> {
    let burst = (prop_oneof![5 => Just(0_usize), 1 => Just(2)], 0..=8_u32, any::<u64>(), 1..=32_u8, 0..4_u64);
    let burst = burst.prop_map(|(node, begin, payload, count, behind)| {
        let (code, payload) = (begin << CODE_LENGTH_SHIFT, payload >> 1);
        vec![
            Act::Launch { node, port: 0, code, payload, is_received_known: true, count },
            Act::Serve { node },
            Act::Release { node: 1, port: 0, behind, is_served: true },
        ]
    });
    let wait = (0..NODES, 0..200_000_000_u64).prop_map(|(node, until_ps)| Act::Wait { node, until_ps });
    let other = prop_oneof![3 => traffic(NODES), 1 => changes(NODES), 2 => wait].prop_map(|act| vec![act]);
    let steps = prop::collection::vec(prop_oneof![6 => burst, 1 => other], 8..50);
    let words = prop_oneof![3 => Just(0_u32), 2 => 10..40_u32];
    let interval = prop_oneof![1 => Just(0_u64), 2 => 1..9_u64, 2 => 16..64_u64];
    (interval, 1..40_u32, 4..8_u32, [words.clone(), words], steps).prop_map(
        |(slices, credits, slices_log, fifo_words, steps)| {
            let [of_sender, of_receiver] = fifo_words;
            let mut acts = vec![
                Act::Open { node: 0, port: 0, slices_log: 4, fifo_words: of_sender },
                Act::Open { node: 2, port: 0, slices_log: 4, fifo_words: of_sender },
                Act::Open { node: 1, port: 0, slices_log, fifo_words: of_receiver },
                Act::Interval { node: 1, port: 0, slices },
            ];
            let both = [0, 2].map(|node| Act::Connect { from: (node, 0), to: (1, 0), credits });
            acts.extend(both.into_iter().chain(steps.into_iter().flatten()));
            acts
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn fast_path_of_bursts_leaves_the_state_of_the_slow_path((config, acts) in (any_config(0.3), bursts())) {
        compare(&config, &acts)?;
    }
}

/// The bursts would compare nothing if no message went in a batch. The draws are fixed because the count of random ones
/// varies by thousands: only one of the models takes batches.
#[test]
fn messages_of_bursts_go_in_batches() {
    let cases = ProptestConfig { cases: 32, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(cases, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let sum = Cell::new(0);
    let compare = |(config, acts): (DaemonConfig, Vec<Act>)| {
        sum.set(sum.get() + compare(&config, &acts)?);
        Ok(())
    };
    runner.run(&(any_config(0.3), bursts()), compare).unwrap();
    assert!(sum.get() > 1_000, "{} messages went in batches", sum.get());
}

/// Forty bursts of sixteen messages from node 0 to node 1. The result of `before` precedes each burst.
fn bursts_of_sixteen(before: impl Fn(u64) -> Option<Act>) -> Vec<Act> {
    let mut acts = vec![
        Act::Open { node: 0, port: 0, slices_log: 4, fifo_words: 0 },
        Act::Open { node: 1, port: 0, slices_log: 7, fifo_words: 0 },
        Act::Interval { node: 1, port: 0, slices: 32 },
        Act::Connect { from: (0, 0), to: (1, 0), credits: 128 },
    ];
    let code = 6 << CODE_LENGTH_SHIFT;
    for payload in 0..40 {
        acts.extend(before(payload));
        acts.push(Act::Launch { node: 0, port: 0, code, payload, is_received_known: true, count: 16 });
        acts.push(Act::Serve { node: 0 });
        acts.push(Act::Release { node: 1, port: 0, behind: 0, is_served: true });
    }
    acts
}

#[test]
fn delayed_posts_leave_the_same_state_on_both_paths() {
    // Slots become free late, so posts wait for status lines.
    for latency_us in 4..12 {
        for model in models() {
            let mut config = config(&format!("nodes = 2\nnic.model = \"{}\"", model.name));
            config.profile.bus.dma_write.latency_ps.value = latency_us * 1_000_000;
            assert!(compare(&config, &bursts_of_sixteen(|_| None)).unwrap() > 100, "{}", model.name);
        }
    }
    // Programs compute between the bursts, up to the end of model time and beyond.
    for begin in [0, (1 << 63) - 30_000_000, u64::MAX - 60_000_000] {
        let wait =
            |number: u64| Some(Act::Wait { node: 0, until_ps: begin.saturating_add(number * 3_000_000) });
        for model in models() {
            let config = config(&format!("nodes = 2\nnic.model = \"{}\"", model.name));
            assert!(
                compare(&config, &bursts_of_sixteen(wait)).unwrap() > 100,
                "{} from {begin} ps",
                model.name
            );
        }
    }
}

#[test]
fn bursts_are_batched_on_every_bus() {
    // The buses of the last two transfer one direction at a time, so a status line delays posts.
    for profile in ["htx-200mhz", "htx-asic-1ghz", "pci-32-33", "i960-32-33"] {
        for model in models() {
            let text = format!("nodes = 2\nprofile = \"{profile}\"\nnic.model = \"{}\"", model.name);
            let batched = compare(&config(&text), &bursts_of_sixteen(|_| None)).unwrap();
            assert_eq!(batched, 640, "{} on {profile}", model.name);
        }
    }
}

/// The steps of a plain stream of messages from node 0 to node 1.
fn stream(messages: u64) -> Vec<Act> {
    let mut acts = vec![
        Act::Open { node: 0, port: 0, slices_log: 4, fifo_words: 0 },
        Act::Open { node: 1, port: 0, slices_log: 5, fifo_words: 0 },
        Act::Interval { node: 1, port: 0, slices: 4 },
        Act::Connect { from: (0, 0), to: (1, 0), credits: 16 },
    ];
    for number in 0..messages / 4 {
        let code = 6 << CODE_LENGTH_SHIFT;
        // Some posts do not say what the program had received. Then the order of the polls decides.
        for (is_received_known, count) in [(number % 3 > 0, 1), (true, 3)] {
            acts.push(Act::Launch { node: 0, port: 0, code, payload: number, is_received_known, count });
        }
        acts.push(Act::Serve { node: 0 });
        acts.push(Act::Release { node: 1, port: 0, behind: 0, is_served: true });
    }
    acts
}

#[test]
fn messages_of_a_stream_take_the_fast_path() {
    for model in models() {
        let config = config(&format!("nodes = 2\nnic.model = \"{}\"", model.name));
        assert_eq!(compare(&config, &stream(4_000)).unwrap(), 4_000, "{}", model.name);
    }
}

#[test]
fn batch_ends_where_the_sender_has_no_more_credit() {
    let code = 6 << CODE_LENGTH_SHIFT;
    let launch = |count| Act::Launch { node: 0, port: 0, code, payload: 1, is_received_known: true, count };
    let mut acts = vec![
        Act::Open { node: 0, port: 0, slices_log: 4, fifo_words: 0 },
        Act::Open { node: 1, port: 0, slices_log: 5, fifo_words: 0 },
        Act::Interval { node: 1, port: 0, slices: 4 },
        Act::Connect { from: (0, 0), to: (1, 0), credits: 8 },
        launch(6),
        Act::Serve { node: 0 },
    ];
    // The credits that the receiver returns meanwhile are lost.
    acts.push(Act::Link { node: 0, is_up: false });
    acts.push(Act::Release { node: 1, port: 0, behind: 0, is_served: true });
    acts.push(Act::Link { node: 0, is_up: true });
    acts.extend([launch(6), Act::Serve { node: 0 }]);
    for model in models() {
        let config = config(&format!("nodes = 2\nnic.model = \"{}\"", model.name));
        let batched = compare(&config, &acts).unwrap();
        assert_eq!(batched, 8, "{}", model.name);
    }
}

#[test]
fn scenarios_leave_the_same_state_on_both_paths() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/scenarios");
    let (mut compared, models) = (0, models());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let source = Source::read(&path).unwrap();
        let file = source.parse::<ScenarioFile>().unwrap();
        let mut config = config_of(&source, &file.cluster.unwrap_or_default());
        if !config.nodes.iter().any(|node| models.contains(&node.nic.model.descriptor())) {
            continue;
        }
        compared += 1;
        config.lockstep = false;
        // Each node sends to the next, and to the first.
        let nodes = config.nodes.len();
        let mut acts = Vec::new();
        for (node, port) in (0..nodes).flat_map(|node| [(node, 0), (node, 1)]) {
            acts.push(Act::Open { node, port, slices_log: 6, fifo_words: 0 });
            acts.push(Act::Interval { node, port, slices: 4 });
        }
        for node in 0..nodes {
            acts.push(Act::Connect { from: (node, 0), to: ((node + 1) % nodes, 0), credits: 8 });
            acts.push(Act::Connect { from: (node, 1), to: (0, 1), credits: 4 });
        }
        for round in 0..24 {
            for (node, port) in (0..nodes).flat_map(|node| [(node, 0), (node, 1)]) {
                let code = (round % 9) << CODE_LENGTH_SHIFT
                    | if round % 5 == 0 { u32::from(CODE_INTERRUPT) } else { 0 };
                let payload = u64::from(round) << 8;
                acts.push(Act::Launch { node, port, code, payload, is_received_known: true, count: 3 });
                acts.push(Act::Serve { node });
            }
            let releases = (0..nodes).flat_map(|node| [(node, 0), (node, 1)]);
            acts.extend(releases.map(|(node, port)| Act::Release { node, port, behind: 0, is_served: true }));
        }
        let batched = compare(&config, &acts).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(batched > 0, "{}", path.display());
    }
    assert!(compared > 5, "{compared}");
}
