//! Descriptors of the transmit and receive rings.

use niclab_abi::rings::{RING_MESSAGE_WORD, RING_OWN, RING_RECEIVED_SHIFT};

use crate::parts::descriptor_ring::dec2114x::{self, Dec2114x};
use crate::parts::descriptor_ring::{Layout, Next};

/// Maximum descriptors of a frame. Ours: a bound.
pub const MAX_PARTS: usize = 16;

/// Maximum descriptors that the card reads for one poll demand: more than the ring of any driver has. Ours: a bound.
pub const DEMAND_LOOKS: u32 = 4_096;

const _: () = assert!(RING_OWN == dec2114x::OWN as u64);

/// Transmit descriptors: the chip's descriptor, followed by one word for reports.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing(pub Dec2114x);

impl Outgoing {
    /// Length of the message whose frame begins in the descriptor with these words.
    pub fn message_bytes(words: &[u64]) -> u64 {
        words.get(RING_MESSAGE_WORD).copied().unwrap_or(0) & u64::from(u32::MAX)
    }

    /// Frames that the driver had taken from its receive ring when it gave this descriptor to the card.
    pub fn received(words: &[u64]) -> u32 {
        words.get(RING_MESSAGE_WORD).map_or(0, |word| (word >> RING_RECEIVED_SHIFT) as u32)
    }
}

impl Layout for Outgoing {
    const WORDS: usize = RING_MESSAGE_WORD + 1;
    const FETCHED_BYTES: u64 = dec2114x::BYTES;
    const OWNERSHIP: usize = Dec2114x::OWNERSHIP;
    const STATUS: u64 = Dec2114x::STATUS;

    fn is_cards(&self, ownership: u64) -> bool {
        self.0.is_cards(ownership)
    }

    fn next(&self, words: &[u64]) -> Next {
        self.0.next(words)
    }
}
