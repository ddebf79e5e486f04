//! Frames of an INIC card: field offsets, checked view, valid representation. Only the components `xmit` and
//! `split_packet` use them (section 4.2).
//!
//! The paper gives field widths but no positions (section 3, figure 2). After the Ethernet header, most significant bit
//! first:
//!
//! ```text
//! every frame          protocol 8 | for cards 1 | format 7 | assembly 16: which cards accept the rest
//! seq24_node4, word 0  length 9, in words of 32 bits | info 4 | zero 11 | source 4 | destination 4
//!              word 1  zero 8 | sequence 24
//!              word 2  zero 8 | ack base 24
//!              word 3  ack mask 32
//! seq8_node12, word 0  length 11, in bytes | info 4 | zero 9 | sequence 8
//!              word 1  source 12 | destination 12 | ack base 8
//!              word 2  ack mask 32
//! then                 data
//! last four bytes      CRC-32 of all of these, in the position of Ethernet's: a MAC's status reports a bad frame
//! ```
//!
//! Bits of info, from the highest: ack base and mask are valid; data follows; last packet of its message;
//! retransmitted. A packet without data that is the last of its message, or retransmitted, is void: it takes the number
//! of a packet whose message failed. A packet without data and without these bits only acknowledges, and has no number.
//! Cards send each other messages for collectives, each in one packet, which hosts never see.
//!
//! Constants: figure 2 of the paper. The fields around it are ours.

pub use niclab_components::Format;
use thiserror::Error;

use crate::fabric::ethernet::{self, ETHER_TYPE_CLUSTER, mac_of_node};
use crate::nic::FrameBytes;

/// First byte after the Ethernet header of every frame of this model.
pub const PROTOCOL: u8 = 9;

/// Bytes before the paper's header: Ethernet's header, and protocol, format and assembly.
const ENVELOPE_BYTES: usize = ethernet::HEADER_BYTES + 4;
/// Bytes of the check sequence.
pub const CHECK_BYTES: usize = 4;

mod info {
    pub const ACK: u32 = 1 << 3;
    pub const DATA: u32 = 1 << 2;
    pub const LAST: u32 = 1 << 1;
    pub const AGAIN: u32 = 1;
}

/// Nodes that a header can name.
pub const fn nodes_of(format: Format) -> u32 {
    1 << format.node_bits()
}

const fn header_words(format: Format) -> usize {
    match format {
        Format::Seq24Node4 => 4,
        Format::Seq8Node12 => 3,
    }
}

/// Bytes of a frame before its data.
pub const fn head_bytes(format: Format) -> usize {
    ENVELOPE_BYTES + header_words(format) * 4
}

/// The byte that identifies the format.
const fn code(format: Format) -> u8 {
    match format {
        Format::Seq24Node4 => 1,
        Format::Seq8Node12 => 2,
    }
}

/// Flag next to the format: the data is a message between cards.
const FOR_CARD: u8 = 1 << 7;

/// The number as a header contains it.
const fn cut(format: Format, sequence: u32) -> u32 {
    sequence & (u32::MAX >> (32 - format.sequence_bits()))
}

/// Why the card rejects a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The frame is too short, or its length field is wrong.
    #[error("the length field does not match the frame's {bytes} bytes")]
    Length {
        /// Bytes of the frame.
        bytes: usize,
    },
    /// Another model's frame.
    #[error("the frame belongs to another model's protocol")]
    Foreign,
    /// A frame of another assembly, or in another format.
    #[error("the frame belongs to assembly {found:#06x}, but this card runs assembly {own:#06x}")]
    Assembly {
        /// The frame's assembly.
        found: u16,
        /// This card's assembly.
        own: u16,
    },
    /// A field that must be zero is not, or fields contradict each other.
    #[error("the value of a field is out of range")]
    BadField,
    /// The addresses in the Ethernet header differ from the nodes in the frame.
    #[error("the Ethernet addresses do not match the nodes in the frame")]
    Addresses,
}

/// The format that a card and its peers agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// The format.
    pub format: Format,
    /// Identifier of the assembly's frames.
    pub assembly: u16,
}

/// An acknowledgement, in numbers as the header contains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The last packet up to which no packet is missing.
    pub base: u32,
    /// Bit `i`: the packet `i + 1` after it has arrived.
    pub mask: u32,
}

/// A packet's header. Numbers are cut to the width of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sending node.
    pub source: u16,
    /// The receiving node.
    pub destination: u16,
    /// Number of the packet.
    pub sequence: u32,
    /// Whether data follows.
    pub has_data: bool,
    /// Whether it is the last of its message.
    pub is_last: bool,
    /// Whether the packet is a retransmission.
    pub is_again: bool,
    /// Whether the data is for the card, and not for its host.
    pub for_card: bool,
    /// Its acknowledgement.
    pub ack: Option<Ack>,
}

