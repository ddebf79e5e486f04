//! Frames of a GRIM card: field offsets, checked view, valid representation.
//!
//! After the Ethernet header, most significant byte first:
//!
//! ```text
//! word 0            protocol 8 | kind 4, flags 4 | channel 8 | reason 8 | destination node 16 | source node 16
//! word 1            sequence 32 | owner 8 | failures 24
//! of a message      the 28 bytes of its header (section 5.1):
//!                   channel 32 | node 16 | endpoint 16 | handler 32 | four integers of 32
//!                   a memory message has instead of handler and integers: region 32 | offset 64 | zero 64
//!                   then fragment offset 32 | total payload bytes 32 | zero 32
//! then              payload
//! last four bytes   CRC-32 of all of these
//! ```
//!
//! In a message, a void and a report the sequence is the frame's number on its channel to this node. In an
//! acknowledgement and a refusal it is the number of the first frame that the sender has not accepted.
//! Acknowledgements, refusals and reports contain failures: how many messages of an owner of the receiver's channel
//! failed, and why the last of them failed. A card sends a report if no later acknowledgement may follow.
//!
//! Constants: the format is ours, its content is that of the paper's section 5.1.

use niclab_abi::grim::CHANNEL_MAX_BULK_BYTES;
use thiserror::Error;

use crate::fabric::ethernet::{self, ETHER_TYPE_CLUSTER, mac_of_node};
use crate::nic::FrameBytes;
use crate::parts::sequence::Sequence;

/// First byte after the Ethernet header of every frame of this model.
pub const PROTOCOL: u8 = 10;

const CHECK_BYTES: usize = 4;
/// Bytes of a frame's first two words.
const LINK_BYTES: usize = 16;
/// Bytes of a message's header.
const MESSAGE_BYTES: usize = 40;
/// Bytes of a frame before the payload of its message.
pub const HEAD_BYTES: usize = ethernet::HEADER_BYTES + LINK_BYTES + MESSAGE_BYTES;
/// Bytes after the Ethernet header that are not payload.
pub const OVERHEAD_BYTES: usize = LINK_BYTES + MESSAGE_BYTES + CHECK_BYTES;

/// The receiver must acknowledge at once.
const FLAG_ASKS: u8 = 1 << 0;
/// The message interrupts its receiver.
const FLAG_INTERRUPT: u8 = 1 << 1;

/// Why the card rejects a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The length is wrong for the frame's kind.
    #[error("a frame of {bytes} bytes has the wrong length for its kind")]
    Length {
        /// Bytes of the frame.
        bytes: usize,
    },
    /// The check sequence is wrong.
    #[error("the check sequence is wrong for the frame's contents")]
    Check,
    /// The value of a field is out of range.
    #[error("the value of a field is out of range")]
    BadField,
    /// Another model's frame.
    #[error("the frame belongs to another model's protocol")]
    Foreign,
    /// The addresses in the Ethernet header differ from the nodes in the frame.
    #[error("the Ethernet addresses do not match the nodes in the frame")]
    Addresses,
}

/// Purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Calls a handler.
    Handler {
        /// Number of the handler.
        handler: u32,
        /// Integer arguments.
        arguments: [u32; 4],
    },
    /// Writes into a region.
    Memory {
        /// Name of the region.
        region: u32,
        /// Offset of the message's first byte in the region.
        place: u64,
    },
}

/// A fragment of a message, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The target endpoint.
    pub endpoint: u16,
    /// Purpose of the message.
    pub purpose: Purpose,
    /// Whether it interrupts its receiver.
    pub interrupt: bool,
    /// Offset of the frame's payload in that of the message.
    pub offset: u32,
    /// Bytes of the message's payload.
    pub bytes: u32,
    /// Number of the channel's owner. Numbers repeat only after many owners.
    pub owner: u8,
}

/// Messages that a receiver could not deliver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// The channel's owner that sent them: the latest owner from which a frame arrived.
    pub owner: u8,
    /// Number of failed messages since the owner's first message.
    pub count: Sequence<24>,
    /// Reason of the last failure: a `REFUSED_` of [`niclab_abi::receive`].
    pub reason: u8,
}

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Part of a message, with the payload of the frame.
    Message(Fragment),
    /// Takes the number of a frame of an abandoned message. The receiver drops the message's earlier frames.
    Void,
    /// The sender has accepted all frames before this number.
    Acknowledgement(Failures),
    /// As an acknowledgement; in addition the next frame found no room.
    Refusal(Failures),
    /// Reports messages that were accepted and failed later.
    Report(Failures),
}

