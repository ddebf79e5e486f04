//! Frames that arrive: checked, put in order by the link, matched, and stored where they belong.

use core::ops::Range;

use niclab_abi::event::{CAUSE_FIRMWARE, CAUSE_MESSAGE};
use niclab_abi::matching::{
    EVENT_GET, EVENT_PUT, EVENT_PUT_UNEXPECTED, MatchEvent, PORTALS, RESULT_BAD_REGION, RESULT_NO_MATCH,
    RESULT_NO_ROOM, RESULT_NO_TARGET, RESULT_OK, RESULT_TRUNCATED,
};

use crate::matching::commands::Memory;
use crate::matching::config::PORTS;
use crate::matching::effects::Machine;
use crate::matching::engine::List;
use crate::matching::events::EVENTS_AT_ONCE;
use crate::matching::list_manager::Matched;
use crate::matching::messages::{Done, NO_MEMORY, Outgoing};
use crate::matching::nic::Match;
use crate::matching::port::{Served, Told, Unexpected};
use crate::matching::wire::{Frame, Header, Kind, Operation, WireError};
use crate::parts::go_back_n;
use crate::parts::message::Message;
use crate::time::Time;

/// Where the data of a message goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Into {
    /// Nowhere: nobody takes it.
    Nothing,
    /// A match entry's memory.
    Entry {
        /// Handle.
        handle: u32,
        /// Where in the entry's memory.
        offset: u64,
        /// Of an overflow entry: the message's number among the unexpected.
        unexpected: Option<u64>,
    },
    /// What a get asked for.
    Command { token: u64 },
}

/// A message that has begun to arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reception {
    pub(super) header: Header,
    message: Option<Message>,
    received: u64,
    /// The port of this card whose message it is.
    pub(super) port: usize,
    pub(super) into: Into,
    /// As much of it as is stored, and where.
    pub(super) memory: Memory,
    /// When what was stored last is visible.
    visible: Time,
}

impl Reception {
    /// The same message, which nobody takes any more.
    pub(super) const fn without_taker(self) -> Self {
        Self { into: Into::Nothing, memory: NO_MEMORY, ..self }
    }
}

impl Match {
    /// A frame from the network, whole.
    pub(super) fn on_frame(&mut self, now: Time, bytes: &[u8], message: Option<Message>) {
        self.effects.interface.ledger_mut().attribute(message);
        let frame = match Frame::parse(bytes) {
            Ok(frame) => frame,
            Err(WireError::Check) => {
                self.effects.counters.damaged += 1;
                return;
            }
            Err(_) => {
                self.effects.counters.malformed += 1;
                return;
            }
        };
        let Frame { link, kind, data } = frame;
        if link.destination != self.config.node || u32::from(link.source) >= self.config.nodes {
            self.effects.counters.malformed += 1;
            return;
        }
        let checked = self.effects.work(Machine::Receive, now, bytes.len() as u64).end;
        let place = self.peers.place_of(link.source);
        let frames_before = self.peers.all[place].frames;
        self.on_link_acknowledged(checked, place, link.acknowledged);
        if !matches!(kind, Kind::Acknowledgement) {
            match self.peers.all[place].link.receive(link.sequence) {
                go_back_n::Reception::Next => {
                    self.effects.interface.ledger_mut().attribute(message);
                    self.deliver(checked, place, &kind, data, message);
                }
                go_back_n::Reception::Doubled | go_back_n::Reception::Ahead => {
                    self.effects.counters.out_of_order += 1;
                }
            }
        }
        self.pump(checked, place);
        // Every frame carries an acknowledgement, too.
        if link.asks && self.peers.all[place].frames == frames_before {
            self.acknowledge(checked, place);
        }
    }

