//! A bridge between the cluster's network and Ethernet (section 4.3). The bridge sends the payload of a message as UDP
//! datagrams over the card's Ethernet port, and sends replies of ordinary sockets back as messages. It answers ARP
//! requests for each address that a message has bound.
//!
//! Constants: headers are those of IP and UDP (RFC 791, RFC 768); bounds are ours.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use etherparse::checksum::Sum16BitWords;
use etherparse::{ArpOperation, ArpPacket, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use niclab_abi::grim::{CHANNEL_BRIDGED, bridge_ports};

use super::{Arrival, PeripheralContext, Work};
use crate::fabric::ethernet::{BROADCAST, Frame, endpoint_of_mac, mac_of_node};
use crate::nic::{Address, FrameBytes};

/// Bytes of the headers of IPv4 and UDP.
const HEADER_BYTES: usize = 20 + 8;
/// Maximum bound addresses and ports of a bridge. (The attack: a program binds many addresses. The bridge then drops
/// the oldest binding, and its memory does not grow.)
const MAX_BINDINGS: usize = 64;
/// Maximum routers on a datagram's route.
const TIME_TO_LIVE: u8 = 64;
/// Marks a sender that is not a node of the cluster.
const NO_NODE: u32 = 0xffff;

/// The owner of an address and port of the bridge, who gets their datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Binding {
    address: [u8; 4],
    port: u16,
    owner: Address,
    interrupt: bool,
}

/// A bridge.
#[derive(Clone, Debug)]
pub(super) struct Bridge {
    context: PeripheralContext,
    bindings: VecDeque<Binding>,
}

impl Bridge {
    pub(super) const fn new(context: PeripheralContext) -> Self {
        Self { context, bindings: VecDeque::new() }
    }

    /// Sends a message as datagrams of maximum frame length.
    pub(super) fn send(&mut self, message: &Arrival, work: &mut Work) {
        let [node, target, own, ports] = message.arguments;
        let (source, destination) = ((ports >> 16) as u16, ports as u16);
        let own = own.to_be_bytes();
        self.bind(Binding { address: own, port: source, owner: message.from, interrupt: message.interrupt });
        let most = (self.context.mtu_bytes as usize).saturating_sub(HEADER_BYTES).max(1);
        let parts = message.payload.chunks(most);
        // A message without payload becomes an empty datagram.
        for part in parts.chain(message.payload.is_empty().then_some(&[][..])) {
            let mut frame = Vec::with_capacity(14 + HEADER_BYTES + part.len());
            let packet = PacketBuilder::ethernet2(self.context.mac, mac_of_node(node as u16))
                .ipv4(own, target.to_be_bytes(), TIME_TO_LIVE)
                .udp(source, destination);
            if packet.write_to_vec(&mut frame, part).is_ok() {
                work.go_through(part.len());
                work.send_frame(FrameBytes::from_vec(frame));
            }
        }
    }

    fn bind(&mut self, binding: Binding) {
        let is_same = |other: &Binding| (other.address, other.port) == (binding.address, binding.port);
        self.bindings.retain(|other| !is_same(other));
        if self.bindings.len() == MAX_BINDINGS {
            self.bindings.pop_front();
        }
        self.bindings.push_back(binding);
    }

