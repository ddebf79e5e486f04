//! Ports against the double of the device.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use niclab_abi::bar::{CODE_ACKNOWLEDGE, CODE_INTERRUPT, CODE_NOTIFY, SLOTS};
use niclab_abi::receive::{REFUSED_NO_ROUTE, STATUS_LINE_INTERVAL};
use proptest::prelude::*;

use super::double::{Nic, Wires, port};
use super::{Flags, Message, Port, Progress, Refusal};
use crate::{Address, Error, WaitPolicy};
use niclab_port::atomic::store;

const SECOND: Duration = Duration::from_secs(1);

fn fresh(slices: u32) -> (Port, Nic) {
    port(3, slices, Progress::default())
}

/// Carries everything that is launched to the device's own receive queue.
fn loop_back(nic: &mut Nic) {
    while let Some(packet) = nic.take() {
        nic.deliver(packet);
    }
    nic.store_waiting();
}

/// One step of a random schedule.
#[derive(Clone, Debug)]
enum Step {
    Send { words: usize, flags: u8 },
    Device { slots: usize },
    Receive { messages: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..=8_usize, 0..8_u8).prop_map(|(words, flags)| Step::Send { words, flags }),
        1 => (0..40_usize).prop_map(|slots| Step::Device { slots }),
        1 => (0..40_usize).prop_map(|messages| Step::Receive { messages }),
    ];
    proptest::collection::vec(step, 1..400)
}

/// The flags as numbers 0..8.
fn flags_of(number: u8) -> Flags {
    let all = [Flags::NOTIFY, Flags::INTERRUPT, Flags::ACKNOWLEDGE];
    all.iter()
        .enumerate()
        .filter(|(bit, _)| number >> bit & 1 != 0)
        .fold(Flags::NONE, |sum, (_, &flag)| sum | flag)
}

/// Sends and expects, so that any loss, duplicate, reordering or damage shows at once.
struct Checker {
    port: Port,
    nic: Nic,
    count: u64,
    expected: VecDeque<(Vec<u64>, [u64; 2], Flags)>,
}

impl Checker {
    fn run(&mut self, step: &Step) {
        match *step {
            Step::Send { words, flags } => self.send(words, flags_of(flags)),
            Step::Device { slots } => {
                for _ in 0..slots {
                    let Some(packet) = self.nic.take() else { break };
                    self.nic.deliver(packet);
                }
                self.nic.store_waiting();
            }
            Step::Receive { messages } => {
                for _ in 0..messages {
                    let Some(message) = self.port.try_receive() else { break };
                    self.check(&message);
                }
            }
        }
    }

    fn send(&mut self, words: usize, flags: Flags) {
        let payload: Vec<u64> = (0..words as u64).map(|word| self.count << 8 | word).collect();
        let tag = [self.count, !self.count];
        if self.port.try_send(&payload, tag, flags).expect("a sound device").is_some() {
            self.count += 1;
            self.expected.push_back((payload, tag, flags));
        }
    }

    fn check(&mut self, message: &Message) {
        let (payload, tag, flags) = self.expected.pop_front().expect("a message that was never sent");
        assert_eq!((message.payload(), message.tag()), (&payload[..], tag));
        assert_eq!(message.source(), Address { node: 3, port: 0 });
        for flag in [Flags::INTERRUPT, Flags::ACKNOWLEDGE] {
            assert_eq!(message.flags().contains(flag), flags.contains(flag));
        }
    }
}

proptest! {
    /// Whatever the order of steps, and wherever the counters stand, also right before they wrap: every message arrives
    /// once, whole and in order, and the page and the queue never lock up.
    #[test]
    fn nothing_is_lost_duplicated_or_reordered(
        steps in steps(),
        slices in prop_oneof![Just(8_u32), Just(64)],
        before_wrap in 0..100_u64,
        fresh in any::<bool>(),
    ) {
        let start = if fresh { 0 } else { (1 << 32) - before_wrap };
        let (port, nic) = port(3, slices, Progress { launched: start, received: start });
        let mut checker = Checker { port, nic, count: 0, expected: VecDeque::new() };
        for step in &steps {
            checker.run(step);
        }
        while !checker.expected.is_empty() {
            let before = checker.expected.len();
            checker.run(&Step::Device { slots: usize::MAX });
            checker.run(&Step::Receive { messages: usize::MAX });
            prop_assert!(checker.expected.len() < before, "stuck with {before} messages under way");
        }
        prop_assert!(checker.port.try_receive().is_none());
    }
}

