//! What the bundled platforms reproduce of the figures that their numbers were fitted to.

#![allow(clippy::unwrap_used, reason = "tests")]

use niclab_model::conventional::Conventional;
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::platform::profile::{Price, Profile, WORD_BYTES};
use niclab_model::time::{Span, Time};

/// Bytes of the shortest Ethernet frame without its check sequence, and of what the wire carries around it.
const MIN_FRAME_BYTES: u64 = 60;
const FRAMING_BYTES: u64 = 12;

fn bundled(name: &str) -> (niclab_spec::Profile, Profile) {
    let profile = niclab_spec::Profile::bundled(name).unwrap();
    let prices = niclab_assembly::profile(&profile);
    (profile, prices)
}

/// How long a frame of `bytes` is on the wire of a link, from one end to the other.
fn wire(profile: &niclab_spec::Profile, bytes: u64) -> Span {
    let network = &profile.network;
    let bits = (bytes + FRAMING_BYTES) * 8;
    let serialization_ps = bits * 1_000_000_000_000 / network.link_bandwidth_bits_per_s.value;
    Span::from_ps(serialization_ps + network.link_latency_ns.value * 1_000)
}

/// How long one crossing takes, its latency included.
fn crossing(price: &Price, bytes: u64) -> Span {
    price.occupancy(bytes) + price.latency()
}

/// Payload a second of crossings that follow one another.
fn rate_mb_per_s(price: &Price, bytes: u64) -> f64 {
    bytes as f64 * 1e6 / price.occupancy(bytes).as_ps() as f64
}

#[test]
fn gamma_takes_17_and_14_microseconds_over_descriptors() {
    for (name, paper_ps) in [("fast-ethernet-p133", 17_000_000_u64), ("fast-ethernet-pii350", 14_000_000)] {
        let (profile, prices) = bundled(name);
        let ready = Conventional::new(prices.clone()).transmit(
            Time::ZERO,
            MIN_FRAME_BYTES,
            true,
            &mut NodeBus::default(),
        );
        let arrived = ready + wire(&profile, MIN_FRAME_BYTES);
        let received = Conventional::new(prices).receive(arrived, MIN_FRAME_BYTES, &mut NodeBus::default());
        assert!(received.as_ps().abs_diff(paper_ps) < 100_000, "GAMMA, section 5: {name}: {received:?}");
        let floor_ps = wire(&profile, MIN_FRAME_BYTES).as_ps();
        assert!(floor_ps < 7_000_000, "GAMMA, section 1: the hardware takes 7 us");
    }
}

#[test]
fn a_pci_read_takes_500_ns_and_write_combining_gives_what_grim_measured() {
    let (_, prices) = bundled("pci-32-33");
    let bus = &prices.bus;
    assert_eq!(crossing(&bus.pio_read, 8).as_ps(), 500_000, "ULTRA, section 2");
    let combined = rate_mb_per_s(&bus.pio_write, 32);
    assert!((combined - 106.0).abs() < 1.0, "GRIM, section 5.2: 106 MB/s: {combined}");
    let uncombined = rate_mb_per_s(&bus.pio_write_uncombined, 32);
    assert!((40.0..45.0).contains(&uncombined), "GRIM, section 5.2: 5 to 40 MB/s: {uncombined}");
}

#[test]
fn grim_takes_13_microseconds_for_a_short_message_over_four_channels_and_1_to_inject_it() {
    // Header and slice: 28 bytes of message (GRIM, section 5.1), in whole words. The frame: Ethernet, link, message, check sequence.
    const MESSAGE_BYTES: u64 = 32;
    const FRAME_BYTES: u64 = 14 + 16 + 40 + 4;
    // A processor that goes round over four channels looks at so many on average before it finds one.
    const HALF_LOOKS: u64 = 4 + 1;
    let (profile, prices) = bundled("lanai4-pci");
    let ni = &prices.ni;
    let machine_ps = |name| ni.span(ni.machines.get(name), FRAME_BYTES.div_ceil(WORD_BYTES)).as_ps();
    let card_ps =
        machine_ps("scan") * HALF_LOOKS / 2 + machine_ps("processor_send") + machine_ps("processor_receive");
    let store = &prices.bus.pio_write_uncombined;
    let bus_ps =
        crossing(store, MESSAGE_BYTES).as_ps() + crossing(&prices.bus.dma_write, MESSAGE_BYTES).as_ps();
    let host_ps = prices.host.send_ps + prices.host.receive_ps;
    let total_ps = host_ps + bus_ps + card_ps + wire(&profile, FRAME_BYTES).as_ps();
    assert!(total_ps.abs_diff(13_000_000) < 50_000, "GRIM, section 6.1: 13 us: {total_ps}");
    let overhead_ps = prices.host.send_ps + store.occupancy(MESSAGE_BYTES).as_ps();
    assert_eq!(overhead_ps, 1_000_000, "GRIM, section 6.1: about 1 us");
}

#[test]
fn the_inics_local_bus_caps_it_at_264_megabits() {
    // With traffic both ways a card's bus is crossed twice for each packet sent and twice for each received.
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
