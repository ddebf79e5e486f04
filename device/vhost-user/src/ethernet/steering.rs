//! Chooses the receive queue of a frame for a guest with several queues.
//!
//! All frames of a flow go to one queue, so the guest receives them in order. The flow is that of receive-side
//! scaling (Virtual I/O Device specification 1.2, section 5.1.6.5.7). For TCP and UDP it is addresses and ports, for
//! other IP packets addresses alone. Fragments have addresses alone, too, because only the first one has ports. The
//! flow of a frame without IP is its Ethernet addresses. The hash is Toeplitz's with Microsoft's key, as in most
//! network cards.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::frame::Frame;
use super::header::ETHERNET_BYTES;
use super::offload::ip_offset;

/// The key of Microsoft's "Verifying the RSS Hash Calculation", the default key of many drivers.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// Maximum bytes of a frame that the hash reads: Ethernet with two tags, an IPv4 header of any length, and the ports.
const MAX_READ_BYTES: usize = ETHERNET_BYTES + 8 + 60 + 4;

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

/// Queue pairs of a node, one bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pairs(u64);

impl Pairs {
    /// The first `count` pairs, at most 64.
    pub const fn first(count: usize) -> Self {
        Self(if count >= 64 { u64::MAX } else { (1 << count) - 1 })
    }

    /// These pairs, or the first pair if there are none.
    pub const fn or_first(self) -> Self {
        if self.0 == 0 { Self::first(1) } else { self }
    }

    /// Whether there is at most one pair.
    #[inline]
    pub const fn is_single(self) -> bool {
        self.0 & self.0.wrapping_sub(1) == 0
    }

    /// The pair, if there is exactly one.
    #[inline]
    pub const fn single(self) -> Option<usize> {
        if self.0.is_power_of_two() { Some(self.0.trailing_zeros() as usize) } else { None }
    }

    /// Whether the pair is one of these.
    pub const fn contains(self, pair: usize) -> bool {
        pair < 64 && self.0 >> pair & 1 != 0
    }

    /// The pair for a frame. None if no pair is on. Reads the head of the frame if there are several pairs.
    #[inline]
    pub fn choose(self, frame: &mut Frame<'_>) -> Option<usize> {
        if self.is_single() {
            return self.single();
        }
        frame.read_head(MAX_READ_BYTES);
        Some(self.of_hash(flow_hash(frame.head())))
    }

    /// The pair for a hash. Each pair gets an equal share of the hashes.
    fn of_hash(self, hash: u32) -> usize {
        let mut left = self.0;
        for _ in 0..hash % self.0.count_ones().max(1) {
            left &= left - 1;
        }
        left.trailing_zeros() as usize
    }
}

/// The pairs that a driver has turned on. Its front end reports them by SET_VRING_ENABLE, and the front end's relay
/// thread writes them.
#[derive(Debug)]
pub struct Switches {
    on: AtomicU64,
    count: usize,
}

impl Switches {
    /// The switches of `count` pairs. A single pair is always on; several are off until the front end turns them on.
    pub const fn new(count: usize) -> Self {
        let on = if count > 1 { Pairs::first(0) } else { Pairs::first(1) };
        Self { on: AtomicU64::new(on.0), count }
    }

    /// The pairs that are on now.
    #[inline]
    pub fn on(&self) -> Pairs {
        Pairs(self.on.load(Ordering::Relaxed))
    }

    /// Whether the pair exists.
    pub const fn has(&self, pair: usize) -> bool {
        Pairs::first(self.count).contains(pair)
    }

    /// Turns a pair on or off. False if it does not exist.
    pub fn set(&self, pair: usize, is_on: bool) -> bool {
        if !self.has(pair) {
            return false;
        }
        if is_on {
            self.on.fetch_or(1 << pair, Ordering::Relaxed);
        } else {
            self.on.fetch_and(!(1 << pair), Ordering::Relaxed);
        }
        true
    }

    /// Turns all pairs on.
    pub fn set_all(&self) {
        self.on.store(Pairs::first(self.count).0, Ordering::Relaxed);
    }
}

impl Default for Switches {
    fn default() -> Self {
        Self::new(1)
    }
}

/// The flow hash of a frame, by its first bytes.
pub fn flow_hash(head: &[u8]) -> u32 {
    toeplitz(&flow(head).unwrap_or_else(|| head.get(..ETHERNET_BYTES - 2).unwrap_or_default().into()))
}

/// The flow of an IP packet: addresses, and ports if it has any.
fn flow(head: &[u8]) -> Option<SmallVec<[u8; 36]>> {
    let ip = ip_offset(head)?;
    let packet = head.get(ip..)?;
    let (addresses, protocol, payload, is_fragment) = match (head.get(ip - 2..ip)?, packet.first()? >> 4) {
        ([0x08, 0x00], 4) => {
            let payload = usize::from(packet.first()? & 0xf) * 4;
            // More fragments follow, or this fragment is not the first.
            let is_fragment = packet.get(6)? & 0x3f != 0 || *packet.get(7)? != 0;
            (packet.get(12..20)?, *packet.get(9)?, payload, is_fragment)
        }
        // A packet with extension headers has another number here, so its flow is its addresses.
        ([0x86, 0xdd], 6) => (packet.get(8..40)?, *packet.get(6)?, 40, false),
        _ => return None,
    };
    let mut flow = SmallVec::from_slice(addresses);
    if matches!(protocol, PROTOCOL_TCP | PROTOCOL_UDP) && !is_fragment {
        flow.extend_from_slice(packet.get(payload..payload + 4).unwrap_or_default());
    }
    Some(flow)
}

