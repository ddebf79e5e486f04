//! GRIM cards against a hostile program and a hostile card. Invalid slots are refused and invalid frames are counted by
//! kind. Card memory stays bounded, host memory is written only where the program gave it, and other channels' messages
//! arrive.

use std::collections::BTreeMap;

use niclab_abi::grim::{
    CHANNEL_BULK, CHANNEL_INTERRUPT, CHANNEL_MEMORY, CHANNEL_NOTIFY, CHANNEL_SEGMENT, CHANNEL_SHORT,
};
use niclab_abi::receive::{REFUSED_HEADER, REFUSED_PAYLOAD, REFUSED_SEGMENT, REFUSED_TARGET};
use niclab_model::models::grim::Config;
use niclab_model::models::grim::wire::{Failures, Fragment, FrameKind, Header, Purpose, seal};
use niclab_model::nic::{FrameBytes, Input, Nic, PageStore};
use niclab_model::parts::sequence::Sequence;
use niclab_model::time::Span;
use proptest::prelude::*;

use crate::support::grim::{Faults, Message, Opening, To, Wire, config};
use crate::support::matching::pattern;

const NODES: u16 = 4;
/// The node in whose name the tests forge frames. The wire delivers nothing to its own card.
const ENEMY: u16 = 3;
/// The node that receives the forged frames, at its first endpoint.
const VICTIM: usize = 1;
const REGION: u64 = 48 << 10;
const MAX_STEPS: u32 = 100_000;
/// Bytes of the victim's inbound memory.
const INBOUND: u64 = 20_000;
const OPENING: Opening = Opening { slices: 8, payload_bytes: 8_192, exposed_bytes: 16 << 10 };

fn card(node: u16) -> Config {
    let card = config(node, NODES.into());
    let outbound = u64::from(card.channels) * (u64::from(card.headers) * 32 + card.payload_bytes);
    Config { card_memory_bytes: outbound + INBOUND, ..card }
}

struct Simulation {
    wire: Wire,
    /// The sequence number that the victim announced as its next one, by channel.
    next: BTreeMap<u8, u32>,
}

impl Simulation {
    fn new() -> Self {
        let mut wire = Wire::new(1, Faults::default(), NODES, card);
        for node in 0..usize::from(NODES) {
            (0..2).for_each(|port| wire.open(node, port, OPENING));
        }
        wire.cut.insert(ENEMY.into());
        wire.record = Some(Vec::new());
        Self { wire, next: BTreeMap::new() }
    }

    fn count(&self, name: &str) -> u64 {
        self.wire.hosts[VICTIM].counter(name)
    }

    fn listen(&mut self) {
        for sent in self.wire.record.as_mut().unwrap().drain(..).filter(|sent| sent.from == VICTIM) {
            let (header, _) = Header::parse(&sent.frame).expect("a card sends valid frames");
            let is_answer = matches!(header.kind, FrameKind::Acknowledgement(_) | FrameKind::Refusal(_));
            if is_answer && header.destination == ENEMY {
                self.next.insert(header.channel, header.sequence);
            }
        }
    }

    /// Delivers a frame of the enemy, and checks the bounds of card memory and outputs.
    fn inject(&mut self, frame: FrameBytes) {
        self.wire.inject(VICTIM, &frame.into());
        let held = self.count("queue_bytes_taken") - self.count("queue_bytes_freed");
        assert!(held <= INBOUND, "{held} bytes of card memory");
        // At most all waiting messages are stored, each with a slice.
        assert!(self.wire.outputs < 600, "{} outputs", self.wire.outputs);
        self.listen();
    }

