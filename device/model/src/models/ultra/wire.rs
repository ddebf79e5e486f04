//! ULTRA's packets on the wire: field offsets, checked view, valid representation.
//!
//! ```text
//! Ethernet II header        14 bytes, EtherType 0x88B5, both addresses those of the nodes' cards
//! FLIT 0: routing           protocol 8 | version 8 | destination node 16 | source node 16 | source port 8 | FLITs 8
//! FLIT 1: header            target port 8 | kind 4, flags 4 | connection 16 | number 32
//! FLIT 2..: payload, tag    one word each; 2 to 10 for data, none for the other kinds
//! ```
//!
//! A FLIT is eight bytes, most significant first, and the CRC-16 of those eight bytes. The paper has the FLIT with its
//! CRC (section 3.1), and the routing frame before header and payload. It also has the target port (TUPID) in the
//! header, and the tag of 128 bits in every packet (section 4). Widths and order are ours, because the paper gives
//! none. Also ours are the Ethernet header, by which the packets share a link with IP, and connection and number, which
//! [`crate::parts::credit`] needs.
//!
//! On a network with native framing the Ethernet header is not on the link, and the switch reads the routing FLIT
//! ([`routed_to`]). Cards and captures keep the header nevertheless.
//!
//! There is no padding: the frame ends with its last FLIT. So a corrupted bit is found in any position.
//!
//! Constants: ours, the format. The contents are from the paper's section 3.

use crc::{CRC_16_IBM_3740, Crc, Table};
use thiserror::Error;

use crate::fabric::ethernet::{self, ETHER_TYPE_CLUSTER, mac_of_node};
pub use crate::nic::Address;
use crate::nic::{FRAME_BUFFER_BYTES, FrameBytes};

/// Bytes of a FLIT: a word and its check sequence.
pub const FLIT_BYTES: usize = WORD_BYTES + 2;
/// FLITs before the payload: routing and header.
pub const HEAD_FLITS: usize = 2;
/// Maximum number of words of a packet: one cache line and the tag (section 4).
pub const MAX_WORDS: usize = 10;
/// Minimum number of words of a data packet: the tag (section 4).
pub const MIN_WORDS: usize = 2;
/// Bytes of the longest frame.
pub const MAX_FRAME_BYTES: usize = frame_bytes(MAX_WORDS);

/// ULTRA's number among the protocols of the cluster.
pub const PROTOCOL: u8 = 5;

const WORD_BYTES: usize = 8;
const VERSION: u8 = 2;

/// Bytes of a frame with `words` words of payload and tag.
pub const fn frame_bytes(words: usize) -> usize {
    ethernet::HEADER_BYTES + (HEAD_FLITS + words) * FLIT_BYTES
}

/// Fields of the first two FLITs: by how many bits to shift right.
mod shift {
    pub const PROTOCOL: u32 = 56;
    pub const VERSION: u32 = 48;
    pub const DESTINATION_NODE: u32 = 32;
    pub const SOURCE_NODE: u32 = 16;
    pub const SOURCE_PORT: u32 = 8;
    pub const FLITS: u32 = 0;

    pub const TARGET_PORT: u32 = 56;
    pub const KIND: u32 = 52;
    pub const FLAGS: u32 = 48;
    pub const CONNECTION: u32 = 32;
    pub const NUMBER: u32 = 0;
}

const KIND_DATA: u8 = 1;
const KIND_ACKNOWLEDGE: u8 = 2;
const KIND_CREDIT_REQUEST: u8 = 3;
const KIND_CREDIT: u8 = 4;
const KIND_CREDIT_OFFER: u8 = 5;

/// Data: the receiver must interrupt its host.
const FLAG_INTERRUPT: u8 = 1 << 0;
/// Data: the receiver must acknowledge.
const FLAG_ACKNOWLEDGE: u8 = 1 << 1;
/// Credit request: the sender holds unused credit.
const FLAG_WINDOW_OPEN: u8 = 1 << 0;

