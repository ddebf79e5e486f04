//! What may go wrong on a link, drawn from a seed.
//!
//! The n-th frame that a direction of a link is asked to carry has draws of its own: they depend on the seed, the link, the
//! direction and n, and on nothing else. Which faults they make of the frame depends on the probabilities at that moment. So
//! a change while frames pass, or a fault on another frame, leaves the draws of every other frame as they were.

use crate::time::Span;

/// A probability in steps of 2^-32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chance(u64);

impl Chance {
    /// It never happens.
    pub const NEVER: Self = Self(0);
    /// It always happens.
    pub const ALWAYS: Self = Self(1 << 32);

    /// The probability closest below `probability`, which is taken to be in 0..=1.
    pub fn from_probability(probability: f64) -> Self {
        // A cast of a float saturates, and makes zero of what is no number.
        Self((probability * Self::ALWAYS.0 as f64) as u64).min(Self::ALWAYS)
    }
}

/// What goes wrong on a link, for each frame and independently in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The frame is lost.
    pub loss: Chance,
    /// The frame arrives twice.
    pub duplicate: Chance,
    /// One bit of the frame is flipped.
    pub corrupt: Chance,
    /// The frame arrives later by [`Faults::reorder_delay`], so that others overtake it.
    pub reorder: Chance,
    /// How much later.
    pub reorder_delay: Span,
    /// Every frame arrives later by this.
    pub delay: Span,
    /// Nothing passes.
    pub partition: bool,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        loss: Chance::NEVER,
        duplicate: Chance::NEVER,
        corrupt: Chance::NEVER,
        reorder: Chance::NEVER,
        // A few frames of the largest packet at 10 Gb/s, or one of Ethernet's.
        reorder_delay: Span::from_ns(2_000),
        delay: Span::ZERO,
        partition: false,
    };
}

impl Default for Faults {
    fn default() -> Self {
        Self::NONE
    }
}

/// What goes wrong with one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mishap {
    /// It is lost, and nothing else matters.
    pub(super) is_lost: bool,
    /// It arrives twice.
    pub(super) is_doubled: bool,
    /// It arrives late.
    pub(super) is_late: bool,
    /// Bit that is flipped.
    pub(super) flipped_bit: Option<u32>,
}

/// The draws for the frames of one direction of a link, by their number.
#[derive(Clone, Debug)]
pub(super) struct Draws(Random);

impl Draws {
    /// Draws for a frame: loss, doubling, corruption, which bit, reordering. Fixed, so that each frame has its own.
    const PER_FRAME: u64 = 5;

    /// Those of stream `stream` of `seed`, from the first frame on.
    pub(super) const fn new(seed: u64, stream: u64) -> Self {
        Self(Random::new(seed, stream))
    }

    /// The draws of the next frame, used or not: they are passed over at the price of an addition.
    #[inline]
    pub(super) const fn next_frame(&mut self) -> Random {
        let of_frame = Random(self.0.0);
        self.0.skip(Self::PER_FRAME);
        of_frame
    }
}

impl Mishap {
    /// What `faults` make of a frame of `bytes` with these draws.
    pub(super) fn draw(mut draws: Random, faults: &Faults, bytes: usize) -> Self {
        let is_lost = draws.happens(faults.loss);
        let is_doubled = draws.happens(faults.duplicate);
        let is_corrupted = draws.happens(faults.corrupt);
        let is_late = draws.happens(faults.reorder);
        let bit = draws.below(u32::try_from(bytes * 8).unwrap_or(u32::MAX));
        Self { is_lost, is_doubled, is_late, flipped_bit: is_corrupted.then_some(bit) }
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

    /// Passes over so many numbers: the state is a counter.
    const fn skip(&mut self, numbers: u64) {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(numbers));
    }

    /// 64 random bits.
    pub const fn next(&mut self) -> u64 {
        self.skip(1);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Whether it happens. Draws even when the answer is known, so that a changed probability changes no other draw.
    pub const fn happens(&mut self, chance: Chance) -> bool {
        (self.next() >> 32) < chance.0
    }

    /// A number below `bound`; zero when `bound` is.
    pub const fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * bound as u64) >> 32) as u32
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
    fn chances_are_what_they_say() {
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
    fn a_frame_has_its_own_draws_whatever_became_of_those_before() {
        let mut draws = Draws::new(9, 3);
        let mut plain = Random::new(9, 3);
        for _ in 0..10 {
            let mut of_frame = draws.next_frame();
            for _ in 0..Draws::PER_FRAME {
                assert_eq!(of_frame.next(), plain.next());
            }
        }
    }

    #[test]
    fn streams_differ() {
        assert_ne!(Random::new(1, 0).next(), Random::new(1, 1).next());
        assert_ne!(Random::new(1, 0).next(), Random::new(2, 0).next());
    }
}
