//! What a benchmark needs of a transport: messages with a tag, in order, to one peer.

use std::time::Duration;

use niclab_user::slices::Flags;

use crate::Failure;

/// Byte `index` of the pattern that measured messages carry: any but zeros, which a lazy transport could compress or
/// skip.
pub const fn pattern(index: usize) -> u8 {
    index as u8 ^ 0xa5
}

/// A connection to one peer. No call allocates once the channel is set up.
pub trait Channel {
    /// The peer, for messages to the user.
    fn peer(&self) -> &str;

    /// Sends if that is possible at once; `false` when not.
    ///
    /// # Errors
    ///
    /// What the transport says.
    fn try_send(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<bool, Failure>;

    /// Sends, and waits for room while there is none.
    ///
    /// # Errors
    ///
    /// What the transport says; a time-out.
    fn send(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<(), Failure>;

    /// [`Channel::try_send`] of a payload that is the begin of the [`pattern`]. A transport that keeps the pattern in
    /// memory which its NIC reads sends it from there.
    ///
    /// # Errors
    ///
    /// As there.
    fn try_send_pattern(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<bool, Failure> {
        self.try_send(payload, tag, flags)
    }

    /// [`Channel::send`] of a payload that is the begin of the [`pattern`].
    ///
    /// # Errors
    ///
    /// As there.
    fn send_pattern(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<(), Failure> {
        self.send(payload, tag, flags)
    }

    /// The next message if it is there: its payload into the front of `buffer`, as much as that holds.
    ///
    /// # Errors
    ///
    /// What the transport says; [`Failure::OutOfStep`] for a message that is not of this program.
    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<Option<Tag>, Failure>;

    /// The next message.
    ///
    /// # Errors
    ///
    /// As [`Channel::try_receive`]; a time-out.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Tag, Failure>;

    /// Doorbells rung so far, where the transport counts them.
    fn doorbells(&self) -> u64 {
        0
    }

    /// Waits until the last message left this node. It was sent with [`Flags::NOTIFY`].
    ///
    /// # Errors
    ///
    /// What the transport says; a time-out.
    fn flush(&mut self) -> Result<(), Failure>;
}

/// A channel whose messages can interrupt their receiver.
pub trait Interrupting: Channel {
    /// Interrupts for this end since the last call; sleeps up to `timeout` for the first one.
    ///
    /// # Errors
    ///
    /// What the NIC says.
    fn wait_interrupts(&mut self, timeout: Duration) -> Result<u64, Failure>;
}

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// "I am here": number is the sender's nonce, payload tells what it is about to run.
    Hello,
    /// "I have seen you": number is the nonce of the one that is answered.
    Welcome,
    /// A measured message, numbered from 1.
    Data,
    /// All data of a step was sent or received.
    Done,
    /// The run is over: payload is the sender's counters.
    Bye,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Hello, Self::Welcome, Self::Data, Self::Done, Self::Bye];
}

/// The 16 bytes beside the payload, on every transport alike, so that transports do equal work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// What the message is for.
    pub kind: Kind,
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

    /// Bits of the first word that all tags have, above 48 bits that differ.
    pub const COMPARED: u64 = Self::MAGIC << 48;

    /// As the NIC carries it: two words.
    pub fn encode(self) -> [u64; 2] {
        let kind = self.kind as u64;
        [Self::MAGIC << 48 | kind << 40 | u64::from(self.step) << 32 | u64::from(self.bytes), self.number]
    }

    /// `None` when the words are not a tag of this program.
    pub fn decode([first, number]: [u64; 2]) -> Option<Self> {
        if first >> 48 != Self::MAGIC {
            return None;
        }
        let kind = *Kind::ALL.get((first >> 40) as usize & 0xff)?;
        Some(Self { kind, step: (first >> 32) as u8, bytes: first as u32, number })
    }

    /// Fails unless the message is the one that is due.
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

/// A receive that skips greetings: they are repeated until answered, so that late ones may follow.
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
    matches!(tag.kind, Kind::Hello | Kind::Welcome)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn tags_survive(kind in 0..5_usize, step: u8, bytes: u32, number: u64) {
            let tag = Tag { kind: Kind::ALL[kind], step, bytes, number };
            prop_assert_eq!(Tag::decode(tag.encode()), Some(tag));
        }

        #[test]
        fn foreign_words_are_no_tag(first: u64, number: u64) {
            prop_assume!(first >> 48 != Tag::MAGIC || (first >> 40 & 0xff) >= 5);
            prop_assert_eq!(Tag::decode([first, number]), None);
        }
    }
}