impl FrameKind {
    const fn number(&self) -> u8 {
        match self {
            Self::Message(Fragment { purpose: Purpose::Handler { .. }, .. }) => 1,
            Self::Message(Fragment { purpose: Purpose::Memory { .. }, .. }) => 2,
            Self::Void => 3,
            Self::Acknowledgement(_) => 4,
            Self::Refusal(_) => 5,
            Self::Report(_) => 6,
        }
    }

    /// Contents of the fields owner, failures and reason.
    const fn failures(&self) -> Failures {
        match *self {
            Self::Message(Fragment { owner, .. }) => Failures { owner, count: Sequence::ZERO, reason: 0 },
            Self::Void => Failures { owner: 0, count: Sequence::ZERO, reason: 0 },
            Self::Acknowledgement(failures) | Self::Refusal(failures) | Self::Report(failures) => failures,
        }
    }
}

/// A frame's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sending node.
    pub source: u16,
    /// The receiving node.
    pub destination: u16,
    /// The sender's channel in a message or void; the receiver's channel in an acknowledgement, refusal or report.
    pub channel: u8,
    /// The frame's kind.
    pub kind: FrameKind,
    /// Whether the receiver must acknowledge at once.
    pub asks: bool,
    /// Number of the frame, or of the first frame that was not accepted.
    pub sequence: u32,
}

impl Header {
    const fn ethernet(&self) -> ethernet::Header {
        ethernet::Header {
            destination: mac_of_node(self.destination),
            source: mac_of_node(self.source),
            ether_type: ETHER_TYPE_CLUSTER,
        }
    }

    /// The head, to which payload is appended.
    pub fn head(&self) -> FrameBytes {
        let mut frame = FrameBytes::from_slice(&self.ethernet().emit());
        let is_interrupting = matches!(self.kind, FrameKind::Message(Fragment { interrupt: true, .. }));
        let flags = if self.asks { FLAG_ASKS } else { 0 } | if is_interrupting { FLAG_INTERRUPT } else { 0 };
        let Failures { owner, count, reason } = self.kind.failures();
        frame.extend_from_slice(&[PROTOCOL, self.kind.number() << 4 | flags, self.channel, reason]);
        frame.extend_from_slice(&self.destination.to_be_bytes());
        frame.extend_from_slice(&self.source.to_be_bytes());
        frame.extend_from_slice(&self.sequence.to_be_bytes());
        frame.extend_from_slice(&(u32::from(owner) << 24 | count.get()).to_be_bytes());
        let FrameKind::Message(fragment) = &self.kind else { return frame };
        frame.extend_from_slice(&u32::from(self.channel).to_be_bytes());
        frame.extend_from_slice(&self.destination.to_be_bytes());
        frame.extend_from_slice(&fragment.endpoint.to_be_bytes());
        let words = match fragment.purpose {
            Purpose::Handler { handler, arguments: [first, second, third, fourth] } => {
                [handler, first, second, third, fourth]
            }
            Purpose::Memory { region, place } => [region, (place >> 32) as u32, place as u32, 0, 0],
        };
        for word in words.into_iter().chain([fragment.offset, fragment.bytes, 0]) {
            frame.extend_from_slice(&word.to_be_bytes());
        }
        frame
    }

    /// A frame without payload.
    pub fn emit(&self) -> FrameBytes {
        let mut frame = self.head();
        seal(&mut frame);
        frame
    }

