//! Slices: a requester page for sending and a receive queue in memory, without system calls on either path.
//!
//! After Fröning, Litz and Brüning (2007; sections are cited where they apply). A [`Port`] is a [`Sender`] and a
//! [`Receiver`]; [`Port::split`] lends them out separately, so that one thread may send while another receives.
//!
//! A message is 0 to 8 words of 64 bits and always a tag of two words (section 4). The NIC carries words, not bytes:
//! [`Sender::send_bytes`] pads with zeros to whole words, and a program whose messages are not whole words puts their
//! length into the tag.
//!
//! Messages of one port to another arrive once and in order as long as no link faults are configured.
//! [`Port::authorize`] reserves slices of a receiver for each of its senders; a sender without credit waits in its
//! page.
//!
//! Errors name the faults of a faulty device. Slices that it skips are [`Error::SlicesLost`], and the port remains
//! usable. Invalid counts are [`Error::Inconsistent`], and missing messages are [`Error::TimedOut`]. A lost interrupt
//! only costs time: a sleeping receiver polls memory every 100 ms. A slice has no checksum. A truncated slice whose
//! status marks it as valid can only be recognised by its contents: the end of the data, which is the tag, is old.

mod receiver;
mod sender;

use std::sync::Arc;

use niclab_abi::config::FEATURE_SLICES;

pub use niclab_port::slices::{Flags, Message, PAYLOAD_BYTES, PAYLOAD_WORDS, TAG_WORDS};
pub use receiver::Receiver;
pub use sender::Sender;

use crate::batch::batching_by_fields;
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

    /// This port's address on the cluster network.
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

    /// Authorizes `source` to send to the port (section 3.2, port authorization table) and reserves `credits` of the
    /// port's slices for it. The source may be that many messages ahead of this program. The sum over all sources is at
    /// most [`Port::slices`].
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], with `ENOSPC` if the table is full or the credits exceed the slices left;
    /// [`Error::DeviceGone`].
    pub fn authorize(&mut self, source: Address, credits: u32) -> Result<(), Error> {
        // The device must know the interval before the source can send.
        let interval = self.receiver.queue().narrow_release_interval(credits);
        let authorized = self.link.backing.authorize(source, credits);
        if authorized.is_err() {
            self.receiver.queue().set_release_interval(interval);
        }
        authorized
    }

    /// Revokes an authorization. The device discards what `source` sends from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if there was none, [`Error::DeviceGone`].
    pub fn revoke(&mut self, source: Address) -> Result<(), Error> {
        self.link.backing.revoke(source)
    }

    /// Sets how both halves wait; the default is [`WaitPolicy::ADAPTIVE`].
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
    /// As [`Sender::send`].
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
    /// As [`Sender::try_send`].
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
    /// As [`Receiver::receive`].
    #[inline]
    pub fn receive(&mut self, deadline: impl Into<Deadline>) -> Result<Message, Error> {
        if let Some(message) = self.try_receive() {
            return Ok(message);
        }
        self.receiver.wait_for_both(self.sender.requester(), deadline.into())
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
    /// As [`Sender::flush`].
    pub fn flush(&mut self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        self.sender.flush(deadline)
    }
}

batching_by_fields!(Port: sender, receiver);
