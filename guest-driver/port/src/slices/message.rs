//! Messages and their flags.

use core::ops::{BitOr, BitOrAssign};

use niclab_abi::bar::{CODE_ACKNOWLEDGE, CODE_INTERRUPT, CODE_NOTIFY};

use super::{PAYLOAD_BYTES, PAYLOAD_WORDS, TAG_WORDS};
use crate::Address;

/// Requests for a packet in addition to its transport: bits 7 to 9 of the page offset (section 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u16);

impl Flags {
    /// No requests.
    pub const NONE: Self = Self(0);
    /// The sender's status line reports when the packet has left: [`crate::Status::notified`].
    pub const NOTIFY: Self = Self(CODE_NOTIFY);
    /// The receiving NIC interrupts its host once the packet is stored.
    pub const INTERRUPT: Self = Self(CODE_INTERRUPT);
    /// The receiving NIC sends an acknowledgement once the packet is stored: [`crate::Status::acknowledged`].
    pub const ACKNOWLEDGE: Self = Self(CODE_ACKNOWLEDGE);

    /// Whether all of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The flags of a page-offset code; its other bits hold the length.
    pub const fn from_code(code: u16) -> Self {
        Self(code & (CODE_NOTIFY | CODE_INTERRUPT | CODE_ACKNOWLEDGE))
    }

    /// The bits of the page-offset code.
    pub const fn code(self) -> u16 {
        self.0
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// A received message: a copy, so that its slice is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub(super) payload: [u64; PAYLOAD_WORDS],
    pub(super) words: usize,
    pub(super) tag: [u64; TAG_WORDS],
    pub(super) source: Address,
    pub(super) flags: Flags,
}

impl Message {
    /// The payload: 0 to 8 words.
    pub fn payload(&self) -> &[u64] {
        self.payload.get(..self.words).unwrap_or(&self.payload)
    }

    /// Copies the payload as bytes, little-endian as [`pack`] made it words, into `out`; as many as both hold. Returns
    /// their number.
    pub fn copy_bytes(&self, out: &mut [u8]) -> usize {
        let mut copied = 0;
        for (chunk, word) in out.chunks_mut(8).zip(self.payload()) {
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
            copied += chunk.len();
        }
        copied
    }

    /// The tag.
    pub fn tag(&self) -> [u64; TAG_WORDS] {
        self.tag
    }

    /// The sender's port. The NIC sets it, so a sender cannot forge it.
    pub fn source(&self) -> Address {
        self.source
    }

    /// [`Flags::INTERRUPT`] and [`Flags::ACKNOWLEDGE`] as the sender set them; [`Flags::NOTIFY`] is not transmitted.
    pub fn flags(&self) -> Flags {
        self.flags
    }
}

/// Converts `bytes` to words, padded with zeros, and returns their number too; `None` if there are too many bytes.
pub fn pack(bytes: &[u8]) -> Option<([u64; PAYLOAD_WORDS], usize)> {
    if bytes.len() > PAYLOAD_BYTES {
        return None;
    }
    let mut words = [0; PAYLOAD_WORDS];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut padded = [0; 8];
        padded[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_le_bytes(padded);
    }
    Some((words, bytes.len().div_ceil(8)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packed_bytes_round_trip_and_are_padded_with_zeros(
            bytes in proptest::collection::vec(any::<u8>(), 0..=PAYLOAD_BYTES),
        ) {
            let (payload, words) = pack(&bytes).expect("not too long");
            let source = Address { node: 0, port: 0 };
            let message = Message { payload, words, tag: [0; 2], source, flags: Flags::NONE };
            let mut out = [0xff; PAYLOAD_BYTES];
            prop_assert_eq!(message.copy_bytes(&mut out), bytes.len().next_multiple_of(8));
            prop_assert_eq!(&out[..bytes.len()], &bytes[..]);
            prop_assert!(out[bytes.len()..words * 8].iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn more_than_a_cache_line_is_refused() {
        assert!(pack(&[0; PAYLOAD_BYTES + 1]).is_none());
    }
}
