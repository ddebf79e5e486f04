//! What a port can be asked to do: commands, built step by step and encoded as the contract says.

use std::sync::Arc;

use niclab_abi::matching::{
    ANY_NODE, ANY_PORT, COMMAND_ACK, COMMAND_APPEND, COMMAND_ARM_COUNTER, COMMAND_COUNT_ONLY, COMMAND_GET,
    COMMAND_INTERRUPT, COMMAND_PUT, COMMAND_SENT, COMMAND_UNLINK, COUNTERS, ENTRY_GET, ENTRY_MAX_SIZE,
    ENTRY_NO_UNLINK_EVENT, ENTRY_OVERFLOW, ENTRY_PUT, ENTRY_REMOTE_OFFSET, ENTRY_TRUNCATE, PORTALS,
    THRESHOLD_INFINITE,
};

use super::{Handle, Span};
use crate::port::Link;
use crate::{Address, Error};

/// Words of a command.
const WORDS: usize = 10;

/// A command as it stands in a slot.
pub struct Encoded {
    pub(super) words: [u64; WORDS],
    pub(super) code: u32,
}

/// What a port can be asked to do: [`Put`], [`Get`], [`Append`], [`Unlink`], [`ArmCounter`].
pub trait Command: sealed::Command {}
impl<T: sealed::Command> Command for T {}

pub(super) mod sealed {
    use super::{Arc, Encoded, Error, Link};

    pub trait Command {
        /// What it is called in an error.
        const NAME: &'static str;

        /// Its slot, for the port behind `link`.
        fn encode(&self, link: &Arc<Link>) -> Result<Encoded, Error>;
    }
}

/// A portal of a port of the cluster network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The port.
    pub port: Address,
    /// Its portal, from 0.
    pub portal: u32,
}

/// What put and get have in common.
#[derive(Clone, Copy, Debug)]
struct Transfer<'a> {
    target: Target,
    span: Span<'a>,
    match_bits: u64,
    header_data: u64,
    user: u64,
    remote_offset: u64,
    counter: Option<u32>,
    flags: u32,
}

impl<'a> Transfer<'a> {
    fn new(target: Target, span: Span<'a>) -> Self {
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

    fn encode(&self, command: u32, link: &Arc<Link>) -> Result<Encoded, Error> {
        let Address { node, port } = self.target.port;
        let place = place(self.span, link, self.target.portal)?
            | field("the target port", port.into(), ANY_PORT - 1)? << 40
            | field("the target node", node.into(), ANY_NODE - 1)? << 48;
        Ok(Encoded {
            words: [
                self.match_bits,
                self.header_data,
                self.user,
                place,
                self.span.offset(),
                self.span.bytes(),
                self.remote_offset,
                counter_word(self.counter)?,
                0,
                0,
            ],
            code: command | self.flags,
        })
    }
}

/// Word 3 but for its upper part: region and portal.
fn place(span: Span<'_>, link: &Arc<Link>, portal: u32) -> Result<u64, Error> {
    let portal = field("the portal", portal.into(), u64::from(PORTALS) - 1)?;
    Ok(u64::from(span.region_of(link)?) | portal << 32)
}

/// `value`, which must not exceed `most`.
fn field(what: &'static str, value: u64, most: u64) -> Result<u64, Error> {
    if value <= most {
        return Ok(value);
    }
    Err(Error::BadValue { what, value, range: format!("at most {most}") })
}

fn counter_word(counter: Option<u32>) -> Result<u64, Error> {
    counter.map_or(Ok(0), |counter| Ok(check_counter(counter)? + 1))
}

pub(super) fn check_counter(counter: u32) -> Result<u64, Error> {
    field("the counter", counter.into(), u64::from(COUNTERS) - 1)
}

/// Sends bytes to the first entry of a portal that matches.
///
/// Without flags nothing tells the initiator what became of it. Messages of one port to another take effect in the order
/// of their launches.
#[must_use = "a command does nothing until it is launched"]
#[derive(Clone, Copy, Debug)]
pub struct Put<'a>(Transfer<'a>);

impl<'a> Put<'a> {
    /// Sends `span`, which may be empty, to `target`.
    pub fn new(target: Target, span: Span<'a>) -> Self {
        Self(Transfer::new(target, span))
    }

    /// What entries compare; zero at first.
    pub fn match_bits(mut self, match_bits: u64) -> Self {
        self.0.match_bits = match_bits;
        self
    }

