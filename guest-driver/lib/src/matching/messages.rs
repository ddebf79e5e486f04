//! Sends and receives with the semantics of MPI, on a [`Port`] that matches messages itself.
//!
//! * A receive names a source or takes any, and a tag or takes any. Of the messages that fit it takes the one that was sent
//!   first, as far as they come from one source; receives take messages in the order in which they were posted.
//! * Messages up to [`Options::eager_bytes`] are sent at once. Whose receive is posted, the NIC writes into its memory; the
//!   others it writes into overflow entries, from which they are copied when the receive comes.
//! * Of longer messages only the header is sent; the receive that it matches fetches the rest, into its memory and with no
//!   copy on either side (rendezvous).
//! * A sender may be a number of messages ahead of each receiver, which gives that credit back as it takes them. So much
//!   room for unexpected messages there is, so that none is ever refused.
//!
//! Nothing goes on between calls: [`Endpoint::progress`], or any call that waits, reads events and answers them.

mod peers;
mod unexpected;

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use super::{Append, Command, Event, Get, Kind, Outcome, Port, Region, Target};
use crate::{Address, Deadline, Error, WaitPolicy};
use peers::{Peer, Send};
use unexpected::Overflow;

/// Portal of messages.
const MESSAGES: u32 = 0;
/// Portal of the memory of long messages.
const MEMORY: u32 = 1;
/// Portal of credits.
const CREDITS: u32 = 2;

/// Match bits: the message is long, its header data says where it is fetched.
const LONG: u64 = 1 << 63;
/// Match bits of the tag.
const TAG: u64 = 0xffff_ffff;
/// Header data of a long message: its bytes. Above is the number by which its memory is known.
const LONG_BYTES: u64 = (1 << LONG_SERIAL_SHIFT) - 1;
const LONG_SERIAL_SHIFT: u32 = 40;

/// User value of what belongs to no request; requests count from 1.
const NO_REQUEST: u64 = 0;
/// User value: a slab, whose number is in the lower half.
const OF_SLAB: u64 = 1 << 62;
/// User value: a greeting, to the node in the lower half.
const OF_GREETING: u64 = 1 << 63;

/// Longest sleep while a peer that has not opened its port yet is to be greeted again.
const GREETING_INTERVAL: Duration = Duration::from_millis(1);

/// How an endpoint behaves; the default suits most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Longest message that is sent at once; a longer one is fetched by its receiver.
    pub eager_bytes: usize,
    /// Most messages that a sender is ahead of each receiver; fewer where the event queue is small.
    pub credits: u32,
    /// How calls wait.
    pub policy: WaitPolicy,
}

impl Default for Options {
    fn default() -> Self {
        Self { eager_bytes: 4096, credits: 16, policy: WaitPolicy::ADAPTIVE }
    }
}

/// A send or a receive that was begun. Ends with [`Endpoint::wait`] or [`Endpoint::test`].
#[must_use = "a request ends with `wait` or `test`"]
#[derive(Debug, PartialEq, Eq)]
pub struct Request(u64);

/// What was received or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The other node.
    pub node: u32,
    /// The tag.
    pub tag: u32,
    /// Bytes that were moved.
    pub bytes: usize,
    /// Whether the message was longer than the memory of the receive.
    pub is_cut: bool,
}

/// What a request is waiting for.
#[derive(Debug)]
enum State {
    /// A receive, for its message; or, once that is known, for the rest of it.
    Receive { region: Region, range: Range<usize>, message: Option<Message> },
    /// A send, for its acknowledgement; a long one, to be fetched. The region must outlive it.
    Send { _region: Region, message: Message, is_long: bool },
    /// Nothing.
    Ended(Result<Message, Outcome>),
}

/// One node's end of the messages between all nodes that have the same port open.
#[derive(Debug)]
pub struct Endpoint {
    port: Port,
    peers: Vec<Peer>,
    overflow: Overflow,
    /// Events that were read while a command waited for a slot.
    inbox: VecDeque<Event>,
    requests: HashMap<u64, State>,
    last_request: u64,
    last_serial: u64,
    eager_bytes: usize,
    credits: u64,
}

