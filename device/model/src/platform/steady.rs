//! Extrapolation in a steady state: consecutive events, each of which is a fixed span later at every stage than the
//! one before.
//!
//! The state of a stage consists of instants: the arrival of the event, and the end of each resource's occupation. The
//! result follows from these by maximum, minimum, and constant spans. If *every* relevant instant is one span later
//! than for the previous event, so is every result, and waiting and cost are the same. A stage computes the first
//! event. If all its resources then moved on by the span between events ([`pace`]), it extrapolates the others
//! ([`Run`]).

use alloc::vec::Vec;

use crate::time::{Passage, Span, Time};

/// Consecutive events at the same stage, each a fixed span later than the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Number of events, from 1.
    pub count: usize,
    /// Span between two events.
    pub by: Span,
    /// When the sender's software began the first one.
    pub launched: Time,
    /// First and last byte times of the first one: when the bytes are ready for the link, and after the link, when
    /// they arrive.
    pub passage: Passage,
    /// When the first one is visible at its receiver.
    pub at: Time,
    /// Latency of each until its receiver's program has it.
    pub took: Span,
}

impl Run {
    /// The run without its first `count` events; it must have more.
    #[inline]
    #[must_use]
    pub const fn behind(&self, count: usize) -> Self {
        Self { count: self.count.saturating_sub(count), ..self.later(count) }
    }

    /// The last event alone.
    #[inline]
    #[must_use]
    pub const fn last(&self) -> Self {
        Self { count: 1, ..self.later(self.count.saturating_sub(1)) }
    }

    /// Span from the first to the last event.
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

/// Input runs of a stage, and its output runs.
#[derive(Debug, Default)]
pub struct Runs {
    coming: Vec<Run>,
    done: Vec<Run>,
}

impl Runs {
    /// Discards the runs.
    #[inline]
    pub fn clear(&mut self) {
        self.done.clear();
    }

    /// Output of the last stage.
    #[inline]
    pub fn done(&self) -> &[Run] {
        &self.done
    }

    /// Adds an output run.
    #[inline]
    pub fn push(&mut self, run: Run) {
        self.done.push(run);
    }

    /// Begins the next stage: the last output becomes its input. Returns input and output.
    #[inline]
    pub fn begin_stage(&mut self) -> (&[Run], &mut Vec<Run>) {
        core::mem::swap(&mut self.coming, &mut self.done);
        self.done.clear();
        (&self.coming, &mut self.done)
    }
}

/// Instants before this are far from the end of model time. Ours: half of the range.
const FAR: u64 = 1 << 63;

/// Spans up to this are extrapolated, for any number of events in a run. Ours: all of them together stay within the
/// other half.
const LONGEST: u64 = 1 << 52;

/// The span by which all `places` moved on since `before`, if it is the same for all. None if `latest`, the latest
/// instant that the stage computed, is near the end of model time, where arithmetic saturates.
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

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    use super::*;
    use crate::platform::ledger::{Cost, Crossing, Ledger, Series, Sums};

    /// Three resources in a row, of which the last also waits for the tail, and three lines of a ledger.
    struct Row {
        busy_until: [Time; 3],
        series: [Series; 3],
        ledger: Ledger,
    }

    impl Row {
        fn new(prices: &[(u64, u64)], begin: u64) -> Self {
            let ledger = Ledger::default();
            let series = core::array::from_fn(|place| {
                let (occupancy, latency) = prices[place];
                let (occupancy, latency) = (Span::from_ps(occupancy), Span::from_ps(latency));
                let cost = Cost { count: 2, bytes: 7, occupancy, latency };
                ledger.series([Crossing::HostSend, Crossing::PioWrite, Crossing::NiCycles][place], cost)
            });
            Self { busy_until: [Time::from_ps(begin); 3], series, ledger }
        }

        fn pass(&mut self, come: Passage) -> Time {
            let [first, second, third] = &mut self.busy_until;
            let [one, two, three] = &mut self.series;
            let head = two.cross(second, one.cross(first, come.head).end).end;
            three.cross_for(third, head.min(come.tail), Span::from_ps(50).max(come.tail.since(head))).end
        }

