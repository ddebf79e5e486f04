//! Ports with a faulty card: every call ends with a named error, or continues.

use niclab_spec::DeviceFaults;
use niclab_user::slices::{Flags, Port};
use niclab_user::{Error, WaitPolicy};

use super::ultra::{POLICIES, armed, pair_with};
use super::{Cluster, SHORT, TIMEOUT, until};

/// Two nodes; the second has these faults.
fn faulty(faults: DeviceFaults) -> (Cluster, [Port; 2]) {
    pair_with(64, 32, |config| config.nodes[1].device_faults = faults)
}

/// Sends messages whose tag is their number, and waits until the card has written them.
fn send(cluster: &Cluster, port: &mut Port, numbers: impl IntoIterator<Item = u64>, flags: Flags) {
    let mut last = 0;
    for number in numbers {
        port.send(&[number], [number; 2], flags, TIMEOUT).expect("room");
        last = number;
    }
    cluster.until_stored(1, last);
}

/// The number of the next message, or the lost slices.
fn receive(port: &mut Port) -> Result<u64, (u64, u64)> {
    match port.receive(TIMEOUT) {
        Ok(message) => Ok(message.tag()[0]),
        Err(Error::SlicesLost { number, count, .. }) => Err((number, count)),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_stale_slice_is_one_error_and_the_port_continues() {
    for policy in POLICIES {
        let (cluster, [mut a, mut b]) = faulty(DeviceFaults { stale_at: vec![2, 3], ..Default::default() });
        b.set_wait_policy(policy);
        send(&cluster, &mut a, 1..=4, Flags::NONE);
        assert_eq!(receive(&mut b), Ok(1), "{policy:?}");
        let error = b.receive(TIMEOUT).expect_err("two slices are missing");
        assert!(matches!(error, Error::SlicesLost { number: 2, count: 2, .. }), "{policy:?}: {error}");
        let text =
            "node1: port 0: 2 slice(s) from number 2 on are lost: slice 4 was written, but they were not";
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(receive(&mut b), Ok(4), "{policy:?}");
    }
}

#[test]
fn a_stale_last_slice_is_a_timeout() {
    let (cluster, [mut a, mut b]) = faulty(DeviceFaults { stale_at: vec![1], ..Default::default() });
    send(&cluster, &mut a, [1], Flags::NONE);
    assert!(matches!(b.receive(SHORT), Err(Error::TimedOut { .. })));
    send(&cluster, &mut a, [2], Flags::NONE);
    assert_eq!(receive(&mut b), Err((1, 1)));
    assert_eq!(receive(&mut b), Ok(2));
}

#[test]
fn a_polling_program_can_check_for_lost_slices() {
    let (cluster, [mut a, mut b]) = faulty(DeviceFaults { stale_at: vec![1], ..Default::default() });
    b.receiver().check().expect("nothing there");
    send(&cluster, &mut a, [1, 2], Flags::NONE);
    assert!(b.try_receive().is_none());
    let error = b.receiver().check().expect_err("one slice is missing");
    assert!(matches!(error, Error::SlicesLost { number: 1, count: 1, .. }), "{error}");
    assert_eq!(b.try_receive().expect("the next").tag(), [2, 2]);
}

/// A flipped bit makes the status invalid, or makes it that of another message. The seed determines the bit.
#[test]
fn a_damaged_status_does_not_stop_the_port() {
    let mut lost = 0;
    for seed in 0..12 {
        let (cluster, [mut a, mut b]) = pair_with(64, 32, |config| {
            config.seed = seed;
            config.nodes[1].device_faults = DeviceFaults { bad_status_at: vec![1], ..Default::default() };
        });
        send(&cluster, &mut a, [1, 2], Flags::NONE);
        match b.receive(TIMEOUT) {
            Ok(_) => {}
            Err(Error::SlicesLost { number: 1, count: 1, what, .. }) => {
                assert!(what.contains("its status word 0x00000001"), "{what}");
                lost += 1;
            }
            Err(other) => panic!("seed {seed}: {other}"),
        }
        assert_eq!(receive(&mut b), Ok(2), "seed {seed}");
    }
    assert!((1..12).contains(&lost), "{lost} of 12 are invalid");
}

#[test]
fn a_short_slice_is_recognised_by_its_tag() {
    let (cluster, [mut a, mut b]) = faulty(DeviceFaults { short_at: vec![1], ..Default::default() });
    send(&cluster, &mut a, [1], Flags::NONE);
    assert_eq!(b.receive(TIMEOUT).expect("its status is valid").tag()[1], 0);
}

#[test]
fn a_lost_interrupt_delays_a_sleeper_until_its_next_check() {
    let (cluster, [mut a, mut b]) = faulty(DeviceFaults { lost_interrupt_at: vec![1], ..Default::default() });
    b.set_wait_policy(WaitPolicy::Block);
    std::thread::scope(|scope| {
        // Only its own periodic check can wake the receiver.
        let receiver = scope.spawn(|| receive(&mut b));
        until("the receiver goes to sleep", || armed(&cluster, 1) == 1);
        send(&cluster, &mut a, [1], Flags::NONE);
        assert_eq!(receiver.join().expect("no panic"), Ok(1));
    });
    assert_eq!(cluster.figures(1).device_faults, [("lost_interrupt".to_owned(), 1)].into());
}

#[test]
fn duplicated_interrupt_only_wakes_a_receiver_spuriously() {
    let faults = DeviceFaults { duplicated_interrupt_at: vec![1], ..Default::default() };
    let (cluster, [mut a, mut b]) = faulty(faults);
    b.set_wait_policy(WaitPolicy::Block);
    send(&cluster, &mut a, [1], Flags::INTERRUPT);
    assert_eq!(receive(&mut b), Ok(1));
    assert!(matches!(b.receive(SHORT), Err(Error::TimedOut { .. })));
    send(&cluster, &mut a, [2], Flags::INTERRUPT);
    assert_eq!(receive(&mut b), Ok(2));
    assert_eq!(cluster.figures(1).device_faults, [("duplicated_interrupt".to_owned(), 1)].into());
}

#[test]
fn a_stale_status_line_delays_a_sender_until_the_next() {
    let (cluster, [mut a, _b]) = pair_with(64, 32, |config| {
        config.nodes[0].device_faults = DeviceFaults { stale_at: vec![1], ..Default::default() };
    });
    send(&cluster, &mut a, [1], Flags::NOTIFY);
    cluster.settle(0);
    assert!(matches!(a.flush(SHORT), Err(Error::TimedOut { .. })));
    send(&cluster, &mut a, [2], Flags::NOTIFY);
    a.flush(TIMEOUT).expect("the next line reports both");
    assert_eq!(a.sender().status().notified, 2);
}

/// With any slices left out: every written message is received once and in order, and every other one is reported once.
/// Slices are released, so that the queue never locks up.
#[test]
fn every_message_is_received_or_reported_lost_once() {
    const MESSAGES: u64 = 200;
    for seed in 0..6 {
        let (cluster, [mut a, mut b]) = pair_with(16, 8, |config| {
            config.seed = seed;
            config.nodes[1].device_faults = DeviceFaults { stale: 0.2, ..Default::default() };
        });
        let (mut sent, mut seen, mut lost) = (0, 0, Vec::new());
        until("all written messages are received", || {
            while sent < MESSAGES && a.try_send(&[], [sent + 1; 2], Flags::NONE).expect("sound").is_some() {
                sent += 1;
            }
            let is_all = cluster.figures(1).messages_received == MESSAGES;
            match b.receive(SHORT) {
                Ok(message) => {
                    assert_eq!(message.tag(), [seen + 1; 2], "seed {seed}");
                    seen += 1;
                }
                Err(Error::SlicesLost { number, count, .. }) => {
                    assert_eq!(number, seen + 1, "seed {seed}");
                    lost.extend(number..number + count);
                    seen += count;
                }
                Err(Error::TimedOut { .. }) => return is_all,
                Err(other) => panic!("seed {seed}: {other}"),
            }
            false
        });
        let log = cluster.figures(1).device_fault_log;
        let left_out: Vec<u64> = log.iter().filter_map(|fault| fault.message_number).collect();
        assert!(left_out.len() > 10, "seed {seed}: {left_out:?}");
        // A missing slice without a later one is never noticed.
        let noticed: Vec<u64> = left_out.into_iter().filter(|number| *number <= seen).collect();
        assert_eq!(lost, noticed, "seed {seed}");
    }
}
