//! Drivers with one bug each, of a kind that real hardware hides. They work with a normal card, and some seed of an
//! adversarial card finds the bug. The same driver without the bug works with both.

use niclab_device::shell::adversarial;
use niclab_device::shell::service::queues;
use niclab_device::shell::wait;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Desk, LONG, ROOM};
use crate::common::{lab_with, pair};
use niclab_abi::FromBytes;
use niclab_abi::bar::{DOORBELL_SPARED, INFO_DOORBELL_OFFSET};
use niclab_abi::control::{OP_PING, Reply, STATUS_OK};
use niclab_abi::event::{CAUSE_MESSAGE, Event};
use niclab_device::frontend::ClusterGuest;
use niclab_device::ring::Buffer;
use niclab_device::shell::adversary::Tick;
use niclab_spec::WaitPolicy;

/// Number of seeds with which each driver is tested.
const SEEDS: u64 = 24;

/// Runs a driver with or without its bug, with a card that is adversarial by this seed, or normal. Returns what went
/// wrong.
type Driver = fn(seed: Option<u64>, has_bug: bool) -> Result<(), String>;

/// Asserts that only an adversarial card finds the bug.
#[track_caller]
fn assert_found(driver: Driver) {
    assert_eq!(driver(None, false), Ok(()), "the driver without the bug fails with a normal card");
    assert_eq!(driver(None, true), Ok(()), "a normal card does not hide the bug");
    for seed in 0..SEEDS {
        assert_eq!(driver(Some(seed), false), Ok(()), "seed {seed}: the driver without the bug");
    }
    let found = (0..SEEDS).filter(|seed| driver(Some(*seed), true).is_err()).count();
    assert!(found > 0, "none of {SEEDS} seeds finds the bug");
}

/// An operation that does not exist.
const UNKNOWN_OPERATION: u32 = 0xdead;

/// Two requests in flight. The bug: the driver expects replies in the order of requests.
fn answers_in_order(seed: Option<u64>, has_bug: bool) -> Result<(), String> {
    let desk = Desk::new();
    let mut locked = desk.shell().lock_all();
    seed.into_iter().for_each(|seed| adversarial::make_adversarial(&mut locked, 0, seed));
    for _ in 0..16 {
        let asked = [(desk.ask(0, OP_PING), 0, true), (desk.ask(1, UNKNOWN_OPERATION), 1, false)];
        let mut next = asked.iter();
        for _ in 0..asked.len() {
            let head = loop {
                if let Some(head) = desk.answer() {
                    break head;
                }
                if !queues::serve_control(&mut locked, 0) {
                    adversarial::tick(&mut locked, Tick::Activity, Some(Instant::now() + LONG));
                }
            };
            let believed = if has_bug { next.next() } else { asked.iter().find(|(of, ..)| *of == head) };
            let Some((_, place, is_well)) = believed else {
                return Err("a reply without a request".to_owned());
            };
            let mut bytes = [0; Reply::BYTES];
            let address = desk.room + 2 * ROOM * place + ROOM;
            desk.guest.memory().slice(address, Reply::BYTES).unwrap().copy_to(&mut bytes);
            let status = Reply::from_bytes(&bytes).unwrap().status;
            if status == u32::MAX || (status == STATUS_OK) != *is_well {
                return Err(format!("request {place} has status {status:#x}"));
            }
        }
    }
    Ok(())
}

#[test]
fn driver_that_expects_replies_in_order_is_found() {
    assert_found(answers_in_order);
}

/// A request with a time limit. The bug: the limit is shorter than the device may need.
fn short_timeout(seed: Option<u64>, has_bug: bool) -> Result<(), String> {
    let desk = Desk::new();
    let mut locked = desk.shell().lock_all();
    seed.into_iter().for_each(|seed| adversarial::make_adversarial(&mut locked, 0, seed));
    let limit_ms = if has_bug { 1_000 } else { desk.guest.config().control_timeout_ms };
    for number in 0..64 {
        let begin = Instant::now();
        desk.ask(0, OP_PING);
        queues::serve_control(&mut locked, 0);
        adversarial::tick(&mut locked, Tick::Idle, Some(begin + Duration::from_millis(limit_ms.into())));
        if desk.answer().is_none() {
            return Err(format!("request {number} has no reply in {limit_ms} ms: the device is dead"));
        }
    }
    Ok(())
}

#[test]
fn driver_with_a_short_timeout_is_found() {
    assert_found(short_timeout);
}

