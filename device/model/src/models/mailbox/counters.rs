//! What a Mailbox card counts.

use crate::nic::{ShellCounts, Statistics};
use crate::parts::counters::CardCounters;
use crate::parts::effects;

/// The card's effects on its node and the network.
pub(super) type Effects = effects::Effects<Counters>;

/// Counts since the card was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The counters that all cards have; a message is a letter.
    pub card: CardCounters,
    /// Letters sent again because no acknowledgement arrived in time.
    pub repeated: u64,
    /// Letters that arrived again, and were acknowledged again.
    pub duplicated: u64,
    /// Letters that were not stored because the receive queue was full or the port closed. Their senders repeat them.
    pub not_taken: u64,
    /// Letters from a port that is not authorized to send to this one. The card does not acknowledge them.
    pub unauthorized: u64,
    /// Acknowledgements of a letter that is not in flight.
    pub stray_acknowledgements: u64,
}

impl AsMut<CardCounters> for Counters {
    fn as_mut(&mut self) -> &mut CardCounters {
        &mut self.card
    }
}

impl Counters {
    /// The counters that only this model has, by name.
    pub(super) const fn by_name(&self) -> [(&'static str, u64); 5] {
        [
            ("repeated", self.repeated),
            ("duplicated", self.duplicated),
            ("not_taken", self.not_taken),
            ("stray_acknowledgements", self.stray_acknowledgements),
            ("foreign_frames", self.card.foreign_frames),
        ]
    }

    /// The counts as a driver reads them.
    pub fn statistics(&self, shell: &ShellCounts) -> Statistics {
        Statistics { unauthorized: self.unauthorized, ..self.card.statistics(shell) }
    }
}