#[test]
fn a_message_is_coded_as_the_page_wants_it() {
    let (mut port, mut nic) = fresh(8);
    port.send(&[1, 2, 3], [4, 5], Flags::NOTIFY | Flags::INTERRUPT, SECOND).expect("room");
    let packet = nic.take().expect("launched");
    assert_eq!((packet.payload, packet.tag), (vec![1, 2, 3], [4, 5]));
    assert_eq!(packet.code, CODE_NOTIFY | CODE_INTERRUPT | 5 << 3, "a burst of three words begins at word 5");
    port.send(&[], [6, 7], Flags::ACKNOWLEDGE, SECOND).expect("room");
    assert_eq!(
        nic.take().expect("launched").code,
        CODE_ACKNOWLEDGE | 8 << 3,
        "the tag alone begins at word 8"
    );
}

#[test]
fn a_payload_of_nine_words_is_refused() {
    let (mut port, _nic) = fresh(8);
    assert!(matches!(port.send(&[0; 9], [0; 2], Flags::NONE, SECOND), Err(Error::BadValue { value: 9, .. })));
    assert!(matches!(
        port.sender().send_bytes(&[0; 65], [0; 2], Flags::NONE, SECOND),
        Err(Error::BadValue { value: 65, .. })
    ));
}

#[test]
fn the_doorbell_is_rung_only_where_it_is_wanted() {
    let (mut port, mut nic) = fresh(8);
    nic.set_doorbell(false);
    port.send(&[], [0; 2], Flags::NONE, SECOND).expect("room");
    assert_eq!(nic.wires.rings(), 0);
    nic.set_doorbell(true);
    port.send(&[], [0; 2], Flags::NONE, SECOND).expect("room");
    assert_eq!(nic.wires.rings(), 1);
    // Releases are announced too: a quarter of eight slices is two.
    loop_back(&mut nic);
    assert!(port.try_receive().is_some());
    assert_eq!(nic.wires.rings(), 1, "one slice is not worth a release");
    assert!(port.try_receive().is_some());
    assert_eq!(nic.wires.rings(), 2);
}

#[test]
fn a_full_page_takes_no_more_until_the_status_line_says_so() {
    let (mut port, mut nic) = fresh(64);
    for _ in 0..SLOTS {
        assert!(port.try_send(&[], [0; 2], Flags::NONE).expect("sound").is_some());
    }
    assert!(port.try_send(&[], [0; 2], Flags::NONE).expect("sound").is_none());
    let late = port.send(&[], [0; 2], Flags::NONE, Duration::from_millis(5));
    assert!(matches!(late, Err(Error::TimedOut { operation: "send", .. })), "{late:?}");
    for _ in 0..STATUS_LINE_INTERVAL {
        nic.take().expect("a launched slot");
    }
    let number = port.send(&[], [0; 2], Flags::NONE, Duration::from_millis(5)).expect("eight slots are free");
    assert_eq!(number, u64::from(SLOTS) + 1);
}

/// A sender with two credits of sixty-four slices must not wait for a release of sixteen.
#[test]
fn small_credits_make_for_frequent_releases() {
    let (mut port, mut nic) = fresh(64);
    port.authorize(Address { node: 3, port: 0 }, 2).expect("the double agrees");
    nic.set_doorbell(true);
    for received in 1..=8 {
        port.send(&[], [0; 2], Flags::NONE, SECOND).expect("room");
        loop_back(&mut nic);
        let rings = nic.wires.rings();
        port.try_receive().expect("delivered");
        assert_eq!(nic.wires.rings(), rings + 1, "message {received} was not released");
    }
}

#[test]
fn flush_waits_for_the_report_of_the_last_message() {
    let (mut port, mut nic) = fresh(8);
    port.flush(SECOND).expect("nothing was sent");
    port.send(&[], [0; 2], Flags::NONE, SECOND).expect("room");
    assert!(matches!(port.flush(SECOND), Err(Error::NothingReported { .. })));
    port.send(&[], [0; 2], Flags::NOTIFY, SECOND).expect("room");
    assert!(matches!(port.flush(Duration::from_millis(1)), Err(Error::TimedOut { .. })));
    loop_back(&mut nic);
    port.flush(Duration::ZERO).expect("both left");
    let status = port.sender().status();
    assert_eq!((status.launched, status.notified, status.acknowledged), (2, 1, 0));
}

#[test]
fn an_acknowledgement_can_be_awaited() {
    let (mut port, mut nic) = fresh(8);
    port.send(&[], [0; 2], Flags::ACKNOWLEDGE, SECOND).expect("room");
    assert!(port.sender().wait_acknowledged(1, Duration::from_millis(1)).is_err());
    loop_back(&mut nic);
    nic.acknowledge();
    port.sender().wait_acknowledged(1, SECOND).expect("it came");
}

