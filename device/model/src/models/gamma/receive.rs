//! Receive side: frames wait in the FIFO until the card stores them in the buffers of the next descriptors.

use alloc::collections::VecDeque;
use core::mem;

use niclab_abi::rings::{
    RING_ERROR, RING_LENGTH_SHIFT, RING_STATUS_DAMAGED, RING_STATUS_FIRST, RING_STATUS_LAST,
    RING_STATUS_TRUNCATED,
};
use smallvec::SmallVec;

use crate::models::gamma::config::Config;
use crate::models::gamma::counters::Effects;
use crate::models::gamma::interrupts::Stored;
use crate::models::gamma::ring::{DEMAND_LOOKS, MAX_PARTS};
use crate::models::gamma::wire::{self, Carried, HEAD_BYTES, WireError};
use crate::nic::HostRanges;
use crate::nic::frame::SharedFrame;
use crate::parts::descriptor_ring::dec2114x::{Dec2114x, Descriptor};
use crate::parts::descriptor_ring::{DescriptorRing, Found, RingFault, Taken};
use crate::parts::host_interface::BusTransfer;
use crate::platform::trace_tag::TraceTag;
use crate::time::{Span, Time};

/// A frame in the FIFO.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) frame: SharedFrame,
    /// Arrival times of its first and last byte.
    head: Time,
    tail: Time,
    /// Bytes that the host receives: without the check sequence.
    pub(super) bytes: usize,
    /// Error bits of the frame, as in a descriptor's status.
    pub(super) fault: u32,
    pub(super) message: Option<TraceTag>,
    /// Bytes already stored in host memory.
    stored: usize,
    parts: SmallVec<[Taken; 1]>,
}

/// A frame that the card's wire, which is slower than the link, has not delivered yet.
#[derive(Debug)]
struct Coming {
    head: Time,
    tail: Time,
    frame: SharedFrame,
    message: Option<TraceTag>,
}

/// Maximum frames that wait for the card's wire. A link that is faster than the card queues frames as a switch does,
/// and drops the excess. (The attack: a flood from many nodes.) Ours: a bound.
const MAX_COMING: usize = 4_096;

/// Frames that were stored.
pub(super) type Stores = SmallVec<[Stored; 1]>;

/// The receiving half of a card.
#[derive(Debug)]
pub(super) struct Receive {
    ring: DescriptorRing<Dec2114x>,
    /// Token of the pending read of the next descriptor.
    look: Option<u64>,
    /// The next descriptor, prefetched.
    next: Option<Taken>,
    /// Frames from a link that is faster than the card, which wait for the card's wire.
    coming: VecDeque<Coming>,
    wire_free: Time,
    fifo: VecDeque<Arrived>,
    /// Bytes of stored frames, with the time until which they occupy the FIFO.
    leaving: VecDeque<(Time, usize)>,
    /// When the last effect on memory is visible.
    visible: Time,
}

impl Drop for Receive {
    /// Without a card the descriptors that it has taken are void.
    fn drop(&mut self) {
        self.stop();
    }
}

impl Receive {
    pub(super) fn new() -> Self {
        Self {
            ring: ring(0),
            look: None,
            next: None,
            coming: VecDeque::new(),
            wire_free: Time::ZERO,
            fifo: VecDeque::new(),
            leaving: VecDeque::new(),
            visible: Time::ZERO,
        }
    }

    /// Whether the driver has started the receive ring.
    pub(super) fn is_started(&self) -> bool {
        self.ring.is_started()
    }

    /// The driver starts the ring, which begins at `first`.
    pub(super) fn start(
        &mut self,
        now: Time,
        first: u64,
        skip_bytes: u32,
        effects: &mut Effects,
    ) -> Result<(), RingFault> {
        if self.ring.is_started() {
            return self.ring.start(first);
        }
        self.ring = ring(skip_bytes);
        self.ring.start(first)?;
        self.look(now, effects);
        Ok(())
    }

    /// Stops the ring. Returns the time at which all writes are visible.
    pub(super) fn stop(&mut self) -> Time {
        self.ring.stop();
        self.look = None;
        self.coming.clear();
        mem::take(&mut self.next).into_iter().for_each(Taken::void);
        for mut arrived in self.fifo.drain(..) {
            mem::take(&mut arrived.parts).into_iter().for_each(Taken::void);
        }
        self.visible
    }

