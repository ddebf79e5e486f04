//! A card with permanent work gets budgets, and connections, resets and the monitor do not wait for the work.

use niclab_device::shell::dispatch;
use niclab_device::shell::idle::deadlines;
use niclab_device::shell::service;
use std::sync::Arc;

use niclab_abi::PAGE_BYTES;
use niclab_abi::grim::{BulkHeader, CHANNEL_BULK, CHANNEL_STORE, ChannelPayload, OP_CHANNEL_PAYLOAD};
use niclab_abi::{FromBytes, to_words};
use niclab_device::frontend::ClusterGuest;
use niclab_device::frontend::matching::{ChannelPort, PostPort};
use niclab_device::lab::Lab;
use niclab_device::monitor::answer;
use niclab_device::shell::locks::LockedNodes;
use niclab_model::time::{Span, Time};
use niclab_port::inic::{Part, Receive, Send};
use niclab_spec::monitor::{Answer, Request};
use niclab_spec::{NicConfig, NicModel, Value};

use crate::common::{lab_with, until};

/// A message whose packets are counted: 65,536 packets of four bytes.
const BYTES: u64 = 256 << 10;
const PACKETS: u64 = BYTES / 4;

/// More packets than a card sends in one budget.
const PACKETS_OF_A_TURN: u64 = 2_000;

/// Four nodes with cards of this model and these parameters. With `is_alone`, no thread of the daemon resumes pending
/// work.
fn lab_of(model: &str, parameters: &[(&str, Value)], is_alone: bool) -> Lab {
    let lab = lab_with(4, |config| {
        let mut nic = NicConfig::of(NicModel::named(model).unwrap());
        for (key, value) in parameters {
            nic.set(key, value.clone()).unwrap();
        }
        config.nodes.iter_mut().for_each(|node| node.nic = nic.clone());
    });
    if is_alone {
        lab.daemon().shell().idle().stop();
    }
    lab
}

/// Cards that send packets of four bytes, and do not wait for acknowledgements.
fn short_packets(is_alone: bool) -> Lab {
    let unreliable = Value::Word("unreliable_ordered".to_owned());
    lab_of("inic", &[("assembly", unreliable), ("packet_bytes", Value::Number(4))], is_alone)
}

/// A guest that posts messages, and its memory.
struct Program {
    _guest: Arc<ClusterGuest>,
    port: PostPort,
    part: Part,
}

impl Program {
    fn new(lab: &Lab, node: usize) -> Self {
        let guest = lab.guest(node).unwrap();
        let port = PostPort::open(&guest, 256).unwrap();
        let address = guest.memory().allocate(BYTES, PAGE_BYTES).unwrap();
        let region = port.register(address, BYTES).unwrap();
        Self { _guest: guest, port, part: Part { region, offset: 0, bytes: BYTES } }
    }

    /// Posts a message to a node, without a doorbell.
    fn send(&mut self, node: u32) {
        assert!(self.port.try_launch(&Send::new(node, self.part).tell_sent()).is_some());
    }
}

fn counter(locked: &LockedNodes<'_>, node: usize, name: &str) -> u64 {
    let counters = locked.nodes.card(node).unwrap().nic.counters();
    counters.into_iter().find_map(|(key, count)| (key == name).then_some(count)).unwrap()
}

fn packets(locked: &LockedNodes<'_>) -> u64 {
    counter(locked, 0, "packets_out")
}

#[test]
fn message_in_short_packets_is_sent_in_several_budgets() {
    let lab = short_packets(true);
    let mut program = Program::new(&lab, 0);
    program.send(1);
    let mut locked = lab.daemon().shell().lock_all();
    let (mut sent, mut turns) = (0, 0);
    while sent < PACKETS {
        assert!(
            service::serve_pages(&mut locked, 0).more || packets(&locked) == PACKETS,
            "no more work after {sent} of {PACKETS}"
        );
        let now = packets(&locked);
        assert!((1..PACKETS_OF_A_TURN).contains(&(now - sent)), "{} packets in one budget", now - sent);
        (sent, turns) = (now, turns + 1);
    }
    assert!(turns > 30, "{turns} budgets");
    // Frames in flight arrive, and then there is no more work.
    while dispatch::resume(&mut locked) {}
    assert!(!locked.has_pending());
}

#[test]
fn connections_and_monitor_do_not_wait_for_a_busy_card() {
    let lab = short_packets(true);
    let mut program = Program::new(&lab, 0);
    const MESSAGES: u64 = 30;
    (0..MESSAGES).for_each(|_| program.send(1));
    let shell = lab.daemon().shell();
    assert!(service::serve_pages(&mut shell.lock_all(), 0).more);
    // Each connection resets the device, and so does its end.
    (0..8).for_each(|_| drop(lab.guest(2).unwrap()));
    assert!(matches!(answer(shell, &Request::Heartbeat), Answer::Heartbeat(_)));
    assert!(matches!(answer(shell, &Request::Stats), Answer::Stats(_)));
    let locked = shell.lock_all();
    assert!(locked.has_pending() && packets(&locked) < MESSAGES * PACKETS, "{} packets", packets(&locked));
}

