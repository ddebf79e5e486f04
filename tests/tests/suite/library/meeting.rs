//! Instances of `niclab-perf` that meet while earlier ones still run.

use std::thread;
use std::time::Duration;

use niclab_tools::channel::{Channel, MessageKind, Tag, receive};
use niclab_tools::matching::{ListChannel, Matcher, Matching};
use niclab_tools::meeting;
use niclab_tools::nic::NicOptions;
use niclab_user::WaitPolicy;
use niclab_user::matching::Port;
use niclab_user::slices::Flags;

use super::{Cluster, TIMEOUT};

/// The number of events of a port, as in `niclab-perf`.
const EVENTS: u32 = 256;
/// The number of messages of a stream: more than a program has receives.
const MESSAGES: u64 = 200;
/// The number of greetings to the previous program: more than a program has receives.
const GREETINGS: u64 = 100;

fn open(cluster: &Cluster, node: usize, matching: Matching) -> ListChannel {
    let options =
        NicOptions { port: 0, slices: EVENTS, policy: WaitPolicy::Block, timeout: Duration::from_secs(20) };
    let port = Port::from_parts(cluster.open(node, EVENTS)).expect("a port");
    ListChannel::new(port, &options, 1 - node as u32, 48, matching).expect("a channel")
}

const fn tag(kind: MessageKind, bytes: u32, number: u64) -> Tag {
    Tag { kind, step: 0, bytes, number }
}

fn greet_the_program_before(matching: Matching) {
    let cluster = Cluster::new(2, "match", |_| {});
    let before = open(&cluster, 1, matching);
    let mut first = open(&cluster, 0, matching);
    for number in 0..GREETINGS {
        // As `meeting` sends them while no program answers.
        first.try_send(&[7; 8], tag(MessageKind::Hello, 8, number), Flags::NONE).expect("sent");
        cluster.settle(0);
    }
    drop(before);
    let mut second = open(&cluster, 1, matching);
    thread::scope(|scope| {
        scope.spawn(|| {
            meeting::meet(&mut second, "stream", "plan", TIMEOUT).expect("met");
            for number in 1..=MESSAGES {
                let mut payload = [0; 48];
                let found = receive(&mut second, &mut payload).expect("a message");
                assert_eq!(found, tag(MessageKind::Data, 48, number));
            }
            meeting::part(&mut second, 0, [1; 6]).expect("parted");
        });
        meeting::meet(&mut first, "stream", "plan", TIMEOUT).expect("met");
        let payload: Vec<u8> = (0..48).map(niclab_tools::channel::pattern).collect();
        for number in 1..=MESSAGES {
            first.send_pattern(&payload, tag(MessageKind::Data, 48, number), Flags::NONE).expect("sent");
        }
        meeting::part(&mut first, 0, [2; 6]).expect("parted");
    });
}

#[test]
fn greetings_to_the_previous_program_lose_no_stream_message() {
    for on in [Matcher::Card, Matcher::Host] {
        greet_the_program_before(Matching { depth: 2, on });
    }
}
