//! Ordinary frames between Ethernet functions and MAC endpoints of cards.

use niclab_device::shell::ledgers;
use niclab_device::shell::service::ethernet_function;
use std::sync::Arc;

use niclab_device::ethernet::Negotiated;
use niclab_device::ethernet::header::{Family, Offload, Segmentation};
use niclab_device::frontend::EthernetGuest;
use niclab_device::lab::Lab;
use niclab_device::monitor::answer;
use niclab_model::fabric::ethernet::BROADCAST;
use niclab_model::platform::ledger::Transaction;
use niclab_spec::Faults;
use niclab_spec::monitor::Request;
use parking_lot::Mutex;

use crate::common::endpoint_card::{EndpointCard, PERIPHERAL, Wire, send};
use crate::common::tcp::{long_offload, tcp};
use crate::common::{TIMEOUT, frame, lab, lab_with, stats, until};

const MERGEABLE: u64 = 1 << 15;

fn guests(lab: &Lab, nodes: usize, features: u64) -> Vec<EthernetGuest> {
    (0..nodes).map(|node| lab.ethernet(node, features).unwrap()).collect()
}

fn heard(wire: &Mutex<Wire>) -> Vec<Vec<u8>> {
    wire.lock().heard.iter().map(|(_, frame)| frame.clone()).collect()
}

fn set_faults(lab: &Lab, node: usize, faults: Faults) {
    let request = Request::SetFaults { node: lab.config().nodes[node].name.clone(), faults };
    answer(lab.daemon().shell(), &request);
}

#[test]
fn endpoint_frames_reach_functions_and_endpoints_by_address() {
    let lab = lab(3);
    // Node 2 keeps its original card, which has no MAC endpoints.
    let wires = [EndpointCard::put(&lab, 0), EndpointCard::put(&lab, 1)];
    let mut guests = guests(&lab, 3, MERGEABLE);
    let me = EndpointCard::mac(0);
    let to_host = frame(me, lab.mac(1), 60);
    send(&lab, &wires[0], &to_host);
    assert_eq!(guests[1].receive(TIMEOUT).unwrap(), (Offload::default(), to_host));
    let to_endpoint = frame(me, EndpointCard::mac(1), 1_000);
    send(&lab, &wires[0], &to_endpoint);
    assert_eq!(heard(&wires[1]), std::slice::from_ref(&to_endpoint));
    // To its own node through the switch, and by broadcast to its own function.
    let to_own_host = frame(me, lab.mac(0), 62);
    send(&lab, &wires[0], &to_own_host);
    assert_eq!(guests[0].receive(TIMEOUT).unwrap().1, to_own_host);
    let to_all = frame(me, BROADCAST, 64);
    send(&lab, &wires[0], &to_all);
    for guest in &mut guests {
        assert_eq!(guest.receive(TIMEOUT).unwrap().1, to_all, "the broadcast is the next frame");
    }
    assert_eq!(heard(&wires[1]), [to_endpoint, to_all]);
    assert!(heard(&wires[0]).is_empty(), "the endpoint does not receive its own broadcast");
    // A card without MAC endpoints gets no such frame, for any address.
    send(&lab, &wires[0], &frame(me, EndpointCard::mac(2), 66));
    assert_eq!(stats(&lab, 2).ethernet.dropped_frames, 1);
    wires[1].lock().is_deaf = true;
    send(&lab, &wires[0], &frame(me, EndpointCard::mac(1), 68));
    send(&lab, &wires[0], &frame(me, BROADCAST, 70));
    assert_eq!((heard(&wires[1]).len(), stats(&lab, 1).ethernet.dropped_frames), (2, 1));

    let locked = lab.daemon().shell().lock_all();
    let host_receives =
        |node: usize| locked.common.ethernet.states[node].nic.ledger().line(Transaction::HostReceive).count;
    assert_eq!([0, 1, 2].map(host_receives), [3, 3, 2], "each frame is priced once at each function");
    let on_wire = |node| locked.nodes.get(node).map(|node| node.port.counters().frames_in);
    assert_eq!([0, 1, 2].map(on_wire), [Some(7), Some(0), Some(0)]);
    let card = |node: usize| locked.nodes[node].card.counts.traffic;
    assert_eq!((card(0).sent_frames, card(1).received_frames, card(2).received_frames), (7, 2, 0));
    assert!(locked.nodes[2].card.statistics().malformed + locked.nodes[2].card.statistics().crc_errors == 0);
}