impl Header {
    /// Whether the packet has a number. A packet without number only acknowledges.
    pub const fn has_number(&self) -> bool {
        self.has_data || self.is_last || self.is_again
    }

    const fn ethernet(&self) -> ethernet::Header {
        ethernet::Header {
            destination: mac_of_node(self.destination),
            source: mac_of_node(self.source),
            ether_type: ETHER_TYPE_CLUSTER,
        }
    }

    const fn info(&self) -> u32 {
        (if self.ack.is_some() { info::ACK } else { 0 })
            | (if self.has_data { info::DATA } else { 0 })
            | (if self.is_last { info::LAST } else { 0 })
            | (if self.is_again { info::AGAIN } else { 0 })
    }

    /// Writes the head of a frame into the room before its data, and appends the check sequence.
    pub fn finish(&self, dialect: Dialect, frame: &mut FrameBytes) {
        let Dialect { format, assembly } = dialect;
        let data_bytes = frame.len().saturating_sub(head_bytes(format)) as u32;
        let (nodes, info) = ((u32::from(self.source), u32::from(self.destination)), self.info());
        let sequence = cut(format, self.sequence);
        let Ack { base, mask } = self.ack.unwrap_or(Ack { base: 0, mask: 0 });
        let base = cut(format, base);
        let words = match format {
            Format::Seq24Node4 => {
                [(data_bytes / 4) << 23 | info << 19 | nodes.0 << 4 | nodes.1, sequence, base, mask]
            }
            Format::Seq8Node12 => {
                [data_bytes << 21 | info << 17 | sequence, nodes.0 << 20 | nodes.1 << 8 | base, mask, 0]
            }
        };
        let [high, low] = assembly.to_be_bytes();
        let mut head = FrameBytes::from_slice(&self.ethernet().emit());
        let for_card = if self.for_card { FOR_CARD } else { 0 };
        head.extend_from_slice(&[PROTOCOL, for_card | code(format), high, low]);
        for word in words.iter().take(header_words(format)) {
            head.extend_from_slice(&word.to_be_bytes());
        }
        if let Some(room) = frame.get_mut(..head.len()) {
            room.copy_from_slice(&head);
        }
        let check = crc32fast::hash(frame.get(ethernet::HEADER_BYTES..).unwrap_or_default());
        frame.extend_from_slice(&check.to_be_bytes());
    }

    /// Reads the header of a frame. The data follows, up to the check sequence.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(dialect: Dialect, frame: &[u8]) -> Result<Self, WireError> {
        Self::parse_of(dialect.format, Some(dialect.assembly), frame)
    }

    /// Reads the header of a frame of any assembly, for observers.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse_any(format: Format, frame: &[u8]) -> Result<Self, WireError> {
        Self::parse_of(format, None, frame)
    }

    fn parse_of(format: Format, assembly: Option<u16>, frame: &[u8]) -> Result<Self, WireError> {
        let length = WireError::Length { bytes: frame.len() };
        let ethernet = ethernet::Frame::new_checked(frame).ok_or(length)?;
        if ethernet::is_foreign(ethernet.payload(), PROTOCOL) {
            return Err(WireError::Foreign);
        }
        let data_bytes = frame.len().checked_sub(head_bytes(format) + CHECK_BYTES).ok_or(length)? as u32;
        let (envelope, rest) = ethernet.payload().split_first_chunk::<4>().ok_or(length)?;
        let [protocol, told, high, low] = *envelope;
        let (for_card, told_format) = (told & FOR_CARD != 0, told & !FOR_CARD);
        let found = u16::from_be_bytes([high, low]);
        if protocol != PROTOCOL {
            return Err(WireError::BadField);
        }
        let own = assembly.unwrap_or(found);
        if (told_format, found) != (code(format), own) {
            return Err(WireError::Assembly { found, own });
        }
        let mut words = rest.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
        let mut word = || words.next().ok_or(length);
        let (told_bytes, bits, header, zero) = match format {
            Format::Seq24Node4 => {
                let (first, sequence, base, mask) = (word()?, word()?, word()?, word()?);
                let header = (first as u16 >> 4 & 0xf, first as u16 & 0xf, sequence, base, mask);
                (first >> 23 << 2, first >> 19, header, first >> 8 & 0x7ff | sequence >> 24 | base >> 24)
            }
            Format::Seq8Node12 => {
                let (first, second, mask) = (word()?, word()?, word()?);
                let nodes = ((second >> 20) as u16, (second >> 8) as u16 & 0xfff);
                let header = (nodes.0, nodes.1, first & 0xff, second & 0xff, mask);
                (first >> 21, first >> 17, header, first >> 8 & 0x1ff)
            }
        };
        let (source, destination, sequence, base, mask) = header;
        let has = |bit: u32| bits & bit != 0;
        let (has_ack, has_data) = (has(info::ACK), has(info::DATA));
        if told_bytes != data_bytes {
            return Err(length);
        }
        let is_whole = has_data && has(info::LAST);
        if zero != 0 || (data_bytes > 0) != has_data || (!has_ack && (base, mask) != (0, 0)) {
            return Err(WireError::BadField);
        }
        if for_card && !is_whole {
            return Err(WireError::BadField);
        }
        let header = Self {
            source,
            destination,
            sequence,
            has_data,
            is_last: has(info::LAST),
            is_again: has(info::AGAIN),
            for_card,
            ack: has_ack.then_some(Ack { base, mask }),
        };
        if ethernet::Header::parse(&ethernet) != header.ethernet() {
            return Err(WireError::Addresses);
        }
        Ok(header)
    }
}