    /// The other nodes exchange messages, and all of them arrive. `without` names an endpoint of the victim to leave
    /// out.
    fn exchange(&mut self, without: Option<u32>) {
        let mut expected = 0;
        let mut came = 0;
        for round in 0..6_usize {
            for (from, port) in (0..usize::from(ENEMY)).flat_map(|from| [(from, 0), (from, 1)]) {
                let to = (from + 1 + round % 2) % usize::from(ENEMY);
                let endpoint = (port + round as u32) % 2;
                let is_left_out = without
                    .is_some_and(|left| (to, endpoint) == (VICTIM, left) || (from, port) == (VICTIM, left));
                if is_left_out {
                    continue;
                }
                let arguments = [0xfeed, from as u32, port, round as u32];
                let to_handler = To::Handler { handler: 30, arguments };
                let payload = pattern(7, round * 900);
                let (node, endpoint) = (to as u16, endpoint as u16);
                let message =
                    Message { node, endpoint, to: to_handler, payload, segment: 32, interrupt: false };
                while !self.wire.send(from, port, &message, REGION) {
                    assert!(self.wire.step(), "room becomes free");
                    came += self.read(without);
                }
                expected += 1;
            }
        }
        came += self.settle(without);
        assert_eq!(came, expected);
        self.wire.record.as_mut().unwrap().clear();
    }

    /// Reads all messages. Returns the number of those that belong to an exchange.
    fn read(&mut self, without: Option<u32>) -> u32 {
        let mut came = 0;
        for (node, port) in (0..usize::from(ENEMY)).flat_map(|node| [(node, 0), (node, 1)]) {
            while let Some(found) = self.wire.receive(node, port) {
                if found.handler == 30 && found.arguments[0] == 0xfeed && found.node != ENEMY {
                    assert!(found.payload == pattern(7, found.payload.len()));
                    came += 1;
                }
                if (node, Some(port)) != (VICTIM, without) {
                    self.wire.release(node, port);
                }
            }
        }
        came
    }

    fn settle(&mut self, without: Option<u32>) -> u32 {
        let (mut came, mut steps, begin) = (0, 0, self.wire.now);
        loop {
            let before = came;
            came += self.read(without);
            // The card retransmits forever to the enemy, which never acknowledges.
            let is_over = self.wire.now.since(begin) > Span::from_ns(60_000_000);
            if (!self.wire.step() || is_over) && before == came {
                return came;
            }
            steps += 1;
            assert!(steps < MAX_STEPS, "it never rests");
        }
    }

    /// The enemy abandons its unfinished messages, and a new program opens the first port.
    fn fix(&mut self) {
        for channel in 0..=u8::MAX {
            let sequence = self.next.get(&channel).copied().unwrap_or(0);
            self.inject(frame(header(channel, sequence, FrameKind::Void), &[]));
        }
        self.wire.close(VICTIM, 0);
        self.settle(None);
        self.wire.open(VICTIM, 0, OPENING);
        self.settle(None);
        self.exchange(None);
        let held = self.count("queue_bytes_taken") - self.count("queue_bytes_freed");
        assert_eq!(held, 0, "card memory is leaked");
    }
}

fn header(channel: u8, sequence: u32, kind: FrameKind) -> Header {
    let (source, destination) = (ENEMY, VICTIM as u16);
    let asks = matches!(kind, FrameKind::Message(_) | FrameKind::Void | FrameKind::Report(_));
    Header { source, destination, channel, kind, asks, sequence }
}

fn failures(owner: u8, count: u32, reason: u8) -> Failures {
    Failures { owner, count: Sequence::new(count), reason }
}

fn frame(header: Header, payload: &[u8]) -> FrameBytes {
    let mut frame = header.head();
    frame.extend_from_slice(payload);
    seal(&mut frame);
    frame
}

fn fragment(bytes: u32) -> Fragment {
    let purpose = Purpose::Handler { handler: 77, arguments: [1, 2, 3, 4] };
    Fragment { endpoint: 0, purpose, interrupt: false, offset: 0, bytes, owner: 0 }
}

