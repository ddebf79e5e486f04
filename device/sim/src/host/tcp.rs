//! A program whose messages go over TCP, with a conventional NIC and a stack whose computing time is in the profile.
//! The messages are parts of the stream to a node. Each follows a tag by which programs identify it.
//!
//! The processor does one step at a time, the first of these that is possible: it takes the next frame that the card
//! has stored, sends the next segment, wakes the program to read received data, or lets the program write. So an
//! arriving frame waits at most for the end of one step. The model differs from real stacks in two points: an interrupt
//! does not interrupt a step, and no interrupt reports sent frames.

pub mod connection;
mod segment;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use niclab_model::conventional::Conventional;
use niclab_model::fabric::ethernet::FrameClass;
use niclab_model::nic::fault_injector::Rates;
use niclab_model::platform::ledger::{Ledger, Transaction};
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::{Passage, Time};
use niclab_observe::timeline::Owner;
use niclab_spec::profile::Stack;
use niclab_spec::report::NodeFigures;
use niclab_spec::{TcpTerms, Workload};
use niclab_workloads::{Flow, Mark, PortPlan, Script};

use self::connection::{Connection, Terms};
use super::ethernet::{Function, figures};
use super::{Effects, FrameInFlight, Host, Refused, Sum};
use crate::checker::{Check, Checker};

/// Bytes of the tag before a message's payload.
const TAG_BYTES: usize = 16;

/// Computing times of the stack, in picoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    system_call: u64,
    segment_send: u64,
    segment_receive: u64,
    wake_up: u64,
    checksum_per_byte: u64,
}

impl Prices {
    /// The times of a platform.
    #[must_use]
    pub const fn new(stack: &Stack) -> Self {
        Self {
            system_call: stack.system_call_ps.value,
            segment_send: stack.segment_send_ps.value,
            segment_receive: stack.segment_receive_ps.value,
            wake_up: stack.wake_up_ps.value,
            checksum_per_byte: stack.checksum_per_byte_ps.value,
        }
    }
}

/// The connection to another node and the messages in its streams.
struct Peer {
    connection: Connection,
    /// Messages that are not completely sent, each with the number of the byte after its end.
    outgoing: VecDeque<(u64, TraceTag)>,
    /// The received part of the message that the program is reading.
    message: Vec<u8>,
}

/// A message that is not completely written.
struct Writing {
    to: u16,
    bytes: Vec<u8>,
    written: usize,
    tag: TraceTag,
}

/// A host with a conventional NIC and a TCP/IP stack.
pub struct TcpHost {
    node: u16,
    function: Function,
    bus: NodeBus,
    flows: Arc<[Flow]>,
    prices: Prices,
    terms: Terms,
    cpu_driven: bool,
    peers: BTreeMap<u16, Peer>,
    /// Stored frames, with the times at which the host can see them; of a CPU-driven card, the frames that wait in it.
    arrivals: VecDeque<(Time, FrameInFlight)>,
    /// Messages in flight to this node, by flow and number.
    coming: BTreeMap<(u32, u64), TraceTag>,
    writing: Option<Writing>,
    /// Time at which the NIC has read the last notified frame. Until then no doorbell is needed.
    notified_until: Time,
    /// End of the driver's last work. Frames until then need no interrupt.
    driver_until: Time,
    /// The program waits for data and must be woken.
    is_blocked: bool,
}

impl TcpHost {
    /// An idle host. It sends on those of `flows` that begin at it. `mtu_bytes` is the smallest of all links.
    #[must_use]
    pub fn new(
        node: u16,
        nic: Conventional,
        flows: Arc<[Flow]>,
        prices: Prices,
        (tcp, mtu_bytes): (TcpTerms, u32),
    ) -> Self {
        let terms = Terms {
            segment_bytes: mtu_bytes.saturating_sub(Workload::TCP_HEADERS_BYTES).into(),
            window_bytes: tcp.window_bytes.into(),
            nagle: tcp.nagle,
            delayed_acks: tcp.delayed_acks,
        };
        Self {
            node,
            function: Function::new(nic),
            bus: NodeBus::default(),
            flows,
            prices,
            terms,
            cpu_driven: tcp.cpu_driven,
            peers: BTreeMap::new(),
            arrivals: VecDeque::new(),
            coming: BTreeMap::new(),
            writing: None,
            notified_until: Time::ZERO,
            driver_until: Time::ZERO,
            is_blocked: false,
        }
    }

