//! Peer devices on the bus of a GRIM card: they answer, store and bridge messages without their host.

use std::collections::VecDeque;

use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
use niclab_abi::grim::{
    CHANNEL_APPLIED, CHANNEL_APPLY, CHANNEL_BRIDGE, CHANNEL_BRIDGED, CHANNEL_LOAD, CHANNEL_LOADED,
    CHANNEL_PING, CHANNEL_PONG, CHANNEL_STORE, CHANNEL_STORED, CHANNEL_UNKNOWN, bridge_ports,
};
use niclab_abi::receive::REFUSED_MEMORY;
use niclab_model::fabric::ethernet::{mac_of_endpoint, mac_of_node};
use niclab_model::models::grim::Config;
use niclab_model::models::grim::peripherals::KINDS;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::nic::{Nic, Observed};
use niclab_model::platform::ledger::{Ledger, Transaction};
use proptest::prelude::*;

use crate::support::grim::{Came, Faults, Message, PLAIN, To, Wire, config};
use crate::support::matching::pattern;

const REGION: u64 = 48 << 10;
const MAX_STEPS: u32 = 2_000_000;
/// Maximum number of frames and deadlines between two messages that a program sends or receives.
const MAX_STEPS_WITHOUT_PROGRESS: u32 = 20_000;
/// Maximum number of polls of the programs once no frame or deadline is left. A poll takes a message with a chance of
/// one in eight.
const MAX_IDLE_POLLS: u32 = 1_000;
const IO_CARD: u8 = 7;
const FUNCTION_CARD: u8 = 6;

fn with_cards(node: u16) -> Config {
    let peripherals = vec![(IO_CARD, KINDS[0]), (FUNCTION_CARD, KINDS[1])];
    Config { peripherals, ..config(node, 3) }
}

/// Node 0 has programs at its ports 0 and 1, node 1 the peer devices, and node 2 a program.
fn wire(faults: Faults, seed: u64) -> Wire {
    let mut wire = Wire::new(seed, faults, 3, |node| if node == 1 { with_cards(1) } else { config(node, 3) });
    for (node, port) in [(0, 0), (0, 1), (2, 0)] {
        wire.open(node, port, PLAIN);
    }
    wire
}

fn rest(wire: &mut Wire) {
    let mut steps = 0;
    while wire.step() {
        steps += 1;
        assert!(steps < MAX_STEPS, "it never rests");
    }
}

fn message(endpoint: u8, handler: u32, arguments: [u32; 4], payload: Vec<u8>) -> Message {
    let to = To::Handler { handler, arguments };
    Message { node: 1, endpoint: endpoint.into(), to, payload, segment: 32, interrupt: false }
}

/// Sends a message from port 0 of node 0. Returns its only answer.
fn ask(wire: &mut Wire, message: &Message) -> Came {
    assert!(wire.send(0, 0, message, REGION));
    rest(wire);
    let came = wire.receive(0, 0).expect("an answer");
    wire.release(0, 0);
    rest(wire);
    assert_eq!(wire.receive(0, 0), None, "one answer");
    came
}

fn kinds(ledger: &Ledger) -> Vec<(Transaction, u64)> {
    let lines = ledger.lines().filter(|(_, line)| line.count > 0);
    lines.map(|(transaction, line)| (transaction, line.count)).collect()
}

#[test]
fn a_ping_is_answered_without_the_host() {
    for bytes in [0_usize, 100, 48 << 10] {
        let mut wire = wire(Faults::default(), 1);
        let arguments = [1, 2, 3, 4];
        let came = ask(&mut wire, &message(IO_CARD, CHANNEL_PING, arguments, pattern(7, bytes)));
        let expected = Came {
            node: 1,
            channel: IO_CARD,
            handler: CHANNEL_PONG,
            arguments,
            payload: pattern(7, bytes),
            interrupt: false,
        };
        assert!(came == expected, "{bytes} bytes");
        let nic = &wire.hosts[1].nic.nic;
        let crossed = |ledger: &Ledger| ledger.line(Transaction::DeviceToDevice).bytes;
        // The header in each direction, the payload in each direction, and the word that reports free room.
        let told = if bytes == 0 { 0 } else { 8 };
        assert_eq!(crossed(nic.ledger()), 32 + bytes as u64 + told);
        assert_eq!(crossed(nic.peripherals()[0].1), 32 + bytes as u64);
        for ledger in [nic.ledger(), nic.peripherals()[0].1] {
            let of_host = kinds(ledger).into_iter().filter(|(transaction, _)| {
                !matches!(transaction, Transaction::DeviceToDevice | Transaction::NiCycles)
            });
            assert_eq!(of_host.collect::<Vec<_>>(), [], "no transaction of the host");
        }
        assert_eq!(kinds(nic.peripherals()[1].1), [], "the other card has nothing to do");
    }
}

