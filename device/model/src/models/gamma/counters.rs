//! What a GAMMA card counts.

use crate::nic::{ShellCounts, Statistics};
use crate::parts::counters::CardCounters;
use crate::parts::effects;

/// Effects of the card.
pub(super) type Effects = effects::Effects<Counters>;

/// Counts since the card was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Counters of every card. Overruns are frames without room in the card or in the receive ring.
    pub card: CardCounters,
    /// Frames sent, of all protocols.
    pub frames_sent: u64,
    /// Frames stored, of all protocols.
    pub frames_received: u64,
    /// Sent frames of other protocols.
    pub other_sent: u64,
    /// Stored frames of other protocols.
    pub other_received: u64,
    /// Descriptors read that the card owned.
    pub descriptors_taken: u64,
    /// Descriptors read that the host still owned.
    pub descriptors_idle: u64,
    /// Frames that found no descriptor in the receive ring (CSR8).
    pub missed: u64,
    /// Frames that found the card's receive FIFO full (CSR8).
    pub overflows: u64,
    /// Frames that were longer than the room in the receive ring.
    pub truncated: u64,
    /// Host frames refused because of their length.
    pub bad_length: u64,
    /// Host frames refused because a buffer is not completely in the host's memory.
    pub bad_address: u64,
    /// Host frames refused because of another node's source address.
    pub forged: u64,
    /// Descriptors of the host's out of turn: no frame begins, or one within another.
    pub bad_segment: u64,
    /// Rings that the card stopped because they led out of memory.
    pub broken_rings: u64,
    /// Frames to other nodes.
    pub elsewhere: u64,
    /// Poll demands.
    pub demands: u64,
}

impl AsMut<CardCounters> for Counters {
    fn as_mut(&mut self) -> &mut CardCounters {
        &mut self.card
    }
}

impl Counters {
    /// What only this model counts, by name.
    pub(super) const fn by_name(&self) -> [(&'static str, u64); 17] {
        [
            ("frames_out", self.frames_sent),
            ("frames_in", self.frames_received),
            ("other_frames_out", self.other_sent),
            ("other_frames_in", self.other_received),
            ("descriptors_taken", self.descriptors_taken),
            ("descriptors_idle", self.descriptors_idle),
            ("missed_frames", self.missed),
            ("fifo_overflows", self.overflows),
            ("truncated_frames", self.truncated),
            ("transmit_bad_length", self.bad_length),
            ("transmit_bad_address", self.bad_address),
            ("transmit_forged", self.forged),
            ("transmit_bad_segment", self.bad_segment),
            ("broken_rings", self.broken_rings),
            ("frames_elsewhere", self.elsewhere),
            ("poll_demands", self.demands),
            ("foreign_frames", self.card.foreign_frames),
        ]
    }

    /// The counts as a driver reads them.
    pub fn statistics(&self, shell: &ShellCounts) -> Statistics {
        self.card.statistics(shell)
    }
}
