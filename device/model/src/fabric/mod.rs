//! The network: one switch, and a link with seeded faults to each node.
//!
//! * [`ethernet`]: the header that every frame has;
//! * [`faults`]: what may go wrong on a link, drawn from a seed;
//! * [`link`]: one direction of a link: bandwidth, latency, queue;
//! * [`series`]: equal frames on one way, priced together;
//! * [`switch`]: who is where.
//!
//! [`Fabric::forward`] takes a frame by reference and says who gets it and when; a shell keeps the bytes. Nothing waits
//! in here: queues are known by the instants at which frames leave them.

pub mod ethernet;
pub mod faults;
pub mod link;
pub mod series;
mod stretch;
pub mod switch;

use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::fabric::ethernet::{Frame, HEADER_BYTES};
use crate::fabric::faults::Faults;
use crate::fabric::link::{Arrival, Arrivals, FrameLength, Link, LinkConfig, LinkError};
use crate::fabric::stretch::Stretch;
use crate::fabric::switch::{Outlet, Switch};
use crate::platform::ledger::{Cost, Crossing, Ledger, Place, Resource, StageRecord};
use crate::platform::trace_tag::TraceTag;
use crate::time::{Passage, Span, Time};

/// Who gets a frame. Most frames go to one node.
pub type Deliveries = SmallVec<[Delivery; 4]>;

/// One arrival of a frame. A frame that was duplicated has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The port, which is the node's number.
    pub to: u16,
    /// When the first bit is there.
    pub head: Time,
    /// When the last bit is there.
    pub at: Time,
    /// Bit of the frame that is to be flipped, counted from the lowest of the first byte.
    pub corrupt: Option<u32>,
}

/// Which port a frame's own routing leads to; none of a frame that has no routing but its Ethernet header.
pub type Routing = fn(&[u8]) -> Option<u16>;

/// What the network has to know of a frame that nobody encoded.
#[derive(Clone, Copy, Debug)]
pub struct PacketInfo {
    /// When its first byte is ready for the link, and when its last is.
    pub ready: Passage,
    /// The port that it goes to.
    pub to: u16,
    /// Whether it has routing of its own, for networks without Ethernet headers.
    pub is_routed: bool,
    /// Bytes of the frame, with an Ethernet header.
    pub bytes: usize,
    /// The message that it carries.
    pub message: Option<TraceTag>,
}

/// Where a frame is that entered the switch. Most frames go to one node.
pub type Transits = SmallVec<[Transit; 4]>;

/// A frame in the switch, on its way to one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// The port.
    pub to: u16,
    /// When it is ready for the link behind the switch.
    pub ready: Time,
    /// When all of it has come.
    tail: Time,
    /// Bytes of its VLAN tags.
    tag_bytes: u8,
    /// Bytes at its beginning that are not on the wire.
    off_wire: u8,
    corrupt: Option<u32>,
}

impl Transit {
    /// Where in the frame a bit is that was damaged on the wire.
    fn in_frame(off_wire: u8, bit: Option<u32>) -> Option<u32> {
        bit.map(|bit| bit + 8 * u32::from(off_wire))
    }
}

/// When a switch begins to pass a frame on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// As soon as the header is there (ATOLL's switch).
    #[default]
    CutThrough,
    /// When the whole frame is there (Ethernet's usual switch).
    StoreAndForward,
}

/// How long frames are on their way, from the instant at which they are ready for their sender's link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// Until they are ready for the link behind the switch.
    pub through_switch: Span,
    /// Until they are at the receiver, whole.
    pub to_node: Span,
}

/// The network's parameters.
#[derive(Clone, Debug)]
pub struct FabricConfig {
    /// One link for each node.
    pub links: Vec<LinkConfig>,
    /// How the switch forwards.
    pub forwarding: Forwarding,
    /// Time through the idle switch.
    pub switch_fall_through: Span,
    /// Seed of all faults. Each direction of each link draws from a stream of its own, so that a fault on one does not
    /// depend on what passes over another.
    pub seed: u64,
}

/// What passed a port, seen from the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames that the node sent.
    pub frames_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Frames on their way to the node, duplicated ones twice.
    pub frames_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Dropped: shorter than a header.
    pub dropped_short: u64,
    /// Dropped: longer than the link's largest.
    pub dropped_long: u64,
    /// Dropped: a link was down or cut.
    pub dropped_down: u64,
    /// Dropped: the queue was full.
    pub dropped_queue: u64,
    /// Dropped: lost by a fault.
    pub dropped_lost: u64,
    /// Duplicated by a fault.
    pub duplicated: u64,
    /// Damaged by a fault.
    pub corrupted: u64,
    /// Held back by a fault, so that later frames may overtake.
    pub reordered: u64,
}

