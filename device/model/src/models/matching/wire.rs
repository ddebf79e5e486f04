//! Frames of the Match NIC: field offsets, checked view, valid representation.
//!
//! After the Ethernet header come words of 64 bits, most significant byte first:
//!
//! | word | content, from the highest bit |
//! |---|---|
//! | 0 | protocol 8, version 8, kind 8, flags 8, sequence 32 |
//! | 1 | destination node 16, source node 16, acknowledged 32: the frames that have arrived in order |
//! | 2 | check word |
//! | 3.. of "first" | the header of a message, 8 words |
//! | 3 of "more", "void" | source port 16, zero 16, message 32 |
//! | 4 of "more" | the offset in the message |
//!
//! and the message's data. The header is the paper's (section 3.1: 64 bytes). The match unit uses its first four words
//! ([`crate::models::matching::item`]). The other words are ours:
//!
//! | word | content |
//! |---|---|
//! | 0 | match bits |
//! | 1 | source node 32, source port 16, operation 16 |
//! | 2 | bytes of the message |
//! | 3 | remote offset; in an answer the offset in the entry |
//! | 4 | header data |
//! | 5 | token of the initiator's command, which an answer repeats |
//! | 6 | target port 8, portal 8, flags 16, message 32 |
//! | 7 | in an answer its result, otherwise zero |
//!
//! The check word makes the ones' complement sum of all words zero; for the sum, the last word is padded with zeros. It
//! detects every single wrong bit. It is ours, because the paper simulates no network. Frames are not padded.
//!
//! Constants: ours.

use core::ops::Range;

use thiserror::Error;

use crate::fabric::ethernet::{self, ETHER_TYPE_CLUSTER, mac_of_node};
use crate::models::matching::item;
use crate::nic::{FRAME_BUFFER_BYTES, FrameBytes};

/// Match's number among the protocols of the cluster.
pub const PROTOCOL: u8 = 3;

const WORD_BYTES: usize = 8;
const VERSION: u8 = 2;

/// Words at the start of every frame.
const LINK_WORDS: usize = 3;
/// Index of the check word among them.
const CHECK_WORD: usize = 2;
/// Words of a message's header.
const HEADER_WORDS: usize = 8;
/// Maximum number of words before the data.
const MAX_HEAD_WORDS: usize = LINK_WORDS + HEADER_WORDS;

/// Bytes before the data of a message's first frame.
pub const FIRST_HEAD_BYTES: usize = ethernet::HEADER_BYTES + MAX_HEAD_WORDS * WORD_BYTES;
/// Bytes before the data of its other frames.
pub const MORE_HEAD_BYTES: usize = ethernet::HEADER_BYTES + (LINK_WORDS + 2) * WORD_BYTES;
/// Bytes of an acknowledgement.
pub const ACKNOWLEDGEMENT_BYTES: usize = ethernet::HEADER_BYTES + LINK_WORDS * WORD_BYTES;
/// The smallest MTU with which messages can be cut into frames.
pub const MIN_MTU_BYTES: u32 = 256;

const KIND_FIRST: u8 = 1;
const KIND_MORE: u8 = 2;
const KIND_ACKNOWLEDGEMENT: u8 = 3;
const KIND_VOID: u8 = 4;

/// Word 0: the sender requests an acknowledgement.
const FLAG_ASKS: u8 = 1;

/// Header, word 6: a put's initiator wants an answer.
const HEADER_WANTS_ANSWER: u16 = 1;
/// Header, word 6: the receiver must interrupt its host.
const HEADER_INTERRUPT: u16 = 2;

/// Why a frame is not valid for this NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The length does not fit the kind, or the frame has data that its kind does not have.
    #[error("the length of {bytes} bytes does not fit the frame's kind")]
    Length {
        /// Bytes of the frame.
        bytes: usize,
    },
    /// It is a frame of another protocol of the cluster.
    #[error("a frame of another model's protocol")]
    Foreign,
    /// The check word is wrong, because the frame was damaged.
    #[error("the check word does not fit the frame")]
    Check,
    /// Another version, an unknown kind, operation or flag, or a reserved field that is not zero.
    #[error("a field holds a value of another version")]
    BadField,
    /// The Ethernet addresses do not belong to the nodes in the frame.
    #[error("the Ethernet header does not belong to the nodes in the frame")]
    Addresses,
}

