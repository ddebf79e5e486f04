//! Sends and receives with the semantics of MPI, on a port whose NIC matches messages.
//!
//! * A receive names a source or accepts any, and a tag or accepts any. Of matching messages of one source it takes the
//!   one sent first. Receives take messages in posting order.
//! * Messages up to `eager_bytes` are sent at once. If a receive is posted, the NIC writes them into its memory.
//!   Otherwise it writes them into overflow entries, from which they are copied when the receive is posted.
//! * Of longer messages only the header is sent. The matching receive fetches the rest into its memory, without a copy
//!   on either side (rendezvous).
//! * A sender may be a limited number of messages ahead of each receiver, which returns this credit as it takes
//!   messages. There is room for that many unexpected messages, so none is ever refused.
//!
//! [`Messages`] is polled. It posts nothing, reads nothing and waits for nothing. [`Messages::command`] names the next
//! command to post, [`Messages::on_event`] takes the events of its port, and [`Messages::take_ended`] returns the
//! result of a send or a receive. [`Messages::greet_again`] retries peers whose ports were not open yet.

mod overflow;
mod peers;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::{Append, Command, Encoded, Event, EventKind, Get, Outcome, Part, Target};
use crate::{Address, BadValue};
use overflow::Overflow;
use peers::{Peer, Send};

/// Portal of messages.
const MESSAGES: u32 = 0;
/// Portal of the memory of long messages.
const MEMORY: u32 = 1;
/// Portal of credits.
const CREDITS: u32 = 2;

/// Match bits: the message is long, and its header data describes how to fetch it.
const LONG: u64 = 1 << 63;
/// Match bits of the tag.
const TAG: u64 = 0xffff_ffff;
/// Header data of a long message: its length. The bits above hold the serial number of its memory.
const LONG_BYTES: u64 = (1 << LONG_SERIAL_SHIFT) - 1;
const LONG_SERIAL_SHIFT: u32 = 40;

/// User value without a request; requests count from 1.
const NO_REQUEST: u64 = 0;
/// User value: a slab, whose number is in the lower half.
const OF_SLAB: u64 = 1 << 62;
/// User value: a greeting, to the node in the lower half.
const OF_GREETING: u64 = 1 << 63;

/// Memory that messages are sent from and stored in, as held by the code that runs this state machine. Memory that the
/// state machine holds stays registered.
pub trait Buffer: Clone {
    /// Copies the bytes of `from`, a part of this memory, to the first bytes of `to`, a part of the other memory.
    fn copy(&self, from: Part, other: &Self, to: Part);
}

/// Part of a memory.
#[derive(Clone, Debug)]
pub struct BufferPart<B> {
    /// The memory.
    pub buffer: B,
    /// The part, in the NIC's terms.
    pub part: Part,
}

impl<B> BufferPart<B> {
    /// `bytes` bytes from `offset` on, which must exist.
    const fn sub(&self, offset: u64, bytes: u64) -> Part {
        Part { region: self.part.region, offset: self.part.offset + offset, bytes }
    }
}

/// The port has too few events for this number of nodes, or there are too few credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at least 2 credits and {events} events for {nodes} nodes")]
pub struct TooFew {
    /// Minimum number of events.
    pub events: u64,
    /// Nodes.
    pub nodes: u32,
}

/// Parameters of all messages between some nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    nodes: u32,
    eager_bytes: u64,
    credits: u64,
}

impl Terms {
    /// Terms for a port of `events` events, between nodes 0 to `nodes - 1`. Messages up to `eager_bytes` are sent at
    /// once. A sender may be `wanted` messages ahead of each receiver, or fewer, so that every message in flight finds
    /// room for its events. A message causes at most three events at its receiver (stored in a slab, slab unlinked,
    /// claimed) and a reply, and two at its sender (acknowledged, fetched).
    ///
    /// # Errors
    /// [`TooFew`].
    pub fn new(events: u32, nodes: u32, eager_bytes: u64, wanted: u32) -> Result<Self, TooFew> {
        const EVENTS_OF_A_MESSAGE: u64 = 6;
        /// For greetings and credits of all peers, and one or two commands of this node.
        const SPARE: u64 = 16;
        /// Maximum number of messages of all peers: a card stores a bounded number of unexpected ones.
        const MOST: u64 = 256;
        let others = u64::from(nodes).saturating_sub(1).max(1);
        let found = u64::from(events).saturating_sub(SPARE + 3 * others) / (EVENTS_OF_A_MESSAGE * others);
        let credits = found.min(MOST / others).min(wanted.into());
        if credits < 2 {
            return Err(TooFew { events: SPARE + 15 * others, nodes });
        }
        Ok(Self { nodes, eager_bytes, credits })
    }

    /// Bytes of memory for messages that arrive before their receives.
    #[must_use]
    pub const fn overflow_bytes(&self) -> u64 {
        self.slab_bytes().saturating_mul(self.slabs())
    }

    /// Room for two messages, so that few slabs are held by a single message.
    const fn slab_bytes(&self) -> u64 {
        let bytes = if self.eager_bytes < 8 { 8 } else { self.eager_bytes };
        bytes.saturating_mul(2)
    }

