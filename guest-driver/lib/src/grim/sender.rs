//! The sending half of a logical channel: it pushes messages into the card (GRIM, sections 5.1 and 5.2).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use niclab_port::grim::{Outgoing, PayloadRoom, Pushing, Segments, Short};

use crate::batch::batching_by_fields;
use crate::memory::copy;
use crate::port::{Link, Requester, Status};
use crate::{Address, Batching as _, Deadline, Error, SharedMemory, WaitPolicy};

/// The payload region of an outbound queue has room for this many pieces of a memory transfer.
const PIECES: u64 = 4;

/// Pushes the messages of a channel.
#[derive(Debug)]
pub struct Sender {
    requester: Requester,
    /// The payload region of the outbound queue.
    region: SharedMemory,
    /// Allocates payload in the region.
    room: PayloadRoom,
    /// How payload is divided into segments.
    segments: Segments,
    /// A message whose payload is stored, but whose last segments are not posted yet, because no slot was free.
    pushing: Option<Pushing>,
    /// Refusals of other messages, found during the push of a message. The next call reports them to the caller.
    refused: Option<Error>,
    /// Target of the last message, if the card will not report in the status line that this message has left.
    unreported: Option<Address>,
    /// Number of pushed messages.
    messages: u64,
}

impl Sender {
    pub(super) fn new(
        requester: Requester,
        region: SharedMemory,
        room_bytes: u64,
        first_segment: u64,
    ) -> Self {
        let room_bytes = room_bytes.min(region.bytes() as u64);
        Self {
            requester,
            region,
            room: PayloadRoom::new(room_bytes),
            segments: Segments::from(first_segment),
            pushing: None,
            refused: None,
            unreported: None,
            messages: 0,
        }
    }

