//! Transmit side: the card walks descriptors, reads frames into the FIFO, and sends them from there.

use alloc::collections::VecDeque;
use core::mem;

use niclab_abi::rings::{
    RING_ERROR, RING_STATUS_ADDRESS, RING_STATUS_FORGED, RING_STATUS_LENGTH, RING_STATUS_SEGMENT,
};
use smallvec::SmallVec;

use crate::fabric::ethernet::HEADER_BYTES;
use crate::models::gamma::config::Config;
use crate::models::gamma::counters::Effects;
use crate::models::gamma::ring::{DEMAND_LOOKS, MAX_PARTS, Outgoing};
use crate::models::gamma::wire::{self, Carried, HEAD_BYTES};
use crate::nic::{FrameBytes, HostRanges};
use crate::parts::descriptor_ring::dec2114x::{Dec2114x, Descriptor, FIRST_SEGMENT, LAST_SEGMENT};
use crate::parts::descriptor_ring::{DescriptorRing, Found, RingFault, Taken};
use crate::parts::host_interface::BusTransfer;
use crate::platform::profile::{Price, WORD_BYTES};
use crate::platform::trace_tag::TraceTag;
use crate::time::{Passage, Span, Time};

/// Maximum frames in the FIFO, even if they are short. Ours: a bound.
const MAX_FRAMES: usize = 8;

/// The descriptors of a frame, usually one.
type Parts = SmallVec<[Taken; 1]>;

/// A frame in the FIFO.
#[derive(Debug)]
struct Sending {
    /// When its last byte leaves.
    leaves: Time,
    bytes: u32,
    parts: Parts,
}

/// A frame that is ready for the wire.
#[derive(Debug)]
pub(super) struct Ready {
    /// The frame with its check sequence.
    pub(super) frame: FrameBytes,
    /// What it carries.
    pub(super) carried: Carried,
    /// Its message.
    pub(super) message: Option<TraceTag>,
    /// Bytes that the card read from host memory.
    pub(super) read: usize,
}

/// Progress of the next frame.
#[derive(Debug, Default)]
enum Next {
    /// The card reads its descriptors.
    #[default]
    Gathering,
    /// The frame waits for room in the FIFO.
    Waiting,
    /// The card reads its bytes.
    Reading { token: u64 },
}

/// The sending half of a card.
#[derive(Debug)]
pub(super) struct Transmit {
    ring: DescriptorRing<Outgoing>,
    /// Token of the read of the next descriptor.
    look: u64,
    next: Next,
    /// The descriptors of the next frame that the card has read so far.
    parts: Parts,
    fifo: VecDeque<Sending>,
    /// When the wire is free.
    wire_free: Time,
    /// Time of the last poll demand.
    demanded: Time,
    /// The message whose frames are being sent.
    message: Option<TraceTag>,
    messages: u64,
    /// When the last effect on memory is visible.
    visible: Time,
    /// Frames that the driver had taken from its receive ring when it sent the frame whose descriptor was read last.
    received: Option<u32>,
}

impl Drop for Transmit {
    /// Without a card the descriptors that it has taken are void.
    fn drop(&mut self) {
        self.stop();
    }
}

impl Transmit {
    pub(super) fn new() -> Self {
        Self {
            ring: ring(0),
            look: 0,
            next: Next::Gathering,
            parts: Parts::new(),
            fifo: VecDeque::new(),
            wire_free: Time::ZERO,
            demanded: Time::ZERO,
            message: None,
            messages: 0,
            visible: Time::ZERO,
            received: None,
        }
    }

    /// Frames that the driver had taken from its receive ring when it sent a frame; none if no first descriptor of a
    /// frame was read since the last call.
    pub(super) const fn take_received(&mut self) -> Option<u32> {
        self.received.take()
    }

