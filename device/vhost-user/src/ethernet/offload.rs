//! Offloads in software: checksums, and the segmentation of long TCP frames.
//!
//! Sources: RFC 1071 (Internet checksum), RFC 791, RFC 8200, RFC 9293.

use thiserror::Error;

use super::header::{Checksum, ETHERNET_BYTES, Family, Segmentation};

/// Why a frame cannot be segmented.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SegmentError {
    /// It does not have the TCP header that its sender announced.
    #[error("the frame has no TCP header at the offset that its sender gave")]
    NoTcp,
    /// Its IP header is not of the version that its sender announced, or overlaps the TCP header.
    #[error(
        "the frame has no IP header of the version that its sender gave, or the header overlaps the TCP header"
    )]
    NoIp,
}

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;
const PROTOCOL_TCP: u8 = 6;

/// Maximum bytes of headers: Ethernet with two tags, IPv6 with extension headers, TCP with options.
pub const MAX_HEADER_BYTES: usize = 256;

/// Maximum segments of one frame. (The attack: a guest asks for segments of one byte, and the device makes 65,000
/// frames of one. CVE-2012-3412 was that attack on the first NIC drivers with segmentation, whose hardware has a
/// limit of 100 since.) Linux uses segments as short as 8 bytes only for a peer that attacks it (`tcp_min_snd_mss`);
/// 64 bytes are below the minimum that IPv4 requires of every link.
pub const MAX_SEGMENTS: usize = 1024;

/// The headers of a long TCP frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    ip: usize,
    tcp: usize,
    /// Bytes before the payload.
    pub bytes: usize,
}

impl Headers {
    /// Finds the headers in `head`, the first bytes of a frame whose checksum starts at the TCP header.
    ///
    /// # Errors
    /// [`SegmentError`].
    pub fn find(head: &[u8], checksum: Checksum, family: Family) -> Result<Self, SegmentError> {
        let ip = ip_offset(head).ok_or(SegmentError::NoIp)?;
        let tcp = usize::from(checksum.start);
        let (version, least) = match family {
            Family::V4 => (4, IPV4_BYTES),
            Family::V6 => (6, IPV6_BYTES),
        };
        let first = *head.get(ip).ok_or(SegmentError::NoIp)?;
        if first >> 4 != version || tcp < ip + least {
            return Err(SegmentError::NoIp);
        }
        let tcp_header = head.get(tcp..tcp + TCP_BYTES).ok_or(SegmentError::NoTcp)?;
        let tcp_bytes = usize::from(*tcp_header.get(12).ok_or(SegmentError::NoTcp)? >> 4) * 4;
        let bytes = tcp + tcp_bytes;
        if tcp_bytes < TCP_BYTES || bytes > head.len() {
            return Err(SegmentError::NoTcp);
        }
        Ok(Self { ip, tcp, bytes })
    }

    /// The number of frames on the wire for a frame of `bytes` with these headers.
    pub fn segments(&self, bytes: usize, segmentation: Segmentation) -> usize {
        bytes.saturating_sub(self.bytes).div_ceil(usize::from(segmentation.payload_bytes).max(1))
    }
}

/// Offset of the IP header, after the Ethernet header and its VLAN tags.
pub fn ip_offset(head: &[u8]) -> Option<usize> {
    let mut offset = ETHERNET_BYTES;
    for _ in 0..2 {
        match *head.get(offset - 2..offset)? {
            [0x81, 0x00] | [0x88, 0xa8] => offset += 4,
            _ => break,
        }
    }
    Some(offset)
}

/// Sum of 16-bit words, not folded.
fn sum(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(2);
    let mut total = 0;
    for word in &mut words {
        if let [high, low] = *word {
            total += u64::from(u16::from_be_bytes([high, low]));
        }
    }
    if let [last] = *words.remainder() {
        total += u64::from(last) << 8;
    }
    total
}