/// All that belongs to one node: its link, and what crosses it. A frame's way to the switch and through it is its
/// sender's, the link behind the switch its receiver's.
#[derive(Debug)]
pub struct Port {
    link: Link,
    counters: PortCounters,
    ledger: Ledger,
}

impl Port {
    /// What passed it.
    pub const fn counters(&self) -> &PortCounters {
        &self.counters
    }

    /// What its node's frames have cost on their way to the switch and through it, and those for its node behind it.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// To keep single stages, or to turn the ledger off.
    pub const fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// A frame of this length on the wire goes over the link to the switch.
    #[inline]
    fn enter(&mut self, ready: Passage, length: FrameLength, message: Option<TraceTag>) -> Arrivals {
        let Self { link, counters, ledger } = self;
        counters.frames_in += 1;
        counters.bytes_in += length.bytes as u64;
        ledger.attribute(message);
        link.pass_to_switch(ready, length, counters, ledger)
    }

    /// What goes wrong on its link from now on, in both directions.
    pub fn set_faults(&mut self, faults: Faults) {
        self.link.set_faults(faults);
    }

    /// Takes its link up or down.
    pub fn set_link_up(&mut self, is_up: bool) {
        self.link.set_up(is_up);
    }
}

/// The ports of a switch, however they are kept: a shell that has nodes apart keeps each with its node.
pub trait Ports {
    /// How many there are.
    fn count(&self) -> usize;

    /// The port of a node.
    fn port(&mut self, number: u16) -> Option<&mut Port>;
}

impl Ports for Vec<Port> {
    #[inline]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn port(&mut self, number: u16) -> Option<&mut Port> {
        self.get_mut(usize::from(number))
    }
}

/// What is between the links: a switch, which works on the ports that it is given.
#[derive(Clone, Debug)]
pub struct Switching {
    switch: Switch,
    forwarding: Forwarding,
    fall_through: Span,
    routing: Option<Routing>,
}

/// Switch and links.
pub struct Fabric {
    ports: Stretch,
    switching: Switching,
}

/// Where a frame goes that needs nothing of the switch but its passage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownWay {
    /// The port.
    pub to: u16,
    /// It goes there by routing of its own.
    pub is_routed: bool,
}

impl Switching {
    /// To which port a frame goes, where that is known from the start: by routing of its own, or from one card to
    /// another. What is so is looked up without a change here, and concerns no port but its sender's and that one.
    #[inline]
    pub fn known_way(&self, frame: &[u8]) -> Option<KnownWay> {
        let header = Frame::new_checked(frame)?;
        match self.routing.and_then(|routing| routing(frame)) {
            Some(to) => Some(KnownWay { to, is_routed: true }),
            None => Some(KnownWay { to: self.switch.known_way(&header)?, is_routed: false }),
        }
    }

    /// [`Fabric::forward`] on these ports.
    #[inline]
    pub fn forward(
        &mut self,
        ports: &mut impl Ports,
        ready: impl Into<Passage>,
        from: u16,
        frame: &[u8],
        message: Option<TraceTag>,
        deliveries: &mut Deliveries,
    ) {
        self.enter_link(ports, ready.into(), from, frame, message, |ports, transit| {
            leave(ports, &transit, frame.len(), message, deliveries);
        });
    }

    /// [`Fabric::enter`] on these ports.
    #[inline]
    pub fn enter(
        &mut self,
        ports: &mut impl Ports,
        ready: impl Into<Passage>,
        from: u16,
        frame: &[u8],
        message: Option<TraceTag>,
        transits: &mut Transits,
    ) {
        self.enter_link(ports, ready.into(), from, frame, message, |_, transit| transits.push(transit));
    }

