//! The queue of records that the device writes into memory.

use core::marker::PhantomData;

use niclab_abi::receive::{SLICE_NUMBER_SHIFT, SLICE_STATUS_WORD};

use crate::{Fault, Loss, Record, Records, Register};

/// Number of records after the next one that [`Queue::check`] reads.
const LOOK_AHEAD: u64 = 32;

/// The meaning of a record's status word, for each kind of NIC.
pub trait Kind {
    /// Whether a device has ever written this status word, valid or not.
    fn is_written(status: u64) -> bool;

    /// Whether the status word is valid by the contract.
    fn is_sound(status: u64) -> bool;
}

/// The receive queue of a port: slices, or events.
#[derive(Clone, Debug)]
pub struct Queue<K> {
    capacity: u32,
    /// Records consumed since the port was opened.
    received: u64,
    /// Of these, released to the device.
    released: u64,
    /// Records consumed between two releases; zero: only [`Queue::release`] releases records.
    release_interval: u64,
    /// Number of the record for which an interrupt was last requested.
    armed: u64,
    kind: PhantomData<K>,
}

impl<K: Kind> Queue<K> {
    /// A queue of `capacity` records, of which `received` were received and released. It releases none by itself before
    /// [`Queue::set_release_interval`].
    #[must_use]
    pub const fn new(capacity: u32, received: u64) -> Self {
        Self { capacity, received, released: received, release_interval: 0, armed: 0, kind: PhantomData }
    }

    /// Capacity in records.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Records consumed since the port was opened.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Of these, released to the device.
    #[must_use]
    pub const fn released(&self) -> u64 {
        self.released
    }

    /// Records consumed between two releases.
    #[must_use]
    pub const fn release_interval(&self) -> u64 {
        self.release_interval
    }

    /// The default interval, for senders without credits: a quarter of the queue.
    #[must_use]
    pub const fn usual_release_interval(&self) -> u64 {
        if self.capacity < 8 { 1 } else { self.capacity as u64 / 4 }
    }

    /// The next record and its status, if there is one. Reads only host memory, never the device.
    #[inline]
    pub fn front<'m, R: Records>(&self, records: &'m R) -> Option<(R::Record<'m>, u64)> {
        let number = self.received.wrapping_add(1);
        let record = records.record((self.received % u64::from(self.capacity)) as u32)?;
        let status = record.word(SLICE_STATUS_WORD);
        // A record carries the low half of its number (`niclab_abi::receive::SLICE_NUMBER_SHIFT`).
        if (status >> SLICE_NUMBER_SHIFT) as u32 != number as u32 || !K::is_sound(status) {
            return None;
        }
        // The device stores the status last.
        records.acquire();
        Some((record, status))
    }

    /// Consumes the next record; its data must have been copied. Returns whether the device must be notified.
    #[inline]
    #[must_use = "a release is announced"]
    pub fn advance(&mut self, records: &mut impl Records) -> bool {
        self.received = self.received.wrapping_add(1);
        let is_due =
            self.release_interval != 0 && self.received.wrapping_sub(self.released) >= self.release_interval;
        if is_due {
            self.release(records);
        }
        is_due
    }

    /// Checks whether the device has skipped the next record without writing it, as a faulty device does, and then
    /// skips it too. A changed [`Queue::released`] means that the device must be notified.
    ///
    /// # Errors
    /// [`Fault::Lost`].
    pub fn check(&mut self, records: &mut impl Records) -> Result<(), Fault> {
        let next = self.received.wrapping_add(1);
        if let Some(status) = self.status_of(next, records) {
            if K::is_sound(status) {
                return Ok(());
            }
            return Err(self.pass_over(1, Loss::Invalid(status), records));
        }
        let ahead = LOOK_AHEAD.min(u64::from(self.capacity).saturating_sub(1));
        let is_there = |queue: &Self, records: &_, ahead: u64| {
            Self::status_of(queue, next.wrapping_add(ahead), records).is_some()
        };
        let Some(later) = (1..=ahead).find(|ahead| is_there(self, records, *ahead)) else { return Ok(()) };
        // Records become visible in order of their numbers: an earlier record that is missing after this is lost.
        records.acquire();
        let lost = (0..later).find(|ahead| is_there(self, records, *ahead));
        match lost.unwrap_or(later) {
            0 => Ok(()),
            count => Err(self.pass_over(count, Loss::Skipped(next.wrapping_add(count)), records)),
        }
    }

    /// Skips the next `count` records, which are lost.
    pub fn pass_over(&mut self, count: u64, loss: Loss, records: &mut impl Records) -> Fault {
        let number = self.received.wrapping_add(1);
        // One by one, as if they had been received: the device expects releases at the interval.
        for _ in 0..count {
            let _ = self.advance(records);
        }
        Fault::Lost { number, count, loss }
    }

    /// Shortens the release interval for a sender with `credits` records. The interval is at most half of the smallest
    /// such share. So a sender that has used up its share always has a message in the queue whose consumption lets it
    /// continue. Returns the previous interval.
    pub fn narrow_release_interval(&mut self, credits: u32, records: &mut impl Records) -> u64 {
        let before = self.release_interval;
        self.set_release_interval(before.min(u64::from(credits / 2).max(1)), records);
        before
    }

    /// Sets the release interval, here and in the device (`niclab_abi::bar::CompleterPage::release_interval`).
    pub fn set_release_interval(&mut self, count: u64, records: &mut impl Records) {
        if self.release_interval != count {
            self.release_interval = count;
            records.store(Register::ReleaseInterval, count);
        }
    }

    /// Requests an interrupt for the next record. If that record is already stored, the card interrupts at once, so a
    /// sleep cannot miss it. Returns whether the device must be notified; it need not if the request was made before.
    #[must_use = "what was asked is announced"]
    pub fn arm(&mut self, records: &mut impl Records) -> bool {
        let number = self.received.wrapping_add(1);
        let is_new = self.armed != number;
        if is_new {
            self.armed = number;
            self.release(records);
            records.store(Register::Armed, number);
        }
        is_new
    }

    /// Releases all consumed records.
    pub fn release(&mut self, records: &mut impl Records) {
        if self.released != self.received {
            self.released = self.received;
            records.store(Register::Released, self.received);
        }
    }

    /// The status word of record `number`, if the device's last store at its index was that record.
    fn status_of(&self, number: u64, records: &impl Records) -> Option<u64> {
        let index = (number.wrapping_sub(1) % u64::from(self.capacity)) as u32;
        let status = records.record(index)?.word(SLICE_STATUS_WORD);
        let is_it = K::is_written(status) && (status >> SLICE_NUMBER_SHIFT) as u32 == number as u32;
        is_it.then_some(status)
    }
}