    /// Poll demand: the driver has given descriptors to the card.
    pub(super) fn on_demand(&mut self, now: Time, effects: &mut Effects) {
        effects.attribute(None);
        let told = effects.interface.transfer(BusTransfer::Doorbell, now, 0).end;
        self.ring.demand();
        self.look(told, effects);
    }

    /// Starts the read of the next descriptor, unless the card has one or reads one already. Returns whether it
    /// started.
    fn look(&mut self, ready: Time, effects: &mut Effects) -> bool {
        if self.next.is_some() || self.look.is_some() {
            return false;
        }
        let token = effects.next_token();
        let Some(ranges) = self.ring.look(token) else { return false };
        self.look = Some(token);
        effects.attribute(None);
        effects.fetch_descriptor::<Dec2114x>(ready, token, ranges);
        true
    }

    /// When the card's wire delivers the next frame of a faster link.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.coming.front().map(|coming| coming.tail)
    }

    /// A frame arrives over the link. Returns the frames that the card has stored.
    pub(super) fn on_frame(
        &mut self,
        (head, tail): (Time, Time),
        frame: &SharedFrame,
        message: Option<TraceTag>,
        config: &Config,
        effects: &mut Effects,
    ) -> Stores {
        let begun = head.max(self.wire_free);
        let all = (begun + config.line_time(frame.len())).max(tail);
        self.wire_free = all;
        if all <= tail && self.coming.is_empty() {
            return self.on_arrived((head, tail), frame, message, config, effects);
        }
        if self.coming.len() >= MAX_COMING {
            effects.counters.overflows += 1;
            return Stores::new();
        }
        self.coming.push_back(Coming { head: begun, tail: all, frame: frame.clone(), message });
        Stores::new()
    }

    /// The card's wire delivers the next frame of a faster link. Returns the stored frames; none if no frame is due.
    pub(super) fn on_timeout(&mut self, now: Time, config: &Config, effects: &mut Effects) -> Option<Stores> {
        self.coming.front().filter(|coming| coming.tail <= now)?;
        let Coming { head, tail, frame, message } = self.coming.pop_front()?;
        Some(self.on_arrived((head, tail), &frame, message, config, effects))
    }

    /// A frame has arrived at the FIFO. Returns the frames that the card has stored.
    fn on_arrived(
        &mut self,
        (head, tail): (Time, Time),
        frame: &SharedFrame,
        message: Option<TraceTag>,
        config: &Config,
        effects: &mut Effects,
    ) -> Stores {
        let whole = frame.len();
        let (bytes, fault) = match wire::open(frame, config.node) {
            Ok(bytes) => (bytes, 0),
            Err(WireError::Check) => {
                effects.counters.card.damaged += 1;
                (whole, RING_ERROR | RING_STATUS_DAMAGED)
            }
            Err(WireError::Foreign) => {
                effects.counters.card.foreign_frames += 1;
                return Stores::new();
            }
            Err(WireError::Elsewhere) => {
                effects.counters.elsewhere += 1;
                return Stores::new();
            }
            Err(WireError::Length { .. } | WireError::Forged) => {
                effects.counters.card.malformed += 1;
                return Stores::new();
            }
        };
        if !self.is_started() && !config.is_cpu_driven {
            // No driver has started the ring.
            effects.counters.missed += 1;
            return Stores::new();
        }
        while self.leaving.pop_front_due(tail) {}
        let leaving: usize = self.leaving.iter().map(|(_, bytes)| bytes).sum();
        let waiting: usize = self.fifo.iter().map(|arrived| arrived.frame.len()).sum();
        if leaving + waiting + whole > config.receive_fifo_bytes as usize {
            effects.counters.overflows += 1;
            effects.counters.card.overruns += 1;
            return Stores::new();
        }
        let message = message.filter(|_| fault == 0);
        let parts = SmallVec::new();
        let arrived = Arrived { frame: frame.clone(), head, tail, bytes, fault, message, stored: 0, parts };
        self.fifo.push_back(arrived);
        let mut stores = Stores::new();
        if !config.is_cpu_driven {
            self.serve(tail, config, effects, &mut stores);
        }
        stores
    }

    /// The first frame in the FIFO, which waits for the processor.
    pub(super) fn first(&self) -> Option<&Arrived> {
        self.fifo.front()
    }

    /// Removes the first frame when the processor is done with it. It occupies the FIFO until `end`.
    pub(super) fn drop_first(&mut self, end: Time) -> Option<Arrived> {
        let arrived = self.fifo.pop_front()?;
        self.leaving.push_back((end, arrived.frame.len()));
        self.visible = self.visible.max(end);
        Some(arrived)
    }

    /// Accepts a descriptor that was read. Returns the stored frames; none if the token belongs to the other half.
    pub(super) fn on_data(
        &mut self,
        now: Time,
        token: u64,
        bytes: &[u8],
        is_whole: bool,
        config: &Config,
        effects: &mut Effects,
    ) -> Option<Stores> {
        self.look.take_if(|look| *look == token)?;
        let mut stores = Stores::new();
        match self.ring.on_data(token, bytes, is_whole) {
            Found::Taken(taken) => {
                effects.counters.descriptors_taken += 1;
                self.next = Some(taken);
            }
            Found::Nothing => {
                effects.counters.descriptors_idle += 1;
                // The driver may have issued another poll demand during the read.
                if self.look(now, effects) {
                    return Some(stores);
                }
                stores.extend(self.give_up(effects, now));
            }
            Found::Broken(_) => {
                effects.counters.broken_rings += 1;
                self.stop();
            }
            Found::Stale => {}
        }
        self.serve(now, config, effects, &mut stores);
        Some(stores)
    }

    /// Stores frames while descriptors are available. The card drops a frame without descriptor, and counts it as
    /// missed. Each such frame makes the card read the ring once more, since the driver may have added descriptors.
    fn serve(&mut self, now: Time, config: &Config, effects: &mut Effects, stores: &mut Stores) {
        let mut end = now;
        while let Some(arrived) = self.fifo.front_mut() {
            let Some(taken) = self.next.take() else {
                if self.look.is_some() {
                    return;
                }
                self.ring.demand();
                if self.look(now, effects) {
                    return;
                }
                stores.extend(self.give_up(effects, now));
                continue;
            };
            effects.attribute(arrived.message);
            end = store(now, arrived, &taken, config, effects);
            arrived.parts.push(taken);
            self.visible = self.visible.max(end);
            if arrived.stored == arrived.bytes {
                stores.extend(self.finish(end, 0, effects));
            }
        }
        // Prefetch: the descriptor shall be here before the next frame.
        self.look(end, effects);
    }

    /// Gives up the first frame, for which the ring has too little room.
    fn give_up(&mut self, effects: &mut Effects, now: Time) -> Option<Stored> {
        let arrived = self.fifo.front()?;
        effects.counters.card.overruns += 1;
        if arrived.parts.is_empty() {
            effects.counters.missed += 1;
            self.fifo.pop_front();
            return None;
        }
        effects.counters.truncated += 1;
        self.finish(now, RING_ERROR | RING_STATUS_TRUNCATED, effects)
    }

    /// The first frame is stored, perhaps truncated. The card returns its descriptors to the host.
    fn finish(&mut self, end: Time, fault: u32, effects: &mut Effects) -> Option<Stored> {
        let arrived = self.fifo.pop_front()?;
        let fault = arrived.fault | fault;
        self.leaving.push_back((end, arrived.frame.len()));
        effects.attribute(arrived.message);
        let last = arrived.parts.len().saturating_sub(1);
        let mut visible = end;
        for (place, part) in arrived.parts.into_iter().enumerate() {
            let begin = if place == 0 { RING_STATUS_FIRST } else { 0 };
            let length = (arrived.stored as u32) << RING_LENGTH_SHIFT;
            let finish = if place == last { RING_STATUS_LAST | fault | length } else { 0 };
            let word = Descriptor::new(part.words()).done(begin | finish);
            if let Some(write_back) = self.ring.write_back(part, word) {
                visible = effects.write_back(end, write_back);
            }
        }
        self.visible = self.visible.max(visible);
        let Counted { copied_bytes, port, is_last } =
            count_received(&arrived.frame, arrived.stored, fault == 0, effects);
        let bytes = arrived.stored as u64;
        Some(Stored { visible, bytes, copied_bytes, message: arrived.message, port, is_last })
    }
}