    fn peer(&mut self, node: u16) -> &mut Peer {
        let terms = self.terms;
        self.peers.entry(node).or_insert_with(|| Peer {
            connection: Connection::new(terms),
            outgoing: VecDeque::new(),
            message: Vec::new(),
        })
    }

    /// Keeps the host busy with computing for the given time.
    fn compute(&mut self, transaction: Transaction, (bytes, ps): (u64, u64)) {
        self.function.nic.software(transaction, self.bus.clock(), (bytes, ps), &mut self.bus);
    }

    fn copy(&mut self, bytes: usize) {
        self.function.nic.copy(self.bus.clock(), bytes as u64, &mut self.bus);
    }

    /// A transfer of the card ends at `end`. The driver of a CPU-driven card waits for it.
    fn wait_for_transfer(&mut self, end: Time) {
        if self.cpu_driven {
            self.bus.wait_until(end);
        }
    }

    /// The driver takes the next frame, and the stack processes it.
    fn take_frame(&mut self, now: Time, visible: Time, packet: &FrameInFlight) {
        let bytes = packet.frame.len() as u64;
        self.function.nic.ledger_mut().attribute(packet.message);
        if visible > self.driver_until {
            self.function.tally.receive_interrupts += 1;
            self.function.nic.interrupt(now, &mut self.bus);
        }
        if self.cpu_driven {
            let stored = self.function.nic.store(self.bus.clock(), bytes, &mut self.bus);
            self.wait_for_transfer(stored);
        }
        self.compute(Transaction::HostReceive, (bytes, self.prices.segment_receive));
        if let Some((from, segment, data)) = segment::parse(self.node, &packet.frame) {
            let count = data.len() as u64;
            if count > 0 {
                self.compute(Transaction::HostCopy, (count, self.prices.checksum_per_byte * count));
            }
            let at = self.bus.clock();
            let connection = &mut self.peer(from).connection;
            connection.on_segment(at, &segment, data);
            connection.watch_window(at);
            if let Some(tag) = packet.message {
                self.coming.insert(key_of(&tag), tag);
            }
        }
        self.driver_until = self.bus.clock();
    }

    /// The stack sends the next segment to that node.
    fn send_segment(&mut self, to: u16, effects: &mut Effects) {
        let now = self.bus.clock();
        let Some(peer) = self.peers.get_mut(&to) else { return };
        let Some((segment, data)) = peer.connection.poll_segment(now) else { return };
        let message = peer.tag_of(&segment, data.len());
        let frame = segment::emit(self.node, to, &segment, &data);
        let bytes = frame.len() as u64;
        self.function.nic.ledger_mut().attribute(message);
        self.compute(Transaction::HostSend, (bytes, self.prices.segment_send));
        let prepared = self.bus.clock();
        let has_doorbell = self.notified_until <= prepared;
        self.notified_until = self.function.nic.fetch(prepared, bytes, has_doorbell, &mut self.bus);
        self.wait_for_transfer(self.notified_until);
        let tally = &mut self.function.tally;
        tally.doorbells += u64::from(has_doorbell);
        tally.sent_frames += 1;
        tally.sent_bytes += bytes;
        let passage = Passage::from(self.notified_until);
        effects.frames.push_back(FrameInFlight {
            frame: frame.into(),
            message,
            passage,
            class: FrameClass::Host,
        });
    }

    /// The program reads the received part of one message from that node. Calls `on_message` if the message is
    /// complete.
    fn read(&mut self, from: u16, on_message: impl FnOnce(&Flow, &Mark, &[u8])) {
        self.function.nic.ledger_mut().attribute(None);
        if std::mem::take(&mut self.is_blocked) {
            self.compute(Transaction::HostReceive, (0, self.prices.wake_up));
        }
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let (count, message) = peer.read();
        self.compute(Transaction::HostReceive, (0, self.prices.system_call));
        self.copy(count);
        let Some((mark, bytes)) = message else { return };
        if let Some(tag) = self.coming.remove(&(mark.flow, mark.number)) {
            self.function.nic.ledger_mut().complete(&tag, self.bus.clock());
        }
        if let Some(flow) = self.flows.get(mark.flow as usize) {
            on_message(flow, &mark, &bytes[TAG_BYTES..]);
        }
    }

