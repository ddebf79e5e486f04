//! Device faults as a guest sees them: in the configuration, and set on a running daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{lab, lab_with, pair, stats, stream, until};
use niclab_abi::bar::{CODE_INTERRUPT, CODE_NOTIFY};
use niclab_abi::receive::{SLICE_STATUS_WORD, SLICE_TAG_WORD, SLICE_WORDS, SliceStatus};
use niclab_device::frontend::{ClusterGuest, GuestPort};
use niclab_device::lab::Lab;
use niclab_device::monitor::answer;
use niclab_spec::DeviceFaults;
use niclab_spec::monitor::{Answer, Request};

/// Two nodes, the second with these faults, and a port on each.
fn faulty(faults: DeviceFaults) -> (Lab, [Arc<ClusterGuest>; 2], [GuestPort; 2]) {
    let lab = lab_with(2, |config| config.nodes[1].device_faults = faults);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let ports = pair([&guests[0], &guests[1]]);
    (lab, guests, ports)
}

/// Sends messages with their number as payload and tag, and waits until the card has stored them.
fn send(lab: &Lab, from: &mut GuestPort, numbers: impl IntoIterator<Item = u64>, code: u16) {
    let before = stats(lab, 1).messages_received;
    let mut count = 0;
    for number in numbers {
        assert!(from.try_launch(&[number; 2], [number; 2], code));
        count += 1;
    }
    from.announce();
    until("the card has written", || stats(lab, 1).messages_received == before + count);
}

/// The words of the slice at `index`.
fn slice(guest: &ClusterGuest, port: &GuestPort, index: u64) -> Vec<u64> {
    let address = port.addresses().0 + index * 8 * SLICE_WORDS as u64;
    let words = guest.memory().atomics::<AtomicU64>(address, SLICE_WORDS).unwrap();
    words.iter().map(|word| word.load(Ordering::Acquire)).collect()
}

#[test]
fn stale_slice_keeps_its_old_status_and_later_slices_arrive() {
    let (lab, guests, [mut a, mut b]) = faulty(DeviceFaults { stale_at: vec![2], ..DeviceFaults::default() });
    send(&lab, &mut a, 1..=3, 0);
    assert_eq!(b.try_receive().unwrap().tag(), [1, 1]);
    assert!(b.try_receive().is_none());
    let stale = slice(&guests[1], &b, 1);
    assert_eq!((stale[SLICE_TAG_WORD], stale[SLICE_STATUS_WORD]), (2, 0));
    let next = slice(&guests[1], &b, 2);
    assert_eq!(SliceStatus::decode(next[SLICE_STATUS_WORD]).unwrap().number, 3);
    let figures = stats(&lab, 1);
    assert_eq!(figures.device_faults, [("stale".to_owned(), 1)].into());
    let [fault] = &figures.device_fault_log[..] else { panic!("{figures:?}") };
    assert_eq!((fault.opportunity, fault.message_from, fault.message_number), (2, Some(0), Some(2)));
    assert!(stats(&lab, 0).device_faults.is_empty());
}

#[test]
fn short_slice_has_a_valid_status() {
    let (lab, _guests, [mut a, mut b]) =
        faulty(DeviceFaults { short_at: vec![1], ..DeviceFaults::default() });
    send(&lab, &mut a, [7, 8], 0);
    let short = b.try_receive().unwrap();
    assert_eq!(short.tag()[1], 0, "the end of the data is missing");
    assert_eq!(b.try_receive().unwrap().tag(), [8, 8]);
}