        fn sums(&self) -> [Sums; 3] {
            self.series.each_ref().map(Series::sums)
        }

        fn enter(mut self) -> ([Time; 3], Ledger) {
            self.series.iter().for_each(|series| self.ledger.enter(series));
            (self.busy_until, self.ledger)
        }
    }

    /// An input run: delay after the run before, tail after head, span between events, number of events.
    type Coming = (u64, u64, u64, usize);

    fn coming() -> impl Strategy<Value = Vec<Coming>> {
        let by = prop_oneof![3 => 0..400_u64, 1 => Just(100), 1 => Just(1 << 53)];
        prop::collection::vec((0..300_u64, 0..300_u64, by, 1..33_usize), 1..8)
    }

    #[test]
    fn extrapolated_runs_equal_computed_ones() {
        let prices = prop::collection::vec((0..200_u64, 0..200_u64), 3);
        let begin =
            prop_oneof![3 => 0..1_000_u64, 1 => FAR - 5_000..FAR + 5_000, 1 => u64::MAX - 20_000..=u64::MAX];
        let extrapolated = Cell::new(0);
        let hold = |(prices, begin, coming): (Vec<(u64, u64)>, u64, Vec<Coming>)| {
            let (mut single, mut steady) = (Row::new(&prices, begin), Row::new(&prices, begin));
            let mut at = Time::from_ps(begin);
            for (gap, longer, by, count) in coming {
                at += Span::from_ps(gap);
                let passage = Passage { head: at, tail: at + Span::from_ps(longer) };
                let run = Run { count, by: Span::from_ps(by), passage, ..Run::default() };
                let mut one_by_one = Vec::new();
                let mut left = run;
                while left.count > 0 {
                    one_by_one.push(single.pass(left.passage));
                    left = left.behind(1);
                }
                let mut in_runs = Vec::new();
                let mut left = run;
                while left.count > 0 {
                    let (before, sums) = (steady.busy_until, steady.sums());
                    let end = steady.pass(left.passage);
                    let mut done = Run { count: 1, at: end, ..left };
                    if pace(&before, &steady.busy_until, end) == Some(run.by) {
                        done.count = left.count;
                        let times = done.count as u64 - 1;
                        steady.busy_until.iter_mut().for_each(|place| *place += done.from_first_to_last());
                        let places = steady.series.iter_mut().zip(&sums);
                        places.for_each(|(series, sums)| series.cross_again(sums, times));
                        extrapolated.set(extrapolated.get() + times);
                    }
                    in_runs.extend((1..=done.count).map(|count| Run { count, ..done }.last().at));
                    left = left.behind(done.count);
                }
                prop_assert_eq!(in_runs, one_by_one);
                at = run.last().passage.head;
            }
            prop_assert_eq!(steady.enter(), single.enter());
            Ok(())
        };
        TestRunner::new(ProptestConfig::default()).run(&(prices, begin, coming()), hold).unwrap();
        assert!(extrapolated.get() > 1_000, "{}", extrapolated.get());
    }

    #[test]
    fn unequal_moves_and_the_end_of_time_are_not_steady() {
        let at = Time::from_ps;
        let of = |before: [u64; 2], places: [u64; 2], latest: u64| {
            pace(&before.map(at), &places.map(at), at(latest))
        };
        assert_eq!(of([5, 9], [12, 16], 30), Some(Span::from_ps(7)));
        assert_eq!(of([5, 9], [12, 17], 30), None);
        assert_eq!(of([5, 9], [12, 9], 30), None, "one resource was not used");
        assert_eq!(of([5, 9], [5, 9], 30), Some(Span::ZERO), "no time passes");
        assert_eq!(of([5, 9], [12, 16], FAR), None);
        assert_eq!(of([FAR - 4, FAR - 3], [FAR - 1, FAR], 30), None);
        assert_eq!(of([5, 9], [5 + LONGEST + 1, 9 + LONGEST + 1], 30), None);
    }
}
