//! The target: match entries of this card's programs, the messages that they take, and the gets that they answer. A
//! message that arrives before a posted entry for it waits among the unexpected messages.

use alloc::collections::BTreeMap;

use niclab_abi::event::{CAUSE_FIRMWARE, CAUSE_MESSAGE};
use niclab_abi::matching::{
    EVENT_GET, EVENT_PUT, EVENT_PUT_OVERFLOW, EVENT_PUT_UNEXPECTED, EVENT_UNLINKED, ListEvent, PORTALS,
    RESULT_BAD_REGION, RESULT_BAD_VALUE, RESULT_LIST_FULL, RESULT_NO_MATCH, RESULT_NO_ROOM, RESULT_NO_TARGET,
    RESULT_NOT_FOUND, RESULT_OK, RESULT_TRUNCATED,
};
use niclab_isa::image::ImageError;

use crate::models::matching::command::Append;
use crate::models::matching::config::{Config, PORTS};
use crate::models::matching::counters::Effects;
use crate::models::matching::engine::{Engine, EntryLocation, List, MAX_PROGRAM_WORDS};
use crate::models::matching::item::Item;
use crate::models::matching::list_manager::Matched;
use crate::models::matching::port::{EVENTS_AT_ONCE, MatchPort, Told};
use crate::models::matching::transport::{Arrived, RegionPart};
use crate::models::matching::wire::{Header, Operation};
use crate::parts::host_interface::HostInterface;
use crate::parts::port::Promise;
use crate::time::Time;

/// Cost of an entry when a port or a region is closed, in units of [`crate::nic::Nic::work_done`]. Ours: how work is
/// counted.
const ENTRY_WORK: u64 = 4;

/// A match entry: the part that the match unit does not use.
#[derive(Debug)]
struct Entry {
    user: u64,
    portal: u8,
    memory: RegionPart,
    counter: Option<u8>,
    count_only: bool,
    is_overflow: bool,
    /// Whether the program wants an event when the entry unlinks itself.
    tells_unlink: bool,
    /// Where the item is stored, while it is linked or about to be.
    location: Option<EntryLocation>,
    /// Operations that the entry has begun and not ended.
    in_flight: u32,
    /// A command has unlinked the entry. The card answers the command when the entry has no operations in flight.
    unlinking: Option<Promise>,
}

impl Entry {
    /// The list of this port to which the entry belongs.
    const fn list(&self, port: usize) -> List {
        List { port, portal: self.portal, is_overflow: self.is_overflow }
    }

    /// The part of the entry's memory that a message is stored in.
    const fn part(&self, matched: &Matched) -> RegionPart {
        RegionPart {
            region: self.memory.region,
            offset: self.memory.offset.saturating_add(matched.offset),
            bytes: matched.length,
        }
    }
}

/// A message that an overflow entry took.
#[derive(Clone, Copy, Debug)]
struct Unexpected {
    /// Numbers rise in the order of arrival.
    number: u64,
    header: Header,
    /// Offset in the overflow entry's memory.
    offset: u64,
    /// Bytes that were stored.
    bytes: u64,
    overflow_handle: u32,
    overflow_user: u64,
    /// The complete message is in memory.
    is_stored: bool,
}

/// An append that searches the unexpected messages.
#[derive(Clone, Copy, Debug)]
struct Appending {
    handle: u32,
    item: Item,
    location: EntryLocation,
    /// Messages with lower numbers were searched already.
    next: u64,
}

/// An operation that an entry has begun: a put that arrives, a get that is being answered, or the claim of a message
/// that is not stored yet.
#[derive(Debug)]
struct Taken {
    handle: u32,
    /// Offset in the entry's memory.
    offset: u64,
    bytes: u64,
    /// Room for its events: the result, and that the entry is not linked any more.
    promise: Promise,
}

