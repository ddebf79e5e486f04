//! The receiving half: slices in host memory (section 3.4).

use std::time::Duration;

use niclab_port::slices::{self, Slice};

use super::Message;
use crate::batch::batching_by_fields;
use crate::port::{Queue, Requester};
use crate::{Deadline, Error, WaitPolicy};

/// Receives at a port.
#[derive(Debug)]
pub struct Receiver {
    queue: Queue<Slice>,
}

impl Receiver {
    pub(super) fn new(queue: Queue<Slice>) -> Self {
        Self { queue }
    }

    /// Sets how this half waits.
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.queue.set_wait_policy(policy);
    }

    /// Slices of the receive queue.
    pub fn slices(&self) -> u32 {
        self.queue.slices()
    }

    /// Messages received since the port was opened.
    pub fn received(&self) -> u64 {
        self.queue.received()
    }

    /// The next message, if there is one. Reads only host memory, never the device.
    #[inline]
    pub fn try_receive(&mut self) -> Option<Message> {
        take(&mut self.queue)
    }

    /// The next message; waits for it according to the [`WaitPolicy`].
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], [`Error::DeviceGone`]; [`Error::SlicesLost`], after which the port remains usable.
    #[inline]
    pub fn receive(&mut self, deadline: impl Into<Deadline>) -> Result<Message, Error> {
        match self.try_receive() {
            Some(message) => Ok(message),
            None => self.queue.wait("receive", deadline.into(), take),
        }
    }

    /// As [`Receiver::receive`] if there is no message yet; also rings for the posts of the port's sender.
    pub(super) fn wait_for_both(
        &mut self,
        requester: &mut Requester,
        deadline: Deadline,
    ) -> Result<Message, Error> {
        self.queue.wait_for_both(requester, "receive", deadline, take)
    }

    /// Checks whether the device has skipped the next slice without writing it, as a faulty device does, and then skips
    /// it too. [`Receiver::receive`] does so while it waits. A program that only calls [`Receiver::try_receive`] should
    /// call this after a long wait.
    ///
    /// # Errors
    ///
    /// [`Error::SlicesLost`], after which the port remains usable.
    pub fn check(&mut self) -> Result<(), Error> {
        self.queue.check()
    }

    /// Returns the interrupts for this port since the last call. Sleeps up to `timeout` for the first one; returns 0 if
    /// there was none. It requests no interrupt: messages sent with [`super::Flags::INTERRUPT`] cause them.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceGone`].
    pub fn wait_interrupts(&mut self, timeout: Duration) -> Result<u64, Error> {
        self.queue.wait_interrupts(timeout)
    }

    pub(super) fn queue(&mut self) -> &mut Queue<Slice> {
        &mut self.queue
    }
}

batching_by_fields!(Receiver: queue);

/// Takes the next message out of the queue, if there is one.
#[inline]
fn take(queue: &mut Queue<Slice>) -> Option<Message> {
    queue.take(|queue, records| slices::take(queue, records))
}
