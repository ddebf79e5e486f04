//! The queue of a program and its handlers for sent messages: they leave at once if there is room, or later.

use std::collections::VecDeque;

use niclab_port::grim::{Bulk, Outgoing, RegionWrite, Short};

use super::Sender;
use crate::{Address, Error};

/// Maximum number of stored errors. The queue keeps the first ones, because they show the cause.
const MAX_TROUBLES: usize = 64;

/// Part of memory that a program has exposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExposedPart {
    /// The channel that it was exposed for.
    pub target: Address,
    /// The region's name, which [`Sender::expose`] returned there.
    pub region: u32,
    /// Offset in the region.
    pub offset: u64,
}

/// The sending halves of a program's channels, and messages that wait for room in them. Handlers send with it.
/// No call waits. A message without room waits here, and is pushed in order when the program polls. Beyond the limits
/// [`super::Options::queue_messages`] and [`super::Options::queue_bytes`], sending fails with [`Error::SendQueueFull`].
#[derive(Debug)]
pub struct SendQueue {
    senders: Vec<Sender>,
    waiting: Vec<VecDeque<(Outgoing, Box<[u8]>)>>,
    messages: usize,
    bytes: usize,
    most_messages: usize,
    most_bytes: usize,
    pub(super) troubles: VecDeque<Error>,
}

impl SendQueue {
    pub(super) fn new(senders: Vec<Sender>, most_messages: usize, most_bytes: usize) -> Self {
        let waiting = senders.iter().map(|_| VecDeque::new()).collect();
        Self { senders, waiting, messages: 0, bytes: 0, most_messages, most_bytes, troubles: VecDeque::new() }
    }

    /// Sends a message without payload through this channel, counted from 0.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`], [`Error::SendQueueFull`], [`Error::Inconsistent`]: nothing was sent.
    pub fn send_short(&mut self, channel: usize, short: Short) -> Result<(), Error> {
        self.post(channel, Outgoing::Short(short), &[])
    }

    /// Sends a message with payload, at most [`Sender::max_bytes`].
    ///
    /// # Errors
    ///
    /// As [`SendQueue::send_short`].
    pub fn send_bulk(&mut self, channel: usize, short: Short, payload: &[u8]) -> Result<(), Error> {
        self.post(channel, bulk(short, payload), payload)
    }

    /// Copies bytes, without a limit, into memory of another program, which is not notified.
    ///
    /// # Errors
    ///
    /// As [`SendQueue::send_short`]; [`Error::SendQueueFull`], after which part of the bytes may have been sent.
    pub fn send_memory(&mut self, channel: usize, exposed: &ExposedPart, bytes: &[u8]) -> Result<(), Error> {
        let piece = self.sender(channel)?.piece_bytes();
        for (number, part) in bytes.chunks(piece).enumerate() {
            self.post(channel, memory(exposed, number * piece, part), part)?;
        }
        Ok(())
    }

    /// The sending half of a channel.
    ///
    /// # Errors
    ///
    /// [`Error::BadValue`] if there is no such channel.
    pub fn sender(&mut self, channel: usize) -> Result<&mut Sender, Error> {
        let count = self.senders.len();
        self.senders.get_mut(channel).ok_or_else(|| Error::BadValue {
            what: "the channel",
            value: channel as u64,
            range: format!("less than {count}, the number of enabled channels"),
        })
    }

    /// The sending halves.
    pub(super) fn senders(&self) -> &[Sender] {
        &self.senders
    }

    /// The sending halves, for batches.
    pub(super) fn senders_mut(&mut self) -> impl Iterator<Item = &mut Sender> {
        self.senders.iter_mut()
    }

    /// Number of messages that wait for room.
    pub fn waiting(&self) -> usize {
        self.messages
    }

    /// The channel of this address.
    pub(super) fn channel_of(&self, address: Address) -> Option<usize> {
        self.senders.iter().position(|sender| sender.address() == address)
    }

    /// Stores an error until the next poll.
    pub(super) fn trouble(&mut self, error: Error) {
        if self.troubles.len() < MAX_TROUBLES {
            self.troubles.push_back(error);
        }
    }

    /// Sends at once if there is room and no message waits. Returns whether it did. Refusals of other messages are
    /// stored.
    pub(super) fn try_post(
        &mut self,
        channel: usize,
        message: Outgoing,
        payload: &[u8],
    ) -> Result<bool, Error> {
        let is_first = self.waiting.get(channel).is_none_or(VecDeque::is_empty);
        let sender = self.sender(channel)?;
        sender.check(&message, payload)?;
        if !is_first {
            return Ok(false);
        }
        match sender.try_send(message, payload) {
            // Each refusal is reported once.
            Err(error @ Error::Launch { .. }) => {
                self.trouble(error);
                self.sender(channel)?.try_send(message, payload)
            }
            sent => sent,
        }
    }

    pub(super) fn post(&mut self, channel: usize, message: Outgoing, payload: &[u8]) -> Result<(), Error> {
        if self.try_post(channel, message, payload)? {
            return Ok(());
        }
        if self.messages >= self.most_messages || self.bytes + payload.len() > self.most_bytes {
            return Err(Error::SendQueueFull {
                messages: self.messages,
                bytes: self.bytes,
                most_messages: self.most_messages,
                most_bytes: self.most_bytes,
            });
        }
        self.messages += 1;
        self.bytes += payload.len();
        self.waiting[channel].push_back((message, payload.into()));
        Ok(())
    }

    /// Pushes waiting messages, as far as there is room. Returns whether it pushed any. Also collects refusals.
    pub(super) fn push_on(&mut self) -> Result<bool, Error> {
        let mut has_moved = false;
        for (sender, waiting) in self.senders.iter_mut().zip(&mut self.waiting) {
            match sender.check_refusals() {
                Err(error @ Error::Launch { .. }) if self.troubles.len() < MAX_TROUBLES => {
                    self.troubles.push_back(error);
                }
                Err(Error::Launch { .. }) => {}
                other => other?,
            }
            sender.push_on()?;
            while let Some((message, payload)) = waiting.front() {
                if !sender.try_send(*message, payload)? {
                    break;
                }
                self.messages -= 1;
                self.bytes -= payload.len();
                waiting.pop_front();
                has_moved = true;
            }
        }
        Ok(has_moved)
    }

    /// Whether no message waits, and all have left.
    pub(super) fn is_flushed(&mut self) -> Result<bool, Error> {
        if self.messages > 0 {
            return Ok(false);
        }
        let mut is_flushed = true;
        for channel in 0..self.senders.len() {
            is_flushed &= match self.senders[channel].is_flushed() {
                Err(error @ Error::Launch { .. }) => {
                    self.trouble(error);
                    false
                }
                other => other?,
            };
        }
        Ok(is_flushed)
    }
}

/// A message with this payload; a short message if it is empty.
pub(super) fn bulk(short: Short, payload: &[u8]) -> Outgoing {
    match payload.len() as u64 {
        0 => Outgoing::Short(short),
        bytes => Outgoing::Bulk(Bulk { short, bytes }),
    }
}

/// A memory message with `part`, for the address `behind` bytes after `exposed`.
pub(super) fn memory(exposed: &ExposedPart, behind: usize, part: &[u8]) -> Outgoing {
    let &ExposedPart { target, region, offset } = exposed;
    let place = offset.saturating_add(behind as u64);
    Outgoing::Memory(RegionWrite { target, region, place, bytes: part.len() as u64 })
}
