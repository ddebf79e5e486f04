//! INIC cards against a hostile host and a hostile network. Frames that are not packets are counted by kind, the card
//! writes only to posted memory, and other nodes' messages are delivered.

mod host;

use std::sync::Arc;

use crc::{CRC_32_ISO_HDLC, Crc};
use niclab_abi::control::{OP_PORT_CLOSE, PortName};
use niclab_abi::inic::{
    POST_EVENT_DONE, POST_EVENT_FAILED, POST_EVENT_RECEIVED, POST_EVENT_REFUSED, POST_EVENT_SENT,
    POST_INCOMPLETE, POST_OK, POST_SUM, POST_TELL_SENT, POST_UNREACHABLE, POST_UNSIGNED_64,
};
use niclab_components::{Format, Kind as Part, Parameter};
use niclab_model::models::inic::Config;
use niclab_model::models::inic::counters::Counters;
use niclab_model::models::inic::descriptor::{MODEL, config};
use niclab_model::models::inic::wire::{Ack, Dialect, Header, head_bytes};
use niclab_model::nic::registry::{CardContext, Value, Values};
use niclab_model::nic::{FrameBytes, Input};
use niclab_model::platform::profile::Profile;
use proptest::prelude::*;

use crate::support::inic::{Faults, REGION, Told, Wire};
use crate::support::matching::pattern;
use crate::support::request;

const NODES: u16 = 4;
/// The node in whose name the tests forge frames. The wire delivers nothing to its own card.
const ENEMY: u16 = 3;
/// The node that receives the forged frames.
const VICTIM: usize = 1;
const ROOM: u64 = 4_000;
/// Distance of two receive buffers. The bytes between them are not posted.
const PLACE: u64 = ROOM + 96;
/// Receive buffers of a node: more than another node can occupy with unfinished messages.
const PLACES: u64 = 150;
const SENDS: u64 = PLACES * PLACE;
const SEND_PLACES: u64 = 56;
const MAX_STEPS: u32 = 300_000;

const ASSEMBLIES: [&str; 7] =
    ["conf1", "conf2", "conf3", "conf4", "unreliable_ordered", "selective_repeat", "rate_controlled"];
const RELIABLE: [&str; 5] = ["conf2", "conf3", "conf4", "selective_repeat", "rate_controlled"];

fn values(assembly: &str) -> Values {
    let values = Values::defaults(&MODEL).with("assembly", Value::Word(assembly.into()));
    let is_reliable = !["conf1", "unreliable_ordered"].contains(&assembly);
    if is_reliable { values.with("retries", Value::Number(3)) } else { values }
}

fn card(assembly: &str) -> impl Fn(u16) -> Config {
    let (values, profile) = (values(assembly), Arc::new(Profile::default()));
    move |node| {
        let context = CardContext { node, nodes: NODES.into(), mtu_bytes: 1_500, profile: profile.clone() };
        config(&values, context).unwrap()
    }
}

fn dialect(assembly: &str) -> Dialect {
    let assembly = card(assembly)(0).assembly;
    let xmit = assembly.components().iter().find(|part| part.kind() == Part::Xmit).unwrap();
    Dialect { format: Format::of(xmit.value(Parameter::Format).unwrap()), assembly: assembly.id() }
}

/// Appends the check sequence over all bytes after the Ethernet header.
fn seal(frame: &mut FrameBytes) {
    let check = Crc::<u32>::new(&CRC_32_ISO_HDLC).checksum(&frame[14..]);
    frame.extend_from_slice(&check.to_be_bytes());
}

const PLAIN: Header = Header {
    source: ENEMY,
    destination: VICTIM as u16,
    sequence: 0,
    has_data: false,
    is_last: false,
    is_again: false,
    for_card: false,
    ack: None,
};

fn frame(dialect: Dialect, header: Header, data: &[u8]) -> FrameBytes {
    let mut frame = FrameBytes::from_elem(0, head_bytes(dialect.format));
    frame.extend_from_slice(data);
    Header { has_data: !data.is_empty(), ..header }.finish(dialect, &mut frame);
    frame
}