#[test]
fn a_refused_launch_is_told_once_with_its_reason() {
    let (mut port, mut nic) = fresh(8);
    port.send(&[], [0; 2], Flags::NOTIFY, SECOND).expect("room");
    nic.refuse(REFUSED_NO_ROUTE);
    let error = port.flush(SECOND).expect_err("refused");
    assert!(
        matches!(error, Error::Launch { count: 1, .. }) && error.to_string().contains("route"),
        "{error}"
    );
    port.flush(SECOND).expect("told already");
    assert_eq!(port.sender().status().refusal, Some(Refusal::NoRoute));
}

#[test]
fn a_status_line_that_contradicts_itself_is_an_error() {
    let (mut port, nic) = fresh(8);
    port.send(&[], [0; 2], Flags::NOTIFY, SECOND).expect("room");
    store(&nic.status.words()[0], 2);
    assert!(matches!(port.flush(SECOND), Err(Error::Inconsistent { .. })));
}

#[test]
fn receive_times_out_while_the_device_lives() {
    for policy in [WaitPolicy::Spin, WaitPolicy::Block, WaitPolicy::ADAPTIVE] {
        let (mut port, _nic) = fresh(8);
        port.set_wait_policy(policy);
        let result = port.receive(Duration::from_millis(5));
        assert!(
            matches!(result, Err(Error::TimedOut { operation: "receive", .. })),
            "{policy:?}: {result:?}"
        );
    }
}

#[test]
fn a_dead_device_ends_every_wait() {
    for policy in [WaitPolicy::Spin, WaitPolicy::Block, WaitPolicy::ADAPTIVE] {
        let (mut port, nic) = fresh(8);
        port.set_wait_policy(policy);
        for _ in 0..SLOTS {
            port.send(&[], [0; 2], Flags::NOTIFY, SECOND).expect("room");
        }
        nic.wires.die();
        let began = Instant::now();
        assert!(matches!(port.receive(3 * SECOND), Err(Error::DeviceGone { .. })));
        let full = port.send(&[], [0; 2], Flags::NONE, 3 * SECOND);
        assert!(matches!(full, Err(Error::DeviceGone { .. })));
        assert!(matches!(port.flush(3 * SECOND), Err(Error::DeviceGone { .. })));
        assert!(began.elapsed() < 2 * SECOND, "{policy:?} took {:?}", began.elapsed());
    }
}

/// A program that polls in short waits of its own must learn it as well.
#[test]
fn a_dead_device_ends_a_loop_of_short_waits() {
    let (mut port, nic) = fresh(8);
    nic.wires.die();
    let began = Instant::now();
    while matches!(port.receive(Duration::from_millis(2)), Err(Error::TimedOut { .. })) {
        assert!(began.elapsed() < 2 * SECOND, "never noticed");
    }
}

/// The register is one-shot: each sleep must ask for the slice that is next.
#[test]
fn a_receiver_arms_anew_before_each_sleep() {
    let (mut port, mut nic) = fresh(8);
    port.set_wait_policy(WaitPolicy::Block);
    for number in 1..=3 {
        assert!(port.receive(Duration::from_millis(1)).is_err());
        assert_eq!(nic.armed_register(), number);
        port.send(&[], [0; 2], Flags::NONE, SECOND).expect("room");
        loop_back(&mut nic);
        assert_eq!(port.receiver().wait_interrupts(SECOND).expect("alive"), 1);
        port.receive(SECOND).expect("delivered");
    }
}

/// A device that goes to sleep while a message is launched: either it sees the launch, or the sender sees that it must
/// ring. Without the full barrier between the launch and the look at the doorbell word both look too early.
#[test]
fn a_launch_is_never_overlooked_by_a_device_that_falls_asleep() {
    // Without the barrier one in some 700 is overlooked on two busy cores, where rounds cost most.
    const ROUNDS: u64 = 25_000;
    let (mut port, mut nic) = fresh(64);
    let wires = Arc::clone(&nic.wires);
    // Rounds begin on both sides at once, so that the stores and the looks of both meet.
    let (device_at, sender_at) = (AtomicU64::new(0), AtomicU64::new(0));
    let meet = |mine: &AtomicU64, theirs: &AtomicU64, round: u64| {
        mine.store(round, Ordering::SeqCst);
        while theirs.load(Ordering::SeqCst) < round {
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|scope| {
        let device = scope.spawn(|| {
            let _leave = Leave(&device_at);
            let mut overlooked = 0;
            for round in 1..=ROUNDS {
                nic.set_doorbell(false);
                let rings = wires.rings();
                meet(&device_at, &sender_at, 2 * round - 1);
                (0..round % 64).for_each(|_| std::hint::spin_loop());
                nic.set_doorbell(true);
                let seen = nic.take();
                meet(&device_at, &sender_at, 2 * round);
                overlooked += u64::from(seen.is_none() && wires.rings() == rings);
                let _ = seen.or_else(|| nic.take());
            }
            overlooked
        });
        // However either side ends, the other must not wait for it.
        let _leave = Leave(&sender_at);
        for round in 1..=ROUNDS {
            meet(&sender_at, &device_at, 2 * round - 1);
            port.send(&[], [0; 2], Flags::NOTIFY, 10 * SECOND).expect("the page is almost empty");
            meet(&sender_at, &device_at, 2 * round);
        }
        assert_eq!(device.join().expect("no panic"), 0, "launches overlooked");
    });
}

/// Leaves all meetings that would still come.
struct Leave<'a>(&'a AtomicU64);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Ordering::SeqCst);
    }
}