/// Why a frame is not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The frame does not consist of complete FLITs, or their number does not fit the routing FLIT or the kind.
    #[error("a frame of {bytes} bytes is not an ULTRA packet: its FLITs do not fit its length and kind")]
    Length {
        /// Bytes of the frame.
        bytes: usize,
    },
    /// It is a frame of another protocol of the cluster.
    #[error("a frame of another model's protocol")]
    Foreign,
    /// A check sequence is wrong.
    #[error("FLIT {flit} has a wrong check sequence")]
    Crc {
        /// The first such FLIT.
        flit: usize,
    },
    /// Another version, an unknown kind, a flag that the kind does not have, or a reserved field that is not zero.
    #[error("routing or header FLIT holds a value of another version")]
    BadField,
    /// The Ethernet header does not belong to the routing FLIT.
    #[error("the Ethernet header does not belong to the routing FLIT")]
    Addresses,
}

/// The purpose of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// A message; `number` counts the packets of the connection from 1.
    Data {
        /// The receiver must interrupt its host.
        interrupt: bool,
        /// The receiver must acknowledge.
        acknowledge: bool,
    },
    /// The data packet with this number was stored.
    Acknowledge,
    /// Asks for the limit; `number` is the number of packets sent on the connection.
    CreditRequest {
        /// The sender holds unused credit.
        is_window_open: bool,
    },
    /// Announces the limit, `number`.
    Credit,
    /// Asks the sender for a credit request. If the connection is not zero, asks for a new connection instead of it.
    CreditOffer,
}

impl PacketKind {
    const fn encode(self) -> (u8, u8) {
        const fn flag(is_set: bool, bit: u8) -> u8 {
            if is_set { bit } else { 0 }
        }
        match self {
            Self::Data { interrupt, acknowledge } => {
                (KIND_DATA, flag(interrupt, FLAG_INTERRUPT) | flag(acknowledge, FLAG_ACKNOWLEDGE))
            }
            Self::Acknowledge => (KIND_ACKNOWLEDGE, 0),
            Self::CreditRequest { is_window_open } => {
                (KIND_CREDIT_REQUEST, flag(is_window_open, FLAG_WINDOW_OPEN))
            }
            Self::Credit => (KIND_CREDIT, 0),
            Self::CreditOffer => (KIND_CREDIT_OFFER, 0),
        }
    }

    const fn decode(kind: u8, flags: u8) -> Option<Self> {
        let decoded = match kind {
            KIND_DATA => Self::Data {
                interrupt: flags & FLAG_INTERRUPT != 0,
                acknowledge: flags & FLAG_ACKNOWLEDGE != 0,
            },
            KIND_ACKNOWLEDGE => Self::Acknowledge,
            KIND_CREDIT_REQUEST => Self::CreditRequest { is_window_open: flags & FLAG_WINDOW_OPEN != 0 },
            KIND_CREDIT => Self::Credit,
            KIND_CREDIT_OFFER => Self::CreditOffer,
            _ => return None,
        };
        if decoded.encode().1 == flags { Some(decoded) } else { None }
    }
}

/// A packet with the length that it states and with correct check sequences.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    ethernet: ethernet::Frame<'a>,
    flits: &'a [[u8; FLIT_BYTES]],
}

impl<'a> Packet<'a> {
    /// Checks the length and every FLIT of a frame.
    ///
    /// # Errors
    /// If the length is not one of complete FLITs, or differs from the routing FLIT's. If a check sequence is wrong.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, WireError> {
        let wrong_length = WireError::Length { bytes: bytes.len() };
        let ethernet = ethernet::Frame::new_checked(bytes).ok_or(wrong_length)?;
        if ethernet::is_foreign(ethernet.payload(), PROTOCOL) {
            return Err(WireError::Foreign);
        }
        let (flits, rest) = ethernet.payload().as_chunks::<FLIT_BYTES>();
        if !rest.is_empty() || flits.len() < HEAD_FLITS || flits.len() > HEAD_FLITS + MAX_WORDS {
            return Err(wrong_length);
        }
        if let Some(flit) = flits.iter().position(|flit| !is_sealed(flit)) {
            return Err(WireError::Crc { flit });
        }
        let packet = Self { ethernet, flits };
        if usize::from(packet.routing(shift::FLITS) as u8) != flits.len() {
            return Err(wrong_length);
        }
        Ok(packet)
    }

    /// Words of payload and tag.
    #[inline]
    pub fn words(&self) -> impl ExactSizeIterator<Item = u64> + 'a {
        self.flits.iter().skip(HEAD_FLITS).map(word_of)
    }

    fn routing(&self, shift: u32) -> u64 {
        self.flits.first().map_or(0, |flit| word_of(flit) >> shift)
    }

    fn header(&self, shift: u32) -> u64 {
        self.flits.get(1).map_or(0, |flit| word_of(flit) >> shift)
    }
}

