//! Adversarial cards, with each kind of behaviour. The guest's thread does all the work itself, keeps all nodes locked,
//! and passes the time to the card. So no result depends on the machine.

mod drivers;
mod reseed;

use niclab_device::shell::adversarial;
use niclab_device::shell::service;
use niclab_device::shell::service::queues;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::{lab, stats};
use niclab_abi::control::{OP_PING, Reply, Request};
use niclab_abi::event::CAUSE_MESSAGE;
use niclab_abi::{FromBytes, MAGIC, ToBytes};
use niclab_device::frontend::ClusterGuest;
use niclab_device::lab::Lab;
use niclab_device::ring::Buffer;
use niclab_device::shell::Shell;
use niclab_device::shell::adversary::Tick;
use niclab_device::shell::locks::LockedNodes;

/// Seed of the card of node 0.
const SEED: u64 = 7;
/// Maximum number of requests in flight.
const PLACES: u64 = 8;
/// Bytes of a request, and of the room for its reply.
const ROOM: u64 = 32;
/// A time after which no wait for the clock is left.
const LONG: Duration = Duration::from_secs(3600);

/// A guest whose control queue only this test uses.
struct Desk {
    lab: Lab,
    guest: Arc<ClusterGuest>,
    /// Address of a request and its reply for each place.
    room: u64,
}

impl Desk {
    fn new() -> Self {
        let lab = lab(2);
        let guest = lab.guest(0).unwrap();
        let room = guest.memory().allocate(2 * ROOM * PLACES, 8).unwrap();
        Self { lab, guest, room }
    }

    fn shell(&self) -> &Shell {
        self.lab.daemon().shell()
    }

    /// Sends a request. Returns its first descriptor.
    fn ask(&self, place: u64, operation: u32) -> u16 {
        let address = self.room + 2 * ROOM * place;
        let mut request = [0; Request::BYTES];
        Request { operation, body_bytes: 0 }.to_bytes(&mut request);
        let bytes = |address, bytes| self.guest.memory().slice(address, bytes).unwrap();
        bytes(address, Request::BYTES).copy_from(&request);
        bytes(address + ROOM, Reply::BYTES).copy_from(&[0xff; Reply::BYTES]);
        let readable = Buffer { address, bytes: Request::BYTES as u32, writable: false };
        let writable = Buffer { address: address + ROOM, bytes: ROOM as u32, writable: true };
        self.guest.with_control_ring(|ring| {
            let head = ring.add(&[readable, writable]).unwrap().unwrap();
            ring.show().unwrap();
            head
        })
    }

    /// The next reply: the first descriptor of its request.
    fn answer(&self) -> Option<u16> {
        self.guest.with_control_ring(|ring| {
            let (head, _) = ring.poll_used().unwrap()?;
            ring.reclaim(head).unwrap();
            Some(head)
        })
    }

    fn has_magic(&self) -> bool {
        u64::from_le(self.guest.bar().words()[0].load(Ordering::Acquire)) == MAGIC
    }

    /// How often this kind occurred. The caller must not hold the lock of a node.
    fn count(&self, kind: &str) -> u64 {
        stats(&self.lab, 0).adversarial.get(kind).copied().unwrap_or(0)
    }
}

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    AtOnce,
    /// After this number of activities on the card.
    Acts(u32),
    /// By the clock, after this number of milliseconds.
    Clock(u64),
}

/// The delays of replies by the clock: late ones, and those just before the limit.
const CLOCKS_MS: [u64; 2] = [150, 3_000];

/// Sends a request and waits for its reply.
fn fate(desk: &Desk, locked: &mut LockedNodes<'_>) -> Fate {
    let before = Instant::now();
    desk.ask(0, OP_PING);
    queues::serve_control(locked, 0);
    let after = Instant::now();
    let is_answered = || desk.answer().is_some();
    if is_answered() {
        return Fate::AtOnce;
    }
    for acts in 1..=8 {
        adversarial::tick(locked, Tick::Activity, Some(before));
        if is_answered() {
            return Fate::Acts(acts);
        }
    }
    for ms in CLOCKS_MS {
        adversarial::tick(
            locked,
            Tick::Idle,
            Some(before + Duration::from_millis(ms) - Duration::from_nanos(1)),
        );
        assert!(!is_answered(), "a reply arrived before {ms} ms had passed");
        adversarial::tick(locked, Tick::Time, Some(after + Duration::from_millis(ms)));
        if is_answered() {
            return Fate::Clock(ms);
        }
    }
    panic!("a reply never arrived");
}