/// The fields for the link between two cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Receiving node.
    pub destination: u16,
    /// Sending node.
    pub source: u16,
    /// Number of the frame; zero in an acknowledgement.
    pub sequence: u32,
    /// All frames before this number have arrived at the sender.
    pub acknowledged: u32,
    /// The sender requests an acknowledgement.
    pub asks: bool,
}

/// The purpose of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operation {
    /// Data for a match entry.
    #[default]
    Put,
    /// A request to a match entry for data.
    Get,
    /// The result of a put.
    Ack,
    /// The data that a get requested.
    Reply,
}

impl Operation {
    const ALL: [Self; 4] = [Self::Put, Self::Get, Self::Ack, Self::Reply];

    const fn encode(self) -> u16 {
        self as u16 + 1
    }

    fn decode(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.encode() == number)
    }
}

/// A message's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The message's purpose.
    pub operation: Operation,
    /// Match bits.
    pub match_bits: u64,
    /// Sending node.
    pub source_node: u16,
    /// Sending port.
    pub source_port: u8,
    /// Receiving port.
    pub target_port: u8,
    /// Portal of the receiving port.
    pub portal: u8,
    /// Bytes of data. For a get, the bytes that it requests; for an acknowledgement, the bytes that were stored.
    pub bytes: u64,
    /// Offset that the initiator requests; in an answer, the offset in the entry.
    pub offset: u64,
    /// For the receiver's event.
    pub header_data: u64,
    /// Identifies the initiator's command.
    pub token: u64,
    /// A put whose initiator wants an answer.
    pub wants_answer: bool,
    /// The receiver must interrupt its host.
    pub interrupt: bool,
    /// Number of the message among those of its sending port to this node.
    pub message: u32,
    /// In an answer, a `RESULT_` constant.
    pub result: u8,
}

impl Header {
    /// Bytes of data that follow the header.
    pub const fn data_bytes(&self) -> u64 {
        match self.operation {
            Operation::Put | Operation::Reply => self.bytes,
            Operation::Get | Operation::Ack => 0,
        }
    }

    /// The header for the match unit.
    pub const fn for_matching(&self) -> item::Header {
        item::Header {
            match_bits: self.match_bits,
            node: self.source_node as u32,
            process: self.source_port as u16,
            operation: match self.operation {
                Operation::Put => item::Operation::Put,
                Operation::Get => item::Operation::Get,
                Operation::Ack | Operation::Reply => item::Operation::Other,
            },
            length: self.bytes,
            remote_offset: self.offset,
        }
    }

    fn encode(&self) -> [u64; HEADER_WORDS] {
        let flag = |is_set: bool, bit: u16| if is_set { bit } else { 0 };
        let flags = flag(self.wants_answer, HEADER_WANTS_ANSWER) | flag(self.interrupt, HEADER_INTERRUPT);
        [
            self.match_bits,
            u64::from(self.source_node) << 32
                | u64::from(self.source_port) << 16
                | u64::from(self.operation.encode()),
            self.bytes,
            self.offset,
            self.header_data,
            self.token,
            u64::from(self.target_port) << 56
                | u64::from(self.portal) << 48
                | u64::from(flags) << 32
                | u64::from(self.message),
            u64::from(self.result),
        ]
    }

    /// The header of these words; `None` if they are not the valid representation of a header.
    fn decode(words: &[u64; HEADER_WORDS]) -> Option<Self> {
        let [match_bits, source, bytes, offset, header_data, token, target, result] = *words;
        let flags = (target >> 32) as u16;
        let header = Self {
            operation: Operation::decode(source as u16)?,
            match_bits,
            source_node: (source >> 32) as u16,
            source_port: (source >> 16) as u8,
            target_port: (target >> 56) as u8,
            portal: (target >> 48) as u8,
            bytes,
            offset,
            header_data,
            token,
            wants_answer: flags & HEADER_WANTS_ANSWER != 0,
            interrupt: flags & HEADER_INTERRUPT != 0,
            message: target as u32,
            result: result as u8,
        };
        (header.encode() == *words).then_some(header)
    }
}

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// The first frame of a message, with data.
    First(Header),
    /// More data of a message.
    More {
        /// The sending port.
        source_port: u8,
        /// The message.
        message: u32,
        /// Offset in the message at which the data begins.
        offset: u64,
    },
    /// Only the acknowledged number in the link's fields.
    Acknowledgement,
    /// Replaces a frame whose data is not available any more. The message ends here.
    Void {
        /// The sending port.
        source_port: u8,
        /// The message.
        message: u32,
    },
}