    /// The driver starts the ring, which begins at `first`.
    pub(super) fn start(
        &mut self,
        now: Time,
        first: u64,
        skip_bytes: u32,
        config: &Config,
        effects: &mut Effects,
    ) -> Result<(), RingFault> {
        if self.ring.is_started() {
            return self.ring.start(first);
        }
        self.ring = ring(skip_bytes);
        self.ring.start(first)?;
        self.go_on(now, config, effects);
        Ok(())
    }

    /// Stops the ring. Frames in the FIFO still leave. Returns the time at which all writes are visible.
    pub(super) fn stop(&mut self) -> Time {
        self.ring.stop();
        self.next = Next::Gathering;
        self.message = None;
        mem::take(&mut self.parts).into_iter().for_each(Taken::void);
        self.fifo.iter_mut().flat_map(|sending| mem::take(&mut sending.parts)).for_each(Taken::void);
        self.visible
    }

    /// When the next frame has left.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.fifo.front().map(|sending| sending.leaves)
    }

    /// The program makes a system call. Returns the time at which the driver's code is done.
    pub(super) fn on_call(&mut self, now: Time, effects: &mut Effects) -> Time {
        self.demanded = now.max(effects.interface.host_clock());
        effects.interface.host_send(now, 0)
    }

    /// Poll demand of the driver during a system call (section 4).
    pub(super) fn on_demand(&mut self, now: Time, config: &Config, effects: &mut Effects) {
        effects.attribute(None);
        let prepared = self.on_call(now, effects);
        let told = effects.interface.transfer(BusTransfer::Doorbell, prepared, 0).end;
        self.ring.demand();
        self.go_on(told, config, effects);
    }

    /// Frames have left.
    pub(super) fn on_timeout(&mut self, now: Time, config: &Config, effects: &mut Effects) {
        while let Some(sending) = self.fifo.pop_front_due(now) {
            self.give_back(now, sending.parts, 0, effects);
        }
        if matches!(self.next, Next::Waiting) {
            self.next = Next::Gathering;
            self.on_gathered(now, config, effects);
        }
        self.go_on(now, config, effects);
    }

    /// Starts the read of the next descriptor, unless the card is reading a frame into the FIFO.
    fn go_on(&mut self, ready: Time, config: &Config, effects: &mut Effects) {
        if !matches!(self.next, Next::Gathering) || self.fifo.len() >= MAX_FRAMES {
            return;
        }
        if self.parts.len() >= MAX_PARTS {
            return self.refuse(ready, RING_STATUS_LENGTH, config, effects);
        }
        let token = effects.next_token();
        let Some(ranges) = self.ring.look(token) else { return };
        self.look = token;
        effects.attribute(None);
        effects.fetch_descriptor::<Outgoing>(ready, token, ranges);
    }

    /// Accepts a descriptor or data that was read. Returns false if the token belongs to the other half.
    pub(super) fn on_data(
        &mut self,
        now: Time,
        token: u64,
        bytes: FrameBytes,
        is_whole: bool,
        config: &Config,
        effects: &mut Effects,
    ) -> bool {
        if token == self.look {
            self.on_descriptor(now, &bytes, is_whole, config, effects);
            return true;
        }
        let is_frame = matches!(self.next, Next::Reading { token: asked } if asked == token);
        if is_frame {
            self.next = Next::Gathering;
            self.on_frame(now, bytes, is_whole, config, effects);
        }
        is_frame
    }

    fn on_descriptor(
        &mut self,
        now: Time,
        bytes: &[u8],
        is_whole: bool,
        config: &Config,
        effects: &mut Effects,
    ) {
        let taken = match self.ring.on_data(self.look, bytes, is_whole) {
            Found::Taken(taken) => taken,
            Found::Nothing => {
                effects.counters.descriptors_idle += 1;
                // The driver may have issued another poll demand during the read.
                return self.go_on(now, config, effects);
            }
            Found::Broken(_) => {
                effects.counters.broken_rings += 1;
                mem::take(&mut self.parts).into_iter().for_each(Taken::void);
                return;
            }
            Found::Stale => return,
        };
        effects.counters.descriptors_taken += 1;
        let control = Descriptor::new(taken.words()).control;
        let (is_first, is_last) = (control & FIRST_SEGMENT != 0, control & LAST_SEGMENT != 0);
        if is_first && !self.parts.is_empty() {
            let unfinished = mem::take(&mut self.parts);
            self.give_back(now, unfinished, RING_ERROR | RING_STATUS_SEGMENT, effects);
            effects.counters.bad_segment += 1;
        }
        let is_stray = !is_first && self.parts.is_empty();
        if is_first {
            self.received = Some(Outgoing::received(taken.words()));
        }
        self.parts.push(taken);
        if is_stray {
            return self.refuse(now, RING_STATUS_SEGMENT, config, effects);
        }
        if is_last {
            self.on_gathered(now, config, effects);
        }
        self.go_on(now, config, effects);
    }

    /// All descriptors of a frame are here. The card reads the frame as soon as the FIFO has room.
    fn on_gathered(&mut self, now: Time, config: &Config, effects: &mut Effects) {
        let ranges: HostRanges =
            self.parts.iter().flat_map(|part| Descriptor::new(part.words()).buffers()).collect();
        // The sum cannot overflow: at most sixteen descriptors with two buffers of eleven-bit lengths.
        let bytes: u64 = ranges.iter().map(|range| range.bytes).sum();
        if !(HEADER_BYTES as u64..=u64::from(config.mtu_bytes) + HEADER_BYTES as u64).contains(&bytes) {
            return self.refuse(now, RING_STATUS_LENGTH, config, effects);
        }
        if !self.has_room(bytes, config) {
            self.next = Next::Waiting;
            return;
        }
        let token = effects.next_token();
        self.next = Next::Reading { token };
        effects.attribute(self.message);
        effects.dma_read(now, token, ranges, FrameBytes::new());
    }

    /// The card has read a frame into the FIFO, or only the part that lies in the host's memory.
    fn on_frame(
        &mut self,
        now: Time,
        bytes: FrameBytes,
        is_whole: bool,
        config: &Config,
        effects: &mut Effects,
    ) {
        if !is_whole {
            return self.refuse(now, RING_STATUS_ADDRESS, config, effects);
        }
        let read = bytes.len();
        let frame = match wire::seal(bytes, config.node) {
            Ok(frame) if frame.len() <= config.mtu_bytes as usize + HEADER_BYTES => frame,
            Err(wire::WireError::Forged) => return self.refuse(now, RING_STATUS_FORGED, config, effects),
            _ => return self.refuse(now, RING_STATUS_LENGTH, config, effects),
        };
        let carried = Carried::by(&frame);
        let words = self.parts.first().map(Taken::words);
        let message_bytes = words.map_or(0, |words| Outgoing::message_bytes(words));
        let message = self.message_of(&carried, config.node, message_bytes);
        let now = self.leave(now, Ready { frame, carried, message, read }, config, effects);
        self.go_on(now, config, effects);
    }

    /// Whether the FIFO has room for a frame of `bytes` bytes.
    pub(super) fn has_room(&self, bytes: u64, config: &Config) -> bool {
        let used: u32 = self.fifo.iter().map(|sending| sending.bytes).sum();
        self.fifo.len() < MAX_FRAMES && u64::from(used) + bytes <= config.transmit_fifo_bytes.into()
    }

    /// Sends a frame whose read ended at `now`. Returns the time at which the host's work for it is done.
    pub(super) fn leave(&mut self, now: Time, ready: Ready, config: &Config, effects: &mut Effects) -> Time {
        let Ready { frame, carried, message, read } = ready;
        effects.attribute(message);
        let now = if carried == Carried::Other { other_protocol(now, read, effects) } else { now };
        let head = began(now, read as u64, config, &effects.interface.profile().bus.dma_read);
        let (on_wire, slot) = config.line_slot(frame.len());
        let start = head.max(self.wire_free);
        self.wire_free = start + slot;
        count_sent(&carried, read, effects);
        let sending = Sending {
            leaves: start.max(now) + on_wire,
            bytes: frame.len() as u32,
            parts: mem::take(&mut self.parts),
        };
        self.fifo.push_back(sending);
        effects.frame(Passage { head: start, tail: now.max(start) }, frame, message);
        now
    }

    /// The message of a frame: a new one if the frame is its first, else the current one.
    pub(super) fn message_of(
        &mut self,
        carried: &Carried,
        node: u16,
        message_bytes: u64,
    ) -> Option<TraceTag> {
        let Carried::Data { from, is_first, is_last, .. } = carried else { return None };
        if *is_first {
            self.messages += 1;
            self.message = Some(TraceTag {
                node,
                port: from.port.into(),
                number: self.messages,
                launched: self.demanded,
                bytes: u32::try_from(message_bytes).unwrap_or(u32::MAX),
            });
        }
        if *is_last { self.message.take() } else { self.message }
    }

    /// Refuses to send a frame, and writes the reason into its descriptors.
    fn refuse(&mut self, now: Time, why: u32, config: &Config, effects: &mut Effects) {
        let counters = &mut effects.counters;
        let count = match why {
            RING_STATUS_LENGTH => &mut counters.bad_length,
            RING_STATUS_ADDRESS => &mut counters.bad_address,
            RING_STATUS_FORGED => &mut counters.forged,
            _ => &mut counters.bad_segment,
        };
        *count += 1;
        counters.card.refused += 1;
        let parts = mem::take(&mut self.parts);
        self.give_back(now, parts, RING_ERROR | why, effects);
        self.go_on(now, config, effects);
    }

    fn give_back(&mut self, now: Time, parts: Parts, status: u32, effects: &mut Effects) {
        effects.attribute(None);
        for part in parts {
            let word = Descriptor::new(part.words()).done(status);
            if let Some(write_back) = self.ring.write_back(part, word) {
                self.visible = effects.write_back(now, write_back);
            }
        }
    }
}

