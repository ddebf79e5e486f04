//! The network: one switch, and a link with seeded faults to each node.
//!
//! * [`batch`]: equal frames from one port to another, priced together;
//! * [`ethernet`]: the header that every frame has;
//! * [`faults`]: the faults of a link, sampled from a seed;
//! * [`link`]: one direction of a link: bandwidth, latency, queue;
//! * [`switch`]: the address table.
//!
//! [`Fabric::forward`] reads the head of a frame and returns its receivers and arrival times; a shell keeps the bytes.
//! The fabric stores no frames: it represents queues by the instants at which frames leave them.

pub mod batch;
pub mod ethernet;
pub mod faults;
pub mod frame_head;
pub mod link;
mod stretch;
pub mod switch;

use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::fabric::ethernet::{Frame, HEADER_BYTES};
use crate::fabric::faults::Faults;
use crate::fabric::frame_head::FrameHead;
use crate::fabric::link::{Arrival, Arrivals, FrameLength, Link, LinkConfig, LinkError};
use crate::fabric::stretch::Stretch;
use crate::fabric::switch::{Outlet, Switch};
use crate::platform::ledger::{Cost, Ledger, Resource, ResourceName, StageRecord, Transaction};
use crate::platform::trace_tag::TraceTag;
use crate::time::{Passage, Span, Time};

/// The receivers of a frame. Most frames go to one node.
pub type Deliveries = SmallVec<[Delivery; 4]>;

/// One arrival of a frame. A duplicated frame has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The port, which is the node's number.
    pub to: u16,
    /// When the first bit arrives.
    pub head: Time,
    /// When the last bit arrives.
    pub at: Time,
    /// The bit of the frame to flip, counted from the lowest bit of the first byte.
    pub corrupt: Option<u32>,
}

/// The port to which a frame's own routing leads; none for a frame with only an Ethernet header.
pub type Routing = fn(&[u8]) -> Option<u16>;

/// The transits of a frame that entered the switch. Most frames go to one node.
pub type Transits = SmallVec<[Transit; 4]>;

/// A frame in the switch, towards one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// The port.
    pub to: u16,
    /// When it is ready for the link after the switch.
    pub ready: Time,
    /// When its last bit has crossed the switch.
    tail: Time,
    /// Bytes of its VLAN tags.
    tag_bytes: u8,
    /// Bytes at its start that the wire does not carry.
    off_wire: u8,
    corrupt: Option<u32>,
}

impl Transit {
    /// Position in the frame of a bit that was damaged on the wire.
    fn in_frame(off_wire: u8, bit: Option<u32>) -> Option<u32> {
        bit.map(|bit| bit + 8 * u32::from(off_wire))
    }
}

/// When a switch begins to forward a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// Once the header has arrived (ATOLL's switch).
    #[default]
    CutThrough,
    /// Once the whole frame has arrived (Ethernet's usual switch).
    StoreAndForward,
}

/// Minimum latency of frames, from the instant at which they are ready for their sender's link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinLatency {
    /// Until they are ready for the link after the switch.
    pub through_switch: Span,
    /// Until the receiver has the last byte.
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
    /// Seed of all faults. Each direction of each link has its own random stream, so that the faults of one do not
    /// depend on the traffic of another.
    pub seed: u64,
}

/// Traffic of a port, as the switch sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames that the node sent.
    pub frames_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Frames forwarded to the node; a duplicated frame counts twice.
    pub frames_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Dropped: shorter than a header.
    pub dropped_short: u64,
    /// Dropped: longer than the link's MTU allows.
    pub dropped_long: u64,
    /// Dropped: a link was down or partitioned.
    pub dropped_down: u64,
    /// Dropped: the queue was full.
    pub dropped_queue: u64,
    /// Dropped: lost by a fault.
    pub dropped_lost: u64,
    /// Duplicated by a fault.
    pub duplicated: u64,
    /// Damaged by a fault.
    pub corrupted: u64,
    /// Delayed by a fault, so that later frames may overtake.
    pub reordered: u64,
}

/// A node's link and its traffic. A frame's route to the switch and through it belongs to its sender's port, the link
/// after the switch to its receiver's.
#[derive(Debug)]
pub struct SwitchPort {
    link: Link,
    counters: PortCounters,
    ledger: Ledger,
}

impl SwitchPort {
    /// The counters of its traffic.
    pub const fn counters(&self) -> &PortCounters {
        &self.counters
    }

    /// The cost of its node's frames up to and through the switch, and of frames for its node on the link after it.
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The ledger, to record single stages or to disable it.
    pub const fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// Sends a frame over the link to the switch.
    #[inline]
    fn enter(&mut self, ready: Passage, length: FrameLength, message: Option<TraceTag>) -> Arrivals {
        let Self { link, counters, ledger } = self;
        counters.frames_in += 1;
        counters.bytes_in += length.bytes as u64;
        ledger.attribute(message);
        link.pass_to_switch(ready, length, counters, ledger)
    }

    /// Sets the faults of its link, in both directions.
    pub fn set_faults(&mut self, faults: Faults) {
        self.link.set_faults(faults);
    }

