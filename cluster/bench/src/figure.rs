//! One measured quantity: its samples, their spread, and the goal it is held against.

use serde::{Deserialize, Serialize};

/// Which clock a figure is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// What this machine took. Ratios of such times are of this clock too.
    Wall,
    /// What the modelled hardware would have taken.
    Model,
    /// None: a count or a size.
    None,
}

impl Clock {
    /// As reports name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Model => "model",
            Self::None => "-",
        }
    }
}

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// So much or more.
    AtLeast(f64),
    /// Less than this.
    Below(f64),
}

impl Goal {
    /// Whether `value` reaches the goal.
    #[must_use]
    pub fn is_reached_by(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::Below(limit) => value < limit,
        }
    }

    /// As in `>= 20`.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {}", digits(least)),
            Self::Below(limit) => format!("< {}", digits(limit)),
        }
    }
}

/// One measured quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The quantity, as a key that stays the same from version to version.
    pub name: String,
    /// The quantity in words.
    pub what: String,
    /// The clock it is of.
    pub clock: Clock,
    /// Its unit.
    pub unit: String,
    /// Median of the samples, the mean of the middle two where their number is even.
    pub median: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
    /// What was measured, in order.
    pub samples: Vec<f64>,
    /// What the median should be.
    pub goal: Option<Goal>,
    /// Whether it is.
    pub reached: Option<bool>,
}

impl Figure {
    /// A figure of these samples, of which there must be one at least: without any, JSON shows `null`.
    #[must_use]
    pub fn new(name: &str, what: &str, clock: Clock, unit: &str, samples: Vec<f64>) -> Self {
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let last = sorted.len().saturating_sub(1);
        Self {
            name: name.to_owned(),
            what: what.to_owned(),
            clock,
            unit: unit.to_owned(),
            median: f64::midpoint(at(last / 2), at(last.div_ceil(2))),
            min: at(0),
            max: at(last),
            samples,
            goal: None,
            reached: None,
        }
    }

    /// The quotients of two figures, sample by sample: each pair comes from one round.
    #[must_use]
    pub fn ratio(name: &str, what: &str, over: &Self, under: &Self) -> Self {
        let quotients = over.samples.iter().zip(&under.samples).map(|(over, under)| over / under);
        Self::new(name, what, over.clock, "times", quotients.collect())
    }

    /// The figure, held against a goal.
    #[must_use]
    pub fn with_goal(self, goal: Goal) -> Self {
        Self { goal: Some(goal), reached: Some(goal.is_reached_by(self.median)), ..self }
    }
}

/// A number with three digits that matter, and all digits before the point.
#[must_use]
pub fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        magnitude if magnitude >= 100.0 || magnitude.fract() == 0.0 => 0,
        magnitude if magnitude >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(samples: &[f64]) -> Figure {
        Figure::new("f", "a figure", Clock::Wall, "us", samples.to_vec())
    }

    #[test]
    fn the_median_and_the_spread_are_those_of_the_samples() {
        let odd = figure(&[9.0, 1.0, 2.0]);
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 9.0));
        assert_eq!(odd.samples, [9.0, 1.0, 2.0], "in the order in which they were taken");
        assert_eq!(figure(&[4.0, 1.0, 2.0, 8.0]).median, 3.0);
        assert_eq!(figure(&[7.0]).median, 7.0);
        assert!(figure(&[]).median.is_nan());
    }

    #[test]
    fn a_ratio_is_taken_within_each_round() {
        // The machine was ten times slower in the second round; the quotients do not show it.
        let ratio = Figure::ratio("r", "", &figure(&[40.0, 400.0]), &figure(&[2.0, 20.0]));
        assert_eq!((ratio.samples.as_slice(), ratio.unit.as_str()), ([20.0, 20.0].as_slice(), "times"));
    }

    #[test]
    fn goals_are_judged_by_the_median_and_their_bound() {
        assert_eq!(figure(&[1.0, 20.0, 30.0]).with_goal(Goal::AtLeast(20.0)).reached, Some(true));
        assert_eq!(figure(&[19.9]).with_goal(Goal::AtLeast(20.0)).reached, Some(false));
        assert_eq!(figure(&[12.0]).with_goal(Goal::Below(12.0)).reached, Some(false));
        assert_eq!(figure(&[]).with_goal(Goal::Below(12.0)).reached, Some(false));
    }

    #[test]
    fn numbers_keep_the_digits_that_matter() {
        let shown = [1234.56, 123.4, 45.678, 1.005, 20.0, 0.25].map(digits);
        assert_eq!(shown, ["1235", "123", "45.7", "1.00", "20", "0.25"]);
    }
}
