//! A histogram of 64-bit numbers with less than 1 % of error at any size, like Gil Tene's HdrHistogram.
//!
//! Numbers below [`STEPS`] have their own buckets; above, each power of two is divided into [`STEPS`] buckets. Only
//! powers with numbers use memory. Count, sum, minimum and maximum are exact.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Buckets in each power of two. A bucket is at most 1/128 of its numbers wide. Ours: the precision of quantiles.
const STEPS: usize = 128;
const STEP_BITS: u32 = STEPS.trailing_zeros();

/// Counts of one power of two.
type Octave = Box<[u64; STEPS]>;

/// Counts of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Octave 0 holds 0..STEPS; octave k the numbers from `STEPS << (k - 1)` to `STEPS << k`. None if it has no
    /// numbers.
    octaves: Vec<Option<Octave>>,
    count: u64,
    sum: u128,
    least: u64,
    greatest: u64,
}

impl Histogram {
    /// Adds one number.
    #[inline]
    pub fn enter(&mut self, value: u64) {
        self.least = if self.count == 0 { value } else { self.least.min(value) };
        self.greatest = self.greatest.max(value);
        self.count += 1;
        self.sum += u128::from(value);
        self.count_in_place(value, 1);
    }

    /// Adds these numbers.
    #[inline]
    pub fn enter_all(&mut self, values: impl Iterator<Item = u64>) {
        let (mut least, mut greatest, mut count) = (u64::MAX, self.greatest, 0);
        // Equal numbers often come in runs: each run is looked up once.
        let (mut last, mut run) = (0, 0);
        for value in values {
            if value != last || run == 0 {
                self.count_run(last, run);
                (last, run) = (value, 0);
                least = least.min(value);
                greatest = greatest.max(value);
            }
            run += 1;
            count += 1;
        }
        self.count_run(last, run);
        if count > 0 {
            self.least = if self.count == 0 { least } else { self.least.min(least) };
            self.greatest = greatest;
            self.count += count;
        }
    }

    /// Adds a number to sum and bucket, `times` times.
    #[inline]
    fn count_run(&mut self, value: u64, times: u64) {
        if times > 0 {
            self.sum += u128::from(value) * u128::from(times);
            self.count_in_place(value, times);
        }
    }

    /// Adds to the bucket of a number.
    #[inline]
    fn count_in_place(&mut self, value: u64, times: u64) {
        let (octave, step) = place_of(value);
        if octave >= self.octaves.len() {
            self.octaves.resize(octave + 1, None);
        }
        if let Some(place) = self.octaves.get_mut(octave) {
            place.get_or_insert_with(|| Box::new([0; STEPS]))[step] += times;
        }
    }

    /// Adds all numbers of another histogram.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.least = if self.count == 0 { other.least } else { self.least.min(other.least) };
        self.greatest = self.greatest.max(other.greatest);
        self.count += other.count;
        self.sum += other.sum;
        if other.octaves.len() > self.octaves.len() {
            self.octaves.resize(other.octaves.len(), None);
        }
        for (mine, theirs) in self.octaves.iter_mut().zip(&other.octaves) {
            if let Some(theirs) = theirs {
                let mine = mine.get_or_insert_with(|| Box::new([0; STEPS]));
                mine.iter_mut().zip(theirs.iter()).for_each(|(mine, more)| *mine += more);
            }
        }
    }

    /// Number of entries.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their exact sum.
    pub const fn sum(&self) -> u128 {
        self.sum
    }

    /// The minimum; zero if empty.
    pub const fn min(&self) -> u64 {
        self.least
    }

    /// The maximum; zero if empty.
    pub const fn max(&self) -> u64 {
        self.greatest
    }

    /// The `per_mille` quantile, at most 1/128 too large and never above the maximum; zero if empty.
    pub fn quantile(&self, per_mille: u64) -> u64 {
        let wanted = (u128::from(self.count) * u128::from(per_mille.min(1_000))).div_ceil(1_000).max(1);
        let mut seen = 0;
        for (octave, counts) in self.octaves.iter().enumerate() {
            for (step, count) in counts.iter().flat_map(|counts| counts.iter().enumerate()) {
                seen += u128::from(*count);
                if *count > 0 && seen >= wanted {
                    return last_of(octave, step).clamp(self.least, self.greatest);
                }
            }
        }
        self.greatest
    }

    /// The entries since `earlier`, a previous state of this histogram. Minimum and maximum are exact only to the
    /// width of a bucket.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        if earlier.count == 0 {
            return self.clone();
        }
        let mut later = Self { count: self.count - earlier.count.min(self.count), ..Self::default() };
        later.sum = self.sum.saturating_sub(earlier.sum);
        later.octaves.resize(self.octaves.len(), None);
        let mut ends: Option<(u64, u64)> = None;
        for (octave, counts) in self.octaves.iter().enumerate() {
            let Some(counts) = counts else { continue };
            let before = earlier.octaves.get(octave).and_then(Option::as_ref);
            let mut left = counts.clone();
            for (step, count) in left.iter_mut().enumerate() {
                *count = count.saturating_sub(before.map_or(0, |before| before[step]));
                if *count > 0 {
                    let (first, last) = (first_of(octave, step), last_of(octave, step));
                    ends = Some(ends.map_or((first, last), |(least, _)| (least, last)));
                }
            }
            later.octaves[octave] = Some(left);
        }
        if let Some((least, greatest)) = ends {
            later.least = least.max(self.least);
            later.greatest = greatest.min(self.greatest);
        }
        later
    }
}

