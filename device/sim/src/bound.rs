//! What ends a run that would go on for ever: two cards that answer each other, a deadline that is never met, letters
//! that go again faster than they are acknowledged.

use std::collections::BTreeMap;
use std::fmt;

use niclab_model::time::{Span, Time};

use crate::queue::Event;

/// How long deadlines alone may go on, in model time, with no message sent or received. Credit probes double up to 100
/// ms, so that each port has asked at least twenty times: what has not come by then was lost.
pub(crate) const FUTILE: Span = Span::from_ns(3_000_000_000);

/// Events of each node without progress, apart from those that a long message takes. In three thousand random runs no
/// wait that came to an end took more than 2,500 of them.
const EVENTS_PER_NODE: u64 = 200_000;

/// So many messages after a long wait allow another one as long: progress that becomes ever slower is an endless run as
/// well.
const MESSAGES_BETWEEN_WAITS: u64 = 20;

/// Events for which a byte allows that was stored of a message. In packets of four bytes, of which every third is lost,
/// a sender that goes back to what is missing sends a window again for each few that arrive, and each of these is
/// acknowledged.
const EVENTS_PER_BYTE: u64 = 1_000;

/// How many events may pass without progress.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    most: u64,
    left: u64,
    progress: Progress,
    /// Bytes of all messages that can be under way at once: what is stored without end, and makes up no message, is no
    /// progress.
    most_bytes: u64,
    bytes_left: u64,
}

/// What has been achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// A number that rises with messages, and only so often.
    pub messages: u64,
    /// Bytes of messages that were stored, however often.
    pub stored_bytes: u64,
}

impl Bound {
    /// The bound for so many nodes, the longest of whose messages has so many bytes: no frame has fewer than one, so
    /// that a long message is not taken for an endless run.
    #[must_use]
    pub fn new(nodes: usize, message_bytes: u32) -> Self {
        let nodes = nodes as u64;
        let most = nodes.saturating_mul(EVENTS_PER_NODE + u64::from(message_bytes));
        let most_bytes = nodes.saturating_mul(nodes).saturating_mul(message_bytes.into());
        Self { most, left: most, progress: Progress::default(), most_bytes, bytes_left: most_bytes }
    }

    /// Whether another event may pass when there was so much progress.
    #[inline]
    pub fn allows(&mut self, progress: Progress) -> bool {
        if progress != self.progress {
            let bytes = (progress.stored_bytes - self.progress.stored_bytes).min(self.bytes_left);
            self.bytes_left -= bytes;
            let mut more = bytes.saturating_mul(EVENTS_PER_BYTE);
            if progress.messages != self.progress.messages {
                self.bytes_left = self.most_bytes;
                more = more.saturating_add(self.most / MESSAGES_BETWEEN_WAITS);
            }
            self.left = self.left.saturating_add(more).min(self.most);
            self.progress = progress;
        }
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }

    /// Whether so many events more, of which nobody knows the order, cannot have come near the bound, by the end of
    /// which there was so much progress: were they asked for one by one, [`Self::allows`] would have said so of each.
    /// Bytes do not count.
    pub fn allows_many(&mut self, events: u64, progress: Progress) -> bool {
        if progress.messages != self.progress.messages {
            self.left = self.left.saturating_add(self.most / MESSAGES_BETWEEN_WAITS).min(self.most);
            self.progress.messages = progress.messages;
        }
        self.left = self.left.saturating_sub(events);
        events < self.most_at_once() && self.left > self.most / 2
    }

    /// So many events at once [`Self::allows_many`] never allows.
    #[must_use]
    pub const fn most_at_once(&self) -> u64 {
        self.most / 4
    }

    /// The bound.
    #[must_use]
    pub const fn most(&self) -> u64 {
        self.most
    }
}

/// Kinds of events.
const KINDS: [&str; 5] = [
    "frames sent",
    "frames through the switch",
    "frames received",
    "steps of its program",
    "deadlines of its card",
];

/// What goes round, as some events show it.
#[derive(Debug, Default)]
pub struct Rounds {
    /// By node and kind.
    events: BTreeMap<u16, [u64; KINDS.len()]>,
    count: u64,
    first: Option<Time>,
    last: Time,
}

impl Rounds {
    /// An event passed.
    pub fn add(&mut self, at: Time, node: u16, event: Event) {
        let kind = match event {
            Event::Depart { .. } => 0,
            Event::Cross { .. } => 1,
            Event::Arrive { .. } => 2,
            Event::Host => 3,
            Event::Timeout | Event::HandOver | Event::Silence => 4,
        };
        self.events.entry(node).or_default()[kind] += 1;
        self.count += 1;
        self.first.get_or_insert(at);
        self.last = self.last.max(at);
    }

    /// Events that were added.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }
}

impl fmt::Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |kinds: &[u64; KINDS.len()]| kinds.iter().sum::<u64>();
        let all = self.count;
        let first = self.first.unwrap_or_default();
        let took_ps = self.last.since(first).as_ps();
        write!(f, "of the next {all} events, which took {took_ps} ps, node ")?;
        let Some((node, kinds)) = self.events.iter().max_by_key(|(_, kinds)| sum(kinds)) else {
            return write!(f, "none had any");
        };
        write!(f, "{node} had {}:", sum(kinds))?;
        let had = KINDS.iter().zip(kinds).filter(|(_, count)| **count > 0);
        for (place, (kind, count)) in had.enumerate() {
            write!(f, "{} {count} {kind}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}