    /// Two more slabs than messages that can be unclaimed. So two slabs are always linked, even if each other slab is
    /// held by a single message.
    const fn slabs(&self) -> u64 {
        self.credits * (self.nodes.saturating_sub(1)) as u64 + 2
    }
}

/// A send or a receive in progress.
#[must_use = "a request ends when its outcome is taken"]
#[derive(Debug, PartialEq, Eq)]
pub struct Request(u64);

impl Request {
    /// Its number.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.0
    }
}

/// A received or sent message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The other node.
    pub node: u32,
    /// The tag.
    pub tag: u32,
    /// Bytes transferred.
    pub bytes: usize,
    /// Whether the message was longer than the memory of the receive.
    pub is_cut: bool,
}

/// State of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is in progress.
    No,
    /// It has succeeded with this message, and is forgotten.
    Done(Message),
    /// It has failed without effect, and is forgotten.
    Failed(Outcome),
    /// The request does not exist any more.
    Unknown,
}

/// Internal state of a request.
#[derive(Debug)]
enum State<B> {
    /// A receive that waits for its message, or, if `message` is known, for the rest of it.
    Receive { buffer: BufferPart<B>, message: Option<Message> },
    /// A send that waits for its acknowledgement, or, if long, until it is fetched. The memory must outlive it.
    Send { _buffer: B, message: Message, is_long: bool },
    /// The request has ended.
    Ended(Result<Message, Outcome>),
}

/// A node's endpoint for messages between all nodes that have the same port open.
#[derive(Debug)]
pub struct Messages<B> {
    own: Address,
    terms: Terms,
    peers: Vec<Peer>,
    overflow: Overflow<B>,
    requests: BTreeMap<u64, State<B>>,
    last_request: u64,
    last_serial: u64,
    /// Commands to post, in order.
    commands: VecDeque<Encoded>,
}

impl<B: Buffer> Messages<B> {
    /// An endpoint at the unused port `own`, with [`Terms::overflow_bytes`] of memory for unexpected messages.
    pub fn new(own: Address, terms: Terms, overflow: BufferPart<B>) -> Self {
        let mut this = Self {
            own,
            terms,
            peers: (0..terms.nodes).map(|_| Peer::default()).collect(),
            overflow: Overflow::new(overflow, &terms),
            requests: BTreeMap::new(),
            last_request: NO_REQUEST,
            last_serial: 0,
            commands: VecDeque::new(),
        };
        (0..terms.slabs()).for_each(|slab| this.link_slab(slab));
        // Posted last: a node that answers greetings must be ready to receive messages.
        this.push(&Append::put(CREDITS, this.overflow.nothing()).persistent().user(NO_REQUEST));
        this
    }

    /// Number of nodes that can send to each other.
    #[must_use]
    pub const fn nodes(&self) -> u32 {
        self.terms.nodes
    }

    /// Whether `node` is another node, to which messages can be sent.
    #[must_use]
    pub const fn has_peer(&self, node: u32) -> bool {
        node < self.terms.nodes && node != self.own.node
    }

    /// The next command to post. A caller without a free slot must read events first, because the device may wait for
    /// their slots in the event queue.
    #[must_use]
    pub fn command(&self) -> Option<&Encoded> {
        self.commands.front()
    }

    /// The caller has posted [`Self::command`].
    pub fn on_launched(&mut self) {
        self.commands.pop_front();
    }

    /// Begins to send the bytes of `buffer` to a peer. They must not change until the request has ended. It ends when
    /// the message was stored at the receiver, or fetched by it.
    pub fn send(&mut self, node: u32, tag: u32, buffer: BufferPart<B>) -> Request {
        let id = self.next_request();
        let bytes = buffer.part.bytes;
        let message = Message { node, tag, bytes: bytes as usize, is_cut: false };
        let is_long = bytes > self.terms.eager_bytes;
        self.requests.insert(id, State::Send { _buffer: buffer.buffer, message, is_long });
        if let Some(peer) = self.peers.get_mut(node as usize) {
            peer.backlog.push_back(Send { id, tag, part: buffer.part, is_long });
        }
        self.send_to(node);
        Request(id)
    }

    /// Begins to receive into the bytes of `buffer`, from a peer or from any, with a tag or with any. The bytes belong
    /// to the request until it has ended.
    pub fn receive(&mut self, node: Option<u32>, tag: Option<u32>, buffer: BufferPart<B>) -> Request {
        let ignore = LONG | if tag.is_some() { 0 } else { TAG };
        let id = self.next_request();
        let append = Append::put(MESSAGES, buffer.part)
            .match_bits(tag.unwrap_or_default().into(), ignore)
            .source_port(self.own.port)
            .truncate()
            .no_unlink_event()
            .user(id);
        let append = node.map_or(append, |node| append.source_node(node));
        self.requests.insert(id, State::Receive { buffer, message: None });
        self.push(&append);
        Request(id)
    }