#[test]
fn invalid_frames_are_counted_by_kind() {
    let sound = frame(header(2, 0, FrameKind::Message(fragment(100))), &[1; 100]);
    let with = |change: &dyn Fn(&mut FrameBytes)| {
        let mut frame = FrameBytes::from_slice(&sound[..sound.len() - 4]);
        change(&mut frame);
        seal(&mut frame);
        frame
    };
    let malformed = [
        with(&|frame| frame.truncate(60)),
        with(&|frame| frame.truncate(20)),
        with(&|frame| frame.extend_from_slice(&[0])),
        with(&|frame| frame[15] = 0x70),
        with(&|frame| frame[15] |= 8),
        with(&|frame| frame[11] ^= 1),
        frame(Header { source: NODES, ..header(2, 0, FrameKind::Message(fragment(100))) }, &[1; 100]),
        frame(Header { destination: 2, ..header(2, 0, FrameKind::Message(fragment(100))) }, &[1; 100]),
        frame(header(64, 0, FrameKind::Message(fragment(100))), &[1; 100]),
        frame(header(2, 0, FrameKind::Message(Fragment { offset: 1, ..fragment(100) })), &[1; 100]),
        frame(header(2, 0, FrameKind::Message(fragment((48 << 10) + 1))), &[1; 100]),
        frame(header(2, 0, FrameKind::Void), &[1]),
        frame(header(2, 0, FrameKind::Report(failures(0, 1, 10))), &[]),
    ];
    for wrong in malformed {
        let mut simulation = Simulation::new();
        simulation.inject(wrong.clone());
        let card = simulation.wire.hosts[VICTIM].nic.nic.counters().card;
        // A report about messages that were not sent still counts in the sequence and is acknowledged.
        assert_eq!(
            (card.malformed, simulation.wire.outputs.min(1)),
            (1, usize::from(wrong[15] >> 4 == 6)),
            "{wrong:02x?}"
        );
    }
    let mut damaged = sound.clone();
    damaged[70] ^= 1;
    let mut simulation = Simulation::new();
    simulation.inject(damaged);
    simulation.inject(with(&|frame| frame[14] = 7));
    let card = simulation.wire.hosts[VICTIM].nic.nic.counters().card;
    assert_eq!((card.damaged, card.foreign_frames, card.malformed), (1, 1, 0));
    simulation.inject(sound);
    assert_eq!(simulation.wire.receive(VICTIM, 0).unwrap().payload, [1; 100]);
}

#[test]
fn inconsistent_fragments_end_their_message_and_are_counted() {
    let part = |offset, bytes| Fragment { offset, ..fragment(bytes) };
    let wrong = [
        part(50, 300),
        part(101, 300),
        part(0, 300),
        part(100, 301),
        Fragment { endpoint: 1, ..part(100, 300) },
        part((48 << 10) - 100, 48 << 10),
    ];
    for second in wrong {
        let mut simulation = Simulation::new();
        simulation.inject(frame(header(2, 0, FrameKind::Message(part(0, 300))), &[1; 100]));
        simulation.inject(frame(header(2, 1, FrameKind::Message(second)), &[2; 100]));
        simulation.inject(frame(header(2, 2, FrameKind::Message(part(200, 300))), &[3; 100]));
        simulation.inject(frame(header(2, 3, FrameKind::Message(fragment(0))), &[]));
        let came = simulation.wire.receive(VICTIM, 0).expect("the next message comes");
        assert_eq!((came.payload.len(), simulation.wire.receive(VICTIM, 0)), (0, None), "{second:?}");
        let card = simulation.wire.hosts[VICTIM].nic.nic.counters().card;
        // A fragment that restarts its message is counted as malformed, too.
        assert_eq!(
            card.malformed,
            u64::from(second.offset > 0) + u64::from(second.offset == 0),
            "{second:?}"
        );
        simulation.wire.release(VICTIM, 0);
        simulation.exchange(None);
        simulation.wire.check_memory();
    }
}

