//! Ethernet II: field offsets, checked view, valid representation.
//!
//! Constants: IEEE 802.3, section 3.

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Bytes of the header.
pub const HEADER_BYTES: usize = 14;

/// EtherType of the frames of every NIC model: the first of the two that IEEE 802 reserves for local experiments. The
/// byte after the header names the model's protocol.
pub const ETHER_TYPE_CLUSTER: u16 = 0x88b5;

/// The broadcast address.
pub const BROADCAST: Mac = [0xff; 6];

const DESTINATION: core::ops::Range<usize> = 0..6;
const SOURCE: core::ops::Range<usize> = 6..12;
const ETHER_TYPE: core::ops::Range<usize> = 12..14;

/// Locally administered, unicast, and of no hardware vendor.
const NODE_PREFIX: [u8; 4] = [0x02, b'n', b'l', 0x00];

/// The address of a node's card. The launcher gives the same address to the card's Ethernet function.
pub const fn mac_of_node(node: u16) -> Mac {
    let [high, low] = node.to_be_bytes();
    let [a, b, c, d] = NODE_PREFIX;
    [a, b, c, d, high, low]
}

/// The node whose card has this address.
pub fn node_of_mac(mac: &Mac) -> Option<u16> {
    endpoint_of_mac(mac).filter(|(_, endpoint)| endpoint.is_none()).map(|(node, _)| node)
}

/// The address of a MAC endpoint of a node: a peer device of the NIC that sends and receives ordinary frames itself.
/// `port` is its port of the NIC, below 255.
pub const fn mac_of_endpoint(node: u16, port: u8) -> Mac {
    let [a, b, c, _, high, low] = mac_of_node(node);
    [a, b, c, port.wrapping_add(1), high, low]
}

/// The node of this address, and its MAC endpoint; none for the card's own address.
pub fn endpoint_of_mac(mac: &Mac) -> Option<(u16, Option<u8>)> {
    let [a, b, c, endpoint, high, low] = *mac;
    let is_nodes = [a, b, c] == [NODE_PREFIX[0], NODE_PREFIX[1], NODE_PREFIX[2]];
    is_nodes.then(|| (u16::from_be_bytes([high, low]), endpoint.checked_sub(1)))
}

/// Bytes of a VLAN tag (IEEE 802.1Q, 9.6).
pub const TAG_BYTES: usize = 4;

/// Bytes at the start of a frame that tell the number of its tags: the header and the outer tag.
pub const TAGGED_HEADER_BYTES: usize = HEADER_BYTES + TAG_BYTES;

/// Whether an EtherType is that of a VLAN tag: a customer's (0x8100) or a provider's (IEEE 802.1ad, 0x88a8).
#[inline]
pub const fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, 0x8100 | 0x88a8)
}

/// Bytes of the VLAN tags of a frame, two tags at most. A link's MTU does not count them: IEEE 802.3 (3.2.7) allows a
/// frame with one tag to be 4 bytes longer, and one with a provider's tag before it 8 bytes. A guest that adds more
/// tags gains no more bytes.
#[inline]
pub fn tag_bytes(frame: &[u8]) -> usize {
    let has_tag_at = |place: usize| match frame.get(place..place + 2) {
        Some(&[high, low]) => is_tag(u16::from_be_bytes([high, low])),
        _ => false,
    };
    if !has_tag_at(ETHER_TYPE.start) {
        0
    } else if !has_tag_at(ETHER_TYPE.start + TAG_BYTES) {
        TAG_BYTES
    } else {
        2 * TAG_BYTES
    }
}

/// Whether the payload of a cluster frame is of another protocol than `own`. Any two models' protocols differ in at
/// least two bits. So a damaged bit never turns a model's frame into a foreign one, and the check sequence finds the
/// damage.
#[inline]
pub fn is_foreign(payload: &[u8], own: u8) -> bool {
    payload.first().is_some_and(|protocol| (protocol ^ own).count_ones() > 1)
}