    /// The state of a request; removes a request that has ended.
    pub fn take_ended(&mut self, request: &Request) -> Ended {
        match self.requests.get(&request.0) {
            Some(State::Ended(_)) | None => {}
            Some(_) => return Ended::No,
        }
        match self.requests.remove(&request.0) {
            Some(State::Ended(Ok(message))) => Ended::Done(message),
            Some(State::Ended(Err(outcome))) => Ended::Failed(outcome),
            _ => Ended::Unknown,
        }
    }

    /// Processes the next event of the port.
    ///
    /// # Errors
    /// The result of a refused command that belongs to no request.
    pub fn on_event(&mut self, event: &Event) -> Result<(), Outcome> {
        let id = event.user;
        match event.kind {
            EventKind::Put if id == NO_REQUEST => self.on_credit(event.initiator.node, event.header_data),
            EventKind::Put => self.on_message(event, None),
            EventKind::Claimed { overflow_user, .. } => {
                self.on_message(event, Some(overflow_user & !OF_SLAB))
            }
            EventKind::Unexpected => self.on_slab(id & !OF_SLAB, 1, false),
            EventKind::Unlinked if id & OF_SLAB != 0 => self.on_slab(id & !OF_SLAB, 0, true),
            EventKind::Acknowledged if id & OF_GREETING != 0 => {
                self.on_greeted((id & !OF_GREETING) as u32, event.outcome);
            }
            EventKind::Acknowledged => self.on_acknowledged(id, event.outcome),
            EventKind::Get => self.end_send(id),
            EventKind::Reply => self.on_reply(id, event.outcome),
            EventKind::Refused if self.requests.contains_key(&id) => self.end(id, Err(event.outcome)),
            EventKind::Refused => return Err(event.outcome),
            EventKind::Unlinked | EventKind::Sent => {}
        }
        Ok(())
    }

    /// A receive has got its message: in its memory, or in a slab.
    fn on_message(&mut self, event: &Event, slab: Option<u64>) {
        let is_long = event.match_bits & LONG != 0;
        if let Some(State::Receive { buffer, message }) = self.requests.get_mut(&event.user) {
            let sent = if is_long { event.header_data & LONG_BYTES } else { event.requested_bytes };
            let bytes = sent.min(buffer.part.bytes);
            let found = Message {
                node: event.initiator.node,
                tag: event.match_bits as u32,
                bytes: bytes as usize,
                is_cut: sent > buffer.part.bytes,
            };
            if is_long {
                *message = Some(found);
                let target = Target { port: event.initiator, portal: MEMORY };
                let rest = Get::new(target, buffer.sub(0, bytes))
                    .match_bits(event.header_data >> LONG_SERIAL_SHIFT)
                    .user(event.user);
                self.push(&rest);
            } else {
                let copied = slab.is_none_or(|slab| self.overflow.copy(slab, event.offset, buffer, bytes));
                self.end(event.user, if copied { Ok(found) } else { Err(Outcome::BadRange) });
            }
        }
        if let Some(slab) = slab {
            // Before the credit is returned: a sender with credit must find room.
            self.on_slab(slab, -1, false);
        }
        self.on_taken(event.initiator.node);
    }

    fn on_slab(&mut self, slab: u64, messages: i64, is_unlinked: bool) {
        if self.overflow.change(slab, messages, is_unlinked) {
            self.link_slab(slab);
        }
    }

    fn link_slab(&mut self, slab: u64) {
        let append = Append::put(MESSAGES, self.overflow.part(slab))
            .match_bits(0, u64::MAX)
            .overflow()
            .persistent()
            .max_size(self.terms.eager_bytes)
            .user(OF_SLAB | slab);
        self.push(&append);
    }

    fn on_reply(&mut self, id: u64, outcome: Outcome) {
        if let Some(State::Receive { message: Some(message), .. }) = self.requests.get(&id) {
            let ended = if outcome.is_done() { Ok(*message) } else { Err(outcome) };
            self.end(id, ended);
        }
    }

    fn end_send(&mut self, id: u64) {
        if let Some(&State::Send { message, .. }) = self.requests.get(&id) {
            self.end(id, Ok(message));
        }
    }

    fn on_acknowledged(&mut self, id: u64, outcome: Outcome) {
        let Some(&State::Send { message: Message { node, .. }, is_long, .. }) = self.requests.get(&id) else {
            return;
        };
        if outcome.is_done() {
            // For a long message, this acknowledges only the header.
            if !is_long {
                self.end_send(id);
            }
            return;
        }
        self.end(id, Err(outcome));
        if let Some(peer) = self.peers.get_mut(node as usize) {
            // The receiver never saw the message, and will never return credit for it.
            peer.sent -= 1;
        }
        self.send_to(node);
    }

    fn end(&mut self, id: u64, ended: Result<Message, Outcome>) {
        self.requests.insert(id, State::Ended(ended));
    }

    fn next_request(&mut self) -> u64 {
        self.last_request += 1;
        self.last_request
    }

    /// Queues a command to post. Its values always fit: nodes, ports, portals and parts exist.
    fn push(&mut self, command: &impl Command<(), BadValue>) {
        let encoded = command.encode(&());
        debug_assert!(encoded.is_ok(), "{encoded:?}");
        self.commands.extend(encoded);
    }
}

#[cfg(test)]
mod tests;
