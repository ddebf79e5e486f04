//! The timers of a card, in model time. A model names each kind by a value of an enum, documented with its purpose,
//! and has one of each kind for each port or peer.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt::Debug;

use crate::time::{Span, Time};

/// The kinds of a model's timers.
pub trait TimerName: Copy + Debug + Ord + 'static {
    /// All of them, in the order of their declaration.
    const ALL: &'static [Self];
}

/// The deadline of each timer, by kind and index (of a port or a peer).
#[derive(Clone, Debug)]
pub struct Timers<T> {
    /// By index, and within it by kind.
    deadlines: Vec<Option<Time>>,
    /// Running timers, sorted by deadline, then kind, then index.
    running: BTreeSet<(Time, T, usize)>,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self { deadlines: Vec::new(), running: BTreeSet::new() }
    }
}

impl<T: TimerName> Timers<T> {
    /// The earliest deadline.
    #[inline]
    pub fn next(&self) -> Option<Time> {
        self.running.first().map(|(deadline, ..)| *deadline)
    }

    /// Whether the timer runs.
    #[inline]
    pub fn is_running(&self, timer: T, place: usize) -> bool {
        self.deadlines.get(index_of(timer, place)).is_some_and(Option::is_some)
    }

    /// Starts the timer, or changes its deadline to `wait` after `now`, and always later than `now`. Otherwise a timer
    /// that expires at the instant of its start, and is then restarted, would keep the card busy for ever at that
    /// instant. At [`Time::END`] there is no later instant, so no timer starts there: the shell ends the cluster
    /// before ([`crate::time::EndOfTime`]).
    pub fn start(&mut self, timer: T, place: usize, now: Time, wait: Span) {
        let deadline = now.later(wait.max(Span::SHORTEST));
        self.set(timer, place, Some(deadline).filter(|deadline| *deadline > now));
    }

    /// Stops the timer.
    #[inline]
    pub fn stop(&mut self, timer: T, place: usize) {
        if self.is_running(timer, place) {
            self.set(timer, place, None);
        }
    }

    /// Starts the timer with this deadline, or stops it for `None`.
    pub fn set(&mut self, timer: T, place: usize, deadline: Option<Time>) {
        let index = index_of(timer, place);
        if index >= self.deadlines.len() {
            self.deadlines.resize((place + 1) * T::ALL.len(), None);
        }
        let Some(known) = self.deadlines.get_mut(index) else { return };
        if *known == deadline {
            return;
        }
        if let Some(old) = core::mem::replace(known, deadline) {
            self.running.remove(&(old, timer, place));
        }
        if let Some(new) = deadline {
            self.running.insert((new, timer, place));
        }
    }

    /// Stops the timer with the earliest deadline, if it has expired, and returns it.
    pub fn take_expired(&mut self, now: Time) -> Option<(T, usize)> {
        let &(_, timer, place) = self.running.first().filter(|(deadline, ..)| *deadline <= now)?;
        self.stop(timer, place);
        Some((timer, place))
    }
}

fn index_of<T: TimerName>(timer: T, place: usize) -> usize {
    let rank = T::ALL.binary_search(&timer);
    debug_assert!(rank.is_ok(), "{timer:?} is missing in TimerName::ALL, or TimerName::ALL is not sorted");
    place * T::ALL.len() + rank.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Timer {
        Probe,
        Retransmission,
    }

    impl TimerName for Timer {
        const ALL: &'static [Self] = &[Self::Probe, Self::Retransmission];
    }

    #[test]
    fn the_earliest_deadline_is_the_next() {
        let at = Time::from_ps;
        let mut timers = Timers::default();
        assert_eq!(timers.next(), None);
        timers.start(Timer::Probe, 3, at(5), Span::from_ps(15));
        timers.start(Timer::Probe, 5, at(5), Span::from_ps(5));
        assert_eq!(timers.next(), Some(at(10)));
        assert_eq!(timers.take_expired(at(9)), None);
        assert_eq!(timers.take_expired(at(15)), Some((Timer::Probe, 5)));
        assert_eq!(timers.take_expired(at(15)), None);
        assert_eq!(timers.next(), Some(at(20)));
        timers.stop(Timer::Retransmission, 3);
        assert!(timers.is_running(Timer::Probe, 3));
        timers.stop(Timer::Probe, 3);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn simultaneous_timers_expire_in_order_of_kind_and_index() {
        let mut timers = Timers::default();
        for (timer, place) in [(Timer::Retransmission, 0), (Timer::Probe, 7), (Timer::Probe, 2)] {
            timers.start(timer, place, Time::ZERO, Span::from_ps(5));
        }
        let order = core::iter::from_fn(|| timers.take_expired(Time::from_ps(5)));
        assert!(order.eq([(Timer::Probe, 2), (Timer::Probe, 7), (Timer::Retransmission, 0)]));
    }

    proptest! {
        #[test]
        fn timer_never_expires_at_the_instant_of_its_start(
            now in prop_oneof![any::<u64>(), Just(Time::LIMIT.as_ps()), Just(u64::MAX)],
            wait in prop_oneof![any::<u64>(), Just(0), Just(u64::MAX)],
        ) {
            let (now, mut timers) = (Time::from_ps(now), Timers::default());
            timers.start(Timer::Probe, 0, now, Span::from_ps(wait));
            prop_assert_eq!(timers.take_expired(now), None);
            prop_assert!(timers.next().is_some() || now == Time::END);
        }

        #[test]
        fn timers_equal_a_plain_table_of_deadlines(
            script in prop::collection::vec(
                (any::<bool>(), 0..9_usize, prop::option::of(0..50_u64), 0..50_u64),
                0..200,
            ),
        ) {
            let mut timers = Timers::default();
            let mut plain = BTreeMap::new();
            for (is_probe, place, deadline, now) in script {
                let timer = if is_probe { Timer::Probe } else { Timer::Retransmission };
                timers.set(timer, place, deadline.map(Time::from_ps));
                plain.remove(&(timer, place));
                plain.extend(deadline.map(|deadline| ((timer, place), deadline)));
                prop_assert_eq!(timers.next().map(Time::as_ps), plain.values().min().copied());
                prop_assert_eq!(timers.is_running(timer, place), deadline.is_some());
                let due = plain.iter().map(|(&name, &deadline)| (deadline, name)).min();
                let due = due.filter(|(deadline, _)| *deadline <= now).map(|(_, name)| name);
                prop_assert_eq!(timers.take_expired(Time::from_ps(now)), due);
                due.map(|name| plain.remove(&name));
            }
        }
    }
}
