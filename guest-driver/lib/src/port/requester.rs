//! Posts from the requester page, and waits for room in it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use niclab_port::atomic::AtomicPage;

use super::{Batches, Link, Status};
use crate::wait::{Next, Quiet, Wait};
use crate::{Batching, Deadline, Error, SharedMemory, WaitPolicy};

/// The requester page of a port.
#[derive(Debug)]
pub(crate) struct Requester {
    link: Arc<Link>,
    page: SharedMemory,
    status: SharedMemory,
    slots: niclab_port::Requester,
    policy: WaitPolicy,
    quiet: Quiet,
    batches: Batches,
}

impl Requester {
    pub(super) fn new(link: Arc<Link>, page: SharedMemory, status: SharedMemory) -> Self {
        Self {
            link,
            page,
            status,
            slots: niclab_port::Requester::new(0),
            policy: WaitPolicy::ADAPTIVE,
            quiet: Quiet::default(),
            batches: Batches::default(),
        }
    }

    pub(crate) fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.policy = policy;
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(super) fn batches(&mut self) -> &mut Batches {
        &mut self.batches
    }

    /// Posts since the port was opened.
    pub(crate) fn launched(&self) -> u64 {
        self.slots.launched()
    }

    /// The page, and the status that the device writes for it.
    pub(crate) fn page(&self) -> AtomicPage<'_> {
        AtomicPage { requester: self.page.words(), status: self.status.words() }
    }

    /// The status line as the device last wrote it.
    pub(crate) fn status(&self) -> Status {
        Status::read(&self.page())
    }

    /// Whether a slot is free; reads the status line only if no slot is known to be free.
    #[inline]
    pub(crate) fn has_slot(&mut self) -> Result<bool, Error> {
        if self.slots.is_full() {
            self.refresh()?;
            if self.slots.is_full() {
                // The device frees only slots that it was notified of.
                self.ring_deferred();
                self.refresh()?;
            }
        }
        Ok(!self.slots.is_full())
    }

    /// Whether the device has taken all posts. Reads the status line.
    pub(crate) fn is_drained(&mut self) -> Result<bool, Error> {
        self.ring_deferred();
        self.refresh()?;
        Ok(self.slots.in_flight() == 0)
    }

    /// Reads from the status line which slots are free, and whether posts were refused.
    pub(crate) fn refresh(&mut self) -> Result<(), Error> {
        let Self { link, page, status, slots, quiet, .. } = self;
        let before = slots.taken();
        let learned = slots.refresh(&AtomicPage { requester: page.words(), status: status.words() });
        if slots.taken() != before {
            quiet.on_progress();
        }
        learned.map_err(|fault| link.error(fault))
    }

    /// Posts the next slot, which must be free, with `fill`. `fill` gets the number of records that the port has
    /// received.
    #[inline]
    pub(crate) fn launch<T>(
        &mut self,
        fill: impl FnOnce(&mut niclab_port::Requester, &mut AtomicPage<'_>, u64) -> T,
    ) -> T {
        let Self { link, page, status, slots, batches, .. } = self;
        let mut page = AtomicPage { requester: page.words(), status: status.words() };
        let launched = fill(slots, &mut page, link.received.load(Ordering::Relaxed));
        batches.announce(link);
        launched
    }

    #[cold]
    pub(crate) fn wait_for_slot(&mut self, operation: &'static str, deadline: Deadline) -> Result<(), Error> {
        self.wait_until(operation, deadline, Self::has_slot)
    }

    pub(crate) fn wait_until(
        &mut self,
        operation: &'static str,
        deadline: Deadline,
        mut done: impl FnMut(&mut Self) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let mut wait = self.wait(operation, deadline);
        while !done(self)? {
            self.go_on_waiting(&mut wait)?;
        }
        Ok(())
    }

    /// A wait with the policy of this half.
    pub(crate) fn wait(&self, operation: &'static str, deadline: Deadline) -> Wait {
        Wait::new(operation, self.policy, deadline)
    }

    /// What a wait does next; a caller that sleeps rings first: [`Batches::next_in`].
    pub(crate) fn next(&mut self, wait: &mut Wait, quiet: &mut Quiet) -> Result<Next, Error> {
        self.batches.next_in(&self.link, wait, quiet)
    }

    /// Continues a wait: polls again, or sleeps.
    pub(crate) fn go_on_waiting(&mut self, wait: &mut Wait) -> Result<(), Error> {
        if let Next::Sleep(limit) = self.batches.next_in(&self.link, wait, &mut self.quiet)? {
            self.ring_deferred();
            thread::sleep(limit.min(WaitPolicy::SENDER_SLEEP));
        }
        Ok(())
    }
}

impl Batching for Requester {
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

impl Drop for Requester {
    /// A batch ends with its port.
    fn drop(&mut self) {
        self.batches.ring_deferred(&self.link);
    }
}
