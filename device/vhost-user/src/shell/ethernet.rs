//! The Ethernet functions of all nodes: they carry frames from transmit queues over the network into receive queues.
//!
//! Offloads pass through if both drivers have negotiated them and the links are fault-free: a long TCP frame goes from
//! guest to guest in one piece, and the network prices the frames that the wire would have seen. If a link is faulty,
//! each of those has its own fate, so the sending function makes them.
//!
//! Model time: each function is priced as a conventional NIC. It shares host and bus with its node's cluster function,
//! so each waits for the other. No node sends earlier than another node has sent already. A guest's protocol stack
//! computes and waits in its own time, so model time is an estimate here.

mod batch;
mod sending;

use std::collections::VecDeque;
use std::sync::Arc;

use niclab_model::conventional::Conventional;
use niclab_model::fabric::Deliveries;
use niclab_model::fabric::ethernet::FrameClass;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::platform::profile::Profile;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::Time;
use smallvec::SmallVec;
use vhost_user_backend::VringT;
use virtio_queue::QueueT;

use self::batch::Collected;
use self::sending::Sender;
use super::budget::{Budget, FRAME_NS, frame_ns};
use super::card::{Traffic, Violations, violation};
use super::network::Network;
use super::node::Nodes;
use crate::ethernet::frame::Frame;
use crate::ethernet::header::Offload;
use crate::ethernet::offload::{complete_checksum, segment};
use crate::ethernet::receive::{Backlogs, ReceiveError, Receiver};
use crate::ethernet::steering::{Pairs, Switches};
use crate::ethernet::{Negotiated, receive_queue, transmit_queue};
use crate::memory::DmaMemory;
use crate::ring::{Burst, Chain, Interrupt, RingError};
use crate::vring::Vring;

/// Max frames that faults delay at a time; further ones arrive in order. (The attack: a guest sends without end over a
/// link that always reorders, and fills the host's memory.)
const MAX_HELD_FRAMES: usize = 1024;

/// Max frames of one guest that wait for MAC endpoints: the work of several budgets. A long broadcast adds one frame
/// for each of its segments at each node with MAC endpoints.
const MAX_FOR_MAC_ENDPOINTS: usize = 4096;

/// Max doorbells that are priced at a time. (The attack: a front end adds up to 2^64 to the event's count.)
const MAX_PRICED_DOORBELLS: u64 = 1024;

/// A node's Ethernet function, as its connection set it up.
#[derive(Default)]
pub struct Function {
    /// The guest's memory.
    pub memory: Arc<DmaMemory>,
    /// The queues of the connection; empty without one.
    pub vrings: Vec<Vring>,
    /// The features of the driver.
    pub negotiated: Negotiated,
    /// The queue pairs that the driver has turned on.
    pub switches: Arc<Switches>,
    /// Doorbells of each queue that were priced.
    priced: Vec<u64>,
}

impl Function {
    /// Doorbells of a queue since the last call, at most [`MAX_PRICED_DOORBELLS`].
    fn take_doorbells(&mut self, queue: usize) -> u64 {
        let kicks = self.vrings.get(queue).map_or(0, Vring::kicks);
        self.priced.resize(self.vrings.len(), 0);
        let rung =
            self.priced.get_mut(queue).map_or(0, |seen| kicks.wrapping_sub(std::mem::replace(seen, kicks)));
        rung.min(MAX_PRICED_DOORBELLS)
    }

    /// Whether the front end has started a queue.
    pub fn is_running(&self) -> bool {
        self.vrings.iter().any(|vring| vring.get_ref().get_queue().ready())
    }
}

/// Model time, counts and waiting frames of a node's Ethernet function.
#[derive(Debug)]
pub struct PortState {
    /// Its prices, and how far its host is in model time.
    pub nic: Conventional,
    /// Frames and bytes, sent and received.
    pub traffic: Traffic,
    /// Interrupts raised for received frames.
    pub receive_interrupts: u64,
    /// Interrupts raised for sent frames.
    pub transmit_interrupts: u64,
    /// Doorbells of connections that are gone.
    pub earlier_doorbells: u64,
    /// The guest's violations.
    pub violations: Violations,
    /// Frames that it sent to MAC endpoints in its last budget. It sends no more before they are delivered.
    pub for_mac_endpoints: VecDeque<ForMacEndpoints>,
    /// Frames to MAC endpoints have left work pending.
    pub owes_settling: bool,
    /// Frames that it sent in batches.
    pub batched: u64,
    backlogs: Backlogs,
    /// The front end has stopped the device, which may continue: frames to it wait in the backlogs.
    is_stopped: bool,
    /// Frames on the wire that were priced.
    priced: u64,
}