/// A port's entries and the messages for them.
#[derive(Debug, Default)]
struct Lists {
    /// By handle.
    entries: BTreeMap<u32, Entry>,
    /// Arriving puts, by number. For an overflow entry this is also the number of the unexpected message.
    arriving: BTreeMap<u64, Taken>,
    /// Gets of other ports that are being answered, by number.
    served: BTreeMap<u64, (Header, Taken)>,
    /// By portal, and by number, which is the order of arrival.
    unexpected: [BTreeMap<u64, Unexpected>; PORTALS as usize],
    /// Unexpected messages that an entry claimed before they were stored, by number.
    claimed: BTreeMap<u64, (Unexpected, Taken)>,
    appending: Option<Appending>,
}

impl Lists {
    /// Number of unexpected messages that the card remembers for the port.
    fn unexpected_messages(&self) -> usize {
        self.unexpected.iter().map(BTreeMap::len).sum::<usize>() + self.claimed.len()
    }

    /// An entry that is linked, or has operations in flight.
    fn entry(&self, handle: u32) -> Option<&Entry> {
        let entry = self.entries.get(&handle);
        debug_assert!(entry.is_some(), "an entry stays until its last operation is over");
        entry
    }
}

/// The end of an entry's operation.
#[derive(Clone, Copy, Debug)]
struct Ended {
    kind: u32,
    result: u32,
    /// A success may be only counted; a failure is always reported.
    is_success: bool,
    moved_bytes: u64,
}

/// A message for which the search found an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Identifies the operation.
    pub(super) number: u64,
    pub(super) memory: RegionPart,
    /// Offset in the entry's memory.
    pub(super) offset: u64,
    pub(super) at: Time,
    /// `RESULT_OK`, or the result for an entry that takes less than the message has.
    pub(super) result: u32,
}

/// A message for which the search found no entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missed {
    pub(super) at: Time,
    /// The reason.
    pub(super) result: u32,
}

/// The answer to a put's initiator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    pub(super) bytes: u64,
    pub(super) offset: u64,
    pub(super) result: u32,
}

/// The target of a card.
#[derive(Debug)]
pub(super) struct Target {
    node: u16,
    max_unexpected: usize,
    pub(super) engine: Engine,
    ports: [Lists; PORTS],
}

impl Target {
    pub(super) fn new(config: &Config, interface: &HostInterface) -> Result<Self, ImageError> {
        Ok(Self {
            node: config.node,
            max_unexpected: config.unexpected_messages as usize,
            engine: Engine::new(config, interface)?,
            ports: Default::default(),
        })
    }

    /// Whether an append of this port still waits for room. The port accepts no other command in the meantime.
    #[inline]
    pub(super) const fn is_appending(&self, port: usize) -> bool {
        self.ports[port].appending.is_some()
    }
}

