//! The header that virtio-net puts before each frame, with its offloads.
//!
//! Source: Virtual I/O Device specification 1.2, section 5.1.6.

use niclab_model::fabric::ethernet::TAGGED_HEADER_BYTES;
use virtio_bindings::virtio_net::{
    VIRTIO_NET_HDR_F_NEEDS_CSUM, VIRTIO_NET_HDR_GSO_NONE, VIRTIO_NET_HDR_GSO_TCPV4, VIRTIO_NET_HDR_GSO_TCPV6,
};

/// Bytes of the header; with VERSION_1 the count of buffers is always part of it.
pub const HEADER_BYTES: usize = 12;

/// Bytes of an Ethernet header: two addresses and the EtherType.
pub const ETHERNET_BYTES: usize = 14;

/// The part of a frame that the network reads: its Ethernet header and the outer VLAN tag, with zeros if there is no
/// tag.
pub type LinkHeader = [u8; TAGGED_HEADER_BYTES];

const NEEDS_CHECKSUM: u8 = VIRTIO_NET_HDR_F_NEEDS_CSUM as u8;
const GSO_NONE: u8 = VIRTIO_NET_HDR_GSO_NONE as u8;
const GSO_TCPV4: u8 = VIRTIO_NET_HDR_GSO_TCPV4 as u8;
const GSO_TCPV6: u8 = VIRTIO_NET_HDR_GSO_TCPV6 as u8;

/// The Internet Protocol version of a frame to segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Version 4.
    V4,
    /// Version 6.
    V6,
}

/// A checksum that the device must compute: over all bytes from `start`, stored at `start + offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// Offset of the transport header in the frame.
    pub start: u16,
    /// Offset of the checksum in the transport header.
    pub offset: u16,
}

impl Checksum {
    /// Offset of the checksum in the frame.
    pub fn place(self) -> usize {
        usize::from(self.start) + usize::from(self.offset)
    }
}

/// The segmentation that the device must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// The protocol version, as the sender announced it.
    pub family: Family,
    /// TCP payload bytes of each segment, not zero.
    pub payload_bytes: u16,
}

/// The work that the sender of a frame left to the device, checked against the frame's length. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The checksum.
    pub checksum: Option<Checksum>,
    /// The segmentation, which requires a checksum.
    pub segmentation: Option<Segmentation>,
}

/// Why a header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The checksum field is outside the frame.
    #[error("the checksum field is outside the frame")]
    Checksum,
    /// The segmentation has a kind that was not offered, no size, or no checksum.
    #[error("the segmentation has a kind that the device did not offer, no size, or no checksum")]
    Segmentation,
}

impl Offload {
    /// Decodes and checks a sender's header for a frame of `frame_bytes`.
    ///
    /// # Errors
    /// [`HeaderError`].
    #[inline]
    pub fn decode(header: &[u8; HEADER_BYTES], frame_bytes: usize) -> Result<Self, HeaderError> {
        let [flags, gso_type, rest @ ..] = header;
        if *flags & NEEDS_CHECKSUM == 0 && *gso_type == GSO_NONE {
            return Ok(Self::default());
        }
        let [_, _, s0, s1, c0, c1, o0, o1, _, _] = *rest;
        let checksum = Checksum { start: u16::from_le_bytes([c0, c1]), offset: u16::from_le_bytes([o0, o1]) };
        // A receiver computes and stores the checksum at offsets of a hostile sender, so they must be inside the
        // frame.
        if *flags & NEEDS_CHECKSUM == 0
            || usize::from(checksum.start) < ETHERNET_BYTES
            || checksum.place() + 2 > frame_bytes
        {
            let fault = if *gso_type == GSO_NONE { HeaderError::Checksum } else { HeaderError::Segmentation };
            return Err(fault);
        }
        let family = match *gso_type {
            GSO_NONE => return Ok(Self { checksum: Some(checksum), segmentation: None }),
            GSO_TCPV4 => Family::V4,
            GSO_TCPV6 => Family::V6,
            _ => return Err(HeaderError::Segmentation),
        };
        let payload_bytes = u16::from_le_bytes([s0, s1]);
        if payload_bytes == 0 {
            return Err(HeaderError::Segmentation);
        }
        let segmentation = Some(Segmentation { family, payload_bytes });
        Ok(Self { checksum: Some(checksum), segmentation })
    }

    /// The header for a receiver that accepts these offloads, of a frame in `buffers` buffers.
    #[inline]
    pub fn encode(&self, buffers: u16) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let [flags, gso_type, _, _, s0, s1, c0, c1, o0, o1, b0, b1] = &mut header;
        if let Some(checksum) = self.checksum {
            *flags = NEEDS_CHECKSUM;
            [*c0, *c1] = checksum.start.to_le_bytes();
            [*o0, *o1] = checksum.offset.to_le_bytes();
        }
        if let Some(segmentation) = self.segmentation {
            *gso_type = match segmentation.family {
                Family::V4 => GSO_TCPV4,
                Family::V6 => GSO_TCPV6,
            };
            [*s0, *s1] = segmentation.payload_bytes.to_le_bytes();
        }
        [*b0, *b1] = buffers.to_le_bytes();
        header
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn accepted_header_round_trips_and_stays_inside_the_frame(
            header: [u8; HEADER_BYTES],
            frame_bytes in 0_usize..70_000,
        ) {
            if let Ok(offload) = Offload::decode(&header, frame_bytes) {
                let again = Offload::decode(&offload.encode(1), frame_bytes);
                prop_assert_eq!(again, Ok(offload));
                if let Some(checksum) = offload.checksum {
                    prop_assert!(checksum.place() + 2 <= frame_bytes);
                }
            }
        }
    }

    #[test]
    fn header_with_an_invalid_offload_is_refused() {
        let accepted = Offload {
            checksum: Some(Checksum { start: 34, offset: 16 }),
            segmentation: Some(Segmentation { family: Family::V4, payload_bytes: 1448 }),
        };
        let header = accepted.encode(1);
        assert_eq!(Offload::decode(&header, 4000), Ok(accepted));
        assert_eq!(Offload::decode(&header, 51), Err(HeaderError::Segmentation), "checksum past the end");
        let with = |index: usize, value: u8| {
            let mut changed = header;
            changed[index] = value;
            Offload::decode(&changed, 4000)
        };
        assert_eq!(with(0, 0), Err(HeaderError::Segmentation), "no checksum");
        assert_eq!(with(1, 3), Err(HeaderError::Segmentation), "UDP was not offered");
        assert_eq!(with(1, 0x81), Err(HeaderError::Segmentation), "ECN was not offered");
        let mut empty = header;
        (empty[4], empty[5]) = (0, 0);
        assert_eq!(Offload::decode(&empty, 4000), Err(HeaderError::Segmentation), "no size");
    }
}
