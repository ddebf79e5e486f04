//! What a benchmark needs of a transport: messages with a tag, in order, to one peer.

use std::num::NonZeroU64;
use std::time::Duration;

use niclab_user::Batching;
use niclab_user::slices::Flags;

use crate::Failure;

/// Byte `index` of the pattern that measured messages carry. It is not all zeros, which a transport could compress or
/// skip.
pub const fn pattern(index: usize) -> u8 {
    index as u8 ^ 0xa5
}

/// A connection to one peer. No call allocates once the channel is set up.
pub trait Channel {
    /// Name of the peer, for messages to the user.
    fn peer(&self) -> &str;

    /// Sends if that is possible at once; otherwise returns `false`.
    ///
    /// # Errors
    ///
    /// Those of the transport.
    fn try_send(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<bool, Failure>;

    /// Sends, and waits for room if there is none.
    ///
    /// # Errors
    ///
    /// Those of the transport; a timeout.
    fn send(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<(), Failure>;

    /// [`Channel::try_send`] of a payload that is the beginning of the [`pattern`]. A transport that keeps the pattern
    /// in memory readable by its NIC sends it from there.
    ///
    /// # Errors
    ///
    /// As [`Channel::try_send`].
    fn try_send_pattern(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<bool, Failure> {
        self.try_send(payload, tag, flags)
    }

    /// [`Channel::send`] of a payload that is the beginning of the [`pattern`].
    ///
    /// # Errors
    ///
    /// As [`Channel::send`].
    fn send_pattern(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<(), Failure> {
        self.send(payload, tag, flags)
    }

    /// Receives the next message, if there is one. Copies as much of its payload into `buffer` as fits.
    ///
    /// # Errors
    ///
    /// Those of the transport; [`Failure::OutOfStep`] for a message of another program.
    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<Option<Tag>, Failure>;

    /// Waits for the next message.
    ///
    /// # Errors
    ///
    /// As [`Channel::try_receive`]; a timeout.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Tag, Failure>;

    /// The port whose doorbells can be deferred; `None` if the transport has no doorbells, or several ports.
    fn batching(&mut self) -> Option<&mut dyn Batching> {
        None
    }

    /// Begins a batch: until [`Channel::end_batch`], what is sent and what is released may share doorbells. Calls that
    /// wait ring them first. Without effect if the transport has no doorbells.
    fn begin_batch(&mut self) {
        if let Some(port) = self.batching() {
            port.begin_batch();
        }
    }

    /// Ends the batch.
    fn end_batch(&mut self) {
        if let Some(port) = self.batching() {
            port.end_batch();
        }
    }

    /// Rings the doorbell that is deferred. The batch goes on.
    fn ring_deferred(&mut self) {
        if let Some(port) = self.batching() {
            port.ring_deferred();
        }
    }

    /// Begins an exchange of single messages, until [`Channel::end_batch`]. If a card takes the request for an
    /// interrupt through the doorbell, an end that sleeps rings once for its message and that request.
    fn begin_exchange(&mut self) {
        self.begin_batch();
    }

    /// Doorbells rung so far; 0 if the transport does not count them.
    fn doorbells(&self) -> u64 {
        0
    }

    /// Waits until the last message left this node. It was sent with [`Flags::NOTIFY`].
    ///
    /// # Errors
    ///
    /// Those of the transport; a timeout.
    fn flush(&mut self) -> Result<(), Failure>;
}

/// A channel whose messages can interrupt their receiver.
pub trait Interrupting: Channel {
    /// Returns the interrupts for this end since the last call. Sleeps up to `timeout` for the first one.
    ///
    /// # Errors
    ///
    /// Those of the NIC.
    fn wait_interrupts(&mut self, timeout: Duration) -> Result<u64, Failure>;
}

/// Purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// "I am here": number is the sender's nonce, payload is a digest of its plan.
    Hello,
    /// "I have seen you": number is the nonce of the Hello that this answers.
    Welcome,
    /// A measured message, numbered from 1.
    Data,
    /// All data of a step was sent or received.
    Done,
    /// The run is over: payload is the sender's counters.
    Bye,
}

impl MessageKind {
    const ALL: [Self; 5] = [Self::Hello, Self::Welcome, Self::Data, Self::Done, Self::Bye];
}

/// The 16 bytes in addition to the payload, the same on every transport, so that transports do equal work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Purpose of the message.
    pub kind: MessageKind,
    /// Step of the run that it belongs to.
    pub step: u8,
    /// Payload bytes.
    pub bytes: u32,
    /// Its number within the step.
    pub number: u64,
}

impl Tag {
    /// Upper 16 bits of the first word.
    const MAGIC: u64 = 0x6e70;

    /// Bits of the first word that all tags have in common. The lower 48 bits differ.
    pub const COMPARED: u64 = Self::MAGIC << 48;

    /// The two words that the NIC carries.
    pub fn encode(self) -> [u64; 2] {
        let kind = self.kind as u64;
        [Self::MAGIC << 48 | kind << 40 | u64::from(self.step) << 32 | u64::from(self.bytes), self.number]
    }

    /// `None` if the words are not a tag of this program.
    pub fn decode([first, number]: [u64; 2]) -> Option<Self> {
        if first >> 48 != Self::MAGIC {
            return None;
        }
        let kind = *MessageKind::ALL.get((first >> 40) as usize & 0xff)?;
        Some(Self { kind, step: (first >> 32) as u8, bytes: first as u32, number })
    }

    /// Fails unless this is the expected message.
    ///
    /// # Errors
    ///
    /// [`Failure::OutOfStep`].
    pub fn expect(self, due: Self, peer: &str) -> Result<(), Failure> {
        if self == due { Ok(()) } else { Err(self.out_of_step(due, peer)) }
    }

    #[cold]
    fn out_of_step(self, due: Self, peer: &str) -> Failure {
        Failure::OutOfStep { peer: peer.into(), expected: due.to_string(), found: self.to_string() }
    }
}

impl std::fmt::Display for Tag {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, step, bytes, number } = self;
        write!(formatter, "{kind:?} number {number} of {bytes} bytes in step {step}")
    }
}