#[test]
fn a_message_of_one_frame_crosses_the_bus_once_each_way() {
    let mut wire = wire(Faults::default(), 1);
    ask(&mut wire, &message(IO_CARD, CHANNEL_PING, [0; 4], Vec::new()));
    let nic = &wire.hosts[1].nic.nic;
    let count = |ledger: &Ledger| ledger.line(Transaction::DeviceToDevice).count;
    assert_eq!((count(nic.ledger()), count(nic.peripherals()[0].1)), (1, 1));
}

#[test]
fn blocks_are_stored_and_loaded() {
    let mut wire = wire(Faults::default(), 1);
    let blocks = pattern(3, 20 * 512);
    let stored = ask(&mut wire, &message(IO_CARD, CHANNEL_STORE, [40, 1, 2, 3], blocks.clone()));
    assert_eq!((stored.handler, stored.arguments), (CHANNEL_STORED, [20, 1, 2, 3]));
    let loaded = ask(&mut wire, &message(IO_CARD, CHANNEL_LOAD, [41, 19, 8, 9], Vec::new()));
    assert_eq!((loaded.handler, loaded.arguments), (CHANNEL_LOADED, [41, 19, 8, 9]));
    assert!(loaded.payload == blocks[512..]);
    let none = ask(&mut wire, &message(IO_CARD, CHANNEL_LOAD, [0, 200, 8, 9], Vec::new()));
    assert_eq!((none.arguments, none.payload.len()), ([0, 0, 8, 9], 0));
}

#[test]
fn a_function_is_applied_to_what_comes() {
    let mut wire = wire(Faults::default(), 1);
    // The check value of CRC-32 (ISO-HDLC).
    let came = ask(&mut wire, &message(FUNCTION_CARD, CHANNEL_APPLY, [5; 4], b"123456789".to_vec()));
    assert_eq!((came.handler, came.channel, came.arguments), (CHANNEL_APPLIED, FUNCTION_CARD, [5; 4]));
    assert_eq!(came.payload, 0xcbf4_3926_u32.to_be_bytes());
}

#[test]
fn unknown_handlers_and_memory_writes_are_refused() {
    let mut wire = wire(Faults::default(), 1);
    let came = ask(&mut wire, &message(FUNCTION_CARD, CHANNEL_STORE, [9; 4], Vec::new()));
    assert_eq!((came.handler, came.arguments), (CHANNEL_UNKNOWN, [CHANNEL_STORE, 0, 0, 0]));
    let memory =
        Message { to: To::Memory { region: 0, place: 0 }, ..message(IO_CARD, 0, [0; 4], pattern(1, 100)) };
    assert!(wire.send(0, 0, &memory, REGION));
    rest(&mut wire);
    let line = wire.hosts[0].line(0);
    assert_eq!((line.refused, line.refusal), (1, REFUSED_MEMORY));
}

#[test]
fn a_program_cannot_open_a_peripherals_port() {
    use niclab_abi::control::{OP_PORT_OPEN, PortOpen};

    use crate::support::request;
    let mut wire = wire(Faults::default(), 1);
    let open = PortOpen { port: IO_CARD.into(), slices: 8, slices_address: 0x1000, ..PortOpen::default() };
    assert_ne!(wire.control(1, &request(OP_PORT_OPEN, &open)).0, 0);
    assert!(!wire.hosts[1].nic.nic.is_open(IO_CARD.into()));
    wire.host_reset(1);
    let came = ask(&mut wire, &message(IO_CARD, CHANNEL_PING, [1; 4], Vec::new()));
    assert_eq!(came.handler, CHANNEL_PONG, "the peer device survives a reset of its host");
}

const OWN: [u8; 4] = [10, 9, 8, 7];
const SOCKET: [u8; 4] = [10, 9, 8, 3];

