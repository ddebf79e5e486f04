//! Messages over a port whose NIC matches them: puts into posted entries, puts into overflow entries, or gets.
//!
//! A flow has a window: the messages that its receiver has not yet returned as credits. The receiver posts an entry for
//! each message of the window before the sender may send it. It returns credits in the header data of its own messages
//! if it sends to the same port. Otherwise it puts an empty message, which the sender sees only in a counter.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use alloc::{format, vec};

use niclab_abi::receive::SLICE_WORDS;
use niclab_port::matching::{
    self, Append, Command, Count, Encoded, Event, EventKind, EventRecord, Get, Outcome, Part, Put, Target,
};
use niclab_port::{BadValue, Queue, Reports, Requester};
use serde::{Deserialize, Serialize};

use crate::{End, FlowId, Listener, Mark, Memory, PortPlan, Read, Transport, Wrong};

/// The portal to which messages are put.
const PORTAL_DATA: u32 = 0;
/// The portal to which receivers put their credits.
const PORTAL_CREDIT: u32 = 1;
/// The portal from which receivers get long messages.
const PORTAL_GET: u32 = 2;
/// The counter of credits.
const CREDIT_COUNTER: u32 = 0;
/// The minimum number of messages that an overflow entry takes.
const CHUNK_MESSAGES: u64 = 4;
/// Bytes between the places of two messages, so that most of them begin at odd addresses.
const GAP: u64 = 3;

/// Events that a port has room for in addition to its window: those that one command and one message may cause at once.
const SPARE_EVENTS: u64 = 4;
/// Match entries of a port in addition to its window: the one for credits, and overflow entries without messages.
const SPARE_ENTRIES: u64 = 4;
/// The sender of every n-th flow requests events about its own messages.
const SENDER_EVENT_FLOWS: FlowId = 4;
/// The largest window, in messages.
const MAX_WINDOW: u64 = 32;
/// The limit of all windows of a port together, in bytes.
const MAX_WINDOW_BYTES: u64 = 8 << 20;

/// Events that a program reads before it releases their records.
const fn release_interval(events: u32) -> u64 {
    if events < 8 { 1 } else { events as u64 / 8 }
}

/// How messages are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receive {
    /// A match entry is posted for each message before it is sent.
    Posted,
    /// The receiver posts none in advance: messages go to overflow entries, and it posts a receive for each that
    /// arrived.
    Unexpected,
    /// The sender announces each message by a put without data, and the receiver gets it.
    Get,
    /// Not for NICs with match lists: the receiver exposes memory, the sender writes into it, and a short message
    /// reports it.
    Exposed,
}

/// The settings that every port of a run is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How messages are received.
    pub receive: Receive,
    /// Messages of a flow that may be in flight.
    pub window: u64,
    /// Bytes of the longest message.
    pub max_bytes: u64,
}

/// The limits of the windows of all ports of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Events of each port's queue.
    pub events: u32,
    /// Match entries that fit into the smallest card, per port.
    pub entries: u64,
    /// Unexpected messages that the smallest card stores.
    pub unexpected_messages: u64,
    /// The largest number of flows that any port receives, plus its own.
    pub partners: u64,
}

impl Terms {
    /// Terms within these limits. The window is zero if the cards have too little room.
    #[must_use]
    pub fn new(receive: Receive, max_bytes: u64, limits: &Limits) -> Self {
        // Events at both ends of a message, including those of the credits that it returns, and match entries.
        let (events, entries) = match receive {
            Receive::Posted | Receive::Exposed => (4, 1),
            Receive::Unexpected | Receive::Get => (6, 2),
        };
        let Limits { partners, .. } = *limits;
        let spare = u64::from(limits.events).saturating_sub(release_interval(limits.events) + SPARE_EVENTS);
        let limits = [
            spare / events,
            limits.entries.saturating_sub(SPARE_ENTRIES) / entries,
            limits.unexpected_messages,
            (MAX_WINDOW_BYTES / (max_bytes + GAP)).max(partners),
            MAX_WINDOW * partners,
        ];
        let window = limits.into_iter().min().unwrap_or(0) / partners.max(1);
        Self { receive, window, max_bytes }
    }