/// Queue of frames with the times at which they have left.
trait Due {
    fn pop_front_due(&mut self, now: Time) -> Option<Sending>;
}

impl Due for VecDeque<Sending> {
    fn pop_front_due(&mut self, now: Time) -> Option<Sending> {
        self.front().filter(|sending| sending.leaves <= now)?;
        self.pop_front()
    }
}

fn ring(skip_bytes: u32) -> DescriptorRing<Outgoing> {
    let layout = Outgoing(Dec2114x { skip_bytes: skip_bytes.into() });
    DescriptorRing::new(layout, MAX_FRAMES * MAX_PARTS, DEMAND_LOOKS)
}

/// When a frame whose read ended at `now` could begin to leave, as far as the bus decides: as soon as the threshold's
/// bytes were in the FIFO.
fn began(now: Time, bytes: u64, config: &Config, price: &Price) -> Time {
    let threshold = u64::from(config.transmit_threshold_bytes);
    if threshold == 0 || threshold >= bytes {
        return now;
    }
    let words = (bytes - threshold).div_ceil(WORD_BYTES);
    now.before(Span::from_ps(price.per_word_ps).times(words))
}

/// The host's work for a frame of another protocol, in addition to the system call: the copy from program memory.
fn other_protocol(now: Time, bytes: usize, effects: &mut Effects) -> Time {
    effects.interface.host_copy(now, bytes as u64)
}

fn count_sent(carried: &Carried, bytes: usize, effects: &mut Effects) {
    let counters = &mut effects.counters;
    counters.frames_sent += 1;
    match carried {
        Carried::Data { is_last, .. } => {
            counters.card.messages_sent += u64::from(*is_last);
            counters.card.bytes_sent += (bytes - HEAD_BYTES) as u64;
        }
        Carried::Acknowledgement => counters.card.acknowledgements_sent += 1,
        Carried::Unknown => {}
        Carried::Other => counters.other_sent += 1,
    }
}