/// What the host does with a received frame.
pub(super) struct Counted {
    /// Bytes that the processor copies to the final destination, if the card stored them in a ring buffer.
    pub(super) copied_bytes: u64,
    /// Its active port.
    pub(super) port: Option<u8>,
    /// The frame is the last of its message.
    pub(super) is_last: bool,
}

/// Counts a frame, of which `received` bytes reached the host.
pub(super) fn count_received(
    frame: &[u8],
    received: usize,
    is_sound: bool,
    effects: &mut Effects,
) -> Counted {
    let counters = &mut effects.counters;
    counters.frames_received += 1;
    let carried = if is_sound { Carried::by(frame) } else { Carried::Unknown };
    let data = (received as u64).saturating_sub(HEAD_BYTES as u64);
    match carried {
        Carried::Data { to, is_last, .. } => {
            counters.card.messages_received += u64::from(is_last);
            counters.card.bytes_received += data;
            Counted { copied_bytes: data, port: Some(to.port), is_last }
        }
        Carried::Other => {
            counters.other_received += 1;
            Counted { copied_bytes: received as u64, port: None, is_last: false }
        }
        Carried::Acknowledgement | Carried::Unknown => {
            Counted { copied_bytes: 0, port: None, is_last: false }
        }
    }
}

/// Stores as much of a frame as fits into the buffers of a descriptor. Returns when the data is visible.
fn store(now: Time, arrived: &mut Arrived, taken: &Taken, config: &Config, effects: &mut Effects) -> Time {
    let mut buffers = Descriptor::new(taken.words()).buffers();
    let rest = arrived.bytes - arrived.stored;
    let bytes = cut(&mut buffers, rest as u64) as usize;
    let begin = arrived.stored;
    arrived.stored += bytes;
    if bytes == 0 {
        return now;
    }
    let burst = config.receive_burst_bytes as usize;
    if burst == 0 || begin > 0 || bytes <= burst || now > arrived.tail {
        return effects.dma_frame(now, &arrived.frame, begin..begin + bytes, buffers);
    }
    // The card stored all bursts but the last while it received the frame (section 4: it immediately starts filling the
    // next buffer).
    let early = bytes - burst;
    let (mut first, mut last) = (buffers.clone(), buffers);
    cut(&mut first, early as u64);
    skip(&mut last, early as u64);
    let whole = arrived.tail.since(arrived.head).as_ps();
    let burst_came = Span::from_ps(whole / (arrived.frame.len() as u64).max(1) * burst as u64);
    effects.dma_frame((arrived.head + burst_came).min(now), &arrived.frame, 0..early, first);
    effects.dma_frame(now, &arrived.frame, early..bytes, last)
}

