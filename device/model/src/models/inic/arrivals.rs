//! Packets of one source that have arrived: the last one up to which no packet is missing, and a mask of later ones. A
//! header acknowledges both (section 3).

use crate::parts::sequence::Sequence;

/// Packet numbers inside the card. `split_packet` widens the header's numbers, so that other components do not depend
/// on the header's width.
pub(super) type Number = Sequence<32>;

/// Bits of the mask (section 3).
pub(super) const MASK_BITS: u32 = 32;

/// Classification of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It has not arrived before.
    New,
    /// It has arrived before.
    Duplicated,
    /// It is too far ahead to be recorded.
    Beyond,
}

/// Packets of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrivals {
    /// The first missing packet.
    pub(super) next: Number,
    /// Bit `i`: the packet `i + 1` after it has arrived.
    ahead: u64,
}

impl Arrivals {
    /// No packets; the first one has this number.
    pub(super) const fn new(first: Number) -> Self {
        Self { next: first, ahead: 0 }
    }

    /// Records a packet. Of those after a missing packet, `beyond` are recorded, at most [`MASK_BITS`] - 1.
    pub(super) const fn arrive(&mut self, number: Number, beyond: u32) -> Arrival {
        if number.get() == self.next.get() {
            self.next = number.next();
            // The next recorded packets have no missing packet before them any more.
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

    /// The last packet up to which no packet is missing, and the mask of a header: bit `i` for the packet `i + 1`
    /// after it. The lowest bit is that of the missing packet.
    pub(super) const fn acknowledged(&self) -> (Number, u32) {
        (Number::new(self.next.get().wrapping_sub(1)), (self.ahead << 1) as u32)
    }

    /// The arrived packet that is furthest ahead.
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
        /// Compared with a set of numbers that do not wrap.
        #[test]
        fn mask_equals_the_set_of_arrived_numbers(
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
