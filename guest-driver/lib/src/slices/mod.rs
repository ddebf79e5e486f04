//! Slices: a requester page to send from and a receive queue in memory, no system call on either path.
//!
//! After Fröning, Litz and Brüning (2007; sections are cited where they apply). A [`Port`] is a [`Sender`] and a
//! [`Receiver`]; [`Port::split`] lends them out separately, so that one thread may send while another receives.
//!
//! A message is 0 to 8 words of 64 bits and always a tag of two words (section 4). The NIC carries words, not bytes:
//! [`Sender::send_bytes`] pads with zeros to whole words, and a program whose messages are not whole words puts their
//! length into the tag.
//!
//! Messages of one port to another arrive once and in order as long as no link faults are configured: a receiver's
//! slices are set aside for its senders by [`Port::authorize`], and a sender that ran out of them waits in its page.
//!
//! A faulty device is met with errors that name it: what it left out is [`Error::SlicesLost`] and the port goes on,
//! counts that cannot be are [`Error::Inconsistent`], and what never comes is [`Error::TimedOut`]. A lost interrupt
//! costs time alone: a sleeping receiver looks into memory every 100 ms. The NIC has no check sum over a slice, so that
//! a slice which was cut short and says that all is well is known by its contents alone: the end of the data, which is
//! the tag, is old.

mod receiver;
mod sender;

use std::sync::Arc;

use niclab_abi::config::FEATURE_SLICES;

pub use niclab_port::slices::{Flags, Message, PAYLOAD_BYTES, PAYLOAD_WORDS, TAG_WORDS};
pub use receiver::Receiver;
pub use sender::Sender;

use crate::port::{self, Link};
pub use crate::port::{Parts, PortOptions, Refusal, Status};
use crate::{Address, Deadline, Device, Error, WaitPolicy};

/// An open port. Dropping it closes the port: packets not yet sent are discarded and counted.
#[derive(Debug)]
pub struct Port {
    address: Address,
    link: Arc<Link>,
    sender: Sender,
    receiver: Receiver,
}

impl Port {
    /// Opens a port of `device`.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFeature`], [`Error::BadValue`], [`Error::PortBusy`], [`Error::Refused`], [`Error::DeviceGone`].
    pub fn open(device: &Device, options: PortOptions) -> Result<Self, Error> {
        device.expect(FEATURE_SLICES, "receive queue of slices")?;
        Self::from_parts(port::open(device, options)?)
    }

    /// A port of the given parts.
    ///
    /// # Errors
    ///
    /// [`Error::Inconsistent`] names the part that is too small.
    pub fn from_parts(parts: Parts) -> Result<Self, Error> {
        let (link, requester, queue) = parts.assemble()?;
        let (sender, receiver) = (Sender::new(requester), Receiver::new(queue));
        Ok(Self { address: link.address, link, sender, receiver })
    }

    /// This port on the cluster network.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Slices of the receive queue.
    pub fn slices(&self) -> u32 {
        self.receiver.slices()
    }

    /// Sets where the port sends: fills its entry of the descriptor look-up table (section 3.1).
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], [`Error::DeviceGone`].
    pub fn route(&mut self, target: Address) -> Result<(), Error> {
        self.link.backing.route(target)
    }

    /// Lets `source` send to the port (section 3.2, port authorization table) and sets `credits` of the port's slices
    /// aside for it: it may be that many messages ahead of this program. The sum over all sources is at most
    /// [`Port::slices`].
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], with `ENOSPC` when the table is full or the credits exceed the slices left;
    /// [`Error::DeviceGone`].
    pub fn authorize(&mut self, source: Address, credits: u32) -> Result<(), Error> {
        // Told before the source can send.
        let interval = self.receiver.queue().narrow_release_interval(credits);
        let authorized = self.link.backing.authorize(source, credits);
        if authorized.is_err() {
            self.receiver.queue().set_release_interval(interval);
        }
        authorized
    }

    /// Takes the right to send back; what `source` sends from now on is discarded.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when it had none, [`Error::DeviceGone`].
    pub fn revoke(&mut self, source: Address) -> Result<(), Error> {
        self.link.backing.revoke(source)
    }

    /// Sets how both halves wait; [`WaitPolicy::ADAPTIVE`] at first.
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.sender.set_wait_policy(policy);
        self.receiver.set_wait_policy(policy);
    }

    /// The half that sends.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// The half that receives.
    pub fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    /// Both halves, for two threads.
    pub fn split(&mut self) -> (&mut Sender, &mut Receiver) {
        (&mut self.sender, &mut self.receiver)
    }

    /// [`Sender::send`].
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn send(
        &mut self,
        payload: &[u64],
        tag: [u64; TAG_WORDS],
        flags: Flags,
        deadline: impl Into<Deadline>,
    ) -> Result<u64, Error> {
        self.sender.send(payload, tag, flags, deadline)
    }

    /// [`Sender::try_send`].
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn try_send(
        &mut self,
        payload: &[u64],
        tag: [u64; TAG_WORDS],
        flags: Flags,
    ) -> Result<Option<u64>, Error> {
        self.sender.try_send(payload, tag, flags)
    }

    /// [`Receiver::receive`].
    ///
    /// # Errors
    ///
    /// As there.
    #[inline]
    pub fn receive(&mut self, deadline: impl Into<Deadline>) -> Result<Message, Error> {
        self.receiver.receive(deadline)
    }

    /// [`Receiver::try_receive`].
    #[inline]
    pub fn try_receive(&mut self) -> Option<Message> {
        self.receiver.try_receive()
    }

    /// [`Sender::flush`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn flush(&mut self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        self.sender.flush(deadline)
    }
}