#[test]
fn link_faults_apply_to_ordinary_frames_of_cards() {
    let lab = lab(2);
    let wires = [EndpointCard::put(&lab, 0), EndpointCard::put(&lab, 1)];
    let mut guests = guests(&lab, 2, MERGEABLE);
    set_faults(&lab, 1, Faults { corrupt: 1.0, ..Faults::default() });
    for destination in [lab.mac(1), EndpointCard::mac(1), BROADCAST] {
        send(&lab, &wires[0], &frame(EndpointCard::mac(0), destination, 60));
    }
    assert_eq!(stats(&lab, 1).ethernet.dropped_frames, 3);
    assert!(heard(&wires[1]).is_empty() && guests[1].try_receive().unwrap().is_none());
    set_faults(&lab, 1, Faults { duplicate: 1.0, ..Faults::default() });
    let twice = frame(EndpointCard::mac(0), BROADCAST, 62);
    send(&lab, &wires[0], &twice);
    for _ in 0..2 {
        assert_eq!(guests[1].receive(TIMEOUT).unwrap().1, twice);
    }
    assert_eq!(heard(&wires[1]), [twice.clone(), twice]);
    set_faults(&lab, 1, Faults { reorder: 1.0, ..Faults::default() });
    wires[1].lock().heard.clear();
    for destination in [lab.mac(1), EndpointCard::mac(1)] {
        // No frame overtakes either: they arrive when the fabric is idle.
        assert!(guests[0].send(&frame(lab.mac(0), destination, 64)).unwrap());
    }
    assert_eq!(guests[1].receive(TIMEOUT).unwrap().1.len(), 64);
    until("the delayed frame", || heard(&wires[1]).len() == 1);
}

#[test]
fn frames_of_guests_reach_endpoints_complete_and_by_broadcast() {
    let lab = lab(3);
    let wires = [EndpointCard::put(&lab, 0), EndpointCard::put(&lab, 1)];
    let mut guests = guests(&lab, 3, Negotiated::OFFERED);
    let to_endpoint = frame(lab.mac(0), EndpointCard::mac(1), 100);
    assert!(guests[0].send(&to_endpoint).unwrap());
    until("the frame", || heard(&wires[1]) == [to_endpoint.clone()]);
    // A MAC endpoint of the own node, through the switch.
    let to_own = frame(lab.mac(0), EndpointCard::mac(0), 102);
    assert!(guests[0].send(&to_own).unwrap());
    until("the frame of the own node", || heard(&wires[0]) == [to_own.clone()]);
    let to_all = frame(lab.mac(0), BROADCAST, 104);
    assert!(guests[0].send(&to_all).unwrap());
    for guest in &mut guests[1..] {
        assert_eq!(guest.receive(TIMEOUT).unwrap().1, to_all, "the broadcast is the next frame");
    }
    until("both endpoints", || wires.iter().all(|wire| heard(wire).last() == Some(&to_all)));
    assert!(guests[0].try_receive().unwrap().is_none());
    // Only Ethernet functions drop or receive frames for an endpoint that does not exist.
    assert!(guests[0].send(&frame(lab.mac(0), EndpointCard::mac(2), 106)).unwrap());
    until("the frame without a receiver", || stats(&lab, 2).ethernet.dropped_frames == 1);
    assert_eq!(stats(&lab, 2).cluster.received_frames, 0);
    assert!([0, 1].iter().all(|node| stats(&lab, *node).ethernet.dropped_frames == 0));

    // Offloads: for an endpoint the checksum is complete, and each segment is a separate frame.
    wires.iter().for_each(|wire| wire.lock().heard.clear());
    let (long, checksum) = tcp(lab.mac(0), EndpointCard::mac(1), 5_000);
    let short = Offload { checksum: Some(checksum), segmentation: None };
    assert!(guests[0].queue(&short, &long[..54 + 200]).unwrap());
    assert!(guests[0].queue(&long_offload(checksum), &long).unwrap());
    guests[0].flush().unwrap();
    until("a frame and its segments", || heard(&wires[1]).len() == 5);
    let heard = heard(&wires[1]);
    assert_eq!(heard.iter().map(|frame| frame.len() - 54).collect::<Vec<_>>(), [200, 1400, 1400, 1400, 800]);
    assert_eq!(heard[0][54..], long[54..254]);
    assert_eq!(heard[1..].iter().flat_map(|frame| &frame[54..]).copied().collect::<Vec<_>>(), long[54..]);
    for frame in &heard[1..] {
        assert_eq!(sum_of_tcp(frame), 0xffff, "the checksum is complete");
    }
    assert_ne!(heard[0][50..52], long[50..52], "the checksum of the short frame is complete, too");
    // A card without MAC endpoints changes nothing for functions.
    wires.iter().for_each(|wire| wire.lock().is_deaf = true);
    let (long, checksum) = tcp(lab.mac(0), lab.mac(1), 5_000);
    assert!(guests[0].queue(&long_offload(checksum), &long).unwrap());
    guests[0].flush().unwrap();
    assert_eq!(guests[1].receive(TIMEOUT).unwrap(), (long_offload(checksum), long));
}

/// The ones' complement sum of TCP's pseudo header, header and payload, which has only one bits if the checksum is
/// right.
fn sum_of_tcp(frame: &[u8]) -> u32 {
    let length = frame.len() as u32 - 34;
    let words =
        frame[26..].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let sum = words.sum::<u32>() + 6 + length;
    let folded = (sum & 0xffff) + (sum >> 16);
    (folded & 0xffff) + (folded >> 16)
}

