//! The fabric as the live shell uses it: frames that are under way, in the order of model time.

use niclab_model::fabric::ethernet::Concern;
use niclab_model::fabric::faults::Faults;
use niclab_model::fabric::series::{PortPairs, SeriesFrame};
use niclab_model::fabric::{Deliveries, Delivery, KnownWay, PacketInfo, Port, Ports, Switching};
use niclab_model::nic::frame::{LentHead, SharedFrame};
use niclab_model::nic::packet::InlinePacket;
use niclab_model::nic::series::{Series, Way};
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::{Passage, Time};

use super::in_order::InOrder;
use super::lent::{Carried, LentFrame};
use crate::ethernet::frame::MAX_FRAME_BYTES;
use crate::ethernet::header::LinkHeader;
use crate::watch::taps::Taps;

/// A frame of a model on its way to a node.
#[derive(Debug)]
pub struct InFlight {
    /// When its last byte is there.
    pub at: Time,
    /// When its first byte is there.
    pub head: Time,
    /// Frames that are there at the same instant keep the order in which they were sent.
    order: u64,
    /// The node.
    pub to: u16,
    /// The frame, already damaged if a fault says so.
    pub frame: Carried,
    /// The message that it carries.
    pub message: Option<TraceTag>,
    /// Whom it concerns there.
    pub concern: Concern,
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for InFlight {}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The switch, and frames under way.
pub struct Network {
    switching: Switching,
    /// What goes wrong on each link, in the words of whoever set it.
    faults: Vec<niclab_spec::Faults>,
    /// Whether that is anything.
    is_faulty: Vec<bool>,
    /// Of any of them.
    is_any_faulty: bool,
    in_flight: InOrder<InFlight>,
    /// Held back by a fault until another frame overtook it, or until the fabric is quiet.
    held: Vec<InFlight>,
    /// The order of the latest frame when [`Network::release_standing`] was called last.
    seen: u64,
    order: u64,
    /// Whether the data of any frame under way is lent.
    has_lent: bool,
    deliveries: Deliveries,
    /// A header, and silence as long as the longest frame: the fabric wants to see a frame's length.
    blank: Vec<u8>,
    latest: Time,
    taps: Taps,
}

impl Network {
    /// Nothing under way.
    pub fn new(switching: Switching, nodes: usize) -> Self {
        Self {
            faults: vec![niclab_spec::Faults::default(); nodes],
            is_faulty: vec![false; nodes],
            is_any_faulty: false,
            switching,
            in_flight: InOrder::new(),
            held: Vec::new(),
            seen: 0,
            order: 0,
            has_lent: false,
            deliveries: Deliveries::new(),
            blank: vec![0; MAX_FRAME_BYTES],
            latest: Time::ZERO,
            taps: Taps::default(),
        }
    }

    /// The same switch, for a part of the nodes.
    pub fn of_part(&self) -> Self {
        Self::new(self.switching.clone(), 0)
    }

    /// Takes over what is under way in a part of the nodes.
    pub fn absorb(&mut self, part: &mut Self) {
        while let Some(InFlight { at, head, to, frame, message, concern, .. }) = part.pop() {
            self.push(&Delivery { to, head, at, corrupt: None }, frame, message, concern, false);
        }
    }

    /// To which node a frame goes, where that is known from the start.
    #[inline]
    pub fn known_way(&self, frame: &[u8]) -> Option<KnownWay> {
        self.switching.known_way(frame)
    }

    /// Who watches.
    #[inline]
    pub const fn taps(&self) -> &Taps {
        &self.taps
    }

    /// Who watches, to change it.
    pub const fn taps_mut(&mut self) -> &mut Taps {
        &mut self.taps
    }

    /// The switch, and who watches it.
    pub(super) const fn parts(&mut self) -> (&mut Switching, &Taps) {
        (&mut self.switching, &self.taps)
    }

    /// A frame arrives at `at`.
    pub(super) fn note_arrival(&mut self, at: Time) {
        self.latest = self.latest.max(at);
    }

    /// Prices the way of a packet from one card to the other. Nothing else is under way and no link is faulty, so that
    /// it has one arrival, or none where a link or its queue is in the way.
    #[inline]
    pub fn pass(&mut self, from: &mut Port, to: &mut Port, packet: &InlinePacket) -> Option<Passage> {
        let &InlinePacket { ready, to: number, is_routed, bytes, message, .. } = packet;
        let frame = PacketInfo { ready, to: number, is_routed, bytes, message };
        let passage = self.switching.pass_packet(from, to, &frame)?;
        self.latest = self.latest.max(passage.tail);
        Some(passage)
    }

    /// How many packets of a way cross from one port to the other as a series: see [`Switching::packets_in_batch`].
    #[inline]
    pub fn packets_in_batch(&self, from: &Port, to: &Port, way: &Way) -> usize {
        self.switching.packets_in_batch(from, to, (way.bytes, way.is_routed))
    }

