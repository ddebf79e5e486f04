//! Frames of the Mailbox card: field offsets, checked view, valid representation.
//!
//! After the Ethernet header, most significant byte first:
//!
//! ```text
//! word 0            protocol 8 | kind 4, flags 4 | source port 8 | target port 8 | destination node 16 |
//!                   source node 16
//! word 1            number of the letter 64, from 1, rising within a card
//! word 2..          of a letter: payload and tag, 2 to 10 words
//! last four bytes   CRC-32 of all of these
//! ```
//!
//! Constants: ours.

use thiserror::Error;

use crate::fabric::ethernet::{self, ETHER_TYPE_CLUSTER, mac_of_node};
use crate::nic::Address;
use crate::nic::FrameBytes;
use crate::parts::slice::MAX_WORDS;

/// First byte after the Ethernet header of every frame of this model.
pub const PROTOCOL: u8 = 6;

const WORD_BYTES: usize = 8;
const HEAD_WORDS: usize = 2;
const CHECK_BYTES: usize = 4;
/// Minimum number of words of a letter: the tag.
const MIN_WORDS: usize = niclab_abi::bar::TAG_WORDS;

mod shift {
    pub const PROTOCOL: u32 = 56;
    pub const KIND: u32 = 52;
    pub const FLAGS: u32 = 48;
    pub const SOURCE_PORT: u32 = 40;
    pub const TARGET_PORT: u32 = 32;
    pub const DESTINATION_NODE: u32 = 16;
}

const KIND_LETTER: u8 = 1;
const KIND_ACKNOWLEDGEMENT: u8 = 2;
/// The receiver must interrupt its host.
const FLAG_INTERRUPT: u8 = 1 << 0;
/// The sender's program wants to be notified of the acknowledgement.
const FLAG_ACKNOWLEDGE: u8 = 1 << 1;

/// Why a frame is not valid for this card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The length does not fit the frame's kind.
    #[error("the length of {bytes} bytes does not fit the frame's kind")]
    Length {
        /// Bytes of the frame.
        bytes: usize,
    },
    /// The check sequence is wrong.
    #[error("the check sequence does not fit the frame")]
    Check,
    /// An unknown kind or flag.
    #[error("a field holds a value of another version")]
    BadField,
    /// Another model's frame.
    #[error("the frame is of another model's protocol")]
    Foreign,
    /// The Ethernet addresses do not belong to the nodes in the head.
    #[error("the Ethernet header does not belong to the nodes in the frame")]
    Addresses,
}

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A message.
    Letter {
        /// The receiver must interrupt its host.
        interrupt: bool,
        /// The sender's program is notified of the acknowledgement.
        acknowledge: bool,
    },
    /// The letter with this number was stored.
    Acknowledgement,
}

impl FrameKind {
    const fn encode(self) -> (u8, u8) {
        match self {
            Self::Letter { interrupt, acknowledge } => {
                let interrupt = if interrupt { FLAG_INTERRUPT } else { 0 };
                (KIND_LETTER, interrupt | if acknowledge { FLAG_ACKNOWLEDGE } else { 0 })
            }
            Self::Acknowledgement => (KIND_ACKNOWLEDGEMENT, 0),
        }
    }

    fn decode(kind: u8, flags: u8) -> Option<Self> {
        let letter = Self::Letter {
            interrupt: flags & FLAG_INTERRUPT != 0,
            acknowledge: flags & FLAG_ACKNOWLEDGE != 0,
        };
        [letter, Self::Acknowledgement].into_iter().find(|known| known.encode() == (kind, flags))
    }
}

/// A frame's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The frame's kind.
    pub kind: FrameKind,
    /// The sending port.
    pub source: Address,
    /// The receiving port.
    pub target: Address,
    /// The number of the letter that this frame carries or acknowledges.
    pub number: u64,
}