/// Cards, of which the enemy's is disconnected, and programs that check received messages.
struct Simulation {
    wire: Wire,
    free: Vec<Vec<u64>>,
    /// Messages sent to reachable nodes. `came` counts the received ones.
    sent: u64,
    came: u64,
    /// Sends that the card has not reported.
    unreported: u64,
    told: Vec<(usize, Told)>,
    /// The source node of forged frames; its messages are not counted.
    liar: u16,
}

impl Simulation {
    fn new(assembly: &str) -> Self {
        let mut wire = Wire::new(1, Faults::default(), card(assembly), NODES);
        wire.cut.push(ENEMY.into());
        let free = vec![(0..SEND_PLACES).collect(); usize::from(NODES)];
        let mut simulation =
            Self { wire, free, sent: 0, came: 0, unreported: 0, told: Vec::new(), liar: ENEMY };
        (0..usize::from(NODES)).for_each(|node| simulation.post(node));
        simulation
    }

    fn post(&mut self, node: usize) {
        for place in 0..PLACES {
            assert!(self.wire.receive(node, 0, place, place * PLACE, ROOM));
        }
    }

    fn inject(&mut self, frame: FrameBytes) {
        let frame = frame.into();
        let head = self.wire.now;
        self.wire.handle(VICTIM, Input::Frame { frame: &frame, head, message: None });
        self.read();
    }

    fn send(&mut self, from: usize, to: u16, bytes: u64) -> bool {
        let Some(place) = self.free[from].pop() else { return false };
        let offset = SENDS + place * ROOM;
        self.wire.write(from, offset, &pattern(bytes ^ u64::from(to), bytes as usize));
        assert!(
            self.wire.send(from, POST_TELL_SENT, to, place, offset, bytes),
            "the event queue has room for each send"
        );
        self.unreported += 1;
        self.sent += u64::from(to != ENEMY);
        true
    }

    fn read(&mut self) {
        for node in 0..usize::from(NODES) {
            while let Some(told) = self.wire.event(node) {
                let Told { kind, result, words } = told;
                match kind {
                    POST_EVENT_SENT => {
                        self.unreported -= 1;
                        self.free[node].push(words.user);
                    }
                    POST_EVENT_RECEIVED => {
                        if words.source != u64::from(self.liar) && result == POST_OK {
                            self.came += 1;
                            let found = self.wire.bytes(node, words.user * PLACE, words.bytes);
                            let seed = words.bytes ^ node as u64;
                            assert!(found == pattern(seed, words.bytes as usize), "{told:?}");
                        }
                        let offset = words.user * PLACE;
                        assert!(self.wire.receive(node, 0, words.user, offset, ROOM));
                    }
                    POST_EVENT_REFUSED => panic!("{told:?}"),
                    _ => {}
                }
                self.told.push((node, told));
            }
        }
    }

    /// Reads all events, and posts no receive buffers.
    fn tell_all(&mut self) {
        for node in 0..usize::from(NODES) {
            while let Some(told) = self.wire.event(node) {
                if told.kind == POST_EVENT_SENT {
                    self.unreported -= 1;
                    self.free[node].push(told.words.user);
                }
                self.told.push((node, told));
            }
        }
    }

    /// Number of complete messages received between these pairs of sender and receiver.
    fn others_came(&self, pairs: &[(usize, u16)]) -> usize {
        let is_theirs = |node: usize, source: u64| pairs.contains(&(source as usize, node as u16));
        let came = self.told.iter().filter(|(node, Told { kind, result, words })| {
            (*kind, *result) == (POST_EVENT_RECEIVED, POST_OK) && is_theirs(*node, words.source)
        });
        came.count()
    }

    fn settle(&mut self) {
        let mut steps = 0;
        while self.wire.step() {
            self.read();
            steps += 1;
            assert!(steps < MAX_STEPS, "it never rests");
        }
        self.read();
    }

    /// Opens a port for a new program at a node, with all of its buffers free.
    fn open_again(&mut self, node: usize) {
        self.unreported -= SEND_PLACES - self.free[node].len() as u64;
        self.free[node] = (0..SEND_PLACES).collect();
        self.wire.open(node);
        self.post(node);
    }

