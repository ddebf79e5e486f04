//! Hosts of cards with descriptor rings. They include the driver, with ports, windows and messages. A program sends
//! with a system call, and has a message when the driver has copied it.

mod datagrams;
mod direct;
mod figures;
mod memory;

use std::collections::{BTreeMap, VecDeque};

use niclab_abi::config::FEATURE_RINGS;
use niclab_abi::control::{Reply, Request, STATUS_OK};
use niclab_abi::gamma::{
    ACTIVE_PORT_MAX_MESSAGE_BYTES, FRAME_ACKNOWLEDGEMENT, FRAME_DATA, FRAME_KIND_MASK, FrameHead,
};
use niclab_abi::rings::{
    OP_RING_INTERRUPTS, OP_RING_START, OP_RING_TERMS, RING_ERROR, RING_RECEIVE, RING_STATUS_DAMAGED,
    RING_STATUS_LAST, RING_TRANSMIT, RingInterrupts, RingStart, RingTerms,
};
use niclab_abi::{FromBytes, ToBytes};
use niclab_model::conventional::Conventional;
use niclab_model::fabric::ethernet::{self, ETHER_TYPE_CLUSTER, FrameClass, mac_of_node, node_of_mac};
use niclab_model::nic::fault_injector::Rates;
use niclab_model::nic::firmware_reload;
use niclab_model::nic::registry::AnyNic;
use niclab_model::nic::{DescriptorQueue, FrameBytes, Input, Output};
use niclab_model::platform::ledger::Ledger;
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::time::{Passage, Time};
use niclab_observe::timeline::Owner;
use niclab_port::gamma::message::{Join, Joining, Part};
use niclab_port::gamma::rings::{Buffer, Ring, SKIP_BYTES, Told, length_of};
use niclab_port::gamma::window::{Inbound, Outbound, Taken};
use niclab_spec::report::NodeFigures;
use niclab_workloads::{End, FlowId, Mark, PortPlan, Script};

use self::datagrams::Datagrams;
use self::direct::{Direct, SEND_TOKEN};
use self::memory::{BUFFER_BYTES, HostRings, TRANSMIT_DESCRIPTORS, Which, is_ring};
use super::ethernet::Function;
use super::tally::{Interrupts, Tally};
use super::{Effects, FrameInFlight, Host, HostMaker, HostSeat, Refused, Sum};
use crate::checker::{Check, Checker};

/// Makes hosts of such cards.
pub const MAKER: HostMaker = HostMaker {
    feature: FEATURE_RINGS,
    make: |HostSeat { number, nic, ethernet, datagram_every, .. }| {
        let datagrams = Datagrams::new(datagram_every);
        Box::new(RingHost { datagrams, ..RingHost::new(number, nic, ethernet) })
    },
};

/// Bytes of the tag before a message's payload, by which programs identify their messages.
const TAG_BYTES: usize = 16;

/// A message that is not completely sent.
struct Outgoing {
    from: u8,
    to: u8,
    bytes: Vec<u8>,
    offset: u32,
}

/// The driver's state for another node.
struct Peer {
    outbound: Outbound,
    inbound: Inbound,
    joining: Joining,
    /// The received part of the incoming message that is not complete.
    joined: Vec<u8>,
    send_queue: VecDeque<Outgoing>,
}

/// Counters of the driver.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Raised {
    /// Frames that did not arrive.
    lost: u64,
    /// Frames that arrived damaged.
    damaged: u64,
    /// Messages of which a frame did not arrive.
    incomplete: u64,
    /// Frames that arrived again, or after they were counted as lost.
    old: u64,
    /// Acknowledgements of frames that are not in flight.
    stray: u64,
    acknowledgements: u64,
    /// Messages that were passed to programs.
    messages: u64,
    demands: u64,
    /// System calls of drivers that send no poll demand.
    calls: u64,
    written_back: u64,
}

