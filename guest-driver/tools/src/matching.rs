//! The transport of cards with lists: messages with posted receives, matched by the NIC or, for comparison, by the
//! program.
//!
//! Both ends post a number of receives ([`Window`]), each with memory of its own, and post each again once its message
//! was taken. Every message reports how many receives its sender has posted again; without a message, an empty one
//! does. So a sender always finds a receive. Greetings have receives of their own, because a program that had the
//! peer's port before may receive one instead of the peer.
//!
//! With a depth, that number of receives that match no message precedes the others. When the NIC matches, its match
//! unit searches past them for each message. When the host matches, every message goes to an entry that accepts any
//! message. The program then searches a list of its own ([`crate::software`]) and copies the message to its place.

use std::collections::VecDeque;
use std::time::Duration;

use clap::ValueEnum;
use niclab_user::matching::{
    Append, Command, Event, EventKind, Outcome, Port, PortOptions, Put, Region, Target,
};
use niclab_user::slices::Flags;
use niclab_user::{Address, Batching, Device};
use serde::Serialize;

use crate::Failure;
use crate::channel::{Channel, Interrupting, MessageKind, Tag, pattern};
use crate::nic::NicOptions;
use crate::pattern::{WHOLE_EVERY, compare};
use crate::software::{Header, Item, List};

/// Portal of messages.
const MESSAGES: u32 = 0;
/// Portal of empty messages, which carry the number of receives posted again.
const CREDITS: u32 = 1;
/// User value of the entry for those messages.
const OF_CREDITS: u64 = u64::MAX;
/// Portal of greetings, which may arrive before the peer opens its port, or at the program that had the port before.
const GREETINGS: u32 = 2;
/// Receives for greetings, after those of messages. A greeting that finds none is lost, and repeated.
const GREETING_RECEIVES: usize = 4;
/// User value of answers to greetings.
const OF_ANSWER: u64 = 1;

/// Lower half of the match bits: the number of receives posted again. The rest is the tag's first word.
const POSTED: u64 = 0xffff_ffff;
/// Match bits of a tag that differ between messages; a receive accepts any value.
const ANY_TAG: u64 = 0xffff_ffff_ffff;
/// Match bits that no message has.
const NEVER: u64 = 0xdead << 48;

/// Largest payload.
pub const MAX_PAYLOAD_BYTES: usize = 64 << 20;
/// Largest payload other than the pattern: greetings and farewells.
const SMALL_BYTES: usize = 64;
/// Where messages are matched, and the number of receives to search past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Matching {
    /// Number of receives before those that match.
    pub depth: u32,
    /// Where messages are matched.
    pub on: Matcher,
}

/// Where to search for the receive of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Matcher {
    /// The NIC's match unit, in the lists of the card
    #[default]
    Card,
    /// The program, in a list of its own; the card has one entry for each message, which accepts any message
    Host,
}

/// The number of posted receives, and the size of their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    receives: usize,
    slot_bytes: usize,
}

impl Window {
    /// Maximum number of receives.
    const RECEIVES: usize = 64;
    /// Maximum memory of all receives, if that allows at least four.
    const BYTES: usize = 16 << 20;

    fn new(payload_bytes: usize, events: u32) -> Self {
        let slot_bytes = payload_bytes.max(SMALL_BYTES).next_multiple_of(64);
        let receives = (Self::BYTES / slot_bytes).clamp(4, Self::RECEIVES).min(events as usize / 2);
        Self { receives, slot_bytes }
    }

    fn begin(&self, slot: usize) -> usize {
        slot * self.slot_bytes
    }

    /// Number of slots: those of messages, then those of greetings.
    fn slots(&self) -> usize {
        self.receives + GREETING_RECEIVES
    }

    fn is_greeting(&self, slot: usize) -> bool {
        slot >= self.receives
    }

    /// Offset of greetings to the peer in the region of small messages, after one slot for each message.
    fn greeting(&self) -> usize {
        self.receives * SMALL_BYTES
    }

    /// Offset in that region of a greeting received in `slot`.
    fn greeting_in(&self, slot: usize) -> usize {
        (slot + 1) * SMALL_BYTES
    }

    fn small_bytes(&self) -> usize {
        (self.slots() + 1) * SMALL_BYTES
    }
}

