//! The fabric as the live shell uses it: the switch, the faults of links, and frames in flight.

mod in_flight;
mod in_order;

use niclab_model::fabric::batch::{BatchFrame, BatchLength};
use niclab_model::fabric::ethernet::FrameClass;
use niclab_model::fabric::faults::Faults;
use niclab_model::fabric::frame_head::FrameHead;
use niclab_model::fabric::{self, Deliveries, Delivery, Ports, SwitchPort, Switching, Transit, Transits};
use niclab_model::nic::frame::SharedFrame;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::{Passage, Time};

use self::in_flight::{FramesInFlight, InFlight};
use super::card_frame::{CardFrame, SentFrame};
use crate::ethernet::header::LinkHeader;
use crate::watch::observers::Observers;

/// The switch, and frames in flight.
pub struct Network {
    switching: Switching,
    /// The faults of each node's link, as the cluster file or the monitor set them.
    faults: Vec<niclab_spec::Faults>,
    /// Whether each node's link has faults.
    is_faulty: Vec<bool>,
    /// Whether any link has faults.
    is_any_faulty: bool,
    /// Frames in flight.
    pub frames: FramesInFlight,
    deliveries: Deliveries,
    latest: Time,
    /// The observers.
    pub observers: Observers,
}

impl Network {
    /// A network without frames in flight.
    pub fn new(switching: Switching, nodes: usize) -> Self {
        Self {
            faults: vec![niclab_spec::Faults::default(); nodes],
            is_faulty: vec![false; nodes],
            is_any_faulty: false,
            switching,
            frames: FramesInFlight::default(),
            deliveries: Deliveries::new(),
            latest: Time::ZERO,
            observers: Observers::default(),
        }
    }

    /// The same switch, for a lock domain.
    pub fn of_domain(&self) -> Self {
        Self::new(self.switching.clone(), 0)
    }

    /// Takes the frames in flight of a lock domain.
    pub fn absorb(&mut self, domain: &mut Self) {
        while let Some(InFlight { at, head, to, frame, message, class, .. }) = domain.frames.pop() {
            self.push(&Delivery { to, head, at, corrupt: None }, frame, message, class, false);
        }
    }

    /// The destination of a frame, if it is known from the start.
    #[inline]
    pub fn known_route(&self, frame: &[u8]) -> Option<u16> {
        self.switching.known_route(frame)
    }

    /// Its state as text, so that tests can compare two networks.
    #[cfg(test)]
    pub fn whole(&self) -> String {
        let Self { switching, faults, frames, latest, .. } = self;
        format!("{:#?}", (switching, faults, frames, latest))
    }

    /// The latest arrival so far.
    pub const fn latest(&self) -> Time {
        self.latest
    }

    /// Sets the faults of a node's link.
    pub fn set_faults(&mut self, node: u16, wanted: &niclab_spec::Faults, port: &mut SwitchPort) {
        let faults = wanted.to_model();
        let number = usize::from(node);
        if let (Some(kept), Some(is_faulty)) = (self.faults.get_mut(number), self.is_faulty.get_mut(number)) {
            *kept = *wanted;
            *is_faulty = faults != Faults::NONE;
        }
        self.is_any_faulty = self.is_faulty.contains(&true);
        port.set_faults(faults);
    }

    /// The faults of each link, by node.
    pub fn faults(&self) -> &[niclab_spec::Faults] {
        &self.faults
    }

    /// Whether any link is faulty.
    #[inline]
    pub const fn is_any_faulty(&self) -> bool {
        self.is_any_faulty
    }

    /// Sends a frame of the card of node `from`. If it has one intact arrival and no other frame is in flight, returns
    /// frame and arrival. Otherwise puts all its arrivals in flight.
    #[inline]
    pub fn send(
        &mut self,
        ports: &mut impl Ports,
        from: u16,
        sent: SentFrame,
    ) -> Option<(Delivery, CardFrame)> {
        let SentFrame { ready, frame, message, class } = sent;
        if class == FrameClass::All {
            // The node's own Ethernet function receives a MAC endpoint's broadcast without crossing the link.
            let own = Delivery { to: from, head: ready.head, at: ready.tail, corrupt: None };
            let frame = CardFrame::Owned(frame.to_owned_frame());
            self.push(&own, frame, message, FrameClass::Host, false);
        }
        let reordered = self.reordered(ports);
        self.deliveries.clear();
        if self.observers.is_any() {
            let shown = frame.to_owned_frame();
            let network = (&mut self.switching, &mut *ports);
            self.observers.forward(network, ready, from, &shown, message, &mut self.deliveries);
        } else {
            self.switching.forward(ports, ready, from, frame.head(), message, &mut self.deliveries);
        }
        // Without faults on any link, a single arrival is intact and not delayed.
        if let (&[only], None) = (self.deliveries.as_slice(), reordered) {
            if self.frames.is_idle() {
                self.latest = self.latest.max(only.at);
                return Some((only, frame));
            }
            self.push(&only, frame, message, class, false);
            return None;
        }
        if self.deliveries.is_empty() {
            return None;
        }
        let is_late = reordered != self.reordered(ports);
        // The duplicate of a delayed frame is not delayed.
        let late = self.deliveries.iter().map(|delivery| delivery.at).max();
        let frame = frame.into_owned();
        for delivery in std::mem::take(&mut self.deliveries) {
            let (mut copy, mut class) = (frame.clone(), class);
            if let Some(bit) = delivery.corrupt {
                copy.flip(bit);
                class = class.damaged();
            }
            let is_held = is_late && Some(delivery.at) == late;
            self.push(&delivery, CardFrame::Owned(copy), message, class, is_held);
        }
        None
    }

