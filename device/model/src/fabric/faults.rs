//! What may go wrong on a link, drawn from a seed.
//!
//! The n-th frame that a direction of a link is asked to carry has draws of its own: they depend on the seed, the link, the
//! direction and n, and on nothing else. Which faults they make of the frame depends on the probabilities at that moment. So
//! a change while frames pass, or a fault on another frame, leaves the draws of every other frame as they were.

use crate::random::{Chance, Random};
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

#[cfg(test)]
mod tests {
    use super::*;

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
