//! Model time: the time that the modelled hardware would have taken. Never wall time.
//!
//! Arithmetic saturates, but never unnoticed: [`Time::LIMIT`] is half of the range. A shell checks every instant at
//! which it acts ([`Time::within_limit`]), and ends the cluster with [`EndOfTime`] beyond the limit. The other half is
//! room for the spans that one step of a model adds before the shell checks the result.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

use thiserror::Error;

/// An instant of model time, in picoseconds since the cluster was made. Nothing happens after [`Time::LIMIT`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// When the first and the last byte of a frame reach a point. Both are equal for a frame that is complete at one
/// instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// The first byte.
    pub head: Time,
    /// The last byte.
    pub tail: Time,
}

impl From<Time> for Passage {
    fn from(at: Time) -> Self {
        Self { head: at, tail: at }
    }
}

/// A length of model time, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

/// Model time is over: an instant lies after [`Time::LIMIT`]. Later results could not be exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "model time reaches {} days after the cluster's start, and ends after {}; shorten the long pauses, timeouts or \
     rate control intervals",
    days(*.at),
    days(Time::LIMIT)
)]
pub struct EndOfTime {
    /// The instant; [`Time::END`] if the number overflowed.
    pub at: Time,
}

/// Whole days of model time since the start.
const fn days(at: Time) -> u64 {
    at.0 / (24 * 3_600 * 1_000_000_000_000)
}

impl Time {
    /// The start.
    pub const ZERO: Self = Self(0);

    /// The last valid instant: 106 days after the start.
    pub const LIMIT: Self = Self(u64::MAX / 2);

    /// The maximum of the number, at which arithmetic saturates.
    pub const END: Self = Self(u64::MAX);

    /// The instant `ps` picoseconds after the start.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Picoseconds since the start.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// The span since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The instant `span` later, saturating: `+` for constant expressions.
    pub const fn later(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// This instant, if it is valid.
    ///
    /// # Errors
    /// [`EndOfTime`] after [`Time::LIMIT`].
    pub const fn within_limit(self) -> Result<Self, EndOfTime> {
        if self.0 <= Self::LIMIT.0 { Ok(self) } else { Err(EndOfTime { at: self }) }
    }

    /// The instant `span` later, if it is valid.
    ///
    /// # Errors
    /// [`EndOfTime`] after [`Time::LIMIT`].
    pub const fn checked_later(self, span: Span) -> Result<Self, EndOfTime> {
        self.later(span).within_limit()
    }

    /// The instant `span` earlier, not before the start.
    pub const fn before(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// The shortest span.
    pub const SHORTEST: Self = Self(1);

    /// A span of `ps` picoseconds.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// A span of `ns` nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.saturating_mul(1_000))
    }

    /// Picoseconds.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// This span `count` times, saturating.
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Sub for Time {
    type Output = Span;
    fn sub(self, earlier: Time) -> Span {
        self.since(earlier)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} ns (model)", self.0 / 1_000, self.0 % 1_000)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} ns (model)", self.0 / 1_000, self.0 % 1_000)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_sum_is_exact_or_an_error(from: u64, by: u64) {
            let exact = u128::from(from) + u128::from(by);
            let sum = Time::from_ps(from).checked_later(Span::from_ps(by));
            if exact <= u128::from(Time::LIMIT.as_ps()) {
                prop_assert_eq!(sum.map(|at| u128::from(at.as_ps())), Ok(exact));
            } else {
                prop_assert!(sum.is_err());
            }
        }

        #[test]
        fn a_step_within_the_limit_never_saturates(from in 0..=Time::LIMIT.0, by in 0..=Time::LIMIT.0) {
            let (from, by) = (Time::from_ps(from), Span::from_ps(by));
            prop_assert_eq!((from + by).since(from), by);
            prop_assert_eq!((from + by).before(by), from);
        }
    }

    #[test]
    fn the_error_names_both_instants_in_days() {
        let error = Time::END.within_limit().unwrap_err();
        assert_eq!(error.at, Time::END);
        let text = error.to_string();
        assert!(text.contains("213 days") && text.contains("ends after 106"), "{text}");
    }
}
