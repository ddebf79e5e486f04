//! A steady state: things that follow one another on one way, each of which is at every place on it a fixed span later than the one
//! before.
//!
//! Whatever a thing meets on its way is an instant: that at which it comes, and until when a place is busy. What becomes of it is made of
//! these by the later and the earlier of two, and by spans that are the same for all. So where *every* instant that has a say is
//! a span later than it was for the thing before, whatever becomes of this one is that span later, too; and what it waited, and what it
//! cost, is the same. A stage works the first out, looks whether all its places have moved on by that span by which the next
//! comes ([`pace`]), and then need not look at the next ones ([`Run`]).

use alloc::vec::Vec;

use crate::time::{Passage, Span, Time};

/// Things that follow one another, each of them the one before it a fixed span later, wherever they have come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// How many there are, from 1.
    pub count: usize,
    /// By how much each is later than the one before it.
    pub by: Span,
    /// When the sender's software began with the first.
    pub launched: Time,
    /// When the first byte of the first and its last are ready for the link; and behind the link, when they are there.
    pub passage: Passage,
    /// When the first is visible at its receiver.
    pub at: Time,
    /// How long each took until its receiver's program had it.
    pub took: Span,
}

impl Run {
    /// Those behind the first `count`, of which there are more.
    #[inline]
    #[must_use]
    pub const fn behind(&self, count: usize) -> Self {
        Self { count: self.count.saturating_sub(count), ..self.later(count) }
    }

    /// The last by itself.
    #[inline]
    #[must_use]
    pub const fn last(&self) -> Self {
        Self { count: 1, ..self.later(self.count.saturating_sub(1)) }
    }

    /// From the first to the last.
    #[inline]
    #[must_use]
    pub const fn from_first_to_last(&self) -> Span {
        self.by.times(self.count.saturating_sub(1) as u64)
    }

    #[inline]
    const fn later(&self, count: usize) -> Self {
        let by = self.by.times(count as u64);
        let Passage { head, tail } = self.passage;
        Self {
            launched: self.launched.later(by),
            passage: Passage { head: head.later(by), tail: tail.later(by) },
            at: self.at.later(by),
            ..*self
        }
    }
}

/// Runs that have come to a stage, and what it makes of them.
#[derive(Debug, Default)]
pub struct Runs {
    coming: Vec<Run>,
    done: Vec<Run>,
}

impl Runs {
    /// None.
    #[inline]
    pub fn clear(&mut self) {
        self.done.clear();
    }

    /// What the last stage has made.
    #[inline]
    pub fn done(&self) -> &[Run] {
        &self.done
    }

    /// One more that a stage has made.
    #[inline]
    pub fn push(&mut self, run: Run) {
        self.done.push(run);
    }

    /// Another stage begins: the runs that come to it, and where it puts what it makes of them.
    #[inline]
    pub fn begin_stage(&mut self) -> (&[Run], &mut Vec<Run>) {
        core::mem::swap(&mut self.coming, &mut self.done);
        self.done.clear();
        (&self.coming, &mut self.done)
    }
}

/// Instants before this are far from the end of model time. Ours: half of all.
const FAR: u64 = 1 << 63;

/// Spans up to this are carried on by, as often as there can be things in a run. Ours: so that all of them together stay within the
/// other half.
const LONGEST: u64 = 1 << 52;

/// The span by which all `places` are busy longer than they were, where it is the same for all of them. None, too, where `latest`, the
/// latest instant that was worked out in between, is not far from the end of model time, at which nothing is later any more.
#[inline]
pub fn pace<const PLACES: usize>(
    before: &[Time; PLACES],
    places: &[Time; PLACES],
    latest: Time,
) -> Option<Span> {
    let by = places.first()?.since(*before.first()?);
    let is_same = |(before, place): (&Time, &Time)| *place == *before + by && place.as_ps() < FAR;
    let is_far = latest.as_ps() < FAR && by.as_ps() <= LONGEST;
    (is_far && before.iter().zip(places).all(is_same)).then_some(by)
}
