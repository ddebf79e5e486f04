//! Messages over a port that posts them: the program sends from places of a region, and posts places for the messages
//! that arrive next.
//!
//! A port has a fixed number of places posted, for messages from any sender. It posts a place again once the program
//! has read its message. Nothing else limits senders here. Either the card does, or messages that arrive too early are
//! lost. A message begins with the tag of its mark, because the network's header names only nodes.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::{format, vec, vec::Vec};

use niclab_abi::inic::OP_POST_GROUP;
use niclab_port::inic::{
    self, Barrier, Command, Element, Encoded, Event, EventKind, Operator, Outcome, Part, PostRecord, Receive,
    Reduce, Send,
};
use niclab_port::{BadValue, Queue, Reports, Requester};

use crate::{End, FlowId, Listener, Mark, Memory, PortPlan, Read, Transport, Wrong};

/// Bytes of the tag in front of the payload.
pub const TAG_BYTES: u64 = 16;
/// Bytes between two places: every second place begins in the middle of a word.
const GAP: u64 = 4;
/// The maximum number of places for sending, and for receiving.
const MAX_PLACES: u64 = 64;
/// The limit of all places of a port together, in bytes, unless there is only one of each kind.
const MAX_BYTES: u64 = 8 << 20;
/// Events that a port has room for in addition to those of its places.
const SPARE_EVENTS: u64 = 2;

/// The number of the group that a port may be in.
pub const GROUP: u32 = 1;

/// Events that a program reads before it releases their records.
const fn release_interval(events: u32) -> u64 {
    if events < 8 { 1 } else { events as u64 / 8 }
}

/// The settings that every port of a run is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostTerms {
    /// The number of places for receiving, and the number of places for sending.
    places: u64,
    /// Bytes of the longest message.
    max_bytes: u64,
    /// Each n-th posted place interrupts when a message fills it; 0: none does.
    interrupt_every: u64,
}

impl PostTerms {
    /// Terms for a receive queue of `events` and messages with at most `max_payload` bytes of payload.
    #[must_use]
    pub fn new(events: u32, max_payload: u32, interrupt_every: u64) -> Self {
        let max_bytes = message_bytes(max_payload.into());
        // Each place causes at most one event.
        let events = u64::from(events).saturating_sub(release_interval(events) + SPARE_EVENTS);
        let places = (events / 2).min(MAX_PLACES).min(MAX_BYTES / (2 * max_bytes)).max(1);
        Self { places, max_bytes, interrupt_every }
    }

    const fn stride(&self) -> u64 {
        self.max_bytes + GAP
    }
}

/// Size of a message with this payload.
const fn message_bytes(payload: u64) -> u64 {
    (TAG_BYTES + payload).next_multiple_of(inic::UNIT_BYTES)
}

/// What an event refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    /// A posted place.
    Room(u64),
    /// A place that a message is sent from.
    Message(u64),
}

impl User {
    const MESSAGE: u64 = 1 << 63;

    const fn encode(self) -> u64 {
        match self {
            Self::Room(place) => place,
            Self::Message(place) => Self::MESSAGE | place,
        }
    }

    const fn decode(word: u64) -> Self {
        if word & Self::MESSAGE == 0 { Self::Room(word) } else { Self::Message(word & !Self::MESSAGE) }
    }
}

/// A port.
#[derive(Debug)]
pub struct PostTransport {
    end: End,
    terms: PostTerms,
    /// The region's number at the card.
    region: u32,
    /// Commands that wait for a free slot.
    commands: VecDeque<Encoded>,
    /// The node that each flow goes to.
    targets: BTreeMap<FlowId, u16>,
    /// Whether each place for receiving is posted.
    is_posted: Vec<bool>,
    /// Places that were posted since the port was opened.
    posted: u64,
    /// Free places for sending, and whether each place for sending is in use.
    free: VecDeque<u64>,
    is_sending: Vec<bool>,
    /// The nodes of its group.
    group: Vec<u16>,
    /// The group operation in flight, by the place of its values. There is at most one.
    pending: Option<(u64, Mark)>,
}

impl PostTransport {
    /// Over a port of `node`.
    #[must_use]
    pub fn new(node: u16, plan: &PortPlan, terms: PostTerms) -> Self {
        // A port that receives nothing needs no room.
        let has_room = !plan.partners.is_empty() && plan.group.is_empty();
        let room = if has_room { terms.places } else { 0 };
        Self {
            end: End { node, port: plan.number as u16 },
            terms,
            region: 0,
            commands: VecDeque::new(),
            targets: plan.sends.iter().map(|(flow, to)| (*flow, to.node)).collect(),
            is_posted: vec![false; room as usize],
            posted: 0,
            free: (0..terms.places).collect(),
            is_sending: vec![false; terms.places as usize],
            group: plan.group.clone(),
            pending: None,
        }
    }

