//! The receiving half of a logical channel: an endpoint's queue, and its payload region (section 5.3).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use niclab_abi::grim::ChannelPayload;
use niclab_port::grim::{self, Incoming};
use niclab_port::slices::Slice;

use crate::batch::batching_by_fields;
use crate::memory::copy;
use crate::port::Queue;
use crate::region::Region;
use crate::{Address, Deadline, Error, WaitPolicy};

/// A payload region holds this many times the longest messages between two releases of slices with payload.
const MESSAGES_BETWEEN_RELEASES: u64 = 4;

/// The payload of a message, in the place where the card has stored it.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    words: &'a [AtomicU64],
    bytes: usize,
}

impl<'a> Payload<'a> {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the message has no payload.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The words that hold it, in place, little-endian. Bytes of the last word beyond its length are not part of it.
    pub fn words(&self) -> &'a [AtomicU64] {
        self.words
    }

    /// Copies its bytes from `offset` on, as many as there are and `out` holds. Returns their number.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> usize {
        let bytes = self.bytes.saturating_sub(offset).min(out.len());
        let words = self.words.get(offset / 8..).unwrap_or_default();
        let (head, rest) = out[..bytes].split_at_mut((offset.next_multiple_of(8) - offset).min(bytes));
        let (first, words) = words.split_at(usize::from(!head.is_empty()).min(words.len()));
        if let Some(first) = first.first() {
            let begin = offset % 8;
            head.copy_from_slice(&first.load(Ordering::Relaxed).to_ne_bytes()[begin..begin + head.len()]);
        }
        let (wholes, rest) = rest.as_chunks_mut::<8>();
        copy::load(words, wholes);
        if let Some(last) = words.get(wholes.len()).filter(|_| !rest.is_empty()) {
            rest.copy_from_slice(&last.load(Ordering::Relaxed).to_ne_bytes()[..rest.len()]);
        }
        bytes
    }

    /// A copy of the whole payload.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        self.read(0, &mut bytes);
        bytes
    }
}

/// A received message. Its payload stays in place as long as this value lives.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The sender's channel. The NIC sets it, so a sender cannot forge it.
    pub source: Address,
    /// The channel that received it.
    pub target: Address,
    /// Number of its handler.
    pub handler: u32,
    /// Four integers.
    pub arguments: [u32; 4],
    /// Its payload.
    pub payload: Payload<'a>,
    /// Whether it caused an interrupt.
    pub interrupt: bool,
}

/// Receives the messages of a channel.
#[derive(Debug)]
pub struct Receiver {
    queue: Queue<Slice>,
    address: Address,
    region: Region,
    /// Messages with payload that were consumed and not released. Other messages may wait for their room.
    held: u64,
    /// Maximum of `held`: with more, a message could wait for room that is not released.
    most_held: u64,
    /// The queue's number of released slices when `held` was last reset.
    released: u64,
}

impl Receiver {
    /// A half that stores payload in `region`. It sets the release interval of the device. Slices with payload are
    /// released sooner, before a message can lack room. Others are released rarely, because a release rings a doorbell,
    /// which is an exit from the virtual machine, and short messages take no room.
    pub(super) fn new(
        mut queue: Queue<Slice>,
        address: Address,
        region: Region,
        max_bytes: u64,
    ) -> Result<Self, Error> {
        let bytes = region.bytes() as u64;
        let places = bytes / max_bytes.next_multiple_of(64).max(64);
        let slices = u64::from(queue.slices());
        queue.set_release_interval((slices / 4).max(1));
        let name = region.name();
        region.backing().set_payload(&ChannelPayload { port: 0, region: name, offset: 0, bytes })?;
        let most_held = (places / MESSAGES_BETWEEN_RELEASES).max(1);
        Ok(Self { queue, address, region, held: 0, most_held, released: 0 })
    }

