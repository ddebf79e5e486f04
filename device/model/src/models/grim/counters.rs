//! What a GRIM card counts.

use crate::nic::{ShellCounts, Statistics};
use crate::parts::counters::CardCounters;
use crate::parts::effects;

/// What the card does to the world.
pub(super) type Effects = effects::Effects<Counters>;

/// Counts since the card was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// What every card counts. Overruns are frames that were refused for want of card memory.
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
    /// Frames sent again, because no acknowledgement came in time.
    pub repeated: u64,
    /// Frames sent again, because they were refused.
    pub sent_after_refusal: u64,
    /// Refusals that came.
    pub refusals_received: u64,
    /// Frames that had come before.
    pub duplicated: u64,
    /// Frames behind one that is missing.
    pub ahead: u64,
    /// Acknowledgements of nothing that is under way.
    pub stray_acknowledgements: u64,
    /// Channels that the processor looked at for work.
    pub channels_scanned: u64,
    /// Frames that went straight to their endpoint.
    pub cut_through: u64,
    /// Frames that waited in card memory.
    pub queued: u64,
    /// Bytes of card memory that these took.
    pub queue_bytes_taken: u64,
    /// Bytes of these that were given back.
    pub queue_bytes_freed: u64,
    /// Segments pushed behind the first of their message.
    pub segments: u64,
    /// Messages given up because no more of them was pushed.
    pub stalled: u64,
    /// Messages of a program that ended before its messages had left.
    pub voided: u64,
    /// Messages for an endpoint that no program has open.
    pub closed: u64,
    /// Messages whose payload an endpoint cannot take at all.
    pub no_payload_region: u64,
    /// Memory messages for memory that is not exposed.
    pub bad_memory: u64,
    /// Messages that peripherals handled.
    pub peripheral_handled: u64,
    /// Messages that peripherals wanted to send and that no channel can carry.
    pub peripheral_unsendable: u64,
    /// Frames for which a peripheral's Ethernet port had no room.
    pub peripheral_dropped_frames: u64,
    /// Messages that came in part, and held room that others waited for.
    pub unfinished: u64,
}

impl AsMut<CardCounters> for Counters {
    fn as_mut(&mut self) -> &mut CardCounters {
        &mut self.card
    }
}

impl Counters {
    /// What only this model counts, by name.
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

    /// The counts as a driver reads them.
    pub fn statistics(&self, shell: &ShellCounts) -> Statistics {
        self.card.statistics(shell)
    }
}
