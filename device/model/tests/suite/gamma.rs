//! GAMMA cards: descriptors word by word as in the manual, with a host that is only memory; and hosts that break the
//! rules.

use std::sync::Arc;

use niclab_abi::control::{Reply, STATUS_BAD_ADDRESS, STATUS_BAD_VALUE, STATUS_OK, STATUS_PORT_BUSY};
use niclab_abi::gamma::{FRAME_DATA, FRAME_FIRST, FRAME_LAST, FrameHead};
use niclab_abi::rings::{
    OP_RING_INTERRUPTS, OP_RING_START, OP_RING_STOP, OP_RING_TERMS, RING_CHAINED, RING_END, RING_ERROR,
    RING_FIRST, RING_LAST, RING_OWN, RING_RECEIVE, RING_STATUS_ADDRESS, RING_STATUS_DAMAGED,
    RING_STATUS_FIRST, RING_STATUS_FORGED, RING_STATUS_LAST, RING_STATUS_LENGTH, RING_STATUS_SEGMENT,
    RING_STATUS_TRUNCATED, RING_TRANSMIT, RingInterrupts, RingName, RingStart, RingTerms,
};
use niclab_abi::{FromBytes, ToBytes};
use niclab_model::fabric::ethernet::{BROADCAST, ETHER_TYPE_CLUSTER, Header, mac_of_endpoint, mac_of_node};
use niclab_model::models::gamma::Gamma;
use niclab_model::models::gamma::config::Config;
use niclab_model::models::gamma::descriptor::{MODEL, config};
use niclab_model::models::gamma::wire::{MAC_ENDPOINT, PROTOCOL};
use niclab_model::nic::alone::Alone;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::nic::registry::{CardContext, Values};
use niclab_model::nic::{DescriptorQueue, HostRange, Input, Nic, Observed, Output};
use niclab_model::platform::ledger::Transaction;
use niclab_model::platform::profile::Profile;
use niclab_model::time::{Passage, Time};
use proptest::prelude::*;

use crate::support::{bare_request, request};

const MEMORY_BYTES: u64 = 1 << 16;
/// Addresses of the rings, and the distance of two descriptors.
const TRANSMIT: u64 = 0x1000;
const RECEIVE: u64 = 0x2000;
const STRIDE: u64 = 24;
/// Addresses of the transmit and the receive buffers: one buffer of `PLACE` bytes for each descriptor.
const SENT: u64 = 0x4000;
const RECEIVED: u64 = 0x8000;
const PLACE: u64 = 0x800;
/// More outputs than one poll demand may cause in any ring.
const MAX_OUTPUTS: u32 = 50_000;

/// A card and the memory of its host.
struct Node {
    card: Alone<Gamma>,
    memory: Vec<u8>,
    frames: Vec<(Passage, SharedFrame)>,
    interrupts: Vec<Time>,
    /// Data stores: time of visibility, and range.
    stored: Vec<(Time, HostRange)>,
    /// Descriptors returned: time, address and ownership word.
    given_back: Vec<(Time, u64, u64)>,
    replies: Vec<(u32, Vec<u8>)>,
    now: Time,
    outputs: u32,
}

fn card(node: u16, change: impl FnOnce(&mut Config)) -> Gamma {
    let mut profile = Profile::default();
    // PCI's: 30 ns for each 32 bits.
    (profile.bus.dma_read.per_word_ps, profile.bus.dma_write.per_word_ps) = (60_000, 60_000);
    let profile = Arc::new(profile);
    let mut config =
        config(&Values::defaults(&MODEL), CardContext { node, nodes: 4, mtu_bytes: 1_500, profile });
    change(&mut config);
    Gamma::new(config).unwrap()
}

impl Node {
    fn new(node: u16, change: impl FnOnce(&mut Config)) -> Self {
        Self {
            card: Alone::new(card(node, change)),
            memory: vec![0; MEMORY_BYTES as usize],
            frames: Vec::new(),
            interrupts: Vec::new(),
            stored: Vec::new(),
            given_back: Vec::new(),
            replies: Vec::new(),
            now: Time::ZERO,
            outputs: 0,
        }
    }

