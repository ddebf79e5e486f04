//! The transport of cards with channels: one logical channel to the same channel of the peer. A message without payload
//! is a short message, others are bulk messages. The tag is in the four integers. A payload longer than a bulk message
//! goes into memory that the peer has exposed; a short message after it reports that it is complete.

use std::time::Duration;

use niclab_user::grim::{
    Bulk, FIRST_HANDLER, MAX_BULK_BYTES, Message, Outgoing, Port, PortOptions, Refusal, Region, RegionWrite,
    Short, Terms,
};
use niclab_user::slices::Flags;
use niclab_user::{Address, Batching, Device, Error};

use crate::Failure;
use crate::channel::{Channel, Interrupting, MessageKind, Tag};
use crate::nic::NicOptions;
use crate::pattern::{WHOLE_EVERY, compare};

/// Maximum payload of memory messages.
const MAX_MEMORY_BYTES: usize = 64 << 20;

/// A channel to the same channel of one peer.
pub struct PushChannel {
    port: Port,
    peer_address: Address,
    peer: String,
    timeout: Duration,
    received: u64,
    /// Both ends have met.
    is_met: bool,
    /// Exposed memory for payloads longer than a bulk message, if there are any, and its name at this node.
    memory: Option<(Region, u32)>,
    /// Number of the peer's memory, as in its last message.
    peer_memory: u32,
}

impl PushChannel {
    /// Opens the channel, for messages of at most `bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`Failure::Nic`].
    pub fn open(device: &Device, options: &NicOptions, peer: u32, bytes: usize) -> Result<Self, Failure> {
        // Room for one longest message in each slice. Payloads that wait in the card's memory use up this room, and the
        // card then refuses messages for a while.
        let room = bytes.min(MAX_BULK_BYTES as usize).next_multiple_of(64) * options.slices as usize;
        let terms = Terms::of(device.info());
        let terms = Terms { payload_bytes: terms.payload_bytes.max(room), ..terms };
        let ports = PortOptions::default().port(options.port).slices(options.slices);
        let mut port = Port::open_on(device, ports, terms)?;
        port.set_wait_policy(options.policy);
        let memory = if is_memory(bytes) {
            let region = port.sender.allocate(bytes)?;
            let name = port.sender.expose(&region, true)?;
            Some((region, name))
        } else {
            None
        };
        let peer_address = Address { node: peer, port: options.port };
        Ok(Self {
            port,
            peer_address,
            peer: peer_address.to_string(),
            timeout: options.timeout,
            received: 0,
            is_met: false,
            memory,
            peer_memory: 0,
        })
    }

    /// Runs before each send. If this is the first message after the greetings, the peer is there. The card refused
    /// greetings that arrived before it was, and has reported these refusals before it stored the peer's first message.
    #[inline]
    fn before(&mut self, tag: Tag) -> Result<(), Failure> {
        if !self.is_met && !matches!(tag.kind, MessageKind::Hello | MessageKind::Welcome) {
            self.is_met = true;
            forgive_absence(self.port.sender.check_refusals())?;
        }
        Ok(())
    }

    /// The handler number carries the name of the sender's exposed memory, so greetings announce it.
    #[inline]
    fn message(&self, bytes: usize, tag: Tag, flags: Flags) -> Outgoing {
        let [first, second] = tag.encode();
        let arguments = [first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32];
        let handler = FIRST_HANDLER + self.memory.as_ref().map_or(0, |(_, name)| *name);
        let short = Short {
            interrupt: flags.contains(Flags::INTERRUPT),
            notify: flags.contains(Flags::NOTIFY),
            ..Short::new(self.peer_address, handler).arguments(arguments)
        };
        match bytes as u64 {
            0 => Outgoing::Short(short),
            bytes => Outgoing::Bulk(Bulk { short, bytes }),
        }
    }