#[test]
fn invalid_failure_counts_are_counted_but_not_reported() {
    let mut simulation = Simulation::new();
    let to = To::Handler { handler: 30, arguments: [0; 4] };
    let message = Message { node: ENEMY, endpoint: 0, to, payload: Vec::new(), segment: 0, interrupt: false };
    (0..8).for_each(|_| assert!(simulation.wire.send(VICTIM, 0, &message, REGION)));
    simulation.settle(None);
    let report = |simulation: &Simulation| {
        let line = simulation.wire.hosts[VICTIM].line(0);
        (line.refused, line.refusal, simulation.wire.hosts[VICTIM].nic.nic.counters().card.malformed)
    };
    // Owner, failure count and reason of the acknowledgement; then the program's status line. Eight messages have
    // begun.
    let answers = [
        (0, 9, 10, (0, 0, 1)),
        (0, 0xff_ffff, 10, (0, 0, 1)),
        (0, 0x7f_ffff, 10, (0, 0, 2)),
        (1, 3, 10, (0, 0, 2)),
        (0, 3, 0xff, (3, 0xff, 2)),
        (0, 1, 10, (3, 0xff, 2)),
        (0, 8, 10, (8, 10, 2)),
    ];
    for (sequence, (owner, count, reason, expected)) in (1..).zip(answers) {
        let kind = FrameKind::Acknowledgement(failures(owner, count, reason));
        simulation.inject(frame(header(0, sequence, kind), &[]));
        assert!(simulation.wire.outputs < 10, "{}", simulation.wire.outputs);
        assert_eq!(report(&simulation), expected, "{owner} {count}");
    }
    assert_eq!(simulation.wire.hosts[VICTIM].line(0).sent, 7);
    // A report is taken once and in its order. Its count must not exceed the messages sent.
    for (sequence, count, expected) in
        [(1, 8, (8, 10, 2)), (0, 8, (8, 10, 2)), (0, 9, (8, 10, 2)), (1, 9, (8, 10, 3))]
    {
        simulation.inject(frame(header(0, sequence, FrameKind::Report(failures(0, count, 12))), &[]));
        assert_eq!(report(&simulation), expected, "{count}");
    }
    // The next owner gets no report of earlier messages.
    simulation.wire.close(VICTIM, 0);
    simulation.wire.open(VICTIM, 0, OPENING);
    simulation.inject(frame(header(0, 2, FrameKind::Report(failures(0, 1, 12))), &[]));
    simulation.inject(frame(header(0, 3, FrameKind::Report(failures(1, 1, 12))), &[]));
    assert_eq!(report(&simulation), (0, 0, 4));
    simulation.exchange(Some(0));
}

#[test]
fn unfinished_messages_return_room_that_others_wait_for() {
    let mut simulation = Simulation::new();
    // Unfinished messages take all slices and nearly all of the payload region.
    for channel in 0..8 {
        simulation.inject(frame(header(channel, 0, FrameKind::Message(fragment(900))), &[1; 100]));
    }
    // As long as no other message waits, an unfinished message may take any time.
    simulation.settle(None);
    assert_eq!(simulation.count("unfinished"), 0);
    let begin = simulation.wire.now;
    simulation.exchange(None);
    let waited = simulation.wire.now.since(begin);
    assert_eq!((simulation.count("unfinished"), simulation.count("queue_bytes_taken") > 0), (8, true));
    // Eight times the longest wait of a sender: the stall, the longest wait, and the time of a window.
    assert!(waited > Span::from_ns(240_000_000) && waited < Span::from_ns(400_000_000), "{waited:?}");
    for channel in 0..8 {
        // The rest of an abandoned message is ignored, and the message after it arrives.
        let rest = Fragment { offset: 100, ..fragment(900) };
        simulation.inject(frame(header(channel, 1, FrameKind::Message(rest)), &[1; 800]));
        simulation.inject(frame(header(channel, 2, FrameKind::Message(fragment(0))), &[]));
        let came = simulation.wire.receive(VICTIM, 0).expect("a message");
        assert_eq!(
            (came.channel, came.payload.len(), simulation.wire.receive(VICTIM, 0)),
            (channel, 0, None)
        );
        simulation.wire.release(VICTIM, 0);
    }
    assert_eq!(simulation.wire.hosts[VICTIM].nic.nic.counters().card.malformed, 0);
    simulation.wire.check_memory();
}

