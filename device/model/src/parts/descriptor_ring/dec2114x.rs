//! Descriptors of the DEC 21140 (Digital Semiconductor, *21140A PCI Fast Ethernet LAN Controller Hardware Reference
//! Manual*, sections 4.2.1 and 4.2.2): 16 bytes in four words of 32 bits.
//!
//! | word | transmit | receive |
//! |---|---|---|
//! | 0 | bit 31: the card's; else status | the same, with the frame's length in bits 16-29 |
//! | 1 | bits 0-10, 11-21: sizes of the buffers; 24: chained; 25: end of the ring | the same |
//! | 1 | bits 29, 30: first and last segment; 31: interrupt | |
//! | 2 | address of buffer 1 | the same |
//! | 3 | address of buffer 2 or, of a chained descriptor, of the next | the same |
//!
//! Departures: descriptors begin at multiples of eight bytes (the manual's are longwords), so that status and sizes are
//! written back by one store, the sizes as they were read.
//!
//! Constants: DEC 21143 hardware reference, descriptor lists (specification of RDES and TDES).

use super::{Layout, Next};
use crate::nic::{HostRange, HostRanges};

/// Bytes of a descriptor.
pub const BYTES: u64 = 16;

/// Word 0: the descriptor is the card's.
pub const OWN: u32 = 1 << 31;
/// Word 1: the second address is that of the next descriptor.
pub const CHAINED: u32 = 1 << 24;
/// Word 1: the next descriptor is the first one; stronger than [`CHAINED`].
pub const END_OF_RING: u32 = 1 << 25;
/// Word 1, transmit: the frame begins in this descriptor.
pub const FIRST_SEGMENT: u32 = 1 << 29;
/// Word 1, transmit: the frame ends in this descriptor.
pub const LAST_SEGMENT: u32 = 1 << 30;

const SIZE_MASK: u32 = (1 << 11) - 1;
const SECOND_SIZE_SHIFT: u32 = 11;

/// The layout, with the skip length (CSR0, bits 2-6) in bytes: the gap between two descriptors that are not chained.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dec2114x {
    /// Skip length, a multiple of eight bytes.
    pub skip_bytes: u64,
}

/// One descriptor, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Word 1.
    pub control: u32,
    addresses: [u32; 2],
}

impl Descriptor {
    /// The descriptor in these words, of which it takes two.
    pub fn new(words: &[u64]) -> Self {
        let word = |index: usize| words.get(index).copied().unwrap_or(0);
        Self { control: (word(0) >> 32) as u32, addresses: [word(1) as u32, (word(1) >> 32) as u32] }
    }

    /// Its buffers that are not empty: at most 4,094 bytes. They may lie outside the guest's memory.
    pub fn buffers(&self) -> HostRanges {
        let [first, second] = self.addresses;
        let has_second = self.control & CHAINED == 0;
        let sizes = [self.control & SIZE_MASK, self.control >> SECOND_SIZE_SHIFT & SIZE_MASK];
        let buffers = [(first, sizes[0]), (second, if has_second { sizes[1] } else { 0 })];
        let ranges =
            buffers.map(|(address, bytes)| HostRange { address: address.into(), bytes: bytes.into() });
        ranges.into_iter().filter(|range| range.bytes > 0).collect()
    }

    /// The ownership word that returns the descriptor to the host, with this status.
    pub fn done(&self, status: u32) -> u64 {
        u64::from(self.control) << 32 | u64::from(status & !OWN)
    }
}

impl Layout for Dec2114x {
    const WORDS: usize = 2;
    const OWNERSHIP: usize = 0;
    const STATUS: u64 = OWN as u64 - 1;

    fn is_cards(&self, ownership: u64) -> bool {
        ownership as u32 & OWN != 0
    }

    fn next(&self, words: &[u64]) -> Next {
        let Descriptor { control, addresses: [_, second] } = Descriptor::new(words);
        if control & END_OF_RING != 0 {
            Next::First
        } else if control & CHAINED != 0 {
            Next::At(second.into())
        } else {
            Next::Behind(BYTES + self.skip_bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn words(status: u32, control: u32, first: u32, second: u32) -> [u64; 2] {
        [u64::from(control) << 32 | u64::from(status), u64::from(second) << 32 | u64::from(first)]
    }

    #[test]
    fn buffers_and_next_descriptor_follow_the_manual() {
        let layout = Dec2114x { skip_bytes: 8 };
        let sizes = 1_536 << SECOND_SIZE_SHIFT | 60;
        let range = |address, bytes| HostRange { address, bytes };
        for (control, buffers, next) in [
            (sizes, vec![range(0x1000, 60), range(0x2000, 1_536)], Next::Behind(24)),
            (sizes | CHAINED, vec![range(0x1000, 60)], Next::At(0x2000)),
            (sizes | CHAINED | END_OF_RING, vec![range(0x1000, 60)], Next::First),
            (1_536 << SECOND_SIZE_SHIFT, vec![range(0x2000, 1_536)], Next::Behind(24)),
        ] {
            let words = words(OWN, control, 0x1000, 0x2000);
            assert_eq!(Descriptor::new(&words).buffers().as_slice(), buffers);
            assert_eq!(layout.next(&words), next, "{control:#x}");
            assert!(layout.is_cards(words[0]));
            let done = Descriptor::new(&words).done(OWN | 0x40);
            assert!(!layout.is_cards(done));
            assert_eq!(done, u64::from(control) << 32 | 0x40);
        }
    }
}