/// A host with a driver for rings.
struct RingHost {
    node: u16,
    nic: AnyNic,
    ethernet: Function,
    bus: NodeBus,
    memory: HostRings,
    /// The card returns these when the first port is opened.
    terms: Option<RingTerms>,
    transmit: Ring,
    receive: Ring,
    peers: BTreeMap<u16, Peer>,
    /// The local port and the destination of each flow.
    flows: BTreeMap<FlowId, (u8, End)>,
    /// Times at which the driver has each received frame.
    arrivals: VecDeque<Time>,
    /// Stored frames of which the driver was not notified, with the times at which they are visible.
    unreported: VecDeque<Time>,
    /// End of the driver's work on frames of which it was notified. Until then it finds further frames by polling.
    at_work_until: Time,
    direct: Direct,
    datagrams: Datagrams,
    tally: Tally,
    raised: Raised,
    interrupts: Interrupts,
    replies: VecDeque<FrameBytes>,
    latest: Time,
    not_before: Time,
}

impl RingHost {
    fn new(node: u16, nic: AnyNic, ethernet: Conventional) -> Self {
        Self {
            node,
            nic,
            ethernet: Function::new(ethernet),
            bus: NodeBus::default(),
            memory: HostRings::default(),
            terms: None,
            transmit: Ring::new(TRANSMIT_DESCRIPTORS),
            receive: Ring::new(0),
            peers: BTreeMap::new(),
            flows: BTreeMap::new(),
            arrivals: VecDeque::new(),
            unreported: VecDeque::new(),
            at_work_until: Time::ZERO,
            direct: Direct::default(),
            datagrams: Datagrams::default(),
            tally: Tally::default(),
            raised: Raised::default(),
            interrupts: Interrupts::default(),
            replies: VecDeque::new(),
            latest: Time::ZERO,
            not_before: Time::ZERO,
        }
    }

    fn control<T: ToBytes>(
        &mut self,
        operation: u32,
        body: Option<&T>,
        checker: &mut Checker,
        effects: &mut Effects,
    ) -> Result<FrameBytes, Refused> {
        let body = body.map(bytes_of).unwrap_or_default();
        let mut request = bytes_of(&Request { operation, body_bytes: body.len() as u32 });
        request.extend(body);
        self.handle(self.clock(), Input::Control { token: 0, request: &request }, checker, effects);
        let reply = self.replies.pop_front().unwrap_or_default();
        match status_of(&reply) {
            Some(STATUS_OK) => Ok(FrameBytes::from_slice(reply.get(Reply::BYTES..).unwrap_or_default())),
            status => Err(Refused { operation, status: status.unwrap_or(u32::MAX) }),
        }
    }

    /// Sets the rings up, as the driver does when it finds the card.
    fn start(&mut self, checker: &mut Checker, effects: &mut Effects) -> Result<(), Refused> {
        let terms = self.control(OP_RING_TERMS, None::<&Request>, checker, effects)?;
        let terms = RingTerms::from_bytes(&terms).unwrap_or_default();
        self.memory = HostRings::new(terms.receive_buffers);
        self.receive = Ring::new(terms.receive_buffers);
        self.terms = Some(terms);
        (0..terms.receive_buffers).for_each(|_| self.give_buffer());
        let rings = if self.is_direct() { 0 } else { 2 };
        for (ring, which) in
            [(RING_TRANSMIT, Which::Transmit), (RING_RECEIVE, Which::Receive)].into_iter().take(rings)
        {
            let start = RingStart { ring, skip_bytes: SKIP_BYTES, first: which.address(), reserved: 0 };
            self.control(OP_RING_START, Some(&start), checker, effects)?;
        }
        let RingTerms { interrupt_frames: frames, interrupt_delay_ns: delay_ns, .. } = terms;
        let interrupts = RingInterrupts { frames, delay_ns, reserved: 0 };
        self.control(OP_RING_INTERRUPTS, Some(&interrupts), checker, effects)?;
        Ok(())
    }

    /// Gives the next descriptor of the receive ring to the card, with its buffer.
    fn give_buffer(&mut self) {
        let place = self.receive.next();
        let buffer = Buffer { address: HostRings::incoming(place) as u32, bytes: BUFFER_BYTES - 1 };
        let mut words = self.memory.ring(Which::Receive);
        self.receive.give(&mut words, [buffer, Buffer::default()], (false, false), Told::default());
    }

    fn peer(&mut self, node: u16) -> &mut Peer {
        let terms = self.terms.unwrap_or_default();
        self.peers.entry(node).or_insert_with(|| Peer {
            outbound: Outbound::new(terms.window),
            inbound: Inbound::new(terms.acknowledge_every),
            joining: Joining::default(),
            joined: Vec::new(),
            send_queue: VecDeque::new(),
        })
    }

