//! INIC cards with every bundled assembly: the assembly keeps its promises under all faults of the network, by its
//! protocol alone.

mod firmware_reload;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use niclab_abi::inic::{
    OP_POST_RULES, POST_ANY_SOURCE, POST_EVENT_FAILED, POST_EVENT_RECEIVED, POST_EVENT_SENT, POST_OK,
    POST_TELL_SENT, POST_UNREACHABLE, PostRules,
};
use niclab_components::{Assembly, Bundled, Flow, Recipe};
use niclab_model::models::inic::Config;
use niclab_model::models::inic::descriptor::{MODEL, config};
use niclab_model::nic::registry::{CardContext, ParameterKind, Promise, Value, Values};
use niclab_model::platform::profile::Profile;
use niclab_model::random::Random;
use proptest::prelude::*;

use crate::support::inic::{Faults, Host, Wire};
use crate::support::matching::pattern;
use crate::support::request;

const NODES: u16 = 3;
/// Bytes of a receive buffer. Each node has `PLACES` of them.
const PLACE: u64 = 8_192;
const PLACES: u64 = 24;
/// Offset of the send buffers.
const SENDS: u64 = PLACES * PLACE;
const SEND_PLACES: u64 = 64;
const MAX_BYTES: u64 = 4_000;
/// Maximum number of frames and deadlines of a run.
const MAX_STEPS: u32 = 300_000;

fn assemblies() -> Vec<&'static str> {
    let Some(parameter) = MODEL.parameter("assembly") else { return Vec::new() };
    let ParameterKind::Choice { choices, .. } = parameter.kind else { return Vec::new() };
    choices.iter().map(|choice| choice.name).collect()
}

fn values(assembly: &str) -> Values {
    Values::defaults(&MODEL).with("assembly", Value::Word(assembly.into()))
}

fn card(values: &Values) -> impl Fn(u16) -> Config + use<> {
    let (values, profile) = (values.clone(), Arc::new(Profile::default()));
    move |node| {
        let context = CardContext { node, nodes: NODES.into(), mtu_bytes: 1_500, profile: profile.clone() };
        config(&values, context).unwrap()
    }
}

/// A sent message.
#[derive(Clone, Debug)]
struct Message {
    from: usize,
    to: usize,
    bytes: u64,
}

/// The data of a message: its number, then a pattern.
fn data(number: usize, bytes: u64) -> Vec<u8> {
    let mut data = pattern(number as u64, bytes as usize);
    data[..4].copy_from_slice(&(number as u32).to_le_bytes());
    data
}

struct Simulation {
    wire: Wire,
    messages: Vec<Message>,
    /// Messages received, in order, by receiver.
    came: Vec<Vec<usize>>,
    /// Free send buffers, by node.
    free: Vec<Vec<u64>>,
    told: BTreeSet<usize>,
    failed: BTreeMap<usize, u32>,
    /// Number of received messages that were reported as incomplete.
    broken: usize,
}

impl Simulation {
    fn new(seed: u64, faults: Faults, values: &Values) -> Self {
        Self::of(seed, faults, card(values))
    }

    fn of(seed: u64, faults: Faults, config: impl Fn(u16) -> Config) -> Self {
        let mut wire = Wire::new(seed, faults, config, NODES);
        for node in 0..usize::from(NODES) {
            for place in 0..PLACES {
                assert!(wire.receive(node, 0, place, place * PLACE, PLACE));
            }
        }
        let free = vec![(0..SEND_PLACES).collect(); usize::from(NODES)];
        let came = vec![Vec::new(); usize::from(NODES)];
        Self {
            wire,
            messages: Vec::new(),
            came,
            free,
            told: BTreeSet::new(),
            failed: BTreeMap::new(),
            broken: 0,
        }
    }

    fn send(&mut self, message: Message) -> bool {
        let number = self.messages.len();
        let Message { from, to, bytes } = message;
        let Some(place) = self.free[from].pop() else { return false };
        let offset = SENDS + place * MAX_BYTES;
        self.wire.write(from, offset, &data(number, bytes));
        let user = (number as u64) << 16 | place;
        if !self.wire.send(from, POST_TELL_SENT, to as u16, user, offset, bytes) {
            self.free[from].push(place);
            return false;
        }
        self.messages.push(message);
        true
    }

