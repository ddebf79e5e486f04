//! Reading the queue of records that the device writes into memory.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use niclab_abi::bar::{COMPLETER_ARMED_OFFSET, COMPLETER_INTERVAL_OFFSET, COMPLETER_RELEASED_OFFSET};
use niclab_abi::receive::{SLICE_NUMBER_SHIFT, SLICE_STATUS_WORD, SLICE_WORDS};

use super::Link;
use crate::memory::{load, store};
use crate::wait::{Next, Quiet, Wait};
use crate::{Deadline, Error, Memory, WaitPolicy};

/// Looks for a record between two looks at those after it.
const LOOKS_PER_CHECK: u32 = 4096;

/// Records after the next that [`Queue::check`] looks at.
const LOOK_AHEAD: u64 = 32;

/// What the status word of a record tells, model by model.
pub(crate) trait Record {
    /// Whether a device has ever written this status word, sound or not.
    fn is_written(status: u64) -> bool;

    /// Whether the status word is one of the contract.
    fn is_sound(status: u64) -> bool;
}

/// The receive queue of a port: slices, or events.
#[derive(Debug)]
pub(crate) struct Queue<R> {
    link: Arc<Link>,
    completer: Memory,
    slices: Memory,
    count: u32,
    /// Slices consumed since the port was opened.
    received: u64,
    /// Of these, released to the device.
    released: u64,
    /// Slices consumed between two releases.
    release_interval: u64,
    /// Number of the slice that an interrupt was last asked for.
    armed: u64,
    policy: WaitPolicy,
    quiet: Quiet,
    record: PhantomData<R>,
}

impl<R: Record> Queue<R> {
    pub(super) fn new(link: Arc<Link>, completer: Memory, slices: Memory, count: u32, received: u64) -> Self {
        let mut this = Self {
            link,
            completer,
            slices,
            count,
            received,
            released: received,
            release_interval: 0,
            armed: 0,
            policy: WaitPolicy::ADAPTIVE,
            quiet: Quiet::default(),
            record: PhantomData,
        };
        this.set_release_interval(u64::from(count / 4).max(1));
        this
    }