    /// Sets how the sender waits.
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.requester.set_wait_policy(policy);
    }

    /// This channel's address on the cluster network.
    pub fn address(&self) -> Address {
        self.link().address
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        self.requester.link()
    }

    /// Maximum payload bytes of a message.
    pub fn max_bytes(&self) -> u64 {
        self.room.bytes().min(super::MAX_BULK_BYTES)
    }

    /// Length of the pieces into which the library divides a memory transfer, so that several are in flight at a time.
    pub fn piece_bytes(&self) -> usize {
        let piece = (self.room.bytes() / PIECES).next_multiple_of(64);
        piece.min(self.max_bytes()).max(1) as usize
    }

    /// Messages sent since the channel was opened.
    pub fn sent(&self) -> u64 {
        self.messages
    }

    /// Doorbells that this channel has rung since it was opened, for sent messages and for released slices.
    pub fn doorbells(&self) -> u64 {
        self.link().rung.load(Ordering::Relaxed)
    }

    /// The status line as the device last wrote it.
    pub fn status(&self) -> Status {
        self.requester.status()
    }

    /// Sends a message if there is room for all of it. Returns whether the message was sent. The caller may reuse the
    /// memory of `payload` at once.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] if the payload is too long, or if its length is not that in the message; [`Error::Launch`]
    /// if messages were refused since the last call; [`Error::Inconsistent`]. After an error, nothing was sent.
    #[inline]
    pub fn try_send(&mut self, message: Outgoing, payload: &[u8]) -> Result<bool, Error> {
        match &message {
            Outgoing::Short(short) if payload.is_empty() => self.try_send_short(short),
            _ => self.try_send_any(message, payload),
        }
    }

    /// [`Sender::try_send`] for a message without payload, which needs only a slot.
    #[inline]
    fn try_send_short(&mut self, short: &Short) -> Result<bool, Error> {
        if self.refused.is_some() || self.pushing.is_some() {
            return self.try_send_any(Outgoing::Short(*short), &[]);
        }
        let slot = short.slot()?;
        if !self.requester.has_slot()? {
            return Ok(false);
        }
        self.room.pass();
        self.unreported = if short.notify { None } else { Some(short.target) };
        self.messages += 1;
        self.requester.launch(|slots, page, received| slot.launch(slots, page, received));
        Ok(true)
    }

    fn try_send_any(&mut self, message: Outgoing, payload: &[u8]) -> Result<bool, Error> {
        let pushing = self.check(&message, payload)?;
        self.refused.take().map_or(Ok(()), Err)?;
        self.push_on()?;
        if self.pushing.is_some() || !self.requester.has_slot()? {
            return Ok(false);
        }
        let offset = self.room.take(payload.len() as u64, &self.requester.page());
        let Some(offset) = offset else {
            // The card frees only payload that it was notified of. `has_slot` does not read the status line while slots
            // are free; this reads it to notice refusals.
            self.requester.ring_deferred();
            self.requester.refresh()?;
            return Ok(false);
        };
        self.unreported = match message {
            Outgoing::Short(Short { target, notify: false, .. }) => Some(target),
            _ => None,
        };
        self.messages += 1;
        self.push(pushing.at(offset), payload)?;
        Ok(true)
    }

    /// Sends a message; waits until there is room. When this returns, the card has the whole message, but the receiver
    /// may not.
    ///
    /// # Errors
    ///
    /// As [`Sender::try_send`]; [`Error::TimedOut`], in which case nothing was sent; [`Error::DeviceGone`]. If refusals
    /// of other messages are found while the rest of this message is pushed, the next call reports them.
    #[inline]
    pub fn send(
        &mut self,
        message: Outgoing,
        payload: &[u8],
        deadline: impl Into<Deadline>,
    ) -> Result<(), Error> {
        let is_sent = self.try_send(message, payload)?;
        if is_sent && self.pushing.is_none() {
            return Ok(());
        }
        self.finish_sending(message, payload, is_sent, deadline.into())
    }

    /// The rest of [`Sender::send`], if the message could not be pushed completely at once.
    #[cold]
    fn finish_sending(
        &mut self,
        message: Outgoing,
        payload: &[u8],
        is_sent: bool,
        deadline: Deadline,
    ) -> Result<(), Error> {
        if !is_sent {
            let done = |sender: &mut Self| sender.try_send(message, payload);
            self.wait_until("push a message", deadline, done)?;
        }
        if self.pushing.is_some() {
            let done = |sender: &mut Self| sender.push_on().map(|()| sender.pushing.is_none());
            self.wait_until("push the rest of a message", Deadline::Never, done)?;
        }
        Ok(())
    }

    /// Waits until every message sent so far has left. A message has left when its receiver's card has all of it, or
    /// has refused it. Closing the channel discards messages that have not left.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], [`Error::DeviceGone`], [`Error::Launch`], [`Error::Inconsistent`].
    pub fn flush(&mut self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        self.wait_until("flush", deadline.into(), Self::is_flushed)
    }

    /// Whether all messages have left. If the card will not report this for the last message, sends an empty message
    /// for which it does.
    pub(super) fn is_flushed(&mut self) -> Result<bool, Error> {
        self.push_on()?;
        self.check_refusals()?;
        if self.pushing.is_some() {
            return Ok(false);
        }
        if self.room.has_all_left(&self.requester.page()) {
            return Ok(true);
        }
        if let Some(target) = self.unreported {
            let empty = Short { notify: true, ..Short::new(target, super::NOTHING) };
            self.try_send(Outgoing::Short(empty), &[])?;
        }
        self.requester.ring_deferred();
        Ok(false)
    }

    /// Posts the remaining segments of the last message, as long as slots are free.
    pub(super) fn push_on(&mut self) -> Result<(), Error> {
        while let Some(mut pushing) = self.pushing {
            if !self.has_slot_for_rest()? {
                return Ok(());
            }
            self.requester.launch(|slots, page, received| pushing.launch(slots, page, received));
            self.pushing = Some(pushing).filter(|pushing| !pushing.is_done());
        }
        Ok(())
    }

    /// Checks whether this card or a receiver's card has refused messages since the last check.
    ///
    /// # Errors
    ///
    /// [`Error::Launch`], [`Error::Inconsistent`].
    pub fn check_refusals(&mut self) -> Result<(), Error> {
        self.refused.take().map_or(Ok(()), Err)?;
        self.requester.refresh()
    }

    /// Checks a message, and prepares to push it.
    pub(super) fn check(&self, message: &Outgoing, payload: &[u8]) -> Result<Pushing, Error> {
        let (bytes, max) = (payload.len() as u64, self.max_bytes());
        if bytes > max {
            let range = format!("at most {max}: divide longer payloads, or send them as memory messages");
            return Err(Error::BadValue { what: "the payload in bytes", value: bytes, range });
        }
        if bytes != message.payload_bytes() {
            return Err(Error::BadValue {
                what: "the payload in bytes",
                value: bytes,
                range: format!("{}, the message's own length", message.payload_bytes()),
            });
        }
        Ok(Pushing::new(*message, self.segments)?)
    }

    /// Whether a slot is free for the next segment of a message. If other messages were refused, the next call reports
    /// this. An error here would leave the message incomplete, and the card would abandon it.
    fn has_slot_for_rest(&mut self) -> Result<bool, Error> {
        match (self.requester.has_slot(), &mut self.refused) {
            (Err(Error::Launch { count, .. }), Some(Error::Launch { count: total, .. })) => *total += count,
            (Err(refused @ Error::Launch { .. }), pending) => *pending = Some(refused),
            (has_slot, _) => return has_slot,
        }
        Ok(false)
    }

    /// Stores the payload segment by segment, and posts each segment after storing it, so that the card sends the first
    /// one while the program stores the next ones. If no slot is free, stores the rest of the payload;
    /// [`Sender::push_on`] posts it later.
    fn push(&mut self, mut pushing: Pushing, payload: &[u8]) -> Result<(), Error> {
        loop {
            let (offset, bytes) = pushing.next();
            let (begin, end) = (bytes.start as usize, bytes.end as usize);
            let has_slot = self.has_slot_for_rest()?;
            let part = if has_slot { payload.get(begin..end) } else { payload.get(begin..) };
            self.store(offset, part.unwrap_or_default());
            if !has_slot {
                self.pushing = Some(pushing);
                return Ok(());
            }
            self.requester.launch(|slots, page, received| pushing.launch(slots, page, received));
            if pushing.is_done() {
                return Ok(());
            }
        }
    }

    /// Stores bytes as whole words at `offset` of the payload region, a multiple of 8. The card's window is write-only,
    /// so the rest of the last word cannot be preserved. It becomes zero.
    fn store(&self, offset: u64, bytes: &[u8]) {
        let words = self.region.words().get((offset / 8) as usize..).unwrap_or_default();
        let (full_words, rest) = bytes.as_chunks::<8>();
        copy::store(words, full_words);
        if let Some(last) = words.get(full_words.len()).filter(|_| !rest.is_empty()) {
            let mut padded = [0; 8];
            padded[..rest.len()].copy_from_slice(rest);
            last.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
        }
    }

    fn wait_until(
        &mut self,
        operation: &'static str,
        deadline: Deadline,
        mut done: impl FnMut(&mut Self) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let mut wait = self.requester.wait(operation, deadline);
        while !done(self)? {
            self.requester.go_on_waiting(&mut wait)?;
        }
        Ok(())
    }
}

batching_by_fields!(Sender: requester);