    /// A card with both rings started, and `receive` descriptors of the receive ring given to it.
    fn started(node: u16, receive: u64, change: impl FnOnce(&mut Config)) -> Self {
        let mut host = Self::new(node, change);
        (0..receive).for_each(|place| host.give_room(place, &[(RECEIVED + place * PLACE, 0x7ff)], receive));
        assert_eq!(host.start(RING_TRANSMIT, TRANSMIT), STATUS_OK);
        assert_eq!(host.start(RING_RECEIVE, RECEIVE), STATUS_OK);
        host
    }

    fn start(&mut self, ring: u32, first: u64) -> u32 {
        self.control(&request(OP_RING_START, &RingStart { ring, skip_bytes: 8, first, reserved: 0 })).0
    }

    fn control(&mut self, request: &[u8]) -> (u32, Vec<u8>) {
        self.feed(Input::Control { token: 7, request });
        self.replies.pop().expect("every request is answered")
    }

    fn word(&self, address: u64) -> u64 {
        u64::from_le_bytes(self.memory[address as usize..][..8].try_into().unwrap())
    }

    fn set(&mut self, address: u64, word: u64) {
        self.memory[address as usize..][..8].copy_from_slice(&word.to_le_bytes());
    }

    /// Fills a descriptor with at most two buffers.
    fn describe(&mut self, at: u64, flags: u64, buffers: &[(u64, u64)]) {
        let part = |place: usize| buffers.get(place).copied().unwrap_or((0, 0));
        let ((first, first_bytes), (second, second_bytes)) = (part(0), part(1));
        self.set(at + 8, second << 32 | first);
        self.set(at, flags | RING_OWN | first_bytes << 32 | second_bytes << 43);
    }

    fn give_room(&mut self, place: u64, buffers: &[(u64, u64)], places: u64) {
        let flags = if place + 1 == places { RING_END } else { 0 };
        self.describe(RECEIVE + place * STRIDE, flags, buffers);
    }

    /// Stores a frame in memory, and fills a descriptor for it.
    fn give_frame(&mut self, place: u64, frame: &[u8], flags: u64) {
        let at = SENT + place * PLACE;
        self.memory[at as usize..][..frame.len()].copy_from_slice(frame);
        let head = frame.len().min(22) as u64;
        let buffers = [(at, head), (at + head, frame.len() as u64 - head)];
        self.describe(TRANSMIT + place * STRIDE, flags, &buffers);
    }

    fn demand(&mut self, queue: DescriptorQueue) {
        self.feed(Input::PollDemand { queue });
    }

    /// Delivers a frame whose last byte arrives now.
    fn arrive(&mut self, frame: &SharedFrame, passage: Passage) {
        self.now = self.now.max(passage.tail);
        self.feed(Input::Frame { frame, head: passage.head, message: None });
    }

    fn feed(&mut self, input: Input<'_>) {
        self.card.handle(self.now, input);
        self.drain();
    }

    fn holds(&self, range: &HostRange) -> bool {
        range.address.checked_add(range.bytes).is_some_and(|end| end <= MEMORY_BYTES)
    }

