//! Messages over a port that is a logical channel: the program pushes them into the card, and a handler receives them
//! at the other end. A message without payload is a short message. All others are bulk messages or, if programs expose
//! memory, a memory message followed by a short message.
//!
//! Only room limits a sender: in the outbound queue, which the program sees, and at the receiver, which the cards
//! handle. The four integers are the tag of the mark.
//!
//! If programs expose memory, the handler number of a message names the sender's exposed region. A program that does
//! not know its partner's region yet sends bulk messages. It overwrites the memory once the reader has answered, so
//! this is for ping-pong pairs.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use alloc::{format, vec};

use niclab_abi::ToBytes;
use niclab_abi::grim::{CHANNEL_PING, CHANNEL_PONG, OP_CHANNEL_EXPOSE, OP_CHANNEL_PAYLOAD};
use niclab_port::grim::{
    self, Bulk, FIRST_HANDLER, Incoming, Outgoing, Payload, PayloadRoom, Pushing, Segments, Short,
};
use niclab_port::slices::Slice;
use niclab_port::{Queue, Reports, Requester};

use crate::{End, FlowId, Listener, Mark, Memory, PortPlan, Read, Transport, Wrong};

/// The handler of all messages if no memory is exposed.
const HANDLER: u32 = FIRST_HANDLER;
/// The number of messages of maximum length that a port has room for.
const ROOM_MESSAGES: u64 = 16;
/// Payload begins on whole cache lines.
const ALIGNMENT: u64 = 64;

/// The settings that every port of a run is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelTerms {
    max_bytes: u64,
    /// Size of the payload region for incoming messages, in messages of maximum length.
    places: u64,
    /// Size of the payload region of the outbound queue.
    outbound_bytes: u64,
    first_segment_bytes: u64,
    /// Messages go to peripherals, which send them back.
    echoes: bool,
    /// Payload goes into memory that its receiver exposes.
    exposes: bool,
}

impl ChannelTerms {
    /// Terms for a receive queue of `slices` and messages of at most `max_bytes`. The outbound queue holds
    /// `outbound_bytes` of payload, of which a message pushes `first_segment_bytes` first. With `echoes`, messages go
    /// to peripherals, which send them back. With `exposes`, payload goes into memory that its receiver exposes.
    #[must_use]
    pub fn new(
        slices: u32,
        max_bytes: u64,
        outbound_bytes: u64,
        first_segment_bytes: u64,
        echoes: bool,
        exposes: bool,
    ) -> Self {
        let places = u64::from(slices).clamp(1, ROOM_MESSAGES);
        Self { max_bytes, places, outbound_bytes, first_segment_bytes, echoes, exposes }
    }

    /// The handler that messages are sent to, and the handler that incoming messages name.
    const fn handlers(&self) -> (u32, u32) {
        if self.echoes { (CHANNEL_PING, CHANNEL_PONG) } else { (HANDLER, HANDLER) }
    }

    /// Size of the payload region for incoming messages. The exposed memory follows it: one message of maximum length.
    const fn room_bytes(&self) -> u64 {
        self.places * self.max_bytes.next_multiple_of(ALIGNMENT)
    }
}

/// A port.
#[derive(Debug)]
pub struct ChannelTransport {
    end: End,
    terms: ChannelTerms,
    /// The region's number at the card.
    region: u32,
    /// The target of each flow.
    targets: BTreeMap<FlowId, End>,
    receives: bool,
    room: PayloadRoom,
    /// The message that is being pushed.
    pushing: Option<(Mark, Pushing)>,
    /// The short message that reports where the payload is, posted after the payload.
    notification: Option<Pushing>,
    /// Memory that others have exposed.
    exposed: BTreeMap<End, u32>,
}

impl ChannelTransport {
    /// Over a port of `node`.
    #[must_use]
    pub fn new(node: u16, plan: &PortPlan, terms: ChannelTerms) -> Self {
        Self {
            end: End { node, port: plan.number as u16 },
            terms,
            region: 0,
            targets: plan.sends.iter().copied().collect(),
            receives: !plan.partners.is_empty(),
            room: PayloadRoom::new(terms.outbound_bytes),
            pushing: None,
            notification: None,
            exposed: BTreeMap::new(),
        }
    }

    /// The handler that a message is sent to. If memory is exposed, its number names the region.
    const fn handler(&self) -> u32 {
        if self.terms.exposes { HANDLER + self.region } else { self.terms.handlers().0 }
    }

    /// The sender of a message. If a peripheral sends a message back, this is the port itself.
    fn sender_of(&self, mark: &Mark, source: End) -> End {
        let is_back = self.terms.echoes && self.targets.get(&mark.flow) == Some(&source);
        if is_back { self.end } else { source }
    }

    /// The offset in the region of the payload of a message, or what is wrong with the message.
    fn check(&mut self, incoming: &Incoming, mark: &Mark) -> Result<(u64, u32), &'static str> {
        let Incoming { source, handler, payload, .. } = *incoming;
        if self.terms.exposes && handler >= HANDLER {
            self.exposed.insert(source.into(), handler - HANDLER);
        } else if handler != self.terms.handlers().1 {
            return Err("names another handler");
        }
        let (offset, bytes) = match payload {
            Some(Payload { offset, bytes }) => (u64::from(offset), bytes),
            None if self.terms.exposes => (self.terms.room_bytes(), mark.bytes),
            None => (0, 0),
        };
        if bytes != mark.bytes || offset + u64::from(bytes) > self.region_bytes() {
            return Err("has a payload of another length or at another place");
        }
        Ok((offset, bytes))
    }
}

