//! Turns: a program does one operation at a time, when the device says that it is its time of model.
//!
//! So a live run has the simulator's model time, whatever was launched, counted or posted between two messages: nothing
//! is seen before its instant, and nothing is done before all that comes earlier.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use niclab_abi::bar::{
    COMPLETER_REPORT_OFFSET, COMPLETER_TURN_OFFSET, COMPLETER_TURN_TIME_OFFSET, COMPLETER_WAKE_OFFSET,
    REPORT_ACTED, REPORT_BITS, REPORT_IDLE, REPORT_READY, TURN_OVER,
};

use crate::atomic::{load, store};

/// What a program is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It may do one operation.
    Now {
        /// At this instant of model time, in picoseconds.
        model_ps: u64,
    },
    /// Nothing is under way and nobody has anything to do.
    Over,
}

/// The turns of one program, on the completer page of its first port. The device is to be told after each store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turns {
    /// The last turn that was seen, [`TURN_OVER`] and all.
    seen: u64,
    begun: u64,
}

impl Turns {
    /// The program has something to do, and waits for its turn.
    pub fn begin(&mut self, completer: &[AtomicU64]) {
        self.begun += 1;
        report(completer, self.begun, REPORT_READY, 0);
    }

    /// What the device says, if it says anything new.
    #[inline]
    pub fn poll(&mut self, completer: &[AtomicU64]) -> Option<Turn> {
        let turn = completer.get(word(COMPLETER_TURN_OFFSET)).map_or(0, load);
        if turn == self.seen {
            return None;
        }
        // What is read in this turn was stored before it.
        fence(Ordering::Acquire);
        self.seen = turn;
        if turn & TURN_OVER != 0 {
            return Some(Turn::Over);
        }
        Some(Turn::Now { model_ps: completer.get(word(COMPLETER_TURN_TIME_OFFSET)).map_or(0, load) })
    }

    /// The program has done what it could in this turn: an operation, or none, and then it wants none before `wake_ps`.
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
        // All that the program did comes before its report.
        fence(Ordering::Release);
        store(place, number << REPORT_BITS | what);
    }
}
