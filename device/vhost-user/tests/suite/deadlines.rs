//! Work that waits for model time, while other nodes are active all the time.

use niclab_device::shell::idle::deadlines;
use niclab_device::shell::service;
use niclab_device::shell::service::ethernet_function;
use std::time::{Duration, Instant};

use niclab_device::frontend::GuestPort;
use niclab_device::lab::Lab;
use niclab_device::monitor::answer;
use niclab_device::shell::idle::deadlines::Unchanged;
use niclab_device::shell::locks::LockedNodes;
use niclab_spec::monitor::{Answer, Request};
use niclab_spec::{Faults, NicConfig, NicModel};

use crate::common::{TIMEOUT, frame, lab_with, pair, until};

const SLICES: u32 = 64;

fn lab(model: &str) -> Lab {
    let model = NicModel::named(model).unwrap();
    lab_with(4, |config| config.nodes.iter_mut().for_each(|node| node.nic = NicConfig::of(model)))
}

fn set_faults(lab: &Lab, node: &str, faults: Faults) {
    let request = Request::SetFaults { node: node.to_owned(), faults };
    let set = answer(lab.daemon().shell(), &request);
    assert!(matches!(set, Answer::Done), "{set:?}");
}

/// Two further nodes exchange messages until a message has arrived.
fn arrives_amid_others(lab: &Lab, receiver: &mut GuestPort) {
    let others = [lab.guest(2).unwrap(), lab.guest(3).unwrap()];
    let [mut a, mut b] = pair([&others[0], &others[1]]);
    let begin = Instant::now();
    let mut messages = 0_u64;
    let message = loop {
        if let Some(message) = receiver.try_receive() {
            break message;
        }
        assert!(begin.elapsed() < TIMEOUT, "delayed by {messages} messages of other nodes");
        // One message at a time, so that none of these waits for a deadline.
        messages += 1;
        assert!(a.try_launch(&[messages], [messages, 7], 0));
        a.announce();
        until("a message of others", || b.try_receive().is_some());
        b.release(messages);
        b.announce();
        if messages.is_multiple_of(u64::from(SLICES) / 4) {
            // Their queue never fills: with the reply, the card has seen the releases.
            others[1].statistics().unwrap();
        }
    };
    assert_eq!(message.payload()[0], 42);
}

#[test]
fn message_without_receiver_is_resent_despite_other_traffic() {
    let lab = lab("mailbox");
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let mut sender = GuestPort::open(&guests[0], SLICES).unwrap();
    sender.route(1, sender.number()).unwrap();
    assert!(sender.try_launch(&[42], [1, 2], 0));
    sender.announce();
    // With the reply, the message has left, and no port has received it.
    guests[0].statistics().unwrap();
    let mut receiver = GuestPort::open(&guests[1], SLICES).unwrap();
    receiver.authorize(0, sender.number(), SLICES / 2).unwrap();
    arrives_amid_others(&lab, &mut receiver);
}

/// A fault delays the frame that `act` sends at the first check. It arrives at the second check, without another frame
/// and without an idle fabric.
fn arrives_at_the_second_look(
    lab: &Lab,
    act: impl FnOnce(&mut LockedNodes<'_>),
    mut arrived: impl FnMut() -> bool,
) {
    const BETWEEN: Duration = Duration::from_secs(1);
    // This thread holds the lock throughout, so that no thread of the daemon does anything.
    let mut locked = lab.daemon().shell().lock_all();
    let mut standing = Unchanged::default();
    act(&mut locked);
    assert!(
        !deadlines::pass_starved(&mut locked, &mut standing, BETWEEN) && !arrived(),
        "the first check only notes the frame"
    );
    assert!(deadlines::pass_starved(&mut locked, &mut standing, BETWEEN) && arrived());
    assert!(!deadlines::pass_starved(&mut locked, &mut standing, BETWEEN));
}

#[test]
fn delayed_messages_arrive_on_a_busy_fabric() {
    let lab = lab("ultra");
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut sender, mut receiver] = pair([&guests[0], &guests[1]]);
    set_faults(&lab, "node1", Faults { reorder: 1.0, ..Faults::default() });
    let launch = |locked: &mut LockedNodes<'_>| {
        assert!(sender.try_launch(&[42], [1, 2], 0));
        assert_eq!(service::serve_pages(locked, 0).work, 1);
    };
    arrives_at_the_second_look(&lab, launch, || receiver.try_receive().is_some());
}

#[test]
fn delayed_ethernet_frames_arrive_on_a_busy_fabric() {
    let lab = lab("ultra");
    let (mut from, mut to) = (lab.ethernet(0, 0).unwrap(), lab.ethernet(1, 0).unwrap());
    set_faults(&lab, "node1", Faults { reorder: 1.0, ..Faults::default() });
    let send = |locked: &mut LockedNodes<'_>| {
        assert!(from.send(&frame(lab.mac(0), lab.mac(1), 60)).unwrap());
        assert!(!ethernet_function::transmit(locked, 0, 0));
    };
    arrives_at_the_second_look(&lab, send, || to.receive(Duration::ZERO).is_ok());
}
