//! The cluster function through its sockets: ports, messages, interrupts, resets.

use crate::common::{lab, lab_with, pair, stats, stream, until, violations};
use niclab_abi::bar::{CODE_INTERRUPT, CODE_NOTIFY, WINDOW_COMPLETER, WINDOW_OF_MODEL, WINDOW_REQUESTER};
use niclab_abi::control::{OP_PING, STATUS_BAD_VALUE, STATUS_NO_SPACE};
use niclab_abi::event::{CAUSE_ARMED, CAUSE_MESSAGE, Event};
use niclab_device::frontend::{FrontendError, GuestPort};
use niclab_device::lab::Lab;
use niclab_spec::{NicConfig, NicModel, WaitPolicy};
use std::sync::atomic::Ordering;

#[test]
fn messages_arrive_complete_and_in_order() {
    let lab = lab(2);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    stream(&mut a, &mut b, 5_000);
    stream(&mut b, &mut a, 5_000);
    let statistics = guests[0].statistics().unwrap();
    assert_eq!((statistics["packets_sent"], statistics["packets_received"]), (5_000, 5_000));
    assert!(statistics["doorbells"] > 0);
    assert!(violations(&lab, 0).is_empty() && violations(&lab, 1).is_empty());
}

#[test]
fn polling_device_suppresses_doorbells() {
    let lab = lab_with(2, |config| config.nodes[0].nic.wait = WaitPolicy::Poll);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    stream(&mut a, &mut b, 2_000);
    let statistics = guests[0].statistics().unwrap();
    assert_eq!(statistics["packets_sent"], 2_000);
    assert!(statistics["doorbells_spared"] > 1_900, "{statistics:?}");
}

#[test]
fn closing_a_port_zeroes_its_pages_of_the_bar() {
    let lab = lab(1);
    let guest = lab.guest(0).unwrap();
    let [port, other] = [0, 1].map(|_| GuestPort::open(&guest, 8).unwrap());
    let page_of = |kind, port: u32| guest.page_of(kind, port).unwrap();
    let pages_of = |port| [page_of(WINDOW_REQUESTER, port), page_of(WINDOW_COMPLETER, port)];
    let (mine, theirs) = (pages_of(port.number()), pages_of(other.number()));
    for word in mine.iter().chain(&theirs).map(|page| &guest.bar().page(*page)[511]) {
        word.store(7, Ordering::Relaxed);
    }
    let left = |pages: [u32; 2]| pages.map(|page| guest.bar().page(page)[511].load(Ordering::Relaxed));
    port.close().unwrap();
    assert_eq!((left(mine), left(theirs)), ([0, 0], [7, 7]));
    // Neither a window kind that no model has, nor a port that the card does not have.
    assert!(guest.page_of(WINDOW_OF_MODEL, 0).is_err());
    assert!(guest.page_of(WINDOW_REQUESTER, guest.config().ports).is_err());
}

#[test]
fn only_requested_interrupts_are_raised() {
    let lab = lab(2);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    guests[1].offer_event_buffers(64).unwrap();
    for index in 0..20_u64 {
        let flags = if index % 4 == 3 { CODE_INTERRUPT } else { CODE_NOTIFY };
        assert!(a.try_launch(&[index], [0, 0], flags));
        a.announce();
        until("a message", || b.try_receive().is_some());
    }
    until("the status line", || a.status_line().notified == 15);
    // The reply comes when all effects of the last message are done. A message may be visible before its event, and an
    // event before its interrupt.
    stats(&lab, 1);
    let events = guests[1].take_events().unwrap();
    let message = Event { cause: CAUSE_MESSAGE, port: b.number(), count: 1 };
    assert_eq!(events, vec![message; 5]);
    let interrupts = guests[1].wait_interrupts(std::time::Duration::ZERO);
    assert_eq!(interrupts, 5);
    assert!(guests[0].take_events().unwrap().is_empty());
}