#[test]
fn a_slot_posted_to_a_full_header_ring_is_ignored() {
    let mut simulation = Simulation::new();
    let to = To::Handler { handler: 30, arguments: [0; 4] };
    let message = Message { node: ENEMY, endpoint: 0, to, payload: Vec::new(), segment: 0, interrupt: false };
    let mut launched = 0;
    while launched <= card(0).headers && simulation.wire.send(VICTIM, 0, &message, REGION) {
        launched += 1;
    }
    assert_eq!(launched, card(0).headers);
    for code in [CHANNEL_SHORT, CHANNEL_SEGMENT, 99] {
        simulation.wire.handle(VICTIM, Input::PageStore(PageStore { port: 0, code, words: [0; 10] }));
        assert_eq!(simulation.wire.outputs, 0);
    }
    assert!(!simulation.wire.hosts[VICTIM].nic.accepts_store(0));
    assert_eq!(
        (simulation.count("short_sent"), simulation.wire.hosts[VICTIM].line(0).refused),
        (launched.into(), 0)
    );
}

/// The code of a slot's launch word, and the words of the slot.
type Slot = (u32, [u64; 10]);

fn any_slot() -> impl Strategy<Value = Slot> {
    let code = prop_oneof![
        8 => prop::sample::select(vec![CHANNEL_SHORT, CHANNEL_BULK, CHANNEL_MEMORY, CHANNEL_SEGMENT, CHANNEL_SEGMENT]),
        2 => (0..6_u32, 0..4_u32).prop_map(|(code, flags)| code | flags << 8),
        1 => any::<u32>(),
    ];
    let target = prop_oneof![
        8 => (0..u32::from(ENEMY), 0..64_u32),
        1 => (0..u32::from(NODES) + 2, 60..70_u32),
        1 => (0..0x1_0000_u32, 0..0x1_0000_u32),
    ];
    let edge = |limit: u32| {
        let near = (0..3_u32).prop_map(move |off| limit + off - 1);
        prop_oneof![4 => 0..2_000_u32, 2 => near, 1 => any::<u32>()]
    };
    let zero = || prop_oneof![12 => Just(0_u32), 1 => any::<u32>()];
    let rest = (edge(REGION as u32), edge(REGION as u32), edge(1_000), zero(), zero());
    (code, target, any::<[u32; 5]>(), rest).prop_map(
        |(code, (node, endpoint), five, (offset, bytes, pushed, pushed_zero, reserved))| {
            let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
            let [handler, first, second, third, fourth] = five;
            let head = join(node | endpoint << 16, handler);
            let mut words = [u64::from(first); 10];
            match code & 0xff {
                CHANNEL_SHORT => {
                    let tail = [head, join(first, second), join(third, fourth), join(pushed_zero, reserved)];
                    words[6..].copy_from_slice(&tail);
                }
                CHANNEL_BULK => {
                    words[5..8].copy_from_slice(&[head, join(first, second), join(third, fourth)]);
                    words[8..].copy_from_slice(&[join(offset, bytes), join(pushed, reserved)]);
                }
                CHANNEL_MEMORY => {
                    let tail = [head, first.into(), join(offset, bytes), join(pushed, reserved)];
                    words[6..].copy_from_slice(&tail);
                }
                _ => words[9] = join(pushed, reserved),
            }
            (code, words)
        },
    )
}

