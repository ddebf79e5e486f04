//! Counts of one card, besides those of its model.

use std::collections::BTreeMap;

/// Frames and bytes of one function. Sent is from the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames from the guest.
    pub sent_frames: u64,
    /// Their bytes, headers included.
    pub sent_bytes: u64,
    /// Frames to the guest.
    pub received_frames: u64,
    /// Their bytes, headers included.
    pub received_bytes: u64,
    /// Frames to the guest that found no room.
    pub dropped_frames: u64,
}

impl Traffic {
    /// Counts a frame to the guest.
    #[inline]
    pub const fn receive(&mut self, bytes: usize) {
        self.received_frames += 1;
        self.received_bytes += bytes as u64;
    }
}

/// Violations of the specification by a guest, by name.
pub type Violations = BTreeMap<&'static str, u64>;

/// Counts a violation.
pub fn violation(violations: &mut Violations, name: &'static str) {
    *violations.entry(name).or_insert(0) += 1;
}

/// Counts of one card, besides those of its model.
#[derive(Debug, Default)]
pub struct CardCounts {
    /// Slots taken while doorbells were suppressed.
    pub doorbells_spared: u64,
    /// Polls without a doorbell.
    pub polls: u64,
    /// Slots taken, by port.
    pub launches: Vec<u64>,
    /// Frames of the model that went in a batch ([`crate::shell::dispatch::batch`]).
    pub batched: u64,
    /// Control requests that the shell itself refused.
    pub control_refused: u64,
    /// Frames of the model.
    pub traffic: Traffic,
}
