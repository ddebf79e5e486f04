//! Arithmetic of numbers that wrap: frames, packets, slices, connections.
//!
//! Of two numbers, the later one is less than half of the range ahead of the other. So a protocol may have at most
//! [`Sequence::MAX_AHEAD`] numbers in flight. A number that stays in flight for longer is taken for a new one.

/// A number of `BITS` bits, 1 to 32, that wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sequence<const BITS: u32>(u32);

impl<const BITS: u32> Sequence<BITS> {
    /// Ours: the format.
    const MASK: u32 = {
        assert!(BITS >= 1 && BITS <= 32, "a sequence number has 1 to 32 bits");
        u32::MAX >> (32 - BITS)
    };
    /// The first number.
    pub const ZERO: Self = Self(0);
    /// Max distance of a number ahead of another.
    pub const MAX_AHEAD: u32 = Self::MASK >> 1;

    /// The lowest bits of `number`.
    pub const fn new(number: u32) -> Self {
        Self(number & Self::MASK)
    }

    /// The number, below 2 to the power of `BITS`.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number `count` later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// How far it is ahead of `other`; zero if it is not.
    #[inline]
    pub const fn ahead_of(self, other: Self) -> u32 {
        let distance = self.0.wrapping_sub(other.0) & Self::MASK;
        if distance <= Self::MAX_AHEAD { distance } else { 0 }
    }

    /// Whether it comes after `other`.
    #[inline]
    pub const fn is_after(self, other: Self) -> bool {
        self.ahead_of(other) > 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Properties for any width, checked against arithmetic that does not wrap.
    fn check<const BITS: u32>(base: u32, ahead: u32) -> Result<(), TestCaseError> {
        let ahead = ahead % Sequence::<BITS>::MAX_AHEAD.saturating_add(1);
        let base = Sequence::<BITS>::new(base);
        let later = base.plus(ahead);
        prop_assert_eq!(u64::from(later.get()), (u64::from(base.get()) + u64::from(ahead)) % (1 << BITS));
        prop_assert_eq!(later.ahead_of(base), ahead);
        prop_assert_eq!(later.is_after(base), ahead > 0);
        prop_assert!(!base.is_after(later));
        prop_assert!(later.next().is_after(later) || BITS == 1);
        Ok(())
    }

    proptest! {
        #[test]
        fn numbers_of_any_width_wrap(base: u32, ahead: u32) {
            check::<1>(base, ahead)?;
            check::<8>(base, ahead)?;
            check::<16>(base, ahead)?;
            check::<24>(base, ahead)?;
            check::<32>(base, ahead)?;
        }
    }

    #[test]
    fn half_of_all_numbers_are_later_and_half_are_earlier() {
        let zero = Sequence::<8>::ZERO;
        assert_eq!((1..=255).filter(|&n| Sequence::new(n).is_after(zero)).count(), 127);
        assert!(Sequence::new(127).is_after(zero) && !Sequence::new(128).is_after(zero));
        assert!(zero.is_after(Sequence::new(255)), "only the lowest 8 bits are kept");
        assert_eq!(Sequence::<24>::new(u32::MAX).get(), 0xff_ffff);
    }
}
