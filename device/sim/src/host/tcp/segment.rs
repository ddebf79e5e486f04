//! Segments as frames: Ethernet, IPv4 and TCP with their checksums, so that captures show them correctly.

use etherparse::{IpNumber, Ipv4Header, Ipv4HeaderSlice, TcpHeader, TcpSlice};
use niclab_model::fabric::ethernet::{self, HEADER_BYTES, mac_of_node};
use niclab_model::nic::FrameBytes;

use super::connection::Segment;

/// The EtherType of IPv4.
const ETHER_TYPE_IPV4: u16 = 0x0800;
/// The TCP port of both ends. Two nodes share one connection.
const PORT: u16 = 5_001;
const TIME_TO_LIVE: u8 = 64;

/// The address of a node, in 10.0.0.0/16.
const fn address_of(node: u16) -> [u8; 4] {
    let [high, low] = node.to_be_bytes();
    [10, 0, high, low]
}

/// The frame of a segment. Its data is at most an MTU minus both headers.
pub(super) fn emit(from: u16, to: u16, segment: &Segment, data: &[u8]) -> FrameBytes {
    let header = ethernet::Header {
        destination: mac_of_node(to),
        source: mac_of_node(from),
        ether_type: ETHER_TYPE_IPV4,
    };
    let mut tcp = TcpHeader::new(PORT, PORT, segment.first, segment.window);
    (tcp.ack, tcp.acknowledgment_number, tcp.psh) = (true, segment.expected, !data.is_empty());
    let (source, destination) = (address_of(from), address_of(to));
    // Neither call fails for segments of an MTU's length.
    tcp.checksum = tcp.calc_checksum_ipv4_raw(source, destination, data).unwrap_or_default();
    let bytes = (tcp.header_len() + data.len()) as u16;
    let ip = Ipv4Header::new(bytes, TIME_TO_LIVE, IpNumber::TCP, source, destination);
    let ip = ip.map(|ip| Ipv4Header { header_checksum: ip.calc_header_checksum(), ..ip });
    let mut frame = FrameBytes::from_slice(&header.emit());
    frame.extend_from_slice(&ip.map(|ip| ip.to_bytes()).unwrap_or_default());
    frame.extend_from_slice(&tcp.to_bytes());
    frame.extend_from_slice(data);
    frame
}

/// Parses a frame for `node`. Returns its sender, the segment and its data; none if it is no intact segment.
pub(super) fn parse(node: u16, frame: &[u8]) -> Option<(u16, Segment, &[u8])> {
    let (_, packet) = frame.split_at_checked(HEADER_BYTES)?;
    let ip = Ipv4HeaderSlice::from_slice(packet).ok()?;
    let is_sound = sums_up(ip.slice());
    let packet = packet.get(ip.slice().len()..usize::from(ip.total_len()))?;
    let tcp = TcpSlice::from_slice(packet).ok()?;
    let is_sound = is_sound && tcp.calc_checksum_ipv4(ip.source(), ip.destination()).ok()? == tcp.checksum();
    let [10, 0, high, low] = ip.source() else { return None };
    let is_ours = ip.destination() == address_of(node) && tcp.destination_port() == PORT && tcp.ack();
    let segment = Segment {
        first: tcp.sequence_number(),
        expected: tcp.acknowledgment_number(),
        window: tcp.window_size(),
    };
    (is_sound && is_ours).then(|| (u16::from_be_bytes([high, low]), segment, tcp.payload()))
}

/// Whether the sum of a header's words, with their checksum, has only one bits (RFC 791). It covers every bit of the
/// header.
fn sums_up(header: &[u8]) -> bool {
    let words = header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: Segment = Segment { first: 7, expected: 0xffff_fff0, window: 32_767 };

    #[test]
    fn parsed_segment_equals_the_sent_one() {
        let frame = emit(3, 300, &SEGMENT, b"data of a segment");
        assert_eq!(frame.len(), 14 + 40 + 17);
        assert_eq!(parse(300, &frame), Some((3, SEGMENT, &b"data of a segment"[..])));
        assert_eq!(parse(301, &frame), None, "the segment is for another node");
        let alone = emit(3, 300, &SEGMENT, &[]);
        assert_eq!(parse(300, &alone), Some((3, SEGMENT, &[][..])));
    }

    #[test]
    fn packet_with_any_flipped_bit_is_rejected() {
        let frame = emit(3, 300, &SEGMENT, b"data");
        for bit in 8 * HEADER_BYTES..8 * frame.len() {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(300, &damaged), None, "bit {bit}");
        }
        (0..frame.len()).for_each(|length| assert_eq!(parse(300, &frame[..length]), None));
    }
}