    #[inline]
    fn enter_link<P: Ports>(
        &mut self,
        ports: &mut P,
        ready: Passage,
        from: u16,
        frame: &[u8],
        message: Option<TraceTag>,
        mut behind_switch: impl FnMut(&mut P, Transit),
    ) {
        let Some(port) = ports.port(from) else { return };
        let Some(header) = Frame::new_checked(frame) else {
            port.counters.dropped_short += 1;
            return;
        };
        let routed = self.routing.and_then(|routing| routing(frame));
        let off_wire = if routed.is_some() { HEADER_BYTES as u8 } else { 0 };
        let length = FrameLength::of(frame, frame.len() - usize::from(off_wire));
        let entering = port.enter(ready, length, message);
        // What is dropped needs no way.
        if entering[0].is_none() {
            return;
        }
        let outlet = match routed {
            Some(port) => Outlet::Port(port),
            None => self.switch.outlet(from, &header),
        };
        for &entering in entering.iter().flatten() {
            match outlet {
                Outlet::Port(to) => {
                    if let Some(transit) = self.cross_switch(ports, entering, from, to, (length, off_wire)) {
                        behind_switch(ports, transit);
                    }
                }
                Outlet::AllOthers => {
                    for to in (0..ports.count()).filter(|&to| to != usize::from(from)) {
                        let crossed = self.cross_switch(ports, entering, from, to as u16, (length, off_wire));
                        if let Some(transit) = crossed {
                            behind_switch(ports, transit);
                        }
                    }
                }
            }
        }
    }

    /// [`Switching::forward`] of a frame that nobody encoded, or of which the way is known ([`Switching::known_way`]):
    /// from a card to a card, by the cards' own addresses, or by the frame's routing where it has some and the network
    /// goes by that. `from` is the port of the card that it is from.
    #[inline]
    pub fn forward_packet(
        &self,
        ports: &mut impl Ports,
        from: u16,
        frame: PacketInfo,
        deliveries: &mut Deliveries,
    ) {
        let PacketInfo { ready, to, is_routed, bytes: frame_bytes, message } = frame;
        let Some(port) = ports.port(from) else { return };
        let off_wire = if is_routed && self.routing.is_some() { HEADER_BYTES as u8 } else { 0 };
        let length = FrameLength::untagged(frame_bytes.saturating_sub(off_wire.into()));
        for entering in port.enter(ready, length, message).into_iter().flatten() {
            if let Some(transit) = self.cross_switch(ports, entering, from, to, (length, off_wire)) {
                leave(ports, &transit, frame_bytes, message, deliveries);
            }
        }
    }

    /// Bytes on the wire of a frame of `bytes`, which may have routing of its own.
    #[inline]
    const fn on_wire(&self, bytes: usize, is_routed: bool) -> usize {
        let off_wire = if is_routed && self.routing.is_some() { HEADER_BYTES } else { 0 };
        bytes.saturating_sub(off_wire)
    }

    /// The same from one port to another, over links that are not faulty: it arrives once, or not at all.
    #[inline]
    pub fn pass_packet(&self, from: &mut Port, to: &mut Port, frame: &PacketInfo) -> Option<Passage> {
        let &PacketInfo { ready, is_routed, bytes, message, .. } = frame;
        let bytes = self.on_wire(bytes, is_routed);
        let Port { link, counters, ledger } = from;
        counters.frames_in += 1;
        counters.bytes_in += bytes as u64;
        ledger.attribute(message);
        let entering = link.pass_sound_to_switch(ready, bytes, counters, ledger)?;
        let entered = self.entered(&entering, bytes, &mut to.link);
        let (ready, tail) = self.cross(&entering, entered, bytes, ledger);
        let Port { link, counters, ledger } = to;
        ledger.attribute(message);
        let arrived = link.pass_sound_to_node(Passage { head: ready, tail }, bytes, counters, ledger)?;
        counters.frames_out += 1;
        counters.bytes_out += bytes as u64;
        Some(Passage { head: arrived.head, tail: arrived.tail })
    }

    /// When a frame begins to cross the switch, towards this link.
    #[inline]
    fn entered(&self, entering: &Arrival, bytes: usize, towards: &mut Link) -> Time {
        match self.forwarding {
            // Not so early that the link runs dry because the frame comes in over a slower one. What a slow source
            // holds up holds up the link behind the switch as well.
            Forwarding::CutThrough => {
                let at_speed = entering.tail.before(entering.held);
                entering.head.max(at_speed.before(towards.serialization(bytes)))
            }
            Forwarding::StoreAndForward => entering.tail,
        }
    }

    /// When a frame is ready for the link behind the switch, and when all of it has come. The crossing is its sender's.
    #[inline]
    fn cross(&self, entering: &Arrival, entered: Time, bytes: usize, ledger: &mut Ledger) -> (Time, Time) {
        // The switch passes any number of frames at a time; they meet at the link behind it.
        let mut crossing = Resource::new(Place::Switch);
        let cost = Cost { count: 1, bytes: bytes as u64, occupancy: Span::ZERO, latency: self.fall_through };
        let ready = ledger.charge(Crossing::SwitchFallThrough, &mut crossing, entered, cost).end;
        (ready, entering.tail + self.fall_through)
    }

