//! The Ethernet function through its sockets: frames, offloads, backlog, faults.

use crate::common::tcp::{long_offload, tcp};
use crate::common::{TIMEOUT, frame, lab, pair, stats, until, violations};
use niclab_device::ethernet::Negotiated;
use niclab_device::ethernet::header::{Checksum, Family, Offload, Segmentation};
use niclab_device::frontend::EthernetGuest;
use niclab_device::shell::locks::LockedNodes;
use niclab_model::platform::ledger::Transaction;
use niclab_spec::monitor::{Answer, Request};
use niclab_spec::{Faults, FaultsChange};

const NONE: u64 = 0;
const MERGEABLE: u64 = 1 << 15;

#[test]
fn frames_reach_their_address_and_broadcasts_all_other_nodes() {
    let lab = lab(3);
    let mut guests: Vec<EthernetGuest> = (0..3).map(|node| lab.ethernet(node, MERGEABLE).unwrap()).collect();
    let unicast = frame(lab.mac(0), lab.mac(2), 60);
    assert!(guests[0].send(&unicast).unwrap());
    assert_eq!(guests[2].receive(TIMEOUT).unwrap(), (Offload::default(), unicast));
    let broadcast = frame(lab.mac(0), [0xff; 6], 1514);
    assert!(guests[0].send(&broadcast).unwrap());
    assert_eq!(guests[1].receive(TIMEOUT).unwrap().1, broadcast, "the broadcast is the first frame");
    assert_eq!(guests[2].receive(TIMEOUT).unwrap().1, broadcast);
    assert!(guests[0].try_receive().unwrap().is_none());
}

#[test]
fn offloads_pass_if_both_ends_support_them() {
    let lab = lab(2);
    let mut from = lab.ethernet(0, Negotiated::OFFERED).unwrap();
    let mut to = lab.ethernet(1, Negotiated::OFFERED).unwrap();
    let (long, checksum) = tcp(lab.mac(0), lab.mac(1), 20_000);
    assert!(from.queue(&long_offload(checksum), &long).unwrap());
    from.flush().unwrap();
    assert_eq!(to.receive(TIMEOUT).unwrap(), (long_offload(checksum), long));
    // The wire saw 15 frames: 14 of 1400 bytes and one of 400.
    let locked = lab.daemon().shell().lock_all();
    let counters = *locked.nodes[0].port.counters();
    assert_eq!((counters.frames_in, counters.bytes_in), (15, 15 * 54 + 20_000));
}

/// A frame with these VLAN tags after its addresses.
fn tagged(mut frame: Vec<u8>, tags: &[u16]) -> Vec<u8> {
    let bytes = tags.iter().flat_map(|tag| [tag.to_be_bytes(), [0, 100]].concat());
    frame.splice(12..12, bytes.collect::<Vec<_>>());
    frame
}

#[test]
fn vlan_tags_do_not_count_towards_the_mtu() {
    for features in [NONE, MERGEABLE] {
        let lab = lab(2);
        let mut from = lab.ethernet(0, features).unwrap();
        let mut to = lab.ethernet(1, features).unwrap();
        let tags: [&[u16]; 4] = [&[], &[0x8100], &[0x88a8, 0x8100], &[0x8100; 3]];
        for (tags, longest) in tags.into_iter().zip([1_514, 1_518, 1_522, 1_522]) {
            for bytes in [longest, longest + 1] {
                let untagged = frame(lab.mac(0), lab.mac(1), bytes - 4 * tags.len());
                let sent = tagged(untagged, tags);
                until("room to send", || from.send(&sent).unwrap());
            }
            let expected = tagged(frame(lab.mac(0), lab.mac(1), longest - 4 * tags.len()), tags);
            assert_eq!(to.receive(TIMEOUT).unwrap().1, expected);
        }
        until("four frames are too long", || stats(&lab, 0).link_events.get("dropped_long") == Some(&4));
        assert!(to.try_receive().unwrap().is_none());
    }
}

#[test]
fn long_frames_with_a_vlan_tag_are_split_into_full_frames() {
    let lab = lab(2);
    let mut from = lab.ethernet(0, Negotiated::OFFERED).unwrap();
    let mut to = lab.ethernet(1, Negotiated::OFFERED).unwrap();
    let (long, checksum) = tcp(lab.mac(0), lab.mac(1), 20_000);
    let long = tagged(long, &[0x8100]);
    let offload = Offload {
        checksum: Some(Checksum { start: checksum.start + 4, ..checksum }),
        segmentation: Some(Segmentation { family: Family::V4, payload_bytes: 1_460 }),
    };
    assert!(from.queue(&offload, &long).unwrap());
    from.flush().unwrap();
    assert_eq!(to.receive(TIMEOUT).unwrap(), (offload, long));
    // 13 segments of 1,518 bytes and one of 1,078: headers with a tag are 58 bytes.
    let counters = *lab.daemon().shell().lock_all().nodes[0].port.counters();
    assert_eq!((counters.frames_in, counters.bytes_in, counters.dropped_long), (14, 14 * 58 + 20_000, 0));
}