/// Whether the check sequence is valid, as the network interface's status word reports.
pub fn is_whole(frame: &[u8]) -> bool {
    let body = frame.get(ethernet::HEADER_BYTES..).unwrap_or_default();
    body.split_last_chunk::<CHECK_BYTES>()
        .is_some_and(|(covered, check)| crc32fast::hash(covered) == u32::from_be_bytes(*check))
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn any_packet() -> impl Strategy<Value = (Dialect, Header, Vec<u8>)> {
        let format = prop::sample::select(vec![Format::Seq24Node4, Format::Seq8Node12]);
        (format, any::<u16>()).prop_flat_map(|(format, assembly)| {
            let nodes = nodes_of(format) as u16;
            let numbers = move || any::<u32>().prop_map(move |number| cut(format, number));
            let ack = prop::option::of((numbers(), any::<u32>()).prop_map(|(base, mask)| Ack { base, mask }));
            let data = prop::collection::vec(any::<u8>(), 0..300).prop_map(move |mut data| {
                data.truncate(data.len() / 4 * 4);
                data
            });
            (0..nodes, 0..nodes, numbers(), any::<[bool; 3]>(), ack, data).prop_map(
                move |(source, destination, sequence, [is_last, is_again, for_card], ack, data)| {
                    let has_data = !data.is_empty();
                    let for_card = for_card && has_data && is_last;
                    let header =
                        Header { source, destination, sequence, has_data, is_last, is_again, for_card, ack };
                    (Dialect { format, assembly }, header, data)
                },
            )
        })
    }

    fn emit(dialect: Dialect, header: &Header, data: &[u8]) -> FrameBytes {
        let mut frame = FrameBytes::from_elem(0xee, head_bytes(dialect.format));
        frame.extend_from_slice(data);
        header.finish(dialect, &mut frame);
        frame
    }

    proptest! {
        #[test]
        fn packets_round_trip((dialect, header, data) in any_packet()) {
            let frame = emit(dialect, &header, &data);
            prop_assert!(is_whole(&frame));
            prop_assert_eq!(Header::parse(dialect, &frame), Ok(header));
            prop_assert_eq!(&frame[head_bytes(dialect.format)..frame.len() - CHECK_BYTES], &*data);
        }

        #[test]
        fn any_single_damaged_bit_is_found((dialect, header, data) in any_packet()) {
            let mut frame = emit(dialect, &header, &data);
            for bit in 0..frame.len() * 8 {
                frame[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(!is_whole(&frame) || Header::parse(dialect, &frame).is_err(), "bit {}", bit);
                frame[bit / 8] ^= 1 << (bit % 8);
            }
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(
            bytes: Vec<u8>,
            format in prop::sample::select(vec![Format::Seq24Node4, Format::Seq8Node12]),
        ) {
            let mut frame = [0; ethernet::HEADER_BYTES].to_vec();
            frame.extend_from_slice(&[PROTOCOL, code(format), 0, 7]);
            frame.extend_from_slice(&bytes);
            let _ = (Header::parse(Dialect { format, assembly: 7 }, &frame), is_whole(&bytes));
        }

        #[test]
        fn frames_of_other_assemblies_are_rejected((dialect, header, data) in any_packet(), other: u16) {
            prop_assume!(other != dialect.assembly);
            let frame = emit(dialect, &header, &data);
            let own = Dialect { assembly: other, ..dialect };
            let found = Header::parse(own, &frame);
            prop_assert_eq!(found, Err(WireError::Assembly { found: dialect.assembly, own: other }));
        }
    }
}
