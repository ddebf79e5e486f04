//! What an ULTRA card counts.

use niclab_abi::control::Statistics;

use crate::nic::ShellCounts;

/// Counts since the card was made. Packets are data packets unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets stored.
    pub packets_received: u64,
    /// Payload and tag bytes sent.
    pub bytes_sent: u64,
    /// Payload and tag bytes stored.
    pub bytes_received: u64,
    /// Interrupts raised.
    pub interrupts: u64,
    /// Frames of any kind with a wrong check sequence.
    pub crc_errors: u64,
    /// Frames of any kind with another fault of format, or for another node or a port that there cannot be.
    pub malformed: u64,
    /// Packets whose sender is not authorized.
    pub unauthorized: u64,
    /// Packets of another connection than the authorized one.
    pub stale: u64,
    /// Packets that came twice, or after a later one.
    pub late: u64,
    /// Packets that found no free slice, or were sent without credit.
    pub overruns: u64,
    /// Packets that never came, seen by the gap in the numbers.
    pub missing: u64,
    /// Launches and register writes refused.
    pub refused: u64,
    /// Packets discarded unsent because their port was closed.
    pub discarded_at_close: u64,
    /// Control requests refused.
    pub control_refused: u64,
    /// Acknowledgements sent.
    pub acknowledgements_sent: u64,
    /// Frames of flow control and acknowledgement that changed nothing: doubled, overtaken, or about what is gone.
    pub flow_discarded: u64,
    /// Frames of flow control sent.
    pub flow_sent: u64,
    /// Credit requests repeated because no answer came in time; those of `flow_sent`.
    pub credit_probes: u64,
    /// Status lines written.
    pub status_lines: u64,
    /// Register stores whose place among what the host does was not known beforehand.
    pub unordered: u64,
}

impl Counters {
    /// The counts as a driver reads them.
    pub const fn statistics(&self, shell: &ShellCounts) -> Statistics {
        Statistics {
            packets_sent: self.packets_sent,
            packets_received: self.packets_received,
            bytes_sent: self.bytes_sent,
            bytes_received: self.bytes_received,
            doorbells: shell.doorbells,
            doorbells_spared: shell.doorbells_spared,
            interrupts: self.interrupts,
            unauthorized: self.unauthorized,
            crc_errors: self.crc_errors,
            malformed: self.malformed + self.stale + self.late,
            overruns: self.overruns,
            refused: self.refused,
            acknowledgements_sent: self.acknowledgements_sent,
            discarded_at_close: self.discarded_at_close,
            control_refused: self.control_refused + shell.control_refused,
            events_merged: shell.events_merged,
        }
    }
}
