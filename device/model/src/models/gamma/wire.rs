//! Frames of active ports, as far as the card parses them: the message that they carry, and the check sequence. The
//! card appends it to each sent frame, and removes it from each received one.
//!
//! ```text
//! Ethernet header 14 | protocol 8 | kind 4, flags 4 | source port 4, driver 4 | target port 4, driver 4
//! | number 32, least significant byte first
//! | part of the message | CRC-32 of all before it
//! ```

use niclab_abi::FromBytes;
use niclab_abi::gamma::{
    ACTIVE_ETHER_TYPE, CHECK_BYTES, FRAME_ACKNOWLEDGEMENT, FRAME_DATA, FRAME_FIRST, FRAME_KIND_MASK,
    FRAME_LAST, FrameHead, PORT_MASK,
};
use niclab_abi::rings::RING_STATION;
use thiserror::Error;

use crate::fabric::ethernet::{self, ETHER_TYPE_CLUSTER, Mac, endpoint_of_mac, node_of_mac};
use crate::nic::{Address, FrameBytes};

/// First byte after the Ethernet header of every frame of this model. Ours: the format.
pub const PROTOCOL: u8 = 12;
/// Bytes before the part of the message.
pub const HEAD_BYTES: usize = ethernet::HEADER_BYTES + FrameHead::BYTES;
const _: () = assert!(ACTIVE_ETHER_TYPE == ETHER_TYPE_CLUSTER);
/// The MAC endpoint of a node's other protocols.
pub const MAC_ENDPOINT: u8 = RING_STATION;

/// Why the card refuses to send or to receive a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The frame is shorter than its headers.
    #[error("a frame of {bytes} bytes is shorter than its headers")]
    Length {
        /// Bytes of the frame.
        bytes: usize,
    },
    /// The check sequence is wrong.
    #[error("the check sequence is wrong for the frame's contents")]
    Check,
    /// The source address is not that of the sending node, or the card does not support the protocol.
    #[error("the frame has another node's source address, or a protocol that this card may not send")]
    Forged,
    /// Another model's frame.
    #[error("the frame belongs to another model's protocol")]
    Foreign,
    /// The destination is another node.
    #[error("the destination of the frame is another node")]
    Elsewhere,
}

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// Part of a message between active ports.
    Data {
        /// The sending port.
        from: Address,
        /// The receiving port.
        to: Address,
        /// The frame is the first of its message.
        is_first: bool,
        /// The frame is the last of its message.
        is_last: bool,
    },
    /// An acknowledgement.
    Acknowledgement,
    /// A frame of active ports of unknown kind, which the driver judges.
    Unknown,
    /// A frame of another protocol.
    Other,
}

impl Carried {
    /// What a frame that is long enough for an Ethernet header carries, with or without the check sequence.
    pub fn by(frame: &[u8]) -> Self {
        let Some(ethernet) = ethernet::Frame::new_checked(frame) else { return Self::Other };
        if ethernet.ether_type() != ETHER_TYPE_CLUSTER {
            return Self::Other;
        }
        let Some(head) = FrameHead::from_bytes(ethernet.payload()) else { return Self::Unknown };
        let nodes = (node_of_mac(&ethernet.source()), node_of_mac(&ethernet.destination()));
        let (Some(source), Some(target)) = nodes else { return Self::Unknown };
        match head.kind & FRAME_KIND_MASK {
            FRAME_DATA => Self::Data {
                from: Address { node: source, port: head.source_port & PORT_MASK },
                to: Address { node: target, port: head.target_port & PORT_MASK },
                is_first: head.kind & FRAME_FIRST != 0,
                is_last: head.kind & FRAME_LAST != 0,
            },
            FRAME_ACKNOWLEDGEMENT => Self::Acknowledgement,
            _ => Self::Unknown,
        }
    }
}

/// Prepares a frame from the host for the wire: a frame of active ports gets its check sequence.
///
/// # Errors
/// [`WireError::Length`] and [`WireError::Forged`].
pub fn seal(mut frame: FrameBytes, node: u16) -> Result<FrameBytes, WireError> {
    let bytes = frame.len();
    let ethernet = ethernet::Frame::new_checked(&frame).ok_or(WireError::Length { bytes })?;
    let source = endpoint_of_mac(&ethernet.source());
    if ethernet.ether_type() != ETHER_TYPE_CLUSTER {
        return if source == Some((node, Some(MAC_ENDPOINT))) { Ok(frame) } else { Err(WireError::Forged) };
    }
    let head = FrameHead::from_bytes(ethernet.payload()).ok_or(WireError::Length { bytes })?;
    let is_own = source == Some((node, None)) && node_of_mac(&ethernet.destination()).is_some();
    if !is_own || head.protocol != PROTOCOL {
        return Err(WireError::Forged);
    }
    let check = crc32fast::hash(&frame);
    frame.extend_from_slice(&check.to_be_bytes());
    Ok(frame)
}