    /// Sets its link up or down.
    pub fn set_link_up(&mut self, is_up: bool) {
        self.link.set_up(is_up);
    }
}

/// The ports of a switch. A shell with a lock for each node keeps each port with its node.
pub trait Ports {
    /// Number of ports.
    fn count(&self) -> usize;

    /// The port of a node.
    fn port(&mut self, number: u16) -> Option<&mut SwitchPort>;
}

impl Ports for Vec<SwitchPort> {
    #[inline]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn port(&mut self, number: u16) -> Option<&mut SwitchPort> {
        self.get_mut(usize::from(number))
    }
}

/// The switch between the links; it works on ports that the caller passes.
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

impl Switching {
    /// The destination port of a frame whose route is known from the start: by its own routing, or from one card to
    /// another. The look-up changes nothing, and forwarding needs only the sender's port and the receiver's.
    #[inline]
    pub fn known_route(&self, frame: &[u8]) -> Option<u16> {
        let header = Frame::new_checked(frame)?;
        self.routing.and_then(|routing| routing(frame)).or_else(|| self.switch.known_route(&header))
    }

    /// [`Fabric::forward`] on these ports.
    #[inline]
    pub fn forward<'a>(
        &mut self,
        ports: &mut impl Ports,
        ready: impl Into<Passage>,
        from: u16,
        frame: impl Into<FrameHead<'a>>,
        message: Option<TraceTag>,
        deliveries: &mut Deliveries,
    ) {
        let frame = frame.into();
        self.enter_link(ports, ready.into(), from, frame, message, |ports, transit| {
            leave(ports, &transit, frame.frame_bytes, message, deliveries);
        });
    }

    /// [`Fabric::enter`] on these ports.
    #[inline]
    pub fn enter<'a>(
        &mut self,
        ports: &mut impl Ports,
        ready: impl Into<Passage>,
        from: u16,
        frame: impl Into<FrameHead<'a>>,
        message: Option<TraceTag>,
        transits: &mut Transits,
    ) {
        self.enter_link(ports, ready.into(), from, frame.into(), message, |_, transit| {
            transits.push(transit)
        });
    }

    #[inline]
    fn enter_link<P: Ports>(
        &mut self,
        ports: &mut P,
        ready: Passage,
        from: u16,
        frame: FrameHead<'_>,
        message: Option<TraceTag>,
        mut behind_switch: impl FnMut(&mut P, Transit),
    ) {
        let Some(port) = ports.port(from) else { return };
        let FrameHead { bytes: head, frame_bytes } = frame;
        let Some(header) = Frame::new_checked(head) else {
            port.counters.dropped_short += 1;
            return;
        };
        let routed = self.routing.and_then(|routing| routing(head));
        let off_wire = if routed.is_some() { HEADER_BYTES as u8 } else { 0 };
        let length = FrameLength::of(head, frame_bytes.saturating_sub(off_wire.into()));
        let entering = port.enter(ready, length, message);
        // A dropped frame needs no route.
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

    /// When a frame begins to cross the switch, towards this link.
    #[inline]
    fn entered(&self, entering: &Arrival, bytes: usize, towards: &mut Link) -> Time {
        match self.forwarding {
            // If the frame arrives over a slower link, it starts late enough that the next link does not run dry. A
            // slow source also holds the link after the switch.
            Forwarding::CutThrough => {
                let at_speed = entering.tail.before(entering.held);
                entering.head.max(at_speed.before(towards.serialization(bytes)))
            }
            Forwarding::StoreAndForward => entering.tail,
        }
    }

    /// When a frame is ready for the link after the switch, and when its last bit has crossed. The sender's ledger has
    /// the transaction.
    #[inline]
    fn cross(&self, entering: &Arrival, entered: Time, bytes: usize, ledger: &mut Ledger) -> (Time, Time) {
        // The switch forwards any number of frames at a time; they contend at the link after it.
        let mut switch = Resource::new(ResourceName::Switch);
        let cost = Cost { count: 1, bytes: bytes as u64, occupancy: Span::ZERO, latency: self.fall_through };
        let ready = ledger.charge(Transaction::SwitchFallThrough, &mut switch, entered, cost).end;
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
    let Some(SwitchPort { link, counters, ledger }) = ports.port(to) else { return };
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
            Ok(SwitchPort { link, counters: PortCounters::default(), ledger: Ledger::default() })
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

    /// Forwards frames that have their own routing by that routing, and omits their Ethernet header on the wire.
    /// Without this, all frames are forwarded by their Ethernet addresses.
    #[must_use]
    pub fn routed_by(mut self, routing: Option<Routing>) -> Self {
        self.switching.routing = routing;
        self
    }

    /// The ports and the switch, for a shell that keeps each port with its node.
    pub fn into_parts(self) -> (Vec<SwitchPort>, Switching) {
        (self.ports.own, self.switching)
    }

    /// Divides the network into shards of `ports_each` ports, for shells that run nodes in parallel. The nodes of a
    /// shard can send to all ports, and receive at the shard's ports. No port remains here.
    #[must_use]
    pub fn divide(&mut self, ports_each: usize) -> Vec<Self> {
        let fabric = |ports| Self { ports, switching: self.switching.clone() };
        self.ports.divide(ports_each).into_iter().map(fabric).collect()
    }

    /// Appends the next shard's ports.
    pub fn join(&mut self, next: Self) {
        self.ports.own.extend(next.ports.own);
    }

    /// Whether its switch has learned addresses.
    pub fn has_learned(&self) -> bool {
        self.switching.switch.has_learned()
    }

    /// Forwards a frame that the node at port `from` has `ready`, at an instant or from its head to its tail, and adds
    /// its receivers to `deliveries`. A dropped frame is counted and has no delivery. `message` names its message, for
    /// the ledger.
    ///
    /// The frame passes the switch and the link after it at once. Frames of several nodes may contend for a link. A
    /// shell that processes events in model time then splits the two steps: [`Self::enter`], and [`Self::leave`] in
    /// the order of model time.
    #[inline]
    pub fn forward<'a>(
        &mut self,
        ready: impl Into<Passage>,
        from: u16,
        frame: impl Into<FrameHead<'a>>,
        message: Option<TraceTag>,
        deliveries: &mut Deliveries,
    ) {
        self.switching.forward(&mut self.ports, ready, from, frame, message, deliveries);
    }

    /// The first half of [`Self::forward`]: over the sender's link and through the switch.
    #[inline]
    pub fn enter<'a>(
        &mut self,
        ready: impl Into<Passage>,
        from: u16,
        frame: impl Into<FrameHead<'a>>,
        message: Option<TraceTag>,
        transits: &mut Transits,
    ) {
        self.switching.enter(&mut self.ports, ready, from, frame, message, transits);
    }

    /// The second half of [`Self::forward`]: over the link after the switch. `bytes` is the length of the frame.
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

    /// The minimum latency of any frame, with any faults. For this long, no node's action can affect another node.
    pub fn min_latency(&self) -> MinLatency {
        let links = || self.ports.own.iter().map(|port| &port.link);
        let least = |spans: &mut dyn Iterator<Item = Span>| spans.min().unwrap_or(Span::ZERO);
        let through_switch = least(&mut links().map(Link::latency)) + self.switching.fall_through;
        let over_link = least(&mut links().map(|link| link.latency() + link.shortest_serialization()));
        MinLatency { through_switch, to_node: through_switch + over_link }
    }

    /// How long a frame of `bytes` occupies a port's link, including the gap after it.
    pub fn slot(&mut self, port: u16, bytes: usize) -> Span {
        self.ports.own.get_mut(usize::from(port)).map_or(Span::ZERO, |port| port.link.slot(bytes))
    }

    /// How long `bytes` bytes take on a port's link.
    pub fn span_of_bytes(&self, port: u16, bytes: u64) -> Span {
        self.ports.own.get(usize::from(port)).map_or(Span::ZERO, |port| port.link.span(bytes))
    }

    /// Ports of the switch.
    pub fn ports(&self) -> impl ExactSizeIterator<Item = u16> + use<> {
        (0..self.ports.own.len() as u32).map(|port| port as u16)
    }

    /// Sets the faults of a port's link, in both directions. False if there is no such port.
    pub fn set_faults(&mut self, port: u16, faults: Faults) -> bool {
        let port = self.ports.own.get_mut(usize::from(port));
        port.map(|port| port.link.set_faults(faults)).is_some()
    }

    /// Sets a port's link up or down. False if there is no such port.
    pub fn set_link_up(&mut self, port: u16, is_up: bool) -> bool {
        let port = self.ports.own.get_mut(usize::from(port));
        port.map(|port| port.link.set_up(is_up)).is_some()
    }

    /// Whether frames pass over a port's link.
    pub fn is_link_up(&self, port: u16) -> bool {
        self.ports.own.get(usize::from(port)).is_some_and(|port| port.link.is_up())
    }

    /// All ports, by node.
    pub fn all(&self) -> &[SwitchPort] {
        &self.ports.own
    }

    /// The counters of a port's traffic.
    pub fn counters(&self, port: u16) -> Option<&PortCounters> {
        self.ports.own.get(usize::from(port)).map(|port| &port.counters)
    }

    /// The cost of links and switch: the sum of all ports' ledgers.
    pub fn ledger(&self) -> Ledger {
        let mut sum = Ledger::default();
        self.ports.own.iter().for_each(|port| sum.add(&port.ledger));
        sum
    }

    /// The ledger of each port, to record single stages or to disable it.
    pub fn ledgers_mut(&mut self) -> impl Iterator<Item = &mut Ledger> {
        self.ports.own.iter_mut().map(|port| &mut port.ledger)
    }

    /// [`Ledger::take_stages`] of all ports, sorted by their start.
    pub fn take_stages(&mut self) -> (Vec<StageRecord>, u64) {
        take_stages(self.ledgers_mut())
    }
}

#[cfg(test)]
mod tests;
