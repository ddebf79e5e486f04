//! The receiving half of a logical channel: an endpoint's queue, and its payload region (section 5.3).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use niclab_abi::channels::ChannelPayload;
use niclab_port::channels::{self, Incoming};
use niclab_port::slices::Slice;

use crate::port::Queue;
use crate::region::Region;
use crate::{Address, Deadline, Error, WaitPolicy};

/// The longest messages that fit beside one another into a payload region, for each release of slices.
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
        let (mut rest, mut lane) = (&mut out[..bytes], offset % 8);
        for word in self.words.iter().skip(offset / 8) {
            let whole = &word.load(Ordering::Relaxed).to_le_bytes()[lane..];
            let (part, behind) = rest.split_at_mut(whole.len().min(rest.len()));
            part.copy_from_slice(&whole[..part.len()]);
            (rest, lane) = (behind, 0);
            if rest.is_empty() {
                break;
            }
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
}

impl Receiver {
    /// A half whose payload goes to `region`. The device is told how often slices are released: before the room of a message can
    /// be missing.
    pub(super) fn new(
        mut queue: Queue<Slice>,
        address: Address,
        region: Region,
        max_bytes: u64,
    ) -> Result<Self, Error> {
        let bytes = region.bytes() as u64;
        let places = bytes / max_bytes.next_multiple_of(64).max(64);
        let slices = u64::from(queue.slices());
        queue.set_release_interval((slices / 4).min(places / MESSAGES_BETWEEN_RELEASES).max(1));
        let name = region.name();
        region.backing().set_payload(&ChannelPayload { port: 0, region: name, offset: 0, bytes })?;
        Ok(Self { queue, address, region })
    }

    /// Sets how this half waits.
    pub fn set_wait_policy(&mut self, policy: WaitPolicy) {
        self.queue.set_wait_policy(policy);
    }

    /// Messages received since the channel was opened.
    pub fn received(&self) -> u64 {
        self.queue.received()
    }

    /// The next message, if it is there; it is there until [`Receiver::advance`]. Reads host memory only, never the device.
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
        self.queue.take(|queue, records| Some(((), queue.advance(records))));
    }

    /// What `take` makes of the next message, if that is there.
    ///
    /// # Errors
    ///
    /// As [`Receiver::front`], and the message is gone.
    #[inline]
    pub fn try_receive<T>(&mut self, take: impl FnOnce(&Message<'_>) -> T) -> Result<Option<T>, Error> {
        let taken = match self.front() {
            Ok(None) => return Ok(None),
            Ok(Some(message)) => Ok(Some(take(&message))),
            Err(error) => Err(error),
        };
        self.advance();
        taken
    }

    /// What `take` makes of the next message; waits for it as the [`WaitPolicy`] says.
    ///
    /// # Errors
    ///
    /// As [`Receiver::try_receive`]; [`Error::TimedOut`], [`Error::DeviceGone`]; [`Error::SlicesLost`], after which the channel
    /// can be used on.
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

    /// Looks whether the device has gone past the next message without writing it, as a faulty device does, and goes past it too.
    ///
    /// # Errors
    ///
    /// [`Error::SlicesLost`], after which the channel can be used on.
    pub fn check(&mut self) -> Result<(), Error> {
        self.queue.check()
    }

    /// Interrupts for this channel since the last call; sleeps up to `timeout` for the first one, and returns 0 when there was
    /// none. Does not ask for one: messages that interrupt bring theirs.
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