/// A port connected to the same port of one peer.
pub struct ListChannel {
    port: Port,
    peer_address: Address,
    peer: String,
    timeout: Duration,
    window: Window,
    matching: Matching,
    /// Memory of the receives.
    incoming: Region,
    /// The pattern, ready to be sent.
    pattern: Region,
    /// Small messages: answers and farewells, then greetings.
    small: Region,
    /// Messages that arrived while the program waited for something else.
    inbox: VecDeque<Event>,
    /// Events that were read while a command waited for a slot.
    read: VecDeque<Event>,
    /// Receives whose message was taken.
    free: Vec<usize>,
    /// The host's list, and where it puts messages.
    list: List,
    copied: Vec<u8>,
    counts: Counts,
}

/// Counts of messages and receives; each number only grows.
#[derive(Debug, Default)]
struct Counts {
    /// Messages sent.
    sent: u64,
    /// Receives that the peer has posted again for them.
    posted_by_peer: u64,
    /// Receives that were posted again.
    posted: u64,
    /// The number that was last reported to the peer.
    reported: u64,
    /// Messages sent with notification.
    notified: u64,
    /// Of these, those that have left.
    left: u64,
    /// Messages received.
    received: u64,
}

impl ListChannel {
    /// Opens the port and posts receives for messages of up to `payload_bytes` from node `peer`.
    ///
    /// # Errors
    ///
    /// [`Failure::Nic`], [`Failure::Matching`].
    pub fn open(
        device: &Device,
        options: &NicOptions,
        peer: u32,
        payload_bytes: usize,
        matching: Matching,
    ) -> Result<Self, Failure> {
        let port = Port::open(device, PortOptions::default().port(options.port).slices(options.slices))?;
        Self::new(port, options, peer, payload_bytes, matching)
    }

    /// As [`ListChannel::open`], with an open port.
    ///
    /// # Errors
    ///
    /// As [`ListChannel::open`].
    pub fn new(
        mut port: Port,
        options: &NicOptions,
        peer: u32,
        payload_bytes: usize,
        matching: Matching,
    ) -> Result<Self, Failure> {
        port.set_wait_policy(options.policy);
        let window = Window::new(payload_bytes, options.slices);
        let peer_address = Address { node: peer, port: options.port };
        let bytes: Vec<u8> = (0..payload_bytes).map(pattern).collect();
        let pattern = port.allocate(payload_bytes.max(1))?;
        pattern.write(0, &bytes)?;
        let mut channel = Self {
            incoming: port.allocate(window.receives * window.slot_bytes)?,
            small: port.allocate(window.small_bytes())?,
            pattern,
            port,
            peer_address,
            peer: peer_address.to_string(),
            timeout: options.timeout,
            window,
            matching,
            inbox: VecDeque::new(),
            read: VecDeque::new(),
            free: Vec::with_capacity(window.receives),
            list: List::default(),
            copied: vec![0; window.slot_bytes],
            counts: Counts::default(),
        };
        channel.post_all()?;
        Ok(channel)
    }

    fn post_all(&mut self) -> Result<(), Failure> {
        let region = self.small.clone();
        for number in 0..self.matching.depth {
            if self.matching.on == Matcher::Host {
                self.list.append(Item::new(NEVER | u64::from(number), 0, 0, number));
            } else {
                let entry =
                    Append::put(MESSAGES, region.span(0..0)?).match_bits(NEVER | u64::from(number), 0);
                self.launch(&entry)?;
            }
        }
        for slot in 0..self.window.receives {
            self.post(slot)?;
        }
        let credits = Append::put(CREDITS, region.span(0..0)?).persistent().user(OF_CREDITS);
        self.launch(&credits)?;
        // Posted last: an end that was greeted must be ready to receive messages.
        (self.window.receives..self.window.slots()).try_for_each(|slot| self.post_greeting(slot))
    }

    /// Posts the receive of a greeting. The card matches greetings, also if the host matches messages.
    fn post_greeting(&mut self, slot: usize) -> Result<(), Failure> {
        let region = self.small.clone();
        let begin = self.window.greeting_in(slot);
        let Address { node, port } = self.peer_address;
        let entry = Append::put(GREETINGS, region.span(begin..begin + SMALL_BYTES)?)
            .no_unlink_event()
            .user(slot as u64)
            .match_bits(Tag::COMPARED, ANY_TAG)
            .source_node(node)
            .source_port(port);
        self.launch(&entry)
    }

