//! The transport of cards that messages are posted to. Each end posts receive buffers, and posts each again once its
//! message was taken. A sender need not know of them: if the protocol is reliable, the card holds back messages without
//! a buffer.

use std::collections::VecDeque;

use niclab_user::inic::{Event, EventKind, Outcome, Port, PortOptions, Receive, Region, Send, UNIT_BYTES};
use niclab_user::slices::Flags;
use niclab_user::{Batching, Device};

use crate::Failure;
use crate::channel::{Channel, MessageKind, Tag, pattern};
use crate::nic::NicOptions;
use crate::pattern::{WHOLE_EVERY, compare};

/// Bytes of the tag, which precedes the payload.
const TAG_BYTES: usize = 16;
/// The longest control payload: the farewell.
const MIN_BYTES: usize = 48;
/// Maximum number of send buffers, and of receive buffers.
const PLACES: usize = 64;
/// Maximum memory of each kind, if that allows at least four buffers.
const BYTES: usize = 16 << 20;

/// A port that communicates with one peer.
pub struct PostChannel {
    port: Port,
    node: u32,
    peer: String,
    options: NicOptions,
    place_bytes: usize,
    /// Bytes of a buffer that a message may use.
    room_bytes: usize,
    incoming: Region,
    outgoing: Region,
    /// Free send buffers; each holds the pattern, except where a greeting overwrote it.
    free: Vec<usize>,
    places: usize,
    /// Messages that have arrived, and other events that were read early.
    inbox: VecDeque<Event>,
    received: u64,
}

impl PostChannel {
    /// Opens the port and posts room for messages of up to `payload_bytes`.
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
        let mut port = Port::open(device, PortOptions::default().port(options.port).slices(options.slices))?;
        port.set_wait_policy(options.policy);
        let room_bytes = (TAG_BYTES + payload_bytes.max(MIN_BYTES)).next_multiple_of(UNIT_BYTES as usize);
        // Whole cache lines.
        let place_bytes = room_bytes.next_multiple_of(64);
        // The queue has a slot for each event of them, and spare ones.
        let places = (BYTES / place_bytes).clamp(4, PLACES).min(options.slices as usize / 4).max(1);
        let bytes: Vec<u8> = (0..place_bytes - TAG_BYTES).map(pattern).collect();
        let outgoing = port.allocate(places * place_bytes)?;
        for place in 0..places {
            outgoing.write(place * place_bytes + TAG_BYTES, &bytes)?;
        }
        let mut channel = Self {
            incoming: port.allocate(places * place_bytes)?,
            outgoing,
            port,
            node: peer,
            peer: format!("node {peer}"),
            options: options.clone(),
            place_bytes,
            room_bytes,
            free: (0..places).collect(),
            places,
            inbox: VecDeque::new(),
            received: 0,
        };
        (0..places).try_for_each(|place| channel.post(place))?;
        Ok(channel)
    }

    /// Posts a receive buffer.
    fn post(&mut self, place: usize) -> Result<(), Failure> {
        let region = self.incoming.clone();
        let begin = place * self.place_bytes;
        let receive = Receive::new(region.span(begin..begin + self.room_bytes)?).user(place as u64);
        self.port.launch_reading(&receive, &mut self.inbox, self.options.timeout)?;
        Ok(())
    }

    /// Sends the tag and the payload in a buffer.
    fn send_place(&mut self, place: usize, bytes: usize, tag: Tag) -> Result<(), Failure> {
        let region = self.outgoing.clone();
        let begin = place * self.place_bytes;
        let [first, second] = tag.encode();
        region.write(begin, &first.to_le_bytes())?;
        region.write(begin + 8, &second.to_le_bytes())?;
        // The length is rounded up; the tag has the exact length.
        let bytes = (TAG_BYTES + bytes).next_multiple_of(UNIT_BYTES as usize);
        let send = Send::new(self.node, region.span(begin..begin + bytes)?).user(place as u64).tell_sent();
        self.port.launch_reading(&send, &mut self.inbox, self.options.timeout)?;
        Ok(())
    }

    /// Processes an event, or keeps a message for later.
    fn sort(&mut self, event: Event) -> Result<(), Failure> {
        match event.kind {
            EventKind::Sent => self.free.push((event.user as usize).min(self.places - 1)),
            EventKind::Received if event.outcome == Outcome::Done => self.inbox.push_back(event),
            EventKind::Received => return Err(self.failed("receive", event.outcome)),
            EventKind::Refused | EventKind::Failed | EventKind::Done => {
                return Err(self.failed("send", event.outcome));
            }
        }
        Ok(())
    }

    #[cold]
    fn failed(&self, operation: &'static str, outcome: Outcome) -> Failure {
        Failure::Posted { peer: self.peer.clone(), operation, outcome }
    }

    /// A free send buffer, if there is one.
    fn place(&mut self) -> Result<Option<usize>, Failure> {
        if self.free.is_empty() {
            // Events that were read during a post may free a buffer.
            for event in core::mem::take(&mut self.inbox) {
                self.sort(event)?;
            }
            while let Some(event) = self.port.try_event() {
                self.sort(event)?;
            }
        }
        Ok(self.free.pop())
    }

    fn wait_for_place(&mut self) -> Result<usize, Failure> {
        loop {
            if let Some(place) = self.place()? {
                return Ok(place);
            }
            let event = self.port.event(self.options.timeout)?;
            self.sort(event)?;
        }
    }

    /// Writes a payload other than the pattern. [`Self::restore`] writes the pattern again before the next use.
    fn write(&mut self, place: usize, payload: &[u8]) -> Result<(), Failure> {
        Ok(self.outgoing.write(place * self.place_bytes + TAG_BYTES, payload)?)
    }

    fn restore(&mut self, place: usize, bytes: usize) -> Result<(), Failure> {
        // Only greetings and farewells overwrite a buffer, and they are short.
        let front: Vec<u8> = (0..bytes.min(64)).map(pattern).collect();
        self.write(place, &front)
    }

    /// Processes a received message: returns its tag and first bytes, and posts its buffer again.
    fn accept(&mut self, event: &Event, buffer: &mut [u8]) -> Result<Tag, Failure> {
        let place = event.user as usize;
        let begin = place.min(self.places - 1) * self.place_bytes;
        let mut words = [0; TAG_BYTES];
        self.incoming.read(begin, &mut words)?;
        let word = |at: usize| {
            words.get(at..).and_then(|word| word.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
        };
        let carried = (event.moved_bytes as usize).saturating_sub(TAG_BYTES);
        let tag = Tag::decode([word(0), word(8)]);
        let tag =
            tag.filter(|tag| event.node == self.node && place < self.places && tag.bytes as usize <= carried);
        let Some(tag) = tag else {
            return Err(Failure::OutOfStep {
                peer: self.peer.clone(),
                expected: "a message of niclab-perf".into(),
                found: format!("{} bytes of node {}", event.moved_bytes, event.node),
            });
        };
        let bytes = tag.bytes as usize;
        let front = bytes.min(buffer.len());
        self.incoming.read(begin + TAG_BYTES, &mut buffer[..front])?;
        self.received += 1;
        if tag.kind == MessageKind::Data {
            let read = |offset, out: &mut [u8]| Ok(self.incoming.read(begin + TAG_BYTES + offset, out)?);
            compare(read, bytes, self.received.is_multiple_of(WHOLE_EVERY), tag.number, &self.peer)?;
        }
        self.post(place)?;
        Ok(tag)
    }

    fn next_message(&mut self) -> Result<Option<Event>, Failure> {
        while let Some(event) = self.inbox.pop_front().or_else(|| self.port.try_event()) {
            if event.kind == EventKind::Received && event.outcome == Outcome::Done {
                return Ok(Some(event));
            }
            self.sort(event)?;
        }
        Ok(None)
    }
}

