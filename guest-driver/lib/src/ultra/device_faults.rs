//! Ports against a device that does what it must not: every call ends in bounded time with a named error, or goes on.

use std::time::{Duration, Instant};

use niclab_abi::bar::SLOTS;
use niclab_abi::receive::{SLICE_NUMBER_SHIFT, SLICE_WORDS_MASK, STATUS_LINE_INTERVAL};
use proptest::prelude::*;

use super::double::{Fault, Nic, Packet, port};
use super::{Flags, Port, Progress};
use crate::{Address, Error, WaitPolicy};

const SECOND: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(5);
const POLICIES: [WaitPolicy; 3] = [WaitPolicy::Spin, WaitPolicy::Block, WaitPolicy::ADAPTIVE];

fn fresh(slices: u32) -> (Port, Nic) {
    port(3, slices, Progress::default())
}

/// Message `number`, as it was launched.
fn packet(number: u64, interrupts: bool) -> Packet {
    let code = if interrupts { niclab_abi::bar::CODE_INTERRUPT } else { 0 };
    Packet { code, payload: vec![number], tag: [number; 2], source: Address { node: 1, port: 0 } }
}

/// The number of the next message, or the slices that are lost.
fn receive(port: &mut Port) -> Result<u64, (u64, u64)> {
    match port.receive(SECOND) {
        Ok(message) => Ok(message.tag()[0]),
        Err(Error::SlicesLost { number, count, .. }) => Err((number, count)),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_stale_slice_is_an_error_once_and_the_port_goes_on() {
    for policy in POLICIES {
        let (mut port, mut nic) = fresh(8);
        port.set_wait_policy(policy);
        nic.deliver(packet(1, false));
        nic.deliver_with(packet(2, false), Fault::Stale);
        nic.deliver_with(packet(3, false), Fault::Stale);
        nic.deliver(packet(4, false));
        assert_eq!(receive(&mut port), Ok(1), "{policy:?}");
        assert_eq!(receive(&mut port), Err((2, 2)), "{policy:?}");
        assert_eq!(receive(&mut port), Ok(4), "{policy:?}");
        let text = Error::SlicesLost {
            device: "niclab0".into(),
            port: 3,
            number: 2,
            count: 2,
            what: "slice 4 is there, and they are not".into(),
        }
        .to_string();
        assert!(text.contains("niclab0: port 3: 2 slice(s) from number 2"), "{text}");
    }
}

#[test]
fn a_stale_slice_with_nothing_behind_it_is_a_time_out() {
    let (mut port, mut nic) = fresh(8);
    nic.deliver_with(packet(1, false), Fault::Stale);
    assert!(matches!(port.receive(SHORT), Err(Error::TimedOut { .. })));
    nic.deliver(packet(2, false));
    assert_eq!(receive(&mut port), Err((1, 1)));
    assert_eq!(receive(&mut port), Ok(2));
}

#[test]
fn a_program_that_only_polls_can_check() {
    let (mut port, mut nic) = fresh(8);
    port.receiver().check().expect("nothing there");
    nic.deliver_with(packet(1, false), Fault::Stale);
    nic.deliver(packet(2, false));
    assert!(port.try_receive().is_none());
    let error = port.receiver().check().expect_err("one is missing");
    assert!(matches!(error, Error::SlicesLost { number: 1, count: 1, .. }), "{error}");
    assert_eq!(port.try_receive().expect("the next").tag(), [2, 2]);
}

#[test]
fn a_status_that_is_none_is_an_error_and_the_port_goes_on() {
    let (mut port, mut nic) = fresh(8);
    // 14 payload words: no packet has more than 8.
    nic.deliver_with(packet(1, false), Fault::BadStatus(SLICE_WORDS_MASK));
    nic.deliver(packet(2, false));
    let error = port.receive(SECOND).expect_err("no slice");
    assert!(
        matches!(&error, Error::SlicesLost { number: 1, count: 1, what, .. } if what.contains("0x00000001")),
        "{error}"
    );
    assert_eq!(receive(&mut port), Ok(2));
}

#[test]
fn a_status_of_a_number_far_ahead_is_never_received() {
    let (mut port, mut nic) = fresh(8);
    nic.deliver_with(packet(1, false), Fault::BadStatus(1 << (SLICE_NUMBER_SHIFT + 20)));
    assert!(matches!(port.receive(SHORT), Err(Error::TimedOut { .. })));
}

#[test]
fn a_short_slice_is_known_by_its_tag() {
    let (mut port, mut nic) = fresh(8);
    nic.deliver_with(packet(1, false), Fault::Short);
    assert_eq!(port.receive(SECOND).expect("it says that all is well").tag(), [1, 0]);
}

#[test]
fn a_lost_interrupt_costs_a_sleeper_no_more_than_the_time_of_a_check() {
    let (mut port, mut nic) = fresh(8);
    port.set_wait_policy(WaitPolicy::Block);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let begin = Instant::now();
            let number = receive(&mut port);
            (number, begin.elapsed())
        });
        while nic.armed_register() != 1 {
            std::thread::yield_now();
        }
        nic.deliver_with(packet(1, false), Fault::LostInterrupt);
        let (number, waited) = receiver.join().expect("no panic");
        assert_eq!(number, Ok(1));
        assert!(waited < SECOND, "{waited:?}");
    });
}

