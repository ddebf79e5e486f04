//! The faults of a link, sampled from a seed.
//!
//! The n-th frame in one direction of a link has its own random values. They depend only on the seed, the link, the
//! direction and n. When the frame enters the link, the link compares these values with the current probabilities to
//! decide the frame's faults. So neither a change of probabilities nor a fault of another frame affects a frame's
//! random values.

use crate::random::{Chance, Random, Rarity};
use crate::time::Span;

/// The probabilities of a link's faults. They apply to each frame, independently in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The frame is lost.
    pub loss: Chance,
    /// The frame arrives twice.
    pub duplicate: Chance,
    /// One bit of the frame is flipped.
    pub corrupt: Chance,
    /// Bit error rate: the probability that a bit is wrong, for each bit. So longer frames are damaged more often.
    pub bit_errors: Rarity,
    /// The frame is delayed by [`Faults::reorder_delay`], so that later frames overtake it.
    pub reorder: Chance,
    /// Delay of a reordered frame.
    pub reorder_delay: Span,
    /// Additional delay of every frame.
    pub delay: Span,
    /// The link delivers no frame.
    pub partition: bool,
}

impl Faults {
    /// No faults.
    pub const NONE: Self = Self {
        loss: Chance::NEVER,
        duplicate: Chance::NEVER,
        corrupt: Chance::NEVER,
        bit_errors: Rarity::NEVER,
        reorder: Chance::NEVER,
        // At 10 Gb/s, a few frames of the maximum packet length, or one Ethernet frame, pass in this time.
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

/// The faults of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mishap {
    /// The frame is lost; the other fields then have no meaning.
    pub(super) is_lost: bool,
    /// The frame arrives twice.
    pub(super) is_duplicated: bool,
    /// The frame is delayed.
    pub(super) is_late: bool,
    /// The bit that is flipped.
    pub(super) flipped_bit: Option<u32>,
}

/// Random values for the frames of one direction of a link, by frame number.
#[derive(Clone, Debug)]
pub(super) struct Draws(Random);

impl Draws {
    /// Random values per frame: one each for loss, duplication, corruption, reordering and the bit to flip. Each frame
    /// takes the same number, so its values do not depend on the faults of earlier frames. Ours: one for each decision.
    const PER_FRAME: u64 = 5;

    /// The random values of stream `stream` of `seed`, beginning with those of the first frame.
    pub(super) const fn new(seed: u64, stream: u64) -> Self {
        Self(Random::new(seed, stream))
    }

    /// The random values of the next frame. This skips all of them with one addition, however many the caller uses.
    #[inline]
    pub(super) const fn next_frame(&mut self) -> Random {
        self.0.set_aside(Self::PER_FRAME)
    }

    /// Skips the random values of `frames` frames.
    pub(super) const fn skip_frames(&mut self, frames: u64) {
        self.0.set_aside(Self::PER_FRAME.wrapping_mul(frames));
    }
}

impl Mishap {
    /// The faults of a frame of `bytes` bytes with these random values.
    pub(super) fn draw(mut draws: Random, faults: &Faults, bytes: usize) -> Self {
        let is_lost = draws.happens(faults.loss);
        let is_duplicated = draws.happens(faults.duplicate);
        let bits = bytes as u64 * 8;
        let is_corrupted = draws.happens(faults.corrupt.or(faults.bit_errors.in_any_of(bits)));
        let is_late = draws.happens(faults.reorder);
        let bit = draws.below(u32::try_from(bits).unwrap_or(u32::MAX));
        Self { is_lost, is_duplicated, is_late, flipped_bit: is_corrupted.then_some(bit) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn bit_errors_damage_longer_frames_more_often() {
        let damaged = |faults: &Faults, bytes: usize| -> Vec<bool> {
            let mut draws = Draws::new(11, 0);
            let frame = |_| Mishap::draw(draws.next_frame(), faults, bytes).flipped_bit.is_some();
            (0..100_000).map(frame).collect()
        };
        let count = |damaged: &[bool]| damaged.iter().filter(|is_damaged| **is_damaged).count();
        // A frame of n bits is damaged with probability 1 - (1 - p)^n. With p = 1e-5, this is expected for 479 of 10^5
        // frames of 480 bits, and for 11,409 of 10^5 frames of 12,112 bits.
        let noisy = Faults { bit_errors: Rarity::from_probability(1e-5), ..Faults::NONE };
        let (short, long) = (damaged(&noisy, 60), damaged(&noisy, 1_514));
        assert!(count(&short).abs_diff(479) < 100 && count(&long).abs_diff(11_409) < 500);
        assert!(
            short.iter().zip(&long).all(|(short, long)| *long || !short),
            "the same random value decides at both lengths, so a damaged short frame is also damaged if longer"
        );
        // One random value decides about `corrupt` and `bit_errors` together. So a frame that `corrupt` alone damages
        // is also damaged with both.
        let corrupt = Faults { corrupt: Chance::from_probability(0.1), ..Faults::NONE };
        let both = damaged(&Faults { bit_errors: noisy.bit_errors, ..corrupt }, 1_514);
        assert!(count(&both).abs_diff(20_268) < 700, "{}", count(&both));
        assert!(damaged(&corrupt, 1_514).iter().zip(&both).all(|(alone, both)| *both || !alone));
        assert_eq!(count(&damaged(&Faults::NONE, 9_014)), 0);
    }

    #[test]
    fn random_values_of_a_frame_do_not_depend_on_earlier_frames() {
        let mut draws = Draws::new(9, 3);
        let mut plain = Random::new(9, 3);
        for _ in 0..10 {
            let mut of_frame = draws.next_frame();
            for _ in 0..Draws::PER_FRAME {
                assert_eq!(of_frame.next(), plain.next());
            }
        }
    }
}
