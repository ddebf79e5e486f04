//! The doorbell protocol alone, in all orders of its accesses that the language's memory model allows. A device that
//! sleeps has taken all posts, or a doorbell wakes it. Each rule of the protocol is omitted once, and the test detects
//! that.
//!
//! The driver's side and the device's side are the code that runs ([`niclab_port::doorbell`]), over the words of loom
//! (<https://docs.rs/loom>). The thread of the device is `shell/wait.rs` without its locks.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use niclab_abi::bar::DOORBELL_SPARED;
use niclab_port::doorbell::{Word, announce, ring_if_needed};

/// Most times that a thread is interrupted while it could continue.
const PREEMPTIONS: usize = 3;

/// A rule that is omitted.
const NOTHING: u8 = 0;
/// The driver's barrier between the post and the load of the doorbell word.
const DRIVER_BARRIER: u8 = 1;
/// The device's barrier between the store of the doorbell word and the poll.
const DEVICE_BARRIER: u8 = 2;
/// The poll after the store of the doorbell word.
const LAST_POLL: u8 = 3;
/// A new number for each sleep.
const NEW_NUMBER: u8 = 4;

/// A word as the driver and the device access it.
struct Seen<const HAS_BARRIER: bool>(Arc<AtomicU64>);

impl<const HAS_BARRIER: bool> Word for Seen<HAS_BARRIER> {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    fn full_barrier() {
        if HAS_BARRIER {
            fence(Ordering::SeqCst);
        }
    }
}

#[derive(Default)]
struct Shared {
    /// The number of the last post.
    posted: AtomicU64,
    doorbell_word: Arc<AtomicU64>,
    /// Doorbells that the device has not answered.
    bell: AtomicU64,
}

/// Posts `posts` messages, `batch` of them for each look at the doorbell word.
fn drive<const HAS_BARRIER: bool>(shared: &Shared, posts: u64, batch: u64) {
    let word = Seen::<HAS_BARRIER>(Arc::clone(&shared.doorbell_word));
    let rung_for = Seen::<HAS_BARRIER>(Arc::new(AtomicU64::new(0)));
    for number in 1..=posts {
        shared.posted.store(number, Ordering::Release);
        if number.is_multiple_of(batch) || number == posts {
            // Loom orders additions, unlike plain stores, with the device's exchange.
            ring_if_needed(Some(&word), &rung_for, || {
                shared.bell.fetch_add(1, Ordering::Release);
            });
        }
    }
}

/// Answers a doorbell, and each that was rung when it has answered one. Returns the last post that it has taken; the
/// device then sleeps.
fn serve<const HAS_BARRIER: bool>(shared: &Shared, without: u8) -> u64 {
    let word = Some(Seen::<HAS_BARRIER>(Arc::clone(&shared.doorbell_word)));
    let poll = || shared.posted.load(Ordering::Acquire);
    let mut number = 1;
    loop {
        announce(word.as_ref(), DOORBELL_SPARED);
        let taken = poll();
        number += u64::from(without != NEW_NUMBER);
        announce(word.as_ref(), number);
        // Posts that this poll finds are taken without another doorbell.
        let has_more = without != LAST_POLL && poll() > taken;
        if !has_more && shared.bell.swap(0, Ordering::AcqRel) == 0 {
            return taken;
        }
    }
}

/// Whether in all orders the device has taken all posts when it sleeps, or a doorbell wakes it.
fn is_sound<const DRIVER: bool, const DEVICE: bool>(posts: u64, batch: u64, without: u8) -> bool {
    let is_sound = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let result = std::sync::Arc::clone(&is_sound);
    let mut orders = loom::model::Builder::new();
    // Enough for each mistake below; without a bound the number of orders explodes.
    orders.preemption_bound = Some(PREEMPTIONS);
    orders.check(move || {
        // The device is awake: it answers a doorbell.
        let shared = Arc::new(Shared::default());
        let device = Arc::clone(&shared);
        let device = thread::spawn(move || serve::<DEVICE>(&device, without));
        drive::<DRIVER>(&shared, posts, batch);
        let is_awake = device.join().unwrap() == posts || shared.bell.load(Ordering::Acquire) > 0;
        result.fetch_and(is_awake, std::sync::atomic::Ordering::Relaxed);
    });
    is_sound.load(std::sync::atomic::Ordering::Relaxed)
}

#[test]
fn device_never_sleeps_while_a_post_waits() {
    for (posts, batch) in [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2)] {
        assert!(is_sound::<true, true>(posts, batch, NOTHING), "{posts} posts in batches of {batch}");
    }
}

#[test]
fn each_rule_of_the_doorbell_is_needed() {
    let without = |rule: u8| match rule {
        DRIVER_BARRIER => is_sound::<false, true>(2, 1, rule),
        DEVICE_BARRIER => is_sound::<true, false>(2, 1, rule),
        _ => is_sound::<true, true>(2, 1, rule),
    };
    let not_needed: Vec<u8> = [DRIVER_BARRIER, DEVICE_BARRIER, LAST_POLL, NEW_NUMBER]
        .into_iter()
        .filter(|rule| without(*rule))
        .collect();
    assert_eq!(not_needed, [0_u8; 0]);
}