    /// Whether frames may borrow payload of guests: no observer sees them, and no fault delays, changes or duplicates
    /// them.
    #[inline]
    pub fn may_borrow(&self) -> bool {
        !self.observers.is_any() && !self.is_any_faulty()
    }

    /// As [`Network::send`], but puts all arrivals in flight.
    #[inline]
    pub fn keep(&mut self, ports: &mut impl Ports, from: u16, sent: SentFrame) {
        let SentFrame { message, class, .. } = sent;
        if let Some((delivery, frame)) = self.send(ports, from, sent) {
            self.push(&delivery, frame, message, class, false);
        }
    }

    /// Puts a frame in flight on its last step. `is_held`: a fault delays it until another frame overtakes it.
    pub fn push(
        &mut self,
        delivery: &Delivery,
        frame: CardFrame,
        message: Option<TraceTag>,
        class: FrameClass,
        is_held: bool,
    ) {
        self.latest = self.latest.max(delivery.at);
        self.frames.push(delivery, frame, message, class, is_held);
    }

    /// Frames that faults on links have delayed so far. None if no link is faulty.
    #[inline]
    pub fn reordered(&self, ports: &mut impl Ports) -> Option<u64> {
        if !self.is_any_faulty() {
            return None;
        }
        let numbers = 0..ports.count() as u16;
        Some(numbers.filter_map(|number| Some(ports.port(number)?.counters().reordered)).sum())
    }

    /// Prices an Ethernet frame of `bytes` that begins with `header`. Its `deliveries` say who receives it. Its bytes
    /// stay in guest memory.
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
        let frame = FrameHead { bytes: header, frame_bytes: bytes };
        self.switching.forward(ports, at, from, frame, message, deliveries);
        for delivery in deliveries.iter() {
            self.latest = self.latest.max(delivery.at);
        }
    }

    /// Sends a frame over its sender's link and through the switch. Returns when it is ready for each output link.
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
        self.observers.on_sent(ready.head, from, frame, message, transits.is_empty());
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
        self.observers.on_forwarded(transit.ready, transit.to, frame, &deliveries);
        for delivery in &deliveries {
            self.latest = self.latest.max(delivery.at);
        }
        deliveries
    }

    /// The node to which Ethernet frames of `bytes` with this header go as a batch: see [`Switching::batch_route`].
    #[inline]
    pub fn batch_route(
        &mut self,
        ports: &mut impl Ports,
        from: u16,
        header: &LinkHeader,
        bytes: usize,
    ) -> Option<u16> {
        self.switching.batch_route(ports, from, FrameHead { bytes: header, frame_bytes: bytes })
    }

    /// Max frames that cross from one port to another as a batch: see [`Switching::batch_room`].
    #[inline]
    pub fn batch_room(&self, from: &SwitchPort, to: &SwitchPort, length: BatchLength) -> usize {
        self.switching.batch_room(from, to, length)
    }

    /// Prices a batch of frames from one port to another: see [`Switching::forward_batch`].
    #[inline]
    pub fn forward_batch(
        &mut self,
        ports: (&mut SwitchPort, &mut SwitchPort),
        length: BatchLength,
        frames: &mut [BatchFrame],
        last: Option<TraceTag>,
    ) {
        self.switching.forward_batch(ports, length, frames, last);
        // A link keeps the order, so the last frame arrives last.
        let latest = frames.iter().rev().find_map(|frame| frame.passage);
        self.latest = self.latest.max(latest.unwrap_or_default().tail);
    }

    /// [`Network::forward`] of an Ethernet frame with all its bytes, which observers see.
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
        self.observers.forward((&mut self.switching, ports), at.into(), from, &frame, message, deliveries);
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

    /// A network whose second node's link has these faults, and its ports.
    fn with_faults(faults: &niclab_spec::Faults) -> (Network, Vec<SwitchPort>) {
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

    fn send(network: &mut Network, ports: &mut Vec<SwitchPort>) {
        let frame = SharedFrame::from(&[0xff; 64][..]);
        let sent = SentFrame {
            ready: Time::ZERO.into(),
            frame: CardFrame::Owned(frame),
            message: None,
            class: FrameClass::Card,
        };
        assert!(network.send(ports, 0, sent).is_none());
    }

    #[test]
    fn only_frames_delayed_at_the_previous_call_are_released() {
        let faults = niclab_spec::Faults { reorder: 1.0, ..niclab_spec::Faults::default() };
        let (mut network, mut ports) = with_faults(&faults);
        send(&mut network, &mut ports);
        assert!(!network.frames.release_starved() && !network.frames.is_moving(), "no call before");
        send(&mut network, &mut ports);
        assert!(network.frames.release_starved());
        assert_eq!(network.frames.counts(), (1, 1));
        assert!(network.frames.release_starved());
        assert_eq!(network.frames.counts(), (0, 2));
        assert!(!network.frames.release_starved());
    }

    #[test]
    fn duplicate_of_a_delayed_frame_is_not_delayed() {
        let faults = niclab_spec::Faults { duplicate: 1.0, reorder: 1.0, ..niclab_spec::Faults::default() };
        let (mut network, mut ports) = with_faults(&faults);
        send(&mut network, &mut ports);
        let duplicate = network.frames.pop_moving().expect("the duplicate is in flight");
        assert_eq!(network.frames.counts(), (1, 0));
        assert!(network.frames.held()[0].at > duplicate.at);
    }
}