    fn handle(&mut self, now: Time, input: Input<'_>, checker: &mut Checker, effects: &mut Effects) {
        self.nic.handle(now, input, &mut self.bus);
        while let Some(output) = self.nic.poll_output() {
            self.latest = self.latest.max(output.at());
            match output {
                Output::Frame { at: head, tail, frame, message } => {
                    self.tally.sent_frames += 1;
                    self.tally.sent_bytes += frame.len() as u64;
                    let (passage, class) = (Passage { head, tail }, FrameClass::of(&frame));
                    hold(checker.frames.on_left(&frame), checker);
                    effects.frames.push_back(FrameInFlight { frame, message, passage, class });
                }
                Output::DmaWrite { at, address, words, .. } => {
                    self.on_write_back(at, address, &words, checker)
                }
                Output::DmaFrame { frame, bytes, ranges, .. } => {
                    let mut data = frame.get(bytes).unwrap_or_default();
                    self.tally.dma_writes += 1;
                    self.tally.dma_bytes += data.len() as u64;
                    checker.stored_bytes += data.len() as u64;
                    for range in &ranges {
                        let (part, rest) = data.split_at_checked(range.bytes as usize).unwrap_or_default();
                        data = rest;
                        let node = self.node;
                        if !self.memory.store(range, part) {
                            checker.fail(Check::RightMemory, || {
                                format!(
                                    "node {node}: the card wrote to {range:x?}, which is no buffer of its own"
                                )
                            });
                        }
                    }
                }
                Output::DmaRead { at, token, ranges, into, .. } => {
                    let mut bytes = into;
                    let mut is_whole = true;
                    for range in &ranges {
                        let part = self.memory.load(range);
                        is_whole &= part.is_some();
                        bytes.extend_from_slice(&part.unwrap_or_default());
                        if !is_ring(&(range.address..range.address + range.bytes)) {
                            self.tally.read_bytes += range.bytes;
                        }
                    }
                    let node = self.node;
                    if !is_whole {
                        checker.fail(Check::RightMemory, || {
                            format!(
                                "node {node}: the card read {ranges:x?}, which is not in its rings or buffers"
                            )
                        });
                    }
                    self.nic.handle(at, Input::DmaData { token, bytes, is_whole }, &mut self.bus);
                }
                Output::Interrupt { .. } => {
                    self.interrupts.frames += 1;
                    if self.is_direct() {
                        self.look_soon(now);
                    }
                    // A late interrupt reports all frames that are visible by then. Later frames raise an interrupt of
                    // their own.
                    let clock = self.bus.clock();
                    let visible = self.unreported.iter().take_while(|at| **at <= clock).count();
                    self.unreported.drain(..visible);
                    self.on_reported(visible);
                }
                Output::Reply { at, token: SEND_TOKEN, bytes } => self.on_sent(at, &bytes, checker),
                Output::Reply { bytes, .. } => self.replies.push_back(FrameBytes::from_slice(&bytes)),
                Output::WindowRead { .. }
                | Output::Complete { .. }
                | Output::BorrowedFrame { .. }
                | Output::DmaBorrowed { .. } => {
                    let node = self.node;
                    checker.fail(Check::RightMemory, || {
                        format!("node {node}: a card with rings must not emit {output:?}")
                    });
                }
            }
        }
    }

    /// The driver has received `frames` more frames when the card has charged for them.
    fn on_reported(&mut self, frames: usize) {
        let at = self.bus.clock();
        self.arrivals.extend(std::iter::repeat_n(at, frames));
        self.at_work_until = at;
    }

    /// The card writes a descriptor back.
    fn on_write_back(&mut self, at: Time, address: u64, words: &[u64], checker: &mut Checker) {
        let node = self.node;
        self.raised.written_back += 1;
        let found = self.memory.word_at(address);
        let (Some((which, word)), &[value]) = (found, words) else {
            return checker.fail(Check::RightMemory, || {
                format!(
                    "node {node}: the card wrote {words:x?} to {address:#x}, which is no word of a descriptor"
                )
            });
        };
        if !self.memory.write_back(at, which, word, value) {
            checker.fail(Check::RightMemory, || {
                format!(
                    "node {node}: the card wrote back the descriptor at {address:#x}, which it does not own"
                )
            });
        }
        if which == Which::Receive && value as u32 & RING_STATUS_LAST != 0 {
            let is_polling = self.terms.is_none_or(|terms| terms.interrupt_frames == 0);
            if is_polling || at < self.at_work_until {
                self.on_reported(1);
            } else {
                self.unreported.push_back(at);
            }
        }
    }

