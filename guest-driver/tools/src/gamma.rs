//! The transport of cards with descriptor rings: one active port to the same port of the peer. A message consists of
//! the tag and then the payload.

use std::time::Duration;

use niclab_user::gamma::{MAX_MESSAGE_BYTES, Message, Port, PortOptions};
use niclab_user::slices::Flags;
use niclab_user::{Address, Batching, Device, SharedMemory};

use crate::Failure;
use crate::channel::{Channel, MessageKind, Tag, pattern};
use crate::nic::NicOptions;
use crate::pattern::{WHOLE_EVERY, compare};

/// Bytes of the tag.
const TAG_BYTES: usize = 16;
/// Maximum memory for received messages.
const RECEIVE_BYTES: usize = 8 << 20;
/// Messages that may be in flight while the program continues.
const PLACES: usize = 16;
/// Longest payload that is copied to a buffer of its own, so that the program need not wait until it has left.
const PLACED_BYTES: usize = 2 << 10;

/// Buffers for messages in flight, one for each message.
pub(crate) struct Places {
    memory: SharedMemory,
    place_bytes: usize,
    next: usize,
}

impl Places {
    /// Buffers of at least `place_bytes` bytes. A message that fits into a page never crosses a page boundary, which
    /// would cost a second descriptor.
    pub(crate) fn new(place_bytes: usize) -> Result<Self, Failure> {
        let place_bytes = place_bytes.next_power_of_two();
        let bytes = PLACES * place_bytes;
        let memory =
            SharedMemory::pages(bytes).map_err(|source| niclab_user::Error::NoMemory { bytes, source })?;
        Ok(Self { memory, place_bytes, next: 0 })
    }

    /// Sends a message of these parts if the window allows it now. Does not wait until it has left, except at the first
    /// buffer: then all earlier messages must have left.
    pub(crate) fn try_send(
        &mut self,
        port: &mut Port,
        to: Address,
        parts: [&[u8]; 2],
        timeout: Duration,
    ) -> Result<bool, Failure> {
        if self.next == 0 {
            port.flush(timeout)?;
        }
        let begin = self.next * self.place_bytes;
        self.next = (self.next + 1) % PLACES;
        let mut end = begin;
        for part in parts {
            let is_there = self.memory.copy_in(end, part);
            debug_assert!(is_there, "a place has room for the longest message");
            end += part.len();
        }
        Ok(port.try_send(to, &self.memory, begin..end, timeout)?)
    }
}

/// An active port that communicates with the same port of one peer.
pub struct ActiveChannel {
    port: Port,
    peer_address: Address,
    peer: String,
    timeout: Duration,
    received: u64,
    /// Memory of a message: room for the tag, then the pattern.
    outgoing: Vec<u8>,
    /// Buffers of messages that the program does not wait for.
    places: Places,
}

impl ActiveChannel {
    /// Opens the port for messages of up to `payload_bytes`.
    ///
    /// # Errors
    ///
    /// [`Failure::Nic`].
    pub fn open(
        device: &Device,
        options: &NicOptions,
        peer: u32,
        payload_bytes: usize,
    ) -> Result<Self, Failure> {
        // Room for the control messages of both ends too.
        let bytes = TAG_BYTES + payload_bytes.max(64);
        let buffer_bytes = bytes.next_multiple_of(64);
        let buffers = (RECEIVE_BYTES / buffer_bytes).clamp(2, options.slices as usize);
        let port_options = PortOptions::default()
            .port(options.port)
            .buffers(buffers as u32, buffer_bytes as u32)
            .policy(options.policy);
        let peer_address = Address { node: peer, port: options.port };
        Ok(Self {
            port: Port::open(device, port_options)?,
            peer_address,
            peer: peer_address.to_string(),
            timeout: options.timeout,
            received: 0,
            outgoing: vec![0; TAG_BYTES].into_iter().chain((0..bytes - TAG_BYTES).map(pattern)).collect(),
            places: Places::new(buffer_bytes)?,
        })
    }
}