    /// Handles a frame of the Ethernet port. The bridge ignores frames for other addresses.
    pub(super) fn on_frame(&mut self, frame: &[u8], work: &mut Work) {
        let Some(ethernet) = Frame::new_checked(frame) else { return };
        if ethernet.destination() != self.context.mac && ethernet.destination() != BROADCAST {
            return;
        }
        let Ok(packet) = SlicedPacket::from_ethernet(frame) else { return };
        match (&packet.net, &packet.transport) {
            (Some(NetSlice::Arp(request)), _) => self.on_request(&request.to_packet(), work),
            (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) => {
                let (header, datagram) = (ip.header().to_header(), udp.to_header());
                let (from, to) = (header.source, header.destination);
                let has_right_sum = datagram.checksum == 0
                    || datagram.calc_checksum_ipv4(&header, udp.payload()) == Ok(datagram.checksum);
                // The sum covers the received bytes: the parsed header does not contain all of their bits.
                let sum = Sum16BitWords::new().add_slice(ip.header().slice()).ones_complement();
                if sum != 0 || !has_right_sum {
                    return;
                }
                let binding = self
                    .bindings
                    .iter()
                    .find(|binding| (binding.address, binding.port) == (to, udp.destination_port()));
                let Some(binding) = binding else { return };
                let node = endpoint_of_mac(&ethernet.source()).map_or(NO_NODE, |(node, _)| node.into());
                let ports = bridge_ports(udp.source_port(), udp.destination_port());
                let arguments = [node, u32::from_be_bytes(from), u32::from_be_bytes(to), ports];
                work.go_through(udp.payload().len());
                let payload = udp.payload().into();
                work.send(binding.owner, binding.interrupt, CHANNEL_BRIDGED, arguments, payload);
            }
            _ => {}
        }
    }

