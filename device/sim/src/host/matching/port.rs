//! A port, as the library sees it: what it sends, what it has posted, and what its events say.
//!
//! A flow has a window of messages that its receiver has not given back: the receiver posts an entry for each message of the
//! window before its sender may send it. It gives back by the header data of its own messages, where it sends to the same
//! port, and otherwise by a put without data that nothing but a counter tells of.

use std::collections::{BTreeSet, VecDeque};

use niclab_abi::bar::SLOTS;
use niclab_abi::matching::{
    COMMAND_ACK, COMMAND_COUNT_ONLY, COMMAND_INTERRUPT, COMMAND_SENT, ENTRY_GET, ENTRY_MAX_SIZE,
    ENTRY_NO_UNLINK_EVENT, ENTRY_OVERFLOW, ENTRY_PUT, EVENT_ACK, EVENT_GET, EVENT_PUT, EVENT_PUT_OVERFLOW,
    EVENT_PUT_UNEXPECTED, EVENT_REPLY, EVENT_SENT, EVENT_UNLINKED, RESULT_OK, THRESHOLD_INFINITE, event_kind,
    event_result,
};
use niclab_model::nic::PageStore;
use niclab_model::time::Time;
use niclab_spec::{MatchParameters, Receive, SimConfig, Workload};

use super::command::{
    Command, Entry, PORTAL_CREDIT, PORTAL_DATA, PORTAL_GET, Part, Transfer, append, get, put,
};
use super::memory::{Event, Memory, PAGE};
use crate::host::PortPlan;
use crate::host::tally::Interrupts;
use crate::judge::{Check, Judge, Mark};
use crate::plan::{End, FlowId};
use crate::run::most_bytes;

/// The counter of credits.
const CREDIT_COUNTER: u64 = 0;
/// Messages that one overflow entry takes at least.
const CHUNK_MESSAGES: u64 = 4;
/// Bytes between the places of two messages: so that most of them begin at odd addresses.
const GAP: u64 = 3;

/// Events that a port has room for beside those of its window: what one command and one message may cause at once.
const SPARE_EVENTS: u64 = 4;
/// Match entries of a port beside those of its window: the one for credits, and overflow entries without messages.
const SPARE_ENTRIES: u64 = 4;
/// Every so-manieth flow's sender asks to be told of its messages.
const FLOWS_TOLD: FlowId = 4;
/// The largest window, in messages.
const MOST_WINDOW: u64 = 32;
/// And in bytes of all windows of a port.
const MOST_WINDOW_BYTES: u64 = 8 << 20;

/// How many events a program reads before it gives their places back.
const fn release_interval(events: u32) -> u64 {
    if events < 8 { 1 } else { events as u64 / 8 }
}

/// What every port of a host is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How messages are received.
    pub receive: Receive,
    /// Messages of a flow that may be on their way.
    pub window: u64,
    /// Bytes of the longest message.
    pub most_bytes: u64,
}

impl Terms {
    /// Terms for a workload whose ports have so many partners at most, themselves included. The window is zero where the
    /// cards have too little room for any.
    #[must_use]
    pub fn new(config: &SimConfig, partners: u64) -> Self {
        let workload = &config.workload;
        let receive = workload.receive;
        let most_bytes = u64::from(most_bytes(workload));
        // Events of a message at both of its ends, with those of the credits that it returns, and entries.
        let (events, entries) = match receive {
            Receive::Posted => (4, 1),
            Receive::Unexpected | Receive::Get => (6, 2),
        };
        let places = u64::from(workload.slices);
        let spare = places.saturating_sub(release_interval(workload.slices) + SPARE_EVENTS);
        let least = |of: fn(&MatchParameters) -> u32| {
            u64::from(config.nodes.iter().map(|node| of(&node.nic.matching)).min().unwrap_or(0))
        };
        let own_entries = (least(|card| card.match_entries) / u64::from(Workload::MATCH_PORTS))
            .saturating_sub(SPARE_ENTRIES);
        let limits = [
            spare / events,
            own_entries / entries,
            least(|card| card.unexpected_messages),
            (MOST_WINDOW_BYTES / (most_bytes + GAP)).max(partners),
            MOST_WINDOW * partners,
        ];
        let window = limits.into_iter().min().unwrap_or(0) / partners.max(1);
        Self { receive, window, most_bytes }
    }

