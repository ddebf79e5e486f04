//! The end of model time.
//!
//! One guest can advance model time without bound: with a rate control of one packet per second, each packet takes a
//! second of model time and a microsecond of wall time. A bound for each guest would not protect the others, because
//! frames carry a sender's time to its receivers. So the cluster ends with an error before any time is wrong.

use std::sync::OnceLock;

use niclab_model::time::EndOfTime;

/// Whether model time has reached its end. Set once, by a thread that holds the locks of some nodes.
#[derive(Debug, Default)]
pub struct TimeLimit {
    reached: OnceLock<EndOfTime>,
    call: OnceLock<fn()>,
}

impl TimeLimit {
    /// Records that model time has reached its end. Only the first call counts.
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

    /// Calls `call` at most once, when model time reaches its end. Nodes are locked then, so `call` must not wait.
    pub fn when_reached(&self, call: fn()) {
        // Only the first callback counts: each process registers one.
        let _ = self.call.set(call);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use niclab_model::time::Time;

    use super::*;

    #[test]
    fn first_end_of_time_counts_and_is_called_once() {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let limit = TimeLimit::default();
        limit.when_reached(|| _ = CALLS.fetch_add(1, Ordering::Relaxed));
        assert_eq!(limit.reached(), None);
        [Time::LIMIT, Time::END].into_iter().for_each(|at| limit.reach(EndOfTime { at }));
        assert_eq!(limit.reached(), Some(EndOfTime { at: Time::LIMIT }));
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    }
}