/// The contents of a packet's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The receiving port; its number is the paper's TUPID.
    pub target: Address,
    /// The sending port.
    pub source: Address,
    /// The packet's purpose.
    pub kind: PacketKind,
    /// The connection of the data packets to which this packet belongs or refers.
    pub connection: u16,
    /// Its meaning depends on the kind.
    pub number: u32,
}

/// An entry of the descriptor look-up table: the static part of the packets of a port, as it is sent (section 3.1: "the
/// routing, the Target ULTRA Port Identification (TUPID) and all header information").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The routing frame, except for the number of FLITs.
    routing: u64,
    /// The receiving port's number.
    tupid: u8,
    /// The header, with those fields still zero that [`Entry::emit`] adds.
    header: u64,
}

impl Entry {
    /// The entry of port `source`, which sends to `target`.
    pub const fn new(target: Address, source: Address) -> Self {
        let routing = (PROTOCOL as u64) << shift::PROTOCOL
            | (VERSION as u64) << shift::VERSION
            | (target.node as u64) << shift::DESTINATION_NODE
            | (source.node as u64) << shift::SOURCE_NODE
            | (source.port as u64) << shift::SOURCE_PORT;
        Self { routing, tupid: target.port, header: (target.port as u64) << shift::TARGET_PORT }
    }

    /// The port to which its packets go.
    pub const fn target(&self) -> Address {
        Address { node: (self.routing >> shift::DESTINATION_NODE) as u16, port: self.tupid }
    }

    /// The frame of a packet with these words, at most [`MAX_WORDS`].
    // Inlined on the path of every message, so that the frame is written to its final location and not moved.
    #[inline(always)]
    pub fn emit(&self, kind: PacketKind, connection: u16, number: u32, words: &[u64]) -> FrameBytes {
        self.encode(self.head(kind, connection, number, words.len()), words)
    }

    /// Routing frame and header of a packet with this number of words, at most [`MAX_WORDS`].
    #[inline]
    pub(super) fn head(
        &self,
        kind: PacketKind,
        connection: u16,
        number: u32,
        words: usize,
    ) -> [u64; HEAD_FLITS] {
        debug_assert!(words <= MAX_WORDS, "a packet has at most {MAX_WORDS} words");
        let (kind, flags) = kind.encode();
        let count = HEAD_FLITS + words.min(MAX_WORDS);
        let routing = self.routing | (count as u64) << shift::FLITS;
        let header = self.header
            | u64::from(kind) << shift::KIND
            | u64::from(flags) << shift::FLAGS
            | u64::from(connection) << shift::CONNECTION
            | u64::from(number) << shift::NUMBER;
        [routing, header]
    }

    /// The frame with this head and these words, from the source's node to the target's.
    #[inline(always)]
    fn encode(&self, [routing, header]: [u64; HEAD_FLITS], words: &[u64]) -> FrameBytes {
        let count = HEAD_FLITS + words.len().min(MAX_WORDS);
        let mut buffer = [0; FRAME_BUFFER_BYTES];
        let (ethernet, flits) = buffer.split_at_mut(ethernet::HEADER_BYTES);
        ethernet.copy_from_slice(&self.ethernet().emit());
        let (flits, _) = flits.as_chunks_mut::<FLIT_BYTES>();
        let all = [routing, header].into_iter().chain(words.iter().copied());
        for (flit, word) in flits.iter_mut().zip(all) {
            flit[..WORD_BYTES].copy_from_slice(&word.to_be_bytes());
        }
        // All words are written first. Reading their bytes back from memory is cheaper than shifting them out of a
        // register.
        flits.iter_mut().take(count).for_each(seal);
        FrameBytes::from_buf_and_len(buffer, frame_bytes(count - HEAD_FLITS))
    }