/// Whether the address is broadcast or multicast.
pub const fn is_group(mac: &Mac) -> bool {
    mac[0] & 1 != 0
}

/// Frame class: which of a node's receivers get a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameClass {
    /// The card: the frame is of a model's own protocol. The card itself checks whether it is intact.
    Card,
    /// The Ethernet function.
    Host,
    /// The MAC endpoints of this node. Other nodes treat it as an ordinary frame.
    MacEndpoints(u16),
    /// The Ethernet function and the MAC endpoints.
    All,
    /// No receiver: the check sequence of an ordinary frame is wrong.
    Discard,
}

impl FrameClass {
    /// The class by type and address. A frame shorter than a header is discarded.
    #[inline]
    pub fn of(frame: &[u8]) -> Self {
        match Frame::new_checked(frame) {
            Some(frame) if frame.ether_type() != ETHER_TYPE_CLUSTER => {
                Self::of_ordinary(&frame.destination())
            }
            _ => Self::Card,
        }
    }

    fn of_ordinary(destination: &Mac) -> Self {
        match endpoint_of_mac(destination) {
            Some((node, Some(_))) => Self::MacEndpoints(node),
            _ if is_group(destination) => Self::All,
            _ => Self::Host,
        }
    }

    /// The class after the network damaged the frame.
    #[must_use]
    pub const fn damaged(self) -> Self {
        match self {
            Self::Card => Self::Card,
            _ => Self::Discard,
        }
    }

    /// Whether the Ethernet function of `node` gets it.
    pub const fn is_for_host(self, node: u16) -> bool {
        match self {
            Self::Host | Self::All => true,
            Self::MacEndpoints(of) => of != node,
            Self::Card | Self::Discard => false,
        }
    }

    /// Whether the card of `node` gets it, if the card has MAC endpoints.
    pub const fn is_for_mac_endpoints(self, node: u16) -> bool {
        match self {
            Self::All => true,
            Self::MacEndpoints(of) => of == node,
            Self::Host | Self::Card | Self::Discard => false,
        }
    }
}

/// A frame that is at least as long as its header.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    header: &'a [u8; HEADER_BYTES],
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The view, or `None` if `bytes` is shorter than a header.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Option<Self> {
        let (header, payload) = bytes.split_first_chunk()?;
        Some(Self { header, payload })
    }

    /// Destination address.
    #[inline]
    pub fn destination(&self) -> Mac {
        let mut mac = [0; 6];
        mac.copy_from_slice(&self.header[DESTINATION]);
        mac
    }

    /// Source address.
    #[inline]
    pub fn source(&self) -> Mac {
        let mut mac = [0; 6];
        mac.copy_from_slice(&self.header[SOURCE]);
        mac
    }

    /// EtherType.
    #[inline]
    pub fn ether_type(&self) -> u16 {
        let mut bytes = [0; 2];
        bytes.copy_from_slice(&self.header[ETHER_TYPE]);
        u16::from_be_bytes(bytes)
    }

    /// The bytes after the header.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Destination address.
    pub destination: Mac,
    /// Source address.
    pub source: Mac,
    /// EtherType.
    pub ether_type: u16,
}

impl Header {
    /// Reads the header of a frame.
    #[inline]
    pub fn parse(frame: &Frame<'_>) -> Self {
        Self { destination: frame.destination(), source: frame.source(), ether_type: frame.ether_type() }
    }