    /// Prices the way of a series of packets: as [`Network::pass`] does that of each.
    #[inline]
    pub fn pass_series(&mut self, from: &mut Port, to: &mut Port, series: &mut Series) {
        let kind = (series.way.bytes, series.way.is_routed);
        let (coming, done) = series.runs.begin_stage();
        self.switching.pass_packets((from, to), kind, coming, done, series.last);
        let tails = done.iter().map(|run| run.last().passage.tail);
        self.latest = tails.fold(self.latest, Time::max);
    }

    /// All that it is, to hold two against one another.
    #[cfg(test)]
    pub fn whole(&self) -> String {
        let Self { switching, faults, held, order, latest, .. } = self;
        format!("{:#?}", (switching, faults, self.is_moving(), held, order, latest))
    }

    /// The latest arrival so far.
    pub const fn latest(&self) -> Time {
        self.latest
    }

    /// What goes wrong on a node's link from now on.
    pub fn set_faults(&mut self, node: u16, wanted: &niclab_spec::Faults, port: &mut Port) {
        let faults = wanted.to_model();
        let number = usize::from(node);
        if let (Some(kept), Some(is_faulty)) = (self.faults.get_mut(number), self.is_faulty.get_mut(number)) {
            *kept = *wanted;
            *is_faulty = faults != Faults::NONE;
        }
        self.is_any_faulty = self.is_faulty.contains(&true);
        port.set_faults(faults);
    }

    /// What goes wrong on each node's link, by node.
    pub fn faults(&self) -> &[niclab_spec::Faults] {
        &self.faults
    }

    /// Whether each frame from or to this node has a fate of its own.
    #[inline]
    pub fn is_faulty(&self, node: u16) -> bool {
        self.is_faulty.get(usize::from(node)).is_some_and(|is_faulty| *is_faulty)
    }

    /// Whether any link is faulty.
    #[inline]
    pub const fn is_any_faulty(&self) -> bool {
        self.is_any_faulty
    }

    /// Sends a frame of a model. When it has one sound arrival and nothing else is under way, that is given back, and
    /// the frame need not be kept; otherwise its arrivals are under way afterwards.
    #[inline]
    pub fn send(
        &mut self,
        ports: &mut impl Ports,
        ready: Passage,
        from: u16,
        frame: &SharedFrame,
        message: Option<TraceTag>,
        concern: Concern,
    ) -> Option<Delivery> {
        if concern == Concern::All {
            // The Ethernet function beside the station hears it without the link.
            let own = Delivery { to: from, head: ready.head, at: ready.tail, corrupt: None };
            self.push(&own, Carried::Whole(frame.clone()), message, Concern::Host, false);
        }
        let reordered = self.reordered(ports);
        self.deliveries.clear();
        if self.taps.is_any() {
            self.taps.forward(
                (&mut self.switching, ports),
                ready,
                from,
                frame,
                message,
                &mut self.deliveries,
            );
        } else {
            self.switching.forward(ports, ready, from, frame, message, &mut self.deliveries);
        }
        // Without faults on any link a frame has one arrival, and is sound.
        if let (&[only], None) = (self.deliveries.as_slice(), reordered) {
            if self.is_idle() {
                self.latest = self.latest.max(only.at);
                return Some(only);
            }
            self.push(&only, Carried::Whole(frame.clone()), message, concern, false);
            return None;
        }
        let is_late = reordered != self.reordered(ports);
        // The double of a late frame is not late.
        let late = self.deliveries.iter().map(|delivery| delivery.at).max();
        for delivery in std::mem::take(&mut self.deliveries) {
            let (mut copy, mut concern) = (frame.clone(), concern);
            if let Some(bit) = delivery.corrupt {
                copy.flip(bit);
                concern = concern.damaged();
            }
            self.push(
                &delivery,
                Carried::Whole(copy),
                message,
                concern,
                is_late && Some(delivery.at) == late,
            );
        }
        None
    }

    /// Whether data of guests may be lent to frames: nobody looks at them on their way, or keeps, changes or doubles
    /// them.
    #[inline]
    pub fn may_lend(&self) -> bool {
        !self.taps.is_any() && !self.is_any_faulty()
    }