    /// Posts the receive of `slot`: in the card, or in the host's list together with an entry in the card for any
    /// message.
    fn post(&mut self, slot: usize) -> Result<(), Failure> {
        let region = self.incoming.clone();
        let begin = self.window.begin(slot);
        let entry = Append::put(MESSAGES, region.span(begin..begin + self.window.slot_bytes)?)
            .no_unlink_event()
            .user(slot as u64);
        let Address { node, port } = self.peer_address;
        let bits = Tag::COMPARED;
        if self.matching.on == Matcher::Host {
            let bytes = self.window.slot_bytes as u64;
            self.list.append(Item::new(bits, ANY_TAG, bytes, 0).only_from(node, port));
            self.launch(&entry.match_bits(0, u64::MAX))
        } else {
            self.launch(&entry.match_bits(bits, ANY_TAG).source_node(node).source_port(port))
        }
    }

    /// Posts receives again whose messages were taken. If half of the receives are posted again and unreported,
    /// notifies the peer with an empty message.
    fn post_again(&mut self) -> Result<(), Failure> {
        // One doorbell for all of them.
        self.port.begin_batch();
        let posted = self.post_free();
        self.port.end_batch();
        posted?;
        if self.counts.posted - self.counts.reported < self.window.receives as u64 / 2 {
            return Ok(());
        }
        self.counts.reported = self.counts.posted;
        let (region, target) = (self.small.clone(), self.target(CREDITS));
        self.launch(&Put::new(target, region.span(0..0)?).header_data(self.counts.posted & POSTED))
    }

    fn post_free(&mut self) -> Result<(), Failure> {
        while let Some(slot) = self.free.pop() {
            self.post(slot)?;
            self.counts.posted += 1;
        }
        Ok(())
    }

    fn target(&self, portal: u32) -> Target {
        Target { port: self.peer_address, portal }
    }

    fn launch(&mut self, command: &impl Command) -> Result<(), Failure> {
        self.port.launch_reading(command, &mut self.read, self.timeout)?;
        // Process these events now: a caller that waits for room waits for new events, and would miss these.
        while let Some(event) = self.read.pop_front() {
            self.sort(event)?;
        }
        Ok(())
    }

    /// Sends `bytes` bytes of a region from `begin` on.
    fn put(
        &mut self,
        region: &Region,
        begin: usize,
        bytes: usize,
        tag: Tag,
        flags: Flags,
    ) -> Result<(), Failure> {
        let [first, number] = tag.encode();
        let posted = self.counts.posted;
        let mut put = Put::new(self.target(MESSAGES), region.span(begin..begin + bytes)?)
            .match_bits(first & !POSTED | posted & POSTED)
            .header_data(number);
        if flags.contains(Flags::INTERRUPT) {
            put = put.interrupt();
        }
        if flags.contains(Flags::NOTIFY) {
            put = put.sent();
        }
        // The program that is answered may be gone. Its card reports that, and the answer has then used up no receive.
        let is_answer = tag.kind == MessageKind::Welcome;
        if is_answer {
            put = put.user(OF_ANSWER);
        }
        if is_answer || flags.contains(Flags::ACKNOWLEDGE) {
            put = put.ack();
        }
        self.launch(&put)?;
        self.counts.sent += 1;
        self.counts.reported = posted;
        self.counts.notified += u64::from(flags.contains(Flags::NOTIFY));
        // Post while the message is in flight.
        self.post_batch()
    }

    /// Posts receives again once a quarter of them is free, so that few round trips include a post.
    fn post_batch(&mut self) -> Result<(), Failure> {
        if self.free.len() * 4 < self.window.receives { Ok(()) } else { self.post_again() }
    }

