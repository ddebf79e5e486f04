//! What a Match card counts.

use crate::nic::{ShellCounts, Statistics};
use crate::parts::counters::CardCounters;
use crate::parts::effects;

/// The effects of a card's units on its node and the network.
pub(super) type Effects = effects::Effects<Counters>;

/// Counts since the card was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The counters that all cards have. A sent message is a put whose last frame was sent, or an answer to a get.
    /// Overruns are messages that were refused because a table or queue was full.
    pub card: CardCounters,
    /// Events written.
    pub events: u64,
    /// Frames that arrived again, or before a missing one.
    pub out_of_order: u64,
    /// Frames sent again.
    pub retransmissions: u64,
    /// Headers that were matched against a list.
    pub headers: u64,
    /// Entries that these headers were compared with.
    pub entries_traversed: u64,
    /// Cycles of the match unit.
    pub unit_cycles: u64,
    /// Messages taken by posted entries.
    pub expected: u64,
    /// Messages taken by overflow entries.
    pub unexpected: u64,
    /// Unexpected messages taken by entries that were appended later.
    pub claimed: u64,
    /// Messages that no entry took.
    pub unmatched: u64,
    /// Truncated messages.
    pub truncated: u64,
    /// Entries that were read from the spill area.
    pub spill_reads: u64,
    /// Programs that misbehaved and were replaced by the built-in one.
    pub firmware_fallbacks: u64,
    /// Commands refused.
    pub commands_refused: u64,
    /// Commands of a port for which a counter had risen since the port's previous command.
    pub unreported: u64,
}

impl AsMut<CardCounters> for Counters {
    fn as_mut(&mut self) -> &mut CardCounters {
        &mut self.card
    }
}

impl Counters {
    /// The statistics that all models have, as a driver reads them.
    pub fn statistics(&self, shell: &ShellCounts) -> Statistics {
        Statistics { malformed: self.card.malformed + self.out_of_order, ..self.card.statistics(shell) }
    }

    /// The counters that only this model has, by name.
    pub(super) const fn by_name(&self) -> [(&'static str, u64); 15] {
        [
            ("headers", self.headers),
            ("entries_traversed", self.entries_traversed),
            ("unit_cycles", self.unit_cycles),
            ("expected", self.expected),
            ("unexpected", self.unexpected),
            ("claimed", self.claimed),
            ("unmatched", self.unmatched),
            ("refused_for_room", self.card.overruns),
            ("truncated", self.truncated),
            ("spill_reads", self.spill_reads),
            ("firmware_fallbacks", self.firmware_fallbacks),
            ("retransmissions", self.retransmissions),
            // Damaged, malformed, duplicated or out of order.
            ("frames_discarded", self.card.damaged + self.card.malformed + self.out_of_order),
            ("commands_refused", self.commands_refused),
            ("foreign_frames", self.card.foreign_frames),
        ]
    }
}