    /// Takes sent frames out of the transmit ring.
    fn reap(&mut self, checker: &mut Checker) {
        while let Some((place, status)) = self.transmit.take(&self.memory.ring(Which::Transmit)) {
            let node = self.node;
            if status & RING_ERROR != 0 {
                checker.fail(Check::FlowControl, || {
                    format!("node {node}: the card refused frame {place} with status {status:#x}")
                });
            }
        }
    }

    /// Adds a frame to the transmit ring, without notifying the card.
    fn post(&mut self, target: u16, head: &FrameHead, part: &[u8], message_bytes: u64) {
        let told = Told { message_bytes: message_bytes as u32, received: self.receive.taken() };
        let place = self.transmit.next();
        let (head_at, part_at) = HostRings::outgoing(place);
        let (destination, source) = (mac_of_node(target), mac_of_node(self.node));
        let mut bytes =
            ethernet::Header { destination, source, ether_type: ETHER_TYPE_CLUSTER }.emit().to_vec();
        bytes.extend(bytes_of(head));
        self.memory.fill(head_at, &bytes);
        self.memory.fill(part_at, part);
        let buffers = [
            Buffer { address: head_at as u32, bytes: bytes.len() as u32 },
            Buffer { address: part_at as u32, bytes: part.len() as u32 },
        ];
        self.transmit.give(&mut self.memory.ring(Which::Transmit), buffers, (true, true), told);
    }

    fn demand(&mut self, now: Time, checker: &mut Checker, effects: &mut Effects) {
        self.raised.demands += 1;
        self.handle(now, Input::PollDemand { queue: DescriptorQueue::Transmit }, checker, effects);
    }

    /// The node to which an acknowledgement is due, if there is room to send it.
    fn owed(&self) -> Option<u16> {
        let is_owed = |peer: &Peer| peer.inbound.clone().due().is_some();
        (self.transmit.free() > 0)
            .then(|| self.peers.iter().find(|(_, peer)| is_owed(peer)).map(|(node, _)| *node))?
    }

    /// A node to which the driver can send the next frame of a message.
    fn pushable(&self) -> Option<u16> {
        let can_go_on = |peer: &Peer| !peer.send_queue.is_empty() && !peer.outbound.is_used_up();
        (self.transmit.free() > 0)
            .then(|| self.peers.iter().find(|(_, peer)| can_go_on(peer)).map(|(node, _)| *node))?
    }

    /// The node to which a datagram is due, if there is room for it.
    fn datagram_due(&self) -> Option<u16> {
        self.datagrams.next().filter(|_| self.transmit.free() > 0 && !self.is_direct())
    }

    fn acknowledge(&mut self, now: Time, node: u16, checker: &mut Checker, effects: &mut Effects) {
        let Some(number) = self.peer(node).inbound.due() else { return };
        let protocol = self.protocol();
        let head =
            FrameHead { protocol, kind: FRAME_ACKNOWLEDGEMENT, source_port: 0, target_port: 0, number };
        self.raised.acknowledgements += 1;
        self.look_at_given(node, &head, checker);
        if self.is_direct() {
            return self.send((node, &head, &[]), 0, checker, effects);
        }
        self.post(node, &head, &[], 0);
        self.demand(now, checker, effects);
    }

    fn look_at_given(&self, to: u16, head: &FrameHead, checker: &mut Checker) {
        let window = self.terms.map_or(0, |terms| terms.window);
        hold(checker.frames.on_given(self.node, to, head, window), checker);
    }

    fn protocol(&self) -> u8 {
        self.terms.map_or(0, |terms| terms.protocol as u8)
    }

