//! Machines that stop and continue, as under a debugger, and drivers that reset their device. Both look the same at
//! first.

use niclab_device::shell::idle::deadlines;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use niclab_abi::QUEUE_SIZE;
use niclab_abi::control::{OP_PING, OP_PORT_OPEN, PORT_ANY, PortOpen};
use niclab_device::frontend::{ClusterGuest, DriverRing};
use niclab_device::lab::Lab;
use niclab_device::monitor::answer;
use niclab_model::models::MODELS;
use niclab_spec::monitor::{Answer, Request};
use niclab_spec::{NicConfig, NicModel};

use crate::common::{frame, lab, lab_with, pair, stats, stream, until};

fn stop_and_continue(guest: &ClusterGuest) {
    let mut connection = guest.connection();
    connection.stop_machine().unwrap();
    connection.continue_machine(guest.memory()).unwrap();
}

fn is_driver_ok(lab: &Lab, node: usize) -> bool {
    match answer(lab.daemon().shell(), &Request::Health) {
        Answer::Health(health) => health.nodes[node].cluster_driver_ok,
        other => panic!("{other:?}"),
    }
}

fn is_open(lab: &Lab, node: usize) -> bool {
    lab.daemon().shell().lock_all().nodes[node].card.is_open(0)
}

/// Starts all queues of a guest on new rings, like a driver that has reset its device.
fn start_new_queues(guest: &ClusterGuest) {
    let mut connection = guest.connection();
    for index in 0..connection.queues() as usize {
        let ring = DriverRing::new(guest.memory(), QUEUE_SIZE as u16).unwrap();
        connection.start_queue(index, &ring, guest.memory()).unwrap();
    }
}

#[test]
fn machine_stop_keeps_the_card_of_every_model() {
    for model in MODELS {
        let nic = NicConfig::of(NicModel::named(model.name).unwrap());
        let lab = lab_with(1, |config| config.nodes[0].nic = nic);
        let guest = lab.guest(0).unwrap();
        let [slices_address, status_address] =
            [(); 2].map(|()| guest.memory().allocate(1 << 16, 4096).unwrap());
        let open =
            PortOpen { port: PORT_ANY, slices: 64, slices_address, status_address, ..PortOpen::default() };
        let opened = guest.command(OP_PORT_OPEN, &open);
        let state = || {
            let mut counters = guest.statistics().unwrap();
            // A stop may lose the kick of a poll demand, so each start makes a poll demand.
            counters.remove("poll_demands");
            (counters, is_open(&lab, 0))
        };
        let before = state();
        for _ in 0..3 {
            stop_and_continue(&guest);
            // The reply comes after the stop.
            guest.request(OP_PING, &[]).unwrap();
        }
        assert!(is_driver_ok(&lab, 0), "{}", model.name);
        assert_eq!(state(), before, "{}", model.name);
        // The same messages, and then new queues: the driver has reset its device.
        guest.connection().stop_machine().unwrap();
        assert_eq!((is_open(&lab, 0), is_driver_ok(&lab, 0)), (before.1, false), "{}", model.name);
        start_new_queues(&guest);
        until("the reset", || lab.daemon().shell().lock_all().nodes[0].card.host.state.stopped.is_none());
        assert!(!is_open(&lab, 0) && !is_driver_ok(&lab, 0), "{}: {opened:?}", model.name);
    }
}

#[test]
fn card_that_its_driver_closed_answers_peers_while_stopped() {
    let nic = NicConfig::of(NicModel::named("mailbox").unwrap());
    let lab = lab_with(2, |config| config.nodes.iter_mut().for_each(|node| node.nic = nic.clone()));
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    stream(&mut a, &mut b, 10);
    // A driver that is unloaded and does not return does this.
    guests[1].reset().unwrap();
    guests[1].connection().stop_machine().unwrap();
    assert!(a.try_launch(&[42], [1, 2], 0));
    a.announce();
    until("a refusal by the card without a port", || stats(&lab, 1).cluster.received_frames > 10);
    assert!(
        deadlines::is_waiting(&lab.daemon().shell().lock_all()),
        "the sender retransmits, and gives up at last"
    );
}

