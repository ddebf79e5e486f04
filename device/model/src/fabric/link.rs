//! A link between a node and the switch: two directions, each with bandwidth, latency, queue and faults.

use alloc::collections::VecDeque;

use thiserror::Error;

use crate::fabric::PortCounters;
use crate::fabric::ethernet::{HEADER_BYTES, tag_bytes};
use crate::fabric::faults::{Draws, Faults, Mishap};
use crate::platform::ledger::{Cost, Ledger, Resource, ResourceName, Transaction, Transactions};
use crate::random::Random;
use crate::time::{Passage, Span, Time};

/// Why a link cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LinkError {
    /// Frames would never arrive.
    #[error("the link of port {port} has no bandwidth; give it at least 1 bit/s")]
    NoBandwidth {
        /// The port.
        port: usize,
    },
}

/// Parameters of a link, the same for both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Serialization rate, bits per second.
    pub bandwidth_bits_per_s: u64,
    /// Propagation time from one end to the other.
    pub latency: Span,
    /// Max bytes of a frame after its Ethernet header and its VLAN tags.
    pub mtu_bytes: u32,
    /// Bytes on the wire around a frame: preamble and check sequence.
    pub framing_bytes: u32,
    /// Minimum bytes of a frame, without framing; shorter frames take as long.
    pub min_frame_bytes: u32,
    /// Bytes of gap after a frame.
    pub gap_bytes: u32,
    /// Max frames that wait at the switch; the switch drops further ones. Zero: unlimited, as on a network with its
    /// own flow control.
    pub queue_frames: u32,
}

impl LinkConfig {
    /// Ethernet's framing (IEEE 802.3: preamble 8 bytes, check sequence 4, gap 12, shortest frame 64 with its check
    /// sequence) at any speed. No latency, the usual MTU, an unlimited queue.
    pub const fn ethernet(bandwidth_bits_per_s: u64) -> Self {
        Self {
            bandwidth_bits_per_s,
            latency: Span::ZERO,
            mtu_bytes: 1_500,
            framing_bytes: 12,
            min_frame_bytes: 60,
            gap_bytes: 12,
            queue_frames: 0,
        }
    }

    /// No framing. No latency, the usual MTU, an unlimited queue.
    pub const fn native(bandwidth_bits_per_s: u64) -> Self {
        let framed = Self::ethernet(bandwidth_bits_per_s);
        Self { framing_bytes: 0, min_frame_bytes: 0, gap_bytes: 0, ..framed }
    }
}

/// Length of a frame on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameLength {
    /// From the Ethernet header, if the link has one, to the end of the payload.
    pub(super) bytes: usize,
    /// Bytes of VLAN tags, which the MTU does not count ([`super::ethernet::tag_bytes`]).
    pub(super) tag_bytes: usize,
}

impl FrameLength {
    /// Length of a frame without tags.
    pub(super) const fn untagged(bytes: usize) -> Self {
        Self { bytes, tag_bytes: 0 }
    }

    /// Length of `frame`, of which `bytes` are on the link.
    #[inline]
    pub(super) fn of(frame: &[u8], bytes: usize) -> Self {
        Self { bytes, tag_bytes: tag_bytes(frame) }
    }
}

/// A frame that passed one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// When its first bit arrives.
    pub(super) head: Time,
    /// When its last bit arrives.
    pub(super) tail: Time,
    /// Extra time on the link because its source was slower than the link.
    pub(super) held: Span,
    /// Bit that was flipped.
    pub(super) corrupt: Option<u32>,
}

/// The arrivals of one frame: none, one, or two if it was duplicated.
pub(super) type Arrivals = [Option<Arrival>; 2];

const NOTHING: Arrivals = [None, None];

/// Picoseconds per second times bits per byte. Ours: units.
const PS_BITS_PER_S_BYTE: u128 = 8_000_000_000_000;