    /// A word for the receiver's event.
    pub fn header_data(mut self, header_data: u64) -> Self {
        self.0.header_data = header_data;
        self
    }

    /// A word that comes back with the events of this command.
    pub fn user(mut self, user: u64) -> Self {
        self.0.user = user;
        self
    }

    /// Where in the entry's memory it goes, if the entry leaves that to the initiator.
    pub fn remote_offset(mut self, offset: u64) -> Self {
        self.0.remote_offset = offset;
        self
    }

    /// Counts what [`Put::ack`] and [`Put::sent`] tell.
    pub fn counter(mut self, counter: u32) -> Self {
        self.0.counter = Some(counter);
        self
    }

    /// The receiving NIC interrupts its host once the event is stored.
    pub fn interrupt(mut self) -> Self {
        self.0.flags |= COMMAND_INTERRUPT;
        self
    }

    /// [`super::Kind::Acknowledged`] tells what became of it at the receiver.
    pub fn ack(mut self) -> Self {
        self.0.flags |= COMMAND_ACK;
        self
    }

    /// [`super::Kind::Sent`] tells when the memory may be used again.
    pub fn sent(mut self) -> Self {
        self.0.flags |= COMMAND_SENT;
        self
    }

    /// Successes are counted and not told by events.
    pub fn count_only(mut self) -> Self {
        self.0.flags |= COMMAND_COUNT_ONLY;
        self
    }
}

impl sealed::Command for Put<'_> {
    const NAME: &'static str = "put";

    #[inline]
    fn encode(&self, link: &Arc<Link>) -> Result<Encoded, Error> {
        self.0.encode(COMMAND_PUT, link)
    }
}

/// Fetches bytes from the first entry of a portal that matches. [`super::Kind::Reply`] tells when they are there.
#[must_use = "a command does nothing until it is launched"]
#[derive(Clone, Copy, Debug)]
pub struct Get<'a>(Transfer<'a>);

impl<'a> Get<'a> {
    /// Fetches as many bytes as `span` has from `target` into it.
    pub fn new(target: Target, span: Span<'a>) -> Self {
        Self(Transfer::new(target, span))
    }

    /// What entries compare; zero at first.
    pub fn match_bits(mut self, match_bits: u64) -> Self {
        self.0.match_bits = match_bits;
        self
    }

    /// A word that comes back with the events of this command.
    pub fn user(mut self, user: u64) -> Self {
        self.0.user = user;
        self
    }

    /// Where in the entry's memory the bytes begin, if the entry leaves that to the initiator.
    pub fn remote_offset(mut self, offset: u64) -> Self {
        self.0.remote_offset = offset;
        self
    }

    /// Counts the reply.
    pub fn counter(mut self, counter: u32) -> Self {
        self.0.counter = Some(counter);
        self
    }

    /// A success is counted and not told by an event.
    pub fn count_only(mut self) -> Self {
        self.0.flags |= COMMAND_COUNT_ONLY;
        self
    }
}

impl sealed::Command for Get<'_> {
    const NAME: &'static str = "get";

    fn encode(&self, link: &Arc<Link>) -> Result<Encoded, Error> {
        self.0.encode(COMMAND_GET, link)
    }
}

/// Appends a match entry to a portal of this port; the launch's [`Handle`] is the entry's.
///
/// Without more it takes one put of any match bits' value zero, from anywhere, that is not longer than its memory.
#[must_use = "a command does nothing until it is launched"]
#[derive(Clone, Copy, Debug)]
pub struct Append<'a> {
    portal: u32,
    span: Span<'a>,
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

impl<'a> Append<'a> {
    /// An entry for one put, with memory `span`.
    pub fn put(portal: u32, span: Span<'a>) -> Self {
        Self::new(portal, span, ENTRY_PUT)
    }

    /// An entry for one get, with memory `span`.
    pub fn get(portal: u32, span: Span<'a>) -> Self {
        Self::new(portal, span, ENTRY_GET)
    }

    /// An entry for one operation, put or get, with memory `span`.
    pub fn both(portal: u32, span: Span<'a>) -> Self {
        Self::new(portal, span, ENTRY_PUT | ENTRY_GET)
    }