// Messages.
impl Target {
    /// Whether the addressed target can take a message: its list and port, or the `RESULT_` constant of the refusal.
    fn list<'a>(header: &Header, port: Option<&'a mut MatchPort>) -> Result<(List, &'a mut MatchPort), u32> {
        let port = port.ok_or(RESULT_NO_TARGET)?;
        if u32::from(header.portal) >= PORTALS {
            return Err(RESULT_NO_TARGET);
        }
        if !port.queue.has_room(EVENTS_AT_ONCE) {
            return Err(RESULT_NO_ROOM);
        }
        Ok((List { port: port.index, portal: header.portal, is_overflow: false }, port))
    }

    /// Matches a header. The entry that takes the message gets one more operation in flight, with room for its events.
    fn search(
        &mut self,
        now: Time,
        header: &Header,
        port: Option<&mut MatchPort>,
        effects: &mut Effects,
    ) -> Result<(Time, Taken, Matched), Missed> {
        let (list, port) = Self::list(header, port).map_err(|result| {
            let is_for_room = result == RESULT_NO_ROOM;
            let counters = &mut effects.counters;
            counters.card.overruns += u64::from(is_for_room);
            counters.unmatched += u64::from(!is_for_room);
            // Wall time decides whether the card has seen the program's release by now.
            counters.card.unordered += u64::from(is_for_room);
            Missed { at: now, result }
        })?;
        let lists = &mut self.ports[list.port];
        let is_put = header.operation == Operation::Put;
        let may_be_unexpected = is_put && lists.unexpected_messages() < self.max_unexpected;
        let verdict = self.engine.search(now, list, may_be_unexpected, &header.for_matching(), effects);
        if verdict.has_fallen_back {
            effects.interrupt(verdict.at, CAUSE_FIRMWARE, 0, None);
        }
        let counters = &mut effects.counters;
        let Some((handle, matched)) = verdict.matched else {
            let is_full = is_put && !may_be_unexpected;
            counters.card.overruns += u64::from(is_full);
            counters.unmatched += u64::from(!is_full);
            let result = if is_full { RESULT_NO_ROOM } else { RESULT_NO_MATCH };
            return Err(Missed { at: verdict.at, result });
        };
        let entry = lists.entries.get_mut(&handle);
        debug_assert!(entry.is_some(), "only entries are linked");
        if let Some(entry) = entry {
            entry.in_flight += 1;
            if let Some(location) = entry.location.take_if(|_| matched.is_unlinked) {
                self.engine.give_location_back(location);
            }
        }
        counters.truncated += u64::from(matched.length < header.bytes);
        let promise = port.queue.promise(EVENTS_AT_ONCE);
        let taken = Taken { handle, offset: matched.offset, bytes: matched.length, promise };
        Ok((verdict.at, taken, matched))
    }

    /// Finds the memory for a put.
    pub(super) fn begin_put(
        &mut self,
        now: Time,
        header: &Header,
        port: Option<&mut MatchPort>,
        effects: &mut Effects,
    ) -> Result<Found, Missed> {
        let (at, taken, matched) = self.search(now, header, port, effects)?;
        let number = effects.next_token();
        let lists = &mut self.ports[usize::from(header.target_port)];
        let memory = lists.entry(taken.handle).map_or(RegionPart::NONE, |entry| entry.part(&matched));
        match lists.entries.get(&taken.handle).filter(|entry| entry.is_overflow) {
            Some(entry) => {
                effects.counters.unexpected += 1;
                let unexpected = Unexpected {
                    number,
                    header: *header,
                    offset: matched.offset,
                    bytes: matched.length,
                    overflow_handle: taken.handle,
                    overflow_user: entry.user,
                    is_stored: false,
                };
                lists.unexpected[usize::from(header.portal)].insert(number, unexpected);
            }
            None => effects.counters.expected += 1,
        }
        let offset = taken.offset;
        lists.arriving.insert(number, taken);
        Ok(Found { number, memory, offset, at, result: RESULT_OK })
    }

    /// Finds the data that answers a get.
    pub(super) fn begin_get(
        &mut self,
        now: Time,
        header: &Header,
        port: Option<&mut MatchPort>,
        effects: &mut Effects,
    ) -> Result<Found, Missed> {
        let found = self.search(now, header, port, effects);
        let number = effects.next_token();
        let (at, taken, matched) = found?;
        let lists = &mut self.ports[usize::from(header.target_port)];
        let memory = lists.entry(taken.handle).map_or(RegionPart::NONE, |entry| entry.part(&matched));
        lists.served.insert(number, (*header, taken));
        let result = if matched.length < header.bytes { RESULT_TRUNCATED } else { RESULT_OK };
        Ok(Found { number, memory, offset: matched.offset, at, result })
    }

    /// A get of another port has left the entry's memory, or cannot.
    pub(super) fn end_get(
        &mut self,
        now: Time,
        number: u64,
        failure: u32,
        port: &mut MatchPort,
        effects: &mut Effects,
    ) {
        // The get ended with the region that it read.
        let Some((header, mut taken)) = self.ports[port.index].served.remove(&number) else { return };
        let is_success = failure == RESULT_OK;
        let is_cut = is_success && taken.bytes < header.bytes;
        let ended = Ended {
            kind: EVENT_GET,
            result: if is_cut { RESULT_TRUNCATED } else { failure },
            is_success,
            moved_bytes: if is_success { taken.bytes } else { 0 },
        };
        self.tell(now, &header, &mut taken, ended, ListEvent::default(), port, effects);
        self.end_operation(now, taken, port, effects);
    }

    /// A put is stored, or never will be completely. Returns the answer for its initiator.
    pub(super) fn end_put(
        &mut self,
        at: Time,
        number: u64,
        arrived: &Arrived,
        port: &mut MatchPort,
        effects: &mut Effects,
    ) -> Verdict {
        let Arrived { header, message, bytes, result, .. } = *arrived;
        let is_success = result == RESULT_OK;
        let result = if is_success && bytes < header.bytes { RESULT_TRUNCATED } else { result };
        let taken = self.ports[port.index].arriving.remove(&number);
        debug_assert!(taken.is_some(), "a put that arrives ends once");
        let Some(mut taken) = taken else { return Verdict { bytes, offset: 0, result } };
        let offset = taken.offset;
        let is_overflow = self.ports[port.index].entry(taken.handle).is_some_and(|entry| entry.is_overflow);
        let kind = if is_overflow { EVENT_PUT_UNEXPECTED } else { EVENT_PUT };
        let ended = Ended { kind, result, is_success, moved_bytes: bytes };
        port.on_data(at);
        effects.attribute(message);
        let (consumed, counted) =
            self.tell(at, &header, &mut taken, ended, ListEvent::default(), port, effects);
        if header.interrupt {
            let visible = counted.max(port.queue.visible());
            effects.interrupt(visible, CAUSE_MESSAGE, port.index, message);
        }
        if is_success {
            effects.counters.card.messages_received += 1;
            if let Some(message) = message {
                effects.interface.ledger_mut().complete(&message, consumed.max(counted));
            }
        }
        self.end_operation(at, taken, port, effects);
        if is_overflow {
            self.on_unexpected_stored(at, header.portal, number, is_success, port, effects);
        }
        Verdict { bytes, offset, result }
    }

    /// An unexpected message is in memory, or never will be. From now on it can be reported.
    fn on_unexpected_stored(
        &mut self,
        at: Time,
        portal: u8,
        number: u64,
        is_success: bool,
        port: &mut MatchPort,
        effects: &mut Effects,
    ) {
        let lists = &mut self.ports[port.index];
        if let Some((mut unexpected, taken)) = lists.claimed.remove(&number) {
            unexpected.is_stored = is_success;
            self.tell_claim(at, &unexpected, taken, port, effects);
            return;
        }
        let queue = &mut lists.unexpected[usize::from(portal)];
        if !is_success {
            queue.remove(&number);
        } else if let Some(unexpected) = queue.get_mut(&number) {
            unexpected.is_stored = true;
        }
    }

    /// Reports or counts the result of an operation, as its entry requests. Returns when the program knows it, and when
    /// the count is visible.
    #[expect(clippy::too_many_arguments, reason = "who, what and where of an event")]
    fn tell(
        &self,
        at: Time,
        header: &Header,
        taken: &mut Taken,
        ended: Ended,
        event: ListEvent,
        port: &mut MatchPort,
        effects: &mut Effects,
    ) -> (Time, Time) {
        let Some(entry) = self.ports[port.index].entry(taken.handle) else { return (at, at) };
        let mut consumed = at;
        if !(entry.count_only && ended.is_success)
            && let Some(place) = taken.promise.take_one()
        {
            let event = ListEvent {
                user: entry.user,
                match_bits: header.match_bits,
                header_data: header.header_data,
                requested_bytes: header.bytes,
                moved_bytes: ended.moved_bytes,
                offset: taken.offset,
                ..event
            };
            let told = Told {
                kind: ended.kind,
                result: ended.result,
                portal: header.portal,
                node: header.source_node,
                port: header.source_port,
                handle: taken.handle,
                event,
            };
            consumed = port.tell(at, place, &told, effects);
        }
        (consumed, port.count(at, entry.counter, ended.is_success, effects))
    }

    /// An operation of an entry has ended and was reported. If it was the last one of an unlinked entry, the entry
    /// ends, too. The remaining event room then reports the unlinking, or is released.
    fn end_operation(&mut self, at: Time, taken: Taken, port: &mut MatchPort, effects: &mut Effects) {
        let Taken { handle, mut promise, .. } = taken;
        let entries = &mut self.ports[port.index].entries;
        let entry = entries.get_mut(&handle);
        debug_assert!(entry.is_some(), "an entry stays until its last operation is over");
        let is_over = entry.is_some_and(|entry| {
            entry.in_flight = entry.in_flight.saturating_sub(1);
            entry.location.is_none() && entry.in_flight == 0
        });
        if let Some(mut entry) = is_over.then(|| entries.remove(&handle)).flatten() {
            let own = || if entry.tells_unlink { promise.take_one() } else { None };
            let unlinked = entry.unlinking.take().or_else(own);
            if let Some(place) = unlinked {
                self.tell_unlinked(at, handle, &entry, place, port, effects);
            }
        }
        port.queue.forgo(promise);
    }

    /// Reports that an entry is not linked any more, and that its memory belongs to the program again.
    fn tell_unlinked(
        &self,
        at: Time,
        handle: u32,
        entry: &Entry,
        place: Promise,
        port: &mut MatchPort,
        effects: &mut Effects,
    ) {
        let event = ListEvent { user: entry.user, ..ListEvent::default() };
        let told = Told {
            kind: EVENT_UNLINKED,
            result: RESULT_OK,
            portal: entry.portal,
            node: self.node,
            port: port.index as u8,
            handle,
            event,
        };
        effects.unattributed(|effects| port.tell(at, place, &told, effects));
    }
}

