//! Sends and receives with the semantics of MPI, on a [`Port`] that matches messages itself:
//! [`niclab_port::lists::messages`], which has the rules, with the waiting.
//!
//! Nothing goes on between calls: [`Endpoint::progress`], or any call that waits, reads events and answers them.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use niclab_port::command::Memory as _;
use niclab_port::lists::messages::{Ended, Messages, Place, Terms};
pub use niclab_port::lists::messages::{Message, Request};

use super::{Event, Outcome, Port, Region};
use crate::{Deadline, Error, WaitPolicy};

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

/// One node's end of the messages between all nodes that have the same port open.
///
/// A [`Request`] that was begun ends with [`Endpoint::wait`] or [`Endpoint::test`].
#[derive(Debug)]
pub struct Endpoint {
    port: Port,
    messages: Messages<Region>,
    /// Events that were read while a command waited for a slot.
    inbox: VecDeque<Event>,
    /// When peers that were not there are to be greeted again.
    greet_at: Option<Instant>,
}

impl Endpoint {
    /// Makes `port`, which nobody used yet, an end of the messages between nodes 0 to `nodes - 1`.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] when the port has too few events for so many nodes; what the port says.
    pub fn new(mut port: Port, nodes: u32, options: Options) -> Result<Self, Error> {
        port.set_wait_policy(options.policy);
        let events = port.events().capacity();
        let terms = Terms::new(events, nodes, options.eager_bytes as u64, options.credits);
        let terms = terms.map_err(|too_few| Error::BadValue {
            what: "the number of events of the port, or of credits,",
            value: events.min(options.credits).into(),
            range: too_few.to_string(),
        })?;
        let overflow = port.allocate(usize::try_from(terms.overflow_bytes()).unwrap_or(usize::MAX))?;
        let overflow = Place { part: overflow.all().part(&port.link)?, buffer: overflow };
        let messages = Messages::new(port.address(), terms, overflow);
        let mut endpoint = Self { port, messages, inbox: VecDeque::new(), greet_at: None };
        endpoint.flush()?;
        Ok(endpoint)
    }

    /// This node.
    pub fn node(&self) -> u32 {
        self.port.address().node
    }

    /// Nodes that can send to each other.
    pub fn nodes(&self) -> u32 {
        self.messages.nodes()
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

    /// Begins to send the bytes of `range` to another node. They must stay as they are until the request has ended,
    /// which it does when the message was stored at the receiver, or fetched by it.
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
        let place = self.place(region, range)?;
        self.check_peer(node)?;
        let request = self.messages.send(node, tag, place);
        self.flush()?;
        Ok(request)
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
        let place = self.place(region, range)?;
        let request = self.messages.receive(node, tag, place);
        self.flush()?;
        Ok(request)
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
            let next_look = self.next_look(deadline);
            match self.port.event(next_look) {
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
        if self.greeting_due().is_some_and(|at| Instant::now() >= at) {
            self.greet_at = None;
            self.messages.greet_again();
        }
        while let Some(event) = self.port.try_event() {
            self.on_event(&event)?;
        }
        self.flush()
    }

    fn on_event(&mut self, event: &Event) -> Result<(), Error> {
        let heard = self.messages.on_event(event);
        heard.map_err(|outcome| self.transfer_error("carry a command out", outcome))
    }

    /// Launches what is to be launched; while there is no slot, reads events, for whose places in the queue it may be
    /// waiting.
    fn flush(&mut self) -> Result<(), Error> {
        /// Longer than any daemon lets a slot wait; a dead one is found sooner.
        const LIMIT: Duration = Duration::from_secs(60);
        loop {
            while let Some(command) = self.messages.command() {
                self.port.launch_reading(command, &mut self.inbox, LIMIT)?;
                self.messages.on_launched();
            }
            let Some(event) = self.inbox.pop_front() else { return Ok(()) };
            self.on_event(&event)?;
        }
    }

    /// The result of a request that has ended; the request is forgotten then.
    fn take_ended(&mut self, request: &Request) -> Result<Option<Message>, Error> {
        match self.messages.take_ended(request) {
            Ended::No => Ok(None),
            Ended::Done(message) => Ok(Some(message)),
            Ended::Failed(outcome) => Err(self.transfer_error("move a message", outcome)),
            Ended::Unknown => Err(Error::BadValue {
                what: "the request",
                value: request.number(),
                range: "one that this endpoint began".into(),
            }),
        }
    }

    /// When a peer that was not there is to be greeted again, if there is one.
    fn greeting_due(&mut self) -> Option<Instant> {
        let waits = self.messages.waits_for_greeting();
        waits.then(|| *self.greet_at.get_or_insert_with(|| Instant::now() + GREETING_INTERVAL))
    }

    /// Until when a wait may sleep: a peer may have to be greeted again before the deadline.
    fn next_look(&mut self, deadline: Deadline) -> Deadline {
        match (self.greeting_due(), deadline) {
            (Some(soon), Deadline::At(instant)) => Deadline::At(soon.min(instant)),
            (Some(soon), _) => Deadline::At(soon),
            (None, _) => deadline,
        }
    }

    fn place(&self, region: &Region, range: Range<usize>) -> Result<Place<Region>, Error> {
        Ok(Place { buffer: region.clone(), part: region.span(range)?.part(&self.port.link)? })
    }

    fn check_peer(&self, node: u32) -> Result<(), Error> {
        if self.messages.has_peer(node) {
            return Ok(());
        }
        let range = format!("less than {} and not this node, {}", self.nodes(), self.node());
        Err(Error::BadValue { what: "the other node", value: node.into(), range })
    }

    fn transfer_error(&self, operation: &'static str, outcome: Outcome) -> Error {
        let port = self.port.address().port;
        Error::Transfer { device: self.port.link.name(), port, operation, outcome }
    }
}

fn is_over(deadline: Deadline) -> bool {
    matches!(deadline, Deadline::At(instant) if Instant::now() >= instant)
}
