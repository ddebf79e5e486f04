//! Messages without a receiver, and messages that end or stall in the middle: the card reports them to their sender,
//! and no other channel is affected.

use niclab_abi::receive::{
    REFUSED_CLOSED, REFUSED_MEMORY, REFUSED_NO_PAYLOAD, REFUSED_SEGMENT, REFUSED_TARGET,
};
use niclab_abi::region::{OP_REGION_CLOSE, RegionName};
use niclab_model::models::grim::Config;
use niclab_model::nic::{Nic, Observed};
use niclab_model::random::Random;
use niclab_model::time::Span;
use proptest::prelude::*;

use super::tight;
use crate::support::grim::{Faults, Message, Opening, PLAIN, To, Wire, config};
use crate::support::matching::pattern;
use crate::support::request;

const NODES: u16 = 3;
const REGION: u64 = 48 << 10;
const MAX_STEPS: u32 = 200_000;
/// Longer than a message takes while other messages are retransmitted repeatedly.
const TIMEOUT: Span = Span::from_ns(2_000_000);

fn short(node: u16, endpoint: u16, first: u32) -> Message {
    bulk(node, endpoint, first, 0)
}

fn bulk(node: u16, endpoint: u16, first: u32, bytes: usize) -> Message {
    let to = To::Handler { handler: 20, arguments: [first, 0, 0, 0] };
    Message { node, endpoint, to, payload: pattern(first.into(), bytes), segment: 32, interrupt: false }
}

fn memory(node: u16, endpoint: u16, region: u32, place: u64, bytes: usize) -> Message {
    let to = To::Memory { region, place };
    Message { node, endpoint, to, payload: pattern(5, bytes), segment: 0, interrupt: false }
}

fn wire(faults: Faults, seed: u64, opening: Opening, card: impl Fn(Config) -> Config) -> Wire {
    let mut wire = Wire::new(seed, faults, NODES, |node| card(config(node, NODES.into())));
    for node in 0..usize::from(NODES) {
        (0..2).for_each(|port| wire.open(node, port, opening));
    }
    wire
}

fn rest(wire: &mut Wire) {
    let mut steps = 0;
    while wire.step() {
        steps += 1;
        assert!(steps < MAX_STEPS, "it never rests");
    }
}

fn send(wire: &mut Wire, node: usize, port: u32, message: &Message) {
    assert!(wire.send(node, port, message, REGION));
}

/// Reads and releases all messages of a port and checks their payload. Returns their first arguments.
fn read(wire: &mut Wire, node: usize, port: u32) -> Vec<u32> {
    let mut came = Vec::new();
    while let Some(found) = wire.receive(node, port) {
        assert!(found.payload == pattern(found.arguments[0].into(), found.payload.len()));
        came.push(found.arguments[0]);
        wire.release(node, port);
    }
    came
}

/// The program's status line: the number of its refused messages, and the reason of the last refusal.
fn refusals(wire: &Wire, node: usize, port: u32) -> (u64, u64) {
    let line = wire.hosts[node].line(port);
    (line.refused, line.refusal)
}

#[test]
fn undeliverable_messages_are_reported_with_the_reason() {
    let opening = Opening { payload_bytes: 1_024, ..PLAIN };
    let check = |message: Message, reason: u64| {
        let mut wire = wire(Faults::default(), 1, opening, |card| card);
        wire.close(2, 1);
        wire.open(2, 1, Opening { payload_bytes: 0, exposed_bytes: 0, ..PLAIN });
        wire.close(1, 1);
        send(&mut wire, 0, 0, &message);
        send(&mut wire, 0, 0, &short(1, 0, 7));
        send(&mut wire, 0, 1, &short(1, 0, 8));
        rest(&mut wire);
        let mut came = read(&mut wire, 1, 0);
        came.sort_unstable();
        assert_eq!(came, [7, 8], "{message:?}");
        assert_eq!((refusals(&wire, 0, 0), refusals(&wire, 0, 1)), ((1, reason), (0, 0)), "{message:?}");
        let untouched = |node: usize, port| wire.hosts[node].exposed(port).iter().all(|byte| *byte == 0);
        assert!(untouched(1, 0) && untouched(2, 1));
        wire.check_memory();
    };
    check(short(1, 1, 1), REFUSED_CLOSED);
    check(bulk(1, 1, 1, 5_000), REFUSED_CLOSED);
    check(short(1, 63, 1), REFUSED_CLOSED);
    check(bulk(1, 0, 1, 1_025), REFUSED_NO_PAYLOAD);
    check(bulk(2, 1, 1, 64), REFUSED_NO_PAYLOAD);
    check(short(1, 64, 1), REFUSED_TARGET);
    check(short(NODES, 0, 1), REFUSED_TARGET);
    let region = wire(Faults::default(), 1, opening, |card| card).program(1, 0).exposed_region;
    check(memory(1, 1, region, 0, 64), REFUSED_CLOSED);
    check(memory(1, 0, region + 1, 0, 64), REFUSED_MEMORY);
    check(memory(1, 0, region, (128 << 10) - 63, 64), REFUSED_MEMORY);
    check(memory(1, 0, region, u64::MAX, 64), REFUSED_MEMORY);
    check(memory(1, 0, region, u64::MAX - 63, 64), REFUSED_MEMORY);
    check(memory(2, 1, 0, 0, 64), REFUSED_MEMORY);
}