    const fn ethernet(&self) -> ethernet::Header {
        ethernet::Header {
            destination: mac_of_node((self.routing >> shift::DESTINATION_NODE) as u16),
            source: mac_of_node((self.routing >> shift::SOURCE_NODE) as u16),
            ether_type: ETHER_TYPE_CLUSTER,
        }
    }
}

/// The node to which a packet's routing frame leads. A switch reads nothing else of the packet.
pub fn routed_to(frame: &[u8]) -> Option<u16> {
    let routing = frame.get(ethernet::HEADER_BYTES..)?.first_chunk::<FLIT_BYTES>().map(word_of)?;
    (routing >> shift::PROTOCOL == u64::from(PROTOCOL)).then_some((routing >> shift::DESTINATION_NODE) as u16)
}

impl Header {
    /// Reads the head.
    ///
    /// # Errors
    /// If a field is undefined, the number of words does not fit the kind, or the Ethernet header does not fit the
    /// routing FLIT.
    #[inline]
    pub fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        let header = Self::of_words([packet.routing(0), packet.header(0)], packet.words().len())?;
        if ethernet::Header::parse(&packet.ethernet) != header.entry().ethernet() {
            return Err(WireError::Addresses);
        }
        Ok(header)
    }

    /// Reads the head of a packet with this number of words.
    ///
    /// # Errors
    /// If a field is undefined, or the number of words does not fit the kind.
    #[inline]
    pub fn of_words([routing, header]: [u64; HEAD_FLITS], words: usize) -> Result<Self, WireError> {
        let (routing, head) = (|shift: u32| routing >> shift, |shift: u32| header >> shift);
        let kind_and_flags = head(shift::FLAGS) as u8;
        let is_current =
            routing(shift::PROTOCOL) as u8 == PROTOCOL && routing(shift::VERSION) as u8 == VERSION;
        let kind = PacketKind::decode(kind_and_flags >> 4, kind_and_flags & 0xf).filter(|_| is_current);
        let header = Self {
            target: Address {
                node: routing(shift::DESTINATION_NODE) as u16,
                port: head(shift::TARGET_PORT) as u8,
            },
            source: Address {
                node: routing(shift::SOURCE_NODE) as u16,
                port: routing(shift::SOURCE_PORT) as u8,
            },
            kind: kind.ok_or(WireError::BadField)?,
            connection: head(shift::CONNECTION) as u16,
            number: head(shift::NUMBER) as u32,
        };
        let has_its_words = match header.kind {
            PacketKind::Data { .. } => (MIN_WORDS..=MAX_WORDS).contains(&words),
            _ => words == 0,
        };
        if !has_its_words {
            return Err(WireError::Length { bytes: frame_bytes(words) });
        }
        Ok(header)
    }

    /// The frame of a packet with this head and these words, at most [`MAX_WORDS`].
    pub fn emit(&self, words: &[u64]) -> FrameBytes {
        self.entry().emit(self.kind, self.connection, self.number, words)
    }

    /// The entry of a port that sends such packets.
    pub const fn entry(&self) -> Entry {
        Entry::new(self.target, self.source)
    }
}

/// CCITT polynomial, register preset to ones, so that the check sequence of a word of zeros is not zero.
const CRC: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&CRC_16_IBM_3740);
/// Lane `k` holds the contribution of a byte that is followed by `k` bytes.
static LANES: [[u16; 256]; 16] = *CRC.table();

/// Check sequence of a word of zeros: the preset's contribution to the check sequence of any word.
const OF_ZEROES: u16 = CRC.checksum(&[0; WORD_BYTES]);

/// Check sequence of a word's bytes, most significant first. The crate's own update folds sixteen bytes at a time, or
/// one by one. A FLIT has eight, which this function folds at once with the crate's table.
#[inline]
fn check_sequence(bytes: &[u8; WORD_BYTES]) -> u16 {
    let lane = |k: usize| LANES[k][usize::from(bytes[WORD_BYTES - 1 - k])];
    OF_ZEROES ^ lane(0) ^ lane(1) ^ lane(2) ^ lane(3) ^ lane(4) ^ lane(5) ^ lane(6) ^ lane(7)
}