#[test]
fn a_doubled_interrupt_wakes_a_receiver_for_nothing_and_that_is_all() {
    let (mut port, mut nic) = fresh(8);
    port.set_wait_policy(WaitPolicy::Block);
    nic.deliver_with(packet(1, true), Fault::DoubledInterrupt);
    assert_eq!(receive(&mut port), Ok(1));
    assert!(matches!(port.receive(SHORT), Err(Error::TimedOut { .. })));
    nic.deliver(packet(2, true));
    assert_eq!(receive(&mut port), Ok(2));
}

#[test]
fn a_stale_status_line_holds_a_sender_up_until_the_next() {
    let (mut port, mut nic) = fresh(64);
    for _ in 0..SLOTS {
        port.send(&[], [0; 2], Flags::NONE, SECOND).expect("room");
    }
    nic.lose_status_line();
    for _ in 0..STATUS_LINE_INTERVAL {
        nic.take().expect("launched");
    }
    let late = port.send(&[], [0; 2], Flags::NONE, SHORT);
    assert!(matches!(late, Err(Error::TimedOut { operation: "send", .. })), "{late:?}");
    for _ in 0..STATUS_LINE_INTERVAL {
        nic.take().expect("launched");
    }
    port.send(&[], [0; 2], Flags::NONE, SHORT).expect("sixteen slots are free");
}

proptest! {
    /// Whatever is left out, and wherever the counters stand: every message that was written is received once and in order,
    /// every one that was not is reported once, and slices are released so that the queue never locks up.
    #[test]
    fn lost_and_received_add_up(
        stale in proptest::collection::vec(any::<bool>(), 1..200),
        slices in prop_oneof![Just(8_u32), Just(64)],
        before_wrap in 0..100_u64,
        fresh in any::<bool>(),
    ) {
        let start = if fresh { 0 } else { (1 << 32) - before_wrap };
        let (mut port, mut nic) = port(3, slices, Progress { launched: start, received: start });
        let (mut received, mut lost) = (Vec::new(), Vec::new());
        for (index, &is_stale) in (1_u64..).zip(&stale) {
            // The last of every eight is written, so that the port can see what is missing.
            if is_stale && !index.is_multiple_of(8) {
                nic.deliver_with(packet(index, false), Fault::Stale);
                continue;
            }
            nic.deliver(packet(index, false));
            prop_assert_eq!(nic.in_queue(), 0, "the queue is locked up");
            loop {
                match receive(&mut port) {
                    Ok(number) => { received.push(number); break }
                    Err((number, count)) => lost.extend((0..count).map(|n| number - start + n)),
                }
            }
        }
        let is_left_out = |index: &u64| stale[*index as usize - 1] && !index.is_multiple_of(8);
        let last = received.last().copied().unwrap_or(0);
        prop_assert_eq!(&lost, &(1..=last).filter(is_left_out).collect::<Vec<_>>());
        prop_assert_eq!(&received, &(1..=last).filter(|index| !is_left_out(index)).collect::<Vec<_>>());
    }
}
