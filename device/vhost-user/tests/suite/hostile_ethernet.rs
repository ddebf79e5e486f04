//! Ethernet functions of guests that violate the rules, or have no room.

use std::sync::Arc;

use crate::common::endpoint_card::EndpointCard;
use crate::common::{TIMEOUT, frame, lab, until, violations};
use niclab_device::ethernet::header::{Checksum, Family, HEADER_BYTES, Offload, Segmentation};
use niclab_device::ethernet::{Negotiated, QUEUE_RECEIVE, QUEUE_TRANSMIT};
use niclab_device::frontend::{Connection, DriverRing, GuestMemory};
use niclab_device::lab::Lab;
use niclab_device::ring::Buffer;
use niclab_model::fabric::ethernet::BROADCAST;
use virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;

/// Checks that an unrelated node gets its reply. Otherwise the front end times out.
fn assert_bystander_is_answered(lab: &Lab, node: usize) {
    let bystander = lab.guest(node).unwrap();
    bystander.statistics().unwrap();
}

#[test]
fn frame_waits_for_room_in_the_receive_queue() {
    let lab = lab(3);
    // 256 buffers of 64 bytes: ten frames of 1,500 bytes take 24 each, and 16 are left, too few for the eleventh.
    let mut receiver = lab.ethernet_with(0, 256, 64, 1 << VIRTIO_NET_F_MRG_RXBUF).unwrap();
    let mut sender = lab.ethernet(1, 0).unwrap();
    let frames: Vec<_> = (0..20).map(|n| frame(lab.mac(1), lab.mac(0), 1_500 - n)).collect();
    for frame in &frames {
        assert!(sender.send(frame).unwrap());
    }
    assert_bystander_is_answered(&lab, 2);
    // All of them arrive when the guest receives again.
    for frame in &frames {
        assert_eq!(&receiver.receive(TIMEOUT).unwrap().1, frame);
    }
    assert_eq!(violations(&lab, 0).get("ethernet_receive_queue_small"), None);
}

#[test]
fn frame_larger_than_the_whole_receive_queue_is_dropped() {
    let lab = lab(3);
    let mut receiver = lab.ethernet_with(0, 16, 64, 1 << VIRTIO_NET_F_MRG_RXBUF).unwrap();
    let mut sender = lab.ethernet(1, 0).unwrap();
    sender.send(&frame(lab.mac(1), lab.mac(0), 1_500)).unwrap();
    until("it is dropped", || violations(&lab, 0).contains_key("ethernet_receive_queue_small"));
    assert_bystander_is_answered(&lab, 2);
    let fits = frame(lab.mac(1), lab.mac(0), 500);
    sender.send(&fits).unwrap();
    assert_eq!(receiver.receive(TIMEOUT).unwrap().1, fits);
}