/// The endpoint returns all frames of the guest, as far as the guest has room, and other nodes are served in the
/// meantime.
fn flood(lab: &Lab, wire: &Mutex<Wire>) {
    const FRAMES: usize = 5_000;
    wire.lock().answers = true;
    let mut hostile = lab.ethernet(0, MERGEABLE).unwrap();
    for _ in 0..FRAMES {
        let frame = frame(lab.mac(0), EndpointCard::mac(1), 1_500);
        until("room to send", || hostile.send(&frame).unwrap());
    }
    let bystander = lab.guest(2).unwrap();
    bystander.statistics().unwrap();
    until("all frames", || wire.lock().heard.len() == FRAMES);
    let traffic = || stats(lab, 0).ethernet;
    until("all answers", || (traffic().received_frames + traffic().dropped_frames) as usize >= 1_000);
    drop(hostile);
}

#[test]
fn flood_of_an_endpoint_delays_only_its_sender() {
    let lab = lab(3);
    let wire = EndpointCard::put(&lab, 1);
    flood(&lab, &wire);
    until("an empty network", || !lab.daemon().shell().lock_all().common.network.frames.is_moving());
    let sent = lab.daemon().shell().lock_all().nodes[1].card.counts.traffic.sent_frames;
    assert_eq!(sent, 5_000, "each frame was answered");
}

#[test]
fn frames_to_an_endpoint_that_wait_are_at_most_one_budget() {
    const FRAMES: usize = 2_000;
    let lab = lab(2);
    let wire = EndpointCard::put(&lab, 1);
    let mut guest = lab.ethernet(0, MERGEABLE).unwrap();
    let frame = frame(lab.mac(0), EndpointCard::mac(1), 1_500);
    let mut locked = lab.daemon().shell().lock_all();
    let mut queued = 0;
    while queued < FRAMES {
        while queued < FRAMES && guest.queue(&Offload::default(), &frame).unwrap() {
            queued += 1;
        }
        guest.flush().unwrap();
        ethernet_function::transmit(&mut locked, 0, 0);
        let waiting = locked.common.ethernet.states[0].for_mac_endpoints.len();
        assert!(waiting <= 300, "{waiting} waiting frames exceed one budget");
    }
    while ethernet_function::transmit(&mut locked, 0, 0) {}
    assert_eq!(wire.lock().heard.len(), FRAMES);
}

#[test]
fn segments_of_a_broadcast_to_endpoints_have_bounded_memory() {
    const SEGMENTS: usize = 1_000;
    let lab = lab(6);
    let wires: Vec<_> = (1..6).map(|node| EndpointCard::put(&lab, node)).collect();
    let mut guest = lab.ethernet_with(0, 256, 16_384, Negotiated::OFFERED).unwrap();
    let (long, checksum) = tcp(lab.mac(0), BROADCAST, 8 * SEGMENTS);
    let segmentation = Some(Segmentation { family: Family::V4, payload_bytes: 8 });
    let mut locked = lab.daemon().shell().lock_all();
    assert!(guest.queue(&Offload { checksum: Some(checksum), segmentation }, &long).unwrap());
    guest.flush().unwrap();
    while ethernet_function::transmit(&mut locked, 0, 0) {}
    let heard: Vec<usize> = wires.iter().map(|wire| heard(wire).len()).collect();
    assert!(heard.iter().all(|heard| (800..SEGMENTS).contains(heard)), "{heard:?}");
    assert_eq!(heard.iter().sum::<usize>(), 4_096);
}

#[test]
fn peer_device_ledgers_are_reported_and_switched_with_the_cards() {
    let lab = lab(2);
    let wires = [EndpointCard::put(&lab, 0), EndpointCard::put(&lab, 1)];
    send(&lab, &wires[0], &frame(EndpointCard::mac(0), EndpointCard::mac(1), 60));
    let figures = stats(&lab, 1);
    let [peripheral] = &*figures.peripherals else { panic!("{:?}", figures.peripherals) };
    assert_eq!(peripheral.name, PERIPHERAL);
    let [entry] = &*peripheral.ledger else { panic!("{peripheral:?}") };
    assert_eq!((entry.transaction.as_str(), entry.count, entry.bytes), ("device_to_device", 1, 60));
    assert!(entry.model_price_ps > 0 && figures.ledger.is_empty());
    ledgers::set_on(&mut lab.daemon().shell().lock_all(), false);
    send(&lab, &wires[0], &frame(EndpointCard::mac(0), EndpointCard::mac(1), 60));
    assert_eq!(heard(&wires[1]).len(), 2);
    assert_eq!(stats(&lab, 1).peripherals, figures.peripherals);
}

#[test]
fn endpoints_receive_before_lockstep_begins() {
    let lab = lab_with(2, |config| config.lockstep = true);
    let wires: [Arc<Mutex<Wire>>; 2] = [EndpointCard::put(&lab, 0), EndpointCard::put(&lab, 1)];
    let mut guests = guests(&lab, 2, MERGEABLE);
    let to_all = frame(lab.mac(0), BROADCAST, 80);
    assert!(guests[0].send(&to_all).unwrap());
    until("both endpoints", || wires.iter().all(|wire| heard(wire) == [to_all.clone()]));
    assert_eq!(guests[1].receive(TIMEOUT).unwrap().1, to_all);
}