    fn new(portal: u32, span: Span<'a>, flags: u32) -> Self {
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

    /// The match bits of messages that it takes, but for those that are set in `ignore`.
    pub fn match_bits(mut self, match_bits: u64, ignore: u64) -> Self {
        self.match_bits = match_bits;
        self.ignore_bits = ignore;
        self
    }

    /// A word that comes back with the events of this entry.
    pub fn user(mut self, user: u64) -> Self {
        self.user = user;
        self
    }

    /// Takes messages of this node only.
    pub fn source_node(mut self, node: u32) -> Self {
        self.source_node = Some(node);
        self
    }

    /// Takes messages of ports with this number only.
    pub fn source_port(mut self, port: u32) -> Self {
        self.source_port = Some(port);
        self
    }

    /// Takes so many operations, at least one, instead of one.
    pub fn threshold(mut self, operations: u32) -> Self {
        self.threshold = operations.into();
        self
    }

    /// Takes any number of operations.
    pub fn persistent(mut self) -> Self {
        self.threshold = THRESHOLD_INFINITE;
        self
    }

    /// Is unlinked once fewer bytes than this are left ("min free"). An entry whose offset the initiator says does not match
    /// where fewer are left, and stays. With [`Self::truncate`] this says nothing: messages are cut instead.
    pub fn max_size(mut self, bytes: u64) -> Self {
        self.max_size = bytes;
        self.flags |= ENTRY_MAX_SIZE;
        self
    }

    /// Cuts messages that are too long, instead of not matching them; in the end to nothing, when no bytes are left.
    pub fn truncate(mut self) -> Self {
        self.flags |= ENTRY_TRUNCATE;
        self
    }

    /// The initiator says the offset. Otherwise the entry keeps its own, which moves on with each message.
    pub fn remote_offset(mut self) -> Self {
        self.flags |= ENTRY_REMOTE_OFFSET;
        self
    }

    /// For the overflow list: takes what no posted entry does.
    pub fn overflow(mut self) -> Self {
        self.flags |= ENTRY_OVERFLOW;
        self
    }

    /// No event when it unlinks itself.
    pub fn no_unlink_event(mut self) -> Self {
        self.flags |= ENTRY_NO_UNLINK_EVENT;
        self
    }

    /// Counts its operations.
    pub fn counter(mut self, counter: u32) -> Self {
        self.counter = Some(counter);
        self
    }

    /// Successes are counted and not told by events.
    pub fn count_only(mut self) -> Self {
        self.flags |= COMMAND_COUNT_ONLY;
        self
    }
}

impl sealed::Command for Append<'_> {
    const NAME: &'static str = "append a match entry";

    fn encode(&self, link: &Arc<Link>) -> Result<Encoded, Error> {
        let source = |what, value: Option<u32>, any: u64| {
            value.map_or(Ok(any), |value| field(what, value.into(), any - 1))
        };
        let place = place(self.span, link, self.portal)?
            | source("the source port", self.source_port, ANY_PORT)? << 40
            | source("the source node", self.source_node, ANY_NODE)? << 48;
        Ok(Encoded {
            words: [
                self.match_bits,
                self.ignore_bits,
                self.user,
                place,
                self.span.offset(),
                self.span.bytes(),
                self.threshold,
                counter_word(self.counter)?,
                self.max_size,
                0,
            ],
            code: COMMAND_APPEND | self.flags,
        })
    }
}

/// Unlinks the entry with this handle; answered by [`super::Kind::Unlinked`].
#[must_use = "a command does nothing until it is launched"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlink(pub Handle);

impl sealed::Command for Unlink {
    const NAME: &'static str = "unlink";

    fn encode(&self, _: &Arc<Link>) -> Result<Encoded, Error> {
        let mut words = [0; WORDS];
        words[0] = self.0.0.into();
        Ok(Encoded { words, code: COMMAND_UNLINK })
    }
}

/// One interrupt as soon as a counter has `successes`; zero disarms it.
#[must_use = "a command does nothing until it is launched"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmCounter {
    /// The counter.
    pub counter: u32,
    /// Its successes.
    pub successes: u64,
}

impl sealed::Command for ArmCounter {
    const NAME: &'static str = "arm a counter";

    fn encode(&self, _: &Arc<Link>) -> Result<Encoded, Error> {
        let mut words = [0; WORDS];
        words[0] = check_counter(self.counter)?;
        words[1] = self.successes;
        Ok(Encoded { words, code: COMMAND_ARM_COUNTER })
    }
}
