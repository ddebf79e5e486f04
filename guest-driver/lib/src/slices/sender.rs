//! The sending half: the requester page (section 3.3).

use niclab_port::BadValue;
use niclab_port::slices::{self, pack};

use super::{Flags, PAYLOAD_BYTES, PAYLOAD_WORDS, TAG_WORDS};
use crate::batch::batching_by_fields;
use crate::port::{Requester, Status};
use crate::{Deadline, Error, WaitPolicy};

/// Sends from a port.
#[derive(Debug)]
pub struct Sender {
    requester: Requester,
    /// Whether the status line will report that the last packet has left.
    last_reports: bool,
}

impl Sender {
    pub(super) fn new(requester: Requester) -> Self {
        Self { requester, last_reports: true }
    }

    pub(super) fn requester(&mut self) -> &mut Requester {
        &mut self.requester
    }

    /// Sets how this half waits.
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.requester.set_wait_policy(policy);
    }

    /// Sends a message: up to [`PAYLOAD_WORDS`] words and a tag. Returns its number; the first is 1. Waits while the
    /// page is full, because the device lags or the receiver consumed too few messages.
    ///
    /// The message is in flight when this returns; only [`Flags::ACKNOWLEDGE`] reports its arrival.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] for a payload too long; [`Error::TimedOut`], [`Error::DeviceGone`],
    /// [`Error::Launch`], [`Error::Inconsistent`]: nothing was sent.
    #[inline]
    pub fn send(
        &mut self,
        payload: &[u64],
        tag: [u64; TAG_WORDS],
        flags: Flags,
        deadline: impl Into<Deadline>,
    ) -> Result<u64, Error> {
        if let Some(number) = self.try_send(payload, tag, flags)? {
            return Ok(number);
        }
        self.requester.wait_for_slot("send", deadline.into())?;
        Ok(self.launch(payload, tag, flags))
    }

    /// Sends a message if the page has a free slot; otherwise returns `None` at once.
    ///
    /// # Errors
    ///
    /// As [`Sender::send`], except those of the wait.
    #[inline]
    pub fn try_send(
        &mut self,
        payload: &[u64],
        tag: [u64; TAG_WORDS],
        flags: Flags,
    ) -> Result<Option<u64>, Error> {
        slices::check_payload(payload)?;
        if self.requester.has_slot()? { Ok(Some(self.launch(payload, tag, flags))) } else { Ok(None) }
    }

    /// [`Sender::send`] of up to [`PAYLOAD_BYTES`] bytes, as little-endian words, the last one padded with zeros. The
    /// length in bytes is not transmitted.
    ///
    /// # Errors
    ///
    /// As [`Sender::send`].
    #[inline]
    pub fn send_bytes(
        &mut self,
        payload: &[u8],
        tag: [u64; TAG_WORDS],
        flags: Flags,
        deadline: impl Into<Deadline>,
    ) -> Result<u64, Error> {
        let (words, count) = pack_checked(payload)?;
        self.send(&words[..count], tag, flags, deadline)
    }

    /// [`Sender::send_bytes`] if the page has a free slot; otherwise returns `None` at once.
    ///
    /// # Errors
    ///
    /// As [`Sender::try_send`].
    #[inline]
    pub fn try_send_bytes(
        &mut self,
        payload: &[u8],
        tag: [u64; TAG_WORDS],
        flags: Flags,
    ) -> Result<Option<u64>, Error> {
        let (words, count) = pack_checked(payload)?;
        self.try_send(&words[..count], tag, flags)
    }

    /// Waits until every message sent so far has left the requester. The last one must carry [`Flags::NOTIFY`] or
    /// [`Flags::ACKNOWLEDGE`]: of other messages the device reports only every eighth.
    ///
    /// The next call may report a refusal that the device is just reporting. In the status line the device stores
    /// `launched`, from which this call sees that all have left, before `refused` (DEVICE.md, section 6).
    ///
    /// # Errors
    ///
    /// [`Error::NothingReported`] if it carried neither; [`Error::Launch`] if messages were refused;
    /// [`Error::TimedOut`], [`Error::DeviceGone`], [`Error::Inconsistent`].
    pub fn flush(&mut self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        if !self.last_reports {
            let link = self.requester.link();
            return Err(Error::NothingReported { device: link.name(), port: link.address.port });
        }
        self.requester.wait_until("flush", deadline.into(), Requester::is_drained)
    }

    /// Waits until `count` acknowledgements have returned since the port was opened.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], [`Error::DeviceGone`], [`Error::Launch`], [`Error::Inconsistent`].
    pub fn wait_acknowledged(&mut self, count: u64, deadline: impl Into<Deadline>) -> Result<(), Error> {
        self.requester.wait_until("wait for an acknowledgement", deadline.into(), |requester| {
            requester.refresh()?;
            Ok(requester.status().acknowledged >= count)
        })
    }

    /// The status line as the device last wrote it.
    pub fn status(&self) -> Status {
        self.requester.status()
    }

    /// Messages posted since the port was opened.
    pub fn launched(&self) -> u64 {
        self.requester.launched()
    }

    /// Posts a message from the next slot, which must be free.
    #[inline]
    fn launch(&mut self, payload: &[u64], tag: [u64; TAG_WORDS], flags: Flags) -> u64 {
        self.last_reports = flags.intersects(Flags::NOTIFY | Flags::ACKNOWLEDGE);
        self.requester
            .launch(|slots, page, received| slices::launch(slots, page, payload, tag, flags, received))
    }
}

batching_by_fields!(Sender: requester);

fn pack_checked(payload: &[u8]) -> Result<([u64; PAYLOAD_WORDS], usize), Error> {
    pack(payload).ok_or_else(|| {
        let (value, most) = (payload.len() as u64, PAYLOAD_BYTES as u64);
        BadValue { what: "the payload in bytes", value, most }.into()
    })
}