    /// Answers an ARP request for one of the bridge's addresses.
    fn on_request(&self, request: &ArpPacket, work: &mut Work) {
        let Ok(mut packet) = request.try_eth_ipv4() else { return };
        let is_own = self.bindings.iter().any(|binding| binding.address == packet.target_ipv4);
        if packet.operation != ArpOperation::REQUEST || !is_own {
            return;
        }
        let asker = packet.sender_mac;
        packet.operation = ArpOperation::REPLY;
        (packet.target_mac, packet.sender_mac) = (asker, self.context.mac);
        core::mem::swap(&mut packet.sender_ipv4, &mut packet.target_ipv4);
        let mut frame = Vec::new();
        let answer = PacketBuilder::ethernet2(self.context.mac, asker).arp(packet.into());
        if answer.write_to_vec(&mut frame).is_ok() {
            work.send_frame(FrameBytes::from_vec(frame));
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use etherparse::ArpEthIpv4Packet;

    use super::*;
    use crate::fabric::ethernet::mac_of_endpoint;

    const SEAT: PeripheralContext = PeripheralContext { mac: mac_of_endpoint(1, 7), mtu_bytes: 1_500 };
    const OWN: [u8; 4] = [10, 9, 8, 7];
    const GUEST: [u8; 4] = [10, 9, 8, 1];

    fn message(payload: Vec<u8>) -> Arrival {
        let from = Address { node: 0, port: 2 };
        let arguments = [2, u32::from_be_bytes(GUEST), u32::from_be_bytes(OWN), bridge_ports(4_000, 53)];
        Arrival { from, handler: 0, arguments, payload, interrupt: true }
    }

    fn act(act: impl FnOnce(&mut Work)) -> Work {
        let mut work = Work::default();
        act(&mut work);
        work
    }

    fn datagram(to: [u8; 4], port: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        let packet = PacketBuilder::ethernet2(mac_of_node(2), SEAT.mac).ipv4(GUEST, to, 64).udp(53, port);
        packet.write_to_vec(&mut frame, payload).unwrap();
        frame
    }

    #[test]
    fn long_message_becomes_datagrams_with_valid_checksums() {
        let mut bridge = Bridge::new(SEAT);
        let payload: Vec<u8> = (0..3_000_u32).map(|byte| byte as u8).collect();
        let work = act(|work| bridge.send(&message(payload.clone()), work));
        let mut sent = Vec::new();
        for frame in &work.frames {
            assert!(frame.len() <= 14 + 1_500);
            let packet = SlicedPacket::from_ethernet(frame).unwrap();
            let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) = (packet.net, packet.transport)
            else {
                panic!("a datagram")
            };
            let header = ip.header().to_header();
            assert_eq!((header.source, header.destination), (OWN, GUEST));
            assert_eq!(header.calc_header_checksum(), header.header_checksum);
            let udp_header = udp.to_header();
            assert_eq!(udp_header.calc_checksum_ipv4(&header, udp.payload()), Ok(udp_header.checksum));
            assert_eq!((udp.source_port(), udp.destination_port()), (4_000, 53));
            sent.extend_from_slice(udp.payload());
        }
        assert_eq!((work.frames.len(), sent), (3, payload));
        let empty = act(|work| bridge.send(&message(Vec::new()), work));
        assert_eq!(empty.frames.len(), 1);
    }

    #[test]
    fn socket_reply_goes_to_the_sender_bound_to_its_port() {
        let mut bridge = Bridge::new(SEAT);
        let before = act(|work| bridge.on_frame(&datagram(OWN, 4_000, b"early"), work));
        assert!(before.sendings.is_empty(), "no message has bound the address");
        act(|work| bridge.send(&message(vec![1]), work));
        let mut work = act(|work| bridge.on_frame(&datagram(OWN, 4_000, b"answer"), work));
        let sending = work.sendings.pop().unwrap();
        let arguments = [2, u32::from_be_bytes(GUEST), u32::from_be_bytes(OWN), bridge_ports(53, 4_000)];
        assert_eq!((sending.to, sending.handler), (Address { node: 0, port: 2 }, CHANNEL_BRIDGED));
        assert_eq!(
            (sending.arguments, &*sending.payload, sending.interrupt),
            (arguments, &b"answer"[..], true)
        );
        for (address, port) in [(OWN, 4_001), (GUEST, 4_000)] {
            let work = act(|work| bridge.on_frame(&datagram(address, port, b"other"), work));
            assert!(work.sendings.is_empty() && work.frames.is_empty());
        }
    }

    #[test]
    fn bridge_answers_arp_requests_only_for_its_addresses() {
        let mut bridge = Bridge::new(SEAT);
        act(|work| bridge.send(&message(vec![1]), work));
        let asks = |address: [u8; 4]| {
            let request = ArpEthIpv4Packet {
                operation: ArpOperation::REQUEST,
                sender_mac: mac_of_node(2),
                sender_ipv4: GUEST,
                target_mac: [0; 6],
                target_ipv4: address,
            };
            let mut frame = Vec::new();
            let packet = PacketBuilder::ethernet2(mac_of_node(2), BROADCAST).arp(request.into());
            packet.write_to_vec(&mut frame).unwrap();
            frame
        };
        let work = act(|work| bridge.on_frame(&asks(OWN), work));
        let packet = SlicedPacket::from_ethernet(&work.frames[0]).unwrap();
        let Some(NetSlice::Arp(answer)) = packet.net else { panic!("an answer") };
        let answer = answer.to_packet().try_eth_ipv4().unwrap();
        assert_eq!(
            (answer.operation, answer.sender_mac, answer.sender_ipv4),
            (ArpOperation::REPLY, SEAT.mac, OWN)
        );
        assert_eq!((answer.target_mac, answer.target_ipv4), (mac_of_node(2), GUEST));
        assert!(act(|work| bridge.on_frame(&asks([10, 9, 8, 6]), work)).frames.is_empty());
    }

    #[test]
    fn arbitrary_ethernet_frames_are_safe_and_bindings_bounded() {
        let mut bridge = Bridge::new(SEAT);
        for number in 0..1_000 {
            let mut message = message(vec![1]);
            message.arguments[2] = number;
            act(|work| bridge.send(&message, work));
        }
        assert_eq!(bridge.bindings.len(), MAX_BINDINGS);
        let frame = datagram(999_u32.to_be_bytes(), 4_000, b"a datagram that is cut and bent");
        for length in 0..frame.len() {
            act(|work| bridge.on_frame(&frame[..length], work));
            for bit in 0..8 {
                let mut bent = frame.clone();
                bent[length] ^= 1 << bit;
                let work = act(|work| bridge.on_frame(&bent, work));
                // No receiver can detect damage of the sender's Ethernet address, or of fields without checksum.
                let is_covered = length >= 14;
                assert!(work.sendings.len() <= usize::from(!is_covered), "bit {bit} of byte {length}");
            }
        }
    }
}