/// Batches of a step, one after the other.
#[derive(Debug)]
pub struct Batches {
    /// Messages in a batch. None: as many as are ready.
    size: Option<NonZeroU64>,
    in_this: u64,
}

impl Batches {
    /// Begins the first batch.
    pub fn begin(channel: &mut impl Channel, size: Option<NonZeroU64>) -> Self {
        channel.begin_batch();
        Self { size, in_this: 0 }
    }

    /// Counts a message. If the batch is complete, begins the next one.
    #[inline]
    pub fn count(&mut self, channel: &mut impl Channel) {
        self.in_this += 1;
        if self.size.is_some_and(|size| self.in_this >= size.get()) {
            self.next(channel);
        }
    }

    /// Begins the next batch.
    pub fn next(&mut self, channel: &mut impl Channel) {
        self.in_this = 0;
        channel.ring_deferred();
    }
}

/// Receives, and skips greetings: an end repeats them until it is answered, so late ones may follow.
///
/// # Errors
///
/// As [`Channel::receive`].
#[inline]
pub fn receive(channel: &mut impl Channel, buffer: &mut [u8]) -> Result<Tag, Failure> {
    loop {
        let tag = channel.receive(buffer)?;
        if !is_greeting(tag) {
            return Ok(tag);
        }
    }
}

/// As [`receive`], without waiting.
///
/// # Errors
///
/// As [`Channel::try_receive`].
#[inline]
pub fn try_receive(channel: &mut impl Channel, buffer: &mut [u8]) -> Result<Option<Tag>, Failure> {
    Ok(channel.try_receive(buffer)?.filter(|&tag| !is_greeting(tag)))
}

fn is_greeting(tag: Tag) -> bool {
    matches!(tag.kind, MessageKind::Hello | MessageKind::Welcome)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn tags_round_trip(kind in 0..5_usize, step: u8, bytes: u32, number: u64) {
            let tag = Tag { kind: MessageKind::ALL[kind], step, bytes, number };
            prop_assert_eq!(Tag::decode(tag.encode()), Some(tag));
        }

        #[test]
        fn foreign_words_are_no_tag(first: u64, number: u64) {
            prop_assume!(first >> 48 != Tag::MAGIC || (first >> 40 & 0xff) >= 5);
            prop_assert_eq!(Tag::decode([first, number]), None);
        }
    }
}