    /// All nodes but the enemy exchange messages, and all of them arrive.
    fn exchange(&mut self) {
        (self.sent, self.came) = (0, 0);
        for round in 0..30 {
            for from in 0..usize::from(ENEMY) {
                let to = (from as u16 + 1 + round % 2) % ENEMY;
                self.send(from, to, 4 * (1 + u64::from(round) * 33));
            }
            self.wire.step();
            self.read();
        }
        self.settle();
        assert_eq!((self.came, self.unreported), (self.sent, 0), "{:#?}", self.counters());
    }

    fn counters(&self) -> Counters {
        *self.wire.hosts[VICTIM].nic.counters()
    }

    /// Checks that nothing was written between the receive buffers.
    fn check_gaps(&self) {
        for (node, host) in self.wire.hosts.iter().enumerate() {
            for place in 0..PLACES {
                let gap = &host.memory[(REGION + place * PLACE + ROOM) as usize..][..(PLACE - ROOM) as usize];
                assert!(gap.iter().all(|byte| *byte == 0), "node {node}, after receive buffer {place}");
            }
        }
    }
}

/// The increment of one counter by one frame. Valid messages arrive before and after the frame.
fn counted(assembly: &str, frame: FrameBytes, count: impl Fn(&Counters) -> u64) -> u64 {
    let mut simulation = Simulation::new(assembly);
    simulation.exchange();
    let before = count(&simulation.counters());
    simulation.inject(frame);
    simulation.settle();
    let after = count(&simulation.counters());
    simulation.exchange();
    simulation.check_gaps();
    after - before
}

#[test]
fn frames_that_are_not_packets_are_counted_by_kind() {
    for name in ASSEMBLIES {
        let dialect = dialect(name);
        let head = head_bytes(dialect.format);
        let data = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        let sound = frame(dialect, PLAIN, &data);
        let with = |change: &dyn Fn(&mut FrameBytes)| {
            let mut frame = FrameBytes::from_slice(&sound[..sound.len() - 4]);
            change(&mut frame);
            seal(&mut frame);
            frame
        };
        let malformed =
            |frame| assert_eq!(counted(name, frame, |counters| counters.card.malformed), 1, "{name}");
        // Shorter and longer than its header says; shorter than a header; an unknown source node; another destination;
        // and a wrong Ethernet source.
        malformed(with(&|frame| frame.truncate(head + 4)));
        malformed(with(&|frame| frame.extend_from_slice(&[0; 4])));
        malformed(with(&|frame| frame.truncate(head - 4)));
        malformed(frame(dialect, Header { source: NODES, ..PLAIN }, &data));
        malformed(frame(dialect, Header { destination: 0, ..PLAIN }, &data));
        malformed(with(&|frame| frame[11] ^= 1));
        let counts =
            |frame, count: fn(&Counters) -> u64| assert_eq!(counted(name, frame, count), 1, "{name}");
        counts(with(&|frame| frame[16] ^= 1), |counters| counters.other_assembly);
        counts(with(&|frame| frame[15] ^= 3), |counters| counters.other_assembly);
        counts(with(&|frame| frame[14] = 6), |counters| counters.card.foreign_frames);
        let mut damaged = sound.clone();
        damaged[head] ^= 1;
        counts(damaged, |counters| counters.card.damaged);
    }
}

#[test]
fn acknowledgements_of_unsent_packets_change_nothing() {
    for name in ["conf2", "conf3", "conf4", "selective_repeat"] {
        let stray = |ack| {
            let mut simulation = Simulation::new(name);
            (0..40).for_each(|_| assert!(simulation.send(VICTIM, ENEMY, 2_800)));
            for _ in 0..5 {
                simulation.inject(frame(dialect(name), Header { ack: Some(ack), ..PLAIN }, &[]));
                simulation.wire.step();
            }
            simulation.settle();
            // No message was acknowledged. All fail once the retries are used up, and all memory is returned.
            let failed = |(_, told): &&(usize, Told)| {
                (told.kind, told.result) == (POST_EVENT_FAILED, POST_UNREACHABLE)
            };
            assert_eq!(simulation.told.iter().filter(failed).count(), 40, "{name} {ack:?}");
            assert_eq!(simulation.unreported, 0);
            let stray = simulation.counters().stray_acknowledgements;
            simulation.exchange();
            stray
        };
        let before = u32::MAX;
        assert_eq!(stray(Ack { base: 5_000, mask: 0 }), 5, "{name}");
        assert_eq!(stray(Ack { base: 99, mask: u32::MAX }), 5, "{name}");
        // The lowest bit belongs to the missing packet.
        assert_eq!(stray(Ack { base: before, mask: 1 }), 5, "{name}");
        assert_eq!(stray(Ack { base: before, mask: u32::MAX }), 5, "{name}");
        assert_eq!(stray(Ack { base: before, mask: 0 }), 0, "{name}");
    }
}