// Commands.
impl Target {
    /// Takes a match entry whose memory was checked, and then searches the unexpected messages for it.
    ///
    /// # Errors
    /// The `RESULT_` constant that gives the reason for the refusal.
    pub(super) fn append(
        &mut self,
        ready: Time,
        handle: u32,
        append: &Append,
        port: &mut MatchPort,
        effects: &mut Effects,
    ) -> Result<(), u32> {
        let lists = &mut self.ports[port.index];
        if lists.entries.contains_key(&handle) {
            // Handles repeat after 2^32 posts, and the first entry with this one still exists.
            return Err(RESULT_BAD_VALUE);
        }
        let list = List { port: port.index, portal: append.portal, is_overflow: append.is_overflow };
        let location = self.engine.take_location(list).ok_or(RESULT_LIST_FULL)?;
        let entry = Entry {
            user: append.user,
            portal: append.portal,
            memory: append.memory,
            counter: append.counter,
            count_only: append.count_only,
            is_overflow: append.is_overflow,
            tells_unlink: !append.no_unlink_event,
            location: Some(location),
            in_flight: 0,
            unlinking: None,
        };
        lists.entries.insert(handle, entry);
        lists.appending = Some(Appending { handle, item: append.item, location, next: 0 });
        self.search_unexpected(ready, port, effects);
        Ok(())
    }