#[test]
fn memory_is_written_only_while_it_is_exposed() {
    let mut wire = wire(Faults::default(), 1, PLAIN, |card| card);
    let region = wire.program(1, 0).exposed_region;
    let message = memory(1, 0, region, 4_000, 9_000);
    for (is_exposed, refused) in [(true, 0), (false, 1), (true, 1), (false, 2)] {
        assert_eq!(wire.expose(1, 0, region, is_exposed), 0);
        let before = wire.hosts[1].counter("memory_received");
        send(&mut wire, 0, 0, &message);
        rest(&mut wire);
        assert_eq!(wire.hosts[1].counter("memory_received") - before, is_exposed.into());
        assert_eq!(refusals(&wire, 0, 0).0, refused);
    }
    assert!(wire.hosts[1].exposed(0)[4_000..][..9_000] == message.payload);
    assert_eq!(read(&mut wire, 1, 0), [], "memory messages are not reported to the receiving program");
    // The region closes in the middle of a message.
    assert_eq!(wire.expose(1, 0, region, true), 0);
    send(&mut wire, 0, 0, &message);
    while wire.hosts[1].counter("cut_through") < 24 {
        assert!(wire.step());
    }
    let close = request(OP_REGION_CLOSE, &RegionName { port: 0, region, extents: 0, reserved: 0 });
    assert_eq!(wire.control(1, &close).0, 0);
    let before = wire.hosts[1].exposed(0).to_vec();
    rest(&mut wire);
    assert!(wire.hosts[1].exposed(0) == before, "written after the region was closed");
    assert_eq!(refusals(&wire, 0, 0), (3, REFUSED_MEMORY));
}

#[test]
fn a_full_endpoint_blocks_only_its_own_senders() {
    let opening = Opening { slices: 8, payload_bytes: 4_096, ..PLAIN };
    let mut wire = wire(Faults::default(), 1, opening, |card| tight(card, 0));
    for first in 0..20 {
        send(&mut wire, 0, 0, &bulk(1, 0, first, 1_400));
        send(&mut wire, 2, 0, &bulk(1, 0, 100 + first, 900));
    }
    for first in 0..60 {
        send(&mut wire, 0, 1, &bulk(1, 1, first, 700));
        let begin = wire.now;
        while wire.hosts[1].nic.delivered(1) <= first.into() {
            assert!(wire.step() && wire.now.since(begin) < TIMEOUT, "another channel's message waits");
        }
        assert_eq!(read(&mut wire, 1, 1), [first]);
    }
    assert!(wire.hosts[1].counter("refusals_sent") > 10, "there is no room left");
    assert_eq!(wire.program(1, 0).read, 0);
    // From here on the endpoint releases its slices.
    let mut came = Vec::new();
    let mut steps = 0;
    loop {
        came.extend(read(&mut wire, 1, 0));
        if !wire.step() {
            break;
        }
        steps += 1;
        assert!(steps < MAX_STEPS, "it never rests");
    }
    let of = |begin: u32| came.iter().copied().filter(|first| first / 100 == begin / 100).collect::<Vec<_>>();
    assert_eq!((of(0), of(100)), ((0..20).collect(), (100..120).collect()));
    wire.check_memory();
}