impl Transport for ChannelTransport {
    type Records = Slice;

    const HAS_WHOLE_RECORDS: bool = false;
    const STANDS_ALONE: bool = true;
    const OWES_LAUNCHES: bool = true;

    /// Each slice returns its payload room, and there may be less room than slices.
    fn release_interval(&self, slices: u32) -> u64 {
        let slices = u64::from(slices / 4);
        let slices = if self.terms.max_bytes == 0 { slices } else { slices.min(self.terms.places / 4) };
        slices.max(1)
    }

    fn credits(&self, _: u32) -> Option<u32> {
        None
    }

    fn mark_of(words: &[u64]) -> Option<Mark> {
        let [.., first, second, _] = words else { return None };
        Some(Mark::from_tag([*first, *second]))
    }

    fn region_bytes(&self) -> u64 {
        let exposed = if self.terms.exposes { self.terms.max_bytes } else { 0 };
        if self.receives { self.terms.room_bytes() + exposed } else { 0 }
    }

    /// The card may store anywhere in the region. The contents of messages show if it stores to a place too early.
    fn is_posted(&self, offset: u64, bytes: u64) -> bool {
        offset + bytes <= self.region_bytes()
    }

    fn begin(&mut self, region: u32) {
        self.region = region;
    }

    fn requests(&self) -> Vec<(u32, Vec<u8>)> {
        fn request<T: ToBytes>(operation: u32, request: &T) -> (u32, Vec<u8>) {
            let mut body = vec![0; T::BYTES];
            request.to_bytes(&mut body);
            (operation, body)
        }
        if self.region_bytes() == 0 {
            return Vec::new();
        }
        let (port, region) = (self.end.port.into(), self.region);
        let payload = grim::payload_request(port, region, 0, self.terms.room_bytes());
        let expose = grim::expose_request(port, region, true);
        let exposed = self.terms.exposes.then(|| request(OP_CHANNEL_EXPOSE, &expose));
        [request(OP_CHANNEL_PAYLOAD, &payload)].into_iter().chain(exposed).collect()
    }

    fn has_launches(&self) -> bool {
        self.pushing.is_some()
    }

    fn is_blocked(&self, page: &impl Reports) -> bool {
        self.pushing.is_some() || !self.room.has_room(self.terms.max_bytes, page)
    }

    fn waits_for_news(&self, requester: &Requester) -> bool {
        requester.is_full() || !self.room.is_empty()
    }

    fn send(&mut self, mark: &Mark, interrupts: bool, memory: &mut impl Memory) {
        let Some(target) = self.targets.get(&mark.flow).copied() else { return };
        let Some(offset) = self.room.take(mark.bytes.into(), memory) else { return };
        let [first, second] = mark.tag();
        let arguments = [first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32];
        let short =
            Short { interrupt: interrupts, ..Short::new(target.into(), self.handler()).arguments(arguments) };
        let segments = Segments::from(self.terms.first_segment_bytes);
        let bytes = mark.bytes.into();
        let region = self.exposed.get(&target).copied().filter(|_| bytes > 0);
        let message = match region {
            Some(region) => {
                let place = self.terms.room_bytes();
                Outgoing::Memory(grim::RegionWrite { target: target.into(), region, place, bytes })
            }
            None if bytes == 0 => Outgoing::Short(short),
            None => Outgoing::Bulk(Bulk { short, bytes }),
        };
        self.pushing = Pushing::new(message, segments).ok().map(|pushing| (*mark, pushing.at(offset)));
        if region.is_some() && self.room.take(0, memory).is_some() {
            self.notification = Pushing::new(Outgoing::Short(short), segments).ok();
        }
    }

    fn launch(&mut self, requester: &mut Requester, memory: &mut impl Memory, received: u64) -> bool {
        let Some((mark, mut pushing)) = self.pushing.take() else { return false };
        let (place, bytes) = pushing.next();
        let words = (bytes.start / 8) as usize..bytes.end.div_ceil(8) as usize;
        memory.push(place, mark.payload().take(words.end).skip(words.start));
        pushing.launch(requester, memory, received);
        self.pushing = if pushing.is_done() {
            self.notification.take().map(|notification| (mark, notification))
        } else {
            Some((mark, pushing))
        };
        true
    }

    fn read(
        &mut self,
        queue: &mut Queue<Slice>,
        memory: &mut impl Memory,
        listener: &mut impl Listener,
    ) -> Option<Read> {
        let incoming = grim::front(queue, memory)?;
        let [first, second, third, fourth] = incoming.arguments.map(u64::from);
        let mark = Mark::from_tag([first | second << 32, third | fourth << 32]);
        match self.check(&incoming, &mark) {
            Ok((offset, bytes)) => {
                let words = memory.words(offset, bytes.into());
                let from = self.sender_of(&mark, incoming.source.into());
                listener.on_message(self.end, from, &mark, words);
            }
            Err(what) => {
                let end = self.end;
                listener.on_wrong(Wrong::Contents, || format!("{end:?}: {incoming:?} {what}"));
            }
        }
        let _ = queue.advance(memory);
        Some(Read::Message)
    }
}