    /// Searches the unexpected messages for the entry that is being appended, if there is one, and links what remains
    /// of it. The program decides, as it does for messages that arrive later. If the event queue has no room for a
    /// result, the append waits for room, and with it the port's other commands. Messages that arrive in the meantime
    /// are found, too, because they come later in the order.
    pub(super) fn search_unexpected(&mut self, now: Time, port: &mut MatchPort, effects: &mut Effects) {
        let index = port.index;
        let (mut now, mut words) = (now, MAX_PROGRAM_WORDS);
        while let Some(mut appending) = self.ports[index].appending.take() {
            let (at, found) = self.find_unexpected(now, index, &mut appending, &mut words, effects);
            now = at;
            let lists = &mut self.ports[index];
            let entry = lists.entries.get_mut(&appending.handle);
            debug_assert!(entry.is_some(), "an entry that is appended stays until it is linked");
            let Some(entry) = entry else { return };
            let Some((item, is_used_up)) = found else {
                let list = entry.list(index);
                let Appending { handle, item, location, .. } = appending;
                let at = self.engine.link(now, list, handle, item, location, effects);
                port.on_data(at);
                return;
            };
            if !port.queue.has_room(EVENTS_AT_ONCE) {
                lists.appending = Some(appending);
                return;
            }
            let Some(unexpected) = lists.unexpected[usize::from(entry.portal)].remove(&appending.next) else {
                debug_assert!(false, "the search found the message there");
                return;
            };
            (appending.item, appending.next) = (item, unexpected.number + 1);
            effects.counters.claimed += 1;
            entry.in_flight += 1;
            let Unexpected { offset, bytes, .. } = unexpected;
            let promise = port.queue.promise(EVENTS_AT_ONCE);
            let taken = Taken { handle: appending.handle, offset, bytes, promise };
            if is_used_up {
                entry.location = None;
                self.engine.give_location_back(appending.location);
            } else {
                lists.appending = Some(appending);
            }
            if unexpected.is_stored {
                self.tell_claim(now, &unexpected, taken, port, effects);
            } else {
                lists.claimed.insert(unexpected.number, (unexpected, taken));
            }
        }
    }