impl Endpoint {
    /// Makes `port`, which nobody used yet, an end of the messages between nodes 0 to `nodes - 1`.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] when the port has too few events for so many nodes; what the port says.
    pub fn new(mut port: Port, nodes: u32, options: Options) -> Result<Self, Error> {
        port.set_wait_policy(options.policy);
        let credits = credits(port.events().capacity(), nodes, options.credits)?;
        let others = u64::from(nodes.saturating_sub(1));
        let overflow = Overflow::allocate(&port, options.eager_bytes, credits * others)?;
        let mut endpoint = Self {
            port,
            peers: (0..nodes).map(|_| Peer::default()).collect(),
            overflow,
            inbox: VecDeque::new(),
            requests: HashMap::new(),
            last_request: NO_REQUEST,
            last_serial: 0,
            eager_bytes: options.eager_bytes,
            credits,
        };
        for slab in 0..endpoint.overflow.slabs() {
            endpoint.link_slab(slab)?;
        }
        // Last: who can be greeted can be sent to.
        let region = endpoint.overflow.region();
        endpoint.launch(&Append::put(CREDITS, region.span(0..0)?).persistent().user(NO_REQUEST))?;
        Ok(endpoint)
    }

    /// This node.
    pub fn node(&self) -> u32 {
        self.port.address().node
    }

    /// Nodes that can send to each other.
    pub fn nodes(&self) -> u32 {
        self.peers.len() as u32
    }

    /// The port.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Memory for messages: at least `bytes`.
    ///
    /// # Errors
    ///
    /// [`Port::allocate`].
    pub fn allocate(&self, bytes: usize) -> Result<Region, Error> {
        self.port.allocate(bytes)
    }

    /// Begins to send the bytes of `range` to another node. They must stay as they are until the request has ended, which it
    /// does when the message was stored at the receiver, or fetched by it.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] for a range beyond the region, or a node that is none or this one; what the port says.
    pub fn isend(
        &mut self,
        node: u32,
        tag: u32,
        region: &Region,
        range: Range<usize>,
    ) -> Result<Request, Error> {
        region.span(range.clone())?;
        self.check_peer(node)?;
        let id = self.next_request();
        let message = Message { node, tag, bytes: range.len(), is_cut: false };
        let is_long = range.len() > self.eager_bytes;
        self.requests.insert(id, State::Send { _region: region.clone(), message, is_long });
        if let Some(peer) = self.peers.get_mut(node as usize) {
            peer.backlog.push_back(Send { id, tag, region: region.clone(), range, is_long });
        }
        self.send_to(node)?;
        Ok(Request(id))
    }

    /// Begins to receive into the bytes of `range`, from a node or from any, with a tag or with any. They belong to the
    /// request until it has ended.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::isend`].
    pub fn irecv(
        &mut self,
        node: Option<u32>,
        tag: Option<u32>,
        region: &Region,
        range: Range<usize>,
    ) -> Result<Request, Error> {
        node.map_or(Ok(()), |node| self.check_peer(node))?;
        let ignore = LONG | if tag.is_some() { 0 } else { TAG };
        let id = self.next_request();
        let append = Append::put(MESSAGES, region.span(range.clone())?)
            .match_bits(tag.unwrap_or_default().into(), ignore)
            .source_port(self.port.address().port)
            .truncate()
            .no_unlink_event()
            .user(id);
        let append = node.map_or(append, |node| append.source_node(node));
        self.requests.insert(id, State::Receive { region: region.clone(), range, message: None });
        let launched = self.launch(&append);
        if launched.is_err() {
            self.requests.remove(&id);
        }
        launched?;
        Ok(Request(id))
    }

