//! The receiving half: slices in host memory (section 3.4).

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use niclab_abi::bar::{COMPLETER_ARMED_OFFSET, COMPLETER_INTERVAL_OFFSET, COMPLETER_RELEASED_OFFSET};
use niclab_abi::receive::{
    SLICE_NUMBER_SHIFT, SLICE_STATUS_WORD, SLICE_TAG_WORD, SLICE_VALID, SLICE_WORDS, SliceStatus,
};

use super::{Flags, Link, Message, PAYLOAD_WORDS};
use crate::memory::{load, store};
use crate::wait::{Next, Quiet, Wait};
use crate::{Address, Deadline, Error, Memory, WaitPolicy};

/// Looks for a message between two looks at the slices after it.
const LOOKS_PER_CHECK: u32 = 4096;

/// Slices after the next that [`Receiver::check`] looks at.
const LOOK_AHEAD: u64 = 32;

/// Receives at a port.
#[derive(Debug)]
pub struct Receiver {
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
}

impl Receiver {
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
        };
        this.set_release_interval(u64::from(count / 4).max(1));
        this
    }

    /// Sets how this half waits.
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.policy = policy;
    }

    /// Slices of the receive queue.
    pub fn slices(&self) -> u32 {
        self.count
    }

    /// Messages received since the port was opened.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The next message, if it is there. Reads host memory only, never the device.
    #[inline]
    pub fn try_receive(&mut self) -> Option<Message> {
        let number = self.received.wrapping_add(1);
        // A slice carries the low half of its number (`niclab_abi::receive::SLICE_NUMBER_SHIFT`).
        let index = (self.received % u64::from(self.count)) as usize;
        let (slices, _) = self.slices.words().as_chunks::<SLICE_WORDS>();
        let slice = slices.get(index)?;
        let status = SliceStatus::decode(load(&slice[SLICE_STATUS_WORD]))?;
        if status.number != number as u32 {
            return None;
        }
        // The device stored payload and tag before the status.
        fence(Ordering::Acquire);
        let message = copy_message(slice, status);
        self.advance();
        Some(message)
    }

    /// The next slice is consumed.
    #[inline]
    fn advance(&mut self) {
        self.received = self.received.wrapping_add(1);
        self.link.received.store(self.received, Ordering::Relaxed);
        self.quiet.on_progress();
        if self.received.wrapping_sub(self.released) >= self.release_interval {
            self.release();
        }
    }

    /// The next message; waits for it as the [`WaitPolicy`] says.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], [`Error::DeviceGone`]; [`Error::SlicesLost`], after which the port can be used on.
    #[inline]
    pub fn receive(&mut self, deadline: impl Into<Deadline>) -> Result<Message, Error> {
        match self.try_receive() {
            Some(message) => Ok(message),
            None => self.wait_for_message(deadline.into()),
        }
    }

    /// Looks whether the device has gone past the next slice without writing it, as a faulty device does, and goes past it
    /// too. [`Receiver::receive`] does so while it waits; a program that only ever calls [`Receiver::try_receive`] may do
    /// so when it has waited for long.
    ///
    /// # Errors
    ///
    /// [`Error::SlicesLost`], after which the port can be used on.
    pub fn check(&mut self) -> Result<(), Error> {
        let next = self.received.wrapping_add(1);
        if let Some(status) = self.status_of(next) {
            if SliceStatus::decode(status).is_some() {
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

    /// Interrupts for this port since the last call; sleeps up to `timeout` for the first one, and returns 0 when there
    /// was none. Does not ask for one: messages sent with [`Flags::INTERRUPT`] bring theirs.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceGone`].
    pub fn wait_interrupts(&mut self, timeout: Duration) -> Result<u64, Error> {
        self.link.backing.wait_interrupts(timeout)
    }

    /// A sender gets `credits` of the slices. Slices are released in steps of at most half the smallest such share: a
    /// sender that used its share up always has a message in the queue whose consumption lets it go on. Returns the
    /// interval that was kept to before.
    pub(super) fn narrow_release_interval(&mut self, credits: u32) -> u64 {
        let before = self.release_interval;
        self.set_release_interval(before.min(u64::from(credits / 2).max(1)));
        before
    }

    /// Keeps to an interval, and tells the device (`niclab_abi::bar::CompleterPage::release_interval`).
    pub(super) fn set_release_interval(&mut self, slices: u64) {
        if self.release_interval != slices {
            self.release_interval = slices;
            self.store_register(COMPLETER_INTERVAL_OFFSET, slices);
        }
    }

    fn wait_for_message(&mut self, deadline: Deadline) -> Result<Message, Error> {
        let mut wait = Wait::new("receive", self.policy, deadline);
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
            if let Some(message) = self.try_receive() {
                return Ok(message);
            }
        }
    }

    /// The status word of the slice of this number, if that is what the device last wrote in its place.
    fn status_of(&self, number: u64) -> Option<u64> {
        let index = (number.wrapping_sub(1) % u64::from(self.count)) as usize;
        let (slices, _) = self.slices.words().as_chunks::<SLICE_WORDS>();
        let status = load(&slices.get(index)?[SLICE_STATUS_WORD]);
        let is_it = status & SLICE_VALID != 0 && (status >> SLICE_NUMBER_SHIFT) as u32 == number as u32;
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

#[inline]
fn copy_message(slice: &[std::sync::atomic::AtomicU64; SLICE_WORDS], status: SliceStatus) -> Message {
    let words = usize::from(status.words).min(PAYLOAD_WORDS);
    let mut payload = [0; PAYLOAD_WORDS];
    for (value, word) in payload.iter_mut().zip(&slice[SLICE_TAG_WORD - words..SLICE_TAG_WORD]) {
        *value = load(word);
    }
    let mut flags = Flags::NONE;
    if status.interrupt {
        flags |= Flags::INTERRUPT;
    }
    if status.acknowledge {
        flags |= Flags::ACKNOWLEDGE;
    }
    Message {
        payload,
        words,
        tag: [load(&slice[SLICE_TAG_WORD]), load(&slice[SLICE_TAG_WORD + 1])],
        source: Address { node: status.source_node.into(), port: status.source_port.into() },
        flags,
    }
}