/// Refuses payloads that a message cannot carry.
///
/// # Errors
///
/// [`Failure::Usage`].
pub fn check_size(device: &Device, bytes: usize) -> Result<(), Failure> {
    let most = usize::try_from(device.info().max_message_bytes).unwrap_or(usize::MAX);
    let needed = (TAG_BYTES + bytes.max(MIN_BYTES)).next_multiple_of(UNIT_BYTES as usize);
    if needed <= most {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "--size {bytes}: with its tag the message has {needed} bytes, but this card's limit is {most}: raise \
         `max_message_bytes` in the [nic] table of the cluster to {needed} or more, or lower --size"
    )))
}

impl Channel for PostChannel {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn try_send(&mut self, payload: &[u8], tag: Tag, _: Flags) -> Result<bool, Failure> {
        let Some(place) = self.place()? else { return Ok(false) };
        self.write(place, payload)?;
        self.send_place(place, payload.len(), tag)?;
        Ok(true)
    }

    fn send(&mut self, payload: &[u8], tag: Tag, _: Flags) -> Result<(), Failure> {
        let place = self.wait_for_place()?;
        self.write(place, payload)?;
        self.send_place(place, payload.len(), tag)
    }

    #[inline]
    fn try_send_pattern(&mut self, payload: &[u8], tag: Tag, _: Flags) -> Result<bool, Failure> {
        let Some(place) = self.place()? else { return Ok(false) };
        self.restore(place, payload.len())?;
        self.send_place(place, payload.len(), tag)?;
        Ok(true)
    }

    #[inline]
    fn send_pattern(&mut self, payload: &[u8], tag: Tag, _: Flags) -> Result<(), Failure> {
        let place = self.wait_for_place()?;
        self.restore(place, payload.len())?;
        self.send_place(place, payload.len(), tag)
    }

    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<Option<Tag>, Failure> {
        let Some(event) = self.next_message()? else { return Ok(None) };
        self.accept(&event, buffer).map(Some)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Tag, Failure> {
        loop {
            if let Some(event) = self.next_message()? {
                return self.accept(&event, buffer);
            }
            let event = self.port.event(self.options.timeout)?;
            self.inbox.push_back(event);
        }
    }

    fn batching(&mut self) -> Option<&mut dyn Batching> {
        Some(&mut self.port)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        for event in core::mem::take(&mut self.inbox) {
            self.sort(event)?;
        }
        while self.free.len() < self.places {
            let event = self.port.event(self.options.timeout)?;
            self.sort(event)?;
        }
        Ok(())
    }
}