    /// Sends a frame of a model whose data is lent, while [`Network::may_lend`], on its `way` where that is known. As
    /// [`Network::send`]: the frame is given back when it arrives at once, and is under way otherwise.
    #[inline]
    pub fn send_lent(
        &mut self,
        ports: &mut impl Ports,
        ready: Passage,
        from: u16,
        frame: Box<LentFrame>,
        way: Option<KnownWay>,
        message: Option<TraceTag>,
    ) -> Option<(Delivery, Box<LentFrame>)> {
        let LentHead { bytes: head, frame_bytes } = frame.head();
        self.deliveries.clear();
        if let Some(KnownWay { to, is_routed }) = way {
            let frame = PacketInfo { ready, to, is_routed, bytes: frame_bytes, message };
            self.switching.forward_packet(ports, from, frame, &mut self.deliveries);
        } else {
            if let Some(place) = self.blank.get_mut(..head.len()) {
                place.copy_from_slice(head);
            }
            let silence = self.blank.get(..frame_bytes).unwrap_or_default();
            self.switching.forward(ports, ready, from, silence, message, &mut self.deliveries);
        }
        match self.deliveries.as_slice() {
            &[only] if self.is_idle() => {
                self.latest = self.latest.max(only.at);
                return Some((only, frame));
            }
            &[only] => {
                self.has_lent = true;
                self.push(&only, Carried::Lent(frame), message, Concern::Card, false);
            }
            [] => {}
            // To a node that there is not: everybody gets it.
            _ => {
                let frame = frame.into_owned();
                for delivery in std::mem::take(&mut self.deliveries) {
                    self.push(&delivery, Carried::Whole(frame.clone()), message, Concern::Card, false);
                }
            }
        }
        None
    }

    /// What is still under way is kept: nothing of it is lent any more.
    #[inline]
    pub fn own_all(&mut self) {
        if std::mem::take(&mut self.has_lent) {
            self.in_flight.for_each_mut(|frame| frame.frame.own());
        }
    }

    /// Sends a frame of a model; its arrivals are under way afterwards.
    #[inline]
    pub fn keep(
        &mut self,
        ports: &mut impl Ports,
        ready: Passage,
        from: u16,
        frame: Carried,
        message: Option<TraceTag>,
    ) {
        let frame = match frame {
            Carried::Whole(frame) => frame,
            Carried::Lent(frame) => {
                let way = self.known_way(frame.head().bytes);
                if let Some((delivery, frame)) = self.send_lent(ports, ready, from, frame, way, message) {
                    self.has_lent = true;
                    self.push(&delivery, Carried::Lent(frame), message, Concern::Card, false);
                }
                return;
            }
        };
        let concern = Concern::of(&frame);
        if let Some(delivery) = self.send(ports, ready, from, &frame, message, concern) {
            self.push(&delivery, Carried::Whole(frame), message, concern, false);
        }
    }

