//! The sending half of a logical channel: messages are pushed into the card (sections 5.1 and 5.2).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use niclab_port::channels::{Outgoing, PayloadRoom, Pushing, Segments, Short};

use crate::memory::copy;
use crate::port::{Link, Requester, Status};
use crate::{Address, Deadline, Error, Memory, WaitPolicy};

/// Pieces of memory that the payload region of an outbound queue has room for.
const PIECES: u64 = 4;

/// Pushes the messages of a channel.
#[derive(Debug)]
pub struct Sender {
    requester: Requester,
    /// The payload region of the outbound queue.
    region: Memory,
    room: PayloadRoom,
    segments: Segments,
    /// A message whose payload is all in the region, and not all of whose segments found a free slot.
    pushing: Option<Pushing>,
    /// Refusals that were seen while a message was being pushed, and that nobody was told of.
    refused: Option<Error>,
    /// Where the last message went, if the status line will not tell when it has left.
    unreported: Option<Address>,
    /// Messages that were pushed.
    messages: u64,
}

impl Sender {
    pub(super) fn new(requester: Requester, region: Memory, room_bytes: u64, first_segment: u64) -> Self {
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

    /// Sets how this half waits.
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.requester.set_wait_policy(policy);
    }

    /// This channel on the cluster network.
    pub fn address(&self) -> Address {
        self.link().address
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        self.requester.link()
    }

    /// Most payload bytes of a message.
    pub fn max_bytes(&self) -> u64 {
        self.room.bytes().min(super::MAX_BULK_BYTES)
    }

    /// Into how long pieces memory is cut: several of them are under way at a time.
    pub fn piece_bytes(&self) -> usize {
        let piece = (self.room.bytes() / PIECES).next_multiple_of(64);
        piece.min(self.max_bytes()).max(1) as usize
    }

    /// Messages sent since the channel was opened.
    pub fn sent(&self) -> u64 {
        self.messages
    }

    /// Doorbells that this channel has rung since it was opened, for what it sent and for room that it gave back.
    pub fn doorbells(&self) -> u64 {
        self.link().rung.load(Ordering::Relaxed)
    }

    /// The status line as the device last wrote it.
    pub fn status(&self) -> Status {
        self.requester.status()
    }

    /// Sends a message if there is room for all of it, and says whether there was. Its payload may be used anew at
    /// once.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] for a payload too long or another than the message has; [`Error::Launch`] once for each
    /// message that was refused since, [`Error::Inconsistent`]: nothing was sent.
    #[inline]
    pub fn try_send(&mut self, message: Outgoing, payload: &[u8]) -> Result<bool, Error> {
        match &message {
            Outgoing::Short(short) if payload.is_empty() => self.try_send_short(short),
            _ => self.try_send_any(message, payload),
        }
    }

    /// [`Sender::try_send`] of a message without payload, which takes a slot and nothing else.
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
            // Refusals would not be seen otherwise.
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

    /// Sends a message; waits while there is no room. The message is on its way when this returns.
    ///
    /// # Errors
    ///
    /// As [`Sender::try_send`]; [`Error::TimedOut`], and nothing was sent; [`Error::DeviceGone`]. What other messages
    /// were refused for while the rest of this one is pushed is told by the next call.
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
        self.go_on_sending(message, payload, is_sent, deadline.into())
    }

    /// [`Sender::send`], of which a part at least could not be done at once.
    #[cold]
    fn go_on_sending(
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

    /// Waits until every message sent so far has left: its receiver's card has all of it, or has refused it. A channel
    /// that is closed before takes back what has not left.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], [`Error::DeviceGone`], [`Error::Launch`], [`Error::Inconsistent`].
    pub fn flush(&mut self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        self.wait_until("flush", deadline.into(), Self::is_flushed)
    }

    /// Whether all has left. Asks the card to tell, where it does not do so by itself.
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
            let nothing = Short { notify: true, ..Short::new(target, super::NOTHING) };
            self.try_send(Outgoing::Short(nothing), &[])?;
        }
        Ok(false)
    }

    /// Launches what is left of the message before, as far as there are slots.
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

    /// Looks whether messages were refused since this was asked last, by this card or by their receiver's.
    ///
    /// # Errors
    ///
    /// [`Error::Launch`], [`Error::Inconsistent`].
    pub fn check_refusals(&mut self) -> Result<(), Error> {
        self.refused.take().map_or(Ok(()), Err)?;
        self.requester.refresh()
    }

    /// The message as it will be pushed.
    pub(super) fn check(&self, message: &Outgoing, payload: &[u8]) -> Result<Pushing, Error> {
        let (bytes, most) = (payload.len() as u64, self.max_bytes());
        if bytes > most {
            let range = format!("at most {most}: send longer ones in parts, or as memory");
            return Err(Error::BadValue { what: "the payload in bytes", value: bytes, range });
        }
        if bytes != message.payload_bytes() {
            return Err(Error::BadValue {
                what: "the payload in bytes",
                value: bytes,
                range: format!("what the message says, {}", message.payload_bytes()),
            });
        }
        Ok(Pushing::new(*message, self.segments)?)
    }

    /// Whether a message that has begun can go on. What became of others is told by the next call, so that this one is
    /// not left in the middle, which its card would give up.
    fn has_slot_for_rest(&mut self) -> Result<bool, Error> {
        match (self.requester.has_slot(), &mut self.refused) {
            (Err(Error::Launch { count, .. }), Some(Error::Launch { count: before, .. })) => *before += count,
            (Err(refused @ Error::Launch { .. }), place) => *place = Some(refused),
            (found, _) => return found,
        }
        Ok(false)
    }

    /// Stores payload segment by segment, each before its launch, so that the card sends the first while the others are
    /// stored. Where slots run out all of the payload is stored, and launched later.
    fn push(&mut self, mut pushing: Pushing, payload: &[u8]) -> Result<(), Error> {
        loop {
            let (place, bytes) = pushing.next();
            let (begin, end) = (bytes.start as usize, bytes.end as usize);
            let has_slot = self.has_slot_for_rest()?;
            let part = if has_slot { payload.get(begin..end) } else { payload.get(begin..) };
            self.store(place, part.unwrap_or_default());
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

    /// Stores whole words, for a window of a card is written alone: what the last one has beyond the bytes is zero.
    fn store(&self, place: u64, bytes: &[u8]) {
        let words = self.region.words().get((place / 8) as usize..).unwrap_or_default();
        let (wholes, rest) = bytes.as_chunks::<8>();
        copy::store(words, wholes);
        if let Some(last) = words.get(wholes.len()).filter(|_| !rest.is_empty()) {
            let mut whole = [0; 8];
            whole[..rest.len()].copy_from_slice(rest);
            last.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
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