impl Header {
    /// Checks a frame and reads its head. Returns the words of a letter with it.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(frame: &[u8]) -> Result<(Self, impl ExactSizeIterator<Item = u64> + '_), WireError> {
        let wrong_length = WireError::Length { bytes: frame.len() };
        let ethernet = ethernet::Frame::new_checked(frame).ok_or(wrong_length)?;
        if ethernet::is_foreign(ethernet.payload(), PROTOCOL) {
            return Err(WireError::Foreign);
        }
        let (covered, check) = ethernet.payload().split_last_chunk::<CHECK_BYTES>().ok_or(wrong_length)?;
        if crc32fast::hash(covered) != u32::from_be_bytes(*check) {
            return Err(WireError::Check);
        }
        let (words, rest) = covered.as_chunks::<WORD_BYTES>();
        let ([head, number], words) = words.split_first_chunk::<HEAD_WORDS>().ok_or(wrong_length)?;
        let head = u64::from_be_bytes(*head);
        let field = |shift: u32| head >> shift;
        let kind_and_flags = field(shift::FLAGS) as u8;
        let kind = FrameKind::decode(kind_and_flags >> 4, kind_and_flags & 0xf);
        let header = Self {
            kind: kind.filter(|_| field(shift::PROTOCOL) as u8 == PROTOCOL).ok_or(WireError::BadField)?,
            source: Address { node: head as u16, port: field(shift::SOURCE_PORT) as u8 },
            target: Address {
                node: field(shift::DESTINATION_NODE) as u16,
                port: field(shift::TARGET_PORT) as u8,
            },
            number: u64::from_be_bytes(*number),
        };
        let has_its_words = match header.kind {
            FrameKind::Letter { .. } => (MIN_WORDS..=MAX_WORDS).contains(&words.len()),
            FrameKind::Acknowledgement => words.is_empty(),
        };
        if !rest.is_empty() || !has_its_words {
            return Err(wrong_length);
        }
        if ethernet::Header::parse(&ethernet) != header.ethernet() {
            return Err(WireError::Addresses);
        }
        Ok((header, words.iter().map(|word| u64::from_be_bytes(*word))))
    }

    /// The frame with this head and these words.
    pub fn emit(&self, words: &[u64]) -> FrameBytes {
        let (kind, flags) = self.kind.encode();
        let head = u64::from(PROTOCOL) << shift::PROTOCOL
            | u64::from(kind) << shift::KIND
            | u64::from(flags) << shift::FLAGS
            | u64::from(self.source.port) << shift::SOURCE_PORT
            | u64::from(self.target.port) << shift::TARGET_PORT
            | u64::from(self.target.node) << shift::DESTINATION_NODE
            | u64::from(self.source.node);
        let mut frame = FrameBytes::from_slice(&self.ethernet().emit());
        for word in [head, self.number].iter().chain(words) {
            frame.extend_from_slice(&word.to_be_bytes());
        }
        let check = crc32fast::hash(frame.get(ethernet::HEADER_BYTES..).unwrap_or_default());
        frame.extend_from_slice(&check.to_be_bytes());
        frame
    }

    const fn ethernet(&self) -> ethernet::Header {
        ethernet::Header {
            destination: mac_of_node(self.target.node),
            source: mac_of_node(self.source.node),
            ether_type: ETHER_TYPE_CLUSTER,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn parse(frame: &[u8]) -> Result<(Header, Vec<u64>), WireError> {
        Header::parse(frame).map(|(header, words)| (header, words.collect()))
    }

    fn any_frame() -> impl Strategy<Value = (Header, Vec<u64>)> {
        let address = || (any::<u16>(), any::<u8>()).prop_map(|(node, port)| Address { node, port });
        let letter =
            (any::<bool>(), any::<bool>(), prop::collection::vec(any::<u64>(), MIN_WORDS..=MAX_WORDS))
                .prop_map(|(interrupt, acknowledge, words)| {
                    (FrameKind::Letter { interrupt, acknowledge }, words)
                });
        let kind = prop_oneof![letter, Just((FrameKind::Acknowledgement, Vec::new()))];
        (address(), address(), kind, any::<u64>()).prop_map(|(source, target, (kind, words), number)| {
            (Header { kind, source, target, number }, words)
        })
    }

    proptest! {
        #[test]
        fn frames_round_trip((header, words) in any_frame()) {
            let frame = header.emit(&words);
            prop_assert!(!frame.spilled(), "the frame fits the inline buffer");
            prop_assert_eq!(parse(&frame), Ok((header, words)));
        }

        #[test]
        fn any_single_corrupted_bit_is_refused((header, words) in any_frame()) {
            let mut frame = header.emit(&words);
            for bit in 0..frame.len() * 8 {
                frame[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(parse(&frame).is_err(), "bit {} passed", bit);
                frame[bit / 8] ^= 1 << (bit % 8);
            }
        }

        #[test]
        fn truncated_or_longer_frame_is_refused((header, words) in any_frame(), bytes in 0..200_usize) {
            let mut frame = header.emit(&words);
            let whole = frame.len();
            frame.resize(bytes, 0);
            prop_assert_eq!(parse(&frame).is_ok(), bytes == whole);
        }

        #[test]
        fn bytes_with_valid_check_sequence_parse_without_panic(bytes: Vec<u8>) {
            let mut frame = [0; ethernet::HEADER_BYTES].to_vec();
            frame.extend_from_slice(&bytes);
            frame.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
            let _ = parse(&frame);
        }
    }
}
