//! What may go wrong on a link, drawn from a seed.
//!
//! The n-th frame that a direction of a link is asked to carry has draws of its own: they depend on the seed, the link,
//! the direction and n, and on nothing else. Which faults they make of the frame depends on the probabilities at that
//! moment. So a change while frames pass, or a fault on another frame, leaves the draws of every other frame as they
//! were.

use crate::random::{Chance, Random, Rarity};
use crate::time::Span;

/// What goes wrong on a link, for each frame and independently in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The frame is lost.
    pub loss: Chance,
    /// The frame arrives twice.
    pub duplicate: Chance,
    /// One bit of the frame is flipped.
    pub corrupt: Chance,
    /// A bit is wrong, of each bit of the frame: the longer it is, the more often one is flipped.
    pub bit_errors: Rarity,
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
        bit_errors: Rarity::NEVER,
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
    pub(super) is_duplicated: bool,
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
    /// Ours: draws of a frame.
    const PER_FRAME: u64 = 5;

    /// Those of stream `stream` of `seed`, from the first frame on.
    pub(super) const fn new(seed: u64, stream: u64) -> Self {
        Self(Random::new(seed, stream))
    }

    /// The draws of the next frame, used or not: they are passed over at the price of an addition.
    #[inline]
    pub(super) const fn next_frame(&mut self) -> Random {
        self.0.set_aside(Self::PER_FRAME)
    }

    /// Passes over the draws of so many frames.
    pub(super) const fn skip_frames(&mut self, frames: u64) {
        self.0.set_aside(Self::PER_FRAME.wrapping_mul(frames));
    }
}

impl Mishap {
    /// What `faults` make of a frame of `bytes` with these draws.
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
    fn bit_errors_damage_frames_by_their_length() {
        let damaged = |faults: &Faults, bytes: usize| -> Vec<bool> {
            let mut draws = Draws::new(11, 0);
            let frame = |_| Mishap::draw(draws.next_frame(), faults, bytes).flipped_bit.is_some();
            (0..100_000).map(frame).collect()
        };
        let count = |damaged: &[bool]| damaged.iter().filter(|is| **is).count();
        // Of 10^5 bits one: of 480 bits 479 frames in 10^5, of 12,112 bits 11,409 [1 - (1 - p)^n].
        let noisy = Faults { bit_errors: Rarity::from_probability(1e-5), ..Faults::NONE };
        let (short, long) = (damaged(&noisy, 60), damaged(&noisy, 1_514));
        assert!(count(&short).abs_diff(479) < 100 && count(&long).abs_diff(11_409) < 500);
        assert!(short.iter().zip(&long).all(|(short, long)| *long || !short), "one draw for both");
        // With corruption as well a frame is damaged by either, in the same draw.
        let corrupt = Faults { corrupt: Chance::from_probability(0.1), ..Faults::NONE };
        let both = damaged(&Faults { bit_errors: noisy.bit_errors, ..corrupt }, 1_514);
        assert!(count(&both).abs_diff(20_268) < 700, "{}", count(&both));
        assert!(damaged(&corrupt, 1_514).iter().zip(&both).all(|(one, both)| *both || !one));
        assert_eq!(count(&damaged(&Faults::NONE, 9_014)), 0);
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
}