    /// Whether frames are under way that nothing holds back.
    #[inline]
    pub fn is_moving(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Whether nothing is under way.
    #[inline]
    pub fn is_idle(&self) -> bool {
        !self.is_moving() && self.held.is_empty()
    }

    #[inline]
    /// A frame is in flight on its last step.
    pub fn bring(
        &mut self,
        delivery: &Delivery,
        frame: Carried,
        message: Option<TraceTag>,
        concern: Concern,
    ) {
        self.push(delivery, frame, message, concern, false);
    }

    fn push(
        &mut self,
        delivery: &Delivery,
        frame: Carried,
        message: Option<TraceTag>,
        concern: Concern,
        is_held: bool,
    ) {
        let &Delivery { to, head, at, .. } = delivery;
        self.order += 1;
        self.latest = self.latest.max(at);
        let next = InFlight { at, head, order: self.order, to, frame, message, concern };
        if is_held {
            self.held.push(next);
        } else {
            self.in_flight.push(next);
        }
    }

    /// The next arrival in model time. A frame that a fault held back follows the first one that overtook it.
    #[inline]
    pub fn pop(&mut self) -> Option<InFlight> {
        let next = self.in_flight.pop()?;
        if !self.held.is_empty() {
            let to = next.to;
            self.release(|held| held.to == to);
        }
        Some(next)
    }

    /// Lets frames that were held back arrive: those that nothing overtook while the fabric was quiet.
    pub fn release_all(&mut self) -> bool {
        let any = !self.held.is_empty();
        self.release(|_| true);
        any
    }

    /// The same for those that were held back when this was called last already. Whether there were any.
    pub fn release_standing(&mut self) -> bool {
        let seen = std::mem::replace(&mut self.seen, self.order);
        let stood = |held: &InFlight| held.order <= seen;
        let any = self.held.iter().any(stood);
        self.release(stood);
        any
    }

    fn release(&mut self, which: impl Fn(&InFlight) -> bool) {
        for held in std::mem::take(&mut self.held) {
            if which(&held) { self.in_flight.push(held) } else { self.held.push(held) }
        }
    }

    /// Whether a fault holds frames back.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Frames that faults on links have held back so far; only counted where a link is faulty.
    #[inline]
    pub fn reordered(&self, ports: &mut impl Ports) -> Option<u64> {
        if !self.is_any_faulty() {
            return None;
        }
        let numbers = 0..ports.count() as u16;
        Some(numbers.filter_map(|number| Some(ports.port(number)?.counters().reordered)).sum())
    }

    /// Prices an Ethernet frame of `bytes` that begins with `header`, and says who gets it. Its bytes stay where they
    /// are.
    #[inline]
    pub fn forward(
        &mut self,
        ports: &mut impl Ports,
        at: Time,
        from: u16,
        (header, bytes): (&LinkHeader, usize),
        message: Option<TraceTag>,
        deliveries: &mut Deliveries,
    ) {
        deliveries.clear();
        if let Some(place) = self.blank.first_chunk_mut() {
            *place = *header;
        }
        let frame = self.blank.get(..bytes).unwrap_or_default();
        self.switching.forward(ports, at, from, frame, message, deliveries);
        for delivery in deliveries.iter() {
            self.latest = self.latest.max(delivery.at);
        }
    }

    /// To which node Ethernet frames of `bytes` that begin with `header` go as a series: see [`Switching::series_way`].
    #[inline]
    pub fn series_way(
        &mut self,
        ports: &mut impl PortPairs,
        from: u16,
        header: &LinkHeader,
        bytes: usize,
    ) -> Option<u16> {
        if let Some(place) = self.blank.first_chunk_mut() {
            *place = *header;
        }
        self.switching.series_way(ports, from, self.blank.get(..bytes)?)
    }

    /// Prices Ethernet frames of one length from one node to another: see [`Switching::forward_series`].
    #[inline]
    pub fn forward_series(
        &mut self,
        ports: &mut impl PortPairs,
        way: (u16, u16),
        bytes: usize,
        frames: &mut [SeriesFrame],
        last: Option<TraceTag>,
    ) {
        self.switching.forward_series(ports, way, bytes, frames, last);
        // The last of a link's frames comes last.
        let latest = frames.iter().rev().find_map(|frame| frame.at);
        self.latest = self.latest.max(latest.unwrap_or_default());
    }

    /// The same for an Ethernet frame of which all bytes are there, shown to those who watch.
    #[cold]
    pub fn forward_shown(
        &mut self,
        ports: &mut impl Ports,
        at: Time,
        from: u16,
        frame: &[u8],
        message: Option<TraceTag>,
        deliveries: &mut Deliveries,
    ) {
        deliveries.clear();
        let frame = SharedFrame::from(frame);
        self.taps.forward((&mut self.switching, ports), at.into(), from, &frame, message, deliveries);
        for delivery in deliveries.iter() {
            self.latest = self.latest.max(delivery.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use niclab_model::fabric::link::LinkConfig;
    use niclab_model::fabric::{Fabric, FabricConfig, Forwarding};
    use niclab_model::time::Span;

    use super::*;

    /// A network whose second node's link does this to every frame, and its ports.
    fn with_faults(faults: &niclab_spec::Faults) -> (Network, Vec<Port>) {
        let fabric = Fabric::new(&FabricConfig {
            links: vec![LinkConfig::ethernet(1_000_000_000); 2],
            forwarding: Forwarding::CutThrough,
            switch_fall_through: Span::ZERO,
            seed: 1,
        });
        let (mut ports, switching) = fabric.unwrap().into_parts();
        let mut network = Network::new(switching, 2);
        network.set_faults(1, faults, &mut ports[1]);
        (network, ports)
    }

    fn send(network: &mut Network, ports: &mut Vec<Port>) {
        let frame = SharedFrame::from(&[0xff; 64][..]);
        assert!(network.send(ports, Time::ZERO.into(), 0, &frame, None, Concern::Card).is_none());
    }

    #[test]
    fn frames_that_were_held_back_at_the_look_before_arrive_and_no_others() {
        let faults = niclab_spec::Faults { reorder: 1.0, ..niclab_spec::Faults::default() };
        let (mut network, mut ports) = with_faults(&faults);
        send(&mut network, &mut ports);
        assert!(!network.release_standing() && !network.is_moving(), "seen for the first time");
        send(&mut network, &mut ports);
        assert!(network.release_standing());
        assert_eq!((network.held.len(), network.in_flight.len()), (1, 1));
        assert!(network.release_standing());
        assert_eq!((network.held.len(), network.in_flight.len()), (0, 2));
        assert!(!network.release_standing());
    }

    #[test]
    fn the_double_of_a_late_frame_is_not_late() {
        let faults = niclab_spec::Faults { duplicate: 1.0, reorder: 1.0, ..niclab_spec::Faults::default() };
        let (mut network, mut ports) = with_faults(&faults);
        send(&mut network, &mut ports);
        let double = network.in_flight.pop().expect("the double is under way");
        assert_eq!((network.held.len(), network.in_flight.len()), (1, 0));
        assert!(network.held[0].at > double.at);
    }
}