    const fn stride(&self) -> u64 {
        self.max_bytes + GAP
    }

    /// Bytes of one overflow entry.
    const fn chunk_bytes(&self) -> u64 {
        CHUNK_MESSAGES * self.max_bytes
    }

    /// Overflow entries of a port. There is always one with room, even if unclaimed messages fill the others.
    const fn chunks(&self, flows: u64) -> u64 {
        match self.receive {
            Receive::Unexpected => flows * self.window + 2,
            Receive::Posted | Receive::Get | Receive::Exposed => 0,
        }
    }

    /// Credits that the receiver returns in one put if no message carries them.
    const fn credit_batch(&self) -> u64 {
        if self.window > 1 { self.window / 2 } else { 1 }
    }
}

/// What an event or an entry refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    /// Nothing that the program needs.
    Nothing,
    /// A place for a message: the incoming flow, and the place in its window.
    Place(usize, u64),
    /// An overflow entry.
    Chunk(usize),
}

impl User {
    const fn encode(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Place(flow, place) => 1 << 56 | (flow as u64) << 32 | place,
            Self::Chunk(chunk) => 2 << 56 | chunk as u64,
        }
    }

    const fn decode(word: u64) -> Self {
        match word >> 56 {
            1 => Self::Place((word >> 32 & 0xff_ffff) as usize, word & 0xffff_ffff),
            2 => Self::Chunk((word & 0xffff_ffff) as usize),
            _ => Self::Nothing,
        }
    }
}

/// A flow that the port receives.
#[derive(Clone, Debug)]
struct Incoming {
    flow: FlowId,
    from: End,
    /// Messages for which the port has posted a place.
    posted: u64,
    /// Credits that the port has not yet returned.
    due: u64,
    /// Credits that messages have returned, in total.
    carried: u32,
    /// The last announced message.
    announced: u64,
    /// The last received message.
    last: u64,
}

/// The flow that the port sends over.
#[derive(Clone, Debug)]
struct Outgoing {
    flow: FlowId,
    to: End,
    sent: u64,
    /// Credits that messages have returned, in total.
    carried: u64,
}

/// An overflow entry.
#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    is_unlinked: bool,
    /// Unclaimed messages in it.
    held: u64,
}

/// A port.
#[derive(Debug)]
pub struct ListTransport {
    end: End,
    /// The region's number at the card.
    region: u32,
    /// Commands that wait for a free slot.
    commands: VecDeque<Encoded>,
    terms: Terms,
    incoming: Vec<Incoming>,
    outgoing: Option<Outgoing>,
    chunks: Vec<Chunk>,
    /// Places that are posted: the card may store to them.
    posted: BTreeSet<u64>,
}

impl ListTransport {
    /// Over a port of `node`.
    #[must_use]
    pub fn new(node: u16, plan: &PortPlan, terms: Terms) -> Self {
        let incoming = plan.partners.iter().map(|&(flow, from)| Incoming {
            flow,
            from,
            posted: 0,
            due: 0,
            carried: 0,
            announced: 0,
            last: 0,
        });
        Self {
            end: End { node, port: plan.number as u16 },
            region: 0,
            commands: VecDeque::new(),
            terms,
            incoming: incoming.collect(),
            // A card with match lists uses a port for each destination.
            outgoing: plan.sends.first().map(|&(flow, to)| Outgoing { flow, to, sent: 0, carried: 0 }),
            chunks: vec![Chunk::default(); terms.chunks(plan.partners.len() as u64) as usize],
            posted: BTreeSet::new(),
        }
    }

    /// Queues a command.
    fn enqueue(&mut self, command: &impl Command<(), BadValue>) {
        let encoded = command.encode(&());
        debug_assert!(encoded.is_ok(), "{encoded:?}: ranks, ports and portals fit into a command");
        self.commands.extend(encoded.ok());
    }

