//! What every card counts. A model's own counts stand beside these.

use crate::nic::Statistics;

use crate::nic::ShellCounts;

/// Counts since the card was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardCounters {
    /// Messages of programs that were sent to their last byte.
    pub messages_sent: u64,
    /// Messages that were stored to their last byte.
    pub messages_received: u64,
    /// Bytes of theirs sent, tags included.
    pub bytes_sent: u64,
    /// Bytes of theirs stored, tags included.
    pub bytes_received: u64,
    /// Interrupts raised.
    pub interrupts: u64,
    /// Frames of any kind with a wrong check sequence.
    pub damaged: u64,
    /// Frames of any kind with another fault of format, for another node, or for what there cannot be.
    pub malformed: u64,
    /// Frames of another model's protocol.
    pub foreign_frames: u64,
    /// Messages that found no room at the receiver.
    pub overruns: u64,
    /// Launches and register stores refused.
    pub refused: u64,
    /// Acknowledgements sent in frames of their own.
    pub acknowledgements_sent: u64,
    /// Messages discarded unsent because their port was closed.
    pub discarded_at_close: u64,
    /// Control requests refused.
    pub control_refused: u64,
    /// Status lines written.
    pub status_lines: u64,
    /// Things whose place among what the host does was not known beforehand ([`crate::nic::Nic::unordered`]).
    pub unordered: u64,
}

impl CardCounters {
    /// The counts as a driver reads them, with those that only the shell can know.
    pub fn statistics(&self, shell: &ShellCounts) -> Statistics {
        Statistics {
            packets_sent: self.messages_sent,
            packets_received: self.messages_received,
            bytes_sent: self.bytes_sent,
            bytes_received: self.bytes_received,
            doorbells: shell.doorbells,
            doorbells_spared: shell.doorbells_spared,
            interrupts: self.interrupts,
            unauthorized: 0,
            crc_errors: self.damaged,
            malformed: self.malformed,
            overruns: self.overruns,
            refused: self.refused,
            acknowledgements_sent: self.acknowledgements_sent,
            discarded_at_close: self.discarded_at_close,
            control_refused: self.control_refused + shell.control_refused,
            events_merged: shell.events_merged,
        }
    }
}

/// What a model counts, among it what every card counts.
pub trait Counting: Default + AsMut<CardCounters> {}

impl<C: Default + AsMut<CardCounters>> Counting for C {}
