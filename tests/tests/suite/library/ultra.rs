//! Ports of slices: every documented property of the library's two halves, on the card itself.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use niclab_abi::bar::{COMPLETER_ARMED_OFFSET, SLOTS, WINDOW_COMPLETER};
use niclab_spec::daemon::DaemonConfig;
use niclab_user::slices::{Flags, Message, Port, Refusal};
use niclab_user::{Error, WaitPolicy};
use proptest::prelude::*;

use super::{Cluster, SHORT, TIMEOUT, node, until};

pub(super) const POLICIES: [WaitPolicy; 3] = [WaitPolicy::Spin, WaitPolicy::Block, WaitPolicy::ADAPTIVE];

/// Two nodes with a port each. A port has `slices` slices, and may be `credits` messages ahead of the other.
pub(super) fn pair_with(
    slices: u32,
    credits: u32,
    change: impl FnOnce(&mut DaemonConfig),
) -> (Cluster, [Port; 2]) {
    let cluster = Cluster::new(2, "ultra", change);
    let mut ports = [0, 1].map(|node| Port::from_parts(cluster.open(node, slices)).expect("a port"));
    for (port, peer) in ports.iter_mut().zip([1, 0]) {
        port.authorize(node(peer), credits).expect("slices are left");
    }
    for (port, peer) in ports.iter_mut().zip([1, 0]) {
        port.route(node(peer)).expect("a route");
    }
    (cluster, ports)
}

fn pair(slices: u32, credits: u32) -> (Cluster, [Port; 2]) {
    pair_with(slices, credits, |_| {})
}

/// The number of the record that this node's port is armed for.
pub(super) fn armed(cluster: &Cluster, node: usize) -> u64 {
    let guest = &cluster.guests[node];
    let page = guest.bar().page(guest.page_of(WINDOW_COMPLETER, 0).expect("an open port's page"));
    u64::from_le(page[(COMPLETER_ARMED_OFFSET / 8) as usize].load(Ordering::Acquire))
}

/// Posts at node 0 until its page stays full, because node 1 receives nothing and gave only `credits` credits. Returns
/// the number of posts.
fn fill(cluster: &Cluster, port: &mut Port, credits: u64) -> u64 {
    let mut launched = 0;
    until("the page stays full", || {
        while port.try_send(&[], [launched; 2], Flags::NOTIFY).expect("a valid status").is_some() {
            launched += 1;
        }
        let is_spent = cluster.figures(1).messages_received == credits;
        cluster.settle(0);
        let more = port.try_send(&[], [launched; 2], Flags::NOTIFY).expect("a valid status");
        launched += u64::from(more.is_some());
        is_spent && more.is_none()
    });
    launched
}