    /// A part of the region.
    const fn part(&self, offset: u64, bytes: u64) -> Part {
        Part { region: self.region, offset, bytes }
    }

    /// The total of credits that the next message to this port's target returns.
    fn credits_to_carry(&mut self) -> u32 {
        let Some(outgoing) = &self.outgoing else { return 0 };
        let Some(incoming) = self.incoming.iter_mut().find(|incoming| incoming.from == outgoing.to) else {
            return 0;
        };
        incoming.carried = incoming.carried.wrapping_add(incoming.due as u32);
        incoming.due = 0;
        incoming.carried
    }

    fn place(&self, flow: usize, place: u64) -> u64 {
        flow as u64 * self.terms.window + place
    }

    fn part_of(&self, flow: usize, place: u64, bytes: u64) -> Part {
        self.part(self.place(flow, place) * self.terms.stride(), bytes)
    }

    /// Posts an entry for the next message of a flow.
    fn post(&mut self, flow: usize) {
        let Some(incoming) = self.incoming.get_mut(flow) else { return };
        incoming.posted += 1;
        let (id, from, number) = (incoming.flow, incoming.from, incoming.posted);
        let place = (number - 1) % self.terms.window;
        let bytes = if self.terms.receive == Receive::Posted { self.terms.max_bytes } else { 0 };
        if bytes > 0 {
            self.posted.insert(self.place(flow, place));
        }
        // Entries of odd flows match any message of the flow: the first entry takes the first message.
        let ignore_bits = if id.is_multiple_of(2) { 0 } else { u64::from(u32::MAX) };
        let mut entry = Append::put(PORTAL_DATA, self.part_of(flow, place, bytes))
            .match_bits(match_bits(id, number), ignore_bits)
            .user(User::Place(flow, place).encode())
            .no_unlink_event();
        if !number.is_multiple_of(3) {
            entry = entry.source_node(from.node.into()).source_port(from.port.into());
        }
        self.enqueue(&entry);
    }

    /// Posts an overflow entry.
    fn post_chunk(&mut self, number: usize) {
        if let Some(chunk) = self.chunks.get_mut(number) {
            *chunk = Chunk::default();
        }
        let entry = Append::put(PORTAL_DATA, self.part(self.chunk_offset(number), self.terms.chunk_bytes()))
            .match_bits(0, u64::MAX)
            .user(User::Chunk(number).encode())
            .persistent()
            .max_size(self.terms.max_bytes)
            .overflow();
        self.enqueue(&entry);
    }

    /// The offset of the memory of an overflow entry.
    fn chunk_offset(&self, chunk: usize) -> u64 {
        let places = (self.incoming.len() as u64 + 1) * self.terms.window;
        places * self.terms.stride() + chunk as u64 * self.terms.chunk_bytes()
    }