    /// Has the program check the unexpected messages from [`Appending::next`] on, until the entry takes one, which
    /// `next` then names. Returns when this is known, what would remain of the entry, and whether it is used up.
    fn find_unexpected(
        &mut self,
        now: Time,
        port: usize,
        appending: &mut Appending,
        words: &mut u64,
        effects: &mut Effects,
    ) -> (Time, Option<(Item, bool)>) {
        let lists = &self.ports[port];
        let entry = lists.entry(appending.handle).filter(|entry| !entry.is_overflow);
        let Some(entry) = entry else { return (now, None) };
        let mut now = now;
        for (&number, unexpected) in lists.unexpected[usize::from(entry.portal)].range(appending.next..) {
            effects.spend(1);
            let (mut item, header) = (appending.item, unexpected.header.for_matching());
            let verdict = self.engine.look_at_unexpected(now, &mut item, &header, words, effects);
            if verdict.has_fallen_back {
                effects.interrupt(verdict.at, CAUSE_FIRMWARE, 0, None);
            }
            now = verdict.at;
            if let Some((_, matched)) = verdict.matched {
                appending.next = number;
                return (now, Some((item, matched.is_unlinked)));
            }
        }
        (now, None)
    }

    /// Reports that an entry has taken a message that arrived before it.
    fn tell_claim(
        &mut self,
        now: Time,
        unexpected: &Unexpected,
        mut taken: Taken,
        port: &mut MatchPort,
        effects: &mut Effects,
    ) {
        let header = &unexpected.header;
        let is_success = unexpected.is_stored;
        let ended = Ended {
            kind: EVENT_PUT_OVERFLOW,
            result: match is_success {
                true if taken.bytes < header.bytes => RESULT_TRUNCATED,
                true => RESULT_OK,
                false => RESULT_BAD_REGION,
            },
            is_success,
            moved_bytes: if is_success { taken.bytes } else { 0 },
        };
        let event = ListEvent {
            overflow_handle: unexpected.overflow_handle.into(),
            overflow_user: unexpected.overflow_user,
            ..ListEvent::default()
        };
        self.tell(now, header, &mut taken, ended, event, port, effects);
        self.end_operation(now, taken, port, effects);
    }

