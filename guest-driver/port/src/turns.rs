//! Lockstep grants ("turns"): a program performs one operation each time the device grants it an instant of model time.
//!
//! So a live run has the simulator's model time: no store is visible before its instant, and no operation happens
//! before all earlier events. This covers everything that happens between two messages, such as posts and counters.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use niclab_abi::bar::{
    COMPLETER_REPORT_OFFSET, COMPLETER_TURN_OFFSET, COMPLETER_TURN_TIME_OFFSET, COMPLETER_WAKE_OFFSET,
    REPORT_ACTED, REPORT_BITS, REPORT_IDLE, REPORT_READY, TURN_OVER,
};

use crate::atomic::{load, store};

/// The device's grant to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The program may perform one operation.
    Now {
        /// The instant of model time, in picoseconds.
        model_ps: u64,
    },
    /// No message is in flight, and no program has work to do.
    Over,
}

/// The grants of one program, on the completer page of its first port. The device must be notified after each store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turns {
    /// The last grant seen, with the bit [`TURN_OVER`].
    seen: u64,
    begun: u64,
}

impl Turns {
    /// The program has work to do, and waits for a grant.
    pub fn begin(&mut self, completer: &[AtomicU64]) {
        self.begun += 1;
        report(completer, self.begun, REPORT_READY, 0);
    }

    /// Returns the device's grant, if there is a new one.
    #[inline]
    pub fn poll(&mut self, completer: &[AtomicU64]) -> Option<Turn> {
        let turn = completer.get(word(COMPLETER_TURN_OFFSET)).map_or(0, load);
        if turn == self.seen {
            return None;
        }
        // Data read under this grant was stored before it.
        fence(Ordering::Acquire);
        self.seen = turn;
        if turn & TURN_OVER != 0 {
            return Some(Turn::Over);
        }
        Some(Turn::Now { model_ps: completer.get(word(COMPLETER_TURN_TIME_OFFSET)).map_or(0, load) })
    }

    /// Ends a grant: the program has performed an operation, or has none, and then requests no grant before `wake_ps`.
    pub fn end(&mut self, completer: &[AtomicU64], acted: bool, wake_ps: Option<u64>) {
        let what = if acted { REPORT_ACTED } else { REPORT_IDLE };
        report(completer, self.seen, what, wake_ps.unwrap_or(0));
    }
}

const fn word(offset: u64) -> usize {
    (offset / 8) as usize
}

fn report(completer: &[AtomicU64], number: u64, what: u64, wake_ps: u64) {
    if let (Some(wake), Some(place)) =
        (completer.get(word(COMPLETER_WAKE_OFFSET)), completer.get(word(COMPLETER_REPORT_OFFSET)))
    {
        store(wake, wake_ps);
        // The program's stores precede its report.
        fence(Ordering::Release);
        store(place, number << REPORT_BITS | what);
    }
}