#[test]
fn a_message_missing_a_segment_is_abandoned_and_reported() {
    for (pushed, frames) in [(32, 0), (1_500, 1), (4_999, 3)] {
        let mut wire =
            wire(Faults::default(), 1, Opening { slices: 8, payload_bytes: 5_056, ..PLAIN }, |card| card);
        let message = bulk(1, 0, 1, 5_000);
        wire.fill(0, 0, 0, &message.payload);
        assert!(wire.begin(0, 0, &message, 0, pushed));
        // The unfinished message blocks its own channel and no other channel.
        assert!(wire.begin(0, 0, &short(1, 0, 2), 0, 0));
        send(&mut wire, 0, 1, &short(1, 0, 3));
        rest(&mut wire);
        assert_eq!(read(&mut wire, 1, 0), [3]);
        assert_eq!(refusals(&wire, 0, 0), (2, REFUSED_SEGMENT));
        let counter = |node: usize, name| wire.hosts[node].counter(name);
        assert_eq!((counter(0, "stalled"), counter(0, "frames_sent")), (1, frames + 1));
        // The receiver learned of the end, and reserves no room for the message.
        check_room(&mut wire, 1, 0);
        wire.push(0, 0, 5_000);
        assert_eq!(refusals(&wire, 0, 0), (3, REFUSED_SEGMENT), "the segment belongs to no message");
        // Sender and receiver have all of their room back.
        wire.program(0, 0).launched = 1;
        send(&mut wire, 0, 0, &bulk(1, 0, 4, 5_050));
        rest(&mut wire);
        assert_eq!(read(&mut wire, 1, 0), [4]);
        check_room(&mut wire, 1, 0);
    }
}

#[test]
fn a_message_refused_and_then_abandoned_is_reported_once() {
    let closed = 5;
    for (endpoint, count, reason) in [(0, 1, REFUSED_SEGMENT), (closed, 1, REFUSED_CLOSED)] {
        let mut wire =
            wire(Faults::default(), 1, Opening { slices: 8, payload_bytes: 5_056, ..PLAIN }, |card| card);
        let message = bulk(1, endpoint, 1, 5_000);
        wire.fill(0, 0, 0, &message.payload);
        assert!(wire.begin(0, 0, &message, 0, 1_500));
        rest(&mut wire);
        assert_eq!(wire.hosts[0].counter("stalled"), 1);
        assert_eq!(refusals(&wire, 0, 0), (count, reason));
        check_room(&mut wire, 1, 0);
        wire.check_memory();
    }
}

/// Checks that a queue of eight slices is empty: eight messages go directly to it. Also checks the payload region.
fn check_room(wire: &mut Wire, node: usize, port: u32) {
    let straight =
        |wire: &Wire| (wire.hosts[node].counter("cut_through"), wire.hosts[node].counter("queued"));
    let before = straight(wire);
    for first in 0..8 {
        send(wire, 2, 1, &short(node as u16, port as u16, 900 + first));
    }
    rest(wire);
    assert_eq!(straight(wire), (before.0 + 8, before.1), "a slot of the queue is lost");
    assert_eq!(read(wire, node, port), (900..908).collect::<Vec<_>>());
    send(wire, 2, 1, &bulk(node as u16, port as u16, 950, 4_096));
    rest(wire);
    assert_eq!(wire.hosts[node].counter("queued"), before.1, "room of the payload region is lost");
    assert_eq!(read(wire, node, port), [950]);
    wire.check_memory();
}

/// How a program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Port,
    Host,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A sender or a receiver ends at any point, and another program opens its port at once.
    #[test]
    fn after_a_close_or_reset_the_next_owner_and_others_work(
        seed: u64,
        (lost, duplicated, late) in prop_oneof![Just((0, 0, 0)), (0..150_u32, 0..150_u32, 0..200_u32)],
        more in prop_oneof![Just(0), 0..5_000_u64, Just(100_000)],
        end in prop::sample::select(vec![End::Port, End::Host]),
        (is_sender, reads) in any::<(bool, bool)>(),
        sizes in prop::collection::vec((0..2_u16, prop_oneof![Just(0_usize), 1..4_097_usize]), 1..20),
        steps in 0..300_u32,
        (partial, later) in (0..4_000_u32, 0..100_u32),
    ) {
        let card = |card| tight(Config { payload_bytes: REGION + 4_096, ..card }, more);
        let mut wire = wire(Faults { lost, duplicated, damaged: 0, late }, seed, LITTLE, card);
        begin(&mut wire, seed, &sizes, partial);
        let mut came = Came::default();
        for _ in 0..steps {
            wire.step();
            if reads {
                came.read(&mut wire);
            }
        }
        let mut sent_others = wire.program(0, 1).launched;
        // Port 0 of the sender or of the receiver is closed; a reset host loses all of its ports.
        let node = usize::from(!is_sender);
        if end == End::Port {
            wire.close(node, 0);
        } else {
            wire.host_reset(node);
            wire.open(node, 1, LITTLE);
            sent_others = 0;
        }
        (0..later).for_each(|_| {
            wire.step();
        });
        wire.open(node, 0, LITTLE);
        wire.faults = Faults::default();
        came.to_the_first.clear();
        if end == End::Host {
            came.to_the_second.clear();
        }
        came.rest(&mut wire);
        let in_order = |came: &[u32], from: u32| {
            let of = came.iter().filter(|first| **first / OTHERS == from / OTHERS);
            of.clone().is_sorted_by(|one, other| one < other)
        };
        prop_assert!(in_order(&came.to_the_first, 0) && in_order(&came.to_the_second, 0));
        prop_assert!(in_order(&came.to_the_second, OTHERS));
        if end == End::Port {
            let of_others = came.to_the_second.iter().filter(|first| **first >= OTHERS).count() as u64;
            prop_assert_eq!(of_others, sent_others, "another channel's messages were lost");
        }
        next_owner(&mut wire, is_sender);
    }
}

