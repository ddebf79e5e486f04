//! What an ULTRA card counts.

use crate::nic::Statistics;

use crate::nic::ShellCounts;
use crate::parts::counters::CardCounters;
use crate::parts::effects;

/// The effects of a card's units on its node and the network.
pub(super) type Effects = effects::Effects<Counters>;

/// Counters since the card was made. Packets are data packets unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The counters that all cards have. A message is a packet; overruns are packets without a free slice or credit.
    pub card: CardCounters,
    /// Packets whose sender is not authorized.
    pub unauthorized: u64,
    /// Packets whose connection is not the authorized one.
    pub stale: u64,
    /// Packets that arrived twice, or after a later one.
    pub late: u64,
    /// Packets that never arrived, detected by the gap in the numbers.
    pub missing: u64,
    /// Frames of flow control and acknowledgement without effect: duplicated, overtaken, or for an entry or port that
    /// no longer exists.
    pub flow_discarded: u64,
    /// Frames of flow control sent.
    pub flow_sent: u64,
    /// Credit requests repeated because no answer arrived in time; part of `flow_sent`.
    pub credit_probes: u64,
}

impl AsMut<CardCounters> for Counters {
    fn as_mut(&mut self) -> &mut CardCounters {
        &mut self.card
    }
}

impl Counters {
    /// The counters that only this model has, by name.
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
