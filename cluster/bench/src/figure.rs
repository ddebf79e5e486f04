//! One measured quantity: its samples, their spread, and its goal.

use serde::{Deserialize, Serialize};

/// The clock of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// Wall time of this machine. Ratios of such times have this clock, too.
    Wall,
    /// Model time of the modelled hardware.
    Model,
    /// No clock: a count or a size.
    None,
}

impl Clock {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Model => "model",
            Self::None => "-",
        }
    }
}

/// The goal of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// This value or more.
    AtLeast(f64),
    /// Less than this value.
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

    /// As text, such as `>= 20`.
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
    /// The quantity's key, which is the same in all versions.
    pub name: String,
    /// The quantity in words.
    pub what: String,
    /// The clock it is of.
    pub clock: Clock,
    /// Its unit.
    pub unit: String,
    /// Median of the samples; of an even number, the mean of the middle two.
    pub median: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
    /// The samples, in order of measurement.
    pub samples: Vec<f64>,
    /// The goal for the median.
    pub goal: Option<Goal>,
    /// Whether the median reaches the goal.
    pub reached: Option<bool>,
}

impl Figure {
    /// A figure of these samples; there must be at least one. Without samples, JSON shows `null`.
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

    /// The ratio of two figures, sample by sample: both samples of a pair are from the same round.
    #[must_use]
    pub fn ratio(name: &str, what: &str, over: &Self, under: &Self) -> Self {
        let quotients = over.samples.iter().zip(&under.samples).map(|(over, under)| over / under);
        Self::new(name, what, over.clock, "times", quotients.collect())
    }

    /// The figure with a goal.
    #[must_use]
    pub fn with_goal(self, goal: Goal) -> Self {
        Self { goal: Some(goal), reached: Some(goal.is_reached_by(self.median)), ..self }
    }
}

/// A number with three significant digits, or all digits before the decimal point if there are more.
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
    fn median_and_spread_match_the_samples() {
        let odd = figure(&[9.0, 1.0, 2.0]);
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 9.0));
        assert_eq!(odd.samples, [9.0, 1.0, 2.0], "in order of measurement");
        assert_eq!(figure(&[4.0, 1.0, 2.0, 8.0]).median, 3.0);
        assert_eq!(figure(&[7.0]).median, 7.0);
        assert!(figure(&[]).median.is_nan());
    }

    #[test]
    fn ratio_uses_samples_of_the_same_round() {
        // The machine was ten times slower in the second round; the quotients do not show it.
        let ratio = Figure::ratio("r", "", &figure(&[40.0, 400.0]), &figure(&[2.0, 20.0]));
        assert_eq!((ratio.samples.as_slice(), ratio.unit.as_str()), ([20.0, 20.0].as_slice(), "times"));
    }

    #[test]
    fn goals_compare_the_median_with_the_bound() {
        assert_eq!(figure(&[1.0, 20.0, 30.0]).with_goal(Goal::AtLeast(20.0)).reached, Some(true));
        assert_eq!(figure(&[19.9]).with_goal(Goal::AtLeast(20.0)).reached, Some(false));
        assert_eq!(figure(&[12.0]).with_goal(Goal::Below(12.0)).reached, Some(false));
        assert_eq!(figure(&[]).with_goal(Goal::Below(12.0)).reached, Some(false));
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        let shown = [1234.56, 123.4, 45.678, 1.005, 20.0, 0.25].map(digits);
        assert_eq!(shown, ["1235", "123", "45.7", "1.00", "20", "0.25"]);
    }
}