#[derive(Debug)]
struct Direction {
    wire: Resource,
    /// When waiting frames begin to leave; only maintained for a bounded queue.
    waiting: VecDeque<Time>,
    draws: Draws,
}

/// Both directions of a link.
#[derive(Debug)]
pub(super) struct Link {
    config: LinkConfig,
    gap: Span,
    faults: Faults,
    /// Whether [`Link::faults`] has any effect.
    is_faulty: bool,
    is_up: bool,
    to_switch: Direction,
    to_node: Direction,
    /// The last computed serialization: most frames are as long as the one before.
    last: (usize, Span),
}

impl Direction {
    fn new(resource: ResourceName, seed: u64, stream: u64) -> Self {
        Self { wire: Resource::new(resource), waiting: VecDeque::new(), draws: Draws::new(seed, stream) }
    }

    /// Whether a frame finds the queue full when it is ready.
    fn is_full(&mut self, ready: Time, queue_frames: u32) -> bool {
        while self.waiting.front().is_some_and(|&leaves| leaves <= ready) {
            self.waiting.pop_front();
        }
        self.waiting.len() >= queue_frames as usize
    }
}

impl Link {
    pub(super) fn new(port: usize, config: LinkConfig, seed: u64) -> Result<Self, LinkError> {
        if config.bandwidth_bits_per_s == 0 {
            return Err(LinkError::NoBandwidth { port });
        }
        let stream = 2 * port as u64;
        Ok(Self {
            config,
            gap: span_of(config.gap_bytes.into(), config.bandwidth_bits_per_s),
            faults: Faults::NONE,
            is_faulty: false,
            is_up: true,
            to_switch: Direction::new(ResourceName::LinkToSwitch(port as u16), seed, stream),
            to_node: Direction::new(ResourceName::LinkToNode(port as u16), seed, stream + 1),
            last: (0, Span::ZERO),
        })
    }