    fn put_small(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<(), Failure> {
        let payload = payload.get(..SMALL_BYTES).unwrap_or(payload);
        // A slot is reused only when the peer has taken its message, because there are as many slots as receives.
        let begin = (self.counts.sent % self.window.receives as u64) as usize * SMALL_BYTES;
        let region = self.small.clone();
        region.write(begin, payload)?;
        self.put(&region, begin, payload.len(), tag, flags)
    }

    /// Sends a greeting, which uses up no receive of messages: another program than the expected peer may have the
    /// peer's port now.
    fn greet(&mut self, payload: &[u8], tag: Tag) -> Result<(), Failure> {
        let payload = payload.get(..SMALL_BYTES).unwrap_or(payload);
        let region = self.small.clone();
        // Greetings share one slot, because each is the same.
        let begin = self.window.greeting();
        region.write(begin, payload)?;
        let [first, number] = tag.encode();
        let put = Put::new(self.target(GREETINGS), region.span(begin..begin + payload.len())?);
        self.launch(&put.match_bits(first & !POSTED).header_data(number))
    }

    fn put_pattern(&mut self, bytes: usize, tag: Tag, flags: Flags) -> Result<(), Failure> {
        let region = self.pattern.clone();
        self.put(&region, 0, bytes, tag, flags)
    }

    /// Whether the peer has a receive for another message.
    fn has_room(&mut self) -> Result<bool, Failure> {
        let in_flight = |counts: &Counts| counts.sent - counts.posted_by_peer;
        if in_flight(&self.counts) < self.window.receives as u64 {
            return Ok(true);
        }
        while let Some(event) = self.port.try_event() {
            self.sort(event)?;
        }
        Ok(in_flight(&self.counts) < self.window.receives as u64)
    }

    fn wait_for_room(&mut self) -> Result<(), Failure> {
        while !self.has_room()? {
            let event = self.port.event(self.timeout)?;
            self.sort(event)?;
        }
        Ok(())
    }

    /// Keeps a message for later, and answers any other event.
    fn sort(&mut self, event: Event) -> Result<(), Failure> {
        if event.kind == EventKind::Put && event.user != OF_CREDITS {
            if !self.window.is_greeting(event.user as usize) {
                self.learn(event.match_bits);
            }
            self.inbox.push_back(event);
            return Ok(());
        }
        self.on_event(&event)
    }

    /// Anything but a message.
    fn on_event(&mut self, event: &Event) -> Result<(), Failure> {
        match (event.kind, event.outcome) {
            (EventKind::Put, _) => self.learn(event.header_data),
            (EventKind::Sent, Outcome::Done) => self.counts.left += 1,
            (EventKind::Acknowledged, outcome) if !outcome.is_done() && event.user == OF_ANSWER => {
                self.counts.sent -= 1;
            }
            (EventKind::Sent | EventKind::Acknowledged | EventKind::Refused, outcome)
                if !outcome.is_done() =>
            {
                let operation = if event.kind == EventKind::Refused { "post a receive" } else { "send" };
                return Err(Failure::Matching { peer: self.peer.clone(), operation, outcome });
            }
            _ => {}
        }
        Ok(())
    }

    /// Updates the number of receives that the peer has posted again; `posted` has its lower 32 bits.
    fn learn(&mut self, posted: u64) {
        let more = (posted as u32).wrapping_sub(self.counts.posted_by_peer as u32);
        // Attack: a peer may claim more than were sent. (An honest number may also be old, from an overtaken message.)
        if u64::from(more) <= self.counts.sent - self.counts.posted_by_peer {
            self.counts.posted_by_peer += u64::from(more);
        }
    }

    fn next_message(&mut self) -> Result<Option<Event>, Failure> {
        while let Some(event) = self.inbox.pop_front().or_else(|| self.port.try_event()) {
            if event.kind == EventKind::Put && event.user != OF_CREDITS {
                return Ok(Some(event));
            }
            self.on_event(&event)?;
        }
        Ok(None)
    }

    /// Processes a received message: checks it, matches it if the host matches, and copies its first bytes to `buffer`.
    fn accept(&mut self, event: &Event, buffer: &mut [u8]) -> Result<Tag, Failure> {
        let bytes = usize::try_from(event.moved_bytes).unwrap_or(usize::MAX);
        let words = [event.match_bits & !POSTED | bytes as u64 & POSTED, event.header_data];
        let slot = event.user as usize;
        let tag = Tag::decode(words).filter(|tag| {
            event.initiator == self.peer_address
                && slot < self.window.slots()
                && bytes <= self.window.slot_bytes
                && self.window.is_greeting(slot) == (tag.kind == MessageKind::Hello)
        });
        let Some(tag) = tag else { return Err(self.foreign(event)) };
        if self.window.is_greeting(slot) {
            let front = bytes.min(SMALL_BYTES).min(buffer.len());
            self.small.read(self.window.greeting_in(slot), &mut buffer[..front])?;
            self.post_greeting(slot)?;
            return Ok(tag);
        }
        self.learn(event.match_bits);
        let begin = self.window.begin(slot);
        if self.matching.on == Matcher::Host {
            let Address { node, port } = event.initiator;
            let header = Header { match_bits: event.match_bits, node, port, bytes: bytes as u64 };
            self.list.take(&header).ok_or_else(|| self.foreign(event))?;
            if let Some(copied) = self.copied.get_mut(..bytes) {
                self.incoming.read(begin, copied)?;
            }
        }
        let front = bytes.min(buffer.len());
        self.incoming.read(begin, &mut buffer[..front])?;
        self.counts.received += 1;
        if tag.kind == MessageKind::Data {
            let is_whole = self.counts.received.is_multiple_of(WHOLE_EVERY);
            let read = |offset, out: &mut [u8]| Ok(self.incoming.read(begin + offset, out)?);
            compare(read, bytes, is_whole, tag.number, &self.peer)?;
        }
        self.free.push(slot);
        self.post_batch()?;
        Ok(tag)
    }

    #[cold]
    fn foreign(&self, event: &Event) -> Failure {
        Failure::OutOfStep {
            peer: self.peer.clone(),
            expected: "a message of niclab-perf".into(),
            found: format!("match bits {:#x} from {}", event.match_bits, event.initiator),
        }
    }
}

/// Refuses payloads that a message cannot carry.
///
/// # Errors
///
/// [`Failure::Usage`].
pub fn check_size(device: &Device, bytes: usize) -> Result<(), Failure> {
    check_payload(bytes, usize::try_from(device.info().max_message_bytes).unwrap_or(usize::MAX))
}

/// Refuses a payload that is longer than a message of the card, or than this program allows.
fn check_payload(bytes: usize, max_message_bytes: usize) -> Result<(), Failure> {
    if bytes > max_message_bytes {
        return Err(Failure::Usage(format!(
            "--size {bytes}: messages of this card have up to {max_message_bytes} bytes: raise \
             `max_message_bytes` in the [nic] table of the cluster, or lower --size"
        )));
    }
    if bytes > MAX_PAYLOAD_BYTES {
        return Err(Failure::Usage(format!(
            "--size {bytes}: niclab-perf sends up to {MAX_PAYLOAD_BYTES} bytes in a message: lower --size"
        )));
    }
    Ok(())
}

impl Channel for ListChannel {
    fn peer(&self) -> &str {
        &self.peer
    }

