//! Batches of consecutive frames from one port to another that are equal except for their payload. They are priced
//! together, with the same sums and instants as one by one ([`Switching::forward`]).
//!
//! Each frame still waits for busy resources, so the instants are computed one after the other. The route and the
//! prices are computed once, and the ledger is updated once for each stage.

use super::{Forwarding, Frame, Outlet, Ports, SwitchPort, Switching};
use crate::fabric::ethernet::HEADER_BYTES;
use crate::fabric::frame_head::FrameHead;
use crate::fabric::link::{FrameLength, LinkBatch};
use crate::platform::ledger::{Cost, Transaction};
use crate::platform::trace_tag::TraceTag;
use crate::time::{Passage, Span, Time};

/// A frame of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchFrame {
    /// When its sender's software began it.
    pub launched: Time,
    /// When its first and last byte reach the current stage. None if it was dropped.
    pub passage: Option<Passage>,
}

impl BatchFrame {
    /// How long it took from its sender's software to the end of the current stage. None if it was dropped.
    pub fn latency(&self) -> Option<Span> {
        Some(self.passage?.tail.since(self.launched))
    }
}

/// What all frames of a batch have in common on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchLength {
    /// Bytes of each frame, with its Ethernet header, and without VLAN tags.
    pub bytes: usize,
    /// Whether the frames have their own routing, for networks without Ethernet headers.
    pub is_routed: bool,
}

impl SwitchPort {
    /// Whether frames of this length can pass as a batch: the link is fault-free, and no observer records single
    /// stages.
    fn takes_batch(&self, length: FrameLength) -> bool {
        self.link.is_sound_for(length) && !self.ledger.is_recording()
    }
}

impl Switching {
    /// The port to which frames like this one go from `from` as a batch. None if each frame must go alone: links are
    /// faulty, down, or have a smaller MTU; stages are recorded; or the frame goes to several ports, back, or by its
    /// own routing.
    ///
    /// Call this for frames that are sent afterwards: the switch learns from it.
    pub fn batch_route(&mut self, ports: &mut impl Ports, from: u16, frame: FrameHead<'_>) -> Option<u16> {
        let header = Frame::new_checked(frame.bytes)?;
        let length = FrameLength::of(frame.bytes, frame.frame_bytes);
        if !ports.port(from)?.takes_batch(length)
            || self.routing.and_then(|routing| routing(frame.bytes)).is_some()
        {
            return None;
        }
        let Outlet::Port(to) = self.switch.outlet(from, &header) else { return None };
        (to != from && ports.port(to)?.takes_batch(length)).then_some(to)
    }

    /// Max frames that cross from one port to another as a batch without a drop. Zero if links are faulty, down, or
    /// have a smaller MTU, or if stages are recorded.
    pub fn batch_room(&self, from: &SwitchPort, to: &SwitchPort, length: BatchLength) -> usize {
        let length = FrameLength::untagged(self.on_wire(length));
        if from.takes_batch(length) && to.takes_batch(length) { to.link.room_to_node() } else { 0 }
    }

    /// [`Switching::forward`] of frames from one port to another ([`Switching::batch_route`],
    /// [`Switching::batch_room`]). On entry, each frame has the instants when it is ready for the link; afterwards, the
    /// instants of its arrival. `last` is the message of the last frame.
    #[inline]
    pub fn forward_batch(
        &self,
        (near, far): (&mut SwitchPort, &mut SwitchPort),
        length: BatchLength,
        frames: &mut [BatchFrame],
        last: Option<TraceTag>,
    ) {
        let bytes = self.on_wire(length);
        let latency = self.fall_through;
        let cost = Cost { count: 1, bytes: bytes as u64, occupancy: Span::ZERO, latency };
        let mut up = LinkBatch::to_switch(&mut near.link, bytes, &near.ledger);
        let mut switch = near.ledger.transactions(Transaction::SwitchFallThrough, cost);
        let mut down = LinkBatch::to_node(&mut far.link, bytes, &far.ledger);
        let mut delivered = 0;
        for frame in frames.iter_mut() {
            frame.passage = frame.passage.and_then(|ready| {
                let entering = up.pass(ready)?;
                let entered = match self.forwarding {
                    Forwarding::CutThrough => {
                        entering.head.max(entering.tail.before(entering.held).before(down.serialization()))
                    }
                    Forwarding::StoreAndForward => entering.tail,
                };
                let head = switch.cross(&mut { Time::ZERO }, entered).end;
                let arrived = down.pass(Passage { head, tail: entering.tail + latency })?;
                Some(Passage { head: arrived.head, tail: arrived.tail })
            });
            delivered += u64::from(frame.passage.is_some());
        }
        near.ledger.attribute(last);
        near.ledger.enter(&switch);
        far.ledger.attribute(last);
        up.enter(&mut near.counters, &mut near.ledger);
        down.enter(&mut far.counters, &mut far.ledger);
        near.counters.frames_in += frames.len() as u64;
        near.counters.bytes_in += (frames.len() * bytes) as u64;
        far.counters.frames_out += delivered;
        far.counters.bytes_out += delivered * bytes as u64;
    }

    /// Bytes of each frame on the wire.
    #[inline]
    const fn on_wire(&self, BatchLength { bytes, is_routed }: BatchLength) -> usize {
        let off_wire = if is_routed && self.routing.is_some() { HEADER_BYTES } else { 0 };
        bytes.saturating_sub(off_wire)
    }
}