/// The contract's answer to a slot. `pushing` has the pushed bytes and all bytes of the unfinished message before it.
/// Returns the unfinished message after the slot, or the possible reasons of refusal.
fn contract((code, words): Slot, pushing: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, Vec<u64>> {
    let (number, flags) = (code & 0xff, code & !0xff);
    let halves = |word: u64| (word as u32, (word >> 32) as u32);
    let ((offset, bytes), (pushed, reserved)) = (halves(words[8]), halves(words[9]));
    let takes =
        if [CHANNEL_SHORT, CHANNEL_BULK].contains(&number) { CHANNEL_INTERRUPT | CHANNEL_NOTIFY } else { 0 };
    let mut reasons = Vec::new();
    let is_known = (CHANNEL_SHORT..=CHANNEL_SEGMENT).contains(&number);
    if !is_known || flags & !takes != 0 || reserved != 0 || (number == CHANNEL_SHORT && pushed != 0) {
        reasons.push(REFUSED_HEADER);
    }
    if number == CHANNEL_SEGMENT {
        let (before, all) = pushing.unwrap_or((0, 0));
        if pushed <= before || pushed > all {
            reasons.push(REFUSED_SEGMENT);
        }
        let after = if pushed == all { None } else { Some((pushed, all)) };
        return if reasons.is_empty() { Ok(after) } else { Err(reasons) };
    }
    let target = words[if number == CHANNEL_BULK { 5 } else { 6 }] as u32;
    if target & 0xffff >= NODES.into() || target >> 16 >= 64 {
        reasons.push(REFUSED_TARGET);
    }
    let is_long = [CHANNEL_BULK, CHANNEL_MEMORY].contains(&number);
    let end = u64::from(offset) + u64::from(bytes);
    if is_long && (u64::from(bytes) > REGION || end > REGION || pushed > bytes || pushed == 0) {
        reasons.push(REFUSED_PAYLOAD);
    }
    if pushing.is_some() {
        reasons.push(REFUSED_SEGMENT);
    }
    let after = (is_long && pushed < bytes).then_some((pushed, bytes));
    if reasons.is_empty() { Ok(after) } else { Err(reasons) }
}

/// A frame of the enemy: a header with arbitrary, mostly plausible fields, the payload, and whether the frame has the
/// next sequence number.
type Wild = (Header, Vec<u8>, bool);

fn any_wild() -> impl Strategy<Value = Wild> {
    let number =
        || prop_oneof![4 => 0..40_u32, 1 => any::<u32>(), 1 => (0..9_u32).prop_map(|back| u32::MAX - back)];
    let handler = (any::<u32>(), any::<[u32; 4]>())
        .prop_map(|(handler, arguments)| Purpose::Handler { handler, arguments });
    let place = prop_oneof![3 => 0..20_000_u64, 1 => any::<u64>()];
    let region = prop_oneof![3 => Just(1_u32 << 16 | 1), 3 => Just(1), 1 => any::<u32>()];
    let memory = (region, place).prop_map(|(region, place)| Purpose::Memory { region, place });
    let purpose = prop_oneof![3 => handler, 1 => memory];
    let endpoint = prop_oneof![8 => Just(0_u16), 1 => 2..64_u16, 1 => 64..=u16::MAX];
    let length = prop_oneof![Just(0_usize), 1..1_440_usize];
    let more = prop_oneof![3 => Just(0_u32), 2 => 0..9_000_u32, 1 => any::<u32>()];
    let offset = prop_oneof![3 => Just(0_u32), 1 => 0..3_000_u32, 1 => any::<u32>()];
    let message = (endpoint, purpose, any::<bool>(), length, (offset, more)).prop_map(
        |(endpoint, purpose, interrupt, length, (offset, more))| {
            let bytes = offset.saturating_add(length as u32).saturating_add(more);
            (FrameKind::Message(Fragment { endpoint, purpose, interrupt, offset, bytes, owner: 0 }), length)
        },
    );
    let message =
        (message, prop_oneof![3 => Just(0_u8), 1 => any::<u8>()]).prop_map(|((kind, length), owner)| {
            let FrameKind::Message(fragment) = kind else { return (kind, length) };
            (FrameKind::Message(Fragment { owner, ..fragment }), length)
        });
    let report = (prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], number(), any::<u8>());
    let other = (0..4_usize, report).prop_map(|(kind, (owner, count, reason))| {
        let failures = failures(owner, count, reason);
        let telling =
            [FrameKind::Acknowledgement(failures), FrameKind::Refusal(failures), FrameKind::Report(failures)];
        telling.get(kind).copied().unwrap_or(FrameKind::Void)
    });
    let kind = prop_oneof![4 => message, 2 => (other, prop_oneof![9 => Just(0_usize), 1 => 1..9_usize])];
    let channel = prop_oneof![4 => 0..3_u8, 1 => any::<u8>()];
    let nodes = prop_oneof![20 => Just((ENEMY, VICTIM as u16)), 1 => any::<(u16, u16)>()];
    let rest = (nodes, channel, any::<bool>(), number());
    (kind, rest, any::<u8>()).prop_map(
        |((kind, length), ((source, destination), channel, asks, sequence), is_next)| {
            let asks = asks && !matches!(kind, FrameKind::Acknowledgement(_) | FrameKind::Refusal(_));
            let header = Header { source, destination, channel, kind, asks, sequence };
            (header, pattern(sequence.into(), length), is_next > 40)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_slot_is_accepted_or_refused_as_the_contract_requires(
        slots in prop::collection::vec((any_slot(), 0..3_u32), 1..60),
    ) {
        let mut simulation = Simulation::new();
        let mut pushing: Option<(u32, u32)> = None;
        for ((code, words), relative) in slots {
            let mut slot = (code, words);
            // Most segments belong to the message before them.
            if let (Some((pushed, bytes)), CHANNEL_SEGMENT, 1..) = (pushing, code & 0xff, relative) {
                let next = if relative == 1 { bytes } else { pushed + (bytes - pushed).div_ceil(2) };
                slot.1[9] = slot.1[9] & !0xffff_ffff | u64::from(next);
            }
            let before = simulation.wire.hosts[VICTIM].line(0).refused;
            prop_assert!(simulation.wire.launch_words(VICTIM, 0, slot.0, slot.1));
            let line = simulation.wire.hosts[VICTIM].line(0);
            match contract(slot, pushing) {
                Ok(after) => {
                    prop_assert_eq!(line.refused, before, "{:x?} was refused for {}", slot, line.refusal);
                    pushing = after;
                }
                Err(reasons) => {
                    prop_assert_eq!(line.refused, before + 1, "{:x?} was taken", slot);
                    prop_assert!(reasons.contains(&line.refusal), "{:x?}: {}, not {:?}", slot, line.refusal, reasons);
                }
            }
        }
        simulation.exchange(Some(0));
        simulation.fix();
    }

    #[test]
    fn an_adversarial_card_does_not_stop_other_messages(
        frames in prop::collection::vec((any_wild(), prop::option::of(any::<prop::sample::Index>())), 1..120),
        (sends, releases) in any::<(bool, bool)>(),
    ) {
        let mut simulation = Simulation::new();
        if sends {
            // The victim has sent messages that the enemy's frames can answer.
            let to = To::Handler { handler: 31, arguments: [0; 4] };
            let payload = pattern(1, 3_000);
            let message = Message { node: ENEMY, endpoint: 0, to, payload, segment: 32, interrupt: false };
            (0..6).for_each(|_| assert!(simulation.wire.send(VICTIM, 0, &message, REGION)));
            (0..40).for_each(|_| { simulation.wire.step(); });
        }
        for ((header, payload, is_next), flipped) in frames {
            let next = simulation.next.get(&header.channel).copied().unwrap_or(0);
            let is_message = matches!(header.kind, FrameKind::Message(_) | FrameKind::Void | FrameKind::Report(_));
            let sequence = if is_next && is_message { next } else { header.sequence };
            let mut frame = frame(Header { sequence, asks: header.asks || is_message, ..header }, &payload);
            if let Some(place) = flipped.filter(|_| !is_next) {
                // Damage with a matching check sequence.
                frame.truncate(frame.len() - 4);
                let bit = place.index(frame.len() * 8);
                frame[bit / 8] ^= 1 << (bit % 8);
                seal(&mut frame);
            }
            simulation.inject(frame);
            if releases {
                simulation.read(None);
            }
            simulation.wire.step();
            simulation.listen();
        }
        simulation.exchange(Some(0));
        simulation.fix();
    }
}
