//! Decides sequentially whether the median of a stream of values is below or above a limit.
//!
//! After each value there is a confidence interval of the median, and all intervals are valid together. So the caller
//! may check after each value, and stop as soon as the limit is outside. It is wrong no more often than by the stated
//! chance. A test for a fixed number of values would not allow such repeated checks.
//!
//! Whether a value is below the median is a coin toss. Consider bets on more heads than tails, with the probability of
//! heads spread evenly over 1/2 to 1. They multiply the stake by [`evidence`]. By Ville's inequality the probability
//! that it ever reaches `1 / chance` is at most `chance` (Robbins, "Statistical methods related to the law of the
//! iterated logarithm", Ann. Math. Stat. 41 (1970); Howard and Ramdas, "Sequential estimation of quantiles with
//! The test assumes nothing about the values' distributions, which may differ. But each value must be as likely below
//! the median as above, independent of earlier values. A disturbance may slow either side. It must not slow the same
//! side for many consecutive rounds: no median distinguishes that from a slower program.

use std::cmp::Ordering;

/// The values so far, and the limit.
#[derive(Clone, Debug)]
pub struct Sequence {
    limit: f64,
    /// Maximum probability of a wrong decision, for each decision.
    chance: f64,
    sorted: Vec<f64>,
    /// The smallest number of values below (or above) the median that is improbable at this chance.
    critical: usize,
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The median is below the limit.
    Below,
    /// The median is above the limit.
    Above,
}

impl Sequence {
    /// A test without values. Each decision is wrong with a probability of at most `1 - confidence`.
    #[must_use]
    pub fn new(limit: f64, confidence: f64) -> Self {
        Self { limit, chance: 1.0 - confidence, sorted: Vec::new(), critical: 0 }
    }

    /// Adds a value; returns the decision, if there is one.
    pub fn push(&mut self, value: f64) -> Option<Side> {
        let place = self.sorted.partition_point(|other| other.total_cmp(&value) == Ordering::Less);
        self.sorted.insert(place, value);
        // The critical number never falls: with more values, the same number of them below is less improbable.
        while self.critical <= self.len() && evidence(self.len(), self.critical) * self.chance < 1.0 {
            self.critical += 1;
        }
        let (lower, upper) = self.interval();
        if upper.is_some_and(|upper| upper < self.limit) {
            return Some(Side::Below);
        }
        lower.is_some_and(|lower| lower > self.limit).then_some(Side::Above)
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The upper median of the values, if there are any.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        self.sorted.get(self.len() / 2).copied()
    }

    /// Lower and upper bound of the true median, each with the required confidence; `None` if there are too few values.
    #[must_use]
    pub fn interval(&self) -> (Option<f64>, Option<f64>) {
        let lower = self.len().checked_sub(self.critical).and_then(|index| self.sorted.get(index));
        let upper = self.critical.checked_sub(1).and_then(|index| self.sorted.get(index));
        (lower.copied(), upper.copied())
    }
}