    /// Copies a payload into the peer's memory. The next payload goes to the same place. The receiver checks that the
    /// memory holds the pattern, and learns from the short message that this payload is complete.
    fn send_memory(&mut self, payload: &[u8]) -> Result<(), Failure> {
        let (target, region) = (self.peer_address, self.peer_memory);
        let piece = self.port.sender.piece_bytes();
        for (number, part) in payload.chunks(piece).enumerate() {
            let (place, bytes) = ((number * piece) as u64, part.len() as u64);
            let memory = Outgoing::Memory(RegionWrite { target, region, place, bytes });
            self.port.sender.send(memory, part, self.timeout)?;
        }
        Ok(())
    }

    /// Takes the message at the front of the queue, if there is one. Returns its tag, and its first bytes in `buffer`.
    fn take(&mut self, buffer: &mut [u8]) -> Result<Option<Tag>, Failure> {
        let Self { port, memory, peer_memory, peer, peer_address, received, .. } = self;
        let taken = port.receiver.try_receive(|message| {
            let memory = memory.as_ref().map(|(region, _)| region);
            *peer_memory = message.handler.wrapping_sub(FIRST_HANDLER);
            accept(message, memory, buffer, *received + 1, (*peer_address, peer))
        })?;
        *received += u64::from(taken.is_some());
        taken.transpose()
    }
}

/// Whether a payload is too long for a bulk message.
const fn is_memory(bytes: usize) -> bool {
    bytes as u64 > MAX_BULK_BYTES
}

/// Ignores the refusal of a greeting that arrived before the peer opened its port.
fn forgive_absence(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(Error::Launch { refusal: Some(Refusal::Closed | Refusal::NoPayload), .. }) => Ok(()),
        other => other,
    }
}

/// Checks received message `number`. Returns its tag, and its first bytes in `buffer`.
fn accept(
    message: &Message<'_>,
    memory: Option<&Region>,
    buffer: &mut [u8],
    number: u64,
    (address, peer): (Address, &str),
) -> Result<Tag, Failure> {
    let &Message { source, handler, arguments, payload, .. } = message;
    let [first, second, third, fourth] = arguments.map(u64::from);
    let tag = Tag::decode([first | second << 32, third | fourth << 32]);
    let in_memory = |tag: &Tag| memory.filter(|_| payload.is_empty() && is_memory(tag.bytes as usize));
    let is_ours =
        |tag: &Tag| source == address && (tag.bytes as usize == payload.len() || in_memory(tag).is_some());
    let Some(tag) = tag.filter(is_ours) else {
        return Err(Failure::OutOfStep {
            peer: peer.into(),
            expected: "a message of niclab-perf".into(),
            found: format!("handler {handler}, {arguments:x?} and {} bytes from {source}", payload.len()),
        });
    };
    payload.read(0, buffer);
    if tag.kind == MessageKind::Data {
        let memory = in_memory(&tag);
        let read = |offset, out: &mut [u8]| {
            match memory {
                Some(region) => region.read(offset, out)?,
                None => drop(payload.read(offset, out)),
            }
            Ok(())
        };
        compare(read, tag.bytes as usize, number.is_multiple_of(WHOLE_EVERY), tag.number, peer)?;
    }
    Ok(tag)
}

/// Refuses payloads that are too long for this card and run.
///
/// # Errors
///
/// [`Failure::Usage`].
pub fn check_size(bytes: usize, is_coordinated: bool, device: &Device) -> Result<(), Failure> {
    let most = device.info().max_message_bytes.min(MAX_BULK_BYTES);
    // The greetings carry the name of each end's memory, and a coordinated run sends none.
    let is_carried = is_memory(bytes) && bytes <= MAX_MEMORY_BYTES && !is_coordinated;
    if bytes as u64 <= most || is_carried {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "--size {bytes}: a message of this card has a payload of up to {most} bytes: lower --size; for up to \
         {MAX_BULK_BYTES} bytes, raise `payload_bytes_per_channel` in the [nic] table of the cluster; longer \
         payloads, up to {MAX_MEMORY_BYTES} bytes, go as memory messages, which --coordinated excludes"
    )))
}

impl Channel for PushChannel {
    fn peer(&self) -> &str {
        &self.peer
    }

