//! A program whose messages are datagrams over the card's Ethernet function, the conventional NIC. Each message is one
//! frame. There is no flow control, and each notification is an interrupt.

pub(super) mod figures;

use std::collections::VecDeque;
use std::sync::Arc;

use niclab_model::conventional::Conventional;
use niclab_model::fabric::ethernet::{FrameClass, HEADER_BYTES, Header, mac_of_node};
use niclab_model::nic::FrameBytes;
use niclab_model::nic::fault_injector::Rates;
use niclab_model::platform::ledger::Ledger;
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::Time;
use niclab_observe::timeline::Owner;
use niclab_spec::Workload;
use niclab_spec::report::NodeFigures;

use niclab_workloads::{End, Flow, Mark, PortPlan, Script};

use super::{Effects, FrameInFlight, Host, Refused, Sum};
use crate::checker::{Check, Checker};

/// The EtherType of IPv4.
const ETHER_TYPE_IPV4: u16 = 0x0800;

/// The traffic at the function's interface, counted outside the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of frames sent.
    pub sent_frames: u64,
    /// Bytes of frames sent.
    pub sent_bytes: u64,
    /// Number of frames that arrived intact.
    pub received_frames: u64,
    /// Bytes of these.
    pub received_bytes: u64,
    /// Number of frames that arrived with a wrong check sequence.
    pub dropped_frames: u64,
    /// Number of doorbells.
    pub doorbells: u64,
    /// Number of interrupts for received frames.
    pub receive_interrupts: u64,
}

/// An Ethernet function: the conventional NIC and its traffic.
pub struct Function {
    /// The conventional NIC.
    pub nic: Conventional,
    /// The traffic at its interface.
    pub tally: Tally,
    /// End of the driver's work on received frames, if the program uses another NIC.
    busy_until: Time,
}

impl Function {
    /// An idle function.
    pub(super) fn new(nic: Conventional) -> Self {
        Self { nic, tally: Tally::default(), busy_until: Time::ZERO }
    }

    /// An intact frame has arrived. Returns the time at which the host has it.
    fn receive(&mut self, at: Time, bytes: usize, message: Option<TraceTag>, bus: &mut NodeBus) -> Time {
        self.tally.received_frames += 1;
        self.tally.received_bytes += bytes as u64;
        self.nic.ledger_mut().attribute(message);
        let received = self.nic.receive(at, bytes as u64, bus);
        message.iter().for_each(|message| self.nic.ledger_mut().complete(message, received));
        received
    }

    fn interrupt(&mut self, at: Time, bus: &mut NodeBus) {
        self.tally.receive_interrupts += 1;
        self.nic.interrupt(at, bus);
    }

    /// An intact frame has arrived for a host whose program uses another NIC.
    pub(super) fn take(&mut self, at: Time, packet: &FrameInFlight, bus: &mut NodeBus) {
        // A busy driver polls its ring, and the NIC does not interrupt it.
        let is_idle = self.busy_until <= at;
        self.busy_until = self.receive(at, packet.frame.len(), packet.message, bus);
        if is_idle {
            self.interrupt(self.busy_until, bus);
        }
    }
}

/// A host with a conventional NIC.
pub struct EthernetHost {
    node: u16,
    function: Function,
    bus: NodeBus,
    /// The flows of all nodes.
    flows: Arc<[Flow]>,
    /// Time at which the NIC has read the last notified frame. Until then no doorbell is needed.
    notified_until: Time,
    /// Time at which the program has each message, its mark, and its sender.
    arrivals: VecDeque<(Time, Mark, u16)>,
}

impl EthernetHost {
    /// An idle host. It sends on those of `flows` that begin at it.
    #[must_use]
    pub fn new(node: u16, nic: Conventional, flows: Arc<[Flow]>) -> Self {
        let bus = NodeBus::default();
        Self {
            node,
            function: Function::new(nic),
            bus,
            flows,
            notified_until: Time::ZERO,
            arrivals: VecDeque::new(),
        }
    }
}

impl Host for EthernetHost {
    fn open(&mut self, _: &PortPlan, _: u32, _: &mut Checker, _: &mut Effects) -> Result<(), Refused> {
        // The Ethernet function has no ports.
        Ok(())
    }

    fn clock(&self) -> Time {
        self.bus.clock()
    }

    fn rest(&self) -> Time {
        self.bus.clock()
    }

    fn begin_at(&mut self, _: Time) {}

    fn deadline(&self) -> Option<Time> {
        None
    }

    fn ledger(&self) -> &Ledger {
        self.function.nic.ledger()
    }

    fn visit_ledgers(&mut self, visit: &mut dyn FnMut(Owner, &mut Ledger)) {
        visit(Owner::Node(self.node), self.function.nic.ledger_mut());
    }

    fn sent_frames(&self) -> u64 {
        self.function.tally.sent_frames
    }