impl PortState {
    fn new(profile: Arc<Profile>) -> Self {
        Self {
            nic: Conventional::new(profile),
            traffic: Traffic::default(),
            receive_interrupts: 0,
            transmit_interrupts: 0,
            earlier_doorbells: 0,
            violations: Violations::default(),
            for_mac_endpoints: VecDeque::new(),
            owes_settling: false,
            batched: 0,
            backlogs: Backlogs::default(),
            is_stopped: false,
            priced: 0,
        }
    }

    /// Prices doorbells for which the device found no frame.
    fn doorbells(&mut self, count: u64, bus: &mut NodeBus) {
        for _ in 0..count {
            self.nic.doorbell(bus.clock(), bus);
        }
    }

    /// Prices one interrupt. The host has done all of the work that the interrupt reports.
    fn interrupt(&mut self, bus: &mut NodeBus) {
        self.nic.interrupt(bus.clock(), bus);
    }
}

/// The arrival of a frame at a node.
#[derive(Clone, Copy)]
struct Arrival {
    to: usize,
    at: Time,
    class: FrameClass,
    message: TraceTag,
}

/// A frame that a fault delays.
struct Held {
    arrival: Arrival,
    offload: Offload,
    frame: Vec<u8>,
}

/// A guest's frame that has arrived for MAC endpoints of a node's card. Its offloads are complete.
#[derive(Debug)]
pub struct ForMacEndpoints {
    /// The node.
    pub to: usize,
    /// When its last bit arrives.
    pub at: Time,
    /// The frame.
    pub frame: SharedFrame,
    /// The frame on the wire.
    pub message: TraceTag,
}

/// All Ethernet functions.
pub struct Ethernet {
    /// Connections, by node.
    pub functions: Vec<Function>,
    /// States, by node.
    pub states: Vec<PortState>,
    held: Vec<Held>,
    /// A fault delayed frames at the last [`Ethernet::still_holds`].
    was_holding: bool,
    deliveries: Deliveries,
    latest_sent: Time,
}

impl Ethernet {
    /// The functions of this number of nodes, without connections.
    pub fn new(nodes: usize, profile: &Arc<Profile>) -> Self {
        Self {
            functions: (0..nodes).map(|_| Function::default()).collect(),
            states: (0..nodes).map(|_| PortState::new(Arc::clone(profile))).collect(),
            held: Vec::new(),
            was_holding: false,
            deliveries: Deliveries::new(),
            latest_sent: Time::ZERO,
        }
    }

    /// Doorbells rung on all queues of a node since the daemon started.
    pub fn doorbells(&self, node: usize) -> u64 {
        let earlier = self.states.get(node).map_or(0, |state| state.earlier_doorbells);
        let vrings = self.functions.get(node).map_or(&[][..], |function| &function.vrings);
        vrings.iter().map(Vring::kicks).fold(earlier, u64::wrapping_add)
    }

    /// The host of `node` has reset the device, or is gone.
    pub fn host_reset(&mut self, node: usize) {
        if let Some(state) = self.states.get_mut(node) {
            state.backlogs.clear();
            state.is_stopped = false;
            state.for_mac_endpoints.clear();
        }
    }

    /// The front end of `node` has stopped the device, or started it again.
    pub fn set_stopped(&mut self, node: usize, is_stopped: bool) {
        if let Some(state) = self.states.get_mut(node) {
            state.is_stopped = is_stopped;
        }
    }

    /// Whether a fault delays frames.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether a fault delayed frames at the previous call, and does so now.
    pub fn still_holds(&mut self) -> bool {
        let is_holding = self.is_holding();
        std::mem::replace(&mut self.was_holding, is_holding) && is_holding
    }

