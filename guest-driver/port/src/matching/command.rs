//! The commands of a port: they are built step by step and encoded as the contract requires.

use niclab_abi::matching::{
    ANY_NODE, ANY_PORT, AppendCommand, ArmCounterCommand, COMMAND_ACK, COMMAND_APPEND, COMMAND_ARM_COUNTER,
    COMMAND_COUNT_ONLY, COMMAND_GET, COMMAND_INTERRUPT, COMMAND_PUT, COMMAND_SENT, COMMAND_UNLINK, COUNTERS,
    ENTRY_GET, ENTRY_MAX_SIZE, ENTRY_NO_UNLINK_EVENT, ENTRY_OVERFLOW, ENTRY_PUT, ENTRY_REMOTE_OFFSET,
    ENTRY_TRUNCATE, PORTALS, THRESHOLD_INFINITE, TransferCommand, UnlinkCommand,
};

use super::Handle;
use crate::command::{Command, Encoded, Memory};
use crate::{Address, BadValue};

/// A portal of a port of the cluster network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The port.
    pub port: Address,
    /// Its portal, from 0.
    pub portal: u32,
}

/// A transfer of bytes from one port to another; `COMMAND` is its number in the contract: [`Put`], [`Get`].
///
/// Messages of one port to another take effect in the order of their posts.
#[must_use = "a command does nothing until it is launched"]
#[derive(Clone, Copy, Debug)]
pub struct Transfer<S, const COMMAND: u32> {
    target: Target,
    span: S,
    match_bits: u64,
    header_data: u64,
    user: u64,
    remote_offset: u64,
    counter: Option<u32>,
    flags: u32,
}

/// Sends bytes to the first matching entry of a portal. Without flags the initiator gets no report of the result.
pub type Put<S> = Transfer<S, COMMAND_PUT>;

/// Fetches bytes from the first matching entry of a portal into its span, as many as fit. [`super::EventKind::Reply`]
/// reports when they are stored.
pub type Get<S> = Transfer<S, COMMAND_GET>;

impl<S, const COMMAND: u32> Transfer<S, COMMAND> {
    /// A transfer between `span`, which may be empty, and `target`.
    pub fn new(target: Target, span: S) -> Self {
        Self {
            target,
            span,
            match_bits: 0,
            header_data: 0,
            user: 0,
            remote_offset: 0,
            counter: None,
            flags: 0,
        }
    }

    /// The bits that entries compare; zero by default.
    pub fn match_bits(mut self, match_bits: u64) -> Self {
        self.match_bits = match_bits;
        self
    }

    /// A word that the events of this command return.
    pub fn user(mut self, user: u64) -> Self {
        self.user = user;
        self
    }

    /// Offset of the bytes in the entry's memory, if the entry leaves it to the initiator.
    pub fn remote_offset(mut self, offset: u64) -> Self {
        self.remote_offset = offset;
        self
    }

    /// Counts the results at the initiator: of a put those of [`Put::ack`] and [`Put::sent`], of a get the reply.
    pub fn counter(mut self, counter: u32) -> Self {
        self.counter = Some(counter);
        self
    }

    /// Successes are counted, without events.
    pub fn count_only(mut self) -> Self {
        self.flags |= COMMAND_COUNT_ONLY;
        self
    }
}

impl<S> Put<S> {
    /// A word for the receiver's event.
    pub fn header_data(mut self, header_data: u64) -> Self {
        self.header_data = header_data;
        self
    }

    /// The receiving NIC interrupts its host once the event is stored.
    pub fn interrupt(mut self) -> Self {
        self.flags |= COMMAND_INTERRUPT;
        self
    }

    /// [`super::EventKind::Acknowledged`] reports the result at the receiver.
    pub fn ack(mut self) -> Self {
        self.flags |= COMMAND_ACK;
        self
    }

    /// [`super::EventKind::Sent`] reports when the memory may be reused.
    pub fn sent(mut self) -> Self {
        self.flags |= COMMAND_SENT;
        self
    }
}