#[test]
fn invalid_value_is_out_of_range_in_a_valid_slice() {
    let (lab, guests, [mut a, b]) = faulty(DeviceFaults::default());
    let node = lab.config().nodes[1].name.clone();
    let faults = DeviceFaults { invalid_value: 1.0, ..DeviceFaults::default() };
    let set = Request::SetDeviceFaults { node, faults };
    assert!(matches!(answer(lab.daemon().shell(), &set), Answer::Done));
    send(&lab, &mut a, [7], 0);
    let status = slice(&guests[1], &b, 0)[SLICE_STATUS_WORD];
    let (words, port, node) = (status & 0xf, status >> 8 & 0xff, status >> 16 & 0xffff);
    assert!(words > 8 || port >= 8 || node >= 2, "{status:#x}");
    assert_eq!((status >> 32, status >> 7 & 1), (1, 1), "it is the host's: {status:#x}");
    assert_eq!(stats(&lab, 1).device_faults, [("invalid_value".to_owned(), 1)].into());
}

#[test]
fn late_completion_arrives_after_its_model_time() {
    let faults = DeviceFaults { delay_at: vec![1], delay_ns: 50_000, ..DeviceFaults::default() };
    let (lab, _guests, [mut a, mut b]) = faulty(faults);
    send(&lab, &mut a, [1, 2], 0);
    until("the late message", || b.try_receive().is_some());
    until("the one behind it", || b.try_receive().is_some());
    let figures = stats(&lab, 1);
    assert_eq!(figures.device_faults, [("delay".to_owned(), 1)].into());
    assert!(figures.model_time_ps >= 50_000_000, "{}", figures.model_time_ps);
}

#[test]
fn late_completion_arrives_while_other_nodes_are_active() {
    let faults = DeviceFaults { delay_at: vec![1], ..DeviceFaults::default() };
    let lab = lab_with(4, |config| config.nodes[1].device_faults = faults);
    let guests: Vec<_> = (0..4).map(|node| lab.guest(node).unwrap()).collect();
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    let [mut c, mut d] = pair([&guests[2], &guests[3]]);
    send(&lab, &mut a, [1], 0);
    until("the late message", || {
        stream(&mut c, &mut d, 100);
        b.try_receive().is_some()
    });
}

#[test]
fn port_is_closed_only_after_its_late_completion() {
    let faults = DeviceFaults { delay_at: vec![1], ..DeviceFaults::default() };
    let (lab, guests, [mut a, b]) = faulty(faults);
    send(&lab, &mut a, [1], 0);
    let address = b.addresses().0;
    b.close().unwrap();
    let words = guests[1].memory().atomics::<AtomicU64>(address, SLICE_WORDS).unwrap();
    assert_ne!(words[SLICE_STATUS_WORD].load(Ordering::Acquire), 0, "written before the reply");
}

#[test]
fn lost_and_duplicated_interrupts_are_counted() {
    let faults = DeviceFaults {
        lost_interrupt_at: vec![1],
        duplicated_interrupt_at: vec![3],
        ..DeviceFaults::default()
    };
    let (lab, guests, [mut a, _b]) = faulty(faults);
    guests[1].offer_event_buffers(16).unwrap();
    for (number, events) in [(1, 0), (2, 1), (3, 2)] {
        send(&lab, &mut a, [number], CODE_INTERRUPT);
        assert_eq!(guests[1].take_events().unwrap().len(), events, "message {number}");
    }
    let expected = [("lost_interrupt".to_owned(), 1), ("duplicated_interrupt".to_owned(), 1)];
    assert_eq!(stats(&lab, 1).device_faults, expected.into());
}

#[test]
fn stale_status_line_shows_the_previous_counts() {
    let (lab, _guests, [mut a, mut b]) =
        faulty(DeviceFaults { stale_at: vec![2], ..DeviceFaults::default() });
    for (number, notified) in [(1, 1), (2, 1), (3, 3)] {
        assert!(b.try_launch(&[number], [0, 0], CODE_NOTIFY));
        b.announce();
        until("a message", || a.try_receive().is_some());
        // The reply comes when all effects of the post are done, including the status line.
        stats(&lab, 1);
        assert_eq!(b.status_line().notified, notified);
    }
    assert_eq!(stats(&lab, 1).device_faults, [("stale".to_owned(), 1)].into());
}

