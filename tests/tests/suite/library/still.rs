//! Ports over memory that only the test writes: what the library does without a device, and how it handles values that
//! no valid device writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use niclab_abi::bar::{DOORBELL_SPARED, INFO_DOORBELL_OFFSET, SLOTS};
use niclab_abi::receive::{SLICE_STATUS_WORD, SLICE_WORDS, SliceStatus};
use niclab_port::atomic::store;
use niclab_user::slices::{Flags, Parts, Port};
use niclab_user::{Address, Backing, Batching as _, Error, SharedMemory, WaitPolicy};

use super::{TIMEOUT, node};

/// Counts doorbells, and accepts every request.
struct Bell {
    rings: Arc<AtomicU64>,
    /// The information page of a device that polls and sleeps again after each doorbell.
    sleeps_again: Option<SharedMemory>,
}

impl Backing for Bell {
    fn name(&self) -> &str {
        "still"
    }
    fn ring(&self) {
        let before = self.rings.fetch_add(1, Ordering::Relaxed);
        if let Some(info) = &self.sleeps_again {
            store(doorbell_word(info), before + 2);
        }
    }
    fn wait_interrupts(&self, _: Duration) -> Result<u64, Error> {
        Ok(0)
    }
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
    fn route(&self, _: Address) -> Result<(), Error> {
        Ok(())
    }
    fn authorize(&self, _: Address, _: u32) -> Result<(), Error> {
        Ok(())
    }
    fn revoke(&self, _: Address) -> Result<(), Error> {
        Ok(())
    }
    fn register(&self, _: &SharedMemory) -> Result<u32, Error> {
        Ok(0)
    }
    fn deregister(&self, _: u32) -> Result<(), Error> {
        Ok(())
    }
}

fn doorbell_word(info: &SharedMemory) -> &AtomicU64 {
    &info.words()[(INFO_DOORBELL_OFFSET / 8) as usize]
}

/// A port of eight slices with its information page, status line, slices and doorbell count.
struct Still {
    port: Port,
    info: SharedMemory,
    status: SharedMemory,
    slices: SharedMemory,
    rings: Arc<AtomicU64>,
}

impl Still {
    fn new() -> Self {
        Self::with_device(false)
    }

    fn with_device(sleeps_again: bool) -> Self {
        let zeros = |words| SharedMemory::from_words((0..words).map(|_| AtomicU64::new(0)).collect());
        let (info, status, slices) = (zeros(512), zeros(8), zeros(8 * SLICE_WORDS));
        let rings = Arc::new(AtomicU64::new(0));
        store(doorbell_word(&info), 1);
        let bell = Bell { rings: Arc::clone(&rings), sleeps_again: sleeps_again.then(|| info.clone()) };
        let port = Port::from_parts(Parts {
            address: Address { node: 3, port: 0 },
            info: info.clone(),
            requester: zeros(512),
            completer: zeros(512),
            status: status.clone(),
            slices: slices.clone(),
            payload: zeros(0),
            backing: Box::new(bell),
        });
        Self { port: port.expect("all parts are large enough"), info, status, slices, rings }
    }

    fn want_doorbell(&self, word: u64) {
        store(doorbell_word(&self.info), word);
    }

    /// Writes slice `number` of node 1 without payload words, and with these bits of its status flipped.
    fn write(&self, number: u32, flipped: u64) {
        let status = SliceStatus {
            words: 0,
            interrupt: false,
            acknowledge: false,
            source_port: 0,
            source_node: 1,
            number,
        };
        let place = SLICE_WORDS * (number as usize - 1) + SLICE_STATUS_WORD;
        store(&self.slices.words()[place], status.encode() ^ flipped);
    }

    fn rings(&self) -> u64 {
        self.rings.load(Ordering::Relaxed)
    }
}

#[test]
fn the_doorbell_is_rung_only_with_notification_enabled() {
    let mut still = Still::new();
    still.want_doorbell(DOORBELL_SPARED);
    still.port.send(&[], [0; 2], Flags::NONE, TIMEOUT).expect("room");
    assert_eq!(still.rings(), 0);
    still.want_doorbell(7);
    still.port.send(&[], [0; 2], Flags::NONE, TIMEOUT).expect("room");
    assert_eq!(still.rings(), 1);
    still.port.send(&[], [0; 2], Flags::NONE, TIMEOUT).expect("room");
    assert_eq!(still.rings(), 1, "the device has not polled since");
    still.want_doorbell(9);
    // The port also rings for releases: a quarter of eight slices is two.
    (1..=2).for_each(|number| still.write(number, 0));
    assert!(still.port.try_receive().is_some());
    assert_eq!(still.rings(), 1, "one slice is too few for a release");
    assert!(still.port.try_receive().is_some());
    assert_eq!(still.rings(), 2);
}

