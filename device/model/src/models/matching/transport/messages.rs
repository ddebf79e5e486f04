//! Messages as a transport's user has them: what is sent, what comes, and whom the transport asks and tells.

use crate::models::matching::counters::Effects;
use crate::models::matching::wire::Header;
use crate::parts::regions::Region;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Part of a region. Of no bytes at all neither region nor offset matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::models::matching) struct Memory {
    pub(in crate::models::matching) region: u32,
    pub(in crate::models::matching) offset: u64,
    pub(in crate::models::matching) bytes: u64,
}

impl Memory {
    /// Memory of no bytes.
    pub(in crate::models::matching) const NONE: Self = Self { region: 0, offset: 0, bytes: 0 };

    /// Whether it touches the region.
    pub(in crate::models::matching) const fn is_in(&self, region: u32) -> bool {
        self.bytes > 0 && self.region == region
    }
}

/// Whose a message is on this card, where anybody's: whom the transport tells what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::models::matching) enum Owner {
    /// Nobody's.
    Nobody,
    /// A command's that the port launched, by its token.
    Initiator(u64),
    /// An operation's of one of the port's entries, by its number.
    Target(u64),
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub(in crate::models::matching) struct Outgoing {
    /// The node that gets it.
    pub(in crate::models::matching) node: u16,
    pub(in crate::models::matching) header: Header,
    /// Its data.
    pub(in crate::models::matching) memory: Memory,
    pub(in crate::models::matching) ready: Time,
    pub(in crate::models::matching) message: Option<TraceTag>,
    pub(in crate::models::matching) owner: Owner,
}

/// What becomes of a message that begins to arrive.
#[derive(Clone, Copy, Debug)]
pub(in crate::models::matching) struct Beginning {
    pub(in crate::models::matching) owner: Owner,
    /// As much of it as is stored, and where.
    pub(in crate::models::matching) memory: Memory,
    /// When that is decided: nothing is stored before.
    pub(in crate::models::matching) ready: Time,
    /// What the sender is told at once.
    pub(in crate::models::matching) answer: Option<Outgoing>,
}

/// A message that has ended.
#[derive(Clone, Copy, Debug)]
pub(in crate::models::matching) struct Arrived {
    pub(in crate::models::matching) owner: Owner,
    /// The port of this card whose message it is.
    pub(in crate::models::matching) port: usize,
    pub(in crate::models::matching) header: Header,
    pub(in crate::models::matching) message: Option<TraceTag>,
    /// Bytes of it that were stored.
    pub(in crate::models::matching) bytes: u64,
    /// `RESULT_OK`, or why it ended before its end.
    pub(in crate::models::matching) result: u32,
}

/// Who sends and receives messages over a transport.
pub(in crate::models::matching) trait MessageUser {
    /// Where effects go.
    fn effects(&mut self) -> &mut Effects;

    /// A port's region, while it is registered.
    fn region(&self, port: usize, name: u32) -> Option<&Region>;

    /// A message begins to arrive: where its data goes.
    fn on_begin(&mut self, now: Time, header: &Header, message: Option<TraceTag>) -> Beginning;

    /// A message with an owner has arrived to its end, or never will. Returns what its sender is told.
    fn on_end(&mut self, at: Time, arrived: Arrived) -> Option<Outgoing>;

    /// All of a message has left its memory and is at the other card, or it will not: the result says why.
    fn on_left(&mut self, at: Time, port: usize, owner: Owner, result: u32);
}