    /// A frame that is the next one of its link.
    fn deliver(
        &mut self,
        now: Time,
        place: usize,
        kind: &Kind,
        data: Range<usize>,
        message: Option<Message>,
    ) {
        match *kind {
            Kind::First(header) => self.on_first(now, place, header, data, message),
            Kind::More { source_port, message, offset } => {
                let reception = self.reception_mut(place, source_port);
                let is_next = |it: &&mut Reception| it.header.message == message && it.received == offset;
                if reception.filter(is_next).is_some() {
                    self.take_data(now, place, source_port, data);
                } else {
                    self.effects.counters.malformed += 1;
                }
            }
            Kind::Void { source_port, message } => {
                let is_it = |it: &&mut Reception| it.header.message == message;
                if self.reception_mut(place, source_port).filter(is_it).is_some() {
                    self.end_reception(now, place, source_port, RESULT_BAD_REGION);
                }
            }
            Kind::Acknowledgement => {}
        }
    }

    fn reception_mut(&mut self, place: usize, source_port: u8) -> Option<&mut Reception> {
        self.peers.all[place].receiving.get_mut(usize::from(source_port))?.as_mut()
    }

    /// The begin of a message.
    fn on_first(
        &mut self,
        now: Time,
        place: usize,
        header: Header,
        data: Range<usize>,
        message: Option<Message>,
    ) {
        let source_port = header.source_port;
        if header.source_node != self.peers.all[place].node || usize::from(source_port) >= PORTS {
            self.effects.counters.malformed += 1;
            return;
        }
        // A card sends the messages of a port one after the other: what is not at its end has none.
        self.end_reception(now, place, source_port, RESULT_BAD_REGION);
        let nothing = Reception {
            header,
            message,
            received: 0,
            port: usize::from(header.target_port),
            into: Into::Nothing,
            memory: NO_MEMORY,
            visible: now,
        };
        let reception = match header.operation {
            Operation::Put => self.match_put(now, nothing),
            Operation::Get => return self.serve_get(now, header, message),
            Operation::Ack => return self.on_answer(now, &header),
            Operation::Reply => self.expect_reply(nothing),
        };
        // What the match unit has not decided yet cannot be stored.
        let decided = reception.visible;
        self.peers.all[place].receiving[usize::from(source_port)] = Some(reception);
        self.take_data(decided, place, source_port, data);
    }

    /// Whether the target of a message can take it: its list, or the `RESULT_` constant that says why not.
    fn target(&self, header: &Header) -> Result<List, u32> {
        let index = usize::from(header.target_port);
        let port = self.ports.get(index).and_then(Option::as_ref).ok_or(RESULT_NO_TARGET)?;
        if u32::from(header.portal) >= PORTALS {
            return Err(RESULT_NO_TARGET);
        }
        if !port.events.has_room(EVENTS_AT_ONCE) {
            return Err(RESULT_NO_ROOM);
        }
        Ok(List { port: index, portal: header.portal, is_overflow: false })
    }

    /// Matches a header. The entry that takes the message has an operation more under way, and two events are promised.
    fn search(&mut self, now: Time, header: &Header) -> Result<(Time, u32, Matched), (Time, u32)> {
        let list = self.target(header).map_err(|result| {
            let is_for_room = result == RESULT_NO_ROOM;
            self.effects.counters.refused_for_room += u64::from(is_for_room);
            self.effects.counters.unmatched += u64::from(!is_for_room);
            // Whether the program's release was seen by now, the wall clock has decided.
            self.effects.counters.unordered += u64::from(is_for_room);
            (now, result)
        })?;
        let Some(port) = &mut self.ports[list.port] else { return Err((now, RESULT_NO_TARGET)) };
        let may_be_unexpected = header.operation == Operation::Put
            && port.unexpected_messages() < self.config.unexpected_messages as usize;
        let effects = &mut self.effects;
        let verdict = self.engine.search(now, list, may_be_unexpected, &header.for_matching(), effects);
        if verdict.has_fallen_back {
            effects.interrupt(verdict.at, CAUSE_FIRMWARE, 0, None);
        }
        let Some((handle, matched)) = verdict.matched else {
            let is_full = header.operation == Operation::Put && !may_be_unexpected;
            effects.counters.refused_for_room += u64::from(is_full);
            effects.counters.unmatched += u64::from(!is_full);
            return Err((verdict.at, if is_full { RESULT_NO_ROOM } else { RESULT_NO_MATCH }));
        };
        port.events.promise(EVENTS_AT_ONCE);
        if let Some(entry) = port.entries.get_mut(&handle) {
            entry.under_way += 1;
            if let Some(place) = entry.place.take_if(|_| matched.is_unlinked) {
                self.engine.give_place_back(place);
            }
        }
        effects.counters.truncated += u64::from(matched.length < header.bytes);
        Ok((verdict.at, handle, matched))
    }

