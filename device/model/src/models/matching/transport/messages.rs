//! Messages between a transport and its user: those to send, those that arrive, and the calls to the user.

use crate::models::matching::counters::Effects;
use crate::models::matching::wire::Header;
use crate::parts::regions::Region;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// A part of a region. If it has no bytes, region and offset have no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::models::matching) struct RegionPart {
    pub(in crate::models::matching) region: u32,
    pub(in crate::models::matching) offset: u64,
    pub(in crate::models::matching) bytes: u64,
}

impl RegionPart {
    /// Memory of no bytes.
    pub(in crate::models::matching) const NONE: Self = Self { region: 0, offset: 0, bytes: 0 };

    /// Whether it touches the region.
    pub(in crate::models::matching) const fn is_in(&self, region: u32) -> bool {
        self.bytes > 0 && self.region == region
    }
}

/// The owner of a message on this card, whom the transport notifies of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::models::matching) enum Owner {
    /// The message has no owner.
    Unowned,
    /// A command of the port, by its token.
    Initiator(u64),
    /// An operation of one of the port's entries, by its number.
    Target(u64),
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub(in crate::models::matching) struct Outgoing {
    /// The destination node.
    pub(in crate::models::matching) node: u16,
    pub(in crate::models::matching) header: Header,
    /// Its data.
    pub(in crate::models::matching) memory: RegionPart,
    pub(in crate::models::matching) ready: Time,
    pub(in crate::models::matching) message: Option<TraceTag>,
    pub(in crate::models::matching) owner: Owner,
}

/// The user's decision on a message that begins to arrive.
#[derive(Clone, Copy, Debug)]
pub(in crate::models::matching) struct Beginning {
    pub(in crate::models::matching) owner: Owner,
    /// Memory for the part of the message that is stored.
    pub(in crate::models::matching) memory: RegionPart,
    /// When this is decided. Nothing is stored earlier.
    pub(in crate::models::matching) ready: Time,
    /// An immediate answer to the sender.
    pub(in crate::models::matching) answer: Option<Outgoing>,
}

/// A message that has ended.
#[derive(Clone, Copy, Debug)]
pub(in crate::models::matching) struct Arrived {
    pub(in crate::models::matching) owner: Owner,
    /// The port of this card to which the message belongs.
    pub(in crate::models::matching) port: usize,
    pub(in crate::models::matching) header: Header,
    pub(in crate::models::matching) message: Option<TraceTag>,
    /// Bytes of it that were stored.
    pub(in crate::models::matching) bytes: u64,
    /// `RESULT_OK`, or why the message ended early.
    pub(in crate::models::matching) result: u32,
}

/// The unit that sends and receives messages over a transport.
pub(in crate::models::matching) trait MessageUser {
    /// Receives the card's effects.
    fn effects(&mut self) -> &mut Effects;

    /// A port's region, while it is registered.
    fn region(&self, port: usize, name: u32) -> Option<&Region>;

    /// A message begins to arrive. Returns where its data goes.
    fn on_begin(&mut self, now: Time, header: &Header, message: Option<TraceTag>) -> Beginning;

    /// A message with an owner has arrived completely, or never will. Returns the answer for its sender.
    fn on_end(&mut self, at: Time, arrived: Arrived) -> Option<Outgoing>;

    /// All of a message has left its memory and is at the other card, or never will; the result gives the reason.
    fn on_left(&mut self, at: Time, port: usize, owner: Owner, result: u32);
}