    /// Removes an entry from its list, for a command.
    pub(super) fn unlink(&mut self, ready: Time, handle: u32, port: &mut MatchPort, effects: &mut Effects) {
        let place = port.queue.promise(1);
        let entries = &mut self.ports[port.index].entries;
        let entry = entries.get_mut(&handle).and_then(|entry| Some((entry.location.take()?, entry)));
        let Some((memory, entry)) = entry else {
            let told = Told {
                kind: EVENT_UNLINKED,
                result: RESULT_NOT_FOUND,
                node: self.node,
                port: port.index as u8,
                handle,
                ..Told::default()
            };
            port.tell(ready, place, &told, effects);
            return;
        };
        let unlinked = self.engine.unlink(ready, entry.list(port.index), handle, effects);
        self.engine.give_location_back(memory);
        if entry.in_flight > 0 {
            entry.unlinking = Some(place);
        } else if let Some(entry) = entries.remove(&handle) {
            self.tell_unlinked(unlinked, handle, &entry, place, port, effects);
        }
    }
}

// Closing ports and regions.
impl Target {
    /// Closes a port.
    pub(super) fn close(&mut self, port: usize, effects: &mut Effects) {
        self.engine.clear(port);
        effects.spend(ENTRY_WORK * self.ports[port].entries.len() as u64);
        for entry in self.forget(port).into_values() {
            entry.location.into_iter().for_each(|place| self.engine.give_location_back(place));
            entry.unlinking.into_iter().for_each(Promise::void);
        }
    }

    /// Forgets a port, and releases the event room of its operations. Returns the entries.
    fn forget(&mut self, port: usize) -> BTreeMap<u32, Entry> {
        let lists = core::mem::take(&mut self.ports[port]);
        let Lists { entries, arriving, served, claimed, .. } = lists;
        let taken = arriving.into_values();
        let taken = taken.chain(served.into_values().map(|(_, taken)| taken));
        taken.chain(claimed.into_values().map(|(_, taken)| taken)).for_each(|taken| taken.promise.void());
        entries
    }

    /// A region is closed: unlinks the entries in it. Only entries that an unlink command waits for get events.
    pub(super) fn unlink_region(&mut self, port: usize, region: u32, effects: &mut Effects) {
        let lists = &mut self.ports[port];
        effects.spend(ENTRY_WORK * lists.entries.len() as u64);
        let mut unlinked = alloc::vec::Vec::new();
        for (&handle, entry) in &mut lists.entries {
            if !entry.memory.is_in(region) {
                continue;
            }
            entry.tells_unlink = false;
            if let Some(location) = entry.location.take() {
                unlinked.push(handle);
                self.engine.give_location_back(location);
            }
        }
        self.engine.unlink_all(port, &unlinked);
        let is_gone = |handle: u32| lists.entries.get(&handle).is_none_or(|entry| entry.location.is_none());
        lists.appending.take_if(|appending| is_gone(appending.handle));
    }

    /// Numbers of the gets that are answered from a region.
    pub(super) fn served_from(&self, port: usize, region: u32) -> impl Iterator<Item = u64> {
        let lists = &self.ports[port];
        let served = lists.served.iter().filter(move |(_, (_, taken))| {
            let entry = lists.entries.get(&taken.handle);
            taken.bytes > 0 && entry.is_some_and(|entry| entry.memory.region == region)
        });
        served.map(|(&number, _)| number)
    }

    /// Forgets unlinked entries without operations, which the end of an operation would otherwise remove.
    pub(super) fn forget_unlinked(&mut self, port: usize) {
        self.ports[port].entries.retain(|_, entry| {
            let stays = entry.location.is_some() || entry.in_flight > 0;
            debug_assert!(stays || entry.unlinking.is_none(), "a command waits for an operation's end");
            stays
        });
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        for port in 0..PORTS {
            self.forget(port).into_values().filter_map(|entry| entry.unlinking).for_each(Promise::void);
        }
    }
}