    /// Handles an event.
    fn on_event(&mut self, event: &Event, memory: &impl Memory, listener: &mut impl Listener) -> Read {
        let end = self.end;
        let &Event { kind, outcome, header_data, moved_bytes, offset, initiator, .. } = event;
        let is_whole =
            outcome == Outcome::Done && (kind == EventKind::Unlinked || moved_bytes == event.requested_bytes);
        if !is_whole {
            let requested = event.requested_bytes;
            listener.on_wrong(Wrong::Contents, || {
                format!(
                    "{end:?}: an event {kind:?} with outcome {outcome:?}: it moved {moved_bytes} of {requested} bytes"
                )
            });
        }
        let mark = mark_of(event);
        match (kind, User::decode(event.user)) {
            (EventKind::Put | EventKind::Reply | EventKind::Claimed { .. }, User::Place(flow, place))
                if !self.is_plausible(flow, place, &mark, event) =>
            {
                listener.on_wrong(Wrong::Contents, || {
                    format!("{end:?}: {event:?} is about no message that is due")
                });
                Read::Other
            }
            (EventKind::Put, User::Place(flow, place)) => {
                self.take_credits(mark.flow, header_data);
                if self.terms.receive == Receive::Get {
                    self.fetch(flow, place, &Mark { bytes: (header_data >> 32) as u32, ..mark });
                    return Read::Other;
                }
                let begin = self.part_of(flow, place, moved_bytes).offset + offset;
                self.receive(&mark, initiator.into(), begin, memory, listener);
                self.renew(flow, place);
                Read::Message
            }
            (EventKind::Reply, User::Place(flow, place)) => {
                let from = self.incoming.get(flow).map_or(end, |incoming| incoming.from);
                let begin = self.part_of(flow, place, moved_bytes).offset + offset;
                self.receive(&mark, from, begin, memory, listener);
                self.renew(flow, place);
                Read::Message
            }
            (EventKind::Unexpected, User::Chunk(chunk)) => {
                self.chunks.iter_mut().skip(chunk).take(1).for_each(|chunk| chunk.held += 1);
                self.claim(&mark);
                Read::Other
            }
            (EventKind::Claimed { overflow_user, .. }, User::Place(flow, _)) => {
                self.take_credits(mark.flow, header_data);
                let User::Chunk(chunk) = User::decode(overflow_user) else {
                    listener
                        .on_wrong(Wrong::Memory, || format!("{end:?}: {mark:?} is not in an overflow entry"));
                    return Read::Other;
                };
                let begin = self.chunk_offset(chunk) + offset;
                self.receive(&mark, initiator.into(), begin, memory, listener);
                self.update_chunk(chunk, |chunk| chunk.held = chunk.held.saturating_sub(1));
                self.give_credit(flow);
                Read::Message
            }
            (EventKind::Unlinked, User::Chunk(chunk)) => {
                self.update_chunk(chunk, |chunk| chunk.is_unlinked = true);
                Read::Other
            }
            (EventKind::Acknowledged | EventKind::Sent | EventKind::Get, _) => Read::Other,
            (kind, user) => {
                listener
                    .on_wrong(Wrong::Port, || format!("{end:?}: unexpected event {kind:?} about {user:?}"));
                Read::Other
            }
        }
    }

    /// Whether an event reports a message of this flow that has not been received, in a place of this flow. Events of a
    /// correct device always do. A damaged event rarely does; the check keeps it from corrupting the program's state.
    fn is_plausible(&mut self, flow: usize, place: u64, mark: &Mark, event: &Event) -> bool {
        let Terms { window, max_bytes, receive } = self.terms;
        let Some(incoming) = self.incoming.get_mut(flow) else { return false };
        let is_announced = receive == Receive::Get && event.kind == EventKind::Put;
        let seen = if is_announced { &mut incoming.announced } else { &mut incoming.last };
        let is_due = mark.flow == incoming.flow && mark.number > *seen && mark.number - *seen <= 2 * window;
        let is_it = is_due && place < window && u64::from(mark.bytes) <= max_bytes;
        if is_it {
            *seen = mark.number;
        }
        is_it
    }

    /// Passes a message that begins at `begin` of the region to the listener.
    fn receive(
        &self,
        mark: &Mark,
        from: End,
        begin: u64,
        memory: &impl Memory,
        listener: &mut impl Listener,
    ) {
        let bytes = u64::from(mark.bytes);
        listener.on_message(self.end, from, mark, memory.words(begin, bytes));
    }

    /// Posts a place again whose message was read.
    fn renew(&mut self, flow: usize, place: u64) {
        self.posted.remove(&self.place(flow, place));
        self.post(flow);
        self.give_credit(flow);
    }

    /// Grants the sender of a flow another message. Returns credits by a put if messages have not carried them for
    /// long.
    fn give_credit(&mut self, flow: usize) {
        let Some(incoming) = self.incoming.get_mut(flow) else { return };
        incoming.due += 1;
        let Some(due) = incoming.due.checked_sub(self.terms.credit_batch()) else { return };
        incoming.due = due;
        let credit =
            Put::new(target(incoming.from, PORTAL_CREDIT), Part::default()).match_bits(incoming.flow.into());
        self.enqueue(&credit);
    }

