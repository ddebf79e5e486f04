//! Transmission times of frames: which channel sends next, the time of the scan for it, and cut-through.

use std::collections::BTreeMap;

use niclab_model::models::grim::Config;
use niclab_model::models::grim::wire::{FrameKind, Header};
use niclab_model::time::{Span, Time};

use crate::support::grim::{Faults, Message, PLAIN, Sent, To, Wire, config};
use crate::support::matching::pattern;

const REGION: u64 = 48 << 10;

fn message(bytes: usize, segment: usize) -> Message {
    let to = To::Handler { handler: 20, arguments: [1, 2, 3, 4] };
    Message { node: 1, endpoint: 0, to, payload: pattern(9, bytes), segment, interrupt: false }
}

/// Two cards. The first one has `ports` open ports.
fn wire(ports: u32, card: impl Fn(Config) -> Config) -> Wire {
    let mut wire = Wire::new(1, Faults::default(), 2, |node| card(config(node, 2)));
    (0..ports).for_each(|port| wire.open(0, port, PLAIN));
    wire.open(1, 0, PLAIN);
    wire.record = Some(Vec::new());
    wire
}

/// Delivers all messages. Returns the first card's message frames.
fn frames(wire: &mut Wire) -> Vec<(Header, Sent)> {
    while wire.step() {
        while wire.receive(1, 0).is_some() {
            wire.release(1, 0);
        }
    }
    let sent = wire.record.take().unwrap().into_iter().filter(|sent| sent.from == 0);
    let parsed = sent.map(|sent| (Header::parse(&sent.frame).unwrap().0, sent));
    parsed.filter(|(header, _)| matches!(header.kind, FrameKind::Message(_))).collect()
}

#[test]
fn busy_channels_share_the_wire_by_weight() {
    let mut wire = wire(3, |card| Config { weights: [3, 1, 2].into(), ..card });
    for number in 0..40 {
        assert!(wire.send(0, number % 2 * 2, &message(0, 0), REGION));
        assert!(wire.send(0, 1, &message(0, 0), REGION));
    }
    let channels: Vec<u8> = frames(&mut wire).iter().map(|(header, _)| header.channel).collect();
    // Frames 6 to 30: all channels have messages to send. The first frames left before that.
    let turns = |channel: u8| channels[6..30].iter().filter(|other| **other == channel).count();
    assert_eq!([turns(0), turns(1), turns(2)], [12, 4, 8], "{channels:?}");
    assert_eq!(channels.len(), 80);
}

/// The most frequent gap between two frames of one busy channel, on a card with `channels` channels.
fn gap(channels: u32) -> Span {
    let mut wire = wire(1, |card| Config { channels, payload_bytes: 64, ..card });
    (0..30).for_each(|_| assert!(wire.send(0, 0, &message(0, 0), 64)));
    let sent = frames(&mut wire);
    let gaps: BTreeMap<Span, usize> = sent.windows(2).skip(10).fold(BTreeMap::new(), |mut gaps, pair| {
        *gaps.entry(pair[1].1.head.since(pair[0].1.head)).or_default() += 1;
        gaps
    });
    *gaps.iter().max_by_key(|(_, count)| **count).unwrap().0
}

#[test]
fn scan_time_is_proportional_to_the_number_of_channels() {
    // The scan takes four cycles of 30 ns for each channel.
    let [one, eight, all] = [1, 8, 64].map(gap);
    let look = 4 * 30_000;
    assert_eq!((eight.as_ps() - one.as_ps(), all.as_ps() - one.as_ps()), (7 * look, 63 * look));
}

/// Frames of a message of 20,000 bytes, and the time of its arrival.
fn pushed(segment: usize) -> (Vec<(Header, Sent)>, Time) {
    let mut wire = wire(1, |card| card);
    let sent = message(20_000, segment);
    assert!(wire.send(0, 0, &sent, REGION));
    let mut came = None;
    while wire.step() {
        if let Some(found) = wire.receive(1, 0) {
            assert!(found.payload == sent.payload);
            came = Some(wire.now);
            wire.release(1, 0);
        }
    }
    wire.check_memory();
    (frames(&mut wire), came.unwrap())
}

#[test]
fn a_segmented_message_leaves_before_it_is_completely_pushed() {
    let ((whole, whole_came), (cut, cut_came)) = (pushed(0), pushed(32));
    assert_eq!((whole.len(), cut.len()), (14, 14));
    assert!(whole.iter().all(|(_, sent)| sent.head == sent.tail));
    assert!(cut[0].1.head < cut[0].1.tail, "the first byte leaves while the program pushes the last one");
    assert!(cut[0].1.head < whole[0].1.head && cut_came < whole_came);
    // The bytes on the wire are the same.
    let bytes =
        |frames: &[(Header, Sent)]| frames.iter().map(|(_, sent)| sent.frame.to_vec()).collect::<Vec<_>>();
    assert!(bytes(&whole) == bytes(&cut));
}