impl<P, E, S, const COMMAND: u32> Command<P, E> for Transfer<S, COMMAND>
where
    P: ?Sized,
    E: From<BadValue>,
    S: Memory<P, E>,
{
    const NAME: &'static str = if COMMAND == COMMAND_PUT { "put" } else { "get" };

    #[inline]
    fn encode(&self, port: &P) -> Result<Encoded, E> {
        let part = self.span.part(port)?;
        let Address { node, port } = self.target.port;
        let command = TransferCommand {
            match_bits: self.match_bits,
            header_data: self.header_data,
            user: self.user,
            region: part.region,
            portal: check_portal(self.target.portal)?,
            port: BadValue::check("the target port", port.into(), ANY_PORT - 1)? as u8,
            node: BadValue::check("the target node", node.into(), ANY_NODE - 1)? as u16,
            offset: part.offset,
            bytes: part.bytes,
            remote_offset: self.remote_offset,
            counter: counter_word(self.counter)?,
        };
        Ok(Encoded::new(&command, COMMAND | self.flags))
    }
}

fn check_portal(portal: u32) -> Result<u8, BadValue> {
    Ok(BadValue::check("the portal", portal.into(), u64::from(PORTALS) - 1)? as u8)
}

fn counter_word(counter: Option<u32>) -> Result<u64, BadValue> {
    counter.map_or(Ok(0), |counter| Ok(check_counter(counter)? + 1))
}

/// Refuses a counter that does not exist.
///
/// # Errors
/// [`BadValue`].
pub fn check_counter(counter: u32) -> Result<u64, BadValue> {
    BadValue::check("the counter", counter.into(), u64::from(COUNTERS) - 1)
}

/// Appends a match entry to a portal of this port; the post's [`Handle`] is that of the entry.
///
/// By default it accepts one put from any source, with match bits zero, that is not longer than its memory.
#[must_use = "a command does nothing until it is launched"]
#[derive(Clone, Copy, Debug)]
pub struct Append<S> {
    portal: u32,
    span: S,
    match_bits: u64,
    ignore_bits: u64,
    user: u64,
    source_node: Option<u32>,
    source_port: Option<u32>,
    threshold: u64,
    max_size: u64,
    counter: Option<u32>,
    flags: u32,
}

impl<S> Append<S> {
    /// An entry for one put, with memory `span`.
    pub fn put(portal: u32, span: S) -> Self {
        Self::new(portal, span, ENTRY_PUT)
    }

    /// An entry for one get, with memory `span`.
    pub fn get(portal: u32, span: S) -> Self {
        Self::new(portal, span, ENTRY_GET)
    }

    /// An entry for one operation, put or get, with memory `span`.
    pub fn both(portal: u32, span: S) -> Self {
        Self::new(portal, span, ENTRY_PUT | ENTRY_GET)
    }

    fn new(portal: u32, span: S, flags: u32) -> Self {
        Self {
            portal,
            span,
            match_bits: 0,
            ignore_bits: 0,
            user: 0,
            source_node: None,
            source_port: None,
            threshold: 1,
            max_size: 0,
            counter: None,
            flags,
        }
    }

    /// The match bits of messages that it accepts, except for bits that are set in `ignore`.
    pub fn match_bits(mut self, match_bits: u64, ignore: u64) -> Self {
        self.match_bits = match_bits;
        self.ignore_bits = ignore;
        self
    }

    /// A word that the events of this entry return.
    pub fn user(mut self, user: u64) -> Self {
        self.user = user;
        self
    }

    /// Accepts messages of this node only.
    pub fn source_node(mut self, node: u32) -> Self {
        self.source_node = Some(node);
        self
    }

    /// Accepts messages of ports with this number only.
    pub fn source_port(mut self, port: u32) -> Self {
        self.source_port = Some(port);
        self
    }

    /// Accepts this number of operations, at least one, instead of one.
    pub fn threshold(mut self, operations: u32) -> Self {
        self.threshold = operations.into();
        self
    }