/// The factor on a stake of 1 after `heads` of `values` tosses. It is the mean of `2^n q^k (1 - q)^(n - k)` over `q`
/// from 1/2 to 1. That equals the sum of `C(n + 1, j)` for `j` up to `k`, divided by `(n + 1) C(n, k)`.
#[expect(clippy::cast_precision_loss, reason = "at most 1000 rounds")]
fn evidence(values: usize, heads: usize) -> f64 {
    let tosses = values as f64 + 1.0;
    // C(n + 1, j) / C(n, k), from j = k downwards.
    let mut term = tosses / (tosses - heads as f64);
    let mut sum = term;
    for j in (1..=heads).rev().map(|j| j as f64) {
        term *= j / (tosses + 1.0 - j);
        sum += term;
    }
    sum / tosses
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The integral, by the midpoint rule.
    fn integrated(values: i32, heads: i32) -> f64 {
        const STEPS: u32 = 200_000;
        let width = 0.5 / f64::from(STEPS);
        let at = |step: u32| 0.5 + width * (f64::from(step) + 0.5);
        let bet = |q: f64| (2.0 * q).powi(heads) * (2.0 * (1.0 - q)).powi(values - heads);
        (0..STEPS).map(|step| bet(at(step))).sum::<f64>() * width * 2.0
    }

    #[test]
    fn stake_equals_the_integral_over_all_probabilities() {
        for (values, heads) in [(0, 0), (1, 1), (1, 0), (10, 10), (20, 15), (50, 20), (99, 70)] {
            let (sum, integral) = (evidence(values as usize, heads as usize), integrated(values, heads));
            assert!((sum / integral - 1.0).abs() < 1e-6, "{heads} of {values}: {sum} {integral}");
        }
    }

    /// Repeated checks are valid because the expected stake of fair tosses does not grow.
    #[test]
    fn fair_coin_does_not_increase_the_stake() {
        for values in 0..200 {
            for heads in 0..=values {
                let after = (evidence(values + 1, heads) + evidence(values + 1, heads + 1)) / 2.0;
                let before = evidence(values, heads);
                assert!(after <= before * (1.0 + 1e-9), "{heads} of {values}: {before} to {after}");
            }
        }
    }

    #[test]
    fn only_a_stream_on_one_side_is_decided() {
        let decided = |value: f64| {
            let mut sequence = Sequence::new(3.0, 0.999);
            (1..100).find_map(|round| sequence.push(value).map(|side| (side, round)))
        };
        // (2^14 - 1) / 14 is the first value above 1000.
        assert_eq!(decided(2.9), Some((Side::Below, 13)));
        assert_eq!(decided(3.1), Some((Side::Above, 13)));
        assert_eq!(decided(3.0), None, "at the limit there is no decision");
        let mut sequence = Sequence::new(3.0, 0.999);
        assert!((0..1000).all(|round| sequence.push(f64::from(round % 2 * 4 + 1)).is_none()));
        assert_eq!(sequence.interval(), (Some(1.0), Some(5.0)));
    }

    #[test]
    fn bounds_need_enough_values() {
        let mut sequence = Sequence::new(0.0, 0.95);
        let bounds: Vec<_> = (1..=20)
            .map(|value| {
                sequence.push(f64::from(value));
                sequence.interval()
            })
            .collect();
        assert_eq!(bounds[5], (None, None), "six of six are not enough");
        assert_eq!(bounds[6], (Some(1.0), Some(7.0)), "seven are: 255 / 8 is above 20");
        let (lower, upper) = bounds[19];
        let (lower, upper) = (lower.unwrap(), upper.unwrap());
        assert!(lower > 1.0 && upper < 20.0 && (lower + upper - 21.0).abs() < 1e-9, "{lower} {upper}");
    }

    /// Uniform random numbers from 0 to 1, from a seed (SplitMix64).
    struct Uniform(u64);

    impl Uniform {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    /// How the machine disturbs the rounds. An undisturbed round is off by up to a tenth. A disturbed side is slower by
    /// a factor of 1 to 20.
    #[derive(Clone, Copy, Debug)]
    enum Machine {
        /// Half of the rounds are disturbed, both sides by independent factors, uniform in their logarithms.
        Disturbed,
        /// As before, but the factor is above x with a probability of 1/x (Pareto), cut at 20.
        HeavyTailed,
        /// Half of the time one side alone is slow, for two rounds on average. Each side is equally likely.
        OneSided,
    }

    /// The times of one round's two sides; less is better.
    struct Rounds {
        machine: Machine,
        uniform: Uniform,
        slow: Option<usize>,
    }

    impl Rounds {
        fn next(&mut self) -> [f64; 2] {
            let mut times = [0.9 + 0.2 * self.uniform.next(), 0.9 + 0.2 * self.uniform.next()];
            match self.machine {
                Machine::Disturbed | Machine::HeavyTailed => {
                    if self.uniform.next() < 0.5 {
                        times = times.map(|time| time * self.factor());
                    }
                }
                Machine::OneSided => {
                    if self.uniform.next() < 0.5 {
                        self.slow = [None, None, Some(0), Some(1)][(self.uniform.next() * 4.0) as usize];
                    }
                    if let Some(side) = self.slow {
                        times[side] *= self.factor();
                    }
                }
            }
            times
        }

        fn factor(&mut self) -> f64 {
            match self.machine {
                Machine::HeavyTailed => (1.0 / (1.0 - self.uniform.next())).min(20.0),
                _ => 20.0_f64.powf(self.uniform.next()),
            }
        }
    }

    const RUNS: u64 = 10_000;
    const MAX_ROUNDS: usize = 100;

    /// Runs [`RUNS`] gates with the usual confidence, on a true ratio of `times_limit` times the limit. Returns how
    /// many found it below the limit, and how many above.
    fn decisions(machine: Machine, times_limit: f64) -> [u64; 2] {
        let mut decided = [0, 0];
        for seed in 0..RUNS {
            let mut rounds = Rounds { machine, uniform: Uniform(seed << 20), slow: None };
            let mut sequence = Sequence::new(3.0, 0.999);
            let side = (0..MAX_ROUNDS).find_map(|_| {
                let [own, baseline] = rounds.next();
                sequence.push(3.0 * times_limit * baseline / own)
            });
            match side {
                Some(Side::Below) => decided[0] += 1,
                Some(Side::Above) => decided[1] += 1,
                None => {}
            }
        }
        decided
    }

    #[test]
    fn ratio_above_limit_breaks_under_one_gate_in_a_thousand() {
        for (machine, least_held) in
            [(Machine::Disturbed, 0.95), (Machine::HeavyTailed, 0.95), (Machine::OneSided, 0.85)]
        {
            let [broken, held] = decisions(machine, 1.2);
            // At four of 10,000 the rate is below 1 in 1,000 with a confidence of 95 %: the Poisson bound is 9.2 of
            // 10,000.
            assert!(broken <= 4, "{machine:?}: {broken} of {RUNS} broken");
            assert!(held as f64 >= least_held * RUNS as f64, "{machine:?}: {held} of {RUNS} held");
        }
    }

    #[test]
    fn ratio_below_the_limit_is_found() {
        for (machine, least_found) in
            [(Machine::Disturbed, 0.95), (Machine::HeavyTailed, 0.95), (Machine::OneSided, 0.85)]
        {
            let [broken, held] = decisions(machine, 0.8);
            assert!(broken as f64 >= least_found * RUNS as f64, "{machine:?}: {broken} of {RUNS} found");
            assert!(held < RUNS / 1000, "{machine:?}: {held} of {RUNS} held");
        }
    }

    /// The worst case: the median is the limit itself.
    #[test]
    fn ratio_at_the_limit_is_decided_only_by_chance() {
        let mut uniform = Uniform(7);
        let mut broken = 0;
        for _ in 0..RUNS {
            let mut sequence = Sequence::new(0.5, 0.99);
            let side = (0..MAX_ROUNDS).find_map(|_| sequence.push(uniform.next()));
            broken += u64::from(side == Some(Side::Below));
        }
        assert!((1..=100).contains(&broken), "{broken} of {RUNS}, at most 1 in 100");
    }
}
