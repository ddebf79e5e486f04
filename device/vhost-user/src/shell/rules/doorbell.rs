//! Finds posts without a doorbell, and spurious doorbells.
//!
//! The proof that a doorbell is missing needs no clock:
//!
//! 1. The device stored the number of a sleep, executed a full barrier, and polled for post `s`, which was not there.
//!    No doorbell was rung in between.
//! 2. So the driver stored `s` later. It loaded the doorbell word after a full barrier of its own, so later still, and
//!    found this number: the word has not changed until now. It had not rung for this number before.
//! 3. Post `s + 1` is there, so the driver rang for `s` before. If it may ring once for several posts
//!    ([`niclab_abi::control::PORT_BATCHES`]), only this is known: it rang before it closed the port. The page may not
//!    have been full, because the device also takes posts when it polls for another reason.
//! 4. A doorbell increments an event's count before the driver's store to the notify register completes. The daemon
//!    counts the doorbells that it takes out of the event, under the queue's lock. If the event has none, and the
//!    daemon has taken none since step 1, then no doorbell was rung.
//!
//! Until the later post is there, the check reports nothing: the host may stop the driver before it rings, for any
//! time.

use niclab_abi::bar::DOORBELL_SPARED;

use crate::shell::pages::Pages;
use crate::vring::Bell;

/// A poll that found no next post while the device slept.
#[derive(Clone, Copy, Debug)]
pub struct Absent {
    /// Number of the missing post.
    sequence: u32,
    /// Changes of the word until the poll.
    word_changes: u64,
    /// The doorbells until the poll.
    bell: Bell,
}

impl Absent {
    /// Polls for the next post of `port`. `asleep` is the state of the doorbell when the sleep began, and `bell` its
    /// state before the poll.
    pub fn look(pages: &Pages, port: u32, asleep: Option<Bell>, bell: Option<Bell>) -> Option<Self> {
        let bell = bell
            .filter(|bell| asleep.map_or(bell.is_silent(), |asleep| asleep.is_all_that_was_heard(*bell)))?;
        if pages.doorbell() == DOORBELL_SPARED || pages.is_launched(port) {
            return None;
        }
        let sequence = pages.expected(port);
        let next = sequence.wrapping_add(1);
        if pages.sequence_in_slot_of(port, next) == next {
            // The driver stored this post, and then overwrote it (rule `slot-free`). It has rung by now.
            return None;
        }
        Some(Self { sequence, word_changes: pages.doorbell_changes(), bell })
    }

    /// Whether the word has changed since, so that this poll proves nothing.
    pub fn is_stale(&self, pages: &Pages) -> bool {
        self.word_changes != pages.doorbell_changes()
    }

    /// What is known about the missing post by now. The driver rings for it before it stores the one `ahead` posts
    /// later.
    pub fn unannounced(
        &self,
        pages: &Pages,
        port: u32,
        ahead: u32,
        bell: impl FnOnce() -> Option<Bell>,
    ) -> Verdict {
        let next = self.sequence.wrapping_add(ahead);
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

/// What is known about a post that a poll did not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet: the later post is not there.
    Open,
    /// A doorbell was rung, or the poll is stale and proves nothing.
    Fine,
    /// No doorbell was rung for this post.
    Unannounced(u32),
}

/// Finds spurious doorbells: the word has been `DOORBELL_SPARED` since before the first port was opened after the last
/// reset. So no program can have loaded another value, however long ago.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spared {
    /// Changes of the word until the first port was opened.
    word_changes: Option<u64>,
    /// Doorbells until the last [`Spared::unwanted`]. None while older doorbells may be in the event.
    kicks: Option<u64>,
}

impl Spared {
    /// A port was opened.
    pub fn on_open(&mut self, pages: &Pages) {
        if self.word_changes.is_none() {
            self.word_changes = Some(pages.doorbell_changes());
        }
    }

    /// A port was opened before the check started. Its program may have loaded another value.
    pub fn on_open_unseen(&mut self) {
        self.word_changes = Some(u64::MAX);
    }

    /// Number of spurious doorbells since the last call. Doorbells that the event had when a port was first opened may
    /// be older, and do not count.
    pub fn unwanted(&mut self, pages: &Pages, bell: Option<Bell>) -> u64 {
        let is_spared =
            pages.doorbell() == DOORBELL_SPARED && self.word_changes == Some(pages.doorbell_changes());
        let Some(bell) = bell.filter(|_| is_spared) else {
            self.kicks = None;
            return 0;
        };
        match self.kicks {
            Some(kicks) => {
                self.kicks = Some(bell.kicks);
                bell.kicks.wrapping_sub(kicks)
            }
            None => {
                self.kicks = (!bell.is_pending).then_some(bell.kicks);
                0
            }
        }
    }
}
