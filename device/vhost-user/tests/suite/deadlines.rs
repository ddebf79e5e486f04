//! What waits for model time to pass, while others do something all the time.

use std::time::Instant;

use niclab_device::frontend::GuestPort;
use niclab_device::lab::Lab;
use niclab_device::monitor::answer;
use niclab_spec::monitor::{Answer, Request};
use niclab_spec::{Faults, NicConfig, NicModel};

use crate::common::{PATIENCE, lab_with, pair, until};

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

/// Two further nodes send to and fro until a message has come.
fn arrives_amid_others(lab: &Lab, receiver: &mut GuestPort) {
    let others = [lab.guest(2).unwrap(), lab.guest(3).unwrap()];
    let [mut a, mut b] = pair([&others[0], &others[1]]);
    let begin = Instant::now();
    let mut messages = 0_u64;
    let message = loop {
        if let Some(message) = receiver.try_receive() {
            break message;
        }
        assert!(begin.elapsed() < PATIENCE, "held up by {messages} messages of others");
        // One at a time, so that none of these ever waits for a deadline itself.
        messages += 1;
        assert!(a.try_launch(&[messages], [messages, 7], 0));
        a.announce();
        until("a message of others", || b.try_receive().is_some());
        b.release(messages);
        b.announce();
        if messages.is_multiple_of(u64::from(SLICES) / 4) {
            // Their queue is never full: by the answer the card has seen what was released.
            others[1].statistics().unwrap();
        }
    };
    assert_eq!(message.payload()[0], 42);
}

#[test]
fn a_letter_that_found_nobody_is_repeated_whatever_others_do() {
    let lab = lab("mailbox");
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let mut sender = GuestPort::open(&guests[0], SLICES).unwrap();
    sender.route(1, sender.number()).unwrap();
    assert!(sender.try_launch(&[42], [1, 2], 0));
    sender.announce();
    // It has left by the answer, and found nobody.
    guests[0].statistics().unwrap();
    let mut receiver = GuestPort::open(&guests[1], SLICES).unwrap();
    receiver.authorize(0, sender.number(), SLICES / 2).unwrap();
    arrives_amid_others(&lab, &mut receiver);
}

#[test]
fn a_frame_that_a_fault_holds_back_arrives_whatever_others_do() {
    let lab = lab("ultra");
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut sender, mut receiver] = pair([&guests[0], &guests[1]]);
    set_faults(&lab, "node0", Faults { reorder: 1.0, ..Faults::default() });
    assert!(sender.try_launch(&[42], [1, 2], 0));
    sender.announce();
    arrives_amid_others(&lab, &mut receiver);
}
