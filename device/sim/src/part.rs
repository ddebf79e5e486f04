//! A partition of the nodes with all its state: hosts, switch ports, events, frames in flight. A simulation has one,
//! which several threads divide between them ([`crate::threads`]).

use niclab_model::fabric::ethernet::FrameClass;
use niclab_model::fabric::{Deliveries, Fabric, Transit, Transits};
use niclab_model::time::Time;
use niclab_workloads::{FlowId, Script};

use crate::checker::Checker;
use crate::host::{Effects, FrameInFlight, Host, next_event};
use crate::observer::Observer;
use crate::queue::{Event, Queue, Slab};

/// One node.
pub struct Node {
    /// Its host and NIC.
    pub host: Box<dyn Host>,
    pub(crate) script: Script,
    /// Time of its host's next event.
    host_at: Option<Time>,
    /// Time of its NIC's next timeout event.
    pub(crate) timeout_at: Option<Time>,
}

impl Node {
    pub(crate) const fn new(host: Box<dyn Host>) -> Self {
        Self { host, script: Script::idle(), host_at: None, timeout_at: None }
    }
}

/// A frame in flight from the sending card to the receiving card.
pub(crate) struct Flight {
    /// The sending node.
    pub(crate) from: u16,
    pub(crate) packet: FrameInFlight,
    /// Its destination, once it has entered the switch.
    transit: Option<Transit>,
}

/// What one partition passes to another.
#[derive(Default)]
pub(crate) struct Transfer {
    /// Frames that have passed the switch, with their sending nodes.
    flights: Vec<(u16, Flight)>,
    /// Flows on which a message was sent.
    sent: Vec<FlowId>,
}

/// The other partitions, as seen by one partition.
pub(crate) struct Others {
    /// Number of nodes in each partition except the last.
    pub(crate) nodes_each: usize,
    /// One transfer to each partition, including this one.
    pub(crate) outgoing: Vec<Transfer>,
    /// One transfer from each partition.
    pub(crate) incoming: Vec<Transfer>,
    /// The earliest phase with an event in `outgoing`.
    pub(crate) soonest: Option<u64>,
}

/// A partition of the nodes.
pub(crate) struct Part {
    /// The number of its first node.
    pub(crate) first: usize,
    pub(crate) nodes: Vec<Node>,
    pub(crate) fabric: Fabric,
    pub(crate) queue: Queue,
    pub(crate) flights: Slab<Flight>,
    pub(crate) checker: Checker,
    pub(crate) effects: Effects,
    /// Time of the latest event.
    pub(crate) clock: Time,
    pub(crate) events: u64,
    /// Maximum number of events in a phase. A simulation with more events is processed event by event.
    pub(crate) most_in_phase: u64,
    /// Whether all nodes share one wire.
    pub(crate) has_medium: bool,
    /// None if all nodes are in this partition.
    pub(crate) others: Option<Others>,
}

impl Part {
    /// A partition of all nodes, without frames in flight.
    pub(crate) fn new(nodes: Vec<Node>, fabric: Fabric, checker: Checker, has_medium: bool) -> Self {
        Self {
            first: 0,
            nodes,
            queue: Queue::new(fabric.min_latency()),
            fabric,
            flights: Slab::default(),
            checker,
            effects: Effects::default(),
            clock: Time::ZERO,
            events: 0,
            most_in_phase: 0,
            has_medium,
            others: None,
        }
    }

    /// A node, if it is in this partition.
    pub(crate) fn node(&mut self, number: u16) -> Option<&mut Node> {
        self.nodes.get_mut(usize::from(number).checked_sub(self.first)?)
    }