/// The Toeplitz hash: each set bit of the input adds the 32 bits of the key that begin at the bit's offset.
fn toeplitz(input: &[u8]) -> u32 {
    let mut hash = 0;
    for (start, byte) in input.iter().enumerate() {
        let at = |offset: usize| u64::from(KEY.get(start + offset).copied().unwrap_or_default());
        let window = at(0) << 32 | at(1) << 24 | at(2) << 16 | at(3) << 8 | at(4);
        for bit in (0..8).filter(|bit| byte >> (7 - bit) & 1 != 0) {
            hash ^= (window >> (8 - bit)) as u32;
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(protocol: u8, flags: [u8; 2], from: ([u8; 4], u16), to: ([u8; 4], u16)) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00, 0x45, 0, 0, 40, 0, 0, flags[0], flags[1], 64, protocol, 0, 0]);
        frame.extend([from.0, to.0].concat());
        frame.extend([from.1.to_be_bytes(), to.1.to_be_bytes()].concat());
        frame
    }

    /// Values of Microsoft's "Verifying the RSS Hash Calculation".
    #[test]
    fn hash_is_that_of_microsofts_verification_suite() {
        let (from, to) = (([66, 9, 149, 187], 2794), ([161, 142, 100, 80], 1766));
        assert_eq!(flow_hash(&v4(6, [0; 2], from, to)), 0x51cc_c178);
        assert_eq!(
            flow_hash(&v4(17, [0x40, 0], from, to)),
            0x51cc_c178,
            "a packet with `do not fragment` is not a fragment"
        );
        assert_eq!(flow_hash(&v4(1, [0; 2], from, to)), 0x323e_8fc2, "addresses alone");
        for fragment in [[0x20, 0], [0, 185], [0x20, 185]] {
            assert_eq!(flow_hash(&v4(17, fragment, from, to)), 0x323e_8fc2, "a fragment has no ports");
        }
        let mut tagged = v4(6, [0; 2], from, to);
        tagged.splice(12..12, [0x88, 0xa8, 0, 7, 0x81, 0x00, 0, 9]);
        assert_eq!(flow_hash(&tagged), 0x51cc_c178, "tags are not part of a flow");
        let mut six = vec![0; 12];
        six.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
        six.extend(0x3ffe_2501_0200_1fff_0000_0000_0000_0007_u128.to_be_bytes());
        six.extend(0x3ffe_2501_0200_0003_0000_0000_0000_0001_u128.to_be_bytes());
        six.extend([2794_u16.to_be_bytes(), 1766_u16.to_be_bytes()].concat());
        assert_eq!(flow_hash(&six), 0x4020_7d3d);
    }

    #[test]
    fn flow_of_a_frame_without_ip_is_its_ethernet_addresses() {
        let whole = v4(6, [0; 2], ([1; 4], 1), ([2; 4], 2));
        for bytes in 0..whole.len() {
            let _ = flow_hash(&whole[..bytes]);
        }
        let mut arp = whole;
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        arp[0] = 4;
        assert_eq!(flow_hash(&arp), toeplitz(&arp[..12]));
    }

    #[test]
    fn each_pair_that_is_on_and_no_other_gets_flows() {
        let switches = Switches::new(7);
        assert_eq!(switches.on(), Pairs::first(0));
        [1, 2, 4, 6].into_iter().for_each(|pair| assert!(switches.set(pair, true)));
        assert!(switches.set(2, false));
        assert!(!switches.set(7, true) && !switches.set(usize::MAX, true), "these pairs do not exist");
        let mut counts = [0; 7];
        for port in 0..300 {
            let mut bytes = v4(17, [0; 2], ([10, 77, 0, 1], port), ([10, 77, 0, 2], 5001));
            counts[switches.on().choose(&mut Frame::from_bytes(&mut bytes)).unwrap()] += 1;
        }
        assert!([1, 4, 6].iter().all(|pair| counts[*pair] > 50), "{counts:?}");
        assert_eq!(counts.iter().sum::<u32>(), counts[1] + counts[4] + counts[6]);
        switches.set_all();
        assert_eq!(switches.on(), Pairs::first(7));
    }

    #[test]
    fn frame_is_not_read_if_at_most_one_pair_is_on() {
        let mut bytes = [0; 60];
        let mut frame = Frame::from_bytes(&mut bytes);
        let read = frame.head().len();
        assert_eq!(Switches::default().on().choose(&mut frame), Some(0));
        assert_eq!(Pairs::first(0).choose(&mut frame), None);
        assert_eq!(frame.head().len(), read);
    }
}
