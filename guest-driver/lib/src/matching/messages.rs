//! Sends and receives with the semantics of MPI, on a [`Port`] whose NIC matches messages.
//! [`niclab_port::matching::messages`] has the rules; this module adds the waiting.
//!
//! No progress is made between calls: [`Endpoint::progress`], or any call that waits, reads and processes events.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use niclab_port::command::Memory as _;
use niclab_port::matching::messages::{BufferPart, Ended, Messages, Terms};
pub use niclab_port::matching::messages::{Message, Request};

use super::{Event, Outcome, Port, Region};
use crate::{Batching as _, Deadline, Error, WaitPolicy};

/// Interval between greetings to a peer that has not opened its port yet.
const GREETING_INTERVAL: Duration = Duration::from_millis(1);

/// Options of an endpoint; the defaults suit most programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Longest message that is sent at once; the receiver fetches longer ones.
    pub eager_bytes: usize,
    /// Maximum number of messages that a sender may be ahead of each receiver; fewer if the event queue is small.
    pub credits: u32,
    /// How calls wait.
    pub policy: WaitPolicy,
}

impl Default for Options {
    fn default() -> Self {
        Self { eager_bytes: 4096, credits: 16, policy: WaitPolicy::ADAPTIVE }
    }
}

/// A node's endpoint for messages between all nodes that have the same port open.
///
/// Each [`Request`] must be ended with [`Endpoint::wait`] or [`Endpoint::test`].
#[derive(Debug)]
pub struct Endpoint {
    port: Port,
    messages: Messages<Region>,
    /// Events that were read while a command waited for a slot.
    inbox: VecDeque<Event>,
    /// Time of the next greeting to peers that were absent.
    greet_at: Option<Instant>,
}

impl Endpoint {
    /// Makes an unused `port` an endpoint for messages between nodes 0 to `nodes - 1`.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] if the port has too few events for this number of nodes; those of the port.
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
        let overflow = BufferPart { part: overflow.all().part(&port.link)?, buffer: overflow };
        let messages = Messages::new(port.address(), terms, overflow);
        let mut endpoint = Self { port, messages, inbox: VecDeque::new(), greet_at: None };
        endpoint.flush()?;
        Ok(endpoint)
    }

    /// This node.
    pub fn node(&self) -> u32 {
        self.port.address().node
    }

    /// Number of nodes that can send to each other.
    pub fn nodes(&self) -> u32 {
        self.messages.nodes()
    }

    /// The port.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Allocates memory for messages: at least `bytes` bytes.
    ///
    /// # Errors
    ///
    /// Those of [`Port::allocate`].
    pub fn allocate(&self, bytes: usize) -> Result<Region, Error> {
        self.port.allocate(bytes)
    }

    /// Begins to send the bytes of `range` to another node. They must not change until the request has ended. It ends
    /// when the message was stored at the receiver, or fetched by it.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] for a range beyond the region, an invalid node or this node; those of the port.
    pub fn isend(
        &mut self,
        node: u32,
        tag: u32,
        region: &Region,
        range: Range<usize>,
    ) -> Result<Request, Error> {
        let buffer = self.buffer_part(region, range)?;
        self.check_peer(node)?;
        let request = self.messages.send(node, tag, buffer);
        self.flush()?;
        Ok(request)
    }

    /// Begins to receive into the bytes of `range`, from a node or from any, with a tag or with any. The bytes belong
    /// to the request until it has ended.
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
        let buffer = self.buffer_part(region, range)?;
        let request = self.messages.receive(node, tag, buffer);
        self.flush()?;
        Ok(request)
    }

    /// Ends a request if it is done, and returns its message. Otherwise returns the request.
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`], which ends the request; those of the port.
    pub fn test(&mut self, request: Request) -> Result<Result<Message, Request>, Error> {
        self.progress()?;
        Ok(self.take_ended(&request)?.ok_or(request))
    }

    /// Waits until the request is done, and returns its message.
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`]; [`Error::TimedOut`], after which the operation continues, but cannot be waited for any
    /// more; those of the port.
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
                // Not the caller's timeout: a peer must be greeted again.
                Err(Error::TimedOut { .. }) if !is_over(deadline) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a message, and waits until it was sent.
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

    /// Receives a message, and waits for it.
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

    /// Processes all received events.
    ///
    /// # Errors
    ///
    /// Those of the port.
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

    /// Posts all pending commands. If no slot is free, reads events, because the device may wait for their slots in the
    /// event queue.
    fn flush(&mut self) -> Result<(), Error> {
        self.port.begin_batch();
        let posted = self.post_all();
        self.port.end_batch();
        posted
    }

    fn post_all(&mut self) -> Result<(), Error> {
        /// Longer than any working daemon takes to free a slot; a dead one is detected sooner.
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

    /// The result of a request, if it has ended. The endpoint then forgets the request.
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

    /// Time of the next greeting, if a peer was absent.
    fn greeting_due(&mut self) -> Option<Instant> {
        let waits = self.messages.waits_for_greeting();
        waits.then(|| *self.greet_at.get_or_insert_with(|| Instant::now() + GREETING_INTERVAL))
    }

    /// How long a wait may sleep: until the deadline, or until the next greeting if that is earlier.
    fn next_look(&mut self, deadline: Deadline) -> Deadline {
        match (self.greeting_due(), deadline) {
            (Some(soon), Deadline::At(instant)) => Deadline::At(soon.min(instant)),
            (Some(soon), _) => Deadline::At(soon),
            (None, _) => deadline,
        }
    }

    fn buffer_part(&self, region: &Region, range: Range<usize>) -> Result<BufferPart<Region>, Error> {
        Ok(BufferPart { buffer: region.clone(), part: region.span(range)?.part(&self.port.link)? })
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
