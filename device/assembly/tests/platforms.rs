//! The bundled profiles reproduce the published figures to which they are fitted.

#![allow(clippy::unwrap_used, reason = "tests")]

use niclab_abi::control::Request;
use niclab_abi::gamma::{FRAME_DATA, FRAME_FIRST, FRAME_LAST};
use niclab_abi::rings::{
    OP_RING_START, RING_FIRST, RING_LAST, RING_OWN, RING_RECEIVE, RING_TRANSMIT, RingStart,
};
use niclab_abi::{FromBytes, ToBytes};
use niclab_model::fabric::ethernet::{ETHER_TYPE_CLUSTER, Header, mac_of_node};
use niclab_model::models::gamma::Gamma;
use niclab_model::models::gamma::descriptor::{MODEL, config};
use niclab_model::models::gamma::wire::PROTOCOL;
use niclab_model::nic::alone::Alone;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::nic::registry::{CardContext, Values};
use niclab_model::nic::{DescriptorQueue, Input, Nic, Output};
use niclab_model::platform::profile::{Price, Profile, WORD_BYTES};
use niclab_model::time::{Passage, Span, Time};

/// Bytes of the shortest Ethernet frame without its check sequence, and of the check sequence and preamble on the wire.
const MIN_FRAME_BYTES: u64 = 60;
const FRAMING_BYTES: u64 = 12;

fn bundled(name: &str) -> (niclab_spec::Profile, Profile) {
    let profile = niclab_spec::Profile::bundled(name).unwrap();
    let prices = niclab_assembly::profile(&profile);
    (profile, prices)
}

/// The time of a frame of `bytes` on a link, from the first byte sent to the last byte received.
fn wire(profile: &niclab_spec::Profile, bytes: u64) -> Span {
    let network = &profile.network;
    let bits = (bytes + FRAMING_BYTES) * 8;
    let serialization_ps = bits * 1_000_000_000_000 / network.link_bandwidth_bits_per_s.value;
    Span::from_ps(serialization_ps + network.link_latency_ns.value * 1_000)
}

/// The time of one transaction, with its latency.
fn transaction(price: &Price, bytes: u64) -> Span {
    price.occupancy(bytes) + price.latency()
}

/// Payload per second of consecutive transactions.
fn rate_mb_per_s(price: &Price, bytes: u64) -> f64 {
    bytes as f64 * 1e6 / price.occupancy(bytes).as_ps() as f64
}

/// A GAMMA card with these prices, whose rings are both started. Its host's descriptors and frames are in `memory`.
fn descriptor_card(prices: &Profile, node: u16, memory: &HostMemory) -> Alone<Gamma> {
    let context = CardContext { node, nodes: 2, mtu_bytes: 1_500, profile: prices.clone().into() };
    let mut card = Alone::new(Gamma::new(config(&Values::defaults(&MODEL), context)).unwrap());
    for (ring, first) in [(RING_TRANSMIT, 0), (RING_RECEIVE, 0x1000)] {
        let mut request = vec![0; Request::BYTES + RingStart::BYTES];
        let (head, body) = request.split_at_mut(Request::BYTES);
        Request { operation: OP_RING_START, body_bytes: RingStart::BYTES as u32 }.to_bytes(head).unwrap();
        RingStart { ring, skip_bytes: 8, first, reserved: 0 }.to_bytes(body).unwrap();
        card.handle(Time::ZERO, Input::Control { token: 0, request: &request });
        let _ = drain(&mut card, memory);
    }
    card
}

/// Words of memory, by address.
type HostMemory = std::collections::BTreeMap<u64, u64>;

/// Serves a card's reads from `memory`. Returns the frame that the card sends, if any.
fn drain(card: &mut Alone<Gamma>, memory: &HostMemory) -> Option<(Passage, SharedFrame)> {
    let mut sent = None;
    while let Some(output) = card.poll_output() {
        match output {
            Output::DmaRead { at, token, ranges, into: mut bytes, .. } => {
                for range in ranges {
                    let word = |at: u64| memory.get(&at).copied().unwrap_or(0).to_le_bytes();
                    let part: Vec<u8> = (range.address..).step_by(8).take(64).flat_map(word).collect();
                    bytes.extend_from_slice(&part[..range.bytes as usize]);
                }
                card.handle(at, Input::DmaData { token, bytes, is_whole: true });
            }
            Output::Frame { at: head, tail, frame, .. } => sent = Some((Passage { head, tail }, frame)),
            _ => {}
        }
    }
    sent
}

