//! Frames that are equal but for their payload and follow one another from one port to another: priced together, to the
//! same sums and the same instants as one by one ([`Switching::forward`]).
//!
//! Each frame still waits where it meets others, so that its instants are worked out one after the other; what is left
//! out is what is the same for all of them: the way, the prices, and a look at the ledger for each crossing. Those of
//! which the links know that each meets what the one before it met are carried on without
//! ([`steady`](crate::platform::steady)).

use alloc::vec::Vec;

use super::{Forwarding, Frame, Outlet, Port, PortCounters, Ports, Switching};
use crate::fabric::link::{FrameLength, LinkSeries};
use crate::platform::ledger::{self, Cost, Crossing, Ledger, Sums};
use crate::platform::steady::{self, Run};
use crate::platform::trace_tag::TraceTag;
use crate::time::{Passage, Span, Time};

/// A frame of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeriesFrame {
    /// When its sender's software began with it.
    pub launched: Time,
    /// When it is where the series has come to, whole. None of one that was dropped on the way.
    pub at: Option<Time>,
}

/// Ports of which two can be had at a time.
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
    /// Whether frames of this length can cross as a series: nothing befalls them, and nobody keeps their single stages.
    fn takes_series(&self, length: FrameLength) -> bool {
        self.link.is_sound_for(length) && !self.ledger.is_recording()
    }
}

impl Switching {
    /// To which one port frames like this one go from `from` as a series. None where each is to go by itself: where
    /// links are faulty, down, or too narrow for it, where stages are kept, and where it goes to several ports, back,
    /// or by routing of its own.
    ///
    /// Of a frame that then is sent: the switch has learned from it.
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

    /// [`Switching::forward`] of frames of `bytes` from one port to another ([`Switching::series_way`]), each of which
    /// is ready for the link at the instant that it has. Afterwards it has the instant at which it is there. `last` is
    /// the message of the last.
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

    /// How many packets of `bytes` cross from one port to another as a series, and all arrive: none where links are
    /// faulty, down, or too narrow for it, and where stages are kept.
    pub fn packets_in_batch(&self, from: &Port, to: &Port, (bytes, is_routed): (usize, bool)) -> usize {
        let bytes = self.on_wire(bytes, is_routed);
        let length = FrameLength::untagged(bytes);
        if from.takes_series(length) && to.takes_series(length) { to.link.room_to_node() } else { 0 }
    }

    /// [`Switching::pass_packet`] of packets of `bytes` one behind the other ([`Switching::packets_in_batch`]), in
    /// runs that say when they are ready for the link. The runs that are `done` say when they are there. `last` is the
    /// message of the last.
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
                debug_assert!(arrived.is_some(), "each of a series of packets arrives");
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

    /// Lets frames of `bytes` on the wire cross one behind the other. Each is ready for the link as `ready` says;
    /// `arrive` is told when it is there.
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
        // Not `Crossings`: what is on the stack by itself is in registers.
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

    /// Begins a series of frames of `bytes` on their way through the switch.
    #[inline(always)]
    const fn fall_through_series(&self, bytes: usize, ledger: &Ledger) -> ledger::Series {
        let latency = self.fall_through;
        let cost = Cost { count: 1, bytes: bytes as u64, occupancy: Span::ZERO, latency };
        ledger.series(Crossing::SwitchFallThrough, cost)
    }

    /// The next one passes a link, the switch, and another link. None where it finds a queue full.
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

/// Counts frames of `bytes` of which so many came from a port, and so many went to another.
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

/// A series on its way over a link, the switch, and another link.
struct Crossings<'a> {
    switching: &'a Switching,
    near: (&'a mut PortCounters, &'a mut Ledger),
    far: (&'a mut PortCounters, &'a mut Ledger),
    up: LinkSeries<'a>,
    switch: ledger::Series,
    down: LinkSeries<'a>,
    bytes: usize,
}

/// All that has a say in when a frame arrives beside when it is ready, where nobody waits in a queue that is bounded:
/// until when the links are busy. And what those before it came to.
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

    /// The next one passes.
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

    /// Whether those that follow `one`, which passed behind `before`, meet what it met.
    #[inline(always)]
    fn is_steady(&self, before: &Standing, one: &Run) -> bool {
        let places = [self.up.busy_until(), self.down.busy_until()];
        !self.down.is_waited_for()
            && steady::pace(&before.busy_until, &places, one.passage.tail) == Some(one.by)
    }

    /// All behind the first of a run pass, which passed behind `before`.
    #[inline(always)]
    fn again(&mut self, before: &Standing, run: &Run) {
        let (times, later) = (run.count as u64 - 1, run.from_first_to_last());
        let [of_up, of_switch, of_down] = &before.sums;
        self.up.pass_again(of_up, times, later);
        self.switch.cross_again(of_switch, times);
        self.down.pass_again(of_down, times, later);
    }

    /// All have passed, so many: enters them.
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