    pub(super) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
        self.is_faulty = faults != Faults { reorder_delay: faults.reorder_delay, ..Faults::NONE };
    }

    pub(super) fn set_up(&mut self, is_up: bool) {
        self.is_up = is_up;
    }

    pub(super) const fn is_up(&self) -> bool {
        self.is_up && !self.faults.partition
    }

    /// Whether frames of this length pass without faults. Only a full queue can drop them.
    pub(super) const fn is_sound_for(&self, length: FrameLength) -> bool {
        self.is_up() && !self.is_faulty && self.carries(length)
    }

    /// Whether a frame fits the MTU.
    #[inline]
    const fn carries(&self, length: FrameLength) -> bool {
        length.bytes <= self.config.mtu_bytes as usize + HEADER_BYTES + length.tag_bytes
    }

    /// Frames from the switch that certainly fit the queue, even if no waiting frame leaves meanwhile.
    pub(super) fn room_to_node(&self) -> usize {
        let waiting = self.to_node.waiting.len();
        if self.config.queue_frames == 0 {
            usize::MAX
        } else {
            (self.config.queue_frames as usize).saturating_sub(waiting)
        }
    }

    /// Its configuration.
    pub(super) const fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Propagation time from one end to the other.
    pub(super) const fn latency(&self) -> Span {
        self.config.latency
    }

    /// Serialization time of the shortest frame.
    pub(super) fn shortest_serialization(&self) -> Span {
        let on_wire = u64::from(self.config.min_frame_bytes) + u64::from(self.config.framing_bytes);
        span_of(on_wire, self.config.bandwidth_bits_per_s)
    }

    /// Serialization time of a frame of `bytes`, without the gap after it.
    #[inline]
    pub(super) fn serialization(&mut self, bytes: usize) -> Span {
        if self.last.0 != bytes {
            let shortest = self.config.min_frame_bytes as usize;
            let on_wire = bytes.max(shortest) as u64 + u64::from(self.config.framing_bytes);
            self.last = (bytes, span_of(on_wire, self.config.bandwidth_bits_per_s));
        }
        self.last.1
    }

    /// Serialization time of a frame of `bytes`, with the gap after it.
    pub(super) fn slot(&mut self, bytes: usize) -> Span {
        self.serialization(bytes) + self.gap
    }

    /// Serialization time of `bytes` bytes without framing.
    pub(super) fn span(&self, bytes: u64) -> Span {
        span_of(bytes, self.config.bandwidth_bits_per_s)
    }

    /// Passes a frame from the node. The node waits for its link, so no queue drops the frame.
    #[inline]
    pub(super) fn pass_to_switch(
        &mut self,
        ready: Passage,
        length: FrameLength,
        counters: &mut PortCounters,
        ledger: &mut Ledger,
    ) -> Arrivals {
        let (arrival, draws) = self.pass::<false>(ready, length, counters, ledger);
        self.apply_faults(arrival, length.bytes, draws, counters)
    }

    /// Passes a frame from the switch.
    #[inline]
    pub(super) fn pass_to_node(
        &mut self,
        ready: Passage,
        length: FrameLength,
        counters: &mut PortCounters,
        ledger: &mut Ledger,
    ) -> Arrivals {
        let (arrival, draws) = self.pass::<true>(ready, length, counters, ledger);
        self.apply_faults(arrival, length.bytes, draws, counters)
    }

    /// The arrivals of a frame after faults with these random values.
    #[inline]
    fn apply_faults(
        &self,
        arrival: Option<Arrival>,
        bytes: usize,
        draws: Random,
        counters: &mut PortCounters,
    ) -> Arrivals {
        match arrival {
            Some(arrival) if self.is_faulty => afflict(arrival, bytes, &self.faults, draws, counters),
            arrival => [arrival, None],
        }
    }

    /// The arrival of a frame without faults, and the random values for its faults.
    #[inline(always)]
    fn pass<const IS_TO_NODE: bool>(
        &mut self,
        ready: Passage,
        length: FrameLength,
        counters: &mut PortCounters,
        ledger: &mut Ledger,
    ) -> (Option<Arrival>, Random) {
        let bytes = length.bytes;
        let direction = if IS_TO_NODE { &mut self.to_node } else { &mut self.to_switch };
        // Sampled even for a frame that is dropped, so that the n-th frame always has the n-th values.
        let draws = direction.draws.next_frame();
        if !self.is_up() {
            counters.dropped_down += 1;
            return (None, draws);
        }
        if !self.carries(length) {
            counters.dropped_long += 1;
            return (None, draws);
        }
        let serialization = self.serialization(bytes);
        let direction = if IS_TO_NODE { &mut self.to_node } else { &mut self.to_switch };
        let is_bounded = IS_TO_NODE && self.config.queue_frames != 0;
        if is_bounded && direction.is_full(ready.head, self.config.queue_frames) {
            counters.dropped_queue += 1;
            return (None, draws);
        }
        let start = ready.head.max(direction.wire.busy_until());
        let occupancy = serialization.max(ready.tail.since(start));
        let cost = Cost { count: 1, bytes: bytes as u64, occupancy, latency: self.config.latency };
        let stage = ledger.charge(Transaction::Serialization, &mut direction.wire, ready.head, cost);
        direction.wire.hold_until(stage.released + self.gap);
        if is_bounded && stage.start > ready.head {
            direction.waiting.push_back(stage.start);
        }
        let held = Span::from_ps(occupancy.as_ps() - serialization.as_ps());
        let head = stage.start + self.config.latency;
        (Some(Arrival { head, tail: stage.end, held, corrupt: None }), draws)
    }
}

/// One direction of a link while a batch of frames of one length passes: as [`Link::pass`] for each, without faults
/// ([`Link::is_sound_for`]).
pub(super) struct LinkBatch<'a> {
    direction: &'a mut Direction,
    serialization: Span,
    gap: Span,
    latency: Span,
    /// Max waiting frames; none if unlimited.
    queue_frames: Option<u32>,
    busy_until: Time,
    came: u64,
    dropped: u64,
    transactions: Transactions,
}