    pub(crate) fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.policy = policy;
    }

    /// Slices of the queue.
    pub(crate) fn slices(&self) -> u32 {
        self.count
    }

    /// Slices consumed since the port was opened.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// The next slice and its status, if it is there. Reads host memory only, never the device.
    #[inline]
    pub(crate) fn front(&self) -> Option<(&[AtomicU64; SLICE_WORDS], u64)> {
        let number = self.received.wrapping_add(1);
        // A slice carries the low half of its number (`niclab_abi::receive::SLICE_NUMBER_SHIFT`).
        let index = (self.received % u64::from(self.count)) as usize;
        let (slices, _) = self.slices.words().as_chunks::<SLICE_WORDS>();
        let slice = slices.get(index)?;
        let status = load(&slice[SLICE_STATUS_WORD]);
        if (status >> SLICE_NUMBER_SHIFT) as u32 != number as u32 || !R::is_sound(status) {
            return None;
        }
        // The device stored all else before the status.
        fence(Ordering::Acquire);
        Some((slice, status))
    }

    /// The next slice is consumed: what was to be copied out of it has been.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.received = self.received.wrapping_add(1);
        self.link.received.store(self.received, Ordering::Relaxed);
        self.quiet.on_progress();
        if self.received.wrapping_sub(self.released) >= self.release_interval {
            self.release();
        }
    }

    /// Looks whether the device has gone past the next slice without writing it, as a faulty device does, and goes past it
    /// too.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        let next = self.received.wrapping_add(1);
        if let Some(status) = self.status_of(next) {
            if R::is_sound(status) {
                return Ok(());
            }
            return Err(self.give_up(1, format!("its status word is {status:#018x}, which is none")));
        }
        let ahead = LOOK_AHEAD.min(u64::from(self.count) - 1);
        let Some(later) = (1..=ahead).find(|ahead| self.status_of(next.wrapping_add(*ahead)).is_some())
        else {
            return Ok(());
        };
        // Slices become visible in the order of their numbers: what is not there behind this never will be.
        fence(Ordering::Acquire);
        let lost = (0..later).find(|ahead| self.status_of(next.wrapping_add(*ahead)).is_some());
        match lost.unwrap_or(later) {
            0 => Ok(()),
            count => {
                let found = next.wrapping_add(count);
                Err(self.give_up(count, format!("slice {found} is there, and they are not")))
            }
        }
    }

    /// Interrupts for this port since the last call; sleeps up to `timeout` for the first one.
    pub(crate) fn wait_interrupts(&self, timeout: Duration) -> Result<u64, Error> {
        self.link.backing.wait_interrupts(timeout)
    }

    /// A sender gets `credits` of the slices. Slices are released in steps of at most half the smallest such share: a
    /// sender that used its share up always has a message in the queue whose consumption lets it go on. Returns the
    /// interval that was kept to before.
    pub(crate) fn narrow_release_interval(&mut self, credits: u32) -> u64 {
        let before = self.release_interval;
        self.set_release_interval(before.min(u64::from(credits / 2).max(1)));
        before
    }

    /// Keeps to an interval, and tells the device (`niclab_abi::bar::CompleterPage::release_interval`).
    pub(crate) fn set_release_interval(&mut self, slices: u64) {
        if self.release_interval != slices {
            self.release_interval = slices;
            self.store_register(COMPLETER_INTERVAL_OFFSET, slices);
        }
    }

    /// What `take` finds, as soon as it finds something; it looks at the queue and nothing else.
    pub(crate) fn wait<T>(
        &mut self,
        operation: &'static str,
        deadline: Deadline,
        mut take: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, Error> {
        let mut wait = Wait::new(operation, self.policy, deadline);
        let mut looks: u32 = 0;
        loop {
            let next = wait.next(&mut self.quiet, &*self.link.backing);
            looks = looks.wrapping_add(1);
            if !matches!(next, Ok(Next::Look)) || looks.is_multiple_of(LOOKS_PER_CHECK) {
                self.check()?;
            }
            if let Next::Sleep(limit) = next? {
                self.sleep(limit)?;
            }
            if let Some(found) = take(self) {
                return Ok(found);
            }
        }
    }

    /// The status word of the slice of this number, if that is what the device last wrote in its place.
    fn status_of(&self, number: u64) -> Option<u64> {
        let index = (number.wrapping_sub(1) % u64::from(self.count)) as usize;
        let (slices, _) = self.slices.words().as_chunks::<SLICE_WORDS>();
        let status = load(&slices.get(index)?[SLICE_STATUS_WORD]);
        let is_it = R::is_written(status) && (status >> SLICE_NUMBER_SHIFT) as u32 == number as u32;
        is_it.then_some(status)
    }

    /// Goes past the next `count` slices, whose messages are lost.
    fn give_up(&mut self, count: u64, what: String) -> Error {
        let number = self.received.wrapping_add(1);
        // One by one, as if they had been received: the device expects releases on the beat.
        for _ in 0..count {
            self.advance();
        }
        Error::SlicesLost { device: self.link.name(), port: self.link.address.port, number, count, what }
    }

    /// Sleeps until the next slice is stored, at most `limit`. A slice stored meanwhile interrupts at once, so that none
    /// is slept through.
    fn sleep(&mut self, limit: Duration) -> Result<(), Error> {
        let number = self.received.wrapping_add(1);
        if self.armed != number {
            self.armed = number;
            self.store_released();
            self.store_register(COMPLETER_ARMED_OFFSET, number);
            self.link.announce();
        }
        self.link.backing.wait_interrupts(limit).map(drop)
    }

    fn release(&mut self) {
        self.store_released();
        self.link.announce();
    }

    fn store_released(&mut self) {
        if self.released != self.received {
            self.released = self.received;
            self.store_register(COMPLETER_RELEASED_OFFSET, self.received);
        }
    }

    fn store_register(&self, offset: u64, value: u64) {
        // The copies out of the slices come before: nobody may write into a slice that is still read.
        fence(Ordering::Release);
        if let Some(register) = self.completer.words().get((offset / 8) as usize) {
            store(register, value);
        }
    }
}