#[test]
fn a_bridged_message_crosses_the_bus_once_and_is_answered() {
    let mut wire = wire(Faults::default(), 1);
    wire.record = Some(Vec::new());
    let arguments = [2, u32::from_be_bytes(SOCKET), u32::from_be_bytes(OWN), bridge_ports(4_000, 53)];
    assert!(wire.send(
        0,
        0,
        &message(IO_CARD, CHANNEL_BRIDGE, arguments, b"over the bridge".to_vec()),
        REGION
    ));
    rest(&mut wire);
    let sent = wire.record.take().unwrap();
    let frame = sent.iter().find(|sent| sent.frame[12..14] == [8, 0]).expect("a frame of IPv4");
    assert_eq!((frame.from, &frame.frame[..6]), (1, &mac_of_node(2)[..]));
    let packet = SlicedPacket::from_ethernet(&frame.frame).unwrap();
    let Some(TransportSlice::Udp(udp)) = packet.transport else { panic!("a datagram") };
    assert_eq!((udp.destination_port(), udp.payload()), (53, &b"over the bridge"[..]));
    let nic = &wire.hosts[1].nic.nic;
    let crossed: Vec<_> = [nic.ledger(), nic.peripherals()[0].1].map(kinds).concat();
    let on_bus = crossed.iter().filter(|(transaction, _)| *transaction != Transaction::NiCycles);
    // The payload, followed by its header.
    assert_eq!(on_bus.collect::<Vec<_>>(), [&(Transaction::DeviceToDevice, 2)]);
    let mut bytes = Vec::new();
    let answer = PacketBuilder::ethernet2(mac_of_node(2), mac_of_endpoint(1, IO_CARD)).ipv4(SOCKET, OWN, 64);
    answer.udp(53, 4_000).write_to_vec(&mut bytes, b"answer").unwrap();
    wire.inject(1, &SharedFrame::from(bytes.as_slice()));
    rest(&mut wire);
    let came = wire.receive(0, 0).expect("the answer");
    let arguments = [2, u32::from_be_bytes(SOCKET), u32::from_be_bytes(OWN), bridge_ports(53, 4_000)];
    assert_eq!((came.handler, came.arguments), (CHANNEL_BRIDGED, arguments));
    assert_eq!((came.node, came.channel, &*came.payload), (1, IO_CARD, &b"answer"[..]));
}

#[test]
fn a_flooded_ethernet_port_drops_frames_and_keeps_working() {
    let mut wire = wire(Faults::default(), 1);
    let mut bytes = Vec::new();
    let packet = PacketBuilder::ethernet2(mac_of_node(2), mac_of_endpoint(1, IO_CARD)).ipv4(SOCKET, OWN, 64);
    packet.udp(1, 2).write_to_vec(&mut bytes, &[0; 1_000]).unwrap();
    let frame = SharedFrame::from(bytes.as_slice());
    for _ in 0..1_000 {
        wire.inject(1, &frame);
    }
    assert!(wire.hosts[1].counter("peripheral_dropped_frames") > 900);
    let came = ask(&mut wire, &message(IO_CARD, CHANNEL_PING, [1; 4], Vec::new()));
    assert_eq!(came.handler, CHANNEL_PONG);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Three programs send more messages than any memory on the path holds, over links that lose and damage frames.
    /// Each program gets its own messages back in order, and no memory leaks.
    #[test]
    fn pings_from_three_programs_are_answered_in_order(seed: u64, lost in 0..60_u32, damaged in 0..30_u32) {
        let mut wire = wire(Faults { lost, damaged, ..Faults::default() }, seed);
        let mut random = niclab_model::random::Random::new(seed, 1);
        let programs = [(0_usize, 0_u32), (0, 1), (2, 0)];
        let mut in_flight = [(); 3].map(|()| VecDeque::new());
        let mut left = [60_u32; 3];
        let mut idle = 0;
        while left.iter().sum::<u32>() > 0 || in_flight.iter().any(|sent: &VecDeque<Message>| !sent.is_empty()) {
            idle += 1;
            for (place, &(node, port)) in programs.iter().enumerate() {
                let number = left[place];
                let bytes = if random.below(2) == 0 { 0 } else { random.below(48 << 10) as usize };
                if number > 0 && wire.has_room(node, port, bytes as u64, REGION) {
                    let ping = message(IO_CARD, CHANNEL_PING, [number, 0, 1, 2], pattern(number.into(), bytes));
                    assert!(wire.send(node, port, &ping, REGION));
                    in_flight[place].push_back(ping);
                    left[place] -= 1;
                    idle = 0;
                }
                // Slow programs make the card wait.
                if random.below(8) == 0 && let Some(came) = wire.receive(node, port) {
                    wire.release(node, port);
                    idle = 0;
                    let sent = in_flight[place].pop_front().expect("a message that was sent");
                    let To::Handler { arguments, .. } = sent.to else { panic!() };
                    prop_assert_eq!((came.handler, came.arguments), (CHANNEL_PONG, arguments));
                    prop_assert!(came.payload == sent.payload);
                }
            }
            // Frames and deadlines without an effect end, too: every wait has a time-out.
            let most = if wire.step() { MAX_STEPS_WITHOUT_PROGRESS } else { MAX_IDLE_POLLS };
            let unanswered = in_flight.each_ref().map(VecDeque::len);
            prop_assert!(idle < most, "no progress: {:?} unsent, {:?} unanswered", left, unanswered);
        }
        rest(&mut wire);
        wire.check_memory();
        prop_assert_eq!(wire.hosts[1].counter("peripheral_handled"), 180);
    }
}
