//! The receiving half of a logical channel: an endpoint's queue, and its payload region (section 5.3).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use niclab_abi::channels::ChannelPayload;
use niclab_port::channels::{self, Incoming};
use niclab_port::slices::Slice;

use crate::memory::copy;
use crate::port::Queue;
use crate::region::Region;
use crate::{Address, Deadline, Error, WaitPolicy};

/// The longest messages that fit beside one another into a payload region, for each release of slices that have
/// payload.
const MESSAGES_BETWEEN_RELEASES: u64 = 4;

/// The payload of a message, where the card has stored it.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    words: &'a [AtomicU64],
    bytes: usize,
}

impl<'a> Payload<'a> {
    /// Its bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The words that hold it, in place: little-endian, and what the last one has beyond its bytes is no part of it.
    pub fn words(&self) -> &'a [AtomicU64] {
        self.words
    }

    /// Copies its bytes from `offset` on, as many as `out` holds. Returns how many there were.
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

    /// All of it, copied.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        self.read(0, &mut bytes);
        bytes
    }
}

/// A message that came. Its payload stays in place as long as this lives.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The channel that it came from. The NIC says so, not the sender: it can be relied on.
    pub source: Address,
    /// The channel that it came to.
    pub target: Address,
    /// Number of its handler.
    pub handler: u32,
    /// Four integers.
    pub arguments: [u32; 4],
    /// Its payload.
    pub payload: Payload<'a>,
    /// Whether it interrupted.
    pub interrupt: bool,
}

/// Receives what comes for a channel.
#[derive(Debug)]
pub struct Receiver {
    queue: Queue<Slice>,
    address: Address,
    region: Region,
    /// Messages with payload that were consumed and not released: their room is what others may wait for.
    held: u64,
    /// How many these may be: no piece of the region that a message waits for is cut by more of them.
    most_held: u64,
    /// What was released when they were last counted.
    released: u64,
}

impl Receiver {
    /// A half whose payload goes to `region`. The device is told how often slices are released. Those with payload are
    /// released sooner, before the room of a message can be missing: a release is a doorbell, an exit from a virtual
    /// machine, and short messages take no room.
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

    /// The next message, if it is there; it is there until [`Receiver::advance`]. Reads host memory only, never the
    /// device.
    ///
    /// # Errors
    ///
    /// [`Error::Inconsistent`]: the device says that payload is where no region is; the message is still there.
    #[inline]
    pub fn front(&self) -> Result<Option<Message<'_>>, Error> {
        let Some(incoming) = self.queue.look(|queue, records| channels::front(queue, records)) else {
            return Ok(None);
        };
        let Incoming { source, handler, arguments, payload, interrupt } = incoming;
        let payload = match payload {
            None => Payload { words: &[], bytes: 0 },
            Some(channels::Payload { offset, bytes }) => {
                let (begin, bytes) = (offset as usize / 8, bytes as usize);
                let words = self.region.memory().words().get(begin..begin + bytes.div_ceil(8));
                let words = words.filter(|_| offset.is_multiple_of(8));
                Payload { words: words.ok_or_else(|| self.beyond(offset, bytes))?, bytes }
            }
        };
        Ok(Some(Message { source, target: self.address, handler, arguments, payload, interrupt }))
    }

    /// The message at the front is done: its payload may be overwritten from now on.
    #[inline]
    pub fn advance(&mut self) {
        let incoming = self.queue.look(|queue, records| channels::front(queue, records));
        // One that cannot be read may have any payload.
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

    /// What `take` makes of the next message, if that is there.
    ///
    /// # Errors
    ///
    /// As [`Receiver::front`], and the message is gone.
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

    /// What `take` makes of the next message; waits for it as the [`WaitPolicy`] says.
    ///
    /// # Errors
    ///
    /// As [`Receiver::try_receive`]; [`Error::TimedOut`], [`Error::DeviceGone`]; [`Error::SlicesLost`], after which the
    /// channel can be used on.
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
    /// [`Error::TimedOut`], [`Error::DeviceGone`]; [`Error::SlicesLost`], after which the channel can be used on.
    #[inline]
    pub fn wait(&mut self, deadline: impl Into<Deadline>) -> Result<(), Error> {
        if self.is_there() {
            return Ok(());
        }
        self.queue.wait("receive", deadline.into(), |queue| {
            queue.look(|queue, records| channels::front(queue, records)).map(drop)
        })
    }

    /// Whether a message is at the front.
    fn is_there(&self) -> bool {
        self.queue.look(|queue, records| channels::front(queue, records)).is_some()
    }

    /// Sleeps until the next message is stored, at most `limit`.
    pub(super) fn sleep(&mut self, limit: Duration) -> Result<(), Error> {
        self.queue.sleep(limit)
    }

    /// Looks whether the device has gone past the next message without writing it, as a faulty device does, and goes
    /// past it too.
    ///
    /// # Errors
    ///
    /// [`Error::SlicesLost`], after which the channel can be used on.
    pub fn check(&mut self) -> Result<(), Error> {
        self.queue.check()
    }

    /// Interrupts for this channel since the last call; sleeps up to `timeout` for the first one, and returns 0 when
    /// there was none. Does not ask for one: messages that interrupt bring theirs.
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
            what: "a message was there and is not any more".into(),
        }
    }
}