    fn drain(&mut self) {
        while let Some(output) = self.card.poll_output() {
            self.outputs += 1;
            assert!(self.outputs < MAX_OUTPUTS, "no end of {output:?}");
            match output {
                Output::DmaRead { at, token, ranges, into, .. } => {
                    let is_whole = ranges.iter().all(|range| self.holds(range));
                    let mut bytes = into;
                    for range in ranges.iter().filter(|_| is_whole) {
                        let part = &self.memory[range.address as usize..][..range.bytes as usize];
                        bytes.extend_from_slice(part);
                    }
                    self.card.handle(at, Input::DmaData { token, bytes, is_whole });
                }
                Output::DmaFrame { at, frame, bytes, ranges, .. } => {
                    let mut data = &frame[bytes];
                    for range in ranges {
                        let (part, rest) = data.split_at(range.bytes as usize);
                        data = rest;
                        if self.holds(&range) {
                            self.memory[range.address as usize..][..part.len()].copy_from_slice(part);
                        }
                        self.stored.push((at, range));
                    }
                    assert!(data.is_empty());
                }
                Output::DmaWrite { at, address, words, .. } => {
                    let [word] = *words else { panic!("{words:x?}") };
                    self.given_back.push((at, address, word));
                    self.set(address, word);
                }
                Output::Frame { at: head, tail, frame, .. } => {
                    self.frames.push((Passage { head, tail }, frame));
                }
                Output::Interrupt { at, .. } => self.interrupts.push(at),
                Output::Reply { bytes, .. } => {
                    let head = Reply::from_bytes(&bytes).unwrap();
                    self.replies.push((head.status, bytes[Reply::BYTES..].to_vec()));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Lets all deadlines of the card expire.
    fn rest(&mut self) {
        while let Some(at) = self.card.poll_timeout() {
            self.now = self.now.max(at);
            self.feed(Input::Timeout);
        }
    }

    /// The value of a counter.
    fn count(&self, name: &str) -> u64 {
        self.card.nic.counters_by_name(name)
    }
}

trait ByName {
    fn counters_by_name(&self, name: &str) -> u64;
}

impl ByName for Gamma {
    fn counters_by_name(&self, name: &str) -> u64 {
        let counters = Observed::counters(self);
        counters.into_iter().find(|(known, _)| *known == name).expect("a counter").1
    }
}

/// A frame of an active port, as a driver gives it to the card.
fn frame(from: u16, to: u16, number: u32, bytes: usize) -> Vec<u8> {
    let ethernet =
        Header { destination: mac_of_node(to), source: mac_of_node(from), ether_type: ETHER_TYPE_CLUSTER };
    let kind = FRAME_DATA | FRAME_FIRST | FRAME_LAST;
    let head = FrameHead { protocol: PROTOCOL, kind, source_port: 1, target_port: 2, number };
    let mut frame = ethernet.emit().to_vec();
    frame.resize(frame.len() + FrameHead::BYTES, 0);
    head.to_bytes(&mut frame[14..]).unwrap();
    frame.extend((0..bytes).map(|byte| (byte as u8).wrapping_mul(7).wrapping_add(number as u8)));
    frame
}

/// The frame that the card sends for this one.
fn on_wire(frame: &[u8]) -> SharedFrame {
    let mut node = Node::started(u16::from(frame[11]), 1, |_| {});
    node.give_frame(0, frame, RING_FIRST | RING_LAST | RING_END);
    node.demand(DescriptorQueue::Transmit);
    node.frames.pop().expect("it is sent").1
}

fn status(word: u64) -> u32 {
    word as u32
}

#[test]
fn a_frame_is_copied_and_both_descriptors_are_returned() {
    let (mut a, mut b) = (Node::started(0, 1, |_| {}), Node::started(1, 4, |_| {}));
    let sent = frame(0, 1, 1, 300);
    a.give_frame(0, &sent, RING_FIRST | RING_LAST);
    a.demand(DescriptorQueue::Transmit);
    let (passage, on_wire) = a.frames.pop().expect("a frame");
    assert_eq!(on_wire.len(), sent.len() + 4, "a check sequence follows the frame");
    assert!(passage.head < passage.tail, "it leaves before the last byte is read");
    assert!(a.given_back.is_empty(), "not before it has left");
    a.rest();
    let [(at, address, word)] = a.given_back[..] else { panic!("{:?}", a.given_back) };
    let slot = Time::from_ps(80_000 * (on_wire.len() as u64 + 12));
    assert!(at >= passage.head + slot.since(Time::ZERO), "{at:?} of {passage:?}");
    assert_eq!((address, status(word), word >> 32), (TRANSMIT, 0, a.word(TRANSMIT) >> 32));
    assert_eq!(
        (a.count("descriptors_taken"), a.count("descriptors_idle")),
        (2, 2),
        "one is prefetched for received frames; twice the next descriptor still belonged to the host"
    );

    b.arrive(&on_wire, passage);
    b.rest();
    let [(visible, address, word)] = b.given_back[..] else { panic!("{:?}", b.given_back) };
    let length = (sent.len() as u32) << 16;
    assert_eq!((address, status(word)), (RECEIVE, length | RING_STATUS_FIRST | RING_STATUS_LAST));
    assert_eq!(b.memory[RECEIVED as usize..][..sent.len()], sent);
    assert!(b.stored.iter().all(|(at, _)| *at <= visible));
    let line = |node: &Node, transaction| node.card.ledger().line(transaction);
    assert_eq!(line(&a, Transaction::DmaRead).bytes, sent.len() as u64);
    assert_eq!(line(&a, Transaction::DescriptorFetch).bytes, 4 * 16, "skipped bytes do not cross the bus");
    assert_eq!(line(&b, Transaction::DmaWrite).bytes, sent.len() as u64);
    assert_eq!(
        (line(&b, Transaction::DescriptorWriteBack).count, line(&b, Transaction::HostCopy).count),
        (1, 1)
    );
    assert_eq!(line(&b, Transaction::HostCopy).bytes, 300, "one copy, of the message alone");
    assert_eq!((b.card.nic.delivered(2), b.card.nic.delivered(1)), (1, 0));
}

#[test]
fn a_frame_is_gathered_and_scattered_over_many_descriptors() {
    let mut a = Node::started(0, 1, |_| {});
    let sent = frame(0, 1, 1, 100);
    a.memory[SENT as usize..][..sent.len()].copy_from_slice(&sent);
    // Three chained descriptors at unrelated addresses.
    let (first, other, last) = (TRANSMIT, 0x3000, 0x3100);
    a.describe(first, RING_FIRST | RING_CHAINED, &[(SENT, 10), (other, 0)]);
    a.describe(other, RING_CHAINED, &[(SENT + 10, 50), (last, 0)]);
    a.describe(last, RING_LAST | RING_END, &[(SENT + 60, 1), (SENT + 61, sent.len() as u64 - 61)]);
    a.demand(DescriptorQueue::Transmit);
    let (passage, on_wire) = a.frames.pop().expect("a frame");
    a.rest();
    assert_eq!(a.given_back.iter().map(|(_, at, _)| *at).collect::<Vec<_>>(), [first, other, last]);

    let mut b = Node::new(1, |_| {});
    (0..4).for_each(|place| {
        let at = RECEIVED + place * PLACE;
        b.give_room(place, &[(at, 32), (at + 0x100, 16)], 4);
    });
    assert_eq!(b.start(RING_RECEIVE, RECEIVE), STATUS_OK);
    b.arrive(&on_wire, passage);
    b.rest();
    let seen: Vec<u32> = b.given_back.iter().map(|(_, _, word)| status(*word)).collect();
    let length = (sent.len() as u32) << 16;
    assert_eq!(seen, [RING_STATUS_FIRST, 0, RING_STATUS_LAST | length]);
    let parts = (0..3).flat_map(|place| {
        let at = (RECEIVED + place * PLACE) as usize;
        b.memory[at..at + 32].iter().chain(&b.memory[at + 0x100..at + 0x110]).copied()
    });
    assert_eq!(parts.take(sent.len()).collect::<Vec<_>>(), sent);
}

#[test]
fn unsendable_frames_are_returned_with_the_reason() {
    let good = frame(0, 1, 1, 10);
    let (first, last) = (RING_FIRST | RING_LAST, RING_LAST);
    let long = [(SENT, 0x7ff), (SENT, 0x7ff)];
    let mut forged = good.clone();
    forged[11] = 2;
    let mut foreign = good.clone();
    foreign[14] = 6;
    for (why, flags, buffers, bytes) in [
        (RING_STATUS_LENGTH, first, &[(SENT, 0), (SENT, 0)][..], &good),
        (RING_STATUS_LENGTH, first, &[(SENT, 13)][..], &good),
        (RING_STATUS_LENGTH, first, &[(SENT, 20)][..], &good),
        (RING_STATUS_LENGTH, first, &long[..], &good),
        (RING_STATUS_ADDRESS, first, &[(MEMORY_BYTES - 8, 32)][..], &good),
        (RING_STATUS_FORGED, first, &[(SENT, 32)][..], &forged),
        (RING_STATUS_FORGED, first, &[(SENT, 32)][..], &foreign),
        (RING_STATUS_SEGMENT, last, &[(SENT, 32)][..], &good),
    ] {
        let mut a = Node::started(0, 1, |_| {});
        a.memory[SENT as usize..][..bytes.len()].copy_from_slice(bytes);
        a.describe(TRANSMIT, flags, buffers);
        a.give_frame(1, &good, first);
        a.demand(DescriptorQueue::Transmit);
        a.rest();
        let seen: Vec<u32> = a.given_back.iter().map(|(_, _, word)| status(*word)).collect();
        assert_eq!(seen, [RING_ERROR | why, 0], "{buffers:x?}");
        assert_eq!(a.frames.len(), 1, "{buffers:x?}");
    }
    // The longest frame that the link carries with its check sequence, and one byte more.
    for (bytes, expected) in [(1_488, 0), (1_489, RING_ERROR | RING_STATUS_LENGTH)] {
        let mut a = Node::started(0, 1, |_| {});
        a.give_frame(0, &frame(0, 1, 1, bytes), first);
        a.demand(DescriptorQueue::Transmit);
        a.rest();
        assert_eq!(status(a.given_back[0].2), expected, "{bytes} bytes");
    }
    // A frame that begins within another one: the card returns the unfinished one.
    let mut a = Node::started(0, 1, |_| {});
    a.describe(TRANSMIT, RING_FIRST, &[(SENT, 20)]);
    a.give_frame(1, &good, first);
    a.demand(DescriptorQueue::Transmit);
    a.rest();
    assert_eq!(status(a.given_back[0].2), RING_ERROR | RING_STATUS_SEGMENT);
    assert_eq!((a.frames.len(), a.count("transmit_bad_segment")), (1, 1));
}

#[test]
fn frames_without_room_are_missed_and_damaged_ones_stored() {
    let wire = on_wire(&frame(0, 1, 1, 200));
    let mut b = Node::started(1, 2, |_| {});
    let arrive = |b: &mut Node, wire: &SharedFrame| {
        let head = b.now + Time::from_ps(1_000_000).since(Time::ZERO);
        let tail = head + Time::from_ps(80_000 * wire.len() as u64).since(Time::ZERO);
        b.arrive(wire, Passage { head, tail });
    };
    (0..3).for_each(|_| arrive(&mut b, &wire));
    assert_eq!((b.given_back.len(), b.count("missed_frames")), (2, 1));
    // One descriptor of a few bytes, and none after it.
    b.give_room(0, &[(RECEIVED, 64)], 2);
    arrive(&mut b, &wire);
    let truncated = RING_ERROR | RING_STATUS_TRUNCATED | RING_STATUS_FIRST | RING_STATUS_LAST;
    assert_eq!(status(b.given_back[2].2), truncated | 64 << 16);
    assert_eq!(b.count("truncated_frames"), 1);
    b.give_room(1, &[(RECEIVED, 0x7ff)], 2);
    let mut damaged = wire.clone();
    damaged.flip(700);
    arrive(&mut b, &damaged);
    let errors = RING_ERROR | RING_STATUS_DAMAGED;
    assert_eq!(status(b.given_back[3].2) & (RING_ERROR | RING_STATUS_DAMAGED), errors);
    assert_eq!(b.card.nic.delivered(2), 2, "only whole frames are messages");
}

#[test]
fn only_a_full_fifo_loses_frames_and_not_a_fast_link() {
    let wire = on_wire(&frame(0, 1, 1, 1_000));
    // On a slow bus, a frame takes longer to store than to arrive.
    let mut b = Node::started(1, 16, |config| {
        let mut profile = Profile::default();
        profile.bus.dma_write.per_word_ps = 2_000_000;
        config.profile = profile.into();
        config.receive_fifo_bytes = 2_048;
    });
    let mut at = Time::ZERO;
    for _ in 0..8 {
        let tail = at + Time::from_ps(80_000 * wire.len() as u64).since(Time::ZERO);
        b.arrive(&wire, Passage { head: at, tail });
        at = tail;
    }
    assert!(b.count("fifo_overflows") > 0, "{}", b.count("fifo_overflows"));
    assert_eq!(b.count("fifo_overflows") + b.given_back.len() as u64, 8);
    // Frames that arrive at one instant, over a link of any speed: the card's own wire serializes them.
    let mut b = Node::started(1, 16, |config| config.receive_fifo_bytes = 2_048);
    (0..8).for_each(|_| b.arrive(&wire, Passage::default()));
    b.rest();
    assert_eq!((b.given_back.len(), b.count("fifo_overflows")), (8, 0));
    assert!(b.given_back[7].0 >= Time::from_ps(8 * 80_000 * wire.len() as u64));
}

#[test]
fn frames_leave_one_slot_of_the_wire_apart() {
    let mut a = Node::started(0, 1, |_| {});
    for place in 0..6 {
        let end = if place == 5 { RING_END } else { 0 };
        a.give_frame(place, &frame(0, 1, 1 + place as u32, 1_000), RING_FIRST | RING_LAST | end);
    }
    a.demand(DescriptorQueue::Transmit);
    a.rest();
    assert_eq!((a.frames.len(), a.given_back.len()), (6, 6));
    let wire_bytes = a.frames[0].1.len() as u64 + 24;
    for pair in a.frames.windows(2) {
        assert_eq!(pair[1].0.head.since(pair[0].0.head).as_ps(), 80_000 * wire_bytes);
    }
    assert_eq!(a.count("descriptors_taken"), 7, "each is read once");
}

#[test]
fn store_and_forward_sends_a_frame_once_it_is_completely_read() {
    for threshold in [0, 4_000] {
        let mut a = Node::started(0, 1, |config| config.transmit_threshold_bytes = threshold);
        a.give_frame(0, &frame(0, 1, 1, 1_000), RING_FIRST | RING_LAST);
        a.demand(DescriptorQueue::Transmit);
        let passage = a.frames[0].0;
        assert_eq!(passage.head, passage.tail);
    }
}

fn interrupts(node: &mut Node, frames: u32, delay_ns: u32) {
    let body = RingInterrupts { frames, delay_ns, reserved: 0 };
    assert_eq!(node.control(&request(OP_RING_INTERRUPTS, &body)).0, STATUS_OK);
}

#[test]
fn interrupts_follow_the_drivers_moderation() {
    let wire = on_wire(&frame(0, 1, 1, 20));
    let gap = Time::from_ps(1_000_000_000).since(Time::ZERO);
    for (frames, delay_ns, expected) in
        [(0, 0, 0), (1, 0, 10), (4, 5_000_000, 3), (4, 10, 10), (20, 100_000_000, 1)]
    {
        let mut b = Node::started(1, 10, |_| {});
        interrupts(&mut b, frames, delay_ns);
        for number in 0..10 {
            let mut at = Time::ZERO;
            (0..=number).for_each(|_| at += gap);
            while b.card.poll_timeout().is_some_and(|deadline| deadline < at) {
                b.now = b.card.poll_timeout().unwrap();
                b.feed(Input::Timeout);
            }
            b.arrive(&wire, at.into());
        }
        b.rest();
        assert_eq!(b.interrupts.len(), expected, "{frames} frames or {delay_ns} ns");
        assert_eq!(b.card.ledger().line(Transaction::HostReceive).count, 10, "the driver takes all frames");
    }
    // The driver finds frames that arrive while it works, without another interrupt.
    let mut b = Node::started(1, 10, |config| {
        let mut profile = Profile::default();
        profile.host.receive_ps = 1_000_000_000;
        config.profile = profile.into();
    });
    interrupts(&mut b, 1, 0);
    (1..=5).for_each(|number| b.arrive(&wire, Time::from_ps(number * 20_000_000).into()));
    b.rest();
    assert_eq!(b.interrupts.len(), 1);
}

/// A frame arrives late because its sender's clock lags: its time is before the deadline that has already expired.
#[test]
fn a_frame_from_before_the_drivers_work_raises_an_interrupt() {
    let wire = on_wire(&frame(0, 1, 1, 20));
    let mut b = Node::started(1, 10, |config| {
        let mut profile = Profile::default();
        profile.host.receive_ps = 1_000_000_000;
        config.profile = profile.into();
    });
    interrupts(&mut b, 4, 5_000_000);
    b.arrive(&wire, Time::from_ps(1_000_000_000).into());
    b.rest();
    assert_eq!(b.interrupts.len(), 1);
    b.now = Time::ZERO;
    b.arrive(&wire, Time::from_ps(2_000_000_000).into());
    b.rest();
    assert_eq!(b.interrupts.len(), 2);
    // The driver finds the next frame while it works on this one.
    b.arrive(&wire, Time::from_ps(7_100_000_000).into());
    b.rest();
    assert_eq!(b.interrupts.len(), 2);
}

/// With free-running guests, the card processes all sent frames at once in wall time. Frames that arrive then are
/// earlier in model time.
#[test]
fn a_received_frame_does_not_wait_for_later_transmissions() {
    let (frames, bytes) = (12, 1_000);
    let mut b = Node::started(1, frames, |_| {});
    for place in 0..frames {
        let end = if place + 1 == frames { RING_END } else { 0 };
        b.give_frame(place, &frame(1, 0, 1 + place as u32, bytes), RING_FIRST | RING_LAST | end);
    }
    b.demand(DescriptorQueue::Transmit);
    b.rest();
    assert_eq!(b.frames.len() as u64, frames);
    let (last_left, sent) = (b.frames[b.frames.len() - 1].0.head, b.given_back.len());
    let wire = on_wire(&frame(0, 1, 1, bytes));
    let mut head = Time::ZERO;
    // Frames that arrive before the last one has left.
    let coming = frames / 2;
    for _ in 0..coming {
        let tail = head + Time::from_ps(80_000 * wire.len() as u64).since(Time::ZERO);
        assert!(tail < last_left);
        b.now = Time::ZERO;
        b.arrive(&wire, Passage { head, tail });
        let stored = b.given_back[b.given_back.len() - 1].0;
        assert!(stored > tail && stored.since(tail).as_ps() < 5_000_000, "{stored} {tail}");
        head = tail;
    }
    assert_eq!((b.count("fifo_overflows"), b.given_back.len() - sent), (0, coming as usize));
}

#[test]
fn rings_are_started_once_and_a_stopped_ring_is_not_used() {
    let mut b = Node::new(1, |_| {});
    let start =
        |ring, skip_bytes, first| request(OP_RING_START, &RingStart { ring, skip_bytes, first, reserved: 0 });
    for (request, expected) in [
        (start(RING_RECEIVE, 8, RECEIVE + 4), STATUS_BAD_ADDRESS),
        (start(RING_RECEIVE, 8, 1 << 32), STATUS_BAD_ADDRESS),
        (start(RING_RECEIVE, 0, RECEIVE), STATUS_BAD_VALUE),
        (start(RING_RECEIVE, 12, RECEIVE), STATUS_BAD_VALUE),
        (start(RING_RECEIVE, 128, RECEIVE), STATUS_BAD_VALUE),
        (start(RING_RECEIVE, 8, RECEIVE), STATUS_OK),
        (start(RING_RECEIVE, 8, RECEIVE), STATUS_PORT_BUSY),
    ] {
        assert_eq!(b.control(&request).0, expected);
    }
    b.give_room(0, &[(RECEIVED, 0x7ff)], 1);
    b.demand(DescriptorQueue::Receive);
    let stop = request(OP_RING_STOP, &RingName { ring: RING_RECEIVE, reserved: 0 });
    assert_eq!(b.control(&stop).0, STATUS_OK);
    b.arrive(&on_wire(&frame(0, 1, 1, 20)), Time::from_ps(1).into());
    b.rest();
    assert!(b.given_back.is_empty() && b.stored.is_empty(), "the card accesses no memory");
    assert_eq!(b.start(RING_RECEIVE, RECEIVE), STATUS_OK);
    b.arrive(&on_wire(&frame(0, 1, 1, 20)), Time::from_ps(100_000_000).into());
    b.rest();
    assert_eq!(b.given_back.len(), 1);
    let (status, terms) = b.control(&bare_request(OP_RING_TERMS));
    let terms = RingTerms::from_bytes(&terms).unwrap();
    assert_eq!((status, terms.receive_buffers, terms.window), (STATUS_OK, 1_024, 32));
    assert_eq!((terms.other_buffers, terms.acknowledge_every), (1_024 - 3 * 33, 32));
    assert_eq!((terms.frame_bytes, terms.protocol), (1_510, PROTOCOL.into()));
    assert_eq!(terms.station.to_le_bytes()[..6], mac_of_endpoint(1, MAC_ENDPOINT));
}

#[test]
fn other_protocols_use_the_same_rings_with_their_own_address() {
    let ordinary = |from, destination| {
        let header = Header { destination, source: mac_of_endpoint(from, MAC_ENDPOINT), ether_type: 0x0800 };
        let mut frame = header.emit().to_vec();
        frame.extend([9; 60]);
        frame
    };
    let mut a = Node::started(0, 1, |_| {});
    assert!(!Node::new(0, |_| {}).card.nic.has_mac_endpoints() && a.card.nic.has_mac_endpoints());
    let sent = ordinary(0, mac_of_endpoint(1, MAC_ENDPOINT));
    a.give_frame(0, &sent, RING_FIRST | RING_LAST);
    a.demand(DescriptorQueue::Transmit);
    let (passage, on_wire) = a.frames.pop().expect("a frame");
    assert_eq!(*on_wire, *sent, "without the cluster's check sequence");
    let mut b = Node::started(1, 4, |_| {});
    b.arrive(&on_wire, passage);
    b.arrive(&SharedFrame::from(&ordinary(0, BROADCAST)[..]), Time::from_ps(200_000_000).into());
    b.arrive(
        &SharedFrame::from(&ordinary(0, mac_of_endpoint(2, MAC_ENDPOINT))[..]),
        Time::from_ps(300_000_000).into(),
    );
    b.rest();
    let counters = Observed::counters(&b.card.nic);
    assert_eq!((b.count("other_frames_in"), b.count("frames_elsewhere")), (2, 1), "{counters:?}");
    assert_eq!(b.memory[RECEIVED as usize..][..sent.len()], sent);
}

/// A word that a hostile host writes to a descriptor.
fn any_word() -> impl Strategy<Value = u64> {
    let flags =
        prop::sample::subsequence(vec![RING_OWN, RING_CHAINED, RING_END, RING_FIRST, RING_LAST], 0..=5);
    let own = (flags, 0..0x800_u64, 0..0x800_u64)
        .prop_map(|(flags, first, second)| flags.iter().sum::<u64>() | first << 32 | second << 43);
    let address =
        (0..MEMORY_BYTES + 64, 0..MEMORY_BYTES + 64).prop_map(|(first, second)| second << 32 | first);
    prop_oneof![3 => own, 3 => address, 1 => any::<u64>()]
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, u64),
    Demand(DescriptorQueue),
    Arrive(usize),
    Start(u32, u64),
    Stop(u32),
    Rest,
}

fn any_step() -> impl Strategy<Value = Step> {
    let ring = prop::sample::select(vec![RING_TRANSMIT, RING_RECEIVE, 2]);
    let place = prop_oneof![Just(TRANSMIT), Just(RECEIVE), 0..MEMORY_BYTES];
    prop_oneof![
        6 => (0..0x300_u64, any_word(), any::<bool>()).prop_map(|(word, value, is_transmit)| {
            Step::Write(if is_transmit { TRANSMIT } else { RECEIVE } + word / 4 * 8, value)
        }),
        2 => prop::sample::select(DescriptorQueue::ALL.to_vec()).prop_map(Step::Demand),
        2 => (0..1_400_usize).prop_map(Step::Arrive),
        1 => (ring.clone(), place).prop_map(|(ring, first)| Step::Start(ring, first / 8 * 8)),
        1 => ring.prop_map(Step::Stop),
        2 => Just(Step::Rest),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The host writes any word to its rings at any time, and starts and stops them. The card finishes its work,
    /// answers all requests, sends no frame in another node's name, and works again once its rings are valid.
    #[test]
    fn any_words_in_a_ring_leave_the_card_working(steps in prop::collection::vec(any_step(), 1..120)) {
        let mut b = Node::started(1, 4, |_| {});
        for step in steps {
            b.outputs = 0;
            match step {
                Step::Write(at, word) => b.set(at, word),
                Step::Demand(queue) => b.demand(queue),
                Step::Arrive(bytes) => {
                    let at = b.now + Time::from_ps(50_000_000).since(Time::ZERO);
                    b.arrive(&on_wire(&frame(0, 1, 1, bytes)), at.into());
                }
                Step::Start(ring, first) => {
                    b.start(ring, first);
                }
                Step::Stop(ring) => {
                    b.control(&request(OP_RING_STOP, &RingName { ring, reserved: 0 }));
                }
                Step::Rest => b.rest(),
            }
        }
        b.outputs = 0;
        b.rest();
        for (_, frame) in &b.frames {
            let is_own = frame[6..12] == mac_of_node(1) || frame[6..12] == mac_of_endpoint(1, MAC_ENDPOINT);
            prop_assert!(is_own, "{:x?}", &frame[..14]);
        }
        for ring in [RING_TRANSMIT, RING_RECEIVE] {
            prop_assert_eq!(b.control(&request(OP_RING_STOP, &RingName { ring, reserved: 0 })).0, STATUS_OK);
        }
        b.memory.fill(0);
        (0..4).for_each(|place| b.give_room(place, &[(RECEIVED + place * PLACE, 0x7ff)], 4));
        prop_assert_eq!(b.start(RING_TRANSMIT, TRANSMIT), STATUS_OK);
        prop_assert_eq!(b.start(RING_RECEIVE, RECEIVE), STATUS_OK);
        let (sent, came) = (b.frames.len(), b.count("frames_in"));
        b.give_frame(0, &frame(1, 0, 1, 100), RING_FIRST | RING_LAST);
        b.demand(DescriptorQueue::Transmit);
        let at = b.now + Time::from_ps(500_000_000).since(Time::ZERO);
        b.rest();
        b.arrive(&on_wire(&frame(0, 1, 1, 100)), at.into());
        b.rest();
        prop_assert_eq!((b.frames.len(), b.count("frames_in")), (sent + 1, came + 1));
    }
}
