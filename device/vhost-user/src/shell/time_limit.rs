//! Where a cluster notes that model time has reached its end.
//!
//! A guest alone can drive model time as far as it likes: a rate control of a second a packet takes a second of model
//! time and a microsecond of wall time. No bound for each guest would help the others, because frames carry a sender's
//! time to its receivers. So the cluster ends, with an error that says why, before an instant is wrong.

use std::sync::OnceLock;

use niclab_model::time::EndOfTime;

/// Whether model time has reached its end. Set once, by a thread that holds the locks of some nodes.
#[derive(Debug, Default)]
pub struct TimeLimit {
    reached: OnceLock<EndOfTime>,
    call: OnceLock<fn()>,
}

impl TimeLimit {
    /// Model time has reached its end. The first call counts.
    pub fn reach(&self, end: EndOfTime) {
        if self.reached.set(end).is_ok()
            && let Some(call) = self.call.get()
        {
            call();
        }
    }

    /// Why the cluster ends, if model time has reached its end.
    pub fn reached(&self) -> Option<EndOfTime> {
        self.reached.get().copied()
    }

    /// Calls `call` when model time reaches its end: once at most, with locks of nodes held, so it must not wait.
    pub fn when_reached(&self, call: fn()) {
        // A second caller would take the place of the first: there is one process.
        let _ = self.call.set(call);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use niclab_model::time::Time;

    use super::*;

    #[test]
    fn the_first_end_counts_and_is_called_once() {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let limit = TimeLimit::default();
        limit.when_reached(|| _ = CALLS.fetch_add(1, Ordering::Relaxed));
        assert_eq!(limit.reached(), None);
        [Time::LIMIT, Time::END].into_iter().for_each(|at| limit.reach(EndOfTime { at }));
        assert_eq!(limit.reached(), Some(EndOfTime { at: Time::LIMIT }));
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    }
}