    fn read(&mut self) {
        for node in 0..usize::from(NODES) {
            while let Some(told) = self.wire.event(node) {
                let user = told.words.user;
                match told.kind {
                    POST_EVENT_SENT => {
                        assert!(self.told.insert((user >> 16) as usize), "reported twice");
                        self.free[node].push(user & 0xffff);
                    }
                    POST_EVENT_FAILED => {
                        let before = self.failed.insert((user >> 16) as usize, told.result);
                        assert_eq!(before, None, "failed twice");
                    }
                    POST_EVENT_RECEIVED if told.result == POST_OK => {
                        let found = self.wire.bytes(node, user * PLACE, told.words.bytes).to_vec();
                        let number = u32::from_le_bytes(found[..4].try_into().unwrap()) as usize;
                        let message = &self.messages[number];
                        assert_eq!((message.to, message.from as u64), (node, told.words.source));
                        assert!(
                            found == data(number, message.bytes),
                            "message {number} of {} bytes, {} reported",
                            message.bytes,
                            told.words.bytes
                        );
                        self.came[node].push(number);
                        assert!(self.wire.receive(node, 0, user, user * PLACE, PLACE));
                    }
                    POST_EVENT_RECEIVED => {
                        self.broken += 1;
                        assert!(self.wire.receive(node, 0, user, user * PLACE, PLACE));
                    }
                    _ => panic!("{told:?}"),
                }
            }
        }
    }

    /// Runs until no frame and no deadline is left.
    fn settle(&mut self) {
        let mut steps = 0;
        while self.wire.step() {
            self.read();
            steps += 1;
            assert!(steps < MAX_STEPS, "it never rests");
        }
        self.read();
    }

    /// Checks the received messages against the promise.
    fn check(&self, promise: Promise) {
        for (node, came) in self.came.iter().enumerate() {
            let sent = || self.messages.iter().enumerate().filter(|(_, message)| message.to == node);
            if promise.is_once {
                assert_eq!(came.iter().collect::<BTreeSet<_>>().len(), came.len(), "twice: {came:?}");
            }
            if promise.is_delivered {
                for (number, message) in sent().filter(|(number, _)| !self.failed.contains_key(number)) {
                    let counters =
                        || self.wire.hosts.iter().map(|host| *host.nic.counters()).collect::<Vec<_>>();
                    assert!(
                        came.contains(&number),
                        "message {number} did not reach node {node}: {message:?}; {} incomplete, {:#?}",
                        self.broken,
                        counters()
                    );
                }
            }
            if promise.is_in_order {
                for from in 0..usize::from(NODES) {
                    let mut of = came.iter().filter(|number| self.messages[**number].from == from);
                    assert!(
                        of.clone().is_sorted(),
                        "from {from} to {node}: {:?}",
                        of.by_ref().collect::<Vec<_>>()
                    );
                }
            }
        }
    }
}

fn promise(values: &Values, is_sound: bool) -> Promise {
    let promises = (MODEL.promises)(values);
    if is_sound { promises.sound } else { promises.faulty }
}

fn packet_bytes(values: &Values) -> u32 {
    match values.number_u32("packet_bytes") {
        0 => 1_408,
        bytes => bytes,
    }
}

fn run(seed: u64, values: &Values, faults: Faults, count: usize) -> Simulation {
    run_in(Simulation::new(seed, faults, values), seed, values, faults, count)
}

fn run_in(
    mut simulation: Simulation,
    seed: u64,
    values: &Values,
    faults: Faults,
    count: usize,
) -> Simulation {
    let mut random = Random::new(seed, 1);
    for _ in 0..count {
        let from = random.below(NODES.into()) as usize;
        // With packets of a few bytes, a long message would take too many of them for a test.
        let long = (MAX_BYTES as u32 / 4).min(15 * packet_bytes(values));
        let most = if random.below(2) == 0 { 8 } else { long };
        let bytes = 4 * (1 + u64::from(random.below(most)));
        let message = Message { from, to: random.below(NODES.into()) as usize, bytes };
        let mut steps = 0;
        while !simulation.send(message.clone()) {
            assert!(simulation.wire.step() && steps < MAX_STEPS, "a send buffer becomes free");
            simulation.read();
            steps += 1;
        }
        for _ in 0..random.below(6) {
            simulation.wire.step();
        }
        // A program that does not read for some time posts no receive buffers.
        if random.below(20) == 0 {
            simulation.read();
        }
    }
    // Without faults, all messages arrive.
    simulation.wire.faults = Faults::default();
    simulation.settle();
    let is_sound = [faults.lost, faults.duplicated, faults.damaged, faults.late] == [0; 4];
    simulation.check(promise(values, is_sound));
    simulation
}