    /// Accepts any number of operations.
    pub fn persistent(mut self) -> Self {
        self.threshold = THRESHOLD_INFINITE;
        self
    }

    /// The entry is unlinked once fewer bytes than this are left ("min free"). If the initiator chooses the offset, the
    /// entry instead does not match if fewer are left, and stays linked. No effect with [`Self::truncate`], which
    /// truncates messages.
    pub fn max_size(mut self, bytes: u64) -> Self {
        self.max_size = bytes;
        self.flags |= ENTRY_MAX_SIZE;
        self
    }

    /// Truncates messages that are too long, instead of not matching them; to zero bytes if no bytes are left.
    pub fn truncate(mut self) -> Self {
        self.flags |= ENTRY_TRUNCATE;
        self
    }

    /// The initiator chooses the offset. Otherwise the entry has its own offset, which advances with each message.
    pub fn remote_offset(mut self) -> Self {
        self.flags |= ENTRY_REMOTE_OFFSET;
        self
    }

    /// Puts the entry into the overflow list, for messages that match no posted entry.
    pub fn overflow(mut self) -> Self {
        self.flags |= ENTRY_OVERFLOW;
        self
    }

    /// No event when the NIC unlinks the entry.
    pub fn no_unlink_event(mut self) -> Self {
        self.flags |= ENTRY_NO_UNLINK_EVENT;
        self
    }

    /// Counts its operations.
    pub fn counter(mut self, counter: u32) -> Self {
        self.counter = Some(counter);
        self
    }

    /// Successes are counted, without events.
    pub fn count_only(mut self) -> Self {
        self.flags |= COMMAND_COUNT_ONLY;
        self
    }
}

impl<P: ?Sized, E: From<BadValue>, S: Memory<P, E>> Command<P, E> for Append<S> {
    const NAME: &'static str = "append a match entry";

    fn encode(&self, port: &P) -> Result<Encoded, E> {
        let part = self.span.part(port)?;
        let source = |what, value: Option<u32>, any: u64| {
            value.map_or(Ok(any), |value| BadValue::check(what, value.into(), any - 1))
        };
        let command = AppendCommand {
            match_bits: self.match_bits,
            ignore_bits: self.ignore_bits,
            user: self.user,
            region: part.region,
            portal: check_portal(self.portal)?,
            port: source("the source port", self.source_port, ANY_PORT)? as u8,
            node: source("the source node", self.source_node, ANY_NODE)? as u16,
            offset: part.offset,
            bytes: part.bytes,
            threshold: self.threshold,
            counter: counter_word(self.counter)?,
            max_size: self.max_size,
        };
        Ok(Encoded::new(&command, COMMAND_APPEND | self.flags))
    }
}

/// Unlinks the entry with this handle; [`super::EventKind::Unlinked`] confirms it.
#[must_use = "a command does nothing until it is launched"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlink(pub Handle);

impl<P: ?Sized, E> Command<P, E> for Unlink {
    const NAME: &'static str = "unlink";

    fn encode(&self, _: &P) -> Result<Encoded, E> {
        let command = UnlinkCommand { handle: self.0.number(), reserved: 0 };
        Ok(Encoded::new(&command, COMMAND_UNLINK))
    }
}

/// Requests one interrupt when a counter reaches `successes`; zero cancels the request.
#[must_use = "a command does nothing until it is launched"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmCounter {
    /// The counter.
    pub counter: u32,
    /// Its successes.
    pub successes: u64,
}

impl<P: ?Sized, E: From<BadValue>> Command<P, E> for ArmCounter {
    const NAME: &'static str = "arm a counter";

    fn encode(&self, _: &P) -> Result<Encoded, E> {
        let counter = check_counter(self.counter)?;
        let command = ArmCounterCommand { counter, threshold: self.successes };
        Ok(Encoded::new(&command, COMMAND_ARM_COUNTER))
    }
}