#[test]
fn batch_rings_when_it_ends() {
    let mut still = Still::new();
    still.want_doorbell(7);
    // A release is due after two slices.
    (1..=2).for_each(|number| still.write(number, 0));
    let mut outer = still.port.batch();
    outer.send(&[], [0; 2], Flags::NONE, TIMEOUT).expect("room");
    assert!(outer.try_receive().is_some() && outer.try_receive().is_some());
    outer.batch().send(&[], [0; 2], Flags::NONE, TIMEOUT).expect("room");
    assert_eq!(still.rings.load(Ordering::Relaxed), 0, "the inner batch has ended");
    drop(outer);
    assert_eq!(still.rings(), 1);
    still.want_doorbell(9);
    drop(still.port.batch());
    assert_eq!(still.rings(), 1, "nothing was deferred");
}

#[test]
fn batch_rings_when_no_slot_is_free() {
    let mut still = Still::new();
    still.want_doorbell(7);
    let mut batch = still.port.batch();
    for _ in 0..SLOTS {
        assert!(batch.try_send(&[], [0; 2], Flags::NONE).expect("no fault").is_some());
    }
    assert_eq!(still.rings.load(Ordering::Relaxed), 0);
    assert!(batch.try_send(&[], [0; 2], Flags::NONE).expect("no fault").is_none());
    assert_eq!(still.rings.load(Ordering::Relaxed), 1);
}

#[test]
fn batch_rings_before_a_call_waits() {
    let mut still = Still::new();
    let moment = Duration::from_millis(1);
    type Wait = fn(&mut Port, Duration) -> Result<(), Error>;
    let waits: [Wait; 4] = [
        |port, limit| port.receive(limit).map(drop),
        |port, limit| port.flush(limit),
        |port, limit| port.sender().wait_acknowledged(1, limit),
        |port, limit| {
            // The other half does not ring for the sender.
            port.ring_deferred();
            port.receiver().wait_interrupts(limit).map(drop)
        },
    ];
    for (wait, number) in waits.into_iter().zip(1..) {
        still.want_doorbell(number);
        let mut batch = still.port.batch();
        batch.send(&[], [0; 2], Flags::NOTIFY, TIMEOUT).expect("room");
        assert_eq!(still.rings.load(Ordering::Relaxed), number - 1);
        let waited = wait(&mut batch, moment);
        assert!(matches!(waited, Ok(()) | Err(Error::TimedOut { .. })), "{waited:?}");
        assert_eq!(still.rings.load(Ordering::Relaxed), number);
    }
}

#[test]
fn sleep_rings_once_for_post_and_requested_interrupt() {
    let mut still = Still::with_device(true);
    still.port.set_wait_policy(WaitPolicy::Block);
    let mut batch = still.port.batch();
    batch.send(&[], [0; 2], Flags::NONE, TIMEOUT).expect("room");
    let waited = batch.receive(Duration::from_millis(1));
    assert!(matches!(waited, Err(Error::TimedOut { .. })), "{waited:?}");
    drop(batch);
    assert_eq!(still.rings(), 1, "one doorbell for both");
}

#[test]
fn a_status_line_that_contradicts_itself_is_an_error() {
    let mut still = Still::new();
    still.port.send(&[], [0; 2], Flags::NOTIFY, TIMEOUT).expect("room");
    store(&still.status.words()[0], 2);
    assert!(matches!(still.port.flush(TIMEOUT), Err(Error::Inconsistent { .. })));
}

#[test]
fn an_invalid_status_is_an_error_and_the_port_continues() {
    let mut still = Still::new();
    // Fifteen payload words: no packet has more than eight.
    still.write(1, 0xf);
    still.write(2, 0);
    let error = still.port.receive(TIMEOUT).expect_err("no slice");
    let is_named =
        matches!(&error, Error::SlicesLost { number: 1, count: 1, what, .. } if what.contains("0x00000001"));
    assert!(is_named && error.to_string().contains("still: port 0: 1 slice(s) from number 1"), "{error}");
    assert_eq!(still.port.receive(TIMEOUT).expect("the next").source(), node(1));
}