    /// The header's bytes.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[DESTINATION].copy_from_slice(&self.destination);
        bytes[SOURCE].copy_from_slice(&self.source);
        bytes[ETHER_TYPE].copy_from_slice(&self.ether_type.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn headers_round_trip(destination: Mac, source: Mac, ether_type: u16, payload: Vec<u8>) {
            let header = Header { destination, source, ether_type };
            let mut bytes = header.emit().to_vec();
            bytes.extend(&payload);
            let frame = Frame::new_checked(&bytes).unwrap();
            prop_assert_eq!(Header::parse(&frame), header);
            prop_assert_eq!(frame.payload(), &payload);
        }

        #[test]
        fn node_addresses_round_trip(node: u16, other: Mac) {
            let mac = mac_of_node(node);
            prop_assert_eq!(node_of_mac(&mac), Some(node));
            prop_assert!(!is_group(&mac));
            prop_assert!(node_of_mac(&other).is_none_or(|node| mac_of_node(node) == other));
        }

        #[test]
        fn mac_endpoints_have_distinct_addresses(node: u16, port in 0..255u8) {
            let mac = mac_of_endpoint(node, port);
            prop_assert_eq!((endpoint_of_mac(&mac), node_of_mac(&mac)), (Some((node, Some(port))), None));
            prop_assert_eq!(endpoint_of_mac(&mac_of_node(node)), Some((node, None)));
            prop_assert!(!is_group(&mac));
        }
    }

    #[test]
    fn ordinary_frames_reach_the_receivers_of_their_address() {
        let of = |destination, ether_type| {
            FrameClass::of(&Header { destination, source: mac_of_node(1), ether_type }.emit())
        };
        let (all, endpoint, other_mac) = (BROADCAST, mac_of_endpoint(2, 7), [0x52, 0x54, 0, 0, 0, 1]);
        for destination in [all, endpoint, other_mac, mac_of_node(2)] {
            assert_eq!(of(destination, ETHER_TYPE_CLUSTER), FrameClass::Card);
        }
        let receivers = |class: FrameClass, node| (class.is_for_host(node), class.is_for_mac_endpoints(node));
        for (destination, class, at_two, elsewhere) in [
            (all, FrameClass::All, (true, true), (true, true)),
            ([1, 0, 0x5e, 0, 0, 9], FrameClass::All, (true, true), (true, true)),
            (endpoint, FrameClass::MacEndpoints(2), (false, true), (true, false)),
            (other_mac, FrameClass::Host, (true, false), (true, false)),
            (mac_of_node(2), FrameClass::Host, (true, false), (true, false)),
        ] {
            assert_eq!(of(destination, 0x0800), class);
            assert_eq!((receivers(class, 2), receivers(class, 3)), (at_two, elsewhere), "{class:?}");
            assert_eq!(receivers(class.damaged(), 2), (false, false), "its check sequence is wrong");
        }
        assert_eq!(FrameClass::Card.damaged(), FrameClass::Card, "the card has its own checks");
        assert_eq!(FrameClass::of(&[0; HEADER_BYTES - 1]), FrameClass::Card);
    }

    #[test]
    fn one_damaged_bit_makes_no_foreign_frame() {
        for bit in 0..8 {
            assert!(!is_foreign(&[5 ^ 1 << bit, 1, 2], 5));
        }
        assert!(is_foreign(&[3], 5) && !is_foreign(&[5], 5) && !is_foreign(&[], 5));
    }

    #[test]
    fn at_most_two_tags_are_counted() {
        let tagged = |types: &[u16]| {
            let mut frame = alloc::vec![0; 12];
            types.iter().for_each(|ether_type| frame.extend([ether_type.to_be_bytes(), [0, 100]].concat()));
            tag_bytes(&frame)
        };
        assert_eq!((tagged(&[]), tagged(&[0x0800]), tagged(&[0x0800, 0x8100])), (0, 0, 0));
        assert_eq!((tagged(&[0x8100]), tagged(&[0x8100, 0x0800]), tagged(&[0x88a8, 0x86dd])), (4, 4, 4));
        assert_eq!((tagged(&[0x88a8, 0x8100, 0x0800]), tagged(&[0x8100, 0x8100])), (8, 8));
        assert_eq!(tagged(&[0x8100; 5]), 8, "more than two tags do not lengthen a frame");
    }

    #[test]
    fn short_frames_have_no_header() {
        assert!(Frame::new_checked(&[0; HEADER_BYTES - 1]).is_none());
    }
}