    const fn stride(&self) -> u64 {
        self.most_bytes + GAP
    }

    /// Bytes of one overflow entry.
    const fn chunk_bytes(&self) -> u64 {
        CHUNK_MESSAGES * self.most_bytes
    }

    /// Overflow entries of a port: so many that there is always one with room, whoever holds messages in the others.
    const fn chunks(&self, flows: u64) -> u64 {
        match self.receive {
            Receive::Unexpected => flows * self.window + 2,
            Receive::Posted | Receive::Get => 0,
        }
    }

    /// Credits that go back at once, where no message carries them.
    const fn credit_batch(&self) -> u64 {
        if self.window > 1 { self.window / 2 } else { 1 }
    }
}

/// What an event or an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    /// Nothing that needs to be known.
    Nothing,
    /// A place for a message: of which incoming flow, and which place of its window.
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

/// A flow that comes to the port.
#[derive(Clone, Debug)]
struct Incoming {
    flow: FlowId,
    from: End,
    /// Messages for which there was a place.
    posted: u64,
    /// Credits that were not given back.
    due: u64,
    /// Credits that messages have carried back.
    carried: u32,
}

/// The flow that the port sends.
#[derive(Clone, Debug)]
struct Outgoing {
    flow: FlowId,
    to: End,
    sent: u64,
    /// The last that was carried back.
    carried: u64,
}

/// An overflow entry.
#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    is_unlinked: bool,
    /// Messages in it that were not claimed.
    held: u64,
}

/// What an event was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// A message is there: the program has it.
    Received,
    /// Something else.
    Other,
}

/// An open port.
#[derive(Debug)]
pub struct Port {
    /// Which.
    pub end: End,
    /// Its memory.
    pub memory: Memory,
    /// The card's name of the region.
    pub region: u32,
    /// Launches so far.
    pub launched: u64,
    /// Launches that the card has reported, whether or not the host saw it.
    pub reported: u64,
    /// Commands that wait for a slot.
    todo: VecDeque<Command>,
    /// Launches that the card has not taken out of the page, and when the program made them.
    pub page: VecDeque<(Time, PageStore)>,
    /// Places of the event queue.
    pub places: u64,
    /// The highest number that an event was written with.
    pub stored: u64,
    /// Events that the program has read.
    pub received: u64,
    /// Events whose places it has given back.
    pub released: u64,
    /// How many it reads before it gives them back.
    pub release_interval: u64,
    /// What interrupted.
    pub interrupts: Interrupts,
    terms: Terms,
    incoming: Vec<Incoming>,
    outgoing: Option<Outgoing>,
    chunks: Vec<Chunk>,
    /// Places for messages that are the card's.
    posted: BTreeSet<u64>,
}

impl Port {
    /// A port that is opened as number `number` of its host.
    #[must_use]
    pub fn new(number: usize, end: End, plan: &PortPlan, events: u32, terms: Terms) -> Self {
        let incoming =
            plan.partners.iter().map(|&(flow, from)| Incoming { flow, from, posted: 0, due: 0, carried: 0 });
        let flows = plan.partners.len() as u64;
        let places = (flows + 1) * terms.window * terms.stride();
        let region_bytes = places + terms.chunks(flows) * terms.chunk_bytes();
        Self {
            end,
            memory: Memory::new(number, events, region_bytes.max(PAGE)),
            region: 0,
            launched: 0,
            reported: 0,
            todo: VecDeque::new(),
            page: VecDeque::new(),
            places: events.into(),
            stored: 0,
            received: 0,
            released: 0,
            release_interval: release_interval(events),
            interrupts: Interrupts::default(),
            terms,
            incoming: incoming.collect(),
            outgoing: plan.sends.map(|(flow, to)| Outgoing { flow, to, sent: 0, carried: 0 }),
            chunks: vec![Chunk::default(); terms.chunks(flows) as usize],
            posted: BTreeSet::new(),
        }
    }

    /// Posts all that is there from the beginning.
    pub fn set_up(&mut self) {
        if let Some(outgoing) = &self.outgoing {
            let entry = Entry {
                match_bits: outgoing.flow.into(),
                portal: PORTAL_CREDIT,
                source: Some(outgoing.to),
                threshold: THRESHOLD_INFINITE,
                counter: Some(CREDIT_COUNTER),
                flags: ENTRY_PUT | COMMAND_COUNT_ONLY,
                ..Entry::default()
            };
            self.todo.push_back(append(&entry, &Part::default()));
        }
        (0..self.chunks.len()).for_each(|chunk| self.post_chunk(chunk));
        if self.terms.receive != Receive::Unexpected {
            for flow in 0..self.incoming.len() {
                (0..self.terms.window).for_each(|_| self.post(flow));
            }
        }
    }