    fn arrive(&mut self, now: Time, packet: &FrameInFlight, _: &mut Checker, _: &mut Effects) {
        let FrameInFlight { frame, message: Some(message), .. } = packet else { return };
        let mark = mark_of(message);
        if **frame != *datagram(message.node, self.node, &mark) {
            self.function.tally.dropped_frames += 1;
            return;
        }
        let received = self.function.receive(now, frame.len(), Some(*message), &mut self.bus);
        // A busy driver polls its ring, and the NIC does not interrupt it.
        if self.arrivals.is_empty() {
            self.function.interrupt(received, &mut self.bus);
        }
        self.arrivals.push_back((self.bus.clock(), mark, message.node));
    }

    fn timeout(&mut self, _: Time, _: &mut Checker, _: &mut Effects) {}

    fn step(&mut self, now: Time, script: &mut Script, checker: &mut Checker, effects: &mut Effects) {
        if let Some(&(_, mark, from)) = self.arrivals.front().filter(|(at, ..)| *at <= now) {
            self.arrivals.pop_front();
            let flow = self.flows.get(mark.flow as usize);
            let end = |node: u16, port: Option<u16>| End { node, port: port.unwrap_or(0) };
            let at = end(self.node, flow.map(|flow| flow.to.port));
            let from = end(from, flow.map(|flow| flow.from.port));
            checker.on_received(at, from, &mark, mark.payload());
            script.on_received();
            return;
        }
        let next = script.next(|_| false).filter(|next| Time::from_ps(next.not_before_ps) <= now);
        let Some(outgoing) = next.filter(|_| self.bus.clock() <= now) else { return };
        let Some(flow) = self.flows.get(outgoing.flow as usize).copied() else { return };
        let mark = checker.on_sent(outgoing.flow, outgoing.bytes);
        script.on_sent(outgoing.flow);
        let frame = datagram(self.node, flow.to.node, &mark);
        let message = message_of(self.node, &flow, &mark, now);
        let has_doorbell = self.notified_until <= now;
        let Function { nic, tally, .. } = &mut self.function;
        nic.ledger_mut().attribute(Some(message));
        self.notified_until = nic.transmit(now, frame.len() as u64, has_doorbell, &mut self.bus);
        tally.doorbells += u64::from(has_doorbell);
        tally.sent_frames += 1;
        tally.sent_bytes += frame.len() as u64;
        let (message, passage, class) = (Some(message), self.notified_until.into(), FrameClass::Host);
        effects.frames.push_back(FrameInFlight { frame: frame.into(), message, passage, class });
    }

    fn soonest(&self) -> Time {
        let arrival = self.arrivals.front().map(|(at, ..)| *at);
        arrival.into_iter().fold(self.bus.clock(), Time::min)
    }

    fn wake(&mut self, script: &mut Script) -> Option<Time> {
        let arrival = self.arrivals.front().map(|(at, ..)| *at);
        let send = script.next(|_| false).map(|next| Time::from_ps(next.not_before_ps).max(self.bus.clock()));
        [arrival, send].into_iter().flatten().min()
    }

    fn is_stuck(&self, _: &Checker) -> bool {
        false
    }

    fn set_device_faults(&mut self, _: Rates) {}

    fn figures(&self) -> NodeFigures {
        figures::add(&self.function, NodeFigures::default())
    }

    fn sums(&self) -> Vec<Sum> {
        figures::sums(&self.function)
    }

    fn finish(&mut self, checker: &mut Checker) {
        let unread = self.arrivals.len();
        if unread > 0 {
            checker.fail(Check::Drained, || {
                format!("{unread} messages arrived, and the program did not receive them")
            });
        }
    }
}

/// Metadata of a frame. Its number encodes the flow and the message's number, like the tags of programs.
fn message_of(node: u16, flow: &Flow, mark: &Mark, launched: Time) -> TraceTag {
    let number = u64::from(mark.flow) << 32 | mark.number & u64::from(u32::MAX);
    TraceTag { node, port: flow.from.port, number, launched, bytes: mark.bytes }
}

const fn mark_of(message: &TraceTag) -> Mark {
    Mark { flow: (message.number >> 32) as u32, bytes: message.bytes, number: message.number & 0xffff_ffff }
}

/// The frame of a message: Ethernet header, room for the IPv4 and UDP headers, and the payload.
fn datagram(from: u16, to: u16, mark: &Mark) -> FrameBytes {
    let header =
        Header { destination: mac_of_node(to), source: mac_of_node(from), ether_type: ETHER_TYPE_IPV4 };
    let headers_bytes = HEADER_BYTES + Workload::ETHERNET_HEADERS_BYTES as usize;
    let mut frame = FrameBytes::from_elem(0, headers_bytes + mark.bytes as usize);
    let (head, payload) = frame.split_at_mut(headers_bytes);
    head.iter_mut().zip(header.emit()).for_each(|(place, byte)| *place = byte);
    let bytes = mark.payload().flat_map(u64::to_le_bytes);
    payload.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_tag_contains_the_mark() {
        let flow = Flow { from: End { node: 3, port: 1 }, to: End { node: 4, port: 2 } };
        let mark = Mark { flow: 7, bytes: 1_000, number: 9 };
        let message = message_of(3, &flow, &mark, Time::ZERO);
        assert_eq!(mark_of(&message), mark);
        assert_eq!(datagram(3, 4, &mark).len(), 14 + 28 + 1_000);
    }
}