    /// Finds out where a put goes.
    fn match_put(&mut self, now: Time, reception: Reception) -> Reception {
        let header = reception.header;
        let (at, handle, matched) = match self.search(now, &header) {
            Ok(found) => found,
            Err((at, result)) => {
                self.answer_put(at, &header, 0, 0, result);
                return reception;
            }
        };
        let number = self.next_token();
        let Some(port) = &mut self.ports[reception.port] else { return reception };
        let Some(entry) = port.entries.get(&handle) else { return reception };
        let unexpected = entry.is_overflow.then_some(number);
        if entry.is_overflow {
            self.effects.counters.unexpected += 1;
            let unexpected = Unexpected {
                number,
                header,
                offset: matched.offset,
                bytes: matched.length,
                overflow_handle: handle,
                overflow_user: entry.user,
                is_stored: false,
            };
            port.unexpected[usize::from(header.portal)].insert(number, unexpected);
        } else {
            self.effects.counters.expected += 1;
        }
        let memory = part_of(&entry.memory, &matched);
        let into = Into::Entry { handle, offset: matched.offset, unexpected };
        Reception { into, memory, visible: at, ..reception }
    }

    /// Answers a get.
    fn serve_get(&mut self, now: Time, header: Header, message: Option<Message>) {
        let index = usize::from(header.target_port);
        let (at, found) = match self.search(now, &header) {
            Ok((at, handle, matched)) => (at, Ok((handle, matched))),
            Err((at, result)) => (at, Err(result)),
        };
        let number = self.next_token();
        let port = self.ports.get_mut(index).and_then(Option::as_mut);
        let served = found.ok().and_then(|(handle, matched)| {
            let port = port?;
            let entry = port.entries.get(&handle)?;
            let Matched { offset, length: bytes, .. } = matched;
            port.served.insert(number, Served { handle, header, offset, bytes });
            Some((matched, part_of(&entry.memory, &matched)))
        });
        let result = match found {
            Ok((_, matched)) if matched.length < header.bytes => RESULT_TRUNCATED,
            Ok(_) => RESULT_OK,
            Err(result) => result,
        };
        let (memory, offset) = served.map_or((NO_MEMORY, 0), |(matched, memory)| (memory, matched.offset));
        let done = if served.is_some() { Done::Served { port: index, number } } else { Done::Nothing };
        let answer = Header {
            operation: Operation::Reply,
            bytes: memory.bytes,
            offset,
            result: result as u8,
            ..self.answer_to(&header)
        };
        let outgoing = Outgoing { header: answer, memory, ready: at, message, done, sent: None };
        self.send_message(at, header.source_node, outgoing);
    }