const LITTLE: Opening = Opening { slices: 8, payload_bytes: 4_096, exposed_bytes: 128 << 10 };
/// First number of the messages of the channel that stays open.
const OTHERS: u32 = 500;

/// Two channels of node 0 send to the two endpoints of node 1. The first channel, whose program or receiver will end,
/// finally pushes a part of a message.
fn begin(wire: &mut Wire, seed: u64, sizes: &[(u16, usize)], partial: u32) {
    let mut random = Random::new(seed, 1);
    for (first, &(endpoint, bytes)) in (0..).zip(sizes) {
        wire.send(0, 0, &bulk(1, endpoint, first, bytes), REGION);
        wire.send(0, 1, &bulk(1, 1, OTHERS + first, bytes / 2), REGION);
        for _ in 0..random.below(8) {
            wire.step();
        }
    }
    if partial > 0 && wire.hosts[0].nic.accepts_store(0) {
        // At an offset that no other message uses.
        let message = bulk(1, 0, 400, 4_096);
        wire.fill(0, 0, REGION, &message.payload);
        wire.begin(0, 0, &message, REGION as u32, partial);
        wire.program(0, 0).launched += 1;
    }
}

/// Messages that arrived at the endpoints of node 1.
#[derive(Debug, Default)]
struct Came {
    to_the_first: Vec<u32>,
    to_the_second: Vec<u32>,
}

impl Came {
    fn read(&mut self, wire: &mut Wire) -> bool {
        let (first, second) = (read(wire, 1, 0), read(wire, 1, 1));
        self.to_the_first.extend(&first);
        self.to_the_second.extend(&second);
        !first.is_empty() || !second.is_empty()
    }

    /// Runs until the wire is idle. Slices that one endpoint releases may unblock the other.
    fn rest(&mut self, wire: &mut Wire) {
        let mut steps = 0;
        while self.read(wire) | wire.step() {
            steps += 1;
            assert!(steps < MAX_STEPS, "it never rests");
        }
    }
}

/// Checks that no memory or slot leaked, and that the next owner of the port can send and gets no report of earlier
/// messages.
fn next_owner(wire: &mut Wire, is_sender: bool) {
    let check =
        |wire: &Wire| assert!(!is_sender || refusals(wire, 0, 0) == (0, 0), "{:?}", refusals(wire, 0, 0));
    wire.check_memory();
    check(wire);
    check_room(wire, 1, 0);
    let mut came = Came::default();
    for first in 600..620 {
        while !wire.send(0, 0, &bulk(1, 0, first, 3_000), REGION) {
            assert!(wire.step());
            came.read(wire);
        }
        check(wire);
    }
    came.rest(wire);
    assert_eq!(came.to_the_first, (600..620).collect::<Vec<_>>());
    check(wire);
    wire.check_memory();
}

#[test]
fn the_next_owner_gets_no_report_of_earlier_messages() {
    for later in 0..60 {
        let mut wire = wire(Faults::default(), 1, LITTLE, |card| card);
        wire.close(1, 1);
        for first in 0..4 {
            send(&mut wire, 0, 0, &bulk(1, 1, first, 4_000));
        }
        (0..later).for_each(|_| {
            wire.step();
        });
        wire.close(0, 0);
        wire.open(0, 0, LITTLE);
        (0..4).for_each(|first| send(&mut wire, 0, 0, &short(1, 0, first)));
        rest(&mut wire);
        assert_eq!(read(&mut wire, 1, 0), [0, 1, 2, 3]);
        assert_eq!(refusals(&wire, 0, 0), (0, 0), "after {later} steps");
        send(&mut wire, 0, 0, &short(1, 1, 4));
        rest(&mut wire);
        assert_eq!(refusals(&wire, 0, 0), (1, REFUSED_CLOSED));
    }
}