/// Appends the check sequence to a word.
#[inline]
fn seal(flit: &mut [u8; FLIT_BYTES]) {
    let [bytes @ .., high, low] = flit;
    [*high, *low] = check_sequence(bytes).to_be_bytes();
}

#[inline]
fn is_sealed(flit: &[u8; FLIT_BYTES]) -> bool {
    let [bytes @ .., high, low] = flit;
    u16::from_be_bytes([*high, *low]) == check_sequence(bytes)
}

#[inline]
fn word_of(flit: &[u8; FLIT_BYTES]) -> u64 {
    let mut bytes = [0; WORD_BYTES];
    bytes.copy_from_slice(&flit[..WORD_BYTES]);
    u64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn parse(frame: &[u8]) -> Result<(Header, Vec<u64>), WireError> {
        let packet = Packet::new_checked(frame)?;
        Ok((Header::parse(&packet)?, packet.words().collect()))
    }

    fn any_packet() -> impl Strategy<Value = (Header, Vec<u64>)> {
        let address = || (any::<u16>(), any::<u8>()).prop_map(|(node, port)| Address { node, port });
        let data = (any::<bool>(), any::<bool>(), prop::collection::vec(any::<u64>(), MIN_WORDS..=MAX_WORDS))
            .prop_map(|(interrupt, acknowledge, words)| (PacketKind::Data { interrupt, acknowledge }, words));
        let kind = prop_oneof![
            data,
            Just((PacketKind::Acknowledge, Vec::new())),
            any::<bool>()
                .prop_map(|is_window_open| (PacketKind::CreditRequest { is_window_open }, Vec::new())),
            Just((PacketKind::Credit, Vec::new())),
            Just((PacketKind::CreditOffer, Vec::new())),
        ];
        (address(), address(), kind, any::<u16>(), any::<u32>()).prop_map(
            |(target, source, (kind, words), connection, number)| {
                (Header { target, source, kind, connection, number }, words)
            },
        )
    }

    proptest! {
        #[test]
        fn packets_round_trip((header, words) in any_packet()) {
            let frame = header.emit(&words);
            prop_assert_eq!(frame.len(), frame_bytes(words.len()));
            prop_assert!(!frame.spilled());
            prop_assert_eq!(routed_to(&frame), Some(header.target.node));
            prop_assert_eq!(header.entry().target(), header.target);
            prop_assert_eq!(parse(&frame), Ok((header, words)));
        }

        #[test]
        fn any_single_corrupted_bit_is_refused((header, words) in any_packet()) {
            let mut frame = header.emit(&words);
            for bit in 0..frame.len() * 8 {
                frame[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(parse(&frame).is_err(), "bit {} passed", bit);
                frame[bit / 8] ^= 1 << (bit % 8);
            }
        }

        #[test]
        fn truncated_or_longer_frame_is_refused((header, words) in any_packet(), bytes in 0..200_usize) {
            let mut frame = header.emit(&words);
            let whole = frame.len();
            frame.resize(bytes, 0);
            prop_assert_eq!(parse(&frame).is_ok(), bytes == whole);
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }

        #[test]
        fn words_with_valid_check_sequences_parse_without_panic(
            (header, _) in any_packet(),
            words in prop::collection::vec(any::<u64>(), 0..14),
        ) {
            let mut frame = header.entry().ethernet().emit().to_vec();
            let mut words = words;
            // Words of another protocol would be refused before any other field is read.
            let protocol = u64::from(PROTOCOL) << shift::PROTOCOL;
            words.first_mut().into_iter().for_each(|word| *word = *word << 8 >> 8 | protocol);
            for word in words {
                let mut flit = [0; FLIT_BYTES];
                flit[..WORD_BYTES].copy_from_slice(&word.to_be_bytes());
                seal(&mut flit);
                frame.extend_from_slice(&flit);
            }
            let _ = parse(&frame);
        }

        #[test]
        fn check_sequences_equal_those_of_the_crate(word: u64) {
            prop_assert_eq!(check_sequence(&word.to_be_bytes()), CRC.checksum(&word.to_be_bytes()));
        }
    }

    #[test]
    fn a_frame_of_a_larger_packet_fits_inline() {
        assert_eq!(MAX_FRAME_BYTES, 134);
    }
}