    /// A get of another port has left the entry's memory, or cannot.
    pub(super) fn end_served(&mut self, now: Time, index: usize, number: u64, failure: u32) {
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else { return };
        let Some(Served { handle, header, offset, bytes }) = port.served.remove(&number) else { return };
        let is_cut = bytes < header.bytes;
        let result = if failure != RESULT_OK || !is_cut { failure } else { RESULT_TRUNCATED };
        let is_success = failure == RESULT_OK;
        let entry = port.entries.get(&handle).copied();
        let count_only = entry.is_some_and(|entry| entry.count_only) && is_success;
        if count_only {
            port.events.forgo(1);
        } else {
            let event = MatchEvent {
                user: entry.map_or(0, |entry| entry.user),
                match_bits: header.match_bits,
                header_data: header.header_data,
                requested_bytes: header.bytes,
                moved_bytes: if is_success { bytes } else { 0 },
                offset,
                ..MatchEvent::default()
            };
            port.tell(now, &told_of(EVENT_GET, result, handle, &header, event), &mut self.effects);
        }
        port.count(now, entry.and_then(|entry| entry.counter), is_success, &mut self.effects);
        port.end_operation(now, self.config.node, handle, true, &mut self.effects);
    }

    /// Stores the next data of a message, and ends it when it was the last.
    fn take_data(&mut self, now: Time, place: usize, source_port: u8, data: Range<usize>) {
        let Some(reception) = self.reception_mut(place, source_port) else { return };
        let before = reception.received;
        let whole = reception.header.data_bytes();
        let arrived = (data.len() as u64).min(whole - before);
        reception.received += arrived;
        let is_whole = reception.received == whole;
        let Reception { port, memory, .. } = *reception;
        let stored = arrived.min(memory.bytes.saturating_sub(before));
        if stored > 0 {
            let region = self.regions.get(port).and_then(|regions| regions.get(memory.region));
            if let Some(region) = region {
                let ranges = region.ranges(memory.offset.saturating_add(before), stored);
                let ready = self.effects.work(Machine::Store, now, stored).end;
                let bytes = data.start..data.start + stored as usize;
                let at = self.effects.dma_frame(ready, bytes, ranges);
                self.effects.counters.bytes_received += stored;
                if let Some(reception) = self.reception_mut(place, source_port) {
                    reception.visible = reception.visible.max(at);
                }
            }
        }
        if is_whole {
            self.end_reception(now, place, source_port, RESULT_OK);
        }
    }