impl FrameKind {
    const fn number(&self) -> u8 {
        match self {
            Self::First(_) => KIND_FIRST,
            Self::More { .. } => KIND_MORE,
            Self::Acknowledgement => KIND_ACKNOWLEDGEMENT,
            Self::Void { .. } => KIND_VOID,
        }
    }

    /// Number of words between those of the link and the data.
    const fn words(kind: u8) -> Option<usize> {
        match kind {
            KIND_FIRST => Some(HEADER_WORDS),
            KIND_MORE => Some(2),
            KIND_ACKNOWLEDGEMENT => Some(0),
            KIND_VOID => Some(1),
            _ => None,
        }
    }

    fn encode(&self, words: &mut [u64; HEADER_WORDS]) {
        let name = |port: u8, message: u32| u64::from(port) << 48 | u64::from(message);
        match *self {
            Self::First(header) => *words = header.encode(),
            Self::More { source_port, message, offset } => {
                words[0] = name(source_port, message);
                words[1] = offset;
            }
            Self::Void { source_port, message } => words[0] = name(source_port, message),
            Self::Acknowledgement => {}
        }
    }

    fn decode(kind: u8, words: &[u64; HEADER_WORDS]) -> Option<Self> {
        let (source_port, message) = ((words[0] >> 48) as u8, words[0] as u32);
        let decoded = match kind {
            KIND_FIRST => return Header::decode(words).map(Self::First),
            KIND_MORE => Self::More { source_port, message, offset: words[1] },
            KIND_ACKNOWLEDGEMENT => Self::Acknowledgement,
            KIND_VOID => Self::Void { source_port, message },
            _ => return None,
        };
        let mut again = [0; HEADER_WORDS];
        decoded.encode(&mut again);
        (again == *words).then_some(decoded)
    }
}

/// A valid frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The fields for the link between the cards.
    pub link: Link,
    /// The frame's kind.
    pub kind: FrameKind,
    /// Where in the frame the data is.
    pub data: Range<usize>,
}

impl Frame {
    /// Reads a frame.
    ///
    /// # Errors
    /// [`WireError`]. Damage in any position, except to the length, is reported as [`WireError::Check`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        Self::read(bytes, bytes.len(), false)
    }

    /// Reads the head of a valid frame that has `frame_bytes` bytes.
    ///
    /// # Errors
    /// [`WireError`].
    #[inline]
    pub fn parse_sound(head: &[u8], frame_bytes: usize) -> Result<Self, WireError> {
        Self::read(head, frame_bytes, true)
    }

    /// Reads a frame of `frame_bytes` bytes. `bytes` has all of them, or, if the frame is valid, its head.
    #[inline]
    fn read(bytes: &[u8], frame_bytes: usize, is_sound: bool) -> Result<Self, WireError> {
        let wrong_length = WireError::Length { bytes: frame_bytes };
        let ethernet = ethernet::Frame::new_checked(bytes).ok_or(wrong_length)?;
        let payload = ethernet.payload();
        if ethernet::is_foreign(payload, PROTOCOL) {
            return Err(WireError::Foreign);
        }
        if payload.len() < LINK_WORDS * WORD_BYTES {
            return Err(wrong_length);
        }
        if !is_sound && sum(payload) != u64::MAX {
            return Err(WireError::Check);
        }
        let word = |place: usize| {
            let at = place * WORD_BYTES;
            let bytes = payload.get(at..at + WORD_BYTES).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_be_bytes)
        };
        let [protocol, version, kind, flags, sequence @ ..] = word(0).to_be_bytes();
        let words = FrameKind::words(kind).ok_or(WireError::BadField)?;
        let head_bytes = ethernet::HEADER_BYTES + (LINK_WORDS + words) * WORD_BYTES;
        let has_data = matches!(kind, KIND_FIRST | KIND_MORE);
        if bytes.len() < head_bytes || (!has_data && frame_bytes > head_bytes) {
            return Err(wrong_length);
        }
        let mut body = [0; HEADER_WORDS];
        body.iter_mut().take(words).enumerate().for_each(|(place, body)| *body = word(LINK_WORDS + place));
        let link = Link {
            destination: (word(1) >> 48) as u16,
            source: (word(1) >> 32) as u16,
            sequence: u32::from_be_bytes(sequence),
            acknowledged: word(1) as u32,
            asks: flags == FLAG_ASKS,
        };
        if (protocol, version) != (PROTOCOL, VERSION) || flags & !FLAG_ASKS != 0 {
            return Err(WireError::BadField);
        }
        if ethernet::Header::parse(&ethernet) != link.ethernet() {
            return Err(WireError::Addresses);
        }
        let kind = FrameKind::decode(kind, &body).ok_or(WireError::BadField)?;
        Ok(Self { link, kind, data: head_bytes..frame_bytes })
    }
}

