//! Batches of consecutive frames from one port to another that are equal except for their payload. They are priced
//! together, with the same sums and instants as one by one ([`Switching::forward`]).
//!
//! Each frame still waits for busy resources, so the instants are computed one after the other. The route and the
//! prices are computed once, and the ledger is updated once for each stage. If each frame of a run meets the same link
//! state as the one before it, the run is extrapolated ([`steady`](crate::platform::steady)).

use alloc::vec::Vec;

use super::{Forwarding, Frame, Outlet, Port, PortCounters, Ports, Switching};
use crate::fabric::link::{FrameLength, LinkSeries};
use crate::platform::ledger::{self, Cost, Crossing, Ledger, Sums};
use crate::platform::steady::{self, Run};
use crate::platform::trace_tag::TraceTag;
use crate::time::{Passage, Span, Time};

/// A frame of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeriesFrame {
    /// When its sender's software began it.
    pub launched: Time,
    /// When its last byte reaches the current stage. None if it was dropped.
    pub at: Option<Time>,
}

/// Ports that can be borrowed in pairs.
pub trait PortPairs: Ports {
    /// The ports of two different nodes.
    fn pair(&mut self, one: u16, other: u16) -> Option<(&mut Port, &mut Port)>;
}

impl PortPairs for alloc::vec::Vec<Port> {
    fn pair(&mut self, one: u16, other: u16) -> Option<(&mut Port, &mut Port)> {
        let [one, other] = self.get_disjoint_mut([usize::from(one), usize::from(other)]).ok()?;
        Some((one, other))
    }
}

impl Port {
    /// Whether frames of this length can pass as a batch: the link is fault-free, and no observer records single
    /// stages.
    fn takes_series(&self, length: FrameLength) -> bool {
        self.link.is_sound_for(length) && !self.ledger.is_recording()
    }
}

impl Switching {
    /// The port to which frames like this one go from `from` as a batch. None if each frame must go alone: links are
    /// faulty, down, or have a smaller MTU; stages are recorded; or the frame goes to several ports, back, or by its
    /// own routing.
    ///
    /// Call this for frames that are sent afterwards: the switch learns from it.
    pub fn series_way(&mut self, ports: &mut impl PortPairs, from: u16, frame: &[u8]) -> Option<u16> {
        let header = Frame::new_checked(frame)?;
        let length = FrameLength::of(frame, frame.len());
        if !ports.port(from)?.takes_series(length)
            || self.routing.and_then(|routing| routing(frame)).is_some()
        {
            return None;
        }
        let Outlet::Port(to) = self.switch.outlet(from, &header) else { return None };
        (to != from && ports.port(to)?.takes_series(length)).then_some(to)
    }

    /// [`Switching::forward`] of frames of `bytes` from one port to another ([`Switching::series_way`]). On entry,
    /// each frame has the instant when it is ready for the link; afterwards, the instant of its arrival. `last` is the
    /// message of the last frame.
    pub fn forward_series(
        &self,
        ports: &mut impl PortPairs,
        (from, to): (u16, u16),
        bytes: usize,
        frames: &mut [SeriesFrame],
        last: Option<TraceTag>,
    ) {
        let Some((near, far)) = ports.pair(from, to) else { return };
        let arrive = |frame: &mut SeriesFrame, arrived: Option<Passage>| {
            frame.at = arrived.map(|passage| passage.tail);
        };
        self.cross_all((near, far), bytes, frames, |frame| frame.at.map(Passage::from), arrive, last);
    }

    /// Max packets of `bytes` that cross from one port to another as a batch without a drop. Zero if links are faulty,
    /// down, or have a smaller MTU, or if stages are recorded.
    pub fn packets_in_batch(&self, from: &Port, to: &Port, (bytes, is_routed): (usize, bool)) -> usize {
        let bytes = self.on_wire(bytes, is_routed);
        let length = FrameLength::untagged(bytes);
        if from.takes_series(length) && to.takes_series(length) { to.link.room_to_node() } else { 0 }
    }

    /// [`Switching::pass_packet`] of consecutive packets of `bytes` ([`Switching::packets_in_batch`]). The runs
    /// `coming` state when packets are ready for the link; the runs `done` state when they arrive. `last` is the
    /// message of the last packet.
    pub fn pass_packets(
        &self,
        (from, to): (&mut Port, &mut Port),
        (bytes, is_routed): (usize, bool),
        coming: &[Run],
        done: &mut Vec<Run>,
        last: Option<TraceTag>,
    ) {
        let bytes = self.on_wire(bytes, is_routed);
        let mut way = Crossings::new(self, (from, to), bytes);
        let mut count = 0;
        for run in coming {
            let mut coming = *run;
            while coming.count > 0 {
                let before = way.standing();
                let arrived = way.pass(coming.passage);
                debug_assert!(arrived.is_some(), "every packet of a batch arrives");
                let passage = arrived.unwrap_or_default();
                let mut one = Run { count: 1, passage, ..coming };
                if coming.count > 1 && way.is_steady(&before, &one) {
                    one.count = coming.count;
                    way.again(&before, &one);
                }
                count += one.count;
                coming = coming.behind(one.count);
                done.push(one);
            }
        }
        way.enter(count, last);
    }

