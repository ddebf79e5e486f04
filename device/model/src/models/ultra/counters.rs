//! What an ULTRA card counts.

use crate::nic::Statistics;

use crate::nic::ShellCounts;
use crate::parts::counters::CardCounters;
use crate::parts::effects;

/// What the units of a card do to the world.
pub(super) type Effects = effects::Effects<Counters>;

/// Counts since the card was made. Packets are data packets unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// What every card counts; a message is a packet, and overruns are packets without a free slice or credit.
    pub card: CardCounters,
    /// Packets whose sender is not authorized.
    pub unauthorized: u64,
    /// Packets of another connection than the authorized one.
    pub stale: u64,
    /// Packets that came twice, or after a later one.
    pub late: u64,
    /// Packets that never came, seen by the gap in the numbers.
    pub missing: u64,
    /// Frames of flow control and acknowledgement that changed nothing: duplicated, overtaken, or about what is gone.
    pub flow_discarded: u64,
    /// Frames of flow control sent.
    pub flow_sent: u64,
    /// Credit requests repeated because no answer came in time; those of `flow_sent`.
    pub credit_probes: u64,
}

impl AsMut<CardCounters> for Counters {
    fn as_mut(&mut self) -> &mut CardCounters {
        &mut self.card
    }
}

impl Counters {
    /// What only this model counts, by name.
    pub(super) const fn by_name(&self) -> [(&'static str, u64); 7] {
        [
            ("stale", self.stale),
            ("late", self.late),
            ("missing", self.missing),
            ("flow_discarded", self.flow_discarded),
            ("flow_sent", self.flow_sent),
            ("credit_probes", self.credit_probes),
            ("foreign_frames", self.card.foreign_frames),
        ]
    }

    /// The counts as a driver reads them.
    pub fn statistics(&self, shell: &ShellCounts) -> Statistics {
        Statistics {
            unauthorized: self.unauthorized,
            malformed: self.card.malformed + self.stale + self.late,
            ..self.card.statistics(shell)
        }
    }
}