fn bytes_of(tag: Tag) -> [u8; TAG_BYTES] {
    let [first, second] = tag.encode();
    (u128::from(first) | u128::from(second) << 64).to_le_bytes()
}

/// Checks received message `number`. Returns its tag, and its first bytes in `buffer`.
fn accept(
    message: &Message<'_>,
    buffer: &mut [u8],
    number: u64,
    (address, peer): (Address, &str),
) -> Result<Tag, Failure> {
    let mut tag = [0; TAG_BYTES];
    let is_tagged = message.read(0, &mut tag) == TAG_BYTES;
    let words = u128::from_le_bytes(tag);
    let payload_bytes = message.bytes().saturating_sub(TAG_BYTES);
    let is_ours = |tag: &Tag| is_tagged && message.source() == address && tag.bytes as usize == payload_bytes;
    let Some(tag) = Tag::decode([words as u64, (words >> 64) as u64]).filter(is_ours) else {
        return Err(Failure::OutOfStep {
            peer: peer.into(),
            expected: "a message of niclab-perf".into(),
            found: format!("{} bytes from {}", message.bytes(), message.source()),
        });
    };
    message.read(TAG_BYTES, buffer);
    if tag.kind == MessageKind::Data {
        let read = |offset: usize, out: &mut [u8]| {
            message.read(TAG_BYTES + offset, out);
            Ok(())
        };
        compare(read, payload_bytes, number.is_multiple_of(WHOLE_EVERY), tag.number, peer)?;
    }
    Ok(tag)
}

/// Refuses payloads that a message cannot carry.
///
/// # Errors
///
/// [`Failure::Usage`].
pub fn check_size(bytes: usize) -> Result<(), Failure> {
    let most = MAX_MESSAGE_BYTES as usize - TAG_BYTES;
    if bytes <= most {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "--size {bytes}: a message between active ports carries at most {most} bytes of payload: lower --size"
    )))
}

impl Channel for ActiveChannel {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn try_send(&mut self, payload: &[u8], tag: Tag, _: Flags) -> Result<bool, Failure> {
        let Self { port, places, peer_address, timeout, .. } = self;
        places.try_send(port, *peer_address, [&bytes_of(tag), payload], *timeout)
    }

    fn send(&mut self, payload: &[u8], tag: Tag, _: Flags) -> Result<(), Failure> {
        let message = [&bytes_of(tag)[..], payload].concat();
        Ok(self.port.send(self.peer_address, &message, self.timeout)?)
    }

    #[inline]
    fn send_pattern(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<(), Failure> {
        if payload.len() <= PLACED_BYTES && self.try_send(payload, tag, flags)? {
            return Ok(());
        }
        let (front, _) = self.outgoing.split_at_mut(TAG_BYTES);
        front.copy_from_slice(&bytes_of(tag));
        let message = &self.outgoing[..TAG_BYTES + payload.len()];
        Ok(self.port.send(self.peer_address, message, self.timeout)?)
    }

    #[inline]
    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<Option<Tag>, Failure> {
        let (number, peer) = (self.received + 1, (self.peer_address, self.peer.as_str()));
        let taken = self.port.try_receive(|message| accept(message, buffer, number, peer))?;
        self.received += u64::from(taken.is_some());
        taken.transpose()
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Tag, Failure> {
        let (number, peer) = (self.received + 1, (self.peer_address, self.peer.as_str()));
        let taken = self.port.receive(self.timeout, |message| accept(message, buffer, number, peer))?;
        self.received += 1;
        taken
    }

    fn batching(&mut self) -> Option<&mut dyn Batching> {
        Some(&mut self.port)
    }

    /// A program that sleeps requests no interrupt from this card, so its messages have their own doorbells. With a
    /// batch, each would leave only at the next call.
    fn begin_exchange(&mut self) {}

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.port.flush(self.timeout)?)
    }
}
