//! The limit that ends an endless run: two cards that answer each other, a deadline that is never met, or messages that
//! a sender retransmits faster than the receiver acknowledges them.

use std::collections::BTreeMap;
use std::fmt;

use niclab_model::time::{Span, Time};

use crate::queue::Event;

/// Model time that may pass with timeouts alone, without a message sent or received. The interval of credit probes
/// doubles up to 100 ms. So each port has asked at least twenty times, and what has not arrived by then is lost.
pub(crate) const FUTILE: Span = Span::from_ns(3_000_000_000);

/// Maximum number of events for each node without progress, apart from those of a long message. In three thousand
/// random runs no wait that ended took more than 2,500 events for each node.
const EVENTS_PER_NODE: u64 = 200_000;

/// After a long wait, this number of messages allows another wait of the same length. A run whose progress becomes ever
/// slower is endless as well.
const MESSAGES_BETWEEN_WAITS: u64 = 20;

/// Number of events that each stored byte of a message allows. An expensive case is a message in packets of four bytes,
/// of which every third is lost. A sender that goes back to the missing packet resends a window for each few packets
/// that arrive, and the receiver acknowledges each packet.
const EVENTS_PER_BYTE: u64 = 1_000;

/// Limits the number of events without progress.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    most: u64,
    left: u64,
    progress: Progress,
    /// Bytes of all messages that can be in flight at once. Bytes stored beyond these without a complete message are no
    /// progress.
    most_bytes: u64,
    bytes_left: u64,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// A number that rises with messages, and only a bounded number of times for each one.
    pub messages: u64,
    /// Bytes of messages that were stored; a byte that is stored twice counts twice.
    pub stored_bytes: u64,
}

impl Bound {
    /// The limit for this number of nodes, with messages of up to `message_bytes`. A frame has at least one byte, so
    /// the limit rises with the message length, and a long message does not count as an endless run.
    #[must_use]
    pub fn new(nodes: usize, message_bytes: u32) -> Self {
        let nodes = nodes as u64;
        let most = nodes.saturating_mul(EVENTS_PER_NODE + u64::from(message_bytes));
        let most_bytes = nodes.saturating_mul(nodes).saturating_mul(message_bytes.into());
        Self { most, left: most, progress: Progress::default(), most_bytes, bytes_left: most_bytes }
    }

    /// Counts an event, after which `progress` was reached. Returns whether another one is allowed.
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

    /// Counts `events` events whose order is unknown, after which `progress` was reached. True only if [`Self::allows`]
    /// would have returned true for each of them in any order, with a margin. Stored bytes are ignored.
    pub fn allows_many(&mut self, events: u64, progress: Progress) -> bool {
        if progress.messages != self.progress.messages {
            self.left = self.left.saturating_add(self.most / MESSAGES_BETWEEN_WAITS).min(self.most);
            self.progress.messages = progress.messages;
        }
        self.left = self.left.saturating_sub(events);
        events < self.most_at_once() && self.left > self.most / 2
    }

    /// A number of events at which [`Self::allows_many`] always returns false.
    #[must_use]
    pub const fn most_at_once(&self) -> u64 {
        self.most / 4
    }

    /// The limit.
    #[must_use]
    pub const fn most(&self) -> u64 {
        self.most
    }
}

/// Kinds of events in the report.
const KINDS: [&str; 5] = [
    "frames sent",
    "frames through the switch",
    "frames received",
    "steps of its program",
    "deadlines of its card",
];

/// Counts the events at the end of an endless run, to show which ones repeat.
#[derive(Debug, Default)]
pub struct Rounds {
    /// Number of events by node and kind.
    events: BTreeMap<u16, [u64; KINDS.len()]>,
    count: u64,
    first: Option<Time>,
    last: Time,
}

impl Rounds {
    /// Counts an event.
    pub fn add(&mut self, at: Time, node: u16, event: Event) {
        let kind = match event {
            Event::Depart { .. } => 0,
            Event::Cross { .. } => 1,
            Event::Arrive { .. } => 2,
            Event::Host => 3,
            Event::Timeout | Event::FirmwareReload | Event::Silence => 4,
        };
        self.events.entry(node).or_default()[kind] += 1;
        self.count += 1;
        self.first.get_or_insert(at);
        self.last = self.last.max(at);
    }

    /// Number of events counted.
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