    /// The next command that waits, if there is a slot for it.
    pub fn next_command(&mut self) -> Option<Command> {
        if self.free_slots() == 0 { None } else { self.todo.pop_front() }
    }

    /// Whether a command waits.
    #[must_use]
    pub fn has_commands(&self) -> bool {
        !self.todo.is_empty()
    }

    /// Free slots of the page, as the status line has it.
    #[must_use]
    pub const fn free_slots(&self) -> u64 {
        (SLOTS as u64).saturating_sub(self.launched - self.memory.launched())
    }

    /// The flow that it sends.
    #[must_use]
    pub fn sends(&self) -> Option<FlowId> {
        self.outgoing.as_ref().map(|outgoing| outgoing.flow)
    }

    /// Whether it may not send now: its page or its window is full.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        let Some(outgoing) = &self.outgoing else { return true };
        let counted = self.memory.successes(CREDIT_COUNTER as usize) * self.terms.credit_batch();
        let is_full = outgoing.sent >= self.terms.window + counted + outgoing.carried;
        is_full || self.free_slots() == 0 || self.has_commands()
    }

    /// Sends a message.
    pub fn send(&mut self, mark: &Mark, interrupts: bool) {
        let credits = self.credits_to_carry();
        let Some(outgoing) = &mut self.outgoing else { return };
        outgoing.sent += 1;
        let (to, place) = (outgoing.to, (mark.number - 1) % self.terms.window);
        let part = Part {
            region: self.region,
            offset: (self.incoming.len() as u64 * self.terms.window + place) * self.terms.stride(),
            bytes: mark.bytes.into(),
        };
        let bytes = mark.payload().flat_map(u64::to_le_bytes);
        self.memory
            .part_mut(part.offset, part.bytes)
            .iter_mut()
            .zip(bytes)
            .for_each(|(place, byte)| *place = byte);
        let mut transfer = Transfer {
            match_bits: match_bits(mark.flow, mark.number),
            header_data: credits.into(),
            portal: PORTAL_DATA,
            flags: if interrupts { COMMAND_INTERRUPT } else { 0 },
            ..Transfer::default()
        };
        // Some of them are told of at this end, too.
        if mark.flow % FLOWS_TOLD == FLOWS_TOLD - 1 {
            match mark.number % 4 {
                0 => transfer.flags |= COMMAND_ACK | COMMAND_SENT,
                1 => transfer.flags |= COMMAND_ACK,
                2 => transfer.flags |= COMMAND_SENT,
                _ => {}
            }
        }
        if self.terms.receive != Receive::Get {
            self.todo.push_back(put(to, &transfer, &part));
            return;
        }
        let entry = Entry {
            match_bits: transfer.match_bits,
            portal: PORTAL_GET,
            source: Some(to),
            threshold: 1,
            flags: ENTRY_GET
                | ENTRY_NO_UNLINK_EVENT
                | if mark.number.is_multiple_of(2) { COMMAND_COUNT_ONLY } else { 0 },
            ..Entry::default()
        };
        self.todo.push_back(append(&entry, &part));
        transfer.header_data |= u64::from(mark.bytes) << 32;
        self.todo.push_back(put(to, &transfer, &Part::default()));
    }

    /// All credits that its message carries back to the port that it goes to, of all times.
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
        Part { region: self.region, offset: self.place(flow, place) * self.terms.stride(), bytes }
    }

    /// Posts an entry for the next message of a flow that has none.
    fn post(&mut self, flow: usize) {
        let Some(incoming) = self.incoming.get_mut(flow) else { return };
        incoming.posted += 1;
        let (id, from, number) = (incoming.flow, incoming.from, incoming.posted);
        let place = (number - 1) % self.terms.window;
        let entry = Entry {
            match_bits: match_bits(id, number),
            // Entries of every second flow take any of its messages: the first that is posted takes the first that comes.
            ignore_bits: if id.is_multiple_of(2) { 0 } else { u64::from(u32::MAX) },
            user: User::Place(flow, place).encode(),
            portal: PORTAL_DATA,
            source: (!number.is_multiple_of(3)).then_some(from),
            threshold: 1,
            flags: ENTRY_PUT | ENTRY_NO_UNLINK_EVENT,
            ..Entry::default()
        };
        let bytes = if self.terms.receive == Receive::Posted { self.terms.most_bytes } else { 0 };
        if bytes > 0 {
            self.posted.insert(self.place(flow, place));
        }
        let command = append(&entry, &self.part_of(flow, place, bytes));
        self.todo.push_back(command);
    }

    /// Posts an overflow entry.
    fn post_chunk(&mut self, number: usize) {
        if let Some(chunk) = self.chunks.get_mut(number) {
            *chunk = Chunk::default();
        }
        let part =
            Part { region: self.region, offset: self.chunk_offset(number), bytes: self.terms.chunk_bytes() };
        let entry = Entry {
            ignore_bits: u64::MAX,
            user: User::Chunk(number).encode(),
            portal: PORTAL_DATA,
            threshold: THRESHOLD_INFINITE,
            max_size: self.terms.most_bytes,
            flags: ENTRY_PUT | ENTRY_OVERFLOW | ENTRY_MAX_SIZE,
            ..Entry::default()
        };
        self.todo.push_back(append(&entry, &part));
    }

    /// Where the memory of an overflow entry begins.
    fn chunk_offset(&self, chunk: usize) -> u64 {
        let places = (self.incoming.len() as u64 + 1) * self.terms.window;
        places * self.terms.stride() + chunk as u64 * self.terms.chunk_bytes()
    }

    /// Whether the card may store bytes there: a place that is posted, or overflow memory.
    #[must_use]
    pub fn is_posted(&self, offset: usize, bytes: u64) -> bool {
        let offset = offset as u64;
        if offset >= self.chunk_offset(0) {
            return true;
        }
        let (place, within) = (offset / self.terms.stride(), offset % self.terms.stride());
        within + bytes <= self.terms.most_bytes && self.posted.contains(&place)
    }

    /// The program reads an event.
    pub fn on_event(&mut self, event: &Event, judge: &mut Judge) -> Said {
        let [user, match_bits, header_data, requested, moved, offset, source, _, chunk_user, _, status] =
            *event;
        let (kind, result) = (event_kind(status), event_result(status));
        let end = self.end;
        let is_whole = result == RESULT_OK && (kind == EVENT_UNLINKED || moved == requested);
        if !is_whole {
            judge.fail(Check::RightContents, || {
                format!("{end:?}: an event of kind {kind} with result {result}: {moved} of {requested} bytes")
            });
        }
        let mark = Mark {
            flow: (match_bits >> 32) as u32,
            bytes: requested as u32,
            number: match_bits & u64::from(u32::MAX),
        };
        match (kind, User::decode(user)) {
            (EVENT_PUT, User::Place(flow, place)) => {
                self.take_credits(mark.flow, header_data);
                if self.terms.receive == Receive::Get {
                    self.fetch(flow, place, &Mark { bytes: (header_data >> 32) as u32, ..mark });
                    return Said::Other;
                }
                let part = self.part_of(flow, place, moved);
                self.receive(&mark, source_of(source), part.offset + offset, judge);
                self.renew(flow, place);
                Said::Received
            }
            (EVENT_REPLY, User::Place(flow, place)) => {
                let from = self.incoming.get(flow).map_or(end, |incoming| incoming.from);
                let part = self.part_of(flow, place, moved);
                self.receive(&mark, from, part.offset + offset, judge);
                self.renew(flow, place);
                Said::Received
            }
            (EVENT_PUT_UNEXPECTED, User::Chunk(chunk)) => {
                self.chunks.iter_mut().skip(chunk).take(1).for_each(|chunk| chunk.held += 1);
                self.claim(&mark);
                Said::Other
            }
            (EVENT_PUT_OVERFLOW, User::Place(flow, _)) => {
                self.take_credits(mark.flow, header_data);
                let User::Chunk(chunk) = User::decode(chunk_user) else {
                    judge.fail(Check::RightMemory, || format!("{end:?}: {mark:?} is in no overflow entry"));
                    return Said::Other;
                };
                let begin = self.chunk_offset(chunk) + offset;
                self.receive(&mark, source_of(source), begin, judge);
                self.give_up(chunk, |chunk| chunk.held = chunk.held.saturating_sub(1));
                self.give_credit(flow);
                Said::Received
            }
            (EVENT_UNLINKED, User::Chunk(chunk)) => {
                self.give_up(chunk, |chunk| chunk.is_unlinked = true);
                Said::Other
            }
            (EVENT_ACK | EVENT_SENT | EVENT_GET, _) => Said::Other,
            (kind, user) => {
                judge.fail(Check::RightPort, || format!("{end:?}: an event of kind {kind} about {user:?}"));
                Said::Other
            }
        }
    }

    /// A message is in the region, from `begin` on.
    fn receive(&self, mark: &Mark, from: End, begin: u64, judge: &mut Judge) {
        let bytes = self.memory.part(begin, mark.bytes.into());
        let words = bytes.chunks(8).map(|bytes| {
            let mut word = [0; 8];
            word.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
            u64::from_le_bytes(word)
        });
        judge.on_received(self.end, from, mark, words);
    }

    /// A place was read, and takes another message.
    fn renew(&mut self, flow: usize, place: u64) {
        self.posted.remove(&self.place(flow, place));
        self.post(flow);
        self.give_credit(flow);
    }

    /// The sender of a flow may send another message. It is told at once where credits were not carried back for long.
    fn give_credit(&mut self, flow: usize) {
        let Some(incoming) = self.incoming.get_mut(flow) else { return };
        incoming.due += 1;
        let Some(due) = incoming.due.checked_sub(self.terms.credit_batch()) else { return };
        incoming.due = due;
        let transfer =
            Transfer { match_bits: incoming.flow.into(), portal: PORTAL_CREDIT, ..Transfer::default() };
        self.todo.push_back(put(incoming.from, &transfer, &Part::default()));
    }

    /// Gets the message that was announced.
    fn fetch(&mut self, flow: usize, place: u64, mark: &Mark) {
        let Some(from) = self.incoming.get(flow).map(|incoming| incoming.from) else { return };
        self.posted.insert(self.place(flow, place));
        let transfer = Transfer {
            match_bits: match_bits(mark.flow, mark.number),
            user: User::Place(flow, place).encode(),
            portal: PORTAL_GET,
            ..Transfer::default()
        };
        let part = self.part_of(flow, place, u64::from(mark.bytes).min(self.terms.most_bytes));
        self.todo.push_back(get(from, &transfer, &part));
    }

    /// Posts an entry for a message that was not expected.
    fn claim(&mut self, mark: &Mark) {
        let Some(flow) = self.incoming.iter().position(|incoming| incoming.flow == mark.flow) else { return };
        let place = mark.number.wrapping_sub(1) % self.terms.window;
        let entry = Entry {
            match_bits: match_bits(mark.flow, mark.number),
            user: User::Place(flow, place).encode(),
            portal: PORTAL_DATA,
            source: self.incoming.get(flow).map(|incoming| incoming.from),
            threshold: 1,
            flags: ENTRY_PUT | ENTRY_NO_UNLINK_EVENT,
            ..Entry::default()
        };
        let part = self.part_of(flow, place, self.terms.most_bytes);
        self.todo.push_back(append(&entry, &part));
    }

    /// Changes an overflow entry, and posts it again when nothing is in it.
    fn give_up(&mut self, number: usize, change: impl FnOnce(&mut Chunk)) {
        let Some(chunk) = self.chunks.get_mut(number) else { return };
        change(chunk);
        if chunk.is_unlinked && chunk.held == 0 {
            self.post_chunk(number);
        }
    }

    /// A message of `flow` carries credits for what this port sends to its sender.
    fn take_credits(&mut self, flow: FlowId, header_data: u64) {
        let Some(incoming) = self.incoming.iter().find(|incoming| incoming.flow == flow) else { return };
        if let Some(outgoing) = self.outgoing.as_mut().filter(|outgoing| outgoing.to == incoming.from) {
            let news = (header_data as u32).wrapping_sub(outgoing.carried as u32);
            outgoing.carried += u64::from(news);
        }
    }
}

/// The match bits of a message: its flow, and its number in it.
const fn match_bits(flow: FlowId, number: u64) -> u64 {
    (flow as u64) << 32 | number & 0xffff_ffff
}

/// The sender in an event's source word.
const fn source_of(word: u64) -> End {
    End { node: (word >> 48) as u16, port: (word >> 32) as u16 }
}