#[test]
fn gamma_takes_17_and_14_microseconds_over_descriptors() {
    const DATA: u64 = 0x8000;
    for (name, paper_ps) in [("fast-ethernet-p133", 17_000_000_u64), ("fast-ethernet-pii350", 14_000_000)] {
        let (profile, prices) = bundled(name);
        // Ethernet header, the driver's header, and a tag of 16 bytes: less than the shortest frame.
        let header =
            Header { destination: mac_of_node(1), source: mac_of_node(0), ether_type: ETHER_TYPE_CLUSTER };
        let mut frame = header.emit().to_vec();
        let kind = FRAME_DATA | FRAME_FIRST | FRAME_LAST;
        frame.extend([PROTOCOL, kind, 0, 0, 1, 0, 0, 0]);
        frame.extend([0; 16]);
        let mut memory: HostMemory = [
            (0, RING_OWN | RING_FIRST | RING_LAST | (frame.len() as u64) << 32),
            (8, DATA),
            (0x1000, RING_OWN | 0x7ff << 32),
            (0x1008, 0x4000),
        ]
        .into();
        for (place, chunk) in frame.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            memory.insert(DATA + 8 * place as u64, u64::from_le_bytes(word));
        }
        let mut idle = memory.clone();
        idle.insert(0, 0);
        let mut sender = descriptor_card(&prices, 0, &idle);
        let mut receiver = descriptor_card(&prices, 1, &idle);
        let rest = sender.host_clock();
        sender.handle(Time::ZERO, Input::PollDemand { queue: DescriptorQueue::Transmit });
        let (passage, sent) = drain(&mut sender, &memory).expect("the sender sends a frame");
        let tail = passage.head + wire(&profile, MIN_FRAME_BYTES);
        receiver.handle(tail, Input::Frame { frame: &sent, head: passage.head, message: None });
        let _ = drain(&mut receiver, &idle);
        let received = receiver.host_clock();
        assert_eq!(rest, Time::ZERO);
        assert!(received.as_ps().abs_diff(paper_ps) < 100_000, "GAMMA, section 5: {name}: {received:?}");
        let floor_ps = wire(&profile, MIN_FRAME_BYTES).as_ps();
        assert!(floor_ps < 7_000_000, "GAMMA, section 1: the hardware takes 7 us");
    }
}

#[test]
fn pci_read_and_write_combining_match_ultra_and_grim() {
    let (_, prices) = bundled("pci-32-33");
    let bus = &prices.bus;
    assert_eq!(transaction(&bus.pio_read, 8).as_ps(), 500_000, "ULTRA, section 2");
    let combined = rate_mb_per_s(&bus.pio_write, 32);
    assert!((combined - 106.0).abs() < 1.0, "GRIM, section 5.2: 106 MB/s: {combined}");
    let uncombined = rate_mb_per_s(&bus.pio_write_uncombined, 32);
    assert!((40.0..45.0).contains(&uncombined), "GRIM, section 5.2: 5 to 40 MB/s: {uncombined}");
}

#[test]
fn grim_short_message_takes_13_us_and_1_us_of_injection() {
    // Header and slice: 28 bytes of message (GRIM, section 5.1), in whole words. The frame: Ethernet, link, message,
    // check sequence.
    const MESSAGE_BYTES: u64 = 32;
    const FRAME_BYTES: u64 = 14 + 16 + 40 + 4;
    // Average polls of a processor that scans four channels in turn, until it finds the busy one: (4 + 1) / 2.
    const HALF_POLLS: u64 = 4 + 1;
    let (profile, prices) = bundled("lanai4-pci");
    let ni = &prices.ni;
    let machine_ps = |name| ni.span(ni.machines.get(name), FRAME_BYTES.div_ceil(WORD_BYTES)).as_ps();
    let card_ps =
        machine_ps("scan") * HALF_POLLS / 2 + machine_ps("processor_send") + machine_ps("processor_receive");
    let store = &prices.bus.pio_write_uncombined;
    let bus_ps =
        transaction(store, MESSAGE_BYTES).as_ps() + transaction(&prices.bus.dma_write, MESSAGE_BYTES).as_ps();
    let host_ps = prices.host.send_ps + prices.host.receive_ps;
    let total_ps = host_ps + bus_ps + card_ps + wire(&profile, FRAME_BYTES).as_ps();
    assert!(total_ps.abs_diff(13_000_000) < 50_000, "GRIM, section 6.1: 13 us: {total_ps}");
    let overhead_ps = prices.host.send_ps + store.occupancy(MESSAGE_BYTES).as_ps();
    assert_eq!(overhead_ps, 1_000_000, "GRIM, section 6.1: about 1 us");
}

#[test]
fn the_inics_local_bus_caps_it_at_264_megabits() {
    // With traffic in both directions, each packet sent and each received crosses the card's bus twice.
    const PACKET_BYTES: u64 = 1_408;
    let (_, prices) = bundled("i960-32-33");
    let crossing_ps = prices.ni.local_bus.occupancy(PACKET_BYTES).as_ps();
    let mbit_per_s = PACKET_BYTES as f64 * 8e6 / (4 * crossing_ps) as f64;
    assert!((mbit_per_s - 264.0).abs() < 264.0 * 0.005, "INIC, section 5.2: 264 Mb/s: {mbit_per_s}");
}

#[test]
fn a_modern_bus_carries_100_gigabits() {
    let (profile, prices) = bundled("pcie4-100g");
    let rate = rate_mb_per_s(&prices.bus.dma_write, 64 * 1024);
    assert!(rate * 8e6 > profile.network.link_bandwidth_bits_per_s.value as f64, "{rate}");
}