/// Truncates the ranges to `bytes` bytes. Returns how many bytes they then have.
fn cut(ranges: &mut HostRanges, bytes: u64) -> u64 {
    let mut left = bytes;
    for range in ranges.iter_mut() {
        range.bytes = range.bytes.min(left);
        left -= range.bytes;
    }
    ranges.retain(|range| range.bytes > 0);
    bytes - left
}

/// Removes the first `bytes` bytes of the ranges.
fn skip(ranges: &mut HostRanges, bytes: u64) {
    let mut left = bytes;
    for range in ranges.iter_mut() {
        let skipped = range.bytes.min(left);
        range.address = range.address.wrapping_add(skipped);
        range.bytes -= skipped;
        left -= skipped;
    }
    ranges.retain(|range| range.bytes > 0);
}

/// Queue of frames that leave the FIFO at known times.
trait Due {
    fn pop_front_due(&mut self, now: Time) -> bool;
}

impl Due for VecDeque<(Time, usize)> {
    fn pop_front_due(&mut self, now: Time) -> bool {
        let is_due = self.front().is_some_and(|(end, _)| *end <= now);
        is_due && self.pop_front().is_some()
    }
}

fn ring(skip_bytes: u32) -> DescriptorRing<Dec2114x> {
    DescriptorRing::new(Dec2114x { skip_bytes: skip_bytes.into() }, MAX_PARTS + 1, DEMAND_LOOKS)
}
