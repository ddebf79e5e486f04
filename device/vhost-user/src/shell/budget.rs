//! The budget: how long a thread holds locks before other threads get them.
//!
//! A thread that serves a node holds the locks of that node and its destinations, and sometimes of all nodes. So the
//! work that one guest causes can delay others. Every loop that a guest drives under these locks spends from a budget,
//! and ends when the budget is spent. Remaining work has the next budget, after the threads that already wait
//! ([`super::cluster`]).
//!
//! A budget is in estimated nanoseconds of the host's processor time, never measured: a device must not depend on the
//! host's momentary speed. The estimates are those of a machine of two cores (`niclab bench --only device`), rounded
//! up. On a host of half the speed a budget takes twice as long.

/// Estimated processor time of a budget. Long enough for many operations, so that locking costs little in comparison.
/// Short against the 10 ms within which another node's request is answered while several nodes use their budgets.
const BUDGET_NS: u32 = 500_000;

/// The price to take one slot out of a page and give it to a model.
pub const LAUNCH_NS: u32 = 300;

/// The price to deliver a frame, without its bytes.
pub const FRAME_NS: u32 = 500;

/// The price to read guest memory for a card and give the card the data, without its bytes.
pub const READ_NS: u32 = 300;

/// The price of one control request with its reply and interrupt.
pub const REQUEST_NS: u32 = 2_500;

/// Minimum of the bytes copied and summed per nanosecond.
const BYTES_PER_NS: u32 = 3;

/// Nanoseconds per unit of [`niclab_model::nic::Nic::work_done`].
pub const WORK_UNIT_NS: u64 = 10;

/// The unspent part of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    left_ns: u32,
}

impl Budget {
    /// A full budget.
    pub const FULL: Self = Self { left_ns: BUDGET_NS };

    /// No budget.
    pub const SPENT: Self = Self { left_ns: 0 };

    /// Whether other threads must get the locks now.
    #[inline]
    pub const fn is_spent(self) -> bool {
        self.left_ns == 0
    }

    /// Whether something is left after `ns` more are spent.
    #[inline]
    pub const fn has_more_than(self, ns: u32) -> bool {
        self.left_ns > ns
    }

    /// How many operations of at most `most_ns` each can begin before the budget is spent.
    #[inline]
    pub const fn operations(self, most_ns: u32) -> usize {
        (self.left_ns / most_ns) as usize
    }

    /// Spends the estimated price of an operation. The last operation of a budget may cost more than is left.
    #[inline]
    pub const fn spend(&mut self, ns: u32) {
        self.left_ns = self.left_ns.saturating_sub(ns);
    }

    /// Spends the work that a model reports.
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