    /// The program writes the next part of its message, one segment long. The system copies it and sends it before it
    /// copies more.
    fn write(&mut self, writing: &mut Writing) {
        self.function.nic.ledger_mut().attribute(Some(writing.tag));
        if writing.written == 0 {
            self.compute(Transaction::HostSend, (0, self.prices.system_call));
        }
        let room = self.peer(writing.to).connection.room();
        let end = writing.bytes.len().min(writing.written + room.min(self.terms.segment_bytes) as usize);
        let part = &writing.bytes[writing.written..end];
        self.copy(part.len());
        let at = self.bus.clock();
        let peer = self.peer(writing.to);
        let end_number = peer.connection.write(part);
        peer.connection.watch_window(at);
        if writing.written == 0 {
            let rest = writing.bytes.len() - part.len();
            peer.outgoing.push_back((end_number + rest as u64, writing.tag));
        }
        writing.written = end;
    }

    /// The program begins its next message, if it has one.
    fn begin_message(&mut self, now: Time, script: &mut Script, checker: &mut Checker) -> Option<Writing> {
        let next = script.next(|_| false).filter(|next| Time::from_ps(next.not_before_ps) <= now)?;
        let flow = self.flows.get(next.flow as usize).copied()?;
        let mark = checker.on_sent(next.flow, next.bytes);
        script.on_sent(next.flow);
        let mut bytes = Vec::with_capacity(TAG_BYTES + mark.bytes as usize + 8);
        bytes.extend(mark.flow.to_le_bytes());
        bytes.extend(mark.bytes.to_le_bytes());
        bytes.extend(mark.number.to_le_bytes());
        bytes.extend(mark.payload().flat_map(u64::to_le_bytes));
        bytes.truncate(TAG_BYTES + mark.bytes as usize);
        bytes.resize(TAG_BYTES + mark.bytes as usize, 0);
        let number = u64::from(mark.flow) << 32 | mark.number & u64::from(u32::MAX);
        let tag =
            TraceTag { node: self.node, port: flow.from.port, number, launched: now, bytes: mark.bytes };
        Some(Writing { to: flow.to.node, bytes, written: 0, tag })
    }

    /// The first connection for which `is_it` is true.
    fn first(&self, is_it: impl Fn(&Connection) -> bool) -> Option<u16> {
        self.peers.iter().find(|(_, peer)| is_it(&peer.connection)).map(|(node, _)| *node)
    }

    /// Whether the program can continue its write.
    fn can_write(&self) -> bool {
        let Some(writing) = &self.writing else { return false };
        self.peers.get(&writing.to).is_none_or(|peer| peer.connection.room() > 0)
    }
}

impl Peer {
    /// Reads more of the current message. Returns the number of bytes read, and the message if it is complete.
    fn read(&mut self) -> (usize, Option<(Mark, Vec<u8>)>) {
        let before = self.message.len();
        // First its tag, which has the length, then the rest.
        for _ in 0..2 {
            let all = mark_of(&self.message).map_or(TAG_BYTES, |mark| TAG_BYTES + mark.bytes as usize);
            self.message.append(&mut self.connection.read(all - self.message.len()));
        }
        let count = self.message.len() - before;
        let is_whole = |mark: &Mark| self.message.len() == TAG_BYTES + mark.bytes as usize;
        let whole = mark_of(&self.message).filter(is_whole);
        (count, whole.map(|mark| (mark, std::mem::take(&mut self.message))))
    }

    /// The message of a segment: the last one that ends in it, or the one of which it is a part.
    fn tag_of(&mut self, segment: &connection::Segment, bytes: usize) -> Option<TraceTag> {
        if bytes == 0 {
            return None;
        }
        let end = segment.first.wrapping_add(bytes as u32);
        let is_sent = |after: u64| end.wrapping_sub(after as u32) as i32 >= 0;
        let mut ended = None;
        while let Some(&(_, tag)) = self.outgoing.front().filter(|(after, _)| is_sent(*after)) {
            ended = Some(tag);
            self.outgoing.pop_front();
        }
        ended.or_else(|| self.outgoing.front().map(|(_, tag)| *tag))
    }
}

const fn key_of(tag: &TraceTag) -> (u32, u64) {
    ((tag.number >> 32) as u32, tag.number & 0xffff_ffff)
}

/// The mark in a message's tag, if the tag is complete.
fn mark_of(message: &[u8]) -> Option<Mark> {
    let (tag, _) = message.split_first_chunk::<TAG_BYTES>()?;
    let word = |at: usize| u32::from_le_bytes([tag[at], tag[at + 1], tag[at + 2], tag[at + 3]]);
    let number = u64::from(word(8)) | u64::from(word(12)) << 32;
    Some(Mark { flow: word(0), bytes: word(4), number })
}