#[test]
fn messages_to_a_stopped_machine_arrive_when_it_continues() {
    for model in ["ultra", "mailbox"] {
        let nic = NicConfig::of(NicModel::named(model).unwrap());
        let lab = lab_with(2, |config| config.nodes.iter_mut().for_each(|node| node.nic = nic.clone()));
        let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
        let [mut a, mut b] = pair([&guests[0], &guests[1]]);
        stream(&mut a, &mut b, 10);
        guests[1].connection().stop_machine().unwrap();
        assert!(a.try_launch(&[42], [1, 2], 0));
        a.announce();
        until("the frame is held", || {
            let locked = lab.daemon().shell().lock_all();
            locked.nodes[1].card.host.state.stopped.as_ref().is_some_and(|stopped| stopped.holds_from(0))
        });
        assert!(b.try_receive().is_none(), "{model}: nothing is written into a stopped guest");
        guests[1].connection().continue_machine(guests[1].memory()).unwrap();
        let mut payload = None;
        until("the message", || {
            payload = b.try_receive().map(|message| message.payload()[0]);
            payload.is_some()
        });
        assert_eq!(payload, Some(42), "{model}");
        b.release(11);
        b.announce();
        // Both directions, and the sender's machine.
        stop_and_continue(&guests[0]);
        stream(&mut b, &mut a, 10);
        assert!(stats(&lab, 1).violations.values().all(|count| *count == 0));
    }
}

/// A guest that reboots stops its machine first, and then its QEMU ends.
#[test]
fn frames_to_a_node_whose_qemu_ended_are_lost() {
    let lab = lab(3);
    let [first, second, third] = [0, 1, 2].map(|node| lab.guest(node).unwrap());
    let [mut a, mut b] = pair([&first, &second]);
    stream(&mut a, &mut b, 10);
    second.connection().stop_machine().unwrap();
    assert!(a.try_launch(&[42], [1, 2], 0));
    a.announce();
    let is_held = || {
        let locked = lab.daemon().shell().lock_all();
        locked.nodes[1].card.host.state.stopped.as_ref().is_some_and(|stopped| stopped.holds_from(0))
    };
    until("the frame is held", is_held);
    // These are the last references to the connection.
    drop((b, second));
    until("the frame is lost", || !is_held());
    let [mut a, mut c] = pair([&first, &third]);
    stream(&mut a, &mut c, 100);
    stream(&mut c, &mut a, 100);
}

#[test]
fn request_made_while_the_machine_stops_is_answered() {
    let lab = lab(1);
    let guest = lab.guest(0).unwrap();
    let answered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            for _ in 0..50 {
                guest.request(OP_PING, &[]).unwrap();
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
        while !asking.is_finished() {
            let before = answered.load(Ordering::Relaxed);
            stop_and_continue(&guest);
            // A machine that stops again before its card is served makes no progress.
            until("a request is answered", || {
                asking.is_finished() || answered.load(Ordering::Relaxed) > before
            });
        }
    });
}

#[test]
fn ethernet_frames_to_a_stopped_machine_arrive_when_continued() {
    let lab = lab(2);
    let mut guests = [lab.ethernet(0, 0).unwrap(), lab.ethernet(1, 0).unwrap()];
    let sent = |number: usize| frame(lab.mac(0), lab.mac(1), 100 + number);
    for number in 0..8 {
        let [from, to] = &mut guests;
        let is_stopped = number % 2 == 1;
        let memory = Arc::clone(to.memory());
        if is_stopped {
            to.connection().stop_machine().unwrap();
        }
        assert!(from.send(&sent(number)).unwrap());
        if is_stopped {
            until("the frame is sent", || stats(&lab, 0).ethernet.sent_frames == number as u64 + 1);
            assert!(to.try_receive().unwrap().is_none(), "nothing is written into a stopped guest");
            to.connection().continue_machine(&memory).unwrap();
        }
        let mut received = None;
        until("the frame", || {
            received = to.try_receive().unwrap();
            received.is_some()
        });
        assert_eq!(received.unwrap().1, sent(number));
    }
    assert_eq!(stats(&lab, 1).ethernet.dropped_frames, 0);
}