    /// Gets an announced message.
    fn fetch(&mut self, flow: usize, place: u64, mark: &Mark) {
        let Some(from) = self.incoming.get(flow).map(|incoming| incoming.from) else { return };
        self.posted.insert(self.place(flow, place));
        let part = self.part_of(flow, place, u64::from(mark.bytes).min(self.terms.max_bytes));
        let get = Get::new(target(from, PORTAL_GET), part)
            .match_bits(match_bits(mark.flow, mark.number))
            .user(User::Place(flow, place).encode());
        self.enqueue(&get);
    }

    /// Posts an entry for a message that is already in an overflow entry.
    fn claim(&mut self, mark: &Mark) {
        let Some(flow) = self.incoming.iter().position(|incoming| incoming.flow == mark.flow) else { return };
        let place = mark.number.wrapping_sub(1) % self.terms.window;
        let part = self.part_of(flow, place, self.terms.max_bytes);
        let mut entry = Append::put(PORTAL_DATA, part)
            .match_bits(match_bits(mark.flow, mark.number), 0)
            .user(User::Place(flow, place).encode())
            .no_unlink_event();
        if let Some(from) = self.incoming.get(flow).map(|incoming| incoming.from) {
            entry = entry.source_node(from.node.into()).source_port(from.port.into());
        }
        self.enqueue(&entry);
    }

    /// Changes the state of an overflow entry, and posts the entry again once it is empty.
    fn update_chunk(&mut self, number: usize, change: impl FnOnce(&mut Chunk)) {
        let Some(chunk) = self.chunks.get_mut(number) else { return };
        change(chunk);
        if chunk.is_unlinked && chunk.held == 0 {
            self.post_chunk(number);
        }
    }

    /// Takes the credits that a message of `flow` carries for this port's own messages to its sender.
    fn take_credits(&mut self, flow: FlowId, header_data: u64) {
        let Some(incoming) = self.incoming.iter().find(|incoming| incoming.flow == flow) else { return };
        if let Some(outgoing) = self.outgoing.as_mut().filter(|outgoing| outgoing.to == incoming.from) {
            let new_credits = (header_data as u32).wrapping_sub(outgoing.carried as u32);
            // More credits than sent messages are a fault of the device, and are ignored.
            if outgoing.carried + u64::from(new_credits) <= outgoing.sent {
                outgoing.carried += u64::from(new_credits);
            }
        }
    }
}

/// The match bits of a message: its flow, and its number in the flow.
const fn match_bits(flow: FlowId, number: u64) -> u64 {
    (flow as u64) << 32 | number & 0xffff_ffff
}

/// The mark of the message that an event reports.
const fn mark_of(event: &Event) -> Mark {
    Mark {
        flow: (event.match_bits >> 32) as u32,
        bytes: event.requested_bytes as u32,
        number: event.match_bits & 0xffff_ffff,
    }
}

/// A portal of another port.
fn target(to: End, portal: u32) -> Target {
    Target { port: to.into(), portal }
}

impl Transport for ListTransport {
    type Records = EventRecord;

    const HAS_WHOLE_RECORDS: bool = true;
    const STANDS_ALONE: bool = false;
    const OWES_LAUNCHES: bool = true;

    fn release_interval(&self, events: u32) -> u64 {
        release_interval(events)
    }

    fn credits(&self, _: u32) -> Option<u32> {
        None
    }

    fn mark_of(words: &[u64]) -> Option<Mark> {
        let event = Event::decode(&<&[u64; SLICE_WORDS]>::try_from(words).ok()?, *words.last()?)?;
        let is_message = matches!(event.kind, EventKind::Put | EventKind::Reply | EventKind::Claimed { .. });
        is_message.then(|| mark_of(&event))
    }

    fn region_bytes(&self) -> u64 {
        let flows = self.incoming.len() as u64;
        let places = (flows + 1) * self.terms.window * self.terms.stride();
        (places + self.terms.chunks(flows) * self.terms.chunk_bytes()).max(niclab_abi::PAGE_BYTES)
    }