impl Link {
    const fn ethernet(&self) -> ethernet::Header {
        ethernet::Header {
            destination: mac_of_node(self.destination),
            source: mac_of_node(self.source),
            ether_type: ETHER_TYPE_CLUSTER,
        }
    }
}

/// The head of a frame, with room for `data_bytes` after it. The caller appends the data and seals the frame.
#[inline]
pub fn head(link: &Link, kind: &FrameKind, data_bytes: usize) -> FrameBytes {
    let words = FrameKind::words(kind.number()).unwrap_or(0);
    let flags = if link.asks { FLAG_ASKS } else { 0 };
    let [s0, s1, s2, s3] = link.sequence.to_be_bytes();
    let mut all = [0; MAX_HEAD_WORDS];
    let (of_link, of_kind) = all.split_at_mut(LINK_WORDS);
    of_link[0] = u64::from_be_bytes([PROTOCOL, VERSION, kind.number(), flags, s0, s1, s2, s3]);
    of_link[1] =
        u64::from(link.destination) << 48 | u64::from(link.source) << 32 | u64::from(link.acknowledged);
    if let Ok(of_kind) = of_kind.try_into() {
        kind.encode(of_kind);
    }
    let head_bytes = ethernet::HEADER_BYTES + (LINK_WORDS + words) * WORD_BYTES;
    let mut buffer = [0; FRAME_BUFFER_BYTES];
    let (ethernet, payload) = buffer.split_at_mut(ethernet::HEADER_BYTES);
    ethernet.copy_from_slice(&link.ethernet().emit());
    let (places, _) = payload.as_chunks_mut::<WORD_BYTES>();
    places.iter_mut().zip(all).for_each(|(place, word)| *place = word.to_be_bytes());
    if head_bytes + data_bytes <= FRAME_BUFFER_BYTES {
        return FrameBytes::from_buf_and_len(buffer, head_bytes);
    }
    let mut frame = FrameBytes::with_capacity(head_bytes + data_bytes);
    frame.extend_from_slice(buffer.get(..head_bytes).unwrap_or_default());
    frame
}

/// Writes the check word of a complete frame.
#[inline]
pub fn seal(frame: &mut FrameBytes) {
    let Some(payload) = frame.get_mut(ethernet::HEADER_BYTES..) else { return };
    let (words, _) = payload.as_chunks_mut::<WORD_BYTES>();
    let Some(check) = words.get_mut(CHECK_WORD) else { return };
    *check = [0; WORD_BYTES];
    let check = !sum(payload);
    let (words, _) = payload.as_chunks_mut::<WORD_BYTES>();
    if let Some(place) = words.get_mut(CHECK_WORD) {
        *place = check.to_be_bytes();
    }
}