    /// Processes the events of a phase, up to `most_in_phase`. In a phase nothing arrives from other partitions.
    pub(crate) fn run(&mut self, phase: u64) {
        self.take_in(phase);
        // Without a limit, a card whose deadline is always due would never end the phase.
        let last = self.events.saturating_add(self.most_in_phase);
        while self.events < last
            && let Some((at, node, event)) = self.queue.pop_of(phase)
        {
            self.events += 1;
            match event {
                Event::Depart { frame } => self.depart(at, node, frame, None),
                Event::Cross { frame } => self.cross(at, node, frame, None),
                Event::Arrive { frame } => self.arrive(at, node, frame),
                Event::Host => self.step(at, node),
                Event::Timeout => self.expire(at, node),
                // Only undivided simulations have a shared wire or firmware reloads.
                Event::Silence | Event::FirmwareReload => {}
            }
        }
        self.tell_of_sent();
    }

    /// Takes frames and messages from the other partitions.
    fn take_in(&mut self, phase: u64) {
        let Some(others) = &mut self.others else { return };
        for inbox in &mut others.incoming {
            for (cause, flight) in inbox.flights.drain(..) {
                let Some(Transit { to, ready, .. }) = flight.transit else { continue };
                let frame = self.flights.put(flight);
                let event = Event::Cross { frame };
                debug_assert!(self.queue.phase_of(ready, event) >= phase, "a frame for a phase that is over");
                self.queue.push(ready, to, cause, event);
            }
            inbox.sent.drain(..).for_each(|flow| self.checker.on_sent_elsewhere(flow));
        }
    }

    /// Notifies the partitions of receivers of messages that were sent.
    fn tell_of_sent(&mut self) {
        let Some(others) = &mut self.others else { return };
        for (flow, to) in self.checker.take_sent() {
            let place = usize::from(to) / others.nodes_each;
            if place * others.nodes_each != self.first
                && let Some(transfer) = others.outgoing.get_mut(place)
            {
                transfer.sent.push(flow);
            }
        }
    }

    /// A frame leaves on its sender's link.
    pub(crate) fn depart(&mut self, now: Time, node: u16, place: u32, observer: Option<&mut Observer<'_>>) {
        let Some(flight) = self.flights.get_mut(place) else { return };
        self.clock = self.clock.max(now);
        let FrameInFlight { frame, message, passage, class } = &flight.packet;
        // The node's Ethernet function receives broadcasts of the node's MAC endpoint without the link.
        let own = (*class == FrameClass::All)
            .then(|| FrameInFlight { class: FrameClass::Host, ..flight.packet.clone() });
        let mut transits = Transits::new();
        self.fabric.enter(*passage, node, frame, *message, &mut transits);
        if let Some(observer) = observer {
            observer.on_sent(now, node, frame, transits.is_empty());
        }
        if let Some(packet) = own {
            let at = packet.passage.tail;
            let frame = self.flights.put(Flight { from: node, packet, transit: None });
            self.queue.push(at, node, node, Event::Arrive { frame });
        }
        let Some((last, others)) = transits.split_last() else { return self.flights.remove(place) };
        let Some(flight) = self.flights.get_mut(place) else { return };
        flight.transit = Some(*last);
        // Most frames go to one node and keep their slot.
        if !others.is_empty() {
            let packet = flight.packet.clone();
            for transit in others {
                let flight = Flight { from: node, packet: packet.clone(), transit: Some(*transit) };
                let frame = self.flights.put(flight);
                self.send_on(node, transit, frame);
            }
        }
        self.send_on(node, last, place);
    }

    /// A frame has entered the switch, for a node of this or another partition.
    fn send_on(&mut self, cause: u16, transit: &Transit, place: u32) {
        let &Transit { to, ready, .. } = transit;
        let event = Event::Cross { frame: place };
        if let Some(others) = &mut self.others
            && !(self.first..self.first + self.nodes.len()).contains(&usize::from(to))
        {
            let phase = self.queue.phase_of(ready, event);
            others.soonest = Some(others.soonest.map_or(phase, |soonest| soonest.min(phase)));
            let transfer = others.outgoing.get_mut(usize::from(to) / others.nodes_each);
            if let (Some(transfer), Some(flight)) = (transfer, self.flights.take(place)) {
                transfer.flights.push((cause, flight));
            }
            return;
        }
        self.queue.push(ready, to, cause, event);
    }