    /// Checks a frame and reads its header. The payload follows, up to the check sequence.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(frame: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let wrong_length = WireError::Length { bytes: frame.len() };
        let ethernet = ethernet::Frame::new_checked(frame).ok_or(wrong_length)?;
        if ethernet::is_foreign(ethernet.payload(), PROTOCOL) {
            return Err(WireError::Foreign);
        }
        let (covered, check) = ethernet.payload().split_last_chunk::<CHECK_BYTES>().ok_or(wrong_length)?;
        if crc32fast::hash(covered) != u32::from_be_bytes(*check) {
            return Err(WireError::Check);
        }
        let (link, rest) = covered.split_first_chunk::<LINK_BYTES>().ok_or(wrong_length)?;
        let [protocol, kind, channel, reason, link @ ..] = *link;
        let [d0, d1, s0, s1, q0, q1, q2, q3, owner, f1, f2, f3] = link;
        let (flags, number) = (kind & 0xf, kind >> 4);
        let (source, destination) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
        let failures = Failures { owner, count: Sequence::new(u32::from_be_bytes([0, f1, f2, f3])), reason };
        let (kind, payload) = match number {
            1 | 2 => {
                let (head, payload) = rest.split_first_chunk::<MESSAGE_BYTES>().ok_or(wrong_length)?;
                let fragment = Fragment { owner, ..fragment(number, flags, channel, destination, head)? };
                (FrameKind::Message(fragment), payload)
            }
            3 => (FrameKind::Void, rest),
            4 => (FrameKind::Acknowledgement(failures), rest),
            5 => (FrameKind::Refusal(failures), rest),
            6 => (FrameKind::Report(failures), rest),
            _ => return Err(WireError::BadField),
        };
        let header = Self {
            source,
            destination,
            channel,
            kind,
            asks: flags & FLAG_ASKS != 0,
            sequence: u32::from_be_bytes([q0, q1, q2, q3]),
        };
        if header.kind.failures() != failures {
            return Err(WireError::BadField);
        }
        header.check(protocol, flags, payload.len())?;
        if ethernet::Header::parse(&ethernet) != header.ethernet() {
            return Err(WireError::Addresses);
        }
        Ok((header, payload))
    }

    /// Checks that the fields are consistent.
    fn check(&self, protocol: u8, flags: u8, payload: usize) -> Result<(), WireError> {
        let known = match self.kind {
            FrameKind::Message(_) => FLAG_ASKS | FLAG_INTERRUPT,
            FrameKind::Void | FrameKind::Report(_) => FLAG_ASKS,
            FrameKind::Acknowledgement(_) | FrameKind::Refusal(_) => 0,
        };
        let is_right = match &self.kind {
            FrameKind::Message(fragment) => {
                let end = u64::from(fragment.offset) + payload as u64;
                let is_memory = matches!(fragment.purpose, Purpose::Memory { .. });
                let is_empty = fragment.bytes == 0;
                // (The attack: a card that lies about a message's length makes the receiver reserve unused room.)
                end <= fragment.bytes.into()
                    && u64::from(fragment.bytes) <= CHANNEL_MAX_BULK_BYTES
                    && (payload > 0) != is_empty
                    && !(is_memory && (is_empty || fragment.interrupt))
            }
            FrameKind::Void
            | FrameKind::Acknowledgement(_)
            | FrameKind::Refusal(_)
            | FrameKind::Report(_) => payload == 0,
        };
        if is_right && protocol == PROTOCOL && flags & !known == 0 {
            Ok(())
        } else {
            Err(WireError::BadField)
        }
    }
}

/// The message head of a frame.
fn fragment(
    number: u8,
    flags: u8,
    channel: u8,
    destination: u16,
    head: &[u8; MESSAGE_BYTES],
) -> Result<Fragment, WireError> {
    let (words, _) = head.as_chunks::<4>();
    let mut words = words.iter().map(|word| u32::from_be_bytes(*word));
    let [own_channel, target, first, second, third, fourth, fifth, offset, bytes, zero] =
        core::array::from_fn(|_| words.next().unwrap_or(0));
    let purpose = if number == 1 {
        Purpose::Handler { handler: first, arguments: [second, third, fourth, fifth] }
    } else if (fourth, fifth) == (0, 0) {
        Purpose::Memory { region: first, place: u64::from(second) << 32 | u64::from(third) }
    } else {
        return Err(WireError::BadField);
    };
    if own_channel != channel.into() || target >> 16 != destination.into() || zero != 0 {
        return Err(WireError::BadField);
    }
    let interrupt = flags & FLAG_INTERRUPT != 0;
    Ok(Fragment { endpoint: target as u16, purpose, interrupt, offset, bytes, owner: 0 })
}

