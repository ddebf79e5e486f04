//! Messages over a port that is a logical channel: pushed into the card, and handed to a handler at the other end. A
//! message without payload is a short one; all others are bulk messages, or, where programs expose memory, a memory
//! message with a short one behind it.
//!
//! Nobody is held back but by room: in the outbound queue, which the program sees, and at the receiver, which is the
//! cards' concern. The four integers are the tag of the mark. Where programs expose memory, the number of the handler
//! says which: who has not heard of the other's sends bulk messages until then. Memory is written again once its reader
//! has answered, so that this is for pairs that take turns.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use alloc::{format, vec};

use niclab_abi::ToBytes;
use niclab_abi::channels::{CHANNEL_PING, CHANNEL_PONG, OP_CHANNEL_EXPOSE, OP_CHANNEL_PAYLOAD};
use niclab_port::channels::{
    self, Bulk, FIRST_HANDLER, Incoming, Outgoing, Payload, PayloadRoom, Pushing, Segments, Short,
};
use niclab_port::slices::Slice;
use niclab_port::{Queue, Reports, Requester};

use crate::{End, FlowId, Listener, Mark, Memory, PortPlan, Read, Transport, Wrong};

/// The handler of all messages, where no memory is exposed.
const HANDLER: u32 = FIRST_HANDLER;
/// The longest messages that a port has room for at a time.
const ROOM_MESSAGES: u64 = 16;
/// Payload begins on whole cache lines.
const ALIGNMENT: u64 = 64;

/// What every port of a run is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelTerms {
    max_bytes: u64,
    /// Of the payload region of messages that come: so many of the longest ones.
    places: u64,
    /// Of the payload region of the outbound queue.
    outbound_bytes: u64,
    first_segment_bytes: u64,
    /// Messages go to peripherals, which send them back.
    echoes: bool,
    /// Payload goes into memory that its receiver exposes.
    exposes: bool,
}

impl ChannelTerms {
    /// For a receive queue of so many slices, messages of at most so many bytes, and an outbound queue with so much
    /// payload, into which so much of it is pushed first. With `echoes` messages go to peripherals, which send them
    /// back; with `exposes` payload goes into memory that its receiver exposes.
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

    /// The handler that messages are sent for, and that they come for.
    const fn handlers(&self) -> (u32, u32) {
        if self.echoes { (CHANNEL_PING, CHANNEL_PONG) } else { (HANDLER, HANDLER) }
    }

    /// The payload region of messages that come. What is exposed, one of the longest messages, is behind it.
    const fn room_bytes(&self) -> u64 {
        self.places * self.max_bytes.next_multiple_of(ALIGNMENT)
    }
}

/// A port.
#[derive(Debug)]
pub struct ChannelTransport {
    end: End,
    terms: ChannelTerms,
    /// The card's name of the region.
    region: u32,
    /// Where each flow goes.
    targets: BTreeMap<FlowId, End>,
    receives: bool,
    room: PayloadRoom,
    /// The message that is being pushed.
    pushing: Option<(Mark, Pushing)>,
    /// The short message that says where its payload is, once it is pushed.
    behind: Option<Pushing>,
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
            behind: None,
            exposed: BTreeMap::new(),
        }
    }

    /// The handler that a message is sent for. Where memory is exposed its number says which.
    const fn handler(&self) -> u32 {
        if self.terms.exposes { HANDLER + self.region } else { self.terms.handlers().0 }
    }

    /// Who has sent a message: what the peripheral that it was sent to sends back is this port's own.
    fn sender_of(&self, mark: &Mark, source: End) -> End {
        let is_back = self.terms.echoes && self.targets.get(&mark.flow) == Some(&source);
        if is_back { self.end } else { source }
    }

    /// Where in the region the payload of a message is, or what is wrong with it.
    fn check(&mut self, incoming: &Incoming, mark: &Mark) -> Result<(u64, u32), &'static str> {
        let Incoming { source, handler, payload, .. } = *incoming;
        if self.terms.exposes && handler >= HANDLER {
            self.exposed.insert(source.into(), handler - HANDLER);
        } else if handler != self.terms.handlers().1 {
            return Err("is for another handler");
        }
        let (offset, bytes) = match payload {
            Some(Payload { offset, bytes }) => (u64::from(offset), bytes),
            None if self.terms.exposes => (self.terms.room_bytes(), mark.bytes),
            None => (0, 0),
        };
        if bytes != mark.bytes || offset + u64::from(bytes) > self.region_bytes() {
            return Err("has payload of another length, or elsewhere");
        }
        Ok((offset, bytes))
    }
}

impl Transport for ChannelTransport {
    type Records = Slice;

    const HAS_WHOLE_RECORDS: bool = false;
    const STANDS_ALONE: bool = true;
    const OWES_LAUNCHES: bool = true;

    /// The room of payload comes back with slices, and there may be less of it than slices.
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

    /// The card may store anywhere in the region: what it must not store to yet, the contents of messages tell.
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
        let payload = channels::payload_request(port, region, 0, self.terms.room_bytes());
        let expose = channels::expose_request(port, region, true);
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
                Outgoing::Memory(channels::Memory { target: target.into(), region, place, bytes })
            }
            None if bytes == 0 => Outgoing::Short(short),
            None => Outgoing::Bulk(Bulk { short, bytes }),
        };
        self.pushing = Pushing::new(message, segments).ok().map(|pushing| (*mark, pushing.at(offset)));
        if region.is_some() && self.room.take(0, memory).is_some() {
            self.behind = Pushing::new(Outgoing::Short(short), segments).ok();
        }
    }

    fn launch(&mut self, requester: &mut Requester, memory: &mut impl Memory, received: u64) -> bool {
        let Some((mark, mut pushing)) = self.pushing.take() else { return false };
        let (place, bytes) = pushing.next();
        let words = (bytes.start / 8) as usize..bytes.end.div_ceil(8) as usize;
        memory.push(place, mark.payload().take(words.end).skip(words.start));
        pushing.launch(requester, memory, received);
        self.pushing = if pushing.is_done() {
            self.behind.take().map(|behind| (mark, behind))
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
        let incoming = channels::front(queue, memory)?;
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
