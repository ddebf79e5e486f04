//! The transport of cards with channels: one logical channel to the same one of the peer. A message without payload is a short
//! one, all others are bulk messages; the tag is the four integers.

use std::time::Duration;

use niclab_user::channels::{
    Bulk, FIRST_HANDLER, MAX_BULK_BYTES, Message, Outgoing, Port, PortOptions, Refusal, Short,
};
use niclab_user::slices::Flags;
use niclab_user::{Address, Device, Error};

use crate::Failure;
use crate::channel::{Channel, Interrupting, Kind, Tag};
use crate::nic::NicOptions;
use crate::pattern::{WHOLE_EVERY, compare};

/// The handler of all messages.
const HANDLER: u32 = FIRST_HANDLER;

/// A channel to the same channel of one peer.
pub struct PushChannel {
    port: Port,
    peer_address: Address,
    peer: String,
    timeout: Duration,
    received: u64,
    /// Both ends know of each other.
    is_met: bool,
}

impl PushChannel {
    /// Opens the channel.
    ///
    /// # Errors
    ///
    /// [`Failure::Nic`].
    pub fn open(device: &Device, options: &NicOptions, peer: u32) -> Result<Self, Failure> {
        let mut port = Port::open(device, PortOptions::default().port(options.port).slices(options.slices))?;
        port.set_wait_policy(options.policy);
        let peer_address = Address { node: peer, port: options.port };
        Ok(Self {
            port,
            peer_address,
            peer: peer_address.to_string(),
            timeout: options.timeout,
            received: 0,
            is_met: false,
        })
    }

    /// What is about to be sent is more than a greeting: the peer is there. Greetings that found nobody were refused, which the card
    /// has said before it stored the first message of the peer.
    #[inline]
    fn before(&mut self, tag: Tag) -> Result<(), Failure> {
        if !self.is_met && !matches!(tag.kind, Kind::Hello | Kind::Welcome) {
            self.is_met = true;
            forgive_absence(self.port.sender.check_refusals())?;
        }
        Ok(())
    }

    fn message(&self, payload: &[u8], tag: Tag, flags: Flags) -> Outgoing {
        let [first, second] = tag.encode();
        let arguments = [first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32];
        let short = Short {
            interrupt: flags.contains(Flags::INTERRUPT),
            notify: flags.contains(Flags::NOTIFY),
            ..Short::new(self.peer_address, HANDLER).arguments(arguments)
        };
        match payload.len() as u64 {
            0 => Outgoing::Short(short),
            bytes => Outgoing::Bulk(Bulk { short, bytes }),
        }
    }
}

/// A greeting may find nobody.
fn forgive_absence(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(Error::Launch { refusal: Some(Refusal::Closed | Refusal::NoPayload), .. }) => Ok(()),
        other => other,
    }
}

/// A message has come, the `number`-th: its tag, and its front.
fn accept(
    message: &Message<'_>,
    buffer: &mut [u8],
    number: u64,
    (address, peer): (Address, &str),
) -> Result<Tag, Failure> {
    let &Message { source, handler, arguments, payload, .. } = message;
    let [first, second, third, fourth] = arguments.map(u64::from);
    let tag = Tag::decode([first | second << 32, third | fourth << 32]);
    let is_ours = |tag: &Tag| source == address && handler == HANDLER && tag.bytes as usize == payload.len();
    let Some(tag) = tag.filter(is_ours) else {
        return Err(Failure::OutOfStep {
            peer: peer.into(),
            expected: "a message of niclab-perf".into(),
            found: format!("handler {handler}, {arguments:x?} and {} bytes from {source}", payload.len()),
        });
    };
    payload.read(0, buffer);
    if tag.kind == Kind::Data {
        let read = |offset, out: &mut [u8]| {
            payload.read(offset, out);
            Ok(())
        };
        compare(read, payload.len(), number.is_multiple_of(WHOLE_EVERY), tag.number, peer)?;
    }
    Ok(tag)
}

/// Refuses payloads that a message cannot carry.
///
/// # Errors
///
/// [`Failure::Usage`].
pub fn check_size(device: &Device, bytes: usize) -> Result<(), Failure> {
    let most = device.info().max_message_bytes.min(MAX_BULK_BYTES);
    if bytes as u64 <= most {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "--size {bytes}: a message of this card has a payload of up to {most} bytes: lower --size, or, up to {MAX_BULK_BYTES}, \
         raise `payload_bytes_per_channel` in the [nic] table of the cluster"
    )))
}

impl Channel for PushChannel {
    fn peer(&self) -> &str {
        &self.peer
    }

    #[inline]
    fn try_send(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<bool, Failure> {
        self.before(tag)?;
        if !self.is_met {
            forgive_absence(self.port.sender.check_refusals())?;
        }
        Ok(self.port.sender.try_send(self.message(payload, tag, flags), payload)?)
    }

    #[inline]
    fn send(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<(), Failure> {
        self.before(tag)?;
        self.port.sender.send(self.message(payload, tag, flags), payload, self.timeout)?;
        Ok(())
    }

    #[inline]
    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<Option<Tag>, Failure> {
        let (number, peer) = (self.received + 1, (self.peer_address, self.peer.as_str()));
        let taken = self.port.receiver.try_receive(|message| accept(message, buffer, number, peer))?;
        self.received += u64::from(taken.is_some());
        taken.transpose()
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Tag, Failure> {
        let (number, peer) = (self.received + 1, (self.peer_address, self.peer.as_str()));
        let taken =
            self.port.receiver.receive(self.timeout, |message| accept(message, buffer, number, peer))?;
        self.received += 1;
        taken
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