#[test]
fn causes_without_a_buffer_are_merged_and_not_lost() {
    let lab = lab(2);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    b.arm(3);
    b.announce();
    for index in 0..6_u64 {
        assert!(a.try_launch(&[index], [0, 0], CODE_INTERRUPT));
        a.announce();
        until("a message", || b.try_receive().is_some());
    }
    // The reply comes when the cause of the last message is noted, too.
    stats(&lab, 1);
    assert!(guests[1].take_events().unwrap().is_empty());
    guests[1].offer_event_buffers(8).unwrap();
    let mut events = Vec::new();
    until("the events", || {
        events.extend(guests[1].take_events().unwrap());
        events.len() == 2
    });
    let port = b.number();
    assert_eq!(
        events,
        [Event { cause: CAUSE_MESSAGE, port, count: 6 }, Event { cause: CAUSE_ARMED, port, count: 1 }]
    );
    assert_eq!(guests[1].statistics().unwrap()["events_merged"], 5);
}

#[test]
fn stopped_control_queue_ends_all_stores() {
    let lab = lab(2);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    stream(&mut a, &mut b, 10);
    // QEMU does this when the driver of node 1 resets its device.
    guests[1].connection().stop_queue(0).unwrap();
    let (slices, _) = b.addresses();
    let memory = guests[1].memory();
    let before: Vec<u64> = words(memory, slices);
    for index in 0..8 {
        a.try_launch(&[index], [1, 2], 0);
        a.announce();
    }
    until("node 0 sends", || {
        a.status_line().launched >= 8 || guests[0].statistics().unwrap()["packets_sent"] >= 10
    });
    assert_eq!(words(memory, slices), before);
    assert!(b.try_receive().is_none());
}

fn words(memory: &niclab_device::frontend::GuestMemory, address: u64) -> Vec<u64> {
    let words = memory.atomics::<std::sync::atomic::AtomicU64>(address, 64 * 11).unwrap();
    words.iter().map(|word| word.load(std::sync::atomic::Ordering::Relaxed)).collect()
}

#[test]
fn reconnected_guest_starts_with_a_new_card() {
    let lab = lab(2);
    let stays = lab.guest(0).unwrap();
    for _ in 0..3 {
        let guest = lab.guest(1).unwrap();
        let [mut a, mut b] = pair([&stays, &guest]);
        stream(&mut a, &mut b, 100);
        drop((guest, b));
        a.close().unwrap();
        until("the daemon notices", || !lab.daemon().shell().connected()[1].cluster);
    }
}

#[test]
fn lost_credit_frame_is_requested_again_when_idle() {
    let lab = lab(2);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let ports = [GuestPort::open(&guests[0], 64).unwrap(), GuestPort::open(&guests[1], 64).unwrap()];
    let [mut a, mut b] = ports;
    let cut = niclab_spec::Faults { partition: true, ..Default::default() };
    set_faults(&lab, cut);
    a.route(1, b.number()).unwrap();
    b.authorize(0, a.number(), 8).unwrap();
    assert!(a.try_launch(&[1], [2, 3], 0));
    a.announce();
    set_faults(&lab, niclab_spec::Faults::default());
    // Pings of the drivers, more frequent than the idle timeout of a deadline, must not delay the message.
    until("the message", || {
        guests.iter().for_each(|guest| drop(guest.request(OP_PING, &[]).unwrap()));
        b.try_receive().is_some()
    });
}

fn set_faults(lab: &Lab, faults: niclab_spec::Faults) {
    let request =
        niclab_spec::monitor::Request::SetFaults { node: lab.config().nodes[1].name.clone(), faults };
    let answer = niclab_device::monitor::answer(lab.daemon().shell(), &request);
    assert_eq!(answer, niclab_spec::monitor::Answer::Done);
}

#[test]
fn credits_of_all_senders_are_at_most_the_queue() {
    for model in ["ultra", "mailbox"] {
        let model = NicModel::named(model).unwrap();
        let lab = lab_with(2, |config| config.nodes[0].nic = NicConfig::of(model));
        let guest = lab.guest(0).unwrap();
        let port = GuestPort::open(&guest, 64).unwrap();
        let refusal = |node_port, credits| match port.authorize(1, node_port, credits) {
            Err(FrontendError::Refused { status, .. }) => Some(status),
            Err(error) => panic!("{error}"),
            Ok(()) => None,
        };
        assert_eq!(refusal(0, 0), Some(STATUS_BAD_VALUE));
        assert_eq!(refusal(0, 65), Some(STATUS_NO_SPACE));
        assert_eq!(refusal(0, 64), None);
        assert_eq!(refusal(1, 1), Some(STATUS_NO_SPACE));
        // The same sender again: only its credits change.
        assert_eq!(refusal(0, 63), None);
        assert_eq!(refusal(1, 1), None);
    }
}