    fn try_send(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<bool, Failure> {
        if tag.kind == MessageKind::Hello {
            self.greet(payload, tag)?;
            return Ok(true);
        }
        let has_room = self.has_room()?;
        if has_room {
            self.put_small(payload, tag, flags)?;
        }
        Ok(has_room)
    }

    fn send(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<(), Failure> {
        if tag.kind == MessageKind::Hello {
            return self.greet(payload, tag);
        }
        self.wait_for_room()?;
        self.put_small(payload, tag, flags)
    }

    #[inline]
    fn try_send_pattern(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<bool, Failure> {
        let has_room = self.has_room()?;
        if has_room {
            self.put_pattern(payload.len(), tag, flags)?;
        }
        Ok(has_room)
    }

    #[inline]
    fn send_pattern(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<(), Failure> {
        self.wait_for_room()?;
        self.put_pattern(payload.len(), tag, flags)
    }

    #[inline]
    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<Option<Tag>, Failure> {
        self.next_message()?.map(|event| self.accept(&event, buffer)).transpose()
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Tag, Failure> {
        loop {
            if let Some(event) = self.next_message()? {
                return self.accept(&event, buffer);
            }
            let event = self.port.event(self.timeout)?;
            self.inbox.push_back(event);
        }
    }

    fn batching(&mut self) -> Option<&mut dyn Batching> {
        Some(&mut self.port)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        while self.counts.left < self.counts.notified {
            let event = self.port.event(self.timeout)?;
            self.sort(event)?;
        }
        Ok(())
    }
}

impl Interrupting for ListChannel {
    fn wait_interrupts(&mut self, timeout: Duration) -> Result<u64, Failure> {
        Ok(self.port.events().wait_interrupts(timeout)?)
    }
}