#[test]
fn without_faults_every_assembly_delivers_once_and_in_order() {
    for name in assemblies() {
        let simulation = run(7, &values(name), Faults::default(), 400);
        let card = &simulation.wire.hosts[0].nic;
        let counters = card.counters();
        let counted = (counters.retransmissions, counters.timeouts, simulation.broken);
        // The rate-controlled card sends one packet in 50 us to two nodes, so a round trip can exceed its time-out.
        assert!(counted == (0, 0, 0) || name == "rate_controlled", "{name}: {counted:?}");
    }
}

#[test]
fn packets_are_dropped_for_any_connection_order_of_judges() {
    let values = values("conf4");
    let faults = Faults { lost: 50, duplicated: 100, late: 100, ..Faults::default() };
    let assembly = Bundled::named("conf4").unwrap().assembly();
    let mut reversed = Assembly::default();
    for (place, part) in assembly.components().iter().enumerate() {
        reversed.add(part.name(), part.kind()).unwrap();
        for (setting, value) in part.kind().row().parameters.iter().zip(part.values()) {
            reversed.set_at(place, setting.parameter, *value).unwrap();
        }
    }
    for connection in assembly.connections().iter().rev() {
        reversed.connect(connection.from, connection.to, connection.depth).unwrap();
    }
    for assembly in [assembly, reversed] {
        let (assembly, plain) = (assembly.check().unwrap(), card(&values));
        let simulation =
            Simulation::of(3, faults, |node| Config { assembly: assembly.clone(), ..plain(node) });
        run_in(simulation, 3, &values, faults, 300);
    }
}

#[test]
fn only_reliable_assemblies_resend_and_selective_repeat_least() {
    let faults = Faults { lost: 50, ..Faults::default() };
    let again = |name: &str| {
        let simulation = run(3, &values(name), faults, 600);
        simulation.wire.hosts.iter().map(|host| host.nic.counters().retransmissions).sum::<u64>()
    };
    assert_eq!((again("conf1"), again("unreliable_ordered")), (0, 0));
    let (go_back_n, selective) = (again("conf4"), again("selective_repeat"));
    assert!(selective > 0 && go_back_n > selective, "{go_back_n} {selective}");
}

#[test]
fn messages_to_an_unreachable_node_fail_until_it_returns() {
    for name in ["conf2", "conf3", "conf4", "selective_repeat"] {
        let values = values(name).with("retries", Value::Number(3));
        let mut simulation = Simulation::new(5, Faults::default(), &values);
        let message = |to| Message { from: 0, to, bytes: 4_000 };
        simulation.wire.cut.push(1);
        (0..20).for_each(|_| assert!(simulation.send(message(1))));
        (0..5).for_each(|_| assert!(simulation.send(message(2))));
        simulation.settle();
        assert_eq!(simulation.failed.len(), 20, "{name}: {:?}", simulation.failed);
        assert!(simulation.failed.values().all(|result| *result == POST_UNREACHABLE));
        assert_eq!(simulation.came[2].len(), 5, "messages to other nodes are not blocked");
        simulation.wire.cut.clear();
        (0..10).for_each(|_| assert!(simulation.send(message(1))));
        simulation.settle();
        assert_eq!(simulation.came[1], (25..35).collect::<Vec<_>>(), "{name}");
        assert_eq!(simulation.failed.len(), 20);
        simulation.check(promise(&values, true));
    }
}

