//! A stretch of nodes with all that is theirs: hosts, ports of the switch, events, frames under way. A world has one of
//! them, which several threads divide among them ([`crate::threads`]).

use niclab_model::fabric::ethernet::Concern;
use niclab_model::fabric::{Deliveries, Fabric, Transit, Transits};
use niclab_model::time::Time;
use niclab_workloads::{FlowId, Script};

use crate::checker::Checker;
use crate::host::{Effects, Host, InlinePacket, next_event};
use crate::observer::Observer;
use crate::queue::{Event, Queue, Slab};

/// One node.
pub struct Node {
    /// Its host and NIC.
    pub host: Box<dyn Host>,
    pub(crate) script: Script,
    /// The event of its host that is to come.
    host_at: Option<Time>,
    /// The event of its NIC's deadline that is to come.
    pub(crate) timeout_at: Option<Time>,
}

impl Node {
    pub(crate) const fn new(host: Box<dyn Host>) -> Self {
        Self { host, script: Script::idle(), host_at: None, timeout_at: None }
    }
}

/// A frame under way, from the card that sends it to the card that receives it.
pub(crate) struct Flight {
    /// The node that sends it.
    pub(crate) from: u16,
    pub(crate) packet: InlinePacket,
    /// Where it is going, once it has entered the switch.
    transit: Option<Transit>,
}

/// What a part has for the nodes of another one.
#[derive(Default)]
pub(crate) struct Transfer {
    /// Frames that are through the switch, with the nodes that caused it.
    flights: Vec<(u16, Flight)>,
    /// Flows over which a message was sent.
    sent: Vec<FlowId>,
}

/// The other parts, as one of them sees them.
pub(crate) struct Others {
    /// How many nodes each has, but for the last.
    pub(crate) nodes_each: usize,
    /// What is for each of them, this one included.
    pub(crate) outgoing: Vec<Transfer>,
    /// What is from each of them.
    pub(crate) incoming: Vec<Transfer>,
    /// The soonest phase with something in the outgoing.
    pub(crate) soonest: Option<u64>,
}

/// A stretch of nodes.
pub(crate) struct Part {
    /// The number of its first node.
    pub(crate) first: usize,
    pub(crate) nodes: Vec<Node>,
    pub(crate) fabric: Fabric,
    pub(crate) queue: Queue,
    pub(crate) flights: Slab<Flight>,
    pub(crate) checker: Checker,
    pub(crate) effects: Effects,
    /// The latest event.
    pub(crate) clock: Time,
    pub(crate) events: u64,
    /// Most events of a phase: who has so many more is looked at event by event.
    pub(crate) most_in_phase: u64,
    /// Whether all nodes share one wire.
    pub(crate) has_medium: bool,
    /// None where all nodes are here.
    pub(crate) others: Option<Others>,
}

impl Part {
    /// All nodes, with nothing under way.
    pub(crate) fn new(nodes: Vec<Node>, fabric: Fabric, checker: Checker, has_medium: bool) -> Self {
        Self {
            first: 0,
            nodes,
            queue: Queue::new(fabric.shortest_way()),
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

    /// A node, if it is here.
    pub(crate) fn node(&mut self, number: u16) -> Option<&mut Node> {
        self.nodes.get_mut(usize::from(number).checked_sub(self.first)?)
    }

    /// Carries out all events of a phase, in which nothing comes from other parts, but no more than there may be in
    /// one.
    pub(crate) fn run(&mut self, phase: u64) {
        self.take_in(phase);
        // A card whose deadline is always due would keep it here for ever.
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
                // Of one wire and of programs for all cards, where nodes are not divided.
                Event::Silence | Event::HandOver => {}
            }
        }
        self.tell_of_sent();
    }

    /// What other parts had for this one.
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

    /// Has the parts of receivers know of the messages that were sent.
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

    /// A frame leaves over its sender's link.
    pub(crate) fn depart(&mut self, now: Time, node: u16, place: u32, observer: Option<&mut Observer<'_>>) {
        let Some(flight) = self.flights.get_mut(place) else { return };
        self.clock = self.clock.max(now);
        let InlinePacket { frame, message, passage, concern } = &flight.packet;
        // What a station sends to all the Ethernet function beside it hears without the link.
        let own = (*concern == Concern::All)
            .then(|| InlinePacket { concern: Concern::Host, ..flight.packet.clone() });
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
        // Most frames go to one node, and stay where they are.
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

    /// A frame is in the switch, on its way to a node of this or of another part.
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

    /// A frame is through the switch. Frames of several nodes meet here, in the order of model time.
    pub(crate) fn cross(&mut self, now: Time, node: u16, place: u32, observer: Option<&mut Observer<'_>>) {
        let Some(flight) = self.flights.get_mut(place) else { return };
        let Some(transit) = flight.transit else { return };
        let InlinePacket { frame, message, .. } = &flight.packet;
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
        // A timer that was stopped meanwhile is no event of the model: its time does not count.
        if node.host.deadline().is_some_and(|deadline| deadline <= now) {
            node.host.timeout(now, &mut self.checker, &mut self.effects);
            self.clock = self.clock.max(now);
        }
        self.settle(now, number);
    }

    /// After anything that a node's NIC was told at `now`: its frames go on their way, and its next events are set.
    pub(crate) fn settle(&mut self, now: Time, number: u16) {
        // Most events send nothing.
        while let Some(packet) = self.effects.frames.pop_front() {
            let at = packet.passage.head;
            let frame = self.flights.put(Flight { from: number, packet, transit: None });
            // Who shares a wire with all others has no lane of its own.
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