    #[inline]
    fn try_send(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<bool, Failure> {
        self.before(tag)?;
        if is_memory(payload.len()) {
            // This send waits only for the card, not for the peer.
            self.send(payload, tag, flags)?;
            return Ok(true);
        }
        if !self.is_met {
            forgive_absence(self.port.sender.check_refusals())?;
        }
        Ok(self.port.sender.try_send(self.message(payload.len(), tag, flags), payload)?)
    }

    #[inline]
    fn send(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<(), Failure> {
        self.before(tag)?;
        let payload = if is_memory(payload.len()) {
            self.send_memory(payload)?;
            &[]
        } else {
            payload
        };
        self.port.sender.send(self.message(payload.len(), tag, flags), payload, self.timeout)?;
        Ok(())
    }

    #[inline]
    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<Option<Tag>, Failure> {
        self.take(buffer)
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Tag, Failure> {
        loop {
            if let Some(tag) = self.take(buffer)? {
                return Ok(tag);
            }
            self.port.sender.ring_deferred();
            self.port.receiver.wait(self.timeout)?;
        }
    }

    fn batching(&mut self) -> Option<&mut dyn Batching> {
        Some(&mut self.port)
    }

    #[inline]
    fn doorbells(&self) -> u64 {
        self.port.sender.doorbells()
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.port.sender.flush(self.timeout)?)
    }
}

impl Interrupting for PushChannel {
    fn wait_interrupts(&mut self, timeout: Duration) -> Result<u64, Failure> {
        Ok(self.port.receiver.wait_interrupts(timeout)?)
    }
}

/// Several channels. Measured messages use them round robin, all others use the first. Both ends start again with the
/// first channel when a stream ends.
pub struct InTurn {
    channels: Vec<PushChannel>,
    sent: usize,
    received: usize,
}

impl InTurn {
    /// One channel or more.
    pub const fn new(channels: Vec<PushChannel>) -> Self {
        Self { channels, sent: 0, received: 0 }
    }

    /// The channel for the next message with this tag.
    #[inline]
    fn turn(&mut self, tag: Tag) -> &mut PushChannel {
        let place = if tag.kind == MessageKind::Data { self.sent } else { 0 };
        &mut self.channels[place]
    }

    #[inline]
    fn on_sent(&mut self, tag: Tag) {
        if tag.kind == MessageKind::Data {
            self.sent = (self.sent + 1) % self.channels.len();
        } else {
            self.received = 0;
        }
    }

    #[inline]
    fn on_received(&mut self, tag: Tag) {
        if tag.kind == MessageKind::Data {
            self.received = (self.received + 1) % self.channels.len();
        } else {
            self.sent = 0;
        }
    }
}

impl Channel for InTurn {
    fn peer(&self) -> &str {
        self.channels[0].peer()
    }

    #[inline]
    fn try_send(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<bool, Failure> {
        let is_sent = self.turn(tag).try_send(payload, tag, flags)?;
        if is_sent {
            self.on_sent(tag);
        }
        Ok(is_sent)
    }

    #[inline]
    fn send(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<(), Failure> {
        self.turn(tag).send(payload, tag, flags)?;
        self.on_sent(tag);
        Ok(())
    }

    #[inline]
    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<Option<Tag>, Failure> {
        let tag = self.channels[self.received].try_receive(buffer)?;
        tag.into_iter().for_each(|tag| self.on_received(tag));
        Ok(tag)
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Tag, Failure> {
        // A channel rings only for itself before it waits.
        self.ring_deferred();
        let tag = self.channels[self.received].receive(buffer)?;
        self.on_received(tag);
        Ok(tag)
    }

    fn begin_batch(&mut self) {
        self.channels.iter_mut().for_each(Channel::begin_batch);
    }

    fn end_batch(&mut self) {
        self.channels.iter_mut().for_each(Channel::end_batch);
    }

    fn ring_deferred(&mut self) {
        self.channels.iter_mut().for_each(Channel::ring_deferred);
    }

    fn doorbells(&self) -> u64 {
        self.channels.iter().map(Channel::doorbells).sum()
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.channels.iter_mut().try_for_each(Channel::flush)
    }
}
