//! Frames that are equal but for their payload and follow one another from one port to another: priced together, to the same sums
//! and the same instants as one by one ([`Switching::forward`]).
//!
//! Each frame still waits where it meets others, so that its instants are worked out one after the other; what is left out is what
//! is the same for all of them: the way, the prices, and a look at the ledger for each crossing.

use super::{Forwarding, Frame, Outlet, Port, Ports, Switching};
use crate::fabric::link::LinkSeries;
use crate::platform::ledger::{Cost, Crossing};
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
    /// Whether frames of so many bytes can cross as a series: nothing befalls them, and nobody keeps their single stages.
    fn takes_series(&self, bytes: usize) -> bool {
        self.link.is_sound_for(bytes) && !self.ledger.is_recording()
    }
}

impl Switching {
    /// To which one port frames like this one go from `from` as a series. None where each is to go by itself: where links are faulty,
    /// down, or too narrow for it, where stages are kept, and where it goes to several ports, back, or by routing of its own.
    ///
    /// Of a frame that then is sent: the switch has learned from it.
    pub fn series_way(&mut self, ports: &mut impl PortPairs, from: u16, frame: &[u8]) -> Option<u16> {
        let header = Frame::new_checked(frame)?;
        if !ports.port(from)?.takes_series(frame.len())
            || self.routing.and_then(|routing| routing(frame)).is_some()
        {
            return None;
        }
        let Outlet::Port(to) = self.switch.outlet(from, &header) else { return None };
        (to != from && ports.port(to)?.takes_series(frame.len())).then_some(to)
    }

    /// [`Switching::forward`] of frames of `bytes` from one port to another ([`Switching::series_way`]), each of which is ready for
    /// the link at the instant that it has. Afterwards it has the instant at which it is there. `last` is the message of the last.
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
        self.cross_all(near, far, bytes, frames, |frame| frame.at.map(Passage::from), arrive, last);
    }

    /// How many parcels of `bytes` cross from one port to another as a series, and all arrive: none where links are faulty, down, or too
    /// narrow for it, and where stages are kept.
    pub fn parcels_in_series(&self, from: &Port, to: &Port, (bytes, is_routed): (usize, bool)) -> usize {
        let bytes = self.on_wire(bytes, is_routed);
        if from.takes_series(bytes) && to.takes_series(bytes) { to.link.room_to_node() } else { 0 }
    }

    /// [`Switching::pass_unencoded`] of parcels of `bytes` one behind the other ([`Switching::parcels_in_series`]). Each says by `passage`
    /// when it is ready for the link, and afterwards when it is there. `last` is the message of the last.
    pub fn pass_parcels<F>(
        &self,
        from: &mut Port,
        to: &mut Port,
        (bytes, is_routed): (usize, bool),
        parcels: &mut [F],
        passage: impl Fn(&mut F) -> &mut Passage + Copy,
        last: Option<TraceTag>,
    ) {
        let arrive = |parcel: &mut F, arrived: Option<Passage>| {
            debug_assert!(arrived.is_some(), "each of a series of parcels arrives");
            *passage(parcel) = arrived.unwrap_or_default();
        };
        let bytes = self.on_wire(bytes, is_routed);
        self.cross_all(from, to, bytes, parcels, |parcel| Some(*passage(parcel)), arrive, last);
    }

    /// Lets frames of `bytes` on the wire cross one behind the other. Each is ready for the link as `ready` says; `arrive` is told when
    /// it is there.
    #[expect(clippy::too_many_arguments, reason = "two ends of a way, and two of a frame")]
    #[inline(always)]
    fn cross_all<F>(
        &self,
        near: &mut Port,
        far: &mut Port,
        bytes: usize,
        frames: &mut [F],
        ready: impl Fn(&mut F) -> Option<Passage>,
        arrive: impl Fn(&mut F, Option<Passage>),
        last: Option<TraceTag>,
    ) {
        let crossing =
            Cost { count: 1, bytes: bytes as u64, occupancy: Span::ZERO, latency: self.fall_through };
        let mut crossing = near.ledger.series(Crossing::SwitchFallThrough, crossing);
        let mut up = LinkSeries::to_switch(&mut near.link, bytes, &near.ledger);
        let mut down = LinkSeries::to_node(&mut far.link, bytes, &far.ledger);
        let (is_cut_through, behind) = (self.forwarding == Forwarding::CutThrough, down.serialization());
        let mut delivered = 0;
        for frame in frames.iter_mut() {
            let Some(ready) = ready(frame) else { continue };
            let Some(entering) = up.pass(ready) else { continue };
            let entered = if is_cut_through {
                entering.head.max(entering.tail.before(entering.held).before(behind))
            } else {
                entering.tail
            };
            let head = crossing.cross(&mut { Time::ZERO }, entered).end;
            let arrived = down.pass(Passage { head, tail: entering.tail + self.fall_through });
            arrive(frame, arrived.map(|arrived| Passage { head: arrived.head, tail: arrived.tail }));
            delivered += u64::from(arrived.is_some());
        }
        near.counters.frames_in += frames.len() as u64;
        near.counters.bytes_in += (frames.len() * bytes) as u64;
        near.ledger.attribute(last);
        near.ledger.enter(&crossing);
        far.counters.frames_out += delivered;
        far.counters.bytes_out += delivered * bytes as u64;
        far.ledger.attribute(last);
        up.enter(&mut near.counters, &mut near.ledger);
        down.enter(&mut far.counters, &mut far.ledger);
    }
}
