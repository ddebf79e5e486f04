//! What is counted of one card, beside what its model counts.

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

/// What a guest did that it must not, by name.
pub type Violations = BTreeMap<&'static str, u64>;

/// One more violation of that name.
pub fn violation(violations: &mut Violations, name: &'static str) {
    *violations.entry(name).or_insert(0) += 1;
}

/// What is counted of one card, beside what its model counts.
#[derive(Debug, Default)]
pub struct CardCounts {
    /// Slots taken while guests were told that no doorbell is needed.
    pub doorbells_spared: u64,
    /// Rounds of polling.
    pub polls: u64,
    /// Slots taken, by port.
    pub launches: Vec<u64>,
    /// Frames of the model that took the fast path ([`crate::shell::dispatch::fast_path`]).
    pub fast_path: u64,
    /// Of these, those in a batch.
    pub batched: u64,
    /// Of these, those with extrapolated times: each a constant span after the previous one.
    pub extrapolated: u64,
    /// Control requests that the shell itself refused.
    pub control_refused: u64,
    /// How often wall time decided in which order the node did things: see [`super::Card::store`].
    pub unordered: u64,
    /// What the model takes for that, though programs took turns.
    pub ordered_by_turns: u64,
    /// Frames of the model.
    pub traffic: Traffic,
    /// What the guest did that it must not.
    pub violations: Violations,
}