#[test]
fn each_frame_doorbell_and_interrupt_is_priced_once() {
    let lab = lab(3);
    let mut guests: Vec<EthernetGuest> = (0..2).map(|node| lab.ethernet(node, MERGEABLE).unwrap()).collect();
    for index in 0..20 {
        let (from, to) = (index % 2, (index + 1) % 2);
        assert!(guests[from].send(&frame(lab.mac(from), lab.mac(to), 60 + 70 * index)).unwrap());
        guests[to].receive(TIMEOUT).unwrap();
    }
    // No guest is connected there, so the ledger has no price for its host.
    assert!(guests[0].send(&frame(lab.mac(0), lab.mac(2), 60)).unwrap());
    // The daemon counts a doorbell when it is rung, and prices it when the doorbell's thread runs.
    until("the frame without a receiver and all doorbells", || {
        let locked = lab.daemon().shell().lock_all();
        let is_priced = |node| doorbells_priced(&locked, node) == locked.common.ethernet.doorbells(node);
        locked.common.ethernet.states[0].traffic.sent_frames == 11 && (0..3).all(is_priced)
    });
    let locked = lab.daemon().shell().lock_all();
    for (node, (sent, received)) in [(11, 10), (10, 10), (0, 0)].into_iter().enumerate() {
        let state = &locked.common.ethernet.states[node];
        let count = |transaction| state.nic.ledger().line(transaction).count;
        assert_eq!(count(Transaction::HostSend), sent);
        let latency = state.nic.ledger().latency();
        assert_eq!(latency.count(), received);
        assert!(received == 0 || latency.min() > 2 * 105_000, "send and receive overheads of the profile");
        assert_eq!((count(Transaction::DmaRead) > 0, count(Transaction::HostReceive)), (sent > 0, received));
        assert_eq!(count(Transaction::DescriptorFetch), sent + received);
        assert_eq!(count(Transaction::DescriptorWriteBack), sent + received);
        assert_eq!(count(Transaction::HostCopy), sent + received);
        assert_eq!(count(Transaction::Interrupt), state.receive_interrupts + state.transmit_interrupts);
    }
    assert!(locked.common.ethernet.doorbells(0) >= 11);
}

/// How long messages of a ping-pong waited for a node's host. With `with_frames`, each follows a long frame of the
/// Ethernet functions.
fn waited_ps(with_frames: bool) -> u64 {
    const MESSAGES: u64 = 20;
    let lab = lab(2);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let mut ports = pair([&guests[0], &guests[1]]);
    let mut sender = lab.ethernet(0, MERGEABLE).unwrap();
    let mut receiver = lab.ethernet(1, MERGEABLE).unwrap();
    for index in 0..MESSAGES {
        if with_frames {
            assert!(sender.send(&frame(lab.mac(0), lab.mac(1), 1514)).unwrap());
            receiver.receive(TIMEOUT).unwrap();
        }
        for (from, to) in [(0, 1), (1, 0)] {
            assert!(ports[from].try_launch(&[index], [index, 0], 0));
            ports[from].announce();
            until("a message", || ports[to].try_receive().is_some());
        }
    }
    let locked = lab.daemon().shell().lock_all();
    locked.nodes[1].card.nic.ledger().line(Transaction::HostReceive).waited_ps
}

#[test]
fn both_functions_of_a_card_contend_for_one_host_and_bus() {
    assert_eq!(waited_ps(false), 0);
    let waited = waited_ps(true);
    // The receiving host copies the frame while the message after it arrives.
    assert!(waited > 20 * 100_000, "{waited} ps");
}

fn doorbells_priced(locked: &LockedNodes, node: usize) -> u64 {
    locked.common.ethernet.states[node].nic.ledger().line(Transaction::Doorbell).count
}

#[test]
fn receiver_without_offloads_gets_segments_with_checksums() {
    let lab = lab(2);
    let mut from = lab.ethernet(0, Negotiated::OFFERED).unwrap();
    let mut to = lab.ethernet(1, NONE).unwrap();
    let (long, checksum) = tcp(lab.mac(0), lab.mac(1), 5_000);
    assert!(from.queue(&long_offload(checksum), &long).unwrap());
    from.flush().unwrap();
    let mut payload = Vec::new();
    for bytes in [1400, 1400, 1400, 800] {
        let (offload, segment) = to.receive(TIMEOUT).unwrap();
        assert_eq!((offload, segment.len()), (Offload::default(), 54 + bytes));
        payload.extend_from_slice(&segment[54..]);
    }
    assert_eq!(payload, long[54..]);
}

#[test]
fn frames_wait_for_buffers_and_the_wait_is_bounded() {
    let lab = lab(2);
    let mut from = lab.ethernet(0, MERGEABLE).unwrap();
    let mut to = lab.ethernet(1, MERGEABLE).unwrap();
    // 256 buffers, then the backlog.
    for index in 0..600_u32 {
        let mut bytes = frame(lab.mac(0), lab.mac(1), 200);
        bytes[14..18].copy_from_slice(&index.to_le_bytes());
        until("room to send", || from.send(&bytes).unwrap());
    }
    for index in 0..600_u32 {
        let (_, bytes) = to.receive(TIMEOUT).unwrap();
        assert_eq!(bytes[14..18], index.to_le_bytes());
    }
    for _ in 0..4_000 {
        until("room to send", || from.send(&frame(lab.mac(0), lab.mac(1), 1000)).unwrap());
    }
    until("the backlog is full", || stats(&lab, 1).ethernet.dropped_frames > 1_000);
}