#[test]
fn long_frame_with_too_many_segments_is_discarded() {
    let lab = lab(2);
    let mut hostile = lab.ethernet_with(0, 256, 66_000, Negotiated::OFFERED).unwrap();
    let mut other = lab.ethernet(1, 0).unwrap();
    let mut long = frame(lab.mac(0), lab.mac(1), 34 + 20 + 8 * 1_025);
    long[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    long[46] = 5 << 4;
    let segments_of = |payload_bytes| Offload {
        checksum: Some(Checksum { start: 34, offset: 16 }),
        segmentation: Some(Segmentation { family: Family::V4, payload_bytes }),
    };
    for payload_bytes in [1, 7, 8] {
        assert!(hostile.queue(&segments_of(payload_bytes), &long).unwrap());
        hostile.flush().unwrap();
    }
    until("all three", || violations(&lab, 0).get("ethernet_segments") == Some(&3));
    assert!(hostile.queue(&segments_of(1_000), &long).unwrap());
    hostile.flush().unwrap();
    let (_, first) = other.receive(TIMEOUT).unwrap();
    assert_eq!(first.len(), 34 + 20 + 1_000);
}

#[test]
fn doorbell_with_an_impossible_count_is_harmless() {
    let lab = lab(2);
    let mut hostile = lab.ethernet(0, 0).unwrap();
    for ring in [hostile.transmit_ring().kick.try_clone(), hostile.receive_ring().kick.try_clone()] {
        ring.unwrap().write(u64::MAX - 2).unwrap();
    }
    let mut other = lab.ethernet(1, 0).unwrap();
    let sound = frame(lab.mac(0), lab.mac(1), 80);
    hostile.send(&sound).unwrap();
    assert_eq!(other.receive(TIMEOUT).unwrap().1, sound);
    assert_bystander_is_answered(&lab, 1);
}

/// The Ethernet function of a node whose queues and buffers are in memory that it shares with other nodes.
struct Function {
    receive: DriverRing,
    transmit: DriverRing,
    _connection: Connection,
}

impl Function {
    fn new(lab: &Lab, node: usize, memory: &Arc<GuestMemory>) -> Self {
        let features = 1 << VIRTIO_NET_F_MRG_RXBUF;
        let socket = lab.ethernet_socket(node).unwrap();
        let mut connection = Connection::new(socket, 2, features, memory).unwrap();
        let [receive, transmit] = [(); 2].map(|()| DriverRing::new(memory, 16).unwrap());
        connection.start_queue(QUEUE_RECEIVE, &receive, memory).unwrap();
        connection.start_queue(QUEUE_TRANSMIT, &transmit, memory).unwrap();
        until("the queues", || {
            receive.ring().unwrap();
            lab.daemon().shell().lock_all().common.ethernet.functions[node].vrings.len() == 2
        });
        Self { receive, transmit, _connection: connection }
    }
}

/// A cluster whose nodes 0 and 1 share one memory. The device's stores for node 1 change the frame of node 0 between
/// its check and its copy, as a race would, but every time.
fn shared_memory() -> (Lab, Arc<GuestMemory>, [Function; 2]) {
    let lab = lab(2);
    let memory = Arc::new(GuestMemory::new(1 << 20).unwrap());
    let functions = [0, 1].map(|node| Function::new(&lab, node, &memory));
    (lab, memory, functions)
}

const READ: fn(u64, usize) -> Buffer =
    |address, bytes| Buffer { address, bytes: bytes as u32, writable: false };

#[test]
fn frame_that_changes_after_its_check_is_not_forged() {
    let (lab, memory, [mut sender, mut receiver]) = shared_memory();
    let wire = EndpointCard::put(&lab, 1);
    let place = memory.allocate(4_096, 64).unwrap() + 64;
    let mut sent = frame(lab.mac(0), BROADCAST, 100);
    // Moved down by four bytes, it becomes a frame of the cluster.
    sent[16..18].copy_from_slice(&[0x88, 0xb5]);
    let bytes = [&[0; HEADER_BYTES], &*sent].concat();
    memory.slice(place, bytes.len()).unwrap().copy_from(&bytes);
    // The device stores a header and the frame there, so that the frame overwrites itself four bytes lower.
    let buffer = Buffer { address: place - 4, bytes: 1_024, writable: true };
    receiver.receive.add(&[buffer]).unwrap();
    receiver.receive.notify().unwrap();
    sender.transmit.add(&[READ(place, bytes.len())]).unwrap();
    sender.transmit.notify().unwrap();
    until("the frame", || !wire.lock().heard.is_empty());
    let mut ether_type = [0_u8; 2];
    memory.slice(place + 24, 2).unwrap().copy_to(&mut ether_type);
    assert_eq!(ether_type, [0x88, 0xb5], "the frame in memory has changed");
    let heard = &wire.lock().heard;
    assert_eq!(heard.len(), 1);
    assert!(heard[0].1 == sent, "the frame that was checked: {:02x?}", &heard[0].1[..18]);
}

#[test]
fn checked_head_of_a_frame_is_the_head_that_arrives() {
    let (lab, memory, [mut sender, mut receiver]) = shared_memory();
    let sent = frame(lab.mac(0), lab.mac(1), 100);
    for is_batch in [true, false] {
        let area = memory.allocate(8_192, 64).unwrap();
        let places = [area + 64, area + 4_096];
        let mut frames_at = Vec::new();
        for place in places {
            let at = place + HEADER_BYTES as u64;
            memory.slice(at, sent.len()).unwrap().copy_from(&sent);
            // The device stores virtio-net's header over most of the frame's own header, before it copies the frame.
            let buffer = Buffer { address: at + 2, bytes: 1_024, writable: true };
            receiver.receive.add(&[buffer]).unwrap();
            let pieces = [READ(place, HEADER_BYTES), READ(at, sent.len())];
            let whole = [READ(place, HEADER_BYTES + sent.len())];
            sender.transmit.add(if is_batch { &whole[..] } else { &pieces[..] }).unwrap();
            frames_at.push(at + 2 + HEADER_BYTES as u64);
        }
        receiver.receive.show().unwrap();
        sender.transmit.notify().unwrap();
        for at in frames_at {
            until("the frame", || receiver.receive.poll_used().unwrap().is_some());
            let mut head = [0_u8; 14];
            memory.slice(at, head.len()).unwrap().copy_to(&mut head);
            assert_eq!(head, sent[..14], "batch: {is_batch}");
        }
        let batched = lab.daemon().shell().lock_all().common.ethernet.states[0].batched;
        assert_eq!(batched, 2, "only the first two frames are a batch");
    }
}
