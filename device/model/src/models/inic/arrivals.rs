//! Packets of one source that have arrived: the last one up to which none is missing, and a mask of later ones. A
//! header acknowledges both (section 3).

use crate::parts::sequence::Sequence;

/// Numbers of packets inside of the card: those of the header, widened by `split_packet`, so that no other component
/// knows how wide they are there.
pub(super) type Number = Sequence<32>;

/// Bits of the mask. Section 3: a mask of 32 bits.
pub(super) const MASK_BITS: u32 = 32;

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It has not arrived before.
    New,
    /// It has.
    Duplicated,
    /// It is so far ahead that it cannot be remembered.
    Beyond,
}

/// Packets of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrivals {
    /// The packet before which none is missing, and which is not there.
    pub(super) next: Number,
    /// Bit `i`: the packet `i + 1` behind it is there.
    ahead: u64,
}

impl Arrivals {
    /// None, of packets of which the first has this number.
    pub(super) const fn new(first: Number) -> Self {
        Self { next: first, ahead: 0 }
    }

    /// Takes a packet; of those ahead of one that is missing, `beyond` are remembered, at most [`MASK_BITS`] less one.
    pub(super) const fn arrive(&mut self, number: Number, beyond: u32) -> Arrival {
        if number.get() == self.next.get() {
            self.next = number.next();
            // Those behind it that are there are behind nothing missing any more.
            while self.ahead & 1 != 0 {
                self.ahead >>= 1;
                self.next = self.next.next();
            }
            self.ahead >>= 1;
            return Arrival::New;
        }
        let ahead = number.ahead_of(self.next);
        if ahead == 0 {
            return Arrival::Duplicated;
        }
        if ahead > beyond || ahead > MASK_BITS - 1 {
            return Arrival::Beyond;
        }
        let bit = 1 << (ahead - 1);
        if self.ahead & bit != 0 {
            return Arrival::Duplicated;
        }
        self.ahead |= bit;
        Arrival::New
    }

    /// The last packet before which none is missing, and the mask of a header: bit `i` for the packet `i + 1` behind
    /// it. Its lowest bit is that of the packet that is missing.
    pub(super) const fn acknowledged(&self) -> (Number, u32) {
        (Number::new(self.next.get().wrapping_sub(1)), (self.ahead << 1) as u32)
    }

    /// The packet that is furthest ahead of all that have arrived.
    pub(super) const fn furthest(&self) -> Number {
        let (base, _) = self.acknowledged();
        if self.ahead == 0 { base } else { self.next.plus(u64::BITS - self.ahead.leading_zeros()) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a set of numbers that do not wrap.
        #[test]
        fn a_mask_is_what_a_set_of_numbers_says(
            first: u32,
            jumps in prop::collection::vec(-40_i64..40, 1..200),
            beyond in 0..40_u32,
        ) {
            let mut arrivals = Arrivals::new(Number::new(first));
            let (mut known, mut next) = (BTreeSet::new(), 0_i64);
            for jump in jumps {
                let place = next + jump;
                let found = arrivals.arrive(Number::new(first.wrapping_add(place as u32)), beyond);
                let expected = if place < next || known.contains(&place) {
                    Arrival::Duplicated
                } else if place > next && (place - next) as u32 > beyond.min(31) {
                    Arrival::Beyond
                } else {
                    known.insert(place);
                    Arrival::New
                };
                prop_assert_eq!(found, expected);
                while known.contains(&next) {
                    next += 1;
                }
                let (base, mask) = arrivals.acknowledged();
                prop_assert_eq!(base, Number::new(first.wrapping_add(next as u32).wrapping_sub(1)));
                for bit in 0..32 {
                    prop_assert_eq!(mask >> bit & 1 == 1, known.contains(&(next + i64::from(bit))), "bit {}", bit);
                }
                let furthest = known.last().copied().unwrap_or(next - 1).max(next - 1);
                prop_assert_eq!(arrivals.furthest(), Number::new(first.wrapping_add(furthest as u32)));
            }
        }
    }
}