/// Appends the check sequence to an otherwise complete frame.
pub fn seal(frame: &mut FrameBytes) {
    let check = crc32fast::hash(frame.get(ethernet::HEADER_BYTES..).unwrap_or_default());
    frame.extend_from_slice(&check.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn any_kind() -> impl Strategy<Value = (FrameKind, Vec<u8>)> {
        let handler = (any::<u32>(), any::<[u32; 4]>())
            .prop_map(|(handler, arguments)| Purpose::Handler { handler, arguments });
        let memory =
            (any::<u32>(), any::<u64>()).prop_map(|(region, place)| Purpose::Memory { region, place });
        let message = (
            any::<u16>(),
            prop_oneof![handler, memory],
            any::<bool>(),
            prop::collection::vec(any::<u8>(), 0..200),
            (0..24_000_u32, 0..24_000_u32, any::<u8>()),
        )
            .prop_map(|(endpoint, purpose, interrupt, payload, (offset, more, owner))| {
                let is_memory = matches!(purpose, Purpose::Memory { .. });
                let payload = if is_memory && payload.is_empty() { [7].to_vec() } else { payload };
                let (offset, more) = if payload.is_empty() { (0, 0) } else { (offset, more) };
                let bytes = offset + payload.len() as u32 + more;
                let interrupt = interrupt && !is_memory;
                (FrameKind::Message(Fragment { endpoint, purpose, interrupt, offset, bytes, owner }), payload)
            });
        let telling = (any::<(u8, u32, u8)>(), 0..3_usize).prop_map(|((owner, count, reason), kind)| {
            let failures = Failures { owner, count: Sequence::new(count), reason };
            let kinds = [
                FrameKind::Acknowledgement(failures),
                FrameKind::Refusal(failures),
                FrameKind::Report(failures),
            ];
            (kinds[kind], Vec::new())
        });
        prop_oneof![2 => message, 1 => Just((FrameKind::Void, Vec::new())), 3 => telling]
    }

    fn any_frame() -> impl Strategy<Value = (Header, Vec<u8>)> {
        let rest = (any::<u16>(), any::<u16>(), any::<u8>(), any::<bool>(), any::<u32>());
        (any_kind(), rest).prop_map(|((kind, payload), (source, destination, channel, asks, sequence))| {
            let asks = asks && !matches!(kind, FrameKind::Acknowledgement(_) | FrameKind::Refusal(_));
            (Header { source, destination, channel, kind, asks, sequence }, payload)
        })
    }

    fn whole(header: &Header, payload: &[u8]) -> FrameBytes {
        let mut frame = header.head();
        frame.extend_from_slice(payload);
        seal(&mut frame);
        frame
    }

    proptest! {
        #[test]
        fn frames_round_trip((header, payload) in any_frame()) {
            let frame = whole(&header, &payload);
            prop_assert_eq!(Header::parse(&frame), Ok((header, &*payload)));
            let head = matches!(header.kind, FrameKind::Message(_)).then_some(HEAD_BYTES);
            prop_assert_eq!(header.head().len(), head.unwrap_or(ethernet::HEADER_BYTES + LINK_BYTES));
        }

        #[test]
        fn any_single_corrupted_bit_is_refused((header, payload) in any_frame()) {
            let mut frame = whole(&header, &payload);
            for bit in 0..frame.len() * 8 {
                frame[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(Header::parse(&frame).is_err(), "bit {} passed", bit);
                frame[bit / 8] ^= 1 << (bit % 8);
            }
        }

        #[test]
        fn truncated_or_longer_frames_are_rejected((header, payload) in any_frame(), bytes in 0..300_usize) {
            let mut frame = whole(&header, &payload);
            let len = frame.len();
            frame.resize(bytes, 0);
            prop_assert_eq!(Header::parse(&frame).is_ok(), bytes == len);
        }

        #[test]
        fn random_bytes_with_valid_checksum_parse_without_panic(bytes: Vec<u8>) {
            let mut frame = FrameBytes::from_slice(&[0; ethernet::HEADER_BYTES]);
            frame.extend_from_slice(&bytes);
            seal(&mut frame);
            let _ = Header::parse(&frame);
        }
    }
}
