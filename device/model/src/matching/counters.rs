//! What a Match card counts.

use niclab_abi::control::Statistics;
use niclab_abi::matching::MatchStatistics;

use crate::nic::ShellCounts;

/// Counts since the card was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Puts whose last frame was sent, and answers to gets.
    pub messages_sent: u64,
    /// Puts that were stored, and answers to gets.
    pub messages_received: u64,
    /// Bytes of data sent.
    pub bytes_sent: u64,
    /// Bytes of data stored.
    pub bytes_received: u64,
    /// Events written.
    pub events: u64,
    /// Interrupts raised.
    pub interrupts: u64,
    /// Frames with a wrong check word.
    pub damaged: u64,
    /// Frames with another fault of format, for another node, or about a message that is not under way.
    pub malformed: u64,
    /// Frames that arrived again, or ahead of one that is missing.
    pub out_of_order: u64,
    /// Frames sent again.
    pub retransmissions: u64,
    /// Acknowledgements sent in frames of their own.
    pub acknowledgements_sent: u64,
    /// Headers that were matched against a list.
    pub headers: u64,
    /// Entries that they were compared with.
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
    /// Messages refused for want of room.
    pub refused_for_room: u64,
    /// Messages cut.
    pub truncated: u64,
    /// Entries that were read from the spill area.
    pub spill_reads: u64,
    /// Programs that misbehaved and were replaced by the built-in one.
    pub firmware_fallbacks: u64,
    /// Commands and register writes refused.
    pub refused: u64,
    /// Commands refused.
    pub commands_refused: u64,
    /// Messages discarded unsent because their port was closed.
    pub discarded_at_close: u64,
    /// Control requests refused.
    pub control_refused: u64,
    /// Things whose place among what the host does was not known beforehand.
    pub unordered: u64,
}

impl Counters {
    /// The counts that every model has, as a driver reads them.
    pub const fn statistics(&self, shell: &ShellCounts) -> Statistics {
        Statistics {
            packets_sent: self.messages_sent,
            packets_received: self.messages_received,
            bytes_sent: self.bytes_sent,
            bytes_received: self.bytes_received,
            doorbells: shell.doorbells,
            doorbells_spared: shell.doorbells_spared,
            interrupts: self.interrupts,
            // Nobody needs an authorization here; what no entry takes is counted by itself.
            unauthorized: 0,
            crc_errors: self.damaged,
            malformed: self.malformed + self.out_of_order,
            overruns: self.refused_for_room,
            refused: self.refused,
            acknowledgements_sent: self.acknowledgements_sent,
            discarded_at_close: self.discarded_at_close,
            control_refused: self.control_refused + shell.control_refused,
            events_merged: shell.events_merged,
        }
    }

    /// The fields of [`MatchStatistics`] that only grow, by their names.
    pub(super) const fn by_name(&self) -> [(&'static str, u64); 14] {
        let all = self.match_statistics(0, 0);
        [
            ("headers", all.headers),
            ("entries_traversed", all.entries_traversed),
            ("unit_cycles", all.unit_cycles),
            ("expected", all.expected),
            ("unexpected", all.unexpected),
            ("claimed", all.claimed),
            ("unmatched", all.unmatched),
            ("refused_for_room", all.refused_for_room),
            ("truncated", all.truncated),
            ("spill_reads", all.spill_reads),
            ("firmware_fallbacks", all.firmware_fallbacks),
            ("retransmissions", all.retransmissions),
            ("frames_discarded", all.frames_discarded),
            ("commands_refused", all.commands_refused),
        ]
    }

    /// The counts of this model, with the entries that are linked now, and those of them that are spilled.
    pub const fn match_statistics(&self, entries: u64, entries_spilled: u64) -> MatchStatistics {
        MatchStatistics {
            headers: self.headers,
            entries_traversed: self.entries_traversed,
            unit_cycles: self.unit_cycles,
            expected: self.expected,
            unexpected: self.unexpected,
            claimed: self.claimed,
            unmatched: self.unmatched,
            refused_for_room: self.refused_for_room,
            truncated: self.truncated,
            entries,
            entries_spilled,
            spill_reads: self.spill_reads,
            firmware_fallbacks: self.firmware_fallbacks,
            retransmissions: self.retransmissions,
            frames_discarded: self.damaged + self.malformed + self.out_of_order,
            commands_refused: self.commands_refused,
        }
    }
}