    /// One system call: sends the frames of messages to a node for which there is room.
    fn push(&mut self, now: Time, node: u16, checker: &mut Checker, effects: &mut Effects) {
        let (terms, protocol) = (self.terms.unwrap_or_default(), self.protocol());
        let most = terms.frame_bytes.saturating_sub((ethernet::HEADER_BYTES + FrameHead::BYTES) as u32);
        let mut is_due = false;
        while self.transmit.free() > 0 {
            let peer = self.peer(node);
            let Some(front) = peer.send_queue.front_mut().filter(|_| peer.outbound.room() > 0) else { break };
            let Some(part) = Part::at(front.offset, front.bytes.len() as u32, most) else { break };
            let head = part.head(protocol, front.from, front.to, peer.outbound.send());
            front.offset += part.bytes;
            let range = part.offset as usize..(part.offset + part.bytes) as usize;
            let bytes = front.bytes.get(range).unwrap_or_default().to_vec();
            let message_bytes = front.bytes.len() as u64;
            if part.is_last {
                peer.send_queue.pop_front();
            }
            self.look_at_given(node, &head, checker);
            if self.is_direct() {
                // The processor waits for each frame, and polls for received frames before the next one.
                let message_bytes = if part.is_first { message_bytes } else { 0 };
                return self.send((node, &head, &bytes), message_bytes, checker, effects);
            }
            self.post(node, &head, &bytes, if part.is_first { message_bytes } else { 0 });
            is_due = true;
        }
        if is_due {
            self.demand(now, checker, effects);
        }
    }

    /// The driver takes the next frame from its ring. Returns whether this completes a message for a program.
    fn take(&mut self, checker: &mut Checker) -> bool {
        let Some((place, status)) = self.receive.take(&self.memory.ring(Which::Receive)) else {
            let node = self.node;
            checker.fail(Check::Drained, || {
                format!("node {node}: the driver was notified of a frame that is not in the ring")
            });
            return false;
        };
        let bytes = length_of(status).unwrap_or(0);
        let frame = self.memory.received(place, bytes).to_vec();
        self.give_buffer();
        if status & RING_STATUS_DAMAGED != 0 {
            self.raised.damaged += 1;
            return false;
        }
        self.on_frame(&frame, checker)
    }

    /// An intact frame has arrived. Returns whether this completes a message for a program.
    fn on_frame(&mut self, frame: &[u8], checker: &mut Checker) -> bool {
        hold(checker.frames.on_taken(self.node, frame), checker);
        let view = ethernet::Frame::new_checked(frame);
        let source = view.and_then(|view| node_of_mac(&view.source()));
        let head = view.and_then(|view| FrameHead::from_bytes(view.payload()));
        let is_cluster = view.is_some_and(|view| view.ether_type() == ETHER_TYPE_CLUSTER);
        if !is_cluster {
            self.on_datagram(frame, checker);
        }
        let (Some(source), Some(head), true) = (source, head, is_cluster) else { return false };
        let data = frame.get(ethernet::HEADER_BYTES + FrameHead::BYTES..).unwrap_or_default();
        match head.kind & FRAME_KIND_MASK {
            FRAME_ACKNOWLEDGEMENT => {
                let is_news = self.peer(source).outbound.on_acknowledgement(head.number);
                self.raised.stray += u64::from(!is_news);
                false
            }
            FRAME_DATA => self.on_data(source, &head, data, checker),
            _ => false,
        }
    }

    fn on_data(&mut self, source: u16, head: &FrameHead, data: &[u8], checker: &mut Checker) -> bool {
        let node = self.node;
        let peer = self.peer(source);
        let lost = match peer.inbound.take(head.number) {
            Taken::New { lost } => lost,
            Taken::Old => {
                self.raised.old += 1;
                return false;
            }
        };
        let mut incomplete = u64::from(lost > 0 && peer.joining.on_lost());
        let most = ACTIVE_PORT_MAX_MESSAGE_BYTES as u32;
        let Join::At { offset, is_whole, is_other_lost } = peer.joining.join(head, data.len() as u32, most)
        else {
            self.raised.lost += u64::from(lost);
            self.raised.incomplete += incomplete;
            return false;
        };
        incomplete += u64::from(is_other_lost);
        peer.joined.truncate(offset as usize);
        peer.joined.extend_from_slice(data);
        let message = if is_whole { std::mem::take(&mut peer.joined) } else { Vec::new() };
        self.raised.lost += u64::from(lost);
        self.raised.incomplete += incomplete;
        if !is_whole {
            return false;
        }
        let at = End { node, port: head.target_port.into() };
        let from = End { node: source, port: head.source_port.into() };
        let (tag, payload) = message.split_at_checked(TAG_BYTES).unwrap_or_default();
        let word = |at: usize| {
            tag.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
        };
        let mark = Mark::from_tag([word(0), word(8)]);
        if payload.len() != mark.bytes as usize {
            let bytes = payload.len();
            checker.fail(Check::RightContents, || {
                format!("{at:?}: the message {mark:?} arrived with {bytes} bytes of payload")
            });
        }
        let words = payload.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(place, byte)| *place = *byte);
            u64::from_le_bytes(word)
        });
        checker.on_received(at, from, &mark, words);
        self.raised.messages += 1;
        true
    }

    fn is_blocked(&self, flow: FlowId) -> bool {
        let Some((_, to)) = self.flows.get(&flow) else { return true };
        let peer = self.peers.get(&to.node);
        let is_held = peer.is_some_and(|peer| !peer.send_queue.is_empty() || peer.outbound.is_used_up());
        is_held || self.transmit.free() == 0
    }
}