    #[inline]
    fn cross_switch(
        &self,
        ports: &mut impl Ports,
        entering: Arrival,
        from: u16,
        to: u16,
        (length, off_wire): (FrameLength, u8),
    ) -> Option<Transit> {
        let FrameLength { bytes, tag_bytes } = length;
        let entered = self.entered(&entering, bytes, &mut ports.port(to)?.link);
        let (ready, tail) = self.cross(&entering, entered, bytes, &mut ports.port(from)?.ledger);
        let corrupt = Transit::in_frame(off_wire, entering.corrupt);
        Some(Transit { to, ready, tail, tag_bytes: tag_bytes as u8, off_wire, corrupt })
    }
}

/// [`Fabric::leave`] on these ports.
#[inline]
pub fn leave(
    ports: &mut impl Ports,
    transit: &Transit,
    bytes: usize,
    message: Option<TraceTag>,
    deliveries: &mut Deliveries,
) {
    let &Transit { to, ready, tail, tag_bytes, off_wire, corrupt } = transit;
    let bytes = bytes.saturating_sub(off_wire.into());
    let length = FrameLength { bytes, tag_bytes: tag_bytes.into() };
    let Some(Port { link, counters, ledger }) = ports.port(to) else { return };
    ledger.attribute(message);
    let passage = Passage { head: ready, tail };
    for arrived in link.pass_to_node(passage, length, counters, ledger).iter().flatten() {
        counters.frames_out += 1;
        counters.bytes_out += bytes as u64;
        let &Arrival { head, tail: at, .. } = arrived;
        let corrupt = corrupt.or(Transit::in_frame(off_wire, arrived.corrupt));
        deliveries.push(Delivery { to, head, at, corrupt });
    }
}

/// [`Fabric::take_stages`] of these ledgers.
pub fn take_stages<'a>(ledgers: impl Iterator<Item = &'a mut Ledger>) -> (Vec<StageRecord>, u64) {
    let (mut stages, mut lost) = (Vec::new(), 0);
    for ledger in ledgers {
        let (of_port, more_lost) = ledger.take_stages();
        stages.extend(of_port);
        lost += more_lost;
    }
    stages.sort_by_key(|stage| stage.start);
    (stages, lost)
}

impl Fabric {
    /// A network in which every link is up.
    ///
    /// # Errors
    /// When a link has no bandwidth.
    pub fn new(config: &FabricConfig) -> Result<Self, LinkError> {
        let link = |(port, link): (usize, &LinkConfig)| {
            let link = Link::new(port, *link, config.seed)?;
            Ok(Port { link, counters: PortCounters::default(), ledger: Ledger::default() })
        };
        Ok(Self {
            ports: Stretch::whole(
                config.links.iter().enumerate().map(link).collect::<Result<_, LinkError>>()?,
            ),
            switching: Switching {
                switch: Switch::new(config.links.len()),
                forwarding: config.forwarding,
                fall_through: config.switch_fall_through,
                routing: None,
            },
        })
    }

    /// Forwards frames that have routing of their own by that, and leaves off their Ethernet header, which nobody on
    /// the way then looks at. Without it all frames go by their header's addresses.
    #[must_use]
    pub fn routed_by(mut self, routing: Option<Routing>) -> Self {
        self.switching.routing = routing;
        self
    }

    /// The ports, and what is between them, for a shell that keeps each port with its node.
    pub fn into_parts(self) -> (Vec<Port>, Switching) {
        (self.ports.own, self.switching)
    }

    /// Divides the network into stretches of so many ports each, for shells that carry nodes out at the same time: the
    /// nodes of a stretch can send to all ports, and receive at those of the stretch. None are left here.
    #[must_use]
    pub fn divide(&mut self, ports_each: usize) -> Vec<Self> {
        let fabric = |ports| Self { ports, switching: self.switching.clone() };
        self.ports.divide(ports_each).into_iter().map(fabric).collect()
    }

    /// Puts the next stretch behind those that are here.
    pub fn join(&mut self, next: Self) {
        self.ports.own.extend(next.ports.own);
    }

    /// Whether its switch knows addresses that it was not told.
    pub fn has_learned(&self) -> bool {
        self.switching.switch.has_learned()
    }