    /// Posted places and overflow memory.
    fn is_posted(&self, offset: u64, bytes: u64) -> bool {
        if offset >= self.chunk_offset(0) {
            return true;
        }
        let (place, within) = (offset / self.terms.stride(), offset % self.terms.stride());
        within + bytes <= self.terms.max_bytes && self.posted.contains(&place)
    }

    /// Posts the entries that exist from the start.
    fn begin(&mut self, region: u32) {
        self.region = region;
        if let Some(Outgoing { flow, to, .. }) = self.outgoing {
            let entry = Append::put(PORTAL_CREDIT, Part::default())
                .match_bits(flow.into(), 0)
                .source_node(to.node.into())
                .source_port(to.port.into())
                .persistent()
                .counter(CREDIT_COUNTER)
                .count_only();
            self.enqueue(&entry);
        }
        (0..self.chunks.len()).for_each(|chunk| self.post_chunk(chunk));
        if self.terms.receive != Receive::Unexpected {
            for flow in 0..self.incoming.len() {
                (0..self.terms.window).for_each(|_| self.post(flow));
            }
        }
    }

    fn has_launches(&self) -> bool {
        !self.commands.is_empty()
    }

    /// Blocked if the window is full or a command waits.
    fn is_blocked(&self, page: &impl Reports) -> bool {
        let Some(outgoing) = &self.outgoing else { return true };
        let counted = Count::read(page, CREDIT_COUNTER).successes * self.terms.credit_batch();
        outgoing.sent >= self.terms.window + counted + outgoing.carried || self.has_launches()
    }

    fn waits_for_news(&self, _: &Requester) -> bool {
        true
    }

    fn send(&mut self, mark: &Mark, interrupts: bool, memory: &mut impl Memory) {
        let credits = self.credits_to_carry();
        let Some(outgoing) = &mut self.outgoing else { return };
        outgoing.sent += 1;
        let (to, place) = (outgoing.to, (mark.number - 1) % self.terms.window);
        let begin = (self.incoming.len() as u64 * self.terms.window + place) * self.terms.stride();
        let part = self.part(begin, mark.bytes.into());
        memory.store_words(begin, part.bytes, mark.payload());
        let match_bits = match_bits(mark.flow, mark.number);
        let is_get = self.terms.receive == Receive::Get;
        if is_get {
            let entry = Append::get(PORTAL_GET, part)
                .match_bits(match_bits, 0)
                .source_node(to.node.into())
                .source_port(to.port.into())
                .no_unlink_event();
            self.enqueue(&if mark.number.is_multiple_of(2) { entry.count_only() } else { entry });
        }
        let announced = if is_get { u64::from(mark.bytes) << 32 } else { 0 };
        let data = if is_get { Part::default() } else { part };
        let mut put = Put::new(target(to, PORTAL_DATA), data)
            .match_bits(match_bits)
            .header_data(announced | u64::from(credits));
        if interrupts {
            put = put.interrupt();
        }
        // Some messages also cause events at the sender.
        if mark.flow % SENDER_EVENT_FLOWS == SENDER_EVENT_FLOWS - 1 {
            put = match mark.number % 4 {
                0 => put.ack().sent(),
                1 => put.ack(),
                2 => put.sent(),
                _ => put,
            };
        }
        self.enqueue(&put);
    }

    fn launch(&mut self, requester: &mut Requester, memory: &mut impl Memory, received: u64) -> bool {
        let Some(command) = self.commands.pop_front() else { return false };
        matching::launch(requester, memory, &command, received);
        true
    }

    fn read(
        &mut self,
        queue: &mut Queue<EventRecord>,
        memory: &mut impl Memory,
        listener: &mut impl Listener,
    ) -> Option<Read> {
        let (event, _) = matching::take(queue, memory)?;
        Some(self.on_event(&event, memory, listener))
    }
}