/// Status of setting the rules, and the interrupts of a message of 100,000 bytes in packets of 1,408 under them.
fn interrupts(rules: &PostRules) -> (u32, u32) {
    const BYTES: u64 = 100_000;
    let recipe = Recipe {
        flow: Flow::GoBackN,
        finds_duplicates: true,
        controls_rate: false,
        mitigates: true,
        depth: 16,
    };
    let assembly = recipe.assembly().unwrap().check().unwrap();
    let values = values("conf4");
    let plain = card(&values);
    let config = |node| Config { assembly: assembly.clone(), ..plain(node) };
    let mut wire = Wire::new(1, Faults::default(), config, NODES);
    assert!(wire.receive(1, 0, 0, 0, BYTES));
    let status = wire.control(1, &request(OP_POST_RULES, rules)).0;
    assert!(wire.send(0, 0, 1, 0, 0, BYTES));
    while wire.step() {}
    let told = wire.event(1).unwrap();
    assert_eq!((told.result, told.words.moved_bytes), (POST_OK, BYTES));
    (status, wire.hosts[1].interrupts)
}

#[test]
fn interrupts_follow_rules_set_while_the_card_runs() {
    let none = PostRules { source: POST_ANY_SOURCE, ..PostRules::default() };
    assert_eq!(interrupts(&none), (0, 0));
    // The remainder of a chunk counts for the next one: 100,000 / 4,096 is 24.4.
    let chunks = PostRules { rcv_chunk_size: 4_096, ..none };
    assert_eq!(interrupts(&chunks), (0, 24));
    assert_eq!(interrupts(&PostRules { at_end: 1, ..chunks }), (0, 25));
    // One interrupt for each packet.
    assert_eq!(interrupts(&PostRules { rcv_chunk_size: 1, ..none }), (0, 100_000_u32.div_ceil(1_408)));
    assert_eq!(interrupts(&PostRules { min_message_bytes: 100_000, ..none }), (0, 1));
    assert_eq!(interrupts(&PostRules { min_message_bytes: 100_001, ..none }), (0, 0));
    assert_eq!(interrupts(&PostRules { source: 0, ..chunks }), (0, 24));
    assert_eq!(interrupts(&PostRules { source: 2, ..chunks }), (0, 0));
    for wrong in
        [PostRules { at_end: 2, ..none }, PostRules { source: 3, ..none }, PostRules { port: 1, ..none }]
    {
        assert_ne!(interrupts(&wrong).0, 0, "{wrong:?}");
    }
}

/// Where sequence numbers wrap: the paper's numbers, and the numbers used inside of cards. Numbers of the narrow format
/// always wrap.
const NEARLY_OVER: [u64; 2] = [0x100_0000, 0x1_0000_0000];

#[test]
fn sequence_numbers_wrap_in_every_assembly_and_format() {
    const LEFT: u64 = 16;
    let faults = Faults { lost: 50, duplicated: 50, late: 100, ..Faults::default() };
    for (name, over, format) in assemblies().into_iter().flat_map(|name| {
        NEARLY_OVER
            .into_iter()
            .flat_map(move |over| ["seq24_node4", "seq8_node12"].map(|format| (name, over, format)))
    }) {
        let values = values(name)
            .with("packet_bytes", Value::Number(400))
            .with("format", Value::Word(format.into()))
            .with("first_number", Value::Number(over - LEFT));
        let simulation = run(11, &values, faults, 150);
        // Each node has sent more packets to one of the nodes than numbers were left before the wrap.
        let is_over = |host: &Host| host.nic.counters().packets_sent > LEFT * u64::from(NODES);
        assert!(simulation.wire.hosts.iter().all(is_over), "{name} {over:#x} {format}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_assembly_keeps_its_promises(
        seed: u64,
        name in prop::sample::select(assemblies()),
        packet in 1..340_u64,
        threshold in 1..8_u64,
        lost in 0..300_u32,
        duplicated in 0..300_u32,
        damaged in 0..100_u32,
        late in 0..300_u32,
        first in prop_oneof![
            Just(0),
            (prop::sample::select(NEARLY_OVER.to_vec()), 1..200_u64).prop_map(|(over, left)| over - left)
        ],
    ) {
        let mut values = values(name)
            .with("packet_bytes", Value::Number(4 * packet))
            .with("first_number", Value::Number(first));
        if !["conf1", "unreliable_ordered"].contains(&name) {
            values = values
                .with("ack_threshold", Value::Number(threshold))
                .with("outstanding_limit", Value::Number(2 * threshold + packet % 16))
                .with("timeout_us", Value::Number(if name == "rate_controlled" { 0 } else { 60 + 5 * packet }))
                .with("retries", Value::Number(60_000));
        }
        run(seed, &values, Faults { lost, duplicated, damaged, late }, 60);
    }
}
