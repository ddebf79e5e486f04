//! Counters of an INIC card.

use crate::nic::{ShellCounts, Statistics};
use crate::parts::counters::CardCounters;
use crate::parts::effects;

/// Effects of the card.
pub(super) type Effects = effects::Effects<Counters>;

/// Counts since the card was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Counters of every card. Overruns are packets that the card's full memory could not hold.
    pub card: CardCounters,
    /// Events written.
    pub events: u64,
    /// Commands refused.
    pub commands_refused: u64,
    /// Packets sent for the first time.
    pub packets_sent: u64,
    /// Packets retransmitted.
    pub retransmissions: u64,
    /// Numbered packets received, in any order.
    pub packets_received: u64,
    /// Acknowledgement timeouts.
    pub timeouts: u64,
    /// Duplicated packets, whose data the card dropped.
    pub duplicates: u64,
    /// Packets dropped because an earlier one is missing, or a later one has arrived.
    pub out_of_order: u64,
    /// Acknowledgements of packets that are not in flight.
    pub stray_acknowledgements: u64,
    /// Frames of a card with another assembly or another format.
    pub other_assembly: u64,
    /// Messages with a missing part, as far as the card can detect it.
    pub incomplete: u64,
    /// Messages longer than their posted memory.
    pub truncated: u64,
    /// Messages that failed because their node did not answer.
    pub unreachable: u64,
    /// Packets of messages whose program has ended, or that were already incomplete.
    pub discarded: u64,
    /// Completed barriers, multicasts and reductions of this host.
    pub collectives: u64,
    /// Messages to other cards for collectives.
    pub collective_messages: u64,
    /// Messages of other cards for a membership that this card does not have.
    pub collective_strays: u64,
    /// Groups that have ended.
    pub groups_ended: u64,
    /// Assemblies loaded at run time.
    pub firmware_reloads: u64,
    /// Frames received while the FPGAs were programmed, and packets that waited for room until then.
    pub lost_at_firmware_reload: u64,
}

impl AsMut<CardCounters> for Counters {
    fn as_mut(&mut self) -> &mut CardCounters {
        &mut self.card
    }
}

impl Counters {
    /// This model's own counters, by name.
    pub(super) const fn by_name(&self) -> [(&'static str, u64); 22] {
        [
            ("packets_out", self.packets_sent),
            ("packets_in", self.packets_received),
            ("retransmissions", self.retransmissions),
            ("timeouts", self.timeouts),
            ("duplicates", self.duplicates),
            ("out_of_order", self.out_of_order),
            ("stray_acknowledgements", self.stray_acknowledgements),
            ("other_assembly", self.other_assembly),
            ("no_card_memory", self.card.overruns),
            ("incomplete", self.incomplete),
            ("truncated", self.truncated),
            ("unreachable", self.unreachable),
            ("discarded", self.discarded),
            ("collectives", self.collectives),
            ("collective_messages", self.collective_messages),
            ("collective_strays", self.collective_strays),
            ("groups_ended", self.groups_ended),
            ("hand_overs", self.firmware_reloads),
            ("lost_at_hand_over", self.lost_at_firmware_reload),
            ("commands_refused", self.commands_refused),
            ("events", self.events),
            ("foreign_frames", self.card.foreign_frames),
        ]
    }

    /// The counters as a driver reads them.
    pub fn statistics(&self, shell: &ShellCounts) -> Statistics {
        self.card.statistics(shell)
    }
}