#[test]
fn replies_are_late_by_activity_or_clock_and_twice_at_the_limit() {
    let desk = Desk::new();
    let mut locked = desk.shell().lock_all();
    adversarial::make_adversarial(&mut locked, 0, SEED);
    let fates: Vec<Fate> = (0..1500).map(|_| fate(&desk, &mut locked)).collect();
    drop(locked);
    let count = |is: fn(&Fate) -> bool| fates.iter().filter(|fate| is(fate)).count() as u64;
    let by_acts = count(|fate| matches!(fate, Fate::Acts(_)));
    let (late, at_limit) =
        (count(|fate| *fate == Fate::Clock(150)), count(|fate| *fate == Fate::Clock(3_000)));
    assert!((200..450).contains(&by_acts) && (50..150).contains(&late), "{by_acts} {late}");
    assert_eq!((desk.count("reply_late"), desk.count("reply_at_limit")), (by_acts + late, at_limit));
    assert_eq!(at_limit, 2, "of a card");
    for acts in 1..=6 {
        assert!(fates.contains(&Fate::Acts(acts)), "{acts}");
    }
    // The rest of the time limit is the driver's.
    assert_eq!(desk.guest.config().control_timeout_ms, 3_000 + 2_000);
}

#[test]
fn requests_that_wait_together_are_taken_one_by_one() {
    let desk = Desk::new();
    let mut locked = desk.shell().lock_all();
    adversarial::make_adversarial(&mut locked, 0, SEED);
    let mut left = 0;
    let mut turns_of_rounds = Vec::new();
    for _ in 0..64 {
        for place in 0..4 {
            desk.ask(place, OP_PING);
        }
        let mut turns = 1;
        while queues::serve_control(&mut locked, 0) {
            turns += 1;
        }
        adversarial::tick(&mut locked, Tick::Idle, Some(Instant::now() + LONG));
        assert_eq!(std::iter::from_fn(|| desk.answer()).count(), 4);
        left += turns - 1;
        turns_of_rounds.push(turns);
    }
    drop(locked);
    for turns in 1..=4 {
        assert!(turns_of_rounds.contains(&turns), "never in {turns} turns: {turns_of_rounds:?}");
    }
    assert_eq!(desk.count("requests_one_by_one"), left);
}

#[test]
fn magic_word_is_late_and_appears_long_before_the_limit() {
    let desk = Desk::new();
    let mut locked = desk.shell().lock_all();
    adversarial::make_adversarial(&mut locked, 0, SEED);
    let (mut at_once, mut soon, mut latest) = (0, 0, 0);
    for _ in 0..600 {
        locked.nodes[0].card.host.retract();
        let before = Instant::now();
        locked.nodes[0].card.host.publish();
        let after = Instant::now();
        if desk.has_magic() {
            at_once += 1;
            continue;
        }
        // Only the clock releases the word, and not before its time.
        adversarial::tick(&mut locked, Tick::Idle, Some(before));
        assert!(!desk.has_magic());
        adversarial::tick(&mut locked, Tick::Time, Some(after + Duration::from_millis(32)));
        if desk.has_magic() {
            soon += 1;
            continue;
        }
        adversarial::tick(&mut locked, Tick::Time, Some(before + Duration::from_millis(999)));
        assert!(!desk.has_magic());
        adversarial::tick(&mut locked, Tick::Time, Some(after + Duration::from_secs(1)));
        assert!(desk.has_magic(), "the word never appears");
        latest += 1;
    }
    assert!(at_once > 300 && soon > 100 && latest > 0, "{at_once} {soon} {latest}");
    // A BAR that is not mapped any more gets no word.
    while desk.has_magic() {
        locked.nodes[0].card.host.retract();
        locked.nodes[0].card.host.publish();
    }
    locked.nodes[0].card.host.retract();
    adversarial::tick(&mut locked, Tick::Time, Some(Instant::now() + LONG));
    assert!(!desk.has_magic());
    drop(locked);
    assert!(desk.count("magic_late") > soon + latest);
}

/// The fates of requests and of the magic word, with or without other activity between them.
fn fates(seed: u64, is_disturbed: bool) -> Vec<(Fate, bool)> {
    let desk = Desk::new();
    desk.guest.offer_event_buffers(32).unwrap();
    let mut locked = desk.shell().lock_all();
    adversarial::make_adversarial(&mut locked, 0, seed);
    fates_at(&desk, &mut locked, is_disturbed)
}

/// The same for this desk, whose card is adversarial.
fn fates_at(desk: &Desk, locked: &mut LockedNodes<'_>, is_disturbed: bool) -> Vec<(Fate, bool)> {
    let mut fates = Vec::new();
    for _ in 0..150 {
        locked.nodes[0].card.host.retract();
        locked.nodes[0].card.host.publish();
        let is_magic = desk.has_magic();
        if is_disturbed {
            (0..3).for_each(|port| locked.nodes[0].card.host.raise(CAUSE_MESSAGE, port, None));
            drop(desk.guest.take_events().unwrap());
            service::serve_pages(locked, 0);
        }
        fates.push((fate(desk, locked), is_magic));
    }
    fates
}

/// docs/use/FAULTS.md promises this and no more: the n-th opportunity of a kind has a fixed fate, with any other
/// activity.
#[test]
fn same_seed_gives_the_same_fates() {
    let first = fates(SEED, false);
    assert_eq!(first, fates(SEED, false));
    assert_eq!(first, fates(SEED, true));
    assert_ne!(first, fates(SEED + 1, false));
}
