//! Numbers of a fixed width.
//!
//! Constants: ours.

use core::fmt;

/// A number of `N` bits, at most 32.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bits<const N: u32>(u32);

impl<const N: u32> Bits<N> {
    /// The maximum.
    pub const MAX: u32 = u32::MAX >> (32 - N);

    /// This number; none if it has more than `N` bits.
    #[must_use]
    pub const fn new(value: u32) -> Option<Self> {
        if value <= Self::MAX { Some(Self(value)) } else { None }
    }

    /// The lower bits of a number.
    #[must_use]
    pub const fn truncated(value: u32) -> Self {
        Self(value & Self::MAX)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether bit `number` is set.
    #[must_use]
    pub const fn has(self, number: u32) -> bool {
        number < N && self.0 >> number & 1 == 1
    }
}

impl<const N: u32> fmt::Debug for Bits<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<const N: u32> fmt::Display for Bits<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_more_than_n_bits_are_rejected() {
        assert_eq!(Bits::<4>::new(15).map(Bits::get), Some(15));
        assert_eq!(Bits::<4>::new(16), None);
        assert_eq!(Bits::<4>::truncated(0x1f).get(), 15);
        assert_eq!(Bits::<32>::MAX, u32::MAX);
        assert!(Bits::<4>::truncated(8).has(3) && !Bits::<4>::truncated(8).has(7));
    }
}