#[test]
fn a_card_can_be_dropped_in_the_middle_of_a_message() {
    let mut wire = wire(Faults::default(), 1, LITTLE, |card| card);
    send(&mut wire, 0, 0, &bulk(1, 0, 1, 4_000));
    while wire.hosts[1].counter("cut_through") == 0 {
        assert!(wire.step());
    }
    drop(wire);
}

#[test]
fn messages_waiting_for_a_region_are_refused_when_it_closes() {
    let mut wire = wire(Faults::default(), 1, LITTLE, |card| card);
    (0..3).for_each(|first| send(&mut wire, 0, 0, &bulk(1, 0, first, 4_000)));
    rest(&mut wire);
    assert!(wire.hosts[1].counter("queue_bytes_taken") > wire.hosts[1].counter("queue_bytes_freed"));
    let region = wire.program(1, 0).payload_region;
    let close = request(OP_REGION_CLOSE, &RegionName { port: 0, region, extents: 0, reserved: 0 });
    assert_eq!(wire.control(1, &close).0, 0);
    wire.check_memory();
    assert_eq!(wire.hosts[1].counter("no_payload_region"), 2);
    send(&mut wire, 0, 0, &short(1, 1, 7));
    rest(&mut wire);
    assert_eq!((refusals(&wire, 0, 0), read(&mut wire, 1, 1)), ((2, REFUSED_NO_PAYLOAD), vec![7]));
}

/// Acknowledged messages of two channels wait in card memory for an endpoint that has room for only one.
fn waiting(faults: Faults, seed: u64) -> Wire {
    let mut wire = wire(faults, seed, LITTLE, |card| card);
    (0..3).for_each(|first| send(&mut wire, 0, 0, &bulk(1, 0, first, 4_000)));
    rest(&mut wire);
    (0..2).for_each(|first| send(&mut wire, 0, 1, &bulk(1, 0, OTHERS + first, 4_000)));
    rest(&mut wire);
    assert_eq!([0, 1].map(|port| wire.hosts[0].line(port).sent), [3, 2], "all were acknowledged");
    wire
}

#[test]
fn late_refusals_are_reported_to_an_idle_sender() {
    for seed in 0..40 {
        let faults = Faults { lost: 300, duplicated: 100, damaged: 0, late: 200 };
        let mut wire = waiting(if seed == 0 { Faults::default() } else { faults }, seed);
        wire.close(1, 0);
        wire.check_memory();
        // The receiving card's own channel of the same number sends and closes at the same time. No report may be lost.
        if seed % 2 == 1 {
            (0..4).for_each(|first| send(&mut wire, 1, 1, &short(0, 0, first)));
            wire.close(1, 1);
        }
        rest(&mut wire);
        let refusals = [0, 1].map(|port| refusals(&wire, 0, port));
        assert_eq!(refusals, [(2, REFUSED_CLOSED), (2, REFUSED_CLOSED)], "seed {seed}");
    }
}

#[test]
fn late_refusals_are_not_reported_to_the_next_owner() {
    for sends in [false, true] {
        let mut wire = waiting(Faults::default(), 1);
        wire.close(0, 0);
        wire.open(0, 0, LITTLE);
        if sends {
            send(&mut wire, 0, 0, &bulk(1, 0, 7, 4_000));
            send(&mut wire, 0, 0, &short(1, 1, 8));
            rest(&mut wire);
        }
        wire.close(1, 0);
        rest(&mut wire);
        let own = if sends { (1, REFUSED_CLOSED) } else { (0, 0) };
        assert_eq!([refusals(&wire, 0, 0), refusals(&wire, 0, 1)], [own, (2, REFUSED_CLOSED)]);
        assert_eq!(read(&mut wire, 1, 1), [8; 1][..usize::from(sends)]);
        // Refusals of the new owner's own messages are reported.
        send(&mut wire, 0, 0, &short(1, 0, 9));
        rest(&mut wire);
        assert_eq!(refusals(&wire, 0, 0), (own.0 + 1, REFUSED_CLOSED));
    }
}

#[test]
fn closing_an_endpoint_refuses_the_message_in_flight() {
    for is_memory in [false, true] {
        let mut wire = wire(Faults::default(), 1, PLAIN, |card| card);
        let region = wire.program(1, 0).exposed_region;
        let message = if is_memory { memory(1, 0, region, 0, 9_000) } else { bulk(1, 0, 1, 9_000) };
        send(&mut wire, 0, 0, &message);
        while wire.hosts[1].counter("cut_through") < 3 {
            assert!(wire.step());
        }
        wire.close(1, 0);
        rest(&mut wire);
        assert_eq!(refusals(&wire, 0, 0), (1, REFUSED_CLOSED));
    }
}