/// A packet that names its message and its number within the message.
fn placed(dialect: Dialect, sequence: u32, is_last: bool, message: u32, packet: u32) -> FrameBytes {
    let data = [&message.to_be_bytes()[..], &packet.to_be_bytes(), &[0xee; 64]].concat();
    frame(dialect, Header { sequence, is_last, ..PLAIN }, &data)
}

#[test]
fn a_message_is_complete_only_with_all_of_its_packets() {
    for name in ["conf1", "conf2", "conf3"] {
        let mut simulation = Simulation::new(name);
        for (sequence, (is_last, packet)) in
            [(true, u32::MAX), (false, u32::MAX), (true, 7)].into_iter().enumerate()
        {
            simulation.inject(placed(dialect(name), sequence as u32, is_last, 1, packet));
        }
        simulation.settle();
        assert_eq!(simulation.told, [], "{name}");
        // Later messages of the node end the incomplete one.
        (2..70).for_each(|message| simulation.inject(placed(dialect(name), message + 1, true, message, 0)));
        simulation.settle();
        let incomplete = simulation.told.iter().filter(|(_, told)| told.result == POST_INCOMPLETE).count();
        assert_eq!((incomplete, simulation.told.len()), (1, 69), "{name}");
        simulation.exchange();
        simulation.check_gaps();
    }
}

#[test]
fn unfinished_messages_hold_a_limited_number_of_buffers() {
    for name in ["conf1", "conf2", "conf3"] {
        let mut simulation = Simulation::new(name);
        let numbers = [0, 1, u32::MAX, 1 << 31, (1 << 31) + 1, u32::MAX / 3, 65, 64];
        for (sequence, message) in
            (0..2_000_u32).map(|at| at.wrapping_mul(numbers[at as usize % 8])).enumerate()
        {
            simulation.inject(placed(dialect(name), sequence as u32, false, message, 1));
        }
        simulation.settle();
        simulation.exchange();
        simulation.check_gaps();
    }
}

#[test]
fn memory_of_waiting_and_retained_packets_is_returned() {
    for name in ["conf2", "conf4", "selective_repeat"] {
        let mut simulation = Simulation::new(name);
        // Many times 4 MiB of packets to an unreachable node.
        for _ in 0..160 {
            (0..20).for_each(|_| assert!(simulation.send(VICTIM, ENEMY, 4_000)));
            simulation.settle();
            assert_eq!(simulation.free[VICTIM].len() as u64, SEND_PLACES);
        }
        assert_eq!(simulation.counters().unreachable, 160 * 20, "{name}");
        simulation.exchange();
    }
    // A program posts no receive buffers until the card's memory is full, and then ends.
    let mut simulation = Simulation::new("conf1");
    let close = request(OP_PORT_CLOSE, &PortName { port: 0, reserved: 0 });
    let mut waits = |first: u32| {
        assert_eq!(simulation.wire.control(VICTIM, &close).0, 0);
        simulation.wire.open(VICTIM);
        let before = simulation.counters().card.overruns;
        for number in first..first + 8_000 {
            simulation.inject(placed(dialect("conf1"), number, true, number, 0));
        }
        simulation.counters().card.overruns - before
    };
    let first = waits(0);
    assert!(first > 0);
    assert_eq!(waits(8_000), first);
    assert_eq!(simulation.wire.control(VICTIM, &close).0, 0);
    simulation.open_again(VICTIM);
    simulation.exchange();
}

/// An attack between valid messages.
#[derive(Clone, Debug)]
enum Attack {
    Frame(Vec<u8>),
    /// A message of this length to an unreachable node.
    Send(u64),
    Steps(u8),
}