impl Host for RingHost {
    fn open(
        &mut self,
        plan: &PortPlan,
        _: u32,
        checker: &mut Checker,
        effects: &mut Effects,
    ) -> Result<(), Refused> {
        if self.terms.is_none() {
            self.start(checker, effects)?;
        }
        self.flows.extend(plan.sends.iter().map(|(flow, to)| (*flow, (plan.number as u8, *to))));
        Ok(())
    }

    fn clock(&self) -> Time {
        self.bus.clock().max(self.not_before)
    }

    fn rest(&self) -> Time {
        self.clock().max(self.latest)
    }

    fn begin_at(&mut self, begin: Time) {
        self.not_before = begin;
        self.nic.begin_part(begin);
    }

    fn deadline(&self) -> Option<Time> {
        self.nic.poll_timeout()
    }

    fn ledger(&self) -> &Ledger {
        self.nic.ledger()
    }

    fn visit_ledgers(&mut self, visit: &mut dyn FnMut(Owner, &mut Ledger)) {
        Owner::visit(self.node, &mut *self.nic, &mut *visit);
        visit(Owner::Ethernet(self.node), self.ethernet.nic.ledger_mut());
    }

    fn sent_frames(&self) -> u64 {
        self.tally.sent_frames
    }

    fn arrive(&mut self, now: Time, packet: &FrameInFlight, checker: &mut Checker, effects: &mut Effects) {
        let FrameInFlight { frame, message, passage, class } = packet;
        if class.is_for_host(self.node) {
            self.ethernet.take(now, packet, &mut self.bus);
        }
        if *class != FrameClass::Card && !class.is_for_mac_endpoints(self.node) {
            return;
        }
        self.tally.received_frames += 1;
        self.tally.received_bytes += frame.len() as u64;
        checker.frames.on_came(self.node, frame);
        let input = Input::Frame { frame, head: passage.head, message: *message };
        self.handle(now, input, checker, effects);
        self.on_came(now);
    }

    fn timeout(&mut self, now: Time, checker: &mut Checker, effects: &mut Effects) {
        self.handle(now, Input::Timeout, checker, effects);
        self.poll(now);
    }

    fn progress(&self) -> firmware_reload::Progress {
        self.nic.progress()
    }

    fn step(&mut self, now: Time, script: &mut Script, checker: &mut Checker, effects: &mut Effects) {
        self.memory.advance(now);
        self.reap(checker);
        if self.arrivals.front().is_some_and(|at| *at <= now) {
            self.arrivals.pop_front();
            if self.take(checker) {
                script.on_received();
            }
            return;
        }
        if self.next_look().is_some_and(|at| at <= now) {
            if self.look(now, checker, effects) {
                script.on_received();
            }
            return;
        }
        if self.clock() > now || self.direct.is_sending {
            return;
        }
        self.not_before = self.not_before.max(now);
        // Frames for other nodes come before those of the program.
        if let Some(node) = self.owed() {
            return self.acknowledge(now, node, checker, effects);
        }
        if let Some(node) = self.pushable() {
            return self.push(now, node, checker, effects);
        }
        if let Some(node) = self.datagram_due() {
            return self.send_datagram(now, node, checker, effects);
        }
        let may_send = script.next(|flow| self.is_blocked(flow));
        let Some(outgoing) = may_send.filter(|next| next.not_before_ps <= now.as_ps()) else { return };
        let Some((from, to)) = self.flows.get(&outgoing.flow).copied() else { return };
        let mark = checker.on_sent(outgoing.flow, outgoing.bytes);
        let payload = mark.payload().flat_map(u64::to_le_bytes).take(mark.bytes as usize);
        let bytes = mark.tag().into_iter().flat_map(u64::to_le_bytes).chain(payload).collect();
        self.peer(to.node).send_queue.push_back(Outgoing { from, to: to.port as u8, bytes, offset: 0 });
        self.push(now, to.node, checker, effects);
        self.datagrams.on_message(to.node);
        script.on_sent(outgoing.flow);
    }

