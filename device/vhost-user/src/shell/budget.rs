//! How much may be done in the world before others get it.
//!
//! Who serves a node holds it and those that it sends to, and some things are done with all nodes: whatever one guest
//! has the daemon do can delay others. Every loop that a guest drives under these locks spends out of a turn, and ends
//! when the turn is over; what is left to do waits for the next turn, behind everybody who waits for the world
//! meanwhile ([`super::world::cluster`]).
//!
//! A turn is counted in estimated nanoseconds of the host's processor time, never measured: what a device does must not
//! depend on how fast its host is just now. The estimates are those of a machine of two cores
//! (`niclab bench --only device`), rounded up; a host that is twice as slow has turns twice as long.

/// Estimated processor time of a turn. Many short operations, so that taking the lock costs little beside them, and
/// short against the 10 ms within which another node's request is to be answered while several nodes take turns.
const BUDGET_NS: u32 = 500_000;

/// To take one slot out of a page and feed it to a model.
pub const LAUNCH_NS: u32 = 300;

/// To take a frame from one place to the next, whatever its length.
pub const FRAME_NS: u32 = 500;

/// To read memory of a guest for a card and feed the card with it, however little it is.
pub const READ_NS: u32 = 300;

/// To take one control request and answer it, interrupt included.
pub const REQUEST_NS: u32 = 2_500;

/// Bytes moved and summed in a nanosecond, at the least.
const BYTES_PER_NS: u32 = 3;

/// Nanoseconds of a unit of [`niclab_model::nic::Nic::work_done`].
pub const WORK_UNIT_NS: u64 = 10;

/// What is left of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    left_ns: u32,
}

impl Budget {
    /// A whole turn.
    pub const FULL: Self = Self { left_ns: BUDGET_NS };

    /// No turn.
    pub const SPENT: Self = Self { left_ns: 0 };

    /// Whether others are to have the world now.
    #[inline]
    pub const fn is_spent(self) -> bool {
        self.left_ns == 0
    }

    /// Whether the turn is not over when so much more was taken out of it.
    #[inline]
    pub const fn has_more_than(self, ns: u32) -> bool {
        self.left_ns > ns
    }

    /// How many operations can be done that take not more than so much each, before the last of which the turn is not
    /// over.
    #[inline]
    pub const fn operations(self, most_ns: u32) -> usize {
        (self.left_ns / most_ns) as usize
    }

    /// Takes the estimated price of an operation out of the turn. The last operation of a turn may cost more than is
    /// left.
    #[inline]
    pub const fn spend(&mut self, ns: u32) {
        self.left_ns = self.left_ns.saturating_sub(ns);
    }

    /// Takes out what a model says that it did.
    #[inline]
    pub fn spend_work(&mut self, units: u64) {
        self.spend(u32::try_from(units.saturating_mul(WORK_UNIT_NS)).unwrap_or(u32::MAX));
    }
}

/// The estimated price of a frame of `bytes`.
#[inline]
pub const fn frame_ns(bytes: usize) -> u32 {
    FRAME_NS + bytes as u32 / BYTES_PER_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_spent_and_does_not_wrap() {
        let mut budget = Budget::FULL;
        budget.spend(BUDGET_NS - 1);
        assert!(!budget.is_spent());
        budget.spend_work(u64::MAX);
        assert_eq!(budget, Budget::SPENT);
        budget.spend(1);
        assert!(budget.is_spent());
    }
}