#[test]
fn each_link_fault_has_its_effect() {
    let lab = lab(2);
    let mut from = lab.ethernet(0, MERGEABLE).unwrap();
    let mut to = lab.ethernet(1, MERGEABLE).unwrap();
    let set = |faults| {
        let request = Request::SetFaults { node: lab.config().nodes[1].name.clone(), faults };
        niclab_device::monitor::answer(lab.daemon().shell(), &request)
    };
    set(niclab_spec::Faults { loss: 1.0, ..Default::default() });
    from.send(&frame(lab.mac(0), lab.mac(1), 60)).unwrap();
    until("the frame is lost", || stats(&lab, 1).link_events.get("lost") == Some(&1));
    set(niclab_spec::Faults { reorder: 1.0, ..Default::default() });
    // No frame overtakes it: it arrives when the fabric is idle.
    from.send(&frame(lab.mac(0), lab.mac(1), 61)).unwrap();
    assert_eq!(to.receive(TIMEOUT).unwrap().1.len(), 61);
    set(niclab_spec::Faults { corrupt: 1.0, ..Default::default() });
    from.send(&frame(lab.mac(0), lab.mac(1), 62)).unwrap();
    until("the frame is damaged", || stats(&lab, 1).ethernet.dropped_frames == 1);
    set(niclab_spec::Faults { duplicate: 1.0, ..Default::default() });
    from.send(&frame(lab.mac(0), lab.mac(1), 63)).unwrap();
    assert_eq!(to.receive(TIMEOUT).unwrap().1, to.receive(TIMEOUT).unwrap().1);
}

#[test]
fn faults_are_changed_separately_and_invalid_ones_refused() {
    let lab = lab(2);
    let name = lab.config().nodes[1].name.clone();
    let ask = |request: &Request| niclab_device::monitor::answer(lab.daemon().shell(), request);
    let change =
        |node: &str, change: FaultsChange| ask(&Request::ChangeFaults { node: node.to_owned(), change });
    let states = |answer: Answer| match answer {
        Answer::Faults(states) => states.nodes,
        other => panic!("{other:?}"),
    };
    let lossy = states(change(&name, FaultsChange { loss: Some(1.0), ..Default::default() }));
    assert_eq!(lossy[1].faults, Faults { loss: 1.0, ..Default::default() });
    let cut = states(change(&name, FaultsChange { partition: Some(true), ..Default::default() }));
    assert_eq!(cut[1].faults, Faults { loss: 1.0, partition: true, ..Default::default() });
    assert_eq!((&cut[0].faults, &cut[0].name), (&Faults::default(), &lab.config().nodes[0].name));

    let mut from = lab.ethernet(0, MERGEABLE).unwrap();
    from.send(&frame(lab.mac(0), lab.mac(1), 60)).unwrap();
    until("the frame is dropped", || {
        states(ask(&Request::Faults))[1].link_events.get("dropped_down") == Some(&1)
    });
    states(change(&name, FaultsChange { partition: Some(false), ..Default::default() }));
    from.send(&frame(lab.mac(0), lab.mac(1), 60)).unwrap();
    until("the frame is lost", || states(ask(&Request::Faults))[1].link_events.get("lost") == Some(&1));

    for (node, wrong, part) in [
        (name.as_str(), FaultsChange { corrupt: Some(1.5), ..Default::default() }, "`corrupt` is 1.5"),
        (&name, FaultsChange { reorder: Some(f64::NAN), ..Default::default() }, "`reorder` is NaN"),
        (&name, FaultsChange { delay_ns: Some(u64::MAX), ..Default::default() }, "`delay_ns`"),
        ("node9", FaultsChange::default(), "`node9`"),
    ] {
        match change(node, wrong) {
            Answer::Error { message } => assert!(message.contains(part), "{message}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(states(ask(&Request::Faults))[1].faults, lossy[1].faults, "a refusal changes nothing");
}

#[test]
fn ethernet_frame_in_the_name_of_a_port_is_discarded() {
    let lab = lab(2);
    let mut from = lab.ethernet(0, MERGEABLE).unwrap();
    let mut to = lab.ethernet(1, MERGEABLE).unwrap();
    // This holds for any protocol, so that frames of later models cannot be forged either.
    for protocol in 0..=u8::MAX {
        let mut forged = frame(lab.mac(0), lab.mac(1), 100);
        forged[12..14].copy_from_slice(&0x88b5_u16.to_be_bytes());
        forged[14] = protocol;
        until("room to send", || from.send(&forged).unwrap());
    }
    until("room to send", || from.send(&frame(lab.mac(0), lab.mac(1), 70)).unwrap());
    assert_eq!(to.receive(TIMEOUT).unwrap().1.len(), 70);
    assert_eq!(violations(&lab, 0)["ethernet_forged_cluster_frame"], 256);
}