fn any_header(dialect: Dialect, liar: u16) -> impl Strategy<Value = Vec<u8>> {
    let edge = || {
        let half = (0..40_u32).prop_map(|back| 0x80_0000 - back);
        prop_oneof![4 => 0..40_u32, 1 => any::<u32>(), 1 => Just(u32::MAX), 1 => half]
    };
    let ack = prop::option::of((edge(), prop_oneof![Just(u32::MAX), Just(0), any::<u32>()]));
    // As long as packets are, longer, and as long as the header can express.
    let units = prop_oneof![4 => 0..200_usize, 1 => 350..360_usize, 1 => 500..511_usize];
    let word = (edge(), edge(), units, any::<bool>());
    (edge(), any::<[bool; 3]>(), ack, word, 0..20_u8).prop_map(
        move |(sequence, [is_last, is_again, for_card], ack, (message, packet, units, has_data), odd)| {
            let source = if odd == 0 { NODES } else { liar };
            let destination = if odd == 1 { 2 } else { VICTIM as u16 };
            let dialect = if odd == 2 { Dialect { assembly: !dialect.assembly, ..dialect } } else { dialect };
            let ack = ack.map(|(base, mask)| Ack { base, mask });
            let data = [&message.to_be_bytes()[..], &packet.to_be_bytes(), &[0xee; 2_048]].concat();
            let data = if has_data { &data[..4 * (1 + units)] } else { &[] };
            let header = Header { source, destination, sequence, is_last, is_again, for_card, ack, ..PLAIN };
            frame(dialect, header, data).to_vec()
        },
    )
}

/// Frames, most of them with a correct check sequence.
fn any_frame(name: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let damaged = (any_header(dialect(name), ENEMY), any::<prop::sample::Index>(), 1..256_u16).prop_map(
        |(frame, place, flip)| {
            let mut frame = FrameBytes::from_slice(&frame[..frame.len() - 4]);
            // The Ethernet header stays intact; another test forges its source.
            let place = 14 + place.index(frame.len() - 14);
            frame[place] ^= flip as u8;
            seal(&mut frame);
            frame.to_vec()
        },
    );
    let noise = prop::collection::vec(any::<u8>(), 0..200).prop_map(move |bytes| {
        let head = frame(dialect(name), PLAIN, &[]);
        let mut frame = FrameBytes::from_slice(&head[..18]);
        frame.extend_from_slice(&bytes);
        seal(&mut frame);
        frame.to_vec()
    });
    let bytes = prop::collection::vec(any::<u8>(), 0..80);
    prop_oneof![8 => any_header(dialect(name), ENEMY), 2 => damaged, 1 => noise, 1 => bytes]
}

fn any_attack(name: &'static str) -> impl Strategy<Value = Attack> {
    prop_oneof![
        20 => any_frame(name).prop_map(Attack::Frame),
        4 => (0..12_u8).prop_map(Attack::Steps),
        2 => (1..1_000_u64).prop_map(|units| Attack::Send(4 * units)),
    ]
}

fn attacks() -> impl Strategy<Value = (&'static str, Vec<Attack>)> {
    prop::sample::select(ASSEMBLIES.to_vec())
        .prop_flat_map(|name| (Just(name), prop::collection::vec(any_attack(name), 1..120)))
}