/// One step of a random schedule.
#[derive(Clone, Debug)]
enum Step {
    Send { from: usize, words: usize, flags: u8 },
    Settle { node: usize },
    Receive { at: usize, messages: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let node = 0..2_usize;
    let step = prop_oneof![
        3 => (node.clone(), 0..=8_usize, 0..8_u8)
            .prop_map(|(from, words, flags)| Step::Send { from, words, flags }),
        1 => node.clone().prop_map(|node| Step::Settle { node }),
        1 => (node, 0..40_usize).prop_map(|(at, messages)| Step::Receive { at, messages }),
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

/// Payload, tag and flags of a message.
type Content = (Vec<u64>, [u64; 2], Flags);

/// Sends messages and compares the received ones, so that each loss, duplicate, reordering or damage fails at once.
struct Checker {
    cluster: Cluster,
    ports: [Port; 2],
    count: u64,
    /// The messages that each node must receive.
    expected: [VecDeque<Content>; 2],
}

impl Checker {
    fn run(&mut self, step: &Step) {
        match *step {
            Step::Send { from, words, flags } => self.send(from, words, flags_of(flags)),
            Step::Settle { node } => self.cluster.settle(node),
            Step::Receive { at, messages } => {
                for _ in 0..messages {
                    let Some(message) = self.ports[at].try_receive() else { break };
                    self.check(at, &message);
                }
            }
        }
    }

    fn send(&mut self, from: usize, words: usize, flags: Flags) {
        let payload: Vec<u64> = (0..words as u64).map(|word| self.count << 8 | word).collect();
        let tag = [self.count, !self.count];
        if self.ports[from].try_send(&payload, tag, flags).expect("a valid status").is_some() {
            self.count += 1;
            self.expected[1 - from].push_back((payload, tag, flags));
        }
    }

    fn check(&mut self, at: usize, message: &Message) {
        let (payload, tag, flags) = self.expected[at].pop_front().expect("a message that was never sent");
        assert_eq!((message.payload(), message.tag()), (&payload[..], tag));
        assert_eq!(message.source(), node(1 - at as u32));
        for flag in [Flags::INTERRUPT, Flags::ACKNOWLEDGE] {
            assert_eq!(message.flags().contains(flag), flags.contains(flag));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// For any order of steps: every message arrives once, complete and in order, and neither page nor queue locks up.
    #[test]
    fn messages_are_not_lost_duplicated_or_reordered(
        steps in steps(),
        slices in prop_oneof![Just(8_u32), Just(64)],
    ) {
        let (cluster, ports) = pair(slices, slices / 2);
        let mut checker = Checker { cluster, ports, count: 0, expected: Default::default() };
        for step in &steps {
            checker.run(step);
        }
        for at in 0..2 {
            while !checker.expected[at].is_empty() {
                let message = checker.ports[at].receive(TIMEOUT).expect("a message in flight");
                checker.check(at, &message);
            }
        }
        (0..2).for_each(|node| checker.cluster.settle(node));
        prop_assert!(checker.ports.iter_mut().all(|port| port.try_receive().is_none()));
    }
}

#[test]
fn a_payload_of_nine_words_is_refused() {
    let (_cluster, [mut port, _]) = pair(8, 4);
    let long = port.send(&[0; 9], [0; 2], Flags::NONE, TIMEOUT);
    assert!(matches!(long, Err(Error::BadValue { value: 9, .. })), "{long:?}");
    let long = port.sender().send_bytes(&[0; 65], [0; 2], Flags::NONE, TIMEOUT);
    assert!(matches!(long, Err(Error::BadValue { value: 65, .. })), "{long:?}");
}

#[test]
fn a_full_page_accepts_posts_after_the_next_status_line() {
    let (cluster, [mut a, mut b]) = pair(64, 8);
    let launched = fill(&cluster, &mut a, 8);
    assert!(launched >= u64::from(SLOTS));
    let late = a.send(&[], [0; 2], Flags::NONE, SHORT);
    assert!(matches!(late, Err(Error::TimedOut { operation: "send", .. })), "{late:?}");
    for number in 0..8 {
        assert_eq!(b.receive(TIMEOUT).expect("stored").tag(), [number; 2]);
    }
    let number = a.send(&[], [launched; 2], Flags::NONE, TIMEOUT).expect("the card continues");
    assert_eq!(number, launched + 1);
}

/// A sender with two credits of a queue of 64 slices must not wait until the receiver releases 16 at once.
#[test]
fn small_credits_cause_frequent_releases() {
    let (_cluster, [mut a, mut b]) = pair(64, 2);
    for number in 0..8 {
        a.send(&[], [number; 2], Flags::NONE, TIMEOUT).expect("room");
        assert_eq!(b.receive(TIMEOUT).expect("the one before was released").tag(), [number; 2]);
    }
}

#[test]
fn flush_waits_for_the_report_of_the_last_message() {
    let (cluster, [mut a, mut b]) = pair(8, 4);
    a.flush(SHORT).expect("nothing was sent");
    for _ in 0..4 {
        a.send(&[], [0; 2], Flags::NONE, TIMEOUT).expect("room");
    }
    assert!(matches!(a.flush(TIMEOUT), Err(Error::NothingReported { .. })));
    a.send(&[], [0; 2], Flags::NOTIFY, TIMEOUT).expect("room");
    cluster.until_stored(1, 4);
    assert!(matches!(a.flush(SHORT), Err(Error::TimedOut { .. })), "one message waits for credit");
    for _ in 0..4 {
        b.receive(TIMEOUT).expect("stored");
    }
    a.flush(TIMEOUT).expect("all left");
    let status = a.sender().status();
    assert_eq!((status.launched, status.notified, status.acknowledged), (5, 1, 0));
}

#[test]
fn an_acknowledgement_can_be_awaited() {
    let (_cluster, [mut a, mut b]) = pair(8, 4);
    for _ in 0..5 {
        a.send(&[], [0; 2], Flags::ACKNOWLEDGE, TIMEOUT).expect("room");
    }
    a.sender().wait_acknowledged(4, TIMEOUT).expect("four are stored");
    assert!(a.sender().wait_acknowledged(5, SHORT).is_err(), "the fifth waits for credit");
    for _ in 0..4 {
        b.receive(TIMEOUT).expect("stored");
    }
    a.sender().wait_acknowledged(5, TIMEOUT).expect("it came");
}

#[test]
fn a_refused_post_is_reported_once_with_its_reason() {
    let cluster = Cluster::new(1, "ultra", |_| {});
    let mut port = Port::from_parts(cluster.open(0, 8)).expect("a port");
    port.send(&[], [0; 2], Flags::NOTIFY, TIMEOUT).expect("room");
    // The first flush or a later one reports it: the card stores `launched` before `refused`.
    let mut reported = None;
    until("a refusal is reported", || {
        reported = port.flush(TIMEOUT).err();
        reported.is_some()
    });
    let error = reported.expect("reported");
    let is_reported = matches!(error, Error::Launch { count: 1, .. }) && error.to_string().contains("route");
    assert!(is_reported, "{error}");
    port.flush(TIMEOUT).expect("reported already");
    assert_eq!(port.sender().status().refusal, Some(Refusal::NoRoute));
}

#[test]
fn messages_of_a_revoked_source_are_discarded() {
    let (cluster, [mut a, mut b]) = pair(8, 4);
    b.revoke(node(0)).expect("it was authorized");
    assert!(matches!(b.revoke(node(0)), Err(Error::Refused { .. })));
    a.send(&[], [0; 2], Flags::NONE, TIMEOUT).expect("room");
    (0..2).for_each(|node| cluster.settle(node));
    assert!(b.try_receive().is_none());
}

#[test]
fn receive_times_out_while_the_device_lives() {
    let (_cluster, [_, mut port]) = pair(8, 4);
    for policy in POLICIES {
        port.set_wait_policy(policy);
        let result = port.receive(SHORT);
        let is_late = matches!(result, Err(Error::TimedOut { operation: "receive", .. }));
        assert!(is_late, "{policy:?}: {result:?}");
    }
}

/// No wait may last until its deadline, which would be another error.
#[test]
fn a_dead_device_ends_every_wait() {
    for policy in POLICIES {
        let (mut cluster, [mut a, _b]) = pair(8, 4);
        a.set_wait_policy(policy);
        fill(&cluster, &mut a, 4);
        cluster.end();
        assert!(matches!(a.receive(TIMEOUT), Err(Error::DeviceGone { .. })), "{policy:?}");
        let full = a.send(&[], [0; 2], Flags::NONE, TIMEOUT);
        assert!(matches!(full, Err(Error::DeviceGone { .. })), "{policy:?}: {full:?}");
        assert!(matches!(a.flush(TIMEOUT), Err(Error::DeviceGone { .. })), "{policy:?}");
        assert!(matches!(a.route(node(1)), Err(Error::DeviceGone { .. })), "{policy:?}");
    }
}

/// A program that polls in a loop of short waits must get the error, too.
#[test]
fn a_dead_device_ends_a_loop_of_short_waits() {
    let (mut cluster, [_, mut port]) = pair(8, 4);
    cluster.end();
    let mut last = None;
    until("the loop notices it", || {
        last = port.receive(SHORT).err();
        !matches!(last, Some(Error::TimedOut { .. }))
    });
    assert!(matches!(last, Some(Error::DeviceGone { .. })), "{last:?}");
}

/// The register is one-shot: each sleep must request the next slice.
#[test]
fn receiver_arms_again_before_each_sleep() {
    let (cluster, [mut a, mut b]) = pair(8, 4);
    b.set_wait_policy(WaitPolicy::Block);
    for number in 1..=3 {
        assert!(b.receive(SHORT).is_err());
        assert_eq!(armed(&cluster, 1), number);
        a.send(&[], [0; 2], Flags::NONE, TIMEOUT).expect("room");
        assert_eq!(b.receiver().wait_interrupts(TIMEOUT).expect("alive"), 1);
        b.receive(TIMEOUT).expect("stored");
    }
}

/// Sender, device and receiver race. The device sleeps by the doorbell protocol, and the receiver by the armed
/// register. A missing barrier or a lost wake-up shows as a wait until the next periodic check.
#[test]
fn no_wake_up_is_lost_between_threads() {
    const MESSAGES: u64 = 4_000;
    for policy in [WaitPolicy::Block, WaitPolicy::Adaptive { spin: SHORT / 1000 }] {
        let (_cluster, [mut a, mut b]) = pair(64, 32);
        a.set_wait_policy(policy);
        b.set_wait_policy(policy);
        // The port closes only after the last message is received: a closed port discards messages that have not left.
        let a = &mut a;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..MESSAGES {
                    a.send(&[number], [number; 2], Flags::NONE, TIMEOUT).expect("the page empties");
                }
            });
            for number in 0..MESSAGES {
                let message = b.receive(TIMEOUT).expect("it comes");
                assert_eq!((message.payload(), message.tag()), (&[number][..], [number; 2]));
            }
        });
    }
}