fn fold(mut total: u64) -> u16 {
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

fn put(frame: &mut [u8], offset: usize, value: u16) {
    if let Some([high, low]) = frame.get_mut(offset..).and_then(|f| f.first_chunk_mut::<2>()) {
        [*high, *low] = value.to_be_bytes();
    }
}

/// Computes a checksum that the sender left to the device. Its field contains the sum of the pseudo header.
pub fn complete_checksum(frame: &mut [u8], checksum: Checksum) {
    let Some(covered) = frame.get(usize::from(checksum.start)..) else { return };
    let value = match fold(sum(covered)) {
        // In UDP zero means "none"; in TCP 0 and 0xffff are equal.
        0 => 0xffff,
        value => value,
    };
    put(frame, checksum.place(), value);
}

/// Segments a long TCP frame into frames for the wire, each with complete headers and checksums.
///
/// # Errors
/// [`SegmentError`], before the first segment.
pub fn segment(
    frame: &[u8],
    checksum: Checksum,
    segmentation: Segmentation,
    mut each: impl FnMut(&mut [u8]),
) -> Result<(), SegmentError> {
    let head = frame.get(..frame.len().min(MAX_HEADER_BYTES)).unwrap_or(frame);
    let headers = Headers::find(head, checksum, segmentation.family)?;
    let (head, payload) = frame.split_at_checked(headers.bytes).ok_or(SegmentError::NoTcp)?;
    let pieces = payload.chunks(usize::from(segmentation.payload_bytes).max(1));
    let last = pieces.len().saturating_sub(1);
    let mut wire = Vec::with_capacity(headers.bytes + usize::from(segmentation.payload_bytes));
    let mut sent = 0_u32;
    for (index, piece) in pieces.enumerate() {
        wire.clear();
        wire.extend_from_slice(head);
        wire.extend_from_slice(piece);
        let flags = if index == 0 { 0 } else { TCP_CWR } | if index == last { 0 } else { TCP_FIN | TCP_PSH };
        patch_tcp(&mut wire, &headers, sent, flags);
        patch_ip(&mut wire, &headers, segmentation.family, index as u16);
        tcp_checksum(&mut wire, &headers, segmentation.family);
        each(&mut wire);
        sent = sent.wrapping_add(piece.len() as u32);
    }
    Ok(())
}

/// Advances the sequence number by `sent`, and clears the flags `without`, which belong to other segments.
fn patch_tcp(wire: &mut [u8], headers: &Headers, sent: u32, without: u8) {
    let Some(tcp) = wire.get_mut(headers.tcp..).and_then(|t| t.first_chunk_mut::<TCP_BYTES>()) else {
        return;
    };
    let [_, _, _, _, s0, s1, s2, s3, _, _, _, _, _, flags, ..] = tcp;
    let sequence = u32::from_be_bytes([*s0, *s1, *s2, *s3]).wrapping_add(sent);
    [*s0, *s1, *s2, *s3] = sequence.to_be_bytes();
    *flags &= !without;
}

/// Sets the lengths, and for version 4 also identification and header checksum.
fn patch_ip(wire: &mut [u8], headers: &Headers, family: Family, index: u16) {
    let bytes = wire.len();
    match family {
        Family::V4 => {
            put(wire, headers.ip + 2, (bytes - headers.ip) as u16);
            let identification = wire.get(headers.ip + 4..headers.ip + 6).map_or(0, |id| match *id {
                [high, low] => u16::from_be_bytes([high, low]),
                _ => 0,
            });
            put(wire, headers.ip + 4, identification.wrapping_add(index));
            put(wire, headers.ip + 10, 0);
            let value = wire.get(headers.ip..headers.tcp).map_or(0, |ip| fold(sum(ip)));
            put(wire, headers.ip + 10, value);
        }
        Family::V6 => put(wire, headers.ip + 4, (bytes - headers.ip - IPV6_BYTES) as u16),
    }
}

fn tcp_checksum(wire: &mut [u8], headers: &Headers, family: Family) {
    let place = headers.tcp + 16;
    put(wire, place, 0);
    let addresses = match family {
        Family::V4 => headers.ip + 12..headers.ip + 20,
        Family::V6 => headers.ip + 8..headers.ip + 40,
    };
    let tcp_bytes = (wire.len() - headers.tcp) as u64;
    let pseudo = wire.get(addresses).map_or(0, sum) + tcp_bytes + u64::from(PROTOCOL_TCP);
    let value = wire.get(headers.tcp..).map_or(0, |tcp| fold(pseudo + sum(tcp)));
    put(wire, place, value);
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A long TCP frame as Linux passes it to virtio-net, and its offloads.
    pub(crate) fn long_frame(family: Family, payload: &[u8]) -> (Vec<u8>, Checksum) {
        let mut frame = vec![2; 12];
        let ip = ETHERNET_BYTES;
        let tcp = match family {
            Family::V4 => {
                frame.extend([
                    0x08, 0x00, 0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
                ]);
                ip + IPV4_BYTES
            }
            Family::V6 => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 6, 64]);
                frame.extend((0..32).map(|i| i * 7));
                ip + IPV6_BYTES
            }
        };
        frame.extend([0x04, 0xd2, 0x16, 0x2e, 0, 0, 0xff, 0xf0, 0, 0, 0, 9, 0x60, 0x99, 1, 0, 0, 0, 0, 0]);
        frame.extend([2, 4, 5, 0xb4]);
        frame.extend(payload);
        (frame, Checksum { start: tcp as u16, offset: 16 })
    }

    /// Zero if the checksum over pseudo header and TCP is correct.
    fn residue(wire: &[u8], tcp: usize, family: Family) -> u16 {
        let addresses = if family == Family::V4 { 26..34 } else { 22..54 };
        fold(sum(&wire[addresses]) + (wire.len() - tcp) as u64 + 6 + sum(&wire[tcp..]))
    }

    proptest! {
        #[test]
        fn segments_have_the_payload_and_valid_checksums(
            payload in proptest::collection::vec(any::<u8>(), 1..20_000),
            size in 1_u16..3000,
            v6: bool,
        ) {
            let family = if v6 { Family::V6 } else { Family::V4 };
            let (frame, checksum) = long_frame(family, &payload);
            let tcp = usize::from(checksum.start);
            let mut collected = Vec::new();
            let mut flags = Vec::new();
            segment(&frame, checksum, Segmentation { family, payload_bytes: size }, |wire| {
                let sequence = u32::from_be_bytes(wire[tcp + 4..tcp + 8].try_into().unwrap());
                assert_eq!(sequence, 0xfff0_u32.wrapping_add(collected.len() as u32));
                assert_eq!(residue(wire, tcp, family), 0);
                match family {
                    Family::V4 => {
                        assert_eq!(fold(sum(&wire[14..34])), 0);
                        assert_eq!(usize::from(u16::from_be_bytes([wire[16], wire[17]])), wire.len() - 14);
                    }
                    Family::V6 => {
                        assert_eq!(usize::from(u16::from_be_bytes([wire[18], wire[19]])), wire.len() - 54);
                    }
                }
                flags.push(wire[tcp + 13]);
                collected.extend_from_slice(&wire[tcp + 24..]);
            }).unwrap();
            prop_assert_eq!(&collected, &payload);
            prop_assert_eq!(flags.len(), payload.len().div_ceil(usize::from(size)));
            prop_assert!(flags.iter().skip(1).all(|f| f & TCP_CWR == 0), "CWR is only in the first segment");
            let but_last = &flags[..flags.len() - 1];
            prop_assert!(but_last.iter().all(|f| f & (TCP_FIN | TCP_PSH) == 0), "FIN is only in the last segment");
        }

        #[test]
        fn hostile_frames_never_panic(frame: Vec<u8>, start: u16, offset: u16, size: u16, v6: bool) {
            let family = if v6 { Family::V6 } else { Family::V4 };
            let checksum = Checksum { start, offset };
            let _ = segment(&frame, checksum, Segmentation { family, payload_bytes: size }, |_| ());
            complete_checksum(&mut frame.clone(), checksum);
        }
    }

    #[test]
    fn checksum_left_to_the_device_is_completed() {
        let (mut frame, checksum) = long_frame(Family::V4, b"niclab");
        let tcp = usize::from(checksum.start);
        let pseudo = sum(&frame[26..34]) + (frame.len() - tcp) as u64 + 6;
        put(&mut frame, checksum.place(), !fold(pseudo));
        complete_checksum(&mut frame, checksum);
        assert_eq!(residue(&frame, tcp, Family::V4), 0);
    }
}