    /// Sends frames of `node` from the transmit queue of a pair, within the budget. True if there are more.
    /// `takes_batches`: equal frames may go in batches.
    pub fn transmit(
        &mut self,
        (node, pair): (usize, usize),
        takes_batches: bool,
        network: &mut Network,
        budget: &mut Budget,
        nodes: &mut Nodes<'_>,
    ) -> bool {
        let Self { functions, states, held, deliveries, latest_sent, .. } = self;
        let queue = transmit_queue(pair);
        let doorbells = functions.get_mut(node).map_or(0, |function| function.take_doorbells(queue));
        let Some(function) = functions.get(node) else { return false };
        let Some(vring) = function.vrings.get(queue) else { return false };
        let mut burst = match Burst::open(vring, &function.memory) {
            Ok(burst) => burst,
            Err(error) => {
                note(states, node, error);
                return false;
            }
        };
        if !matches!(burst.available(), Ok(0)) {
            burst.want_doorbell(false);
        }
        let receivers = Receivers::new(functions, states, nodes);
        let mut sender = Sender {
            node,
            negotiated: function.negotiated,
            network,
            receivers,
            held,
            deliveries,
            latest_sent,
            class: FrameClass::Host,
            doorbells,
            takes_batches,
            batched: 0,
        };
        let (mut chain, mut collected) = (Chain::new(), Collected::default());
        while !budget.is_spent() {
            if sender.send_batch(&function.memory, &mut burst, budget, &mut collected) {
                continue;
            }
            // Before the chain is checked. (The attack: a guest offers invalid chains without end.)
            budget.spend(FRAME_NS);
            match burst.pop(&mut chain) {
                Ok(Some(head)) => {
                    if let Err(name) = sender.send(&function.memory, &chain) {
                        sender.receivers.violation(node, name);
                    }
                    budget.spend(sender.receivers.take_spent());
                    burst.push_used(head, 0);
                }
                Ok(None) => break,
                Err(error) => {
                    sender.receivers.violation(node, error.name());
                    if matches!(error, RingError::AvailableIndex { .. }) {
                        break;
                    }
                }
            }
        }
        sender.receivers.finish();
        let (doorbells, batched) = (sender.doorbells, sender.batched);
        drop(sender);
        let mut owner = states.get_mut(node).zip(nodes.bus_mut(node));
        if let Some((state, bus)) = &mut owner {
            state.batched += batched;
            state.doorbells(doorbells, bus);
        }
        if burst.publish() == Interrupt::Wanted
            && burst.interrupt()
            && let Some((state, bus)) = owner
        {
            state.transmit_interrupts += 1;
            state.interrupt(bus);
        }
        burst.want_doorbell(true)
    }

    /// The driver of `node` has added receive buffers to the queue of a pair: delivers frames that waited for some.
    pub fn refill(&mut self, (node, pair): (usize, usize), nodes: &mut Nodes<'_>) {
        let queue = receive_queue(pair);
        let doorbells = self.functions.get_mut(node).map_or(0, |function| function.take_doorbells(queue));
        if let Some((state, bus)) = self.states.get_mut(node).zip(nodes.bus_mut(node)) {
            state.doorbells(doorbells, bus);
        }
        let mut receivers = self.receivers(nodes);
        if receivers.receiving_pairs(node).contains(pair) {
            receivers.drain_backlog((node, pair));
        }
        receivers.finish();
    }

    /// The fabric is idle: frames that a fault delayed arrive. False if there are none.
    pub fn release_held(&mut self, nodes: &mut Nodes<'_>) -> bool {
        let held = std::mem::take(&mut self.held);
        let any = !held.is_empty();
        let mut receivers = self.receivers(nodes);
        for Held { arrival, offload, mut frame } in held {
            receivers.arrive(&arrival, &offload, Frame::from_bytes(&mut frame));
        }
        receivers.finish();
        any
    }

    /// An intact frame of a model has arrived at the function of `to`. Returns its estimated processor time in ns.
    pub fn receive(
        &mut self,
        to: usize,
        at: Time,
        frame: &SharedFrame,
        message: Option<TraceTag>,
        nodes: &mut Nodes<'_>,
    ) -> u32 {
        let mut receivers = self.receivers(nodes);
        receivers.price(to, at, frame.len(), message);
        receivers.deliver(to, &Offload::default(), Frame::from_bytes(&mut frame.to_vec()));
        receivers.finish();
        receivers.take_spent()
    }

    /// Counts a frame that is dropped at `to`.
    pub fn drop_frame(&mut self, to: usize) {
        if let Some(state) = self.states.get_mut(to) {
            state.traffic.dropped_frames += 1;
        }
    }

    fn receivers<'a, 'n>(&'a mut self, nodes: &'a mut Nodes<'n>) -> Receivers<'a, 'n> {
        Receivers::new(&self.functions, &mut self.states, nodes)
    }
}