    /// Takes a frame that the node at port `from` has `ready`, at an instant or from its head to its tail, and adds to
    /// `deliveries` who gets it. What is dropped is counted and has no delivery. `message` says whose frame it is, for
    /// the ledger.
    ///
    /// The frame passes the switch and the link behind it at once. Where frames of several nodes meet at a link, a
    /// shell that knows the future takes the two steps apart: [`Self::enter`], and [`Self::leave`] in the order of
    /// model time.
    #[inline]
    pub fn forward(
        &mut self,
        ready: impl Into<Passage>,
        from: u16,
        frame: &[u8],
        message: Option<TraceTag>,
        deliveries: &mut Deliveries,
    ) {
        self.switching.forward(&mut self.ports, ready, from, frame, message, deliveries);
    }

    /// The first half of [`Self::forward`]: over the sender's link and through the switch.
    #[inline]
    pub fn enter(
        &mut self,
        ready: impl Into<Passage>,
        from: u16,
        frame: &[u8],
        message: Option<TraceTag>,
        transits: &mut Transits,
    ) {
        self.switching.enter(&mut self.ports, ready, from, frame, message, transits);
    }

    /// The second half of [`Self::forward`]: over the link behind the switch. `bytes` is the length of the frame.
    #[inline]
    pub fn leave(
        &mut self,
        transit: &Transit,
        bytes: usize,
        message: Option<TraceTag>,
        deliveries: &mut Deliveries,
    ) {
        leave(&mut self.ports, transit, bytes, message, deliveries);
    }

    /// No frame is faster, whatever happens on the way: so long nothing that one node does can concern another.
    pub fn shortest_way(&self) -> Way {
        let links = || self.ports.own.iter().map(|port| &port.link);
        let least = |spans: &mut dyn Iterator<Item = Span>| spans.min().unwrap_or(Span::ZERO);
        let through_switch = least(&mut links().map(Link::latency)) + self.switching.fall_through;
        let over_link = least(&mut links().map(|link| link.latency() + link.shortest_serialization()));
        Way { through_switch, to_node: through_switch + over_link }
    }

    /// How long a frame of `bytes` keeps a port's link, with the silence behind it.
    pub fn slot(&mut self, port: u16, bytes: usize) -> Span {
        self.ports.own.get_mut(usize::from(port)).map_or(Span::ZERO, |port| port.link.slot(bytes))
    }

    /// How long so many bytes take on a port's link.
    pub fn span_of_bytes(&self, port: u16, bytes: u64) -> Span {
        self.ports.own.get(usize::from(port)).map_or(Span::ZERO, |port| port.link.span(bytes))
    }

    /// Ports of the switch.
    pub fn ports(&self) -> impl ExactSizeIterator<Item = u16> + use<> {
        (0..self.ports.own.len() as u32).map(|port| port as u16)
    }

    /// What goes wrong on a port's link from now on, in both directions. False when there is no such port.
    pub fn set_faults(&mut self, port: u16, faults: Faults) -> bool {
        let port = self.ports.own.get_mut(usize::from(port));
        port.map(|port| port.link.set_faults(faults)).is_some()
    }

    /// Takes a port's link up or down. False when there is no such port.
    pub fn set_link_up(&mut self, port: u16, is_up: bool) -> bool {
        let port = self.ports.own.get_mut(usize::from(port));
        port.map(|port| port.link.set_up(is_up)).is_some()
    }

    /// Whether frames pass over a port's link.
    pub fn is_link_up(&self, port: u16) -> bool {
        self.ports.own.get(usize::from(port)).is_some_and(|port| port.link.is_up())
    }

    /// All ports, by node.
    pub fn all(&self) -> &[Port] {
        &self.ports.own
    }

    /// What passed a port.
    pub fn counters(&self, port: u16) -> Option<&PortCounters> {
        self.ports.own.get(usize::from(port)).map(|port| &port.counters)
    }

    /// What links and switch have cost: the sum of what each node's frames and link have.
    pub fn ledger(&self) -> Ledger {
        let mut sum = Ledger::default();
        self.ports.own.iter().for_each(|port| sum.add(&port.ledger));
        sum
    }

    /// What each node has of it, to keep single stages, or to turn the ledgers off.
    pub fn ledgers_mut(&mut self) -> impl Iterator<Item = &mut Ledger> {
        self.ports.own.iter_mut().map(|port| &mut port.ledger)
    }

    /// [`Ledger::take_stages`] of all of them, in the order in which they began.
    pub fn take_stages(&mut self) -> (Vec<StageRecord>, u64) {
        take_stages(self.ledgers_mut())
    }
}

#[cfg(test)]
mod tests;