    /// Sets how this half waits.
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.queue.set_wait_policy(policy);
    }

    /// Messages received since the channel was opened.
    pub fn received(&self) -> u64 {
        self.queue.received()
    }

    /// Slices that the card may use again, since the channel was opened.
    pub fn released(&self) -> u64 {
        self.queue.released()
    }

    /// The next message, if there is one; it stays valid until [`Receiver::advance`]. Reads only host memory, never the
    /// device.
    ///
    /// # Errors
    ///
    /// [`Error::Inconsistent`] if the device reports payload outside the region; the message stays in the queue.
    #[inline]
    pub fn front(&self) -> Result<Option<Message<'_>>, Error> {
        let Some(incoming) = self.queue.look(|queue, records| grim::front(queue, records)) else {
            return Ok(None);
        };
        let Incoming { source, handler, arguments, payload, interrupt } = incoming;
        let payload = match payload {
            None => Payload { words: &[], bytes: 0 },
            Some(grim::Payload { offset, bytes }) => {
                let (begin, bytes) = (offset as usize / 8, bytes as usize);
                let words = self.region.memory().words().get(begin..begin + bytes.div_ceil(8));
                let words = words.filter(|_| offset.is_multiple_of(8));
                Payload { words: words.ok_or_else(|| self.beyond(offset, bytes))?, bytes }
            }
        };
        Ok(Some(Message { source, target: self.address, handler, arguments, payload, interrupt }))
    }

    /// Consumes the message at the front. Its payload may be overwritten from now on.
    #[inline]
    pub fn advance(&mut self) {
        let incoming = self.queue.look(|queue, records| grim::front(queue, records));
        // A message that cannot be read may have payload.
        self.advance_past(incoming.is_none_or(|incoming| incoming.payload.is_some()));
    }

    #[inline]
    fn advance_past(&mut self, has_payload: bool) {
        let Self { queue, held, most_held, released, .. } = self;
        queue.take(|queue, records| {
            if *released != queue.released() {
                (*released, *held) = (queue.released(), 0);
            }
            *held += u64::from(has_payload);
            let mut is_released = queue.advance(records);
            if !is_released && *held >= *most_held {
                queue.release(records);
                is_released = true;
            }
            Some(((), is_released))
        });
    }

    /// Passes the next message to `take`, if there is one, and consumes it.
    ///
    /// # Errors
    ///
    /// As [`Receiver::front`], but the message is consumed.
    #[inline]
    pub fn try_receive<T>(&mut self, take: impl FnOnce(&Message<'_>) -> T) -> Result<Option<T>, Error> {
        let (taken, has_payload) = match self.front() {
            Ok(None) => return Ok(None),
            Ok(Some(message)) => (Ok(Some(take(&message))), !message.payload.is_empty()),
            Err(error) => (Err(error), true),
        };
        self.advance_past(has_payload);
        taken
    }

    /// Passes the next message to `take` and consumes it; waits for it according to the [`WaitPolicy`].
    ///
    /// # Errors
    ///
    /// As [`Receiver::try_receive`]; [`Error::TimedOut`], [`Error::DeviceGone`]; [`Error::SlicesLost`], after which the
    /// channel remains usable.
    #[inline]
    pub fn receive<T>(
        &mut self,
        deadline: impl Into<Deadline>,
        take: impl FnOnce(&Message<'_>) -> T,
    ) -> Result<T, Error> {
        self.wait(deadline)?;
        self.try_receive(take)?.ok_or_else(|| self.vanished())
    }

    /// Waits for a message at the front.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], [`Error::DeviceGone`]; [`Error::SlicesLost`], after which the channel remains usable.
    #[inline]
    pub fn wait(&mut self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        if self.is_there() {
            return Ok(());
        }
        self.queue.wait("receive", deadline.into(), |queue| {
            queue.look(|queue, records| grim::front(queue, records)).map(drop)
        })
    }

    /// Whether a message is at the front.
    fn is_there(&self) -> bool {
        self.queue.look(|queue, records| grim::front(queue, records)).is_some()
    }

    /// Sleeps until the next message is stored, at most `limit`.
    pub(super) fn sleep(&mut self, limit: Duration) -> Result<(), Error> {
        self.queue.sleep(limit)
    }

    /// Checks whether the device has skipped the next message without writing it, as a faulty device does, and then
    /// skips it too.
    ///
    /// # Errors
    ///
    /// [`Error::SlicesLost`], after which the channel remains usable.
    pub fn check(&mut self) -> Result<(), Error> {
        self.queue.check()
    }

    /// Returns the interrupts for this channel since the last call. Sleeps up to `timeout` for the first one; returns 0
    /// if there was none. It requests no interrupt: messages cause them.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceGone`].
    pub fn wait_interrupts(&mut self, timeout: Duration) -> Result<u64, Error> {
        self.queue.wait_interrupts(timeout)
    }

    #[cold]
    fn beyond(&self, offset: u32, bytes: usize) -> Error {
        Error::Inconsistent {
            device: self.region.backing().name().into(),
            what: format!(
                "port {}: a message has {bytes} bytes of payload from {offset} on, in a region of {}",
                self.address.port,
                self.region.bytes()
            ),
        }
    }

    #[cold]
    fn vanished(&self) -> Error {
        Error::Inconsistent {
            device: self.region.backing().name().into(),
            what: "a message was in the queue, and then was not".into(),
        }
    }
}

batching_by_fields!(Receiver: queue);