fn note(states: &mut [PortState], node: usize, error: RingError) {
    if let Some(state) = states.get_mut(node).filter(|_| error != RingError::NotReady) {
        violation(&mut state.violations, error.name());
    }
}

/// A receive queue: node and pair.
type ReceiveQueue = (usize, usize);

/// Receive queues that were opened during a burst.
struct Receivers<'a, 'n> {
    functions: &'a [Function],
    states: &'a mut [PortState],
    nodes: &'a mut Nodes<'n>,
    open: SmallVec<[(ReceiveQueue, Receiver<'a>); 2]>,
    /// Each node that a frame went to, and the pairs on which it receives.
    pairs: SmallVec<[(usize, Pairs); 2]>,
    /// Estimated processor time since the last [`Receivers::take_spent`].
    spent_ns: u32,
}

impl<'a, 'n> Receivers<'a, 'n> {
    fn new(functions: &'a [Function], states: &'a mut [PortState], nodes: &'a mut Nodes<'n>) -> Self {
        Self { functions, states, nodes, open: SmallVec::new(), pairs: SmallVec::new(), spent_ns: 0 }
    }

    /// Whether the card of `node` has MAC endpoints.
    fn has_mac_endpoints(&self, node: usize) -> bool {
        self.nodes.card(node).is_some_and(|card| card.nic.has_mac_endpoints())
    }

    /// Whether a MAC endpoint of any node may receive frames of this class.
    fn are_mac_endpoints(&self, class: FrameClass) -> bool {
        match class {
            FrameClass::MacEndpoints(node) => self.has_mac_endpoints(node.into()),
            FrameClass::All => self.nodes.cards().any(|(_, card)| card.nic.has_mac_endpoints()),
            _ => false,
        }
    }

    /// Prices an intact frame at the function of `to`.
    #[inline]
    fn price(&mut self, to: usize, at: Time, bytes: usize, message: Option<TraceTag>) {
        // Without a driver a frame costs the host nothing.
        let is_taken = self.functions.get(to).is_some_and(|function| !function.vrings.is_empty());
        let receiver = self.states.get_mut(to).zip(self.nodes.bus_mut(to));
        if let Some((state, bus)) = receiver.filter(|_| is_taken) {
            state.nic.ledger_mut().attribute(message);
            let received = state.nic.receive(at, bytes as u64, bus);
            message.iter().for_each(|message| state.nic.ledger_mut().complete(message, received));
        }
    }

    /// An intact frame arrives at the function, at MAC endpoints of the card, or at both.
    #[inline]
    fn arrive(&mut self, arrival: &Arrival, offload: &Offload, frame: Frame<'_>) {
        let &Arrival { to, at, class, message } = arrival;
        let is_for_host = class.is_for_host(to as u16);
        if !class.is_for_mac_endpoints(to as u16) || !self.has_mac_endpoints(to) {
            return if is_for_host { self.deliver(to, offload, frame) } else { self.drop_frame(to) };
        }
        // The frame may have two readers.
        let mut bytes = frame.into_vec();
        if is_for_host {
            self.deliver(to, offload, Frame::from_bytes(&mut bytes));
        }
        self.spent_ns = self.spent_ns.saturating_add(frame_ns(bytes.len()));
        let sender = self.states.get_mut(usize::from(message.node));
        let sent = sender.map(|sender| &mut sender.for_mac_endpoints);
        match sent.filter(|sent| sent.len() < MAX_FOR_MAC_ENDPOINTS) {
            Some(sent) => {
                sent.push_back(ForMacEndpoints { to, at, frame: SharedFrame::from(&*bytes), message })
            }
            None => self.drop_frame(to),
        }
    }

    /// Estimated processor time since the last call, which the caller spends from the budget.
    fn take_spent(&mut self) -> u32 {
        std::mem::take(&mut self.spent_ns)
    }

    fn violation(&mut self, node: usize, name: &'static str) {
        if let Some(state) = self.states.get_mut(node) {
            violation(&mut state.violations, name);
        }
    }

    /// The pairs on which a node received at its first frame of the burst.
    #[inline]
    fn receiving_pairs(&mut self, to: usize) -> Pairs {
        if let Some((_, pairs)) = self.pairs.iter().find(|(node, _)| *node == to) {
            return *pairs;
        }
        let Some(function) = self.functions.get(to) else { return Pairs::first(0) };
        let mut pairs = function.switches.on();
        match self.states.get_mut(to) {
            // A front end that stops the device may turn pairs off first. Frames wait for the others, or for the first
            // pair if all are off.
            Some(state) if state.is_stopped => pairs = pairs.or_first(),
            // The driver has turned other pairs off. Their frames would wait for ever, and take room from others.
            Some(state) => state.traffic.dropped_frames += state.backlogs.clear_all_but(pairs),
            None => {}
        }
        self.pairs.push((to, pairs));
        pairs
    }

    /// A receive queue. None if the guest does not receive there now.
    #[inline]
    fn receiver(&mut self, to: ReceiveQueue) -> Option<&mut Receiver<'a>> {
        // Most bursts have one receiver, so the search is one comparison.
        if let Some(index) = self.open.iter().position(|(queue, _)| *queue == to) {
            return self.open.get_mut(index).map(|(_, receiver)| receiver);
        }
        let (node, pair) = to;
        let function = self.functions.get(node)?;
        let burst = match Burst::open(function.vrings.get(receive_queue(pair))?, &function.memory) {
            Ok(burst) => burst,
            Err(error) => {
                note(self.states, node, error);
                return None;
            }
        };
        self.open.push((to, Receiver::new(burst, function.negotiated.merges_buffers())));
        self.open.last_mut().map(|(_, receiver)| receiver)
    }

    /// Delivers a frame to one node, after the offloads that its driver has not negotiated.
    #[inline]
    fn deliver(&mut self, to: usize, offload: &Offload, frame: Frame<'_>) {
        self.spent_ns = self.spent_ns.saturating_add(frame_ns(frame.bytes()));
        let negotiated = self.functions.get(to).map(|function| function.negotiated).unwrap_or_default();
        if negotiated.receives(offload) {
            return self.put(to, offload, frame);
        }
        match (offload.checksum, offload.segmentation) {
            (Some(checksum), Some(segmentation)) => {
                // Cannot fail: the sender's function has checked the headers.
                let _ = segment(&frame.into_vec(), checksum, segmentation, |wire| {
                    self.put(to, &Offload::default(), Frame::from_bytes(wire));
                });
            }
            (Some(checksum), None) => {
                let mut bytes = frame.into_vec();
                complete_checksum(&mut bytes, checksum);
                self.put(to, &Offload::default(), Frame::from_bytes(&mut bytes));
            }
            (None, _) => self.put(to, offload, frame),
        }
    }

    #[inline]
    fn put(&mut self, node: usize, offload: &Offload, mut frame: Frame<'_>) {
        self.spent_ns = self.spent_ns.saturating_add(FRAME_NS);
        let Some(pair) = self.receiving_pairs(node).choose(&mut frame) else { return self.drop_frame(node) };
        let to = (node, pair);
        if self.must_wait(to) {
            return self.keep(to, offload, frame);
        }
        let Some(receiver) = self.receiver(to) else { return self.drop_frame(node) };
        let bytes = frame.bytes();
        let put = match receiver.make_room(&frame) {
            Ok(room) => receiver.fill(room, offload, frame),
            Err(ReceiveError::NoRoom) => {
                self.keep(to, offload, frame);
                return self.want_buffers(to);
            }
            Err(error) => Err(error),
        };
        let Some(state) = self.states.get_mut(node) else { return };
        match put {
            Ok(()) => {
                state.traffic.received_frames += 1;
                state.traffic.received_bytes += bytes as u64;
            }
            Err(error) => {
                error.violation().into_iter().for_each(|name| violation(&mut state.violations, name));
                state.traffic.dropped_frames += 1;
            }
        }
    }

    /// Whether older frames, which go first, wait at `to` even after another attempt to deliver them.
    #[inline]
    fn must_wait(&mut self, to: ReceiveQueue) -> bool {
        let (node, pair) = to;
        let waits = |states: &[PortState]| {
            states.get(node).is_some_and(|state| state.is_stopped || !state.backlogs.is_empty_at(pair))
        };
        if waits(self.states) {
            self.drain_backlog(to);
        }
        waits(self.states)
    }

    /// Keeps a copy of a frame for later, or drops the frame if there is no room.
    fn keep(&mut self, (node, pair): ReceiveQueue, offload: &Offload, frame: Frame<'_>) {
        let Some(state) = self.states.get_mut(node) else { return };
        if !state.backlogs.push(pair, *offload, frame.into_vec()) {
            state.traffic.dropped_frames += 1;
        }
    }

    fn drop_frame(&mut self, to: usize) {
        if let Some(state) = self.states.get_mut(to) {
            state.traffic.dropped_frames += 1;
        }
    }

    /// The queue has no room for the oldest waiting frame: asks the driver to notify when it adds more buffers than the
    /// device has seen. The driver may have added some already.
    fn want_buffers(&mut self, to: ReceiveQueue) {
        let (node, pair) = to;
        let seen = self.receiver(to).map(|receiver| receiver.burst().available_index());
        if let (Some(seen), Some(state)) = (seen, self.states.get_mut(node)) {
            state.backlogs.set_no_room_at(pair, Some(seen));
        }
        if self.receiver(to).is_some_and(|receiver| receiver.burst().want_more()) {
            self.drain_backlog(to);
        }
    }

    /// Delivers the frames that wait at `to`, as far as there are buffers.
    ///
    /// The loop ends: it repeats only if the driver has added buffers since there was no room, and a queue that only
    /// grows has at most its size. It does not repeat because *some* buffer is left: with one buffer of 64 bytes, a
    /// frame of 1,500 would keep the thread, and its locks, here for ever.
    fn drain_backlog(&mut self, to: ReceiveQueue) {
        let (node, pair) = to;
        if self.states.get(node).is_none_or(|state| state.is_stopped) {
            return;
        }
        loop {
            let no_room_at = self.states.get(node).and_then(|state| state.backlogs.no_room_at(pair));
            let Some(receiver) = self.receiver(to) else { return self.drop_backlog(to) };
            if no_room_at.is_some_and(|seen| !receiver.burst().has_more_than(seen)) {
                return;
            }
            let is_full = self.drain_until_full(to);
            let Some(receiver) = self.receiver(to) else { return };
            let burst = receiver.burst();
            let seen = is_full.then(|| burst.available_index());
            let has_more = if is_full { burst.want_more() } else { burst.want_doorbell(false) };
            if let Some(state) = self.states.get_mut(node) {
                state.backlogs.set_no_room_at(pair, seen);
            }
            if !has_more {
                return;
            }
        }
    }

    /// Delivers the frames that wait at `to` until none is left, or until there is no room. True if there is no room.
    fn drain_until_full(&mut self, to: ReceiveQueue) -> bool {
        let (node, pair) = to;
        let Some(mut backlogs) = self.states.get_mut(node).map(|state| std::mem::take(&mut state.backlogs))
        else {
            return false;
        };
        let mut delivered = Traffic::default();
        let mut is_full = false;
        while let Some((offload, bytes)) = backlogs.front(pair) {
            let length = bytes.len();
            self.spent_ns = self.spent_ns.saturating_add(frame_ns(length));
            let put = {
                let frame = Frame::from_bytes(bytes);
                self.receiver(to).map(|receiver| receiver.put(&offload, frame))
            };
            match put {
                Some(Ok(())) => {
                    delivered.received_frames += 1;
                    delivered.received_bytes += length as u64;
                }
                Some(Err(ReceiveError::NoRoom)) => {
                    is_full = true;
                    break;
                }
                Some(Err(error)) => {
                    delivered.dropped_frames += 1;
                    error.violation().into_iter().for_each(|name| self.violation(node, name));
                }
                None => delivered.dropped_frames += 1,
            }
            backlogs.pop(pair);
        }
        if let Some(state) = self.states.get_mut(node) {
            state.backlogs = backlogs;
            state.traffic.received_frames += delivered.received_frames;
            state.traffic.received_bytes += delivered.received_bytes;
            state.traffic.dropped_frames += delivered.dropped_frames;
        }
        is_full
    }

    /// Drops the frames that wait at a queue on which the guest no longer receives.
    fn drop_backlog(&mut self, (node, pair): ReceiveQueue) {
        if let Some(state) = self.states.get_mut(node) {
            state.traffic.dropped_frames += state.backlogs.clear_at(pair);
        }
    }

    /// Publishes the received frames to all receivers, and interrupts those that want it.
    fn finish(&mut self) {
        for ((to, _), receiver) in &mut self.open {
            let burst = receiver.burst();
            if burst.publish() == Interrupt::Wanted
                && burst.interrupt()
                && let Some((state, bus)) = self.states.get_mut(*to).zip(self.nodes.bus_mut(*to))
            {
                state.receive_interrupts += 1;
                state.interrupt(bus);
            }
        }
    }
}