/// Octave and step of a number.
#[inline]
const fn place_of(value: u64) -> (usize, usize) {
    if value < STEPS as u64 {
        return (0, value as usize);
    }
    let shift = u64::BITS - 1 - value.leading_zeros() - STEP_BITS;
    (shift as usize + 1, (value >> shift) as usize & (STEPS - 1))
}

/// The minimum of a bucket.
const fn first_of(octave: usize, step: usize) -> u64 {
    match octave {
        0 => step as u64,
        _ => ((STEPS + step) as u64) << (octave - 1),
    }
}

/// The maximum of a bucket.
const fn last_of(octave: usize, step: usize) -> u64 {
    match octave {
        0 => step as u64,
        _ => first_of(octave, step) + ((1 << (octave - 1)) - 1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|&value| histogram.enter(value));
        histogram
    }

    #[test]
    fn buckets_are_contiguous_up_to_the_greatest_number() {
        let mut next = 0;
        for octave in 0..=57 {
            for step in 0..STEPS {
                assert_eq!(first_of(octave, step), next);
                assert_eq!(place_of(next), (octave, step));
                assert_eq!(place_of(last_of(octave, step)), (octave, step));
                next = last_of(octave, step).wrapping_add(1);
            }
        }
        assert_eq!(next, 0, "every number has a bucket");
    }

    #[test]
    fn an_empty_histogram_answers_zero() {
        let empty = Histogram::default();
        assert_eq!((empty.count(), empty.min(), empty.max(), empty.quantile(500)), (0, 0, 0, 0));
        assert_eq!(empty.since(&empty), empty);
    }

    fn values() -> impl Strategy<Value = Vec<u64>> {
        let value = prop_oneof![0..300_u64, 100_000..5_000_000_u64, any::<u64>()];
        let runs = prop::collection::vec((value, prop_oneof![3 => Just(1), 1 => 2..5_usize]), 1..100);
        runs.prop_map(|runs| {
            runs.into_iter().flat_map(|(value, times)| core::iter::repeat_n(value, times)).collect()
        })
    }

    proptest! {
        #[test]
        fn quantiles_are_less_than_one_percent_too_large(mut values in values(), per_mille in 0..=1_000_u64) {
            let histogram = of(&values);
            values.sort_unstable();
            let place = ((values.len() as u64 * per_mille).div_ceil(1_000)).max(1) - 1;
            let exact = values[place as usize];
            let answer = histogram.quantile(per_mille);
            prop_assert!(answer >= exact && answer - exact <= exact / 128, "{} for {}", answer, exact);
            prop_assert_eq!(histogram.min(), values[0]);
            prop_assert_eq!(histogram.max(), *values.last().unwrap());
            prop_assert_eq!(histogram.sum(), values.iter().map(|&value| u128::from(value)).sum::<u128>());
        }

        #[test]
        fn adding_numbers_together_equals_adding_them_one_by_one(first in values(), second in values()) {
            let mut together = Histogram::default();
            together.enter_all(core::iter::empty());
            together.enter_all(first.iter().copied());
            together.enter_all(second.iter().copied());
            prop_assert_eq!(together, of(&[first, second].concat()));
        }

        #[test]
        fn merged_halves_equal_the_whole(first in values(), second in values()) {
            let mut merged = of(&first);
            merged.merge(&of(&second));
            prop_assert_eq!(merged, of(&[first, second].concat()));
        }

        #[test]
        fn difference_of_two_states_has_the_entries_between_them(first in values(), second in values()) {
            let before = of(&first);
            let mut all = before.clone();
            second.iter().for_each(|&value| all.enter(value));
            let later = all.since(&before);
            let exact = of(&second);
            prop_assert_eq!((later.count(), later.sum()), (exact.count(), exact.sum()));
            for per_mille in [1, 500, 990] {
                let (answer, expected) = (later.quantile(per_mille), exact.quantile(per_mille));
                prop_assert!(answer >= expected && answer - expected <= expected / 128);
            }
        }
    }
}