/// Sender, device and receiver race; the device sleeps by the doorbell protocol and the receiver by the armed register,
/// so that a missing barrier or a lost wake-up ends in the time-out.
#[test]
fn no_wake_up_is_lost_between_threads() {
    const MESSAGES: u64 = 20_000;
    for policy in [WaitPolicy::Block, WaitPolicy::Adaptive { spin: Duration::from_micros(5) }] {
        let (mut port, mut nic) = fresh(64);
        port.set_wait_policy(policy);
        let wires = Arc::clone(&nic.wires);
        let (sender, receiver) = port.split();
        std::thread::scope(|scope| {
            scope.spawn(|| run_device(&mut nic, &mut |_| {}));
            let _end = EndDevice(wires);
            scope.spawn(move || {
                for number in 0..MESSAGES {
                    sender.send(&[number], [number; 2], Flags::NONE, 10 * SECOND).expect("the page empties");
                }
            });
            for number in 0..MESSAGES {
                let message = receiver.receive(10 * SECOND).expect("it comes");
                assert_eq!((message.payload(), message.tag()), (&[number][..], [number; 2]));
            }
        });
        assert_eq!(nic.in_queue(), 0);
    }
}

/// Ends the device's thread however the test ends.
struct EndDevice(Arc<Wires>);

impl Drop for EndDevice {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Where [`run_device`] stands in its round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Awake,
    Drained,
    Counted,
    Asked,
    Missed,
}

/// A device that sleeps whenever there is nothing to do, exactly as `niclab_abi::bar::InfoPage::doorbell` tells, until its
/// wires end it. `at` is called at each place of each round.
fn run_device(nic: &mut Nic, at: &mut dyn FnMut(Place)) {
    loop {
        at(Place::Awake);
        nic.set_doorbell(false);
        loop_back(nic);
        at(Place::Drained);
        let seen = nic.wires.rings();
        at(Place::Counted);
        nic.set_doorbell(true);
        at(Place::Asked);
        let missed = nic.take();
        nic.store_waiting();
        at(Place::Missed);
        match missed {
            Some(packet) => nic.deliver(packet),
            None if nic.wires.wait_ring(seen) => {}
            None => break,
        }
    }
}

/// An end that comes between any two of the device's looks is none that it overlooks.
#[test]
fn a_device_that_is_ended_at_any_place_ends() {
    for end in [Place::Awake, Place::Drained, Place::Counted, Place::Asked, Place::Missed] {
        let (_port, mut nic) = fresh(8);
        let (ended, is_over) = std::sync::mpsc::channel();
        // Not joined: where this fails the device sleeps for ever.
        std::thread::spawn(move || {
            let wires = Arc::clone(&nic.wires);
            run_device(&mut nic, &mut |place| {
                if place == end {
                    wires.end();
                }
            });
            ended.send(())
        });
        assert_eq!(is_over.recv_timeout(60 * SECOND), Ok(()), "ended at {end:?}, it sleeps on");
    }
}

/// A ring at any place wakes a device that counted before it, and one that did not sees what it was rung for.
#[test]
fn a_message_that_is_sent_at_any_place_arrives() {
    for send in [Place::Awake, Place::Drained, Place::Counted, Place::Asked, Place::Missed] {
        let (mut port, mut nic) = fresh(8);
        let (received, message) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let wires = Arc::clone(&nic.wires);
            let mut is_sent = false;
            run_device(&mut nic, &mut |place| {
                if place == send && !is_sent {
                    is_sent = true;
                    port.send(&[7], [0; 2], Flags::NONE, SECOND).expect("room");
                }
                if let Some(message) = port.try_receive() {
                    received.send(message.payload().to_vec()).expect("awaited");
                    wires.end();
                }
            });
        });
        assert_eq!(message.recv_timeout(60 * SECOND), Ok(vec![7]), "sent at {send:?}, it sleeps on");
    }
}