/// Events report messages, and the driver counts the messages. The bug: it takes an event for one message.
fn events_counted(seed: Option<u64>, has_bug: bool) -> Result<(), String> {
    const MESSAGES: u64 = 24;
    let desk = Desk::new();
    desk.guest.offer_event_buffers(32).unwrap();
    let mut locked = desk.shell().lock_all();
    seed.into_iter().for_each(|seed| adversarial::make_adversarial(&mut locked, 0, seed));
    let mut reported = 0;
    for _ in 0..MESSAGES {
        locked.nodes[0].card.host.raise(CAUSE_MESSAGE, 0, None);
        adversarial::tick(&mut locked, Tick::Activity, None);
        let events = desk.guest.take_events().unwrap();
        reported += events.iter().map(|event| if has_bug { 1 } else { event.count }).sum::<u64>();
    }
    adversarial::tick(&mut locked, Tick::Idle, None);
    let events = desk.guest.take_events().unwrap();
    reported += events.iter().map(|event| if has_bug { 1 } else { event.count }).sum::<u64>();
    if reported == MESSAGES { Ok(()) } else { Err(format!("{reported} of {MESSAGES} messages are reported")) }
}

#[test]
fn driver_that_takes_an_event_for_one_message_is_found() {
    assert_found(events_counted);
}

/// A buffer for each event. The bug: the driver expects buffers to return in the order in which it gave them.
fn buffers_in_order(seed: Option<u64>, has_bug: bool) -> Result<(), String> {
    const BUFFERS: u64 = 16;
    let desk = Desk::new();
    let first = desk.guest.memory().allocate(BUFFERS * Event::BYTES as u64, 8).unwrap();
    let place = |number: u64| first + number * Event::BYTES as u64;
    let of_head: BTreeMap<u16, u64> = desk.guest.with_event_ring(|ring| {
        let buffer = |number| Buffer { address: place(number), bytes: Event::BYTES as u32, writable: true };
        let heads = (0..BUFFERS).map(|number| (ring.add(&[buffer(number)]).unwrap().unwrap(), number));
        let of_head = heads.collect();
        ring.show().unwrap();
        of_head
    });
    let mut locked = desk.shell().lock_all();
    seed.into_iter().for_each(|seed| adversarial::make_adversarial(&mut locked, 0, seed));
    let mut reported = 0;
    for number in 0..BUFFERS / 2 {
        locked.nodes[0].card.host.raise(CAUSE_MESSAGE, 0, None);
        adversarial::tick(&mut locked, Tick::Idle, None);
        let (head, _) = desk.guest.with_event_ring(|ring| ring.poll_used()).unwrap().ok_or("no event")?;
        let mut bytes = [0; Event::BYTES];
        let buffer = if has_bug { number } else { of_head[&head] };
        desk.guest.memory().slice(place(buffer), Event::BYTES).unwrap().copy_to(&mut bytes);
        reported += Event::from_bytes(&bytes).unwrap().count;
    }
    if reported == BUFFERS / 2 {
        Ok(())
    } else {
        Err(format!("{reported} of {} events are reported", BUFFERS / 2))
    }
}

#[test]
fn driver_that_expects_buffers_in_order_is_found() {
    assert_found(buffers_in_order);
}

fn wants_doorbell(guest: &ClusterGuest) -> bool {
    let word = &guest.bar().words()[INFO_DOORBELL_OFFSET as usize / 8];
    u64::from_le(word.load(std::sync::atomic::Ordering::SeqCst)) != DOORBELL_SPARED
}

/// Two posts, the second of which finds the device awake or asleep. The bug: the driver reads the doorbell word before
/// the post instead of after it.
fn doorbell_word(seed: Option<u64>, has_bug: bool) -> Result<(), String> {
    let lab = lab_with(2, |config| {
        config.nodes.iter_mut().for_each(|node| node.nic.wait = WaitPolicy::Block);
    });
    let guests = [lab.guest(0).unwrap(), lab.guest(1).unwrap()];
    let [mut a, mut b] = pair([&guests[0], &guests[1]]);
    let shell = lab.daemon().shell();
    seed.into_iter().for_each(|seed| adversarial::make_adversarial(&mut shell.lock_all(), 0, seed));
    let mut received = 0;
    for number in 0..8 {
        assert!(a.launch_raw(64, &[number; 10]) > 0);
        // The doorbell wakes the device, which then polls for its grace period.
        let mut is_awake = wait::serve_doorbell(shell, 0).more;
        let looked_before = wants_doorbell(&guests[0]);
        while is_awake {
            is_awake = wait::serve_doorbell(shell, 0).more;
        }
        assert!(a.launch_raw(64, &[number; 10]) > 0);
        let rings = if has_bug { looked_before } else { wants_doorbell(&guests[0]) };
        while rings && wait::serve_doorbell(shell, 0).more {}
        received += std::iter::from_fn(|| b.try_receive()).count();
        b.release_lazily();
        if received as u64 != 2 * (number + 1) {
            return Err(format!("{received} messages of {} arrive", 2 * (number + 1)));
        }
    }
    Ok(())
}

#[test]
fn driver_that_reads_the_doorbell_word_too_early_is_found() {
    assert_found(doorbell_word);
}
