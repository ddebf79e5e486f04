//! Counters of every card. A model's own counters are separate.

use crate::nic::Statistics;

use crate::nic::ShellCounts;

/// Counts since the card was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardCounters {
    /// Messages of programs whose last byte was sent.
    pub messages_sent: u64,
    /// Messages whose last byte was stored.
    pub messages_received: u64,
    /// Bytes of these messages sent, tags included.
    pub bytes_sent: u64,
    /// Bytes of these messages stored, tags included.
    pub bytes_received: u64,
    /// Interrupts raised.
    pub interrupts: u64,
    /// Frames of any kind with a wrong check sequence.
    pub damaged: u64,
    /// Frames of any kind with another format error, for another node, or with values out of range.
    pub malformed: u64,
    /// Frames of another model's protocol.
    pub foreign_frames: u64,
    /// Messages that found no room at the receiver.
    pub overruns: u64,
    /// Posts and register stores refused.
    pub refused: u64,
    /// Acknowledgements sent in separate frames.
    pub acknowledgements_sent: u64,
    /// Messages discarded unsent because their port was closed.
    pub discarded_at_close: u64,
    /// Control requests refused.
    pub control_refused: u64,
    /// Status lines written.
    pub status_lines: u64,
    /// Events whose order relative to the host's actions wall time decided ([`crate::nic::Observed::unordered`]).
    pub unordered: u64,
}

impl CardCounters {
    /// The counters as a driver reads them, including those that only the shell knows.
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

/// A model's counters, which include the counters of every card.
pub trait Counting: Default + AsMut<CardCounters> {}

impl<C: Default + AsMut<CardCounters>> Counting for C {}
