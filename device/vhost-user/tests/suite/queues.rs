//! The Ethernet function with several queue pairs.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use niclab_device::ethernet::receive::BACKLOG_FRAMES;
use niclab_device::frontend::{EthernetGuest, QueuePair};
use niclab_device::lab::Lab;

use crate::common::{frame, lab_with, stats, until};

const MERGEABLE: u64 = 1 << 15;
const QUEUE_SIZE: u16 = 256;

/// Requests of vhost-user.
const GET_FEATURES: u32 = 1;
const SET_OWNER: u32 = 3;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const GET_QUEUE_NUM: u32 = 17;
const SET_VRING_ENABLE: u32 = 18;

/// Two nodes, each with this number of pairs.
fn lab(pairs: usize) -> Lab {
    lab_with(2, |config| config.nodes.iter_mut().for_each(|node| node.queues = pairs as u32))
}

fn guest(lab: &Lab, node: usize, pairs: usize) -> EthernetGuest {
    lab.ethernet_pairs(node, pairs, QUEUE_SIZE, 2048, MERGEABLE).unwrap()
}

fn guests(lab: &Lab, pairs: usize) -> [EthernetGuest; 2] {
    [0, 1].map(|node| guest(lab, node, pairs))
}

/// A datagram with its number. The source port distinguishes its flow from others.
fn datagram(lab: &Lab, port: u16, number: u32) -> Vec<u8> {
    let mut bytes = frame(lab.mac(0), lab.mac(1), 60);
    bytes[12..24].copy_from_slice(&[0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    bytes[26..34].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
    bytes[34..36].copy_from_slice(&port.to_be_bytes());
    bytes[36..38].copy_from_slice(&5001_u16.to_be_bytes());
    bytes[42..46].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Port and number of each datagram that a guest has received, by pair.
fn received(guest: &mut EthernetGuest) -> Vec<Vec<(u16, u32)>> {
    let of_pair = |pair: &mut QueuePair| {
        let mut all = Vec::new();
        while let Some((_, bytes)) = pair.try_receive().unwrap() {
            let port = u16::from_be_bytes([bytes[34], bytes[35]]);
            all.push((port, u32::from_be_bytes(*bytes[42..].first_chunk().unwrap())));
        }
        all
    };
    guest.pairs().iter_mut().map(of_pair).collect()
}

/// Sends a datagram of each of `flows` flows on the first pair, and returns how many arrive on each pair.
fn exchange(lab: &Lab, [from, to]: &mut [EthernetGuest; 2], flows: u16) -> Vec<usize> {
    for port in 0..flows {
        assert!(from.send(&datagram(lab, port, 0)).unwrap());
    }
    let mut counts = vec![0; to.pairs().len()];
    until("all frames", || {
        counts.iter_mut().zip(received(to)).for_each(|(count, new)| *count += new.len());
        counts.iter().sum::<usize>() == usize::from(flows)
    });
    counts
}

#[test]
fn flow_stays_in_order_on_one_pair_and_every_pair_gets_flows() {
    const FLOWS: u16 = 16;
    const FRAMES: u32 = 100;
    for pairs in [1, 2, 4, 32] {
        let flows = FLOWS.max(8 * pairs as u16);
        let lab = lab(pairs);
        let [mut from, mut to] = guests(&lab, pairs);
        let mut by_pair: Vec<BTreeMap<u16, u32>> = vec![BTreeMap::new(); pairs];
        let mut count = 0;
        let mut take = |to: &mut EthernetGuest, count: &mut u32| {
            for (flows, received) in by_pair.iter_mut().zip(received(to)) {
                for (port, number) in received {
                    let next = flows.entry(port).or_default();
                    assert_eq!(number, *next, "flow {port} with {pairs} pairs");
                    *next += 1;
                    *count += 1;
                }
            }
        };
        for number in 0..FRAMES {
            for port in 0..flows {
                let sent = datagram(&lab, port, number);
                until("room to send", || {
                    take(&mut to, &mut count);
                    from.pairs()[usize::from(port) % pairs].send(&sent).unwrap()
                });
            }
        }
        until("all frames", || {
            take(&mut to, &mut count);
            count == u32::from(flows) * FRAMES
        });
        for (pair, flows) in by_pair.iter().enumerate() {
            assert!(!flows.is_empty(), "pair {pair} of {pairs} got nothing");
            assert!(flows.values().all(|frames| *frames == FRAMES), "a flow came on two pairs: {by_pair:?}");
        }
    }
}

#[test]
fn pair_that_is_off_gets_no_frames() {
    let lab = lab(2);
    let mut guests = guests(&lab, 2);
    let is_on_both = |counts: Vec<usize>| counts.iter().all(|count| *count > 0);
    assert!(is_on_both(exchange(&lab, &mut guests, 32)));
    guests[1].enable_pair(1, false).unwrap();
    guests[1].connection().queue_count().unwrap();
    assert_eq!(exchange(&lab, &mut guests, 32), [32, 0]);
    guests[1].enable_pair(1, true).unwrap();
    guests[1].connection().queue_count().unwrap();
    assert!(is_on_both(exchange(&lab, &mut guests, 32)));
    guests[1].enable_pair(0, false).unwrap();
    guests[1].connection().queue_count().unwrap();
    assert_eq!(exchange(&lab, &mut guests, 32), [0, 32], "it may be any pair");
}

#[test]
fn frames_leave_the_transmit_queue_of_a_pair_that_is_off() {
    let lab = lab(2);
    let [mut from, mut to] = guests(&lab, 2);
    from.enable_pair(1, false).unwrap();
    from.connection().queue_count().unwrap();
    assert!(from.pairs()[1].send(&datagram(&lab, 3, 4)).unwrap());
    until("the frame", || received(&mut to).concat() == [(3, 4)]);
}

#[test]
fn guest_with_all_pairs_off_does_not_delay_others() {
    let lab = lab(2);
    let [mut from, mut to] = guests(&lab, 2);
    (0..2).for_each(|pair| to.enable_pair(pair, false).unwrap());
    to.connection().queue_count().unwrap();
    assert!(from.send(&datagram(&lab, 1, 1)).unwrap());
    until("it is dropped", || stats(&lab, 1).ethernet.dropped_frames == 1);
    let back = frame(lab.mac(1), lab.mac(0), 60);
    assert!(to.send(&back).unwrap());
    until("its own frame", || from.pairs().iter_mut().any(|pair| pair.try_receive().unwrap().is_some()));
}

/// Sends datagrams of 64 flows on the first pair: these numbers.
fn flood(lab: &Lab, from: &mut EthernetGuest, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let sent = datagram(lab, (number % 64) as u16, number);
        until("room to send", || from.send(&sent).unwrap());
    }
}

#[test]
fn frames_that_wait_at_a_pair_that_is_turned_off_are_dropped() {
    let lab = lab(2);
    let [mut from, mut to] = guests(&lab, 2);
    let sent = || stats(&lab, 0).ethernet.sent_frames;
    // Both queues are full, and both have a backlog.
    flood(&lab, &mut from, 0..1_024);
    until("all are sent", || sent() == 1_024);
    let dropped = || stats(&lab, 1).ethernet.dropped_frames;
    assert_eq!(dropped(), 0);
    to.enable_pair(1, false).unwrap();
    to.connection().queue_count().unwrap();
    flood(&lab, &mut from, 1_024..1_025);
    until("the backlog of the second pair is dropped", || sent() == 1_025 && dropped() > 0);
    let gone = dropped();
    let mut left = 0;
    until("all others arrive", || {
        left += received(&mut to).iter().map(Vec::len).sum::<usize>() as u64;
        left + gone == 1_025
    });
}

#[test]
fn pair_that_was_off_leaves_no_frame_waiting() {
    let lab = lab(2);
    let [mut from, mut to] = guests(&lab, 2);
    flood(&lab, &mut from, 0..1_024);
    until("all are sent", || stats(&lab, 0).ethernet.sent_frames == 1_024);
    to.enable_pair(1, false).unwrap();
    to.connection().queue_count().unwrap();
    // Receives the frames in the queues, and rings for the returned buffers.
    let mut count = 0;
    until("the first pair's frames", || {
        count += received(&mut to).concat().len();
        count > 700
    });
    to.enable_pair(1, true).unwrap();
    until("the second pair's frames", || {
        count += received(&mut to).concat().len();
        count as u64 + stats(&lab, 1).ethernet.dropped_frames == 1_024
    });
}

#[test]
fn stopped_machine_continues_with_a_pair_off() {
    let lab = lab(2);
    let mut guests = guests(&lab, 2);
    for off in [None, Some(1)] {
        let [from, to] = &mut guests;
        off.into_iter().for_each(|pair| to.enable_pair(pair, false).unwrap());
        to.connection().queue_count().unwrap();
        let dropped = stats(&lab, 1).ethernet.dropped_frames;
        let memory = Arc::clone(to.memory());
        let before = stats(&lab, 0).ethernet.sent_frames;
        to.connection().stop_machine().unwrap();
        flood(&lab, from, 0..64);
        until("all are sent", || stats(&lab, 0).ethernet.sent_frames == before + 64);
        assert!(received(to).concat().is_empty(), "nothing is written into a stopped guest");
        to.connection().continue_machine(&memory).unwrap();
        let mut count = 0;
        until("the frames of the stop", || {
            count += received(to).concat().len();
            count == 64
        });
        assert_eq!(stats(&lab, 1).ethernet.dropped_frames, dropped);
        let counts = exchange(&lab, &mut guests, 32);
        assert_eq!(counts[1] > 0, off.is_none(), "{counts:?}");
    }
}

#[test]
fn backlogs_of_all_pairs_have_one_bound() {
    for pairs in [1, 4] {
        let lab = lab(pairs);
        let [mut from, _to] = guests(&lab, pairs);
        let sent = u32::from(QUEUE_SIZE) * pairs as u32 + 3_000;
        flood(&lab, &mut from, 0..sent);
        until("all are sent", || stats(&lab, 0).ethernet.sent_frames == u64::from(sent));
        let figures = stats(&lab, 1).ethernet;
        let waiting = u64::from(sent) - figures.received_frames - figures.dropped_frames;
        assert_eq!(waiting, BACKLOG_FRAMES as u64, "with {pairs} pairs: {figures:?}");
    }
}

/// One message of vhost-user without descriptors.
fn message(request: u32, body: &[u8]) -> Vec<u8> {
    [&[request, 1, body.len() as u32].map(u32::to_ne_bytes).concat(), body].concat()
}

/// The reply to a message without a body: a number.
fn answer(stream: &mut UnixStream, request: u32) -> u64 {
    stream.write_all(&message(request, &[])).unwrap();
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).expect("the connection is open");
    u64::from_ne_bytes(*reply[12..].first_chunk().unwrap())
}

fn enable(queue: u32, is_on: u32) -> Vec<u8> {
    message(SET_VRING_ENABLE, &[queue, is_on].map(u32::to_ne_bytes).concat())
}

/// QEMU's virtio-net does this when it creates the device, before a guest runs.
#[test]
fn queues_are_enabled_before_features_are_acknowledged() {
    const PROTOCOL_FEATURES: u64 = 1 << 30;
    const MQ: u64 = 1;
    let lab = lab(4);
    let mut stream = UnixStream::connect(lab.ethernet_socket(0).unwrap()).unwrap();
    stream.write_all(&message(SET_OWNER, &[])).unwrap();
    let features = answer(&mut stream, GET_FEATURES);
    assert_eq!(features & (PROTOCOL_FEATURES | 1 << 22), PROTOCOL_FEATURES | 1 << 22, "VIRTIO_NET_F_MQ");
    assert_ne!(answer(&mut stream, GET_PROTOCOL_FEATURES) & MQ, 0);
    stream.write_all(&message(SET_PROTOCOL_FEATURES, &MQ.to_ne_bytes())).unwrap();
    assert_eq!(answer(&mut stream, GET_QUEUE_NUM), 8);
    (0..2).for_each(|queue| stream.write_all(&enable(queue, 1)).unwrap());
    assert_eq!(answer(&mut stream, GET_FEATURES), features, "the daemon has not hung up");
    drop(stream);
    // The next front end is served.
    let [mut from, mut to] = guests(&lab, 4);
    assert!(from.send(&datagram(&lab, 1, 2)).unwrap());
    until("the frame", || received(&mut to).concat() == [(1, 2)]);
}

#[test]
fn front_end_that_enables_an_unknown_queue_is_disconnected() {
    let lab = lab(2);
    let mut guests = guests(&lab, 2);
    for (queue, is_on) in [(4, 1), (5, 0), (0xffff, 1), (u32::MAX, 1), (0, 2), (1, u32::MAX)] {
        let third = lab_with(1, |config| config.nodes[0].queues = 2);
        let mut stream = UnixStream::connect(third.ethernet_socket(0).unwrap()).unwrap();
        stream.write_all(&enable(queue, is_on)).unwrap();
        let closed = stream.read(&mut [0; 8]);
        assert!(matches!(closed, Ok(0) | Err(_)), "queue {queue}, {is_on}: {closed:?}");
        drop(stream);
        assert!(guest(&third, 0, 2).connection().queue_count().is_ok(), "the next one is served");
    }
    assert!(exchange(&lab, &mut guests, 32).iter().all(|count| *count > 0));
}

#[test]
fn one_pair_has_neither_protocol_features_nor_relay() {
    let lab = lab(1);
    let mut guests = guests(&lab, 1);
    assert_eq!(guests[0].connection().features() & (1 << 30 | 1 << 22), 0);
    assert!(guests[0].connection().queue_count().is_err());
    let socket = lab.ethernet_socket(0).unwrap();
    assert!(!socket.with_file_name(format!("{}+", socket.file_name().unwrap().display())).exists());
    assert_eq!(exchange(&lab, &mut guests, 32), [32]);
}