/// The ones' complement sum of the words of `bytes`, most significant byte first, padded with zeros.
///
/// The sum is as wide as two words, so that a carry costs an addition and not a branch. This variant takes the fewest
/// instructions.
#[inline]
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    let mut whole: u128 = words.iter().map(|word| u128::from(u64::from_be_bytes(*word))).sum();
    let mut last = [0; WORD_BYTES];
    last.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
    whole += u128::from(u64::from_be_bytes(last));
    let folded = (whole as u64 as u128) + (whole >> 64);
    (folded as u64).wrapping_add((folded >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sum_equals_the_word_by_word_sum(bytes in prop::collection::vec(any::<u8>(), 0..40_000), ones: bool) {
            let bytes = if ones { alloc::vec![0xff; bytes.len()] } else { bytes };
            let byte = |bytes: &[u8], at: usize| u64::from(bytes.get(at).copied().unwrap_or(0));
            let word = |bytes: &[u8]| (0..8).fold(0, |word, at| word << 8 | byte(bytes, at));
            let plain = bytes.chunks(8).fold(0_u64, |sum, bytes| {
                let (sum, carry) = sum.overflowing_add(word(bytes));
                sum + u64::from(carry)
            });
            prop_assert_eq!(sum(&bytes), plain);
        }
    }

    fn any_header() -> impl Strategy<Value = Header> {
        let operation = prop::sample::select(Operation::ALL.to_vec());
        let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
        let places = (any::<u16>(), any::<u8>(), any::<u8>(), any::<u8>());
        (operation, numbers, places, any::<(bool, bool, u32, u8)>()).prop_map(
            |(operation, numbers, places, (wants_answer, interrupt, message, result))| {
                let (match_bits, bytes, offset, header_data, token) = numbers;
                let (source_node, source_port, target_port, portal) = places;
                Header {
                    operation,
                    match_bits,
                    source_node,
                    source_port,
                    target_port,
                    portal,
                    bytes,
                    offset,
                    header_data,
                    token,
                    wants_answer,
                    interrupt,
                    message,
                    result,
                }
            },
        )
    }

    fn any_frame() -> impl Strategy<Value = (Link, FrameKind, Vec<u8>)> {
        let link = any::<(u16, u16, u32, u32, bool)>().prop_map(
            |(destination, source, sequence, acknowledged, asks)| Link {
                destination,
                source,
                sequence,
                acknowledged,
                asks,
            },
        );
        let data = || prop::collection::vec(any::<u8>(), 0..300);
        let kind = prop_oneof![
            (any_header(), data()).prop_map(|(header, data)| (FrameKind::First(header), data)),
            (any::<(u8, u32, u64)>(), data()).prop_map(|((source_port, message, offset), data)| {
                (FrameKind::More { source_port, message, offset }, data)
            }),
            Just((FrameKind::Acknowledgement, Vec::new())),
            any::<(u8, u32)>()
                .prop_map(|(source_port, message)| (FrameKind::Void { source_port, message }, Vec::new())),
        ];
        (link, kind).prop_map(|(link, (kind, data))| (link, kind, data))
    }

    fn emit(link: &Link, kind: &FrameKind, data: &[u8]) -> FrameBytes {
        let mut frame = head(link, kind, data.len());
        frame.extend_from_slice(data);
        seal(&mut frame);
        frame
    }

    proptest! {
        #[test]
        fn frames_round_trip((link, kind, data) in any_frame()) {
            let bytes = emit(&link, &kind, &data);
            let frame = Frame::parse(&bytes).unwrap();
            prop_assert_eq!((frame.link, frame.kind), (link, kind));
            prop_assert_eq!(&bytes[frame.data], &data[..]);
        }

        #[test]
        fn any_single_wrong_bit_is_refused((link, kind, data) in any_frame()) {
            let mut frame = emit(&link, &kind, &data);
            for bit in 0..frame.len() * 8 {
                frame[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(Frame::parse(&frame).is_err(), "bit {} passed", bit);
                frame[bit / 8] ^= 1 << (bit % 8);
            }
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(bytes: Vec<u8>) {
            let _ = Frame::parse(&bytes);
        }

        #[test]
        fn words_with_valid_check_word_parse_without_panic(
            (link, kind, _) in any_frame(),
            words in prop::collection::vec(any::<u64>(), 0..12),
            [version, kind_number, flags] in any::<[u8; 3]>(),
        ) {
            let mut frame = head(&link, &kind, 0);
            frame.truncate(ethernet::HEADER_BYTES + LINK_WORDS * WORD_BYTES);
            frame[ethernet::HEADER_BYTES..][..4].copy_from_slice(&[PROTOCOL, version & 3, kind_number & 7, flags & 3]);
            words.iter().for_each(|word| frame.extend_from_slice(&word.to_be_bytes()));
            seal(&mut frame);
            let _ = Frame::parse(&frame);
        }
    }

    #[test]
    fn lengths_are_those_of_the_kinds() {
        let first = FrameKind::First(Header::default());
        let more = FrameKind::More { source_port: 0, message: 0, offset: 0 };
        let bytes = |kind| head(&Link::default(), kind, 0).len();
        assert_eq!(
            [bytes(&first), bytes(&more), bytes(&FrameKind::Acknowledgement)],
            [FIRST_HEAD_BYTES, MORE_HEAD_BYTES, ACKNOWLEDGEMENT_BYTES]
        );
    }
}
