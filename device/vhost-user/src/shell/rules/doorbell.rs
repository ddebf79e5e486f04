//! Launches that nobody told of, and doorbells that nobody wanted.
//!
//! The proof that a doorbell is missing needs no clock. The device had stored `DOORBELL_WANTED`, executed a full
//! barrier, and then looked for launch `s`, which was not there. So the driver stored `s` later, and its look at the
//! word, behind a full barrier of its own, came later still: it found the word wanted, as it is until now. When launch
//! `s + 1` is there, the driver has gone on: the doorbell for `s` was rung before. A doorbell is an event's count,
//! which grows before the driver's store to the notify register is over; what the device took of it is counted under
//! the queue's lock. If there is none in the event and none was taken since, nobody rang.
//!
//! Until `s + 1` is there nothing is said: the driver may be kept from ringing for as long as its host likes.

use niclab_abi::bar::DOORBELL_WANTED;

use crate::shell::pages::Pages;
use crate::vring::Bell;

/// The word was wanted, and a launch was looked for that was not there.
#[derive(Clone, Copy, Debug)]
pub struct Absent {
    /// The launch.
    sequence: u32,
    /// How often the word had changed.
    word_changes: u64,
    /// The doorbells that were heard.
    bell: Bell,
}

impl Absent {
    /// Looks for the next launch of `port`. `bell` says what was heard so far: it is asked first.
    pub fn look(pages: &Pages, port: u32, bell: Option<Bell>) -> Option<Self> {
        let bell = bell?;
        if pages.doorbell() != DOORBELL_WANTED || pages.is_launched(port) {
            return None;
        }
        let sequence = pages.expected(port);
        let next = sequence.wrapping_add(1);
        if pages.sequence_in_slot_of(port, next) == next {
            // This launch was stored before, and another stands in its place (rule `slot-free`): its doorbell was heard
            // by now.
            return None;
        }
        Some(Self { sequence, word_changes: pages.doorbell_changes(), bell })
    }

    /// Whether this says anything of what is launched now.
    pub fn is_stale(&self, pages: &Pages) -> bool {
        self.word_changes != pages.doorbell_changes()
    }

    /// The launch that nobody told of, if that is certain by now; nothing if it is not certain yet, and never if
    /// `is_stale`.
    pub fn unannounced(&self, pages: &Pages, port: u32, bell: impl FnOnce() -> Option<Bell>) -> Verdict {
        let next = self.sequence.wrapping_add(1);
        let is_past = pages.expected(port).wrapping_sub(next) as i32 > 0;
        if !is_past && pages.sequence_in_slot_of(port, next) != next {
            return Verdict::Open;
        }
        match bell() {
            Some(now) if !self.is_stale(pages) && self.bell.is_all_that_was_heard(now) => {
                Verdict::Unannounced(self.sequence)
            }
            _ => Verdict::Fine,
        }
    }
}

/// What can be said of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet.
    Open,
    /// Somebody rang, or it cannot be said.
    Fine,
    /// Nobody rang for this one.
    Unannounced(u32),
}

/// Doorbells that nobody can have wanted: the word has been `DOORBELL_SPARED` since before any port was opened that was
/// open since the last reset. So no look of a program, however long ago, can have found it wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spared {
    /// How often the word had changed when the first port was opened.
    word_changes: Option<u64>,
    /// What was heard when that was known last.
    heard: Option<u64>,
}

impl Spared {
    /// A port is open.
    pub fn on_open(&mut self, pages: &Pages) {
        if self.word_changes.is_none() {
            self.word_changes = Some(pages.doorbell_changes());
        }
    }

    /// A port is open, and nobody knows what its program has found.
    pub fn on_open_unseen(&mut self) {
        self.word_changes = Some(u64::MAX);
    }

    /// How many doorbells were rung in vain since the last call. What was in the event when a port was first open may
    /// be older.
    pub fn unwanted(&mut self, pages: &Pages, bell: Option<Bell>) -> u64 {
        let is_spared =
            pages.doorbell() != DOORBELL_WANTED && self.word_changes == Some(pages.doorbell_changes());
        let Some(bell) = bell.filter(|_| is_spared) else {
            self.heard = None;
            return 0;
        };
        match self.heard {
            Some(heard) => {
                self.heard = Some(bell.kicks);
                bell.kicks.wrapping_sub(heard)
            }
            None => {
                self.heard = (!bell.is_pending).then_some(bell.kicks);
                0
            }
        }
    }
}