#[test]
fn same_seed_gives_the_same_faults_and_another_seed_others() {
    let fates = |seed: u64| {
        let lab = lab_with(2, |config| {
            config.seed = seed;
            config.nodes[1].device_faults = DeviceFaults { bad_status: 0.3, ..DeviceFaults::default() };
        });
        let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
        let [mut a, _b] = pair([&guests[0], &guests[1]]);
        send(&lab, &mut a, 1..=30, 0);
        let log = stats(&lab, 1).device_fault_log;
        log.into_iter().map(|fault| (fault.opportunity, fault.message_number)).collect::<Vec<_>>()
    };
    let first = fates(1);
    assert!(!first.is_empty());
    assert_eq!(fates(1), first);
    assert_ne!(fates(2), first);
}

#[test]
fn faults_change_while_the_daemon_runs() {
    let lab = lab(2);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    let node = lab.config().nodes[1].name.clone();
    let ask = |request: &Request| answer(lab.daemon().shell(), request);
    let set = |faults: DeviceFaults| ask(&Request::SetDeviceFaults { node: node.clone(), faults });
    send(&lab, &mut a, [1], 0);
    assert!(b.try_receive().is_some());
    let all_lost = DeviceFaults { stale: 1.0, ..DeviceFaults::default() };
    assert_eq!(set(all_lost.clone()), Answer::Done);
    match ask(&Request::Faults) {
        Answer::Faults(states) => assert_eq!(states.nodes[1].device_faults, all_lost),
        other => panic!("{other:?}"),
    }
    send(&lab, &mut a, [2], 0);
    assert!(b.try_receive().is_none());
    assert_eq!(set(DeviceFaults::default()), Answer::Done);
    send(&lab, &mut a, [3], 0);
    assert!(b.try_receive().is_none(), "slice 2 never arrives");
    assert_eq!(stats(&lab, 1).device_faults, [("stale".to_owned(), 1)].into());
}

#[test]
fn concurrent_changes_of_device_faults_are_all_applied() {
    let lab = lab(1);
    let node = &lab.config().nodes[0].name;
    std::thread::scope(|scope| {
        for key in ["stale_at", "short_at", "delay_at", "bad_status_at"] {
            let lab = &lab;
            scope.spawn(move || {
                for number in 1..=200_u64 {
                    let change = [(key.to_owned(), vec![number].into())].into_iter().collect();
                    let request = Request::ChangeDeviceFaults { node: node.clone(), change };
                    let Answer::Faults(states) = answer(lab.daemon().shell(), &request) else { panic!() };
                    let faults = &states.nodes[0].device_faults;
                    let rate = faults.rates().into_iter().find(|rate| key.starts_with(rate.key)).unwrap();
                    assert_eq!(rate.at, [number], "{key}");
                }
            });
        }
    });
    let unknown = [("stall".to_owned(), 1.into())].into_iter().collect();
    let request = Request::ChangeDeviceFaults { node: node.clone(), change: unknown };
    assert!(
        matches!(answer(lab.daemon().shell(), &request), Answer::Error { message } if message.contains("stall"))
    );
}

#[test]
fn invalid_faults_and_unknown_nodes_are_refused_by_name() {
    let lab = lab(2);
    let refusal = |node: &str, faults: DeviceFaults| {
        let request = Request::SetDeviceFaults { node: node.to_owned(), faults };
        match answer(lab.daemon().shell(), &request) {
            Answer::Error { message } => message,
            other => panic!("{other:?}"),
        }
    };
    let message = refusal("node1", DeviceFaults { stale: f64::NAN, ..DeviceFaults::default() });
    assert!(message.contains("`stale`") && message.contains("NaN"), "{message}");
    let message = refusal("node9", DeviceFaults::default());
    assert!(message.contains("node9") && message.contains("node1"), "{message}");
}