    /// A message has arrived to its end, or never will.
    pub(super) fn end_reception(&mut self, now: Time, place: usize, source_port: u8, failure: u32) {
        let receiving = self.peers.all[place].receiving.get_mut(usize::from(source_port));
        let Some(reception) = receiving.and_then(Option::take) else { return };
        let at = now.max(reception.visible);
        let Reception { header, port, memory, .. } = reception;
        match reception.into {
            Into::Nothing => {}
            Into::Command { token } => {
                let failed = if failure == RESULT_OK { u32::from(header.result) } else { failure };
                self.on_reply(at, port, token, memory.bytes, header.offset, failed, reception.message);
            }
            Into::Entry { handle, offset, unexpected } => {
                let bytes =
                    if failure == RESULT_OK { memory.bytes } else { memory.bytes.min(reception.received) };
                self.end_put(at, &reception, handle, offset, unexpected, bytes, failure);
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all of them are what is known of the end of a put")]
    fn end_put(
        &mut self,
        at: Time,
        reception: &Reception,
        handle: u32,
        offset: u64,
        unexpected: Option<u64>,
        bytes: u64,
        failure: u32,
    ) {
        let (header, message) = (reception.header, reception.message);
        let is_success = failure == RESULT_OK;
        let is_cut = is_success && bytes < header.bytes;
        let result = if is_cut { RESULT_TRUNCATED } else { failure };
        let Some(port) = &mut self.ports[reception.port] else { return };
        let Some(entry) = port.entries.get(&handle).copied() else { return };
        port.data_visible = port.data_visible.max(at);
        self.effects.interface.ledger_mut().attribute(message);
        let mut consumed = at;
        if entry.count_only && is_success {
            port.events.forgo(1);
        } else {
            let kind = if entry.is_overflow { EVENT_PUT_UNEXPECTED } else { EVENT_PUT };
            let event = MatchEvent {
                user: entry.user,
                match_bits: header.match_bits,
                header_data: header.header_data,
                requested_bytes: header.bytes,
                moved_bytes: bytes,
                offset,
                ..MatchEvent::default()
            };
            consumed = port.tell(at, &told_of(kind, result, handle, &header, event), &mut self.effects);
        }
        let counted = port.count(at, entry.counter, is_success, &mut self.effects);
        if header.interrupt {
            let visible = counted.max(port.events.last_visible());
            self.effects.interrupt(visible, CAUSE_MESSAGE, reception.port, message);
        }
        if is_success {
            self.effects.counters.messages_received += 1;
            if let Some(message) = message {
                self.effects.interface.ledger_mut().complete(&message, consumed.max(counted));
            }
        }
        port.end_operation(at, self.config.node, handle, true, &mut self.effects);
        if let Some(number) = unexpected {
            self.on_unexpected_stored(at, reception.port, header.portal, number, is_success);
        }
        self.answer_put(at, &header, bytes, offset, result);
    }

    /// An unexpected message is in memory, or never will be: from now on it can be told of.
    fn on_unexpected_stored(&mut self, at: Time, index: usize, portal: u8, number: u64, is_success: bool) {
        let Some(port) = &mut self.ports[index] else { return };
        if let Some((mut unexpected, handle)) = port.claimed.remove(&number) {
            unexpected.is_stored = is_success;
            self.tell_claim(at, index, &unexpected, handle);
            return;
        }
        let queue = &mut port.unexpected[usize::from(portal)];
        if !is_success {
            queue.remove(&number);
        } else if let Some(unexpected) = queue.get_mut(&number) {
            unexpected.is_stored = true;
        }
    }

    /// Tells the initiator what became of its put, where it wants to know.
    pub(super) fn answer_put(&mut self, at: Time, header: &Header, bytes: u64, offset: u64, result: u32) {
        if !header.wants_answer {
            return;
        }
        let answer = Header {
            operation: Operation::Ack,
            bytes,
            offset,
            result: result as u8,
            ..self.answer_to(header)
        };
        let (memory, done) = (NO_MEMORY, Done::Nothing);
        let outgoing = Outgoing { header: answer, memory, ready: at, message: None, done, sent: None };
        self.send_message(at, header.source_node, outgoing);
    }

    const fn answer_to(&self, header: &Header) -> Header {
        Header {
            source_node: self.config.node,
            source_port: header.target_port,
            target_port: header.source_port,
            wants_answer: false,
            interrupt: false,
            message: 0,
            ..*header
        }
    }

    /// Finds the get that a message answers.
    fn expect_reply(&self, reception: Reception) -> Reception {
        let Reception { header, port, .. } = reception;
        let under_way =
            self.ports.get(port).and_then(Option::as_ref).and_then(|port| port.under_way.get(&header.token));
        let is_of = |transfer: &super::commands::Transfer| {
            transfer.is_get && (transfer.node, transfer.port) == (header.source_node, header.source_port)
        };
        let Some(under_way) = under_way.filter(|under_way| is_of(&under_way.transfer)) else {
            return reception;
        };
        let memory = under_way.transfer.memory;
        let memory = Memory { bytes: memory.bytes.min(header.bytes), ..memory };
        Reception { into: Into::Command { token: header.token }, memory, ..reception }
    }
}

/// The part of an entry's memory that a message is stored in.
const fn part_of(memory: &Memory, matched: &Matched) -> Memory {
    Memory {
        region: memory.region,
        offset: memory.offset.saturating_add(matched.offset),
        bytes: matched.length,
    }
}

/// An event about a message of another port.
pub(super) fn told_of(kind: u32, result: u32, handle: u32, header: &Header, event: MatchEvent) -> Told {
    Told {
        kind,
        result,
        portal: header.portal,
        node: header.source_node,
        port: header.source_port,
        handle,
        event,
    }
}