impl Host for TcpHost {
    fn open(&mut self, _: &PortPlan, _: u32, _: &mut Checker, _: &mut Effects) -> Result<(), Refused> {
        // Connections exist from the start.
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
        self.peers.values().filter_map(|peer| peer.connection.deadline()).min()
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

    fn arrive(&mut self, now: Time, packet: &FrameInFlight, checker: &mut Checker, _: &mut Effects) {
        let tally = &mut self.function.tally;
        if !packet.class.is_for_host(self.node) {
            tally.dropped_frames += 1;
            return;
        }
        tally.received_frames += 1;
        tally.received_bytes += packet.frame.len() as u64;
        let bytes = packet.frame.len() as u64;
        checker.stored_bytes += bytes;
        self.function.nic.ledger_mut().attribute(packet.message);
        let visible = if self.cpu_driven { now } else { self.function.nic.store(now, bytes, &mut self.bus) };
        self.arrivals.push_back((visible, packet.clone()));
    }

    fn timeout(&mut self, now: Time, _: &mut Checker, _: &mut Effects) {
        self.peers.values_mut().for_each(|peer| peer.connection.on_timeout(now));
    }

    fn step(&mut self, now: Time, script: &mut Script, checker: &mut Checker, effects: &mut Effects) {
        if self.bus.clock() > now {
            return;
        }
        // An idle host begins now.
        self.bus.wait_until(now);
        let is_visible = self.arrivals.front().is_some_and(|(visible, _)| *visible <= now);
        if is_visible {
            if let Some((visible, packet)) = self.arrivals.pop_front() {
                self.take_frame(now, visible, &packet);
            }
        } else if let Some(to) = self.first(Connection::has_segment) {
            self.send_segment(to, effects);
        } else if let Some(from) = self.first(|connection| connection.available() > 0) {
            self.read(from, |flow, mark, payload| {
                let words = payload.chunks(8).map(|chunk| {
                    let mut word = [0; 8];
                    word[..chunk.len()].copy_from_slice(chunk);
                    u64::from_le_bytes(word)
                });
                checker.on_received(flow.to, flow.from, mark, words);
                script.on_received();
            });
        } else if let Some(mut writing) =
            self.writing.take().or_else(|| self.begin_message(now, script, checker))
        {
            self.write(&mut writing);
            self.writing = Some(writing).filter(|writing| writing.written < writing.bytes.len());
        } else {
            self.is_blocked = true;
        }
    }

    fn soonest(&self) -> Time {
        self.bus.clock()
    }

    fn wake(&mut self, script: &mut Script) -> Option<Time> {
        let clock = self.bus.clock();
        let arrival = self.arrivals.front().map(|(visible, _)| (*visible).max(clock));
        let is_busy = self.first(|connection| connection.has_segment() || connection.available() > 0);
        let mut next = || script.next(|_| false).map(|next| Time::from_ps(next.not_before_ps).max(clock));
        let own = match (is_busy, &self.writing) {
            (Some(_), _) => Some(clock),
            (None, Some(_)) => self.can_write().then_some(clock),
            (None, None) => next(),
        };
        // The program goes to sleep when it has nothing to do.
        let sleeps = (own.is_none() && self.writing.is_none() && !self.is_blocked).then_some(clock);
        [arrival, own, sleeps].into_iter().flatten().min()
    }

    fn is_stuck(&self, _: &Checker) -> bool {
        false
    }

    fn set_device_faults(&mut self, _: Rates) {}

    fn figures(&self) -> NodeFigures {
        figures::add(&self.function, NodeFigures::default())
    }

    fn sums(&self) -> Vec<Sum> {
        figures::sums_of_card(&self.function)
    }

    fn finish(&mut self, checker: &mut Checker) {
        let unread = self.peers.values().filter(|peer| !peer.message.is_empty()).count();
        let unsent = self.peers.values().filter(|peer| !peer.connection.is_quiet()).count();
        if unread + unsent + usize::from(self.writing.is_some()) > 0 {
            let node = self.node;
            checker.fail(Check::Drained, || {
                format!(
                    "node {node}: {unread} streams end inside a message, \
                     {unsent} connections have unacknowledged or unread data"
                )
            });
        }
    }
}
