//! Unkind cards as drivers meet them: what a right driver does not notice and a wrong one does.

use std::sync::atomic::Ordering;

use crate::common::{lab_with, pair, stats, until};
use niclab_abi::bar::{CODE_INTERRUPT, DOORBELL_SPARED, DOORBELL_WANTED, INFO_DOORBELL_OFFSET};
use niclab_device::frontend::ClusterGuest;
use niclab_device::lab::Lab;

fn unkind(seed: Option<u64>) -> Lab {
    lab_with(2, |config| config.nodes.iter_mut().for_each(|node| node.unkind = seed))
}

/// The doorbell word as a program reads it.
fn word(guest: &ClusterGuest) -> u64 {
    u64::from_le(guest.bar().page(0)[INFO_DOORBELL_OFFSET as usize / 8].load(Ordering::SeqCst))
}

/// A wrong driver reads the word before its store, and the card goes to sleep in between. Whether its message is never found.
fn loses_a_message(seed: Option<u64>) -> bool {
    let lab = unkind(seed);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    let shell = lab.daemon().shell();
    // Somebody has rung. The driver reads the word between two looks.
    let mut more = shell.serve_doorbell(0).more;
    let early = word(&guests[0]);
    while more {
        more = shell.serve_doorbell(0).more;
    }
    assert!(a.try_launch(&[1], [1; 2], 0));
    if early == DOORBELL_WANTED {
        guests[0].ring();
    }
    let is_lost = early == DOORBELL_SPARED;
    assert_eq!(word(&guests[0]), DOORBELL_WANTED, "seed {seed:?}: who sleeps wants to be called");
    if is_lost {
        assert_eq!((stats(&lab, 1).messages_received, b.try_receive().is_none()), (0, true), "nobody looks");
        // The right driver reads it behind the store.
        a.announce();
    }
    until("the message is there", || b.try_receive().is_some());
    is_lost
}

#[test]
fn a_driver_that_reads_the_doorbell_word_before_its_store_loses_a_message_on_an_unkind_card() {
    assert!(!loses_a_message(None), "a kind card never sleeps behind a look that found it so");
    let found: Vec<u64> = (0..16).filter(|&seed| loses_a_message(Some(seed))).collect();
    assert!(!found.is_empty() && found.len() < 16, "{found:?}");
}

/// How many events told of so many messages that interrupt, which no driver misses that adds their counts up.
fn events_of(seed: Option<u64>, messages: u64) -> usize {
    let lab = unkind(seed);
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    guests[1].offer_event_buffers(64).unwrap();
    for number in 1..=messages {
        until("there is room", || a.try_launch(&[number], [number; 2], CODE_INTERRUPT));
        a.announce();
    }
    let (mut events, mut count, mut received) = (0, 0, 0);
    until("all are told", || {
        for event in guests[1].take_events().unwrap() {
            events += 1;
            count += event.count;
        }
        while let Some(slice) = b.try_receive() {
            received += 1;
            assert_eq!(slice.tag(), [received; 2], "seed {seed:?}: in their order");
        }
        count == messages && received == messages
    });
    assert_eq!(stats(&lab, 1).unkind.is_empty(), seed.is_none());
    events
}

#[test]
fn a_driver_that_counts_events_and_not_their_counts_misses_messages_of_an_unkind_card() {
    const MESSAGES: u64 = 24;
    assert_eq!(events_of(None, MESSAGES), MESSAGES as usize);
    let fewest = (0..4).map(|seed| events_of(Some(seed), MESSAGES)).min();
    assert!(fewest < Some(MESSAGES as usize), "{fewest:?}");
}