#[test]
fn pending_work_is_resumed_without_its_owner() {
    let lab = short_packets(false);
    let mut program = Program::new(&lab, 0);
    program.send(1);
    assert!(service::serve_pages(&mut lab.daemon().shell().lock_all(), 0).more);
    drop(lab.guest(2).unwrap());
    until("all packets", || packets(&lab.daemon().shell().lock_all()) == PACKETS);
}

#[test]
fn reset_answers_deferred_reads() {
    let lab = short_packets(true);
    let mut program = Program::new(&lab, 0);
    program.send(1);
    assert!(service::serve_pages(&mut lab.daemon().shell().lock_all(), 0).more);
    drop(program);
    let (mut from, mut to) = (Program::new(&lab, 0), Program::new(&lab, 1));
    // Packets of the previous message may still arrive, and take room.
    (0..8).for_each(|_| assert!(to.port.try_launch(&Receive::new(to.part)).is_some()));
    to.port.announce();
    from.send(1);
    from.port.announce();
    until("the message of the next guest", || to.port.try_event().is_some());
}

#[test]
fn room_posted_late_is_filled_in_several_budgets() {
    let lab = short_packets(true);
    let (mut from, mut to) = (Program::new(&lab, 0), Program::new(&lab, 1));
    from.send(1);
    let mut locked = lab.daemon().shell().lock_all();
    while service::serve_pages(&mut locked, 0).more || dispatch::resume(&mut locked) {}
    let waiting = counter(&locked, 1, "packets_in");
    assert!(waiting > PACKETS_OF_A_TURN, "{waiting} packets wait");
    to.port.try_launch(&Receive::new(to.part)).unwrap();
    let mut turns = 1;
    while service::serve_pages(&mut locked, 1).more {
        turns += 1;
    }
    assert!(turns > 1, "all {waiting} packets in one budget");
}

#[test]
fn end_of_model_time_ends_the_cluster_with_an_error() {
    let second = Value::Number(1_000_000);
    let word = Value::Word("rate_controlled".to_owned());
    let lab = lab_of("inic", &[("assembly", word), ("rate_interval_us", second)], true);
    let (mut program, mut to) = (Program::new(&lab, 0), Program::new(&lab, 1));
    to.port.try_launch(&Receive::new(to.part)).unwrap();
    let shell = lab.daemon().shell();
    let mut locked = shell.lock_all();
    service::serve_pages(&mut locked, 1);
    // As after weeks of such packets: one minute before the end.
    let before = Time::LIMIT.before(Span::from_ns(60_000_000_000));
    locked.nodes[0].bus.wait_until(before);
    program.send(1);
    let mut turns = 0;
    while shell.end_of_time().is_none() {
        service::serve_pages(&mut locked, 0);
        deadlines::pass_time(&mut locked);
        turns += 1;
        assert!(turns < 10_000, "model time stays at {}", locked.model_time());
    }
    let end = shell.end_of_time().unwrap();
    assert!(end.at > Time::LIMIT && end.at < Time::END, "{end}");
}

/// The work of a message to the peer device on the node's bus, in units.
fn work_of_message(lab: &Lab, handler: u32) -> u64 {
    const PAYLOAD: u32 = 48 << 10;
    let guest = lab.guest(0).unwrap();
    let mut port = ChannelPort::open(&guest, 64).unwrap();
    let address = guest.memory().allocate(1 << 20, PAGE_BYTES).unwrap();
    let region = port.register(address, 1 << 20).unwrap();
    let number = port.port().number();
    let payload = ChannelPayload { port: number, region, offset: 0, bytes: 1 << 20 };
    guest.command(OP_CHANNEL_PAYLOAD, &payload).unwrap();
    let header =
        BulkHeader { endpoint: 1, handler, bytes: PAYLOAD, pushed: PAYLOAD, ..BulkHeader::default() };
    let mut words: [u64; 10] = to_words(&header);
    words.rotate_right(10 - BulkHeader::BYTES / 8);
    let mut locked = lab.daemon().shell().lock_all();
    let before = locked.nodes[0].card.nic.work_done();
    port.port_mut().try_command(CHANNEL_BULK, &words).unwrap();
    while service::serve_pages(&mut locked, 0).more || dispatch::resume(&mut locked) {}
    assert_eq!(counter(&locked, 0, "peripheral_handled") % 2, u64::from(handler == CHANNEL_STORE));
    locked.nodes[0].card.nic.work_done() - before
}

#[test]
fn activity_of_a_peer_device_counts_as_work() {
    const NO_HANDLER: u32 = 1_000;
    let lab = lab_of("grim", &[("io_card_channel", Value::Number(1))], true);
    let (stored, refused) = (work_of_message(&lab, CHANNEL_STORE), work_of_message(&lab, NO_HANDLER));
    // Blocks of 48 KiB are looked up and copied, at 16 bytes a unit.
    assert!(stored >= refused + (48 << 10) / 16, "{stored} units, but {refused} without a store");
}