impl Simulation {
    fn suffer(&mut self, attack: Attack) {
        match attack {
            Attack::Frame(bytes) => self.inject(FrameBytes::from_slice(&bytes)),
            Attack::Steps(count) => (0..count).for_each(|_| {
                self.wire.step();
                self.read();
            }),
            Attack::Send(bytes) => {
                self.send(VICTIM, ENEMY, bytes);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn an_adversarial_node_does_not_stop_other_messages((name, attacks) in attacks()) {
        let mut simulation = Simulation::new(name);
        for (attack, turn) in attacks.into_iter().zip(0_u16..) {
            let from = usize::from(turn % 3);
            simulation.send(from, (from as u16 + 1 + turn % 2) % ENEMY, 4 * (1 + u64::from(turn) * 37 % 990));
            simulation.suffer(attack);
        }
        simulation.settle();
        let counters = simulation.counters();
        prop_assert_eq!((simulation.came, simulation.unreported), (simulation.sent, 0), "{}: {:#?}", name, counters);
        simulation.exchange();
        simulation.check_gaps();
    }

    /// On such a network only the frame itself names its sender. A receiver of forged frames may lose the messages
    /// between itself and the forged source node, but no others.
    #[test]
    fn a_forged_source_node_affects_only_that_pair_of_nodes(
        (name, frames) in prop::sample::select(ASSEMBLIES.to_vec())
            .prop_flat_map(|name| (Just(name), prop::collection::vec(any_header(dialect(name), 0), 1..80))),
    ) {
        let mut simulation = Simulation::new(name);
        simulation.liar = 0;
        let pairs = [(2, 1), (1, 2), (0, 2), (2, 0), (0, 1), (1, 0)];
        let mut sent = 0;
        for (turn, frame) in frames.into_iter().enumerate() {
            let (from, to) = pairs[turn % pairs.len()];
            simulation.send(from, to, 4 * (1 + turn as u64 * 37 % 990));
            sent += usize::from(turn % pairs.len() < 4);
            simulation.inject(FrameBytes::from_slice(&frame));
            simulation.wire.step();
        }
        // Messages between these two may be retransmitted forever: the receiver is reachable, but never takes them.
        simulation.read();
        let mut steps = 0;
        while simulation.others_came(&pairs[..4]) < sent {
            prop_assert!(simulation.wire.step() && steps < 50_000, "{}: {:#?}", name, simulation.counters());
            simulation.read();
            steps += 1;
        }
        simulation.check_gaps();
    }
}

/// The group of the well-behaved nodes, and groups with the enemy: above the victim, below it, and below another node.
const FRIENDS: u32 = 5;
const FOES: [(u32, [u32; 4]); 3] = [(6, [3, 1, 0, 2]), (7, [1, 3, 0, 2]), (8, [0, 2, 1, 3])];
const VALUES: (u64, u64) = (SENDS + SEND_PLACES * ROOM, 800);

/// A collective packet of a card.
fn any_word() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop_oneof![3 => Just(1_u32), 20 => 1..10_u32, 1 => any::<u8>().prop_map(u32::from)];
    let codes = prop_oneof![Just(0_u32), Just(POST_SUM << 4 | POST_UNSIGNED_64), 7..14_u32, 0..256_u32];
    let small = |most: u32| prop_oneof![20 => 0..most, 1 => any::<u32>()];
    let totals = prop_oneof![Just(0_u32), Just(800), Just(8), Just(65_536), any::<u32>()];
    let data = prop_oneof![Just(0_usize), Just(8), Just(800), (0..300_usize).prop_map(|units| 4 * units)];
    let names = (5..9_u32, small(5), 1..3_u32);
    (kinds, codes, small(4), names, small(6), small(4), totals, data).prop_map(
        |(kind, code, root, (group, to, from), sequence, number, total, bytes)| {
            let first = kind << 24 | code << 16 | (root & 0xffff);
            let words = [first, group, to, from, sequence, number, total];
            let mut word: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            word.resize(word.len() + bytes, 0xee);
            word
        },
    )
}

impl Simulation {
    /// The well-behaved nodes sum their values, and all get the right result.
    fn add_up(&mut self, round: u64, between: &[Vec<u8>], name: &str, said: &mut u32) {
        let (offset, bytes) = VALUES;
        let values = |node: usize| (0..bytes / 8).map(move |at| at * 7 + round + node as u64);
        for node in 0..usize::from(ENEMY) {
            let bytes: Vec<u8> = values(node).flat_map(u64::to_le_bytes).collect();
            self.wire.write(node, offset, &bytes);
        }
        let mut between = between.iter();
        for node in 0..usize::from(ENEMY) {
            assert!(self.wire.reduce(node, 0, round, FRIENDS, VALUES, (POST_SUM, POST_UNSIGNED_64)));
            for word in between.by_ref().take(3) {
                let header = Header { sequence: *said, is_last: true, for_card: true, ..PLAIN };
                *said += 1;
                self.inject(frame(dialect(name), header, word));
            }
            self.wire.step();
        }
        let is_done =
            |told: &(usize, Told)| (told.1.kind, told.1.words.source) == (POST_EVENT_DONE, FRIENDS.into());
        let mut steps = 0;
        while self.told.iter().filter(|told| is_done(told)).count() < usize::from(ENEMY) {
            assert!(
                self.wire.step() && steps < MAX_STEPS,
                "{name}: the reduction of the well-behaved nodes completes"
            );
            self.read();
            steps += 1;
        }
        assert!(self.told.iter().filter(|told| is_done(told)).all(|(_, told)| told.result == POST_OK));
        self.told.retain(|told| !is_done(told));
        let sums = (0..bytes / 8).map(|at| (at * 7 + round) * 3 + 3);
        let expected: Vec<u8> = sums.flat_map(u64::to_le_bytes).collect();
        for node in 0..usize::from(ENEMY) {
            assert!(self.wire.bytes(node, offset, bytes) == expected, "{name}: round {round} at {node}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn an_adversarial_card_does_not_stop_other_groups(
        name in prop::sample::select(RELIABLE.to_vec()),
        words in prop::collection::vec(any_word(), 1..80),
    ) {
        let mut simulation = Simulation::new(name);
        let mut said = 0;
        for node in 0..usize::from(ENEMY) {
            prop_assert_eq!(simulation.wire.group(node, FRIENDS, &[2, 0, 1]), 0);
            for (group, members) in FOES {
                prop_assert_eq!(simulation.wire.group(node, group, &members), 0);
                simulation.wire.barrier(node, 0, 0, group);
            }
        }
        for (words, round) in words.chunks(9).zip(0..) {
            simulation.add_up(round, words, name, &mut said);
        }
        simulation.settle();
        prop_assert_eq!(simulation.unreported, 0);
        // Operations that waited for the enemy have ended.
        let over = simulation.told.iter().filter(|(_, told)| told.kind == POST_EVENT_DONE).count();
        prop_assert_eq!(over, usize::from(ENEMY) * FOES.len(), "{:?}", simulation.told);
        simulation.exchange();
        simulation.check_gaps();
        simulation.add_up(1_000, &[], name, &mut said);
    }
}

#[test]
fn messages_of_unknown_groups_fill_no_memory() {
    for name in ["conf3", "conf4"] {
        let ready = |group: u32| {
            [1 << 24, group, 0, 9, 0, 0, 0]
                .iter()
                .flat_map(|word: &u32| word.to_be_bytes())
                .collect::<Vec<_>>()
        };
        let strays = |count: u32| {
            let mut simulation = Simulation::new(name);
            for (group, sequence) in (0..count).zip(0..) {
                let header = Header { sequence, is_last: true, for_card: true, ..PLAIN };
                simulation.inject(frame(dialect(name), header, &ready(group)));
            }
            simulation.settle();
            let strays = simulation.counters().collective_strays;
            simulation.exchange();
            strays
        };
        assert_eq!((strays(16), strays(17), strays(500)), (0, 1, 484), "{name}");
    }
}

/// The enemy as a member of a group with the victim. It sends collective packets one by one.
struct Liar {
    simulation: Simulation,
    frames: u32,
}

impl Liar {
    fn new(members: &[u32]) -> Self {
        let mut simulation = Simulation::new("conf4");
        assert_eq!(simulation.wire.group(VICTIM, FRIENDS, members), 0);
        Self { simulation, frames: 0 }
    }

    /// Sends a packet. Returns the number of strays that the victim counts for it.
    fn say(&mut self, words: [u32; 7], bytes: usize) -> u64 {
        let mut word: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        word.resize(word.len() + bytes, 0xee);
        let before = self.simulation.counters().collective_strays;
        let header = Header { sequence: self.frames, is_last: true, for_card: true, ..PLAIN };
        self.frames += 1;
        self.simulation.inject(frame(dialect("conf4"), header, &word));
        self.simulation.counters().collective_strays - before
    }

    fn done(&self) -> Vec<u32> {
        let done = |told: &Told| (told.kind == POST_EVENT_DONE).then_some(told.result);
        self.simulation.told.iter().filter_map(|(_, told)| done(told)).collect()
    }
}

/// The checksum over members, as a card computes it.
fn check_of(members: &[u32]) -> u32 {
    members.iter().fold(0x811c_9dc5, |sum: u32, member| (sum ^ member).wrapping_mul(0x0100_0193))
}

#[test]
fn unexpected_collective_packets_are_counted_and_ignored() {
    let (ready, start, up, down, cast, reset) = (1 << 24, 2 << 24, 3 << 24, 4 << 24, 5 << 24, 9 << 24);
    // The enemy is below the victim in the tree; this is the victim's first membership of the group.
    let members = [VICTIM as u32, ENEMY.into(), 0];
    let mut liar = Liar::new(&members);
    assert_eq!(liar.say([ready, FRIENDS, 0, 9, 0, 0, check_of(&members)], 0), 0);
    let third = Header { source: 0, sequence: 0, is_last: true, for_card: true, ..PLAIN };
    let word = [ready, FRIENDS, 0, 7, 0, 0, check_of(&members)].into_iter().flat_map(u32::to_be_bytes);
    liar.simulation.inject(frame(dialect("conf4"), third, &word.collect::<Vec<u8>>()));
    assert!(liar.simulation.wire.barrier(VICTIM, 0, 0, FRIENDS));
    for wrong in [
        [up, FRIENDS, 2, 9, 1, 0, 0],
        [up, FRIENDS, 1, 8, 1, 0, 0],
        [up, FRIENDS + 1, 1, 9, 1, 0, 0],
        [up, FRIENDS, 1, 9, 66, 0, 0],
    ] {
        assert_eq!(liar.say(wrong, 0), 1, "{wrong:?}");
    }
    // Too many operations ahead; a result from a child; a root that is not on this side of the tree; the victim itself
    // as root; and a number out of order.
    assert_eq!(liar.say([up, FRIENDS, 1, 9, 1, 4, 0], 0), 1);
    assert_eq!(liar.say([down, FRIENDS, 1, 9, 2, 0, 0], 0), 1);
    assert_eq!(liar.say([cast, FRIENDS, 1, 9, 3, 0, 8], 8), 1);
    assert_eq!(liar.say([cast | 1, FRIENDS, 1, 9, 4, 0, 8], 8), 1);
    assert_eq!(liar.say([cast | 3, FRIENDS, 1, 9, 5, 1, 8], 8), 1);
    assert_eq!(liar.say([up, FRIENDS, 1, 9, 6, 0, 0], 0), 0);
    assert_eq!(liar.say([up, FRIENDS, 1, 9, 7, 0, 0], 0), 1, "twice");
    assert_eq!(liar.done(), []);
    assert_eq!((liar.say([reset, FRIENDS, 1, 9, 0, 0, 0], 0), liar.done().len()), (0, 0));
    assert_eq!((liar.say([reset, FRIENDS, 1, 9, 0, 0, 0], 0), liar.done().len()), (0, 1));
    // The enemy is above the victim, which has node 2 below it. The enemy sends a result before the victim's value.
    let members = [ENEMY.into(), VICTIM as u32, 0, 2];
    let mut liar = Liar::new(&members);
    assert_eq!(liar.say([start, FRIENDS, 9, 9, 0, 0, 0], 0), 1);
    let below = Header { source: 2, sequence: 0, is_last: true, for_card: true, ..PLAIN };
    let word = [ready, FRIENDS, 0, 7, 0, 0, check_of(&members)].into_iter().flat_map(u32::to_be_bytes);
    liar.simulation.inject(frame(dialect("conf4"), below, &word.collect::<Vec<u8>>()));
    assert_eq!(liar.say([start, FRIENDS, 1, 9, 0, 0, 0], 0), 0);
    assert!(liar.simulation.wire.reduce(VICTIM, 0, 0, FRIENDS, VALUES, (POST_SUM, POST_UNSIGNED_64)));
    let code = (POST_SUM << 4 | POST_UNSIGNED_64) << 16;
    assert_eq!(liar.say([down | code, FRIENDS, 1, 9, 1, 0, 800], 800), 1);
    assert_eq!(liar.done(), []);
    assert!(liar.simulation.wire.bytes(VICTIM, VALUES.0, VALUES.1).iter().all(|byte| *byte == 0));
}
