//! The random generator of all packages. Each number depends only on a seed, a stream number and its position in the
//! stream.

#![no_std]

/// A probability in steps of 2^-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chance(u64);

impl Chance {
    /// It never happens.
    pub const NEVER: Self = Self(0);
    /// It always happens.
    pub const ALWAYS: Self = Self(1 << 32);

    /// The closest step at or below `probability`, which is limited to 0..=1.
    pub fn from_probability(probability: f64) -> Self {
        // A cast of a float saturates, and converts NaN to zero.
        Self((probability * Self::ALWAYS.0 as f64) as u64).min(Self::ALWAYS)
    }

    /// The probability that at least one of two independent events happens.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        let neither = (Self::ALWAYS.0 - self.0) as u128 * (Self::ALWAYS.0 - other.0) as u128;
        // At most 2^64, so at most 2^32 after the shift.
        Self(Self::ALWAYS.0 - (neither >> 32) as u64)
    }
}

/// The probability of an event with many trials, such as a bit error, in steps of 2^-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rarity(u128);

impl Rarity {
    /// It never happens.
    pub const NEVER: Self = Self(0);
    const ALWAYS: Self = Self(1 << 64);

    /// The closest step at or below `probability`, which is limited to 0..=1.
    pub fn from_probability(probability: f64) -> Self {
        // A cast of a float saturates, and converts NaN to zero.
        Self((probability * Self::ALWAYS.0 as f64) as u128).min(Self::ALWAYS)
    }

    /// The probability that it happens at least once in `tries` trials: 1 - (1 - p)^tries, by repeated squaring.
    pub const fn in_any_of(self, mut tries: u64) -> Chance {
        if self.0 == 0 {
            return Chance::NEVER;
        }
        // No overflow: a factor below 1 times a factor of at most 1, in steps of 2^-64, is below 2^128.
        let mut power = Self::ALWAYS.0 - self.0;
        let mut never = Self::ALWAYS.0;
        while tries > 0 {
            if tries % 2 == 1 {
                never = (never * power) >> 64;
            }
            power = (power * power) >> 64;
            tries /= 2;
        }
        Chance(((Self::ALWAYS.0 - never) >> 32) as u64)
    }
}

/// SplitMix64 (Steele, Lea, Flood, *Fast Splittable Pseudorandom Number Generators*, 2014): one word of state, passes
/// the usual batteries, and streams of neighbouring seeds are independent.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Stream `stream` of `seed`.
    pub const fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(seed);
        let base = random.next();
        Self(base ^ stream.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// Returns a generator of the next `numbers` numbers, and skips them here with one addition, because the state is a
    /// counter. The numbers after them do not depend on how many of them are used.
    #[inline]
    pub const fn set_aside(&mut self, numbers: u64) -> Self {
        let aside = Self(self.0);
        self.skip(numbers);
        aside
    }

    /// 64 random bits.
    pub const fn next(&mut self) -> u64 {
        self.skip(1);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Whether an event of this probability happens. Always takes one number, even for [`Chance::NEVER`], so a changed
    /// probability changes no later number.
    pub const fn happens(&mut self, chance: Chance) -> bool {
        (self.next() >> 32) < chance.0
    }

    /// A number below `bound`, or zero if `bound` is zero.
    pub const fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * bound as u64) >> 32) as u32
    }

    const fn skip(&mut self, numbers: u64) {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(numbers));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        // The first outputs of the authors' program for the seed 1234567.
        let mut random = Random(1_234_567);
        assert_eq!([random.next(), random.next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn events_happen_with_their_probability() {
        let mut random = Random::new(1, 0);
        let mut count = |p: f64| {
            let chance = Chance::from_probability(p);
            (0..100_000).filter(|_| random.happens(chance)).count()
        };
        assert_eq!(
            (count(0.0), count(1.0), count(-1.0), count(7.0), count(f64::NAN)),
            (0, 100_000, 0, 100_000, 0)
        );
        assert!(count(0.25).abs_diff(25_000) < 700);
        let mut random = Random::new(1, 0);
        assert!((0..1_000).all(|_| random.below(7) < 7));
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn probability_of_many_trials_is_one_minus_that_of_none() {
        let in_any = |p, tries| Rarity::from_probability(p).in_any_of(tries);
        assert_eq!([in_any(0.0, u64::MAX), in_any(f64::NAN, 9), in_any(0.5, 0)], [Chance::NEVER; 3]);
        assert_eq!([in_any(1.0, 1), in_any(0.5, u64::MAX)], [Chance::ALWAYS; 2]);
        assert_eq!(in_any(0.5, 3), Chance::from_probability(0.875));
        // 1 - (1 - p)^n is about n p for small n p: here 12,048 and 480 bits at 10^-10.
        for (tries, expected) in [(12_048, 1.204_799_3e-6), (480, 4.8e-8)] {
            let steps = (expected * Chance::ALWAYS.0 as f64) as u64;
            assert!(in_any(1e-10, tries).0.abs_diff(steps) <= 1, "{tries}");
        }
    }

    #[test]
    fn either_of_two_events_is_one_minus_neither() {
        let chance = Chance::from_probability;
        assert_eq!(chance(0.5).or(chance(0.25)), chance(0.625));
        for p in [0.0, 1e-9, 0.3, 1.0] {
            assert_eq!([chance(p).or(Chance::NEVER), Chance::NEVER.or(chance(p))], [chance(p); 2]);
            assert_eq!(chance(p).or(Chance::ALWAYS), Chance::ALWAYS);
        }
    }

    #[test]
    fn set_aside_numbers_equal_the_skipped_ones() {
        let (mut random, mut plain) = (Random::new(9, 3), Random::new(9, 3));
        for _ in 0..10 {
            let mut aside = random.set_aside(5);
            for _ in 0..5 {
                assert_eq!(aside.next(), plain.next());
            }
        }
    }

    #[test]
    fn streams_differ() {
        assert_ne!(Random::new(1, 0).next(), Random::new(1, 1).next());
        assert_ne!(Random::new(1, 0).next(), Random::new(2, 0).next());
    }
}
