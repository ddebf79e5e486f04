//! Counters of a GRIM card.

use crate::nic::{ShellCounts, Statistics};
use crate::parts::counters::CardCounters;
use crate::parts::effects;

/// Effects of the card.
pub(super) type Effects = effects::Effects<Counters>;

/// Counts since the card was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Counters of every card. Overruns are frames that the card refused because its memory was full.
    pub card: CardCounters,
    /// Messages without payload that were sent.
    pub short_sent: u64,
    /// Messages with payload that were sent.
    pub bulk_sent: u64,
    /// Memory messages that were sent.
    pub memory_sent: u64,
    /// Memory messages that were stored.
    pub memory_received: u64,
    /// Frames of messages sent for the first time.
    pub frames_sent: u64,
    /// Frames retransmitted after an acknowledgement timeout.
    pub repeated: u64,
    /// Frames retransmitted after a refusal.
    pub sent_after_refusal: u64,
    /// Refusals received.
    pub refusals_received: u64,
    /// Duplicated frames received.
    pub duplicated: u64,
    /// Frames received after a missing frame.
    pub ahead: u64,
    /// Acknowledgements of frames that are not in flight.
    pub stray_acknowledgements: u64,
    /// Channels that the processor polled for work.
    pub channels_scanned: u64,
    /// Frames stored at their endpoint without a wait.
    pub cut_through: u64,
    /// Frames that waited in card memory.
    pub queued: u64,
    /// Bytes of card memory that these frames occupied.
    pub queue_bytes_taken: u64,
    /// Bytes of these that were freed.
    pub queue_bytes_freed: u64,
    /// Segments pushed after the first of their message.
    pub segments: u64,
    /// Messages abandoned because the program stopped pushing them.
    pub stalled: u64,
    /// Messages of a program that ended before its messages had left.
    pub voided: u64,
    /// Messages for an endpoint without open port.
    pub closed: u64,
    /// Messages whose payload is too long for the endpoint.
    pub no_payload_region: u64,
    /// Memory messages for memory that is not exposed.
    pub bad_memory: u64,
    /// Messages that peripherals handled.
    pub peripheral_handled: u64,
    /// Messages of peripherals that are too long for the channel, name no node of the cluster, or were not delivered.
    pub peripheral_unsendable: u64,
    /// Frames that a peripheral's full Ethernet port dropped.
    pub peripheral_dropped_frames: u64,
    /// Incomplete messages that lost their room to waiting messages.
    pub unfinished: u64,
}

impl AsMut<CardCounters> for Counters {
    fn as_mut(&mut self) -> &mut CardCounters {
        &mut self.card
    }
}

impl Counters {
    /// This model's own counters, by name.
    pub(super) const fn by_name(&self) -> [(&'static str, u64); 27] {
        [
            ("short_sent", self.short_sent),
            ("bulk_sent", self.bulk_sent),
            ("memory_sent", self.memory_sent),
            ("memory_received", self.memory_received),
            ("frames_sent", self.frames_sent),
            ("repeated", self.repeated),
            ("sent_after_refusal", self.sent_after_refusal),
            ("refusals_sent", self.card.overruns),
            ("refusals_received", self.refusals_received),
            ("duplicated", self.duplicated),
            ("ahead", self.ahead),
            ("stray_acknowledgements", self.stray_acknowledgements),
            ("channels_scanned", self.channels_scanned),
            ("cut_through", self.cut_through),
            ("queued", self.queued),
            ("queue_bytes_taken", self.queue_bytes_taken),
            ("queue_bytes_freed", self.queue_bytes_freed),
            ("segments", self.segments),
            ("stalled", self.stalled),
            ("voided", self.voided),
            ("closed", self.closed),
            ("no_payload_region", self.no_payload_region),
            ("bad_memory", self.bad_memory),
            ("peripheral_handled", self.peripheral_handled),
            ("peripheral_unsendable", self.peripheral_unsendable),
            ("peripheral_dropped_frames", self.peripheral_dropped_frames),
            ("unfinished", self.unfinished),
        ]
    }

    /// The counters as a driver reads them.
    pub fn statistics(&self, shell: &ShellCounts) -> Statistics {
        self.card.statistics(shell)
    }
}
