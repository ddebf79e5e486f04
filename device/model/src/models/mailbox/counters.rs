//! What a Mailbox card counts.

use crate::nic::{ShellCounts, Statistics};
use crate::parts::counters::CardCounters;
use crate::parts::effects;

/// What the card does to the world.
pub(super) type Effects = effects::Effects<Counters>;

/// Counts since the card was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// What every card counts; a message is a letter.
    pub card: CardCounters,
    /// Letters sent again because no acknowledgement came in time.
    pub repeated: u64,
    /// Letters that came again, and were acknowledged again.
    pub duplicated: u64,
    /// Letters that were not taken because the receive queue was full or the port closed; they come again.
    pub not_taken: u64,
    /// Letters from a port that may not send here; nobody answers them.
    pub unauthorized: u64,
    /// Acknowledgements of what is not under way.
    pub stray_acknowledgements: u64,
}

impl AsMut<CardCounters> for Counters {
    fn as_mut(&mut self) -> &mut CardCounters {
        &mut self.card
    }
}

impl Counters {
    /// What only this model counts, by name.
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