    fn soonest(&self) -> Time {
        let arrival = self.arrivals.front().copied().or_else(|| self.next_look());
        arrival.into_iter().chain(self.memory.next_visible()).fold(self.clock(), Time::min)
    }

    fn wake(&mut self, script: &mut Script) -> Option<Time> {
        let arrival = self.arrivals.front().copied().or_else(|| self.next_look());
        if self.direct.is_sending {
            return arrival;
        }
        let clock = self.clock();
        let owed = self.owed().or_else(|| self.pushable()).or_else(|| self.datagram_due()).map(|_| clock);
        let next = script.next(|flow| self.is_blocked(flow));
        let send = next.map(|next| Time::from_ps(next.not_before_ps).max(clock));
        // If the ring is full, the next sent frame makes room.
        let news = if owed.is_none() && send.is_none() && self.transmit.free() == 0 {
            self.memory.next_visible()
        } else {
            None
        };
        [arrival, owed, send, news].into_iter().flatten().min()
    }

    /// Whether a pair of nodes has stalled: the window is used up, and the frame that would open it was lost.
    fn is_stuck(&self, checker: &Checker) -> bool {
        let is_stalled = |(to, peer): (&u16, &Peer)| {
            peer.outbound.is_used_up() && checker.frames.is_excused(self.node, *to)
        };
        self.peers.iter().any(is_stalled)
    }

    fn set_device_faults(&mut self, rates: Rates) {
        if let Some(fault_injector) = self.nic.fault_injector_mut() {
            fault_injector.set_rates(rates);
        }
    }

    fn figures(&self) -> NodeFigures {
        figures::node(self)
    }

    fn sums(&self) -> Vec<Sum> {
        figures::sums(self)
    }

    fn finish(&mut self, checker: &mut Checker) {
        self.memory.advance(Time::from_ps(u64::MAX));
        self.reap(checker);
        let (node, unread) = (self.node, self.arrivals.len() + self.unreported.len());
        if unread > 0 {
            checker.fail(Check::Drained, || {
                format!("node {node}: {unread} frames arrived, and the driver did not read them")
            });
        }
        let raised = figures::raised(self);
        checker.frames.finish(node, &raised).into_iter().for_each(|wrong| hold(Some(wrong), checker));
        let unsent = self.direct.is_sending || self.transmit.free() != TRANSMIT_DESCRIPTORS;
        if unsent {
            checker.fail(Check::Drained, || {
                format!("node {node}: the card never sent some of the posted frames")
            });
        }
        for (peer_node, peer) in &self.peers {
            let waiting = peer.send_queue.len();
            let is_excused = checker.frames.is_excused(self.node, *peer_node);
            if is_excused && peer.outbound.is_used_up() {
                checker.on_stalled_pair(node, *peer_node);
            } else if waiting > 0 {
                checker.fail(Check::FlowControl, || {
                    format!("node {node}: the driver never sent {waiting} messages to node {peer_node}")
                });
            }
        }
    }
}

/// Fails the check if the frame checker found something wrong.
fn hold(wrong: Option<String>, checker: &mut Checker) {
    wrong.into_iter().for_each(|wrong| checker.fail(Check::FlowControl, || wrong));
}

/// The status of a reply.
fn status_of(answer: &[u8]) -> Option<u32> {
    Reply::from_bytes(answer).map(|reply| reply.status)
}

fn bytes_of<T: ToBytes>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; T::BYTES];
    // The buffer has exactly the length of the value.
    let _ = value.to_bytes(&mut bytes);
    bytes
}