    /// A frame has passed the switch. Frames of several nodes meet here, in the order of model time.
    pub(crate) fn cross(&mut self, now: Time, node: u16, place: u32, observer: Option<&mut Observer<'_>>) {
        let Some(flight) = self.flights.get_mut(place) else { return };
        let Some(transit) = flight.transit else { return };
        let FrameInFlight { frame, message, .. } = &flight.packet;
        self.clock = self.clock.max(now);
        let mut deliveries = Deliveries::new();
        self.fabric.leave(&transit, frame.len(), *message, &mut deliveries);
        if let Some(observer) = observer {
            observer.on_forwarded(now, transit.to, frame, &deliveries);
        }
        let Some((last, others)) = deliveries.split_last() else { return self.flights.remove(place) };
        let packet = (!others.is_empty()).then(|| flight.packet.clone());
        flight.packet.arrive(last);
        if let Some(packet) = packet {
            for delivery in others {
                let mut packet = packet.clone();
                packet.arrive(delivery);
                let frame = self.flights.put(Flight { from: node, packet, transit: None });
                self.queue.push(delivery.at, delivery.to, node, Event::Arrive { frame });
            }
        }
        self.queue.push(last.at, last.to, node, Event::Arrive { frame: place });
    }

    pub(crate) fn arrive(&mut self, now: Time, number: u16, place: u32) {
        let Some(flight) = self.flights.get(place) else { return };
        let Some(node) = self.nodes.get_mut(usize::from(number).wrapping_sub(self.first)) else { return };
        node.host.arrive(now, &flight.packet, &mut self.checker, &mut self.effects);
        self.flights.remove(place);
        self.clock = self.clock.max(now);
        self.settle(now, number);
    }

    pub(crate) fn step(&mut self, now: Time, number: u16) {
        let Some(node) = self.nodes.get_mut(usize::from(number).wrapping_sub(self.first)) else { return };
        if node.host_at != Some(now) {
            return;
        }
        node.host_at = None;
        self.clock = self.clock.max(now);
        node.host.step(now, &mut node.script, &mut self.checker, &mut self.effects);
        self.settle(now, number);
    }

    pub(crate) fn expire(&mut self, now: Time, number: u16) {
        let Some(node) = self.nodes.get_mut(usize::from(number).wrapping_sub(self.first)) else { return };
        if node.timeout_at != Some(now) {
            return;
        }
        node.timeout_at = None;
        // A timer that was stopped in the meantime is no event of the model. It does not advance the clock.
        if node.host.deadline().is_some_and(|deadline| deadline <= now) {
            node.host.timeout(now, &mut self.checker, &mut self.effects);
            self.clock = self.clock.max(now);
        }
        self.settle(now, number);
    }

    /// After an input to a node's NIC at `now`: sends its frames and sets its next events.
    pub(crate) fn settle(&mut self, now: Time, number: u16) {
        // Most events send no frame.
        while let Some(packet) = self.effects.frames.pop_front() {
            let at = packet.passage.head;
            let frame = self.flights.put(Flight { from: number, packet, transit: None });
            // Nodes that share a wire share lane 0.
            let lane = if self.has_medium { 0 } else { number };
            self.queue.push(at, lane, number, Event::Depart { frame });
        }
        let Some(node) = self.nodes.get_mut(usize::from(number).wrapping_sub(self.first)) else { return };
        let deadline = node.host.deadline().map(|at| at.max(now));
        if let Some(at) = deadline.filter(|&at| node.timeout_at.is_none_or(|set| at < set)) {
            node.timeout_at = Some(at);
            self.queue.push(at, number, number, Event::Timeout);
        }
        self.wake(number, now);
    }

    /// Sets the next event of a node's host, at `earliest` or later.
    pub(crate) fn wake(&mut self, number: u16, earliest: Time) {
        let Some(node) = self.nodes.get_mut(usize::from(number).wrapping_sub(self.first)) else { return };
        if let Some(at) = next_event(&mut *node.host, earliest, node.host_at, &mut node.script) {
            node.host_at = Some(at);
            self.queue.push(at, number, number, Event::Host);
        }
    }
}