    /// Ends a request if it is done: what was moved. Otherwise the request is given back.
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`], which ends the request; what the port says.
    pub fn test(&mut self, request: Request) -> Result<Result<Message, Request>, Error> {
        self.progress()?;
        Ok(self.take_ended(&request)?.ok_or(request))
    }

    /// Waits until the request is done: what was moved.
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`]; [`Error::TimedOut`], after which the operation goes on, although nobody can wait for it any
    /// more; what the port says.
    pub fn wait(&mut self, request: Request, deadline: impl Into<Deadline>) -> Result<Message, Error> {
        let deadline = match deadline.into() {
            Deadline::After(limit) => Instant::now().checked_add(limit).map_or(Deadline::Never, Deadline::At),
            other => other,
        };
        loop {
            self.progress()?;
            if let Some(message) = self.take_ended(&request)? {
                return Ok(message);
            }
            match self.port.event(self.next_look(deadline)) {
                Ok(event) => self.on_event(&event)?,
                // Not ours: it is time to greet a peer again.
                Err(Error::TimedOut { .. }) if !is_over(deadline) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends, and waits until that is done.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::isend`] and [`Endpoint::wait`].
    pub fn send(
        &mut self,
        node: u32,
        tag: u32,
        region: &Region,
        range: Range<usize>,
        deadline: impl Into<Deadline>,
    ) -> Result<Message, Error> {
        let request = self.isend(node, tag, region, range)?;
        self.wait(request, deadline)
    }

    /// Receives, and waits until that is done.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::irecv`] and [`Endpoint::wait`].
    pub fn recv(
        &mut self,
        node: Option<u32>,
        tag: Option<u32>,
        region: &Region,
        range: Range<usize>,
        deadline: impl Into<Deadline>,
    ) -> Result<Message, Error> {
        let request = self.irecv(node, tag, region, range)?;
        self.wait(request, deadline)
    }

    /// Answers all events that are there.
    ///
    /// # Errors
    ///
    /// What the port says.
    pub fn progress(&mut self) -> Result<(), Error> {
        for node in 0..self.nodes() {
            if self.peers.get(node as usize).is_some_and(Peer::is_greeting_due) {
                self.greet(node)?;
            }
        }
        while let Some(event) = self.inbox.pop_front().or_else(|| self.port.try_event()) {
            self.on_event(&event)?;
        }
        Ok(())
    }

    fn on_event(&mut self, event: &Event) -> Result<(), Error> {
        let id = event.user;
        match event.kind {
            Kind::Put if id == NO_REQUEST => self.on_credit(event.initiator.node, event.header_data),
            Kind::Put => self.on_message(event, None),
            Kind::Claimed { overflow_user, .. } => self.on_message(event, Some(overflow_user & !OF_SLAB)),
            Kind::Unexpected => {
                self.overflow.on_stored(id & !OF_SLAB);
                Ok(())
            }
            Kind::Unlinked if id & OF_SLAB != 0 => self.on_slab(id & !OF_SLAB, Overflow::on_unlinked),
            Kind::Acknowledged if id & OF_GREETING != 0 => {
                self.on_greeted((id & !OF_GREETING) as u32, event.outcome)
            }
            Kind::Acknowledged => self.on_acknowledged(id, event.outcome),
            Kind::Get => {
                self.end_send(id);
                Ok(())
            }
            Kind::Reply => {
                self.on_reply(id, event.outcome);
                Ok(())
            }
            Kind::Refused if self.requests.contains_key(&id) => {
                self.requests.insert(id, State::Ended(Err(event.outcome)));
                Ok(())
            }
            Kind::Refused => Err(self.transfer_error("carry a command out", event.outcome)),
            Kind::Unlinked | Kind::Sent => Ok(()),
        }
    }

    /// A receive has its message: in its memory, or in a slab.
    fn on_message(&mut self, event: &Event, slab: Option<u64>) -> Result<(), Error> {
        let id = event.user;
        let node = event.initiator.node;
        let tag = event.match_bits as u32;
        if let Some(State::Receive { region, range, message }) = self.requests.get_mut(&id) {
            let sent = if event.match_bits & LONG == 0 {
                event.requested_bytes
            } else {
                event.header_data & LONG_BYTES
            };
            let bytes = usize::try_from(sent).unwrap_or(usize::MAX).min(range.len());
            let found = Message { node, tag, bytes, is_cut: sent > range.len() as u64 };
            if event.match_bits & LONG != 0 {
                *message = Some(found);
                let (region, begin) = (region.clone(), range.start);
                let target = Target { port: event.initiator, portal: MEMORY };
                let rest = Get::new(target, region.span(begin..begin + bytes)?)
                    .match_bits(event.header_data >> LONG_SERIAL_SHIFT)
                    .user(id);
                self.launch(&rest)?;
            } else {
                if let Some(slab) = slab {
                    self.overflow.copy(slab, event.offset, region, range.start..range.start + bytes)?;
                }
                self.requests.insert(id, State::Ended(Ok(found)));
            }
        }
        if let Some(slab) = slab {
            // Before credit is given for it: whoever has credit finds room.
            self.on_slab(slab, Overflow::on_claimed)?;
        }
        self.on_taken(node)
    }

    fn on_slab(&mut self, slab: u64, change: impl FnOnce(&mut Overflow, u64) -> bool) -> Result<(), Error> {
        if change(&mut self.overflow, slab) { self.link_slab(slab) } else { Ok(()) }
    }

    fn link_slab(&mut self, slab: u64) -> Result<(), Error> {
        let region = self.overflow.region();
        let append = Append::put(MESSAGES, region.span(self.overflow.range(slab))?)
            .match_bits(0, u64::MAX)
            .overflow()
            .persistent()
            .max_size(self.eager_bytes as u64)
            .user(OF_SLAB | slab);
        self.launch(&append)
    }

    fn on_reply(&mut self, id: u64, outcome: Outcome) {
        if let Some(State::Receive { message: Some(message), .. }) = self.requests.get(&id) {
            let ended = if outcome.is_done() { Ok(*message) } else { Err(outcome) };
            self.requests.insert(id, State::Ended(ended));
        }
    }

    fn end_send(&mut self, id: u64) {
        if let Some(State::Send { message, .. }) = self.requests.get(&id) {
            let message = *message;
            self.requests.insert(id, State::Ended(Ok(message)));
        }
    }

    fn on_acknowledged(&mut self, id: u64, outcome: Outcome) -> Result<(), Error> {
        let Some(State::Send { message, is_long, .. }) = self.requests.get(&id) else { return Ok(()) };
        let (node, is_long) = (message.node, *is_long);
        if outcome.is_done() {
            // A long message has only been announced.
            if !is_long {
                self.end_send(id);
            }
            return Ok(());
        }
        self.requests.insert(id, State::Ended(Err(outcome)));
        if let Some(peer) = self.peers.get_mut(node as usize) {
            // The receiver never saw it, and will never give credit for it.
            peer.sent -= 1;
        }
        self.send_to(node)
    }

    /// The result of a request that has ended; the request is forgotten then.
    fn take_ended(&mut self, request: &Request) -> Result<Option<Message>, Error> {
        if !matches!(self.requests.get(&request.0), Some(State::Ended(_)) | None) {
            return Ok(None);
        }
        match self.requests.remove(&request.0) {
            Some(State::Ended(Ok(message))) => Ok(Some(message)),
            Some(State::Ended(Err(outcome))) => Err(self.transfer_error("move a message", outcome)),
            _ => Err(Error::BadValue {
                what: "the request",
                value: request.0,
                range: "one that this endpoint began".into(),
            }),
        }
    }

    /// Launches a command; while there is no slot, reads events, for whose places in the queue it may be waiting.
    fn launch(&mut self, command: &impl Command) -> Result<(), Error> {
        /// Longer than any daemon lets a slot wait; a dead one is found sooner.
        const LIMIT: Duration = Duration::from_secs(60);
        self.port.launch_reading(command, &mut self.inbox, LIMIT)?;
        Ok(())
    }

    fn next_request(&mut self) -> u64 {
        self.last_request += 1;
        self.last_request
    }

    /// Until when a wait may sleep: a peer may have to be greeted again before the deadline.
    fn next_look(&self, deadline: Deadline) -> Deadline {
        if !self.peers.iter().any(Peer::waits_for_greeting) {
            return deadline;
        }
        let soon = Instant::now() + GREETING_INTERVAL;
        match deadline {
            Deadline::At(instant) if instant < soon => deadline,
            _ => Deadline::At(soon),
        }
    }

    fn check_peer(&self, node: u32) -> Result<(), Error> {
        if node < self.nodes() && node != self.node() {
            return Ok(());
        }
        let range = format!("less than {} and not this node, {}", self.nodes(), self.node());
        Err(Error::BadValue { what: "the other node", value: node.into(), range })
    }

    fn transfer_error(&self, operation: &'static str, outcome: Outcome) -> Error {
        let Address { port, .. } = self.port.address();
        Error::Transfer { device: self.port.link.name(), port, operation, outcome }
    }
}

/// Messages that a sender may be ahead of each receiver: as many as wanted, while each of them, wherever it is on its way,
/// finds room for its events. A message causes at most three at its receiver (stored in a slab, which is unlinked; claimed),
/// and a reply; two at its sender (acknowledged, fetched).
fn credits(events: u32, nodes: u32, wanted: u32) -> Result<u64, Error> {
    const EVENTS_OF_A_MESSAGE: u64 = 6;
    /// Greetings and credits of all peers together, and a command or two of our own.
    const SPARE: u64 = 16;
    /// Most messages of all peers together: what a card keeps in mind of unexpected ones is bounded.
    const MOST: u64 = 256;
    let others = u64::from(nodes).saturating_sub(1).max(1);
    let found = u64::from(events).saturating_sub(SPARE + 3 * others) / (EVENTS_OF_A_MESSAGE * others);
    let credits = found.min(MOST / others).min(wanted.into());
    if credits >= 2 {
        return Ok(credits);
    }
    Err(Error::BadValue {
        what: "the number of events of the port, or of credits,",
        value: events.min(wanted).into(),
        range: format!("at least 2 credits and {} events for {nodes} nodes", SPARE + 15 * others),
    })
}

fn is_over(deadline: Deadline) -> bool {
    matches!(deadline, Deadline::At(instant) if Instant::now() >= instant)
}