    /// Queues a command.
    fn enqueue(&mut self, command: &impl Command<(), BadValue>) {
        let encoded = command.encode(&());
        debug_assert!(encoded.is_ok(), "{encoded:?}: nodes and lengths fit into a command");
        self.commands.extend(encoded.ok());
    }

    /// A part of a place. The places for sending follow the places for receiving.
    const fn part(&self, place: u64, bytes: u64) -> Part {
        Part { region: self.region, offset: place * self.terms.stride(), bytes }
    }

    /// Posts a place for receiving.
    fn post(&mut self, place: u64) {
        let Some(is_posted) = self.is_posted.get_mut(place as usize) else { return };
        *is_posted = true;
        self.posted += 1;
        let mut receive =
            Receive::new(self.part(place, self.terms.max_bytes)).user(User::Room(place).encode());
        let interval = self.terms.interrupt_every;
        if interval != 0 && self.posted.is_multiple_of(interval) {
            receive = receive.interrupt();
        }
        self.enqueue(&receive);
    }

    /// Handles an event.
    fn on_event(&mut self, event: &Event, memory: &impl Memory, listener: &mut impl Listener) -> Read {
        let end = self.end;
        match (event.kind, User::decode(event.user)) {
            (EventKind::Received, User::Room(place)) if self.is_posted.get(place as usize) == Some(&true) => {
                let read = self.receive(event, place, memory, listener);
                self.post(place);
                read
            }
            (EventKind::Sent, User::Message(place)) if self.is_sending.get(place as usize) == Some(&true) => {
                self.is_sending[place as usize] = false;
                self.free.push_back(place);
                Read::Other
            }
            (EventKind::Done, User::Message(place)) if event.outcome == Outcome::Done => {
                let Some((own, mark)) = self.pending.take().filter(|(own, _)| *own == place) else {
                    return Read::Other;
                };
                self.is_sending[own as usize] = false;
                self.free.push_back(own);
                self.on_result(&mark, own, memory, listener);
                Read::Message
            }
            // The card has made its last attempt. The missing message shows in the counts.
            (EventKind::Failed, User::Message(_)) => Read::Other,
            (kind, user) => {
                let outcome = event.outcome;
                listener.on_wrong(Wrong::Port, || {
                    format!("{end:?}: unexpected event {kind:?} about {user:?} with outcome {outcome:?}")
                });
                Read::Other
            }
        }
    }

    /// Checks the result that the cards stored into the place of this node's values.
    fn on_result(&self, mark: &Mark, place: u64, memory: &impl Memory, listener: &mut impl Listener) {
        let begin = self.part(self.is_posted.len() as u64 + place, 0).offset;
        let found = (0..u64::from(mark.bytes)).step_by(8).map(|at| memory.load(begin + at, 8));
        let end = self.end;
        if !found.eq(mark.sum(self.group.len() as FlowId)) {
            listener
                .on_wrong(Wrong::Contents, || format!("{end:?}: {mark:?} has a wrong sum over the group"));
        }
        listener.on_message(end, end, mark, mark.payload());
    }

    /// Starts a group operation: a sum, or a barrier if there is nothing to add.
    fn start_operation(&mut self, mark: &Mark, place: u64, interrupts: bool, memory: &mut impl Memory) {
        self.pending = Some((place, *mark));
        let part = self.part(self.is_posted.len() as u64 + place, mark.bytes.into());
        for (word, at) in mark.payload().zip((0..).step_by(8)) {
            memory.store_word(part.offset + at, 8, word);
        }
        let user = User::Message(place).encode();
        if mark.bytes == 0 {
            let barrier = Barrier::new(GROUP).user(user);
            return self.enqueue(&if interrupts { barrier.interrupt() } else { barrier });
        }
        let sum = Reduce::new(GROUP, part, Operator::Sum, Element::Unsigned64).user(user);
        self.enqueue(&if interrupts { sum.interrupt() } else { sum });
    }