    /// Passes consecutive frames of `bytes` on the wire. `ready` gives when each is ready for the link; `arrive`
    /// receives its arrival.
    #[inline(always)]
    fn cross_all<F>(
        &self,
        ports: (&mut Port, &mut Port),
        bytes: usize,
        frames: &mut [F],
        ready: impl Fn(&mut F) -> Option<Passage>,
        arrive: impl Fn(&mut F, Option<Passage>),
        last: Option<TraceTag>,
    ) {
        // Separate variables instead of `Crossings`: the compiler keeps them in registers.
        let (near, far) = ports;
        let mut up = LinkSeries::to_switch(&mut near.link, bytes, &near.ledger);
        let mut switch = self.fall_through_series(bytes, &near.ledger);
        let mut down = LinkSeries::to_node(&mut far.link, bytes, &far.ledger);
        let mut delivered = 0;
        for frame in frames.iter_mut() {
            let Some(ready) = ready(frame) else { continue };
            let arrived = self.cross_one(&mut up, &mut switch, &mut down, ready);
            arrive(frame, arrived);
            delivered += u64::from(arrived.is_some());
        }
        near.ledger.attribute(last);
        near.ledger.enter(&switch);
        far.ledger.attribute(last);
        up.enter(&mut near.counters, &mut near.ledger);
        down.enter(&mut far.counters, &mut far.ledger);
        count_series((&mut near.counters, &mut far.counters), (frames.len(), delivered, bytes));
    }

    /// Begins a batch of frames of `bytes` through the switch.
    #[inline(always)]
    const fn fall_through_series(&self, bytes: usize, ledger: &Ledger) -> ledger::Series {
        let latency = self.fall_through;
        let cost = Cost { count: 1, bytes: bytes as u64, occupancy: Span::ZERO, latency };
        ledger.series(Crossing::SwitchFallThrough, cost)
    }

    /// Passes one frame over a link, the switch, and another link. None if a queue is full.
    #[inline(always)]
    fn cross_one(
        &self,
        up: &mut LinkSeries<'_>,
        switch: &mut ledger::Series,
        down: &mut LinkSeries<'_>,
        ready: Passage,
    ) -> Option<Passage> {
        let entering = up.pass(ready)?;
        let entered = if self.forwarding == Forwarding::CutThrough {
            entering.head.max(entering.tail.before(entering.held).before(down.serialization()))
        } else {
            entering.tail
        };
        let head = switch.cross(&mut { Time::ZERO }, entered).end;
        let arrived = down.pass(Passage { head, tail: entering.tail + self.fall_through })?;
        Some(Passage { head: arrived.head, tail: arrived.tail })
    }
}

/// Counts a batch of frames of `bytes`: `came` frames from one port, of which `delivered` went to the other.
#[inline(always)]
const fn count_series(
    (near, far): (&mut PortCounters, &mut PortCounters),
    (came, delivered, bytes): (usize, u64, usize),
) {
    near.frames_in += came as u64;
    near.bytes_in += (came * bytes) as u64;
    far.frames_out += delivered;
    far.bytes_out += delivered * bytes as u64;
}

/// A batch that passes a link, the switch, and another link.
struct Crossings<'a> {
    switching: &'a Switching,
    near: (&'a mut PortCounters, &'a mut Ledger),
    far: (&'a mut PortCounters, &'a mut Ledger),
    up: LinkSeries<'a>,
    switch: ledger::Series,
    down: LinkSeries<'a>,
    bytes: usize,
}

/// The state that decides the arrival of a ready frame while no bounded queue has waiting frames: how long the links
/// are busy. And the sums of the frames so far.
struct Standing {
    busy_until: [Time; 2],
    sums: [Sums; 3],
}

impl<'a> Crossings<'a> {
    fn new(switching: &'a Switching, (near, far): (&'a mut Port, &'a mut Port), bytes: usize) -> Self {
        Self {
            switching,
            up: LinkSeries::to_switch(&mut near.link, bytes, &near.ledger),
            switch: switching.fall_through_series(bytes, &near.ledger),
            down: LinkSeries::to_node(&mut far.link, bytes, &far.ledger),
            near: (&mut near.counters, &mut near.ledger),
            far: (&mut far.counters, &mut far.ledger),
            bytes,
        }
    }

    /// Passes the next frame.
    #[inline(always)]
    fn pass(&mut self, ready: Passage) -> Option<Passage> {
        self.switching.cross_one(&mut self.up, &mut self.switch, &mut self.down, ready)
    }

    #[inline(always)]
    fn standing(&self) -> Standing {
        let Self { up, switch, down, .. } = self;
        Standing {
            busy_until: [up.busy_until(), down.busy_until()],
            sums: [up.sums(), switch.sums(), down.sums()],
        }
    }

    /// Whether the frames after `one`, which passed in state `before`, meet the same state.
    #[inline(always)]
    fn is_steady(&self, before: &Standing, one: &Run) -> bool {
        let places = [self.up.busy_until(), self.down.busy_until()];
        !self.down.is_waited_for()
            && steady::pace(&before.busy_until, &places, one.passage.tail) == Some(one.by)
    }

    /// Extrapolates the frames after the first of a run, which passed in state `before`.
    #[inline(always)]
    fn again(&mut self, before: &Standing, run: &Run) {
        let (times, later) = (run.count as u64 - 1, run.from_first_to_last());
        let [of_up, of_switch, of_down] = &before.sums;
        self.up.pass_again(of_up, times, later);
        self.switch.cross_again(of_switch, times);
        self.down.pass_again(of_down, times, later);
    }

    /// Records the batch: `count` frames have passed.
    fn enter(self, count: usize, last: Option<TraceTag>) {
        let Self { near: (near, near_ledger), far: (far, far_ledger), .. } = self;
        near_ledger.attribute(last);
        near_ledger.enter(&self.switch);
        far_ledger.attribute(last);
        self.up.enter(near, near_ledger);
        self.down.enter(far, far_ledger);
        count_series((near, far), (count, count as u64, self.bytes));
    }
}