impl<'a> LinkBatch<'a> {
    /// A batch from the node.
    pub(super) fn to_switch(link: &'a mut Link, bytes: usize, ledger: &Ledger) -> Self {
        Self::new(link, bytes, false, ledger)
    }

    /// A batch from the switch.
    pub(super) fn to_node(link: &'a mut Link, bytes: usize, ledger: &Ledger) -> Self {
        Self::new(link, bytes, true, ledger)
    }

    fn new(link: &'a mut Link, bytes: usize, is_to_node: bool, ledger: &Ledger) -> Self {
        let serialization = link.serialization(bytes);
        let Link { config, gap, to_switch, to_node, .. } = link;
        let direction = if is_to_node { to_node } else { to_switch };
        let latency = config.latency;
        let cost = Cost { count: 1, bytes: bytes as u64, occupancy: serialization, latency };
        Self {
            serialization,
            gap: *gap,
            latency,
            queue_frames: Some(config.queue_frames).filter(|&frames| is_to_node && frames != 0),
            busy_until: direction.wire.busy_until(),
            came: 0,
            dropped: 0,
            transactions: ledger.transactions(Transaction::Serialization, cost),
            direction,
        }
    }

    /// Serialization time of a frame.
    pub(super) const fn serialization(&self) -> Span {
        self.serialization
    }

    /// Passes the next frame. None if the queue is full.
    #[inline(always)]
    pub(super) fn pass(&mut self, ready: Passage) -> Option<Arrival> {
        self.came += 1;
        if self.queue_frames.is_some_and(|most| self.direction.is_full(ready.head, most)) {
            self.dropped += 1;
            return None;
        }
        let start = ready.head.max(self.busy_until);
        let occupancy = self.serialization.max(ready.tail.since(start));
        let stage = self.transactions.cross_for(&mut self.busy_until, ready.head, occupancy);
        self.busy_until = self.busy_until.max(stage.released + self.gap);
        if self.queue_frames.is_some() && stage.start > ready.head {
            self.direction.waiting.push_back(stage.start);
        }
        let held = Span::from_ps(occupancy.as_ps() - self.serialization.as_ps());
        Some(Arrival { head: stage.start + self.latency, tail: stage.end, held, corrupt: None })
    }

    /// Records the batch.
    pub(super) fn enter(self, counters: &mut PortCounters, ledger: &mut Ledger) {
        self.direction.wire.hold_until(self.busy_until);
        self.direction.draws.skip_frames(self.came);
        counters.dropped_queue += self.dropped;
        ledger.enter(&self.transactions);
    }
}

/// Serialization time of `bytes`, rounded up to the picosecond.
fn span_of(bytes: u64, bandwidth_bits_per_s: u64) -> Span {
    let ps = (u128::from(bytes) * PS_BITS_PER_S_BYTE).div_ceil(bandwidth_bits_per_s.into());
    Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
}

/// The arrivals of a frame after faults with these random values.
fn afflict(
    mut arrival: Arrival,
    bytes: usize,
    faults: &Faults,
    draws: Random,
    counters: &mut PortCounters,
) -> Arrivals {
    let mishap = Mishap::draw(draws, faults, bytes);
    if mishap.is_lost {
        counters.dropped_lost += 1;
        return NOTHING;
    }
    arrival.head += faults.delay;
    arrival.tail += faults.delay;
    let first = arrival;
    if mishap.flipped_bit.is_some() {
        counters.corrupted += 1;
        arrival.corrupt = mishap.flipped_bit;
    }
    if mishap.is_late {
        counters.reordered += 1;
        arrival.head += faults.reorder_delay;
        arrival.tail += faults.reorder_delay;
    }
    if mishap.is_duplicated {
        counters.duplicated += 1;
        return [Some(arrival), Some(first)];
    }
    [Some(arrival), None]
}