    /// Reads a message, or the rest of an incomplete one, from a place.
    fn receive(&self, event: &Event, place: u64, memory: &impl Memory, listener: &mut impl Listener) -> Read {
        let begin = self.part(place, 0).offset;
        let mark = Mark::from_tag([memory.load(begin, 8), memory.load(begin + 8, 8)]);
        let &Event { outcome, bytes, moved_bytes, node, .. } = event;
        if outcome == Outcome::Incomplete {
            return Read::Other;
        }
        let is_whole = outcome == Outcome::Done && moved_bytes == bytes && bytes <= self.terms.max_bytes;
        if !is_whole || bytes < TAG_BYTES || message_bytes(mark.bytes.into()) != bytes {
            let end = self.end;
            listener.on_wrong(Wrong::Contents, || {
                format!(
                    "{end:?}: {mark:?}: it moved {moved_bytes} of {bytes} bytes, with outcome {outcome:?}"
                )
            });
            return Read::Other;
        }
        let (payload, begin) = (u64::from(mark.bytes), begin + TAG_BYTES);
        let words = memory.words(begin, payload);
        // Each card has one port, with the same number on all nodes.
        listener.on_message(self.end, End { node: node as u16, ..self.end }, &mark, words);
        Read::Message
    }
}

impl Transport for PostTransport {
    type Records = PostRecord;

    const HAS_WHOLE_RECORDS: bool = true;
    const STANDS_ALONE: bool = false;
    const OWES_LAUNCHES: bool = true;

    fn release_interval(&self, events: u32) -> u64 {
        release_interval(events)
    }

    fn credits(&self, _: u32) -> Option<u32> {
        None
    }

    /// An event does not name its message: the tag in memory does.
    fn mark_of(_: &[u64]) -> Option<Mark> {
        None
    }

    fn region_bytes(&self) -> u64 {
        let places = (self.is_posted.len() + self.is_sending.len()) as u64;
        (places * self.terms.stride()).max(niclab_abi::PAGE_BYTES)
    }

    fn is_posted(&self, offset: u64, bytes: u64) -> bool {
        let (place, within) = (offset / self.terms.stride(), offset % self.terms.stride());
        let pending = self.pending.map(|(place, _)| self.is_posted.len() as u64 + place);
        let is_cards = pending == Some(place) || self.is_posted.get(place as usize) == Some(&true);
        within + bytes <= self.terms.max_bytes && is_cards
    }

    fn begin(&mut self, region: u32) {
        self.region = region;
        (0..self.is_posted.len() as u64).for_each(|place| self.post(place));
    }

    fn requests(&self) -> Vec<(u32, Vec<u8>)> {
        if self.group.is_empty() {
            return Vec::new();
        }
        let nodes: Vec<u32> = self.group.iter().copied().map(u32::from).collect();
        [(OP_POST_GROUP, inic::group_request(self.end.port.into(), GROUP, &nodes))].into()
    }

    fn has_launches(&self) -> bool {
        !self.commands.is_empty()
    }

    /// Blocked if all places for sending are in use or a command waits.
    fn is_blocked(&self, _: &impl Reports) -> bool {
        self.free.is_empty() || self.has_launches()
    }

    fn waits_for_news(&self, requester: &Requester) -> bool {
        requester.is_full()
    }

    /// The receiver determines which arrivals interrupt it, so the message does not. A group operation interrupts its
    /// own node.
    fn send(&mut self, mark: &Mark, interrupts: bool, memory: &mut impl Memory) {
        let Some(node) = self.targets.get(&mark.flow).copied() else { return };
        let Some(place) = self.free.pop_front() else { return };
        self.is_sending.iter_mut().skip(place as usize).take(1).for_each(|is_sending| *is_sending = true);
        if !self.group.is_empty() {
            return self.start_operation(mark, place, interrupts, memory);
        }
        let part = self.part(self.is_posted.len() as u64 + place, message_bytes(mark.bytes.into()));
        memory.store_words(part.offset, TAG_BYTES, mark.tag().into_iter());
        memory.store_words(part.offset + TAG_BYTES, part.bytes.saturating_sub(TAG_BYTES), mark.payload());
        self.enqueue(&Send::new(node.into(), part).user(User::Message(place).encode()).tell_sent());
    }

    fn launch(&mut self, requester: &mut Requester, memory: &mut impl Memory, received: u64) -> bool {
        let Some(command) = self.commands.pop_front() else { return false };
        command.launch(requester, memory, received);
        true
    }

    fn read(
        &mut self,
        queue: &mut Queue<PostRecord>,
        memory: &mut impl Memory,
        listener: &mut impl Listener,
    ) -> Option<Read> {
        let (event, _) = inic::take(queue, memory)?;
        Some(self.on_event(&event, memory, listener))
    }
}
