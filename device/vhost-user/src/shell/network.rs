//! The fabric as the live shell uses it: the switch, the faults of links, and frames in flight.

mod in_flight;
mod in_order;

use niclab_model::fabric::ethernet::Concern;
use niclab_model::fabric::faults::Faults;
use niclab_model::fabric::series::{PortPairs, SeriesFrame};
use niclab_model::fabric::{
    self, Deliveries, Delivery, KnownWay, PacketInfo, Port, Ports, Switching, Transit, Transits,
};
use niclab_model::nic::frame::{LentHead, SharedFrame};
use niclab_model::nic::packet::InlinePacket;
use niclab_model::nic::series::{Series, Way};
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::{Passage, Time};

use self::in_flight::{FramesInFlight, InFlight};
use super::lent::{Carried, LentFrame};
use crate::ethernet::frame::MAX_FRAME_BYTES;
use crate::ethernet::header::LinkHeader;
use crate::watch::taps::Taps;

/// The switch, and frames under way.
pub struct Network {
    switching: Switching,
    /// What goes wrong on each link, in the words of whoever set it.
    faults: Vec<niclab_spec::Faults>,
    /// Whether that is anything.
    is_faulty: Vec<bool>,
    /// Of any of them.
    is_any_faulty: bool,
    /// Frames in flight.
    pub frames: FramesInFlight,
    deliveries: Deliveries,
    /// A header, and silence as long as the longest frame: the fabric wants to see a frame's length.
    blank: Vec<u8>,
    latest: Time,
    /// The observers.
    pub taps: Taps,
}

impl Network {
    /// Nothing under way.
    pub fn new(switching: Switching, nodes: usize) -> Self {
        Self {
            faults: vec![niclab_spec::Faults::default(); nodes],
            is_faulty: vec![false; nodes],
            is_any_faulty: false,
            switching,
            frames: FramesInFlight::default(),
            deliveries: Deliveries::new(),
            blank: vec![0; MAX_FRAME_BYTES],
            latest: Time::ZERO,
            taps: Taps::default(),
        }
    }

    /// The same switch, for a part of the nodes.
    pub fn of_domain(&self) -> Self {
        Self::new(self.switching.clone(), 0)
    }

    /// Takes over what is under way in a part of the nodes.
    pub fn absorb(&mut self, domain: &mut Self) {
        while let Some(InFlight { at, head, to, frame, message, concern, .. }) = domain.frames.pop() {
            self.push(&Delivery { to, head, at, corrupt: None }, frame, message, concern, false);
        }
    }

    /// To which node a frame goes, where that is known from the start.
    #[inline]
    pub fn known_way(&self, frame: &[u8]) -> Option<KnownWay> {
        self.switching.known_way(frame)
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
        let Self { switching, faults, frames, latest, .. } = self;
        format!("{:#?}", (switching, faults, frames, latest))
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
            if self.frames.is_idle() {
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
            &[only] if self.frames.is_idle() => {
                self.latest = self.latest.max(only.at);
                return Some((only, frame));
            }
            &[only] => {
                self.frames.has_borrowed = true;
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
                    self.frames.has_borrowed = true;
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

    /// Puts a frame in flight on its last step. `is_held`: a fault delays it until another frame overtakes it.
    pub fn push(
        &mut self,
        delivery: &Delivery,
        frame: Carried,
        message: Option<TraceTag>,
        concern: Concern,
        is_held: bool,
    ) {
        self.latest = self.latest.max(delivery.at);
        self.frames.push(delivery, frame, message, concern, is_held);
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

    /// Sends a frame over its sender's link and through the switch. Returns when it is ready for which link.
    pub fn enter(
        &mut self,
        ports: &mut impl Ports,
        frame: &SharedFrame,
        ready: Passage,
        from: u16,
        message: Option<TraceTag>,
    ) -> Transits {
        let mut transits = Transits::new();
        self.switching.enter(ports, ready, from, frame, message, &mut transits);
        self.taps.on_sent(ready.head, from, frame, message, transits.is_empty());
        transits
    }

    /// Sends a frame over the link after the switch. Returns its arrivals.
    pub fn leave(
        &mut self,
        ports: &mut impl Ports,
        transit: &Transit,
        frame: &SharedFrame,
        message: Option<TraceTag>,
    ) -> Deliveries {
        let mut deliveries = Deliveries::new();
        fabric::leave(ports, transit, frame.len(), message, &mut deliveries);
        self.taps.on_forwarded(transit.ready, transit.to, frame, &deliveries);
        for delivery in &deliveries {
            self.latest = self.latest.max(delivery.at);
        }
        deliveries
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
        assert!(!network.frames.release_starved() && !network.frames.is_moving(), "seen for the first time");
        send(&mut network, &mut ports);
        assert!(network.frames.release_starved());
        assert_eq!(network.frames.counts(), (1, 1));
        assert!(network.frames.release_starved());
        assert_eq!(network.frames.counts(), (0, 2));
        assert!(!network.frames.release_starved());
    }

    #[test]
    fn duplicate_of_a_late_frame_is_not_late() {
        let faults = niclab_spec::Faults { duplicate: 1.0, reorder: 1.0, ..niclab_spec::Faults::default() };
        let (mut network, mut ports) = with_faults(&faults);
        send(&mut network, &mut ports);
        let double = network.frames.pop_moving().expect("the duplicate is in flight");
        assert_eq!(network.frames.counts(), (1, 0));
        assert!(network.frames.held()[0].at > double.at);
    }
}