/// Bytes of a received frame that the host gets: all but the check sequence, if the frame has one.
///
/// # Errors
/// [`WireError`] if the frame is damaged, or not for this card.
pub fn open(frame: &[u8], node: u16) -> Result<usize, WireError> {
    let bytes = frame.len();
    let ethernet = ethernet::Frame::new_checked(frame).ok_or(WireError::Length { bytes })?;
    if ethernet.ether_type() != ETHER_TYPE_CLUSTER {
        let is_own = match endpoint_of_mac(&ethernet.destination()) {
            Some(endpoint) => endpoint == (node, Some(MAC_ENDPOINT)),
            None => ethernet::is_group(&ethernet.destination()),
        };
        return if is_own { Ok(bytes) } else { Err(WireError::Elsewhere) };
    }
    if ethernet::is_foreign(ethernet.payload(), PROTOCOL) {
        return Err(WireError::Foreign);
    }
    let checked = frame.split_last_chunk::<{ CHECK_BYTES as usize }>();
    let (covered, check) =
        checked.filter(|(covered, _)| covered.len() >= HEAD_BYTES).ok_or(WireError::Length { bytes })?;
    if crc32fast::hash(covered) != u32::from_be_bytes(*check) {
        return Err(WireError::Check);
    }
    if node_of_mac(&ethernet.destination()) != Some(node) || ethernet.payload().first() != Some(&PROTOCOL) {
        return Err(WireError::Elsewhere);
    }
    Ok(covered.len())
}

/// The address of a MAC endpoint as the ABI gives it: first byte lowest.
pub fn word_of(mac: Mac) -> u64 {
    mac.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use niclab_abi::ToBytes;
    use proptest::prelude::*;

    use super::*;
    use crate::fabric::ethernet::{BROADCAST, Header, mac_of_endpoint, mac_of_node};

    fn frame(header: &Header, payload: &[u8]) -> FrameBytes {
        let mut frame = FrameBytes::from_slice(&header.emit());
        frame.extend_from_slice(payload);
        frame
    }

    fn of_ports(from: u16, to: u16, data: &[u8]) -> FrameBytes {
        let kind = FRAME_DATA | FRAME_FIRST;
        let head = FrameHead { protocol: PROTOCOL, kind, source_port: 3, target_port: 5, number: 1 };
        let mut payload = alloc::vec![0; FrameHead::BYTES];
        head.to_bytes(&mut payload).unwrap();
        payload.extend_from_slice(data);
        let (destination, source) = (mac_of_node(to), mac_of_node(from));
        frame(&Header { destination, source, ether_type: ETHER_TYPE_CLUSTER }, &payload)
    }

    #[test]
    fn frame_with_foreign_source_address_is_refused() {
        assert_eq!(seal(of_ports(4, 1, &[]), 3), Err(WireError::Forged));
        let ordinary =
            |source| frame(&Header { destination: BROADCAST, source, ether_type: 0x0800 }, &[0; 46]);
        assert_eq!(seal(ordinary(mac_of_node(3)), 3), Err(WireError::Forged), "the Ethernet function's");
        assert_eq!(seal(ordinary(mac_of_endpoint(4, MAC_ENDPOINT)), 3), Err(WireError::Forged));
        assert!(seal(ordinary(mac_of_endpoint(3, MAC_ENDPOINT)), 3).is_ok());
        let mut other = of_ports(3, 1, &[]);
        other[ethernet::HEADER_BYTES] = 6;
        assert_eq!(seal(other, 3), Err(WireError::Forged), "another model's protocol");
    }

    #[test]
    fn what_is_for_others_is_not_taken() {
        let sealed = seal(of_ports(3, 1, &[7; 9]), 3).unwrap();
        assert_eq!(open(&sealed, 1), Ok(HEAD_BYTES + 9));
        assert_eq!(open(&sealed, 2), Err(WireError::Elsewhere));
        let ordinary = |destination| {
            let source = mac_of_endpoint(3, MAC_ENDPOINT);
            frame(&Header { destination, source, ether_type: 0x0800 }, &[0; 46])
        };
        for (destination, expected) in [
            (BROADCAST, Ok(60)),
            (mac_of_endpoint(1, MAC_ENDPOINT), Ok(60)),
            (mac_of_endpoint(1, 1), Err(WireError::Elsewhere)),
            (mac_of_node(1), Err(WireError::Elsewhere)),
        ] {
            assert_eq!(open(&ordinary(destination), 1), expected, "{destination:x?}");
        }
    }

    proptest! {
        #[test]
        fn any_damaged_bit_is_found(
            data in prop::collection::vec(any::<u8>(), 0..200), bit: usize
        ) {
            let mut sealed = seal(of_ports(3, 1, &data), 3).unwrap();
            let bit = bit % (sealed.len() * 8);
            sealed[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(open(&sealed, 1).is_err(), "bit {}", bit);
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(bytes: Vec<u8>) {
            let _ = (Carried::by(&bytes), open(&bytes, 1), seal(FrameBytes::from_slice(&bytes), 1));
        }
    }
}
