//! Reads the queue of records that the device writes into memory, and waits for the next record.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use niclab_port::atomic::AtomicRecords;

use super::{Batches, Kind, Link, Requester};
use crate::wait::{Next, Quiet, Wait};
use crate::{Batching, Deadline, Error, SharedMemory, WaitPolicy};

/// Polls for a record between two checks for skipped records.
const LOOKS_PER_CHECK: u32 = 4096;

/// The receive queue of a port: slices, or events.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    link: Arc<Link>,
    completer: SharedMemory,
    slices: SharedMemory,
    records: niclab_port::Queue<K>,
    policy: WaitPolicy,
    quiet: Quiet,
    batches: Batches,
}

impl<K: Kind> Queue<K> {
    pub(super) fn new(link: Arc<Link>, completer: SharedMemory, slices: SharedMemory, count: u32) -> Self {
        let records = niclab_port::Queue::new(count, 0);
        let mut this = Self {
            link,
            completer,
            slices,
            records,
            policy: WaitPolicy::ADAPTIVE,
            quiet: Quiet::default(),
            batches: Batches::default(),
        };
        this.set_release_interval(this.records.usual_release_interval());
        this
    }

    pub(crate) fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.policy = policy;
    }

    /// Number of slices in the queue.
    pub(crate) fn slices(&self) -> u32 {
        self.records.capacity()
    }

    /// Slices consumed since the port was opened.
    pub(crate) fn received(&self) -> u64 {
        self.records.received()
    }

    /// Slices released since the port was opened.
    pub(crate) fn released(&self) -> u64 {
        self.records.released()
    }

    /// Takes a record out of the queue with `take`, which also returns whether the device must be notified.
    #[inline]
    pub(crate) fn take<T>(
        &mut self,
        take: impl FnOnce(&mut niclab_port::Queue<K>, &mut AtomicRecords<'_>) -> Option<(T, bool)>,
    ) -> Option<T> {
        let Self { link, completer, slices, records, quiet, batches, .. } = self;
        let mut memory = AtomicRecords { records: slices.words(), completer: completer.words() };
        let (taken, is_released) = take(records, &mut memory)?;
        link.received.store(records.received(), Ordering::Relaxed);
        quiet.on_progress();
        if is_released {
            batches.announce(link);
        }
        Some(taken)
    }

    /// Reads the queue with `look`, without changing it.
    #[inline]
    pub(crate) fn look<T>(
        &self,
        look: impl FnOnce(&niclab_port::Queue<K>, &AtomicRecords<'_>) -> Option<T>,
    ) -> Option<T> {
        let records = AtomicRecords { records: self.slices.words(), completer: self.completer.words() };
        look(&self.records, &records)
    }

    /// Checks whether the device has skipped the next slice without writing it, as a faulty device does, and then skips
    /// it too.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        let before = self.records.released();
        let checked = self.with_memory(|records, memory| records.check(memory));
        checked.map_err(|fault| {
            self.link.received.store(self.records.received(), Ordering::Relaxed);
            self.quiet.on_progress();
            if self.records.released() != before {
                self.batches.announce(&self.link);
            }
            self.link.error(fault)
        })
    }

    /// Returns the interrupts for this port since the last call. Sleeps up to `timeout` for the first one.
    pub(crate) fn wait_interrupts(&mut self, timeout: Duration) -> Result<u64, Error> {
        self.ring_deferred();
        self.link.backing.wait_interrupts(timeout)
    }

    /// Shortens the release interval for a sender with `credits` slices, so that releases are frequent enough for it.
    /// Returns the previous interval.
    pub(crate) fn narrow_release_interval(&mut self, credits: u32) -> u64 {
        self.with_memory(|records, memory| records.narrow_release_interval(credits, memory))
    }

    /// Sets the release interval, here and in the device.
    pub(crate) fn set_release_interval(&mut self, slices: u64) {
        self.with_memory(|records, memory| records.set_release_interval(slices, memory));
    }

    /// Waits as [`Self::wait`] does, and rings for what the port's other half has deferred, in the same thread: if the
    /// wait sleeps at once, one doorbell serves the posts and the request for an interrupt.
    pub(crate) fn wait_for_both<T>(
        &mut self,
        requester: &mut Requester,
        operation: &'static str,
        deadline: Deadline,
        take: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, Error> {
        self.batches.take_over_deferred(requester.batches());
        let waited = self.wait(operation, deadline, take);
        // The wait may have ended with an error before it rang.
        self.ring_deferred();
        waited
    }

    /// Waits until `take` finds something. `take` must depend on the queue only.
    pub(crate) fn wait<T>(
        &mut self,
        operation: &'static str,
        deadline: Deadline,
        mut take: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, Error> {
        let mut wait = Wait::new(operation, self.policy, deadline);
        let mut looks: u32 = 0;
        loop {
            let next = self.batches.next_in(&self.link, &mut wait, &mut self.quiet);
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

    /// Sleeps until the next slice is stored, at most `limit`.
    pub(crate) fn sleep(&mut self, limit: Duration) -> Result<(), Error> {
        if self.with_memory(|records, memory| records.arm(memory)) {
            self.batches.announce_now(&self.link);
        }
        self.wait_interrupts(limit).map(drop)
    }

    fn with_memory<T>(
        &mut self,
        act: impl FnOnce(&mut niclab_port::Queue<K>, &mut AtomicRecords<'_>) -> T,
    ) -> T {
        let Self { completer, slices, records, .. } = self;
        act(records, &mut AtomicRecords { records: slices.words(), completer: completer.words() })
    }
}

impl<K: Kind> Batching for Queue<K> {
    fn begin_batch(&mut self) {
        self.batches.begin();
    }

    fn end_batch(&mut self) {
        self.batches.end(&self.link);
    }

    fn ring_deferred(&mut self) {
        self.batches.ring_deferred(&self.link);
    }
}

impl<K> Drop for Queue<K> {
    /// A batch ends with its port.
    fn drop(&mut self) {
        self.batches.ring_deferred(&self.link);
    }
}
