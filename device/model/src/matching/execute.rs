//! Commands carried out: puts and gets begun and ended, entries appended and unlinked.

use niclab_abi::matching::{
    EVENT_ACK, EVENT_PUT_OVERFLOW, EVENT_REFUSED, EVENT_REPLY, EVENT_SENT, EVENT_UNLINKED, MatchEvent,
    RESULT_BAD_RANGE, RESULT_BAD_REGION, RESULT_BAD_VALUE, RESULT_LIST_FULL, RESULT_NOT_FOUND, RESULT_OK,
    RESULT_TRUNCATED,
};
use niclab_abi::receive::{REFUSED_COMMAND, STATUS_LINE_INTERVAL};

use crate::matching::commands::{Append, Command, Memory, Transfer};
use crate::matching::effects::{Machine, WORD_BYTES};
use crate::matching::engine::{List, UNEXPECTED_CYCLES};
use crate::matching::events::EVENTS_AT_ONCE;
use crate::matching::messages::{Done, NO_MEMORY, Outgoing};
use crate::matching::nic::Match;
use crate::matching::port::{Appending, Entry, Told, UnderWay, Unexpected};
use crate::matching::reception::told_of;
use crate::matching::reference;
use crate::matching::wire::{Header, Operation};
use crate::nic::PageStore;
use crate::parts::host_interface::BusTransfer;
use crate::parts::message::Message;
use crate::time::Time;

impl Match {
    /// A command was launched: a burst of programmed I/O, and the Load machine. The shell leaves it in the page while the port
    /// accepts none; were it passed on nonetheless, it would be dropped.
    pub(super) fn on_store(&mut self, now: Time, store: &PageStore) {
        let index = store.port as usize;
        let most = self.config.commands_under_way as usize;
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else { return };
        if !port.accepts_command(most) {
            return;
        }
        // A shell that follows a program in wall time sees the launch after the line that freed its slot, whatever the
        // model times of both.
        let now = now.max(port.slot_free());
        port.status.launched += 1;
        let handle = port.status.launched as u32;
        let is_line_due = port.status.launched.is_multiple_of(STATUS_LINE_INTERVAL.into());
        let command = Command::decode(store.code, &store.words, &self.config);
        let message = self.message_of(now, index, &command);
        let effects = &mut self.effects;
        effects.interface.ledger_mut().attribute(message);
        let bytes = store.words.len() as u64 * WORD_BYTES;
        let software_done = effects.interface.host_send(now, bytes);
        let arrived = effects.interface.transfer(BusTransfer::PioWrite, software_done, bytes).end;
        let ready = effects.work(Machine::Load, arrived, bytes).end;
        let carried_out = command.and_then(|command| self.carry_out(ready, index, handle, command, message));
        if let Err(result) = carried_out {
            self.refuse_command(ready, index, handle, store.words[2], result);
        } else if is_line_due && let Some(port) = &mut self.ports[index] {
            port.write_status(ready, &mut self.effects);
        }
    }

    /// The message that a command begins, for the ledger.
    fn message_of(&mut self, now: Time, index: usize, command: &Result<Command, u32>) -> Option<Message> {
        let Ok(Command::Transfer(transfer)) = command else { return None };
        self.messages += 1;
        Some(Message {
            node: self.config.node,
            port: index as u16,
            number: self.messages,
            launched: now.max(self.effects.interface.host_clock()),
            bytes: transfer.memory.bytes as u32,
        })
    }

    fn carry_out(
        &mut self,
        ready: Time,
        index: usize,
        handle: u32,
        command: Command,
        message: Option<Message>,
    ) -> Result<(), u32> {
        match command {
            Command::Transfer(transfer) => self.begin_transfer(ready, index, handle, transfer, message),
            Command::Append(append) => self.append(ready, index, handle, &append),
            Command::Unlink { handle } => {
                self.unlink(ready, index, handle);
                Ok(())
            }
            Command::ArmCounter { counter, threshold } => {
                if let Some(port) = &mut self.ports[index] {
                    port.arm_counter(ready, counter, threshold, &mut self.effects);
                }
                Ok(())
            }
        }
    }

    /// Tells that nothing was done of a command.
    fn refuse_command(&mut self, at: Time, index: usize, handle: u32, user: u64, result: u32) {
        let node = self.config.node;
        let Some(port) = &mut self.ports[index] else { return };
        self.effects.counters.commands_refused += 1;
        port.events.promise(1);
        let event = MatchEvent { user, ..MatchEvent::default() };
        let told =
            Told { kind: EVENT_REFUSED, result, node, port: index as u8, handle, event, ..Told::default() };
        port.tell(at, &told, &mut self.effects);
        port.refuse(at, REFUSED_COMMAND, &mut self.effects);
    }

    /// Checks that memory is part of one of the port's regions.
    fn check_memory(&self, index: usize, memory: &Memory) -> Result<(), u32> {
        if memory.bytes == 0 {
            return Ok(());
        }
        let region = self.regions[index].get(memory.region).ok_or(RESULT_BAD_REGION)?;
        if region.holds(memory.offset, memory.bytes) { Ok(()) } else { Err(RESULT_BAD_RANGE) }
    }

    fn begin_transfer(
        &mut self,
        ready: Time,
        index: usize,
        handle: u32,
        transfer: Transfer,
        message: Option<Message>,
    ) -> Result<(), u32> {
        self.check_memory(index, &transfer.memory)?;
        let token = self.next_token();
        let Some(port) = &mut self.ports[index] else { return Ok(()) };
        let is_put = !transfer.is_get;
        // A failure is always told.
        let promised = (u64::from(transfer.wants_ack) + u64::from(transfer.wants_sent)).max(1);
        port.events.promise(promised);
        let under_way = UnderWay {
            transfer,
            handle,
            waits_for_sent: is_put,
            waits_for_answer: transfer.is_get || transfer.wants_ack,
            promised,
        };
        port.under_way.insert(token, under_way);
        let header = Header {
            operation: if is_put { Operation::Put } else { Operation::Get },
            match_bits: transfer.match_bits,
            source_node: self.config.node,
            source_port: index as u8,
            target_port: transfer.port,
            portal: transfer.portal,
            bytes: transfer.memory.bytes,
            offset: transfer.remote_offset,
            header_data: transfer.header_data,
            token,
            wants_answer: transfer.wants_ack,
            interrupt: transfer.interrupt,
            ..Header::default()
        };
        let memory = if is_put { transfer.memory } else { NO_MEMORY };
        let done = if is_put { Done::Command { port: index, token } } else { Done::Nothing };
        let outgoing = Outgoing { header, memory, ready, message, done, sent: None };
        self.send_message(ready, transfer.node, outgoing);
        Ok(())
    }

    /// A message has left its memory, or could not.
    pub(super) fn on_done(&mut self, now: Time, done: Done, failure: u32) {
        match done {
            Done::Nothing => {}
            Done::Served { port, number } => self.end_served(now, port, number, failure),
            Done::Command { port, token } if failure == RESULT_OK => self.on_sent(now, port, token),
            Done::Command { port, token } => self.fail_transfer(now, port, token, failure),
        }
    }

    /// All of a put has left the memory.
    fn on_sent(&mut self, now: Time, index: usize, token: u64) {
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else { return };
        let Some(under_way) = port.under_way.get_mut(&token).filter(|it| it.waits_for_sent) else { return };
        under_way.waits_for_sent = false;
        port.status.sent += 1;
        if under_way.transfer.wants_sent {
            let bytes = under_way.transfer.memory.bytes;
            self.tell_transfer(now, index, token, EVENT_SENT, RESULT_OK, bytes, 0);
        }
        self.end_transfer(index, token);
    }

    /// The target says what became of a put.
    pub(super) fn on_answer(&mut self, now: Time, header: &Header) {
        let index = usize::from(header.target_port);
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else { return };
        let Some(under_way) = port.under_way.get_mut(&header.token) else { return };
        let transfer = &under_way.transfer;
        let is_of_it = (transfer.node, transfer.port) == (header.source_node, header.source_port);
        if transfer.is_get || !under_way.waits_for_answer || !is_of_it {
            return;
        }
        under_way.waits_for_answer = false;
        let (result, bytes, offset) = (u32::from(header.result), header.bytes, header.offset);
        self.tell_transfer(now, index, header.token, EVENT_ACK, result, bytes, offset);
        self.end_transfer(index, header.token);
    }

    /// The answer to a get is stored, or will not be.
    #[expect(clippy::too_many_arguments, reason = "all of them are what is known of the end of a get")]
    pub(super) fn on_reply(
        &mut self,
        now: Time,
        index: usize,
        token: u64,
        bytes: u64,
        offset: u64,
        result: u32,
        message: Option<Message>,
    ) {
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else { return };
        let Some(under_way) = port.under_way.get_mut(&token) else { return };
        under_way.waits_for_answer = false;
        port.data_visible = port.data_visible.max(now);
        let is_success = is_success(result);
        let moved = if is_success { bytes } else { 0 };
        self.effects.counters.messages_received += u64::from(is_success);
        let consumed = self.tell_transfer(now, index, token, EVENT_REPLY, result, moved, offset);
        if let Some(message) = message.filter(|_| is_success) {
            self.effects.interface.ledger_mut().complete(&message, consumed);
        }
        self.end_transfer(index, token);
    }

    /// Tells or counts what became of a command, as it wants to be told. Returns when the program knows.
    #[expect(clippy::too_many_arguments, reason = "all of them are words of the event")]
    fn tell_transfer(
        &mut self,
        now: Time,
        index: usize,
        token: u64,
        kind: u32,
        result: u32,
        bytes: u64,
        offset: u64,
    ) -> Time {
        let Some(port) = &mut self.ports[index] else { return now };
        let Some(under_way) = port.under_way.get_mut(&token) else { return now };
        let UnderWay { transfer, handle, .. } = *under_way;
        let is_success = is_success(result);
        let mut known = now;
        if !(transfer.count_only && is_success) && under_way.promised > 0 {
            under_way.promised -= 1;
            let event = MatchEvent {
                user: transfer.user,
                match_bits: transfer.match_bits,
                header_data: transfer.header_data,
                requested_bytes: transfer.memory.bytes,
                moved_bytes: bytes,
                offset,
                ..MatchEvent::default()
            };
            let (node, portal) = (self.config.node, transfer.portal);
            let told = Told { kind, result, portal, node, port: index as u8, handle, event };
            known = port.tell(now, &told, &mut self.effects);
        }
        known.max(port.count(now, transfer.counter, is_success, &mut self.effects))
    }

    /// Forgets a command of which nothing is outstanding.
    fn end_transfer(&mut self, index: usize, token: u64) {
        let Some(port) = &mut self.ports[index] else { return };
        let is_over = |it: &UnderWay| !it.waits_for_sent && !it.waits_for_answer;
        if let Some(promised) = port.under_way.get(&token).filter(|it| is_over(it)).map(|it| it.promised) {
            port.under_way.remove(&token);
            port.events.forgo(promised);
        }
    }

    /// A command ends without success: that is told whatever it wants to be told.
    pub(super) fn fail_transfer(&mut self, now: Time, index: usize, token: u64, result: u32) {
        let Some(port) = self.ports.get_mut(index).and_then(Option::as_mut) else { return };
        let Some(under_way) = port.under_way.get_mut(&token) else { return };
        let UnderWay { transfer, waits_for_sent, waits_for_answer, .. } = *under_way;
        (under_way.waits_for_sent, under_way.waits_for_answer) = (false, false);
        self.effects.interface.ledger_mut().attribute(None);
        if transfer.is_get {
            self.tell_transfer(now, index, token, EVENT_REPLY, result, 0, 0);
        } else {
            if waits_for_sent && (transfer.wants_sent || !transfer.wants_ack) {
                self.tell_transfer(now, index, token, EVENT_SENT, result, 0, 0);
            }
            if waits_for_answer {
                self.tell_transfer(now, index, token, EVENT_ACK, result, 0, 0);
            }
        }
        self.end_transfer(index, token);
    }

    /// Takes a match entry, and goes on to search the unexpected messages for it.
    fn append(&mut self, ready: Time, index: usize, handle: u32, append: &Append) -> Result<(), u32> {
        self.check_memory(index, &append.memory)?;
        let Some(port) = &mut self.ports[index] else { return Ok(()) };
        if port.entries.contains_key(&handle) {
            // After 2^32 launches, and it is still there.
            return Err(RESULT_BAD_VALUE);
        }
        let list = List { port: index, portal: append.portal, is_overflow: append.is_overflow };
        let place = self.engine.take_place(list).ok_or(RESULT_LIST_FULL)?;
        let entry = Entry {
            user: append.user,
            portal: append.portal,
            memory: append.memory,
            counter: append.counter,
            count_only: append.count_only,
            is_overflow: append.is_overflow,
            tells_unlink: !append.no_unlink_event,
            place: Some(place),
            under_way: 0,
            is_unlink_commanded: false,
        };
        port.entries.insert(handle, entry);
        port.appending = Some(Appending { handle, item: append.item, place, next: 0 });
        self.search_unexpected(ready, index);
        Ok(())
    }

    /// Searches the unexpected messages for the entry that is being appended, and links what remains of it. Where the event
    /// queue has no room for what is found, it waits until there is, and the port's other commands with it; what arrives
    /// meanwhile is found, too, because it is behind.
    pub(super) fn search_unexpected(&mut self, now: Time, index: usize) {
        let mut now = now;
        loop {
            let Some(port) = &mut self.ports[index] else { return };
            let Some(mut appending) = port.appending.take() else { return };
            let Some(entry) = port.entries.get_mut(&appending.handle) else { return };
            let queue = &mut port.unexpected[usize::from(entry.portal)];
            let mut searched = 0;
            let found = queue.range(appending.next..).find(|(_, unexpected)| {
                searched += 1;
                reference::accepts(&appending.item, &unexpected.header.for_matching()).is_some()
            });
            let found = found.map(|(&number, _)| number).filter(|_| !entry.is_overflow);
            self.effects.spent += searched;
            if searched > 0 && !entry.is_overflow {
                now = self.effects.match_cycles(now, searched * UNEXPECTED_CYCLES).end;
            }
            let Some(found) = found else {
                let list = entry.list(index);
                let Appending { handle, item, place, .. } = appending;
                let at = self.engine.link(now, list, handle, item, place, &mut self.effects);
                port.data_visible = port.data_visible.max(at);
                return;
            };
            if !port.events.has_room(EVENTS_AT_ONCE) {
                port.appending = Some(appending);
                return;
            }
            let Some(unexpected) = queue.remove(&found) else { return };
            let accepted = reference::accepts(&appending.item, &unexpected.header.for_matching());
            let is_used_up = appending.item.consume(accepted.map_or(0, |(_, length)| length));
            appending.next = unexpected.number + 1;
            self.effects.counters.claimed += 1;
            entry.under_way += 1;
            port.events.promise(EVENTS_AT_ONCE);
            if is_used_up {
                entry.place = None;
                self.engine.give_place_back(appending.place);
            } else {
                port.appending = Some(appending);
            }
            if unexpected.is_stored {
                self.tell_claim(now, index, &unexpected, appending.handle);
            } else {
                port.claimed.insert(unexpected.number, (unexpected, appending.handle));
            }
        }
    }

    /// Tells that an entry has taken a message that came before it.
    pub(super) fn tell_claim(&mut self, now: Time, index: usize, unexpected: &Unexpected, handle: u32) {
        let Some(port) = &mut self.ports[index] else { return };
        let Some(entry) = port.entries.get(&handle).copied() else {
            port.events.forgo(EVENTS_AT_ONCE);
            return;
        };
        let header = &unexpected.header;
        let is_success = unexpected.is_stored;
        if entry.count_only && is_success {
            port.events.forgo(1);
        } else {
            let result = match is_success {
                true if unexpected.bytes < header.bytes => RESULT_TRUNCATED,
                true => RESULT_OK,
                false => RESULT_BAD_REGION,
            };
            let event = MatchEvent {
                user: entry.user,
                match_bits: header.match_bits,
                header_data: header.header_data,
                requested_bytes: header.bytes,
                moved_bytes: if is_success { unexpected.bytes } else { 0 },
                offset: unexpected.offset,
                overflow_handle: unexpected.overflow_handle.into(),
                overflow_user: unexpected.overflow_user,
                ..MatchEvent::default()
            };
            port.tell(now, &told_of(EVENT_PUT_OVERFLOW, result, handle, header, event), &mut self.effects);
        }
        port.count(now, entry.counter, is_success, &mut self.effects);
        port.end_operation(now, self.config.node, handle, true, &mut self.effects);
    }

    /// Takes an entry out of its list because a command wants it.
    fn unlink(&mut self, ready: Time, index: usize, handle: u32) {
        let node = self.config.node;
        let Some(port) = &mut self.ports[index] else { return };
        port.events.promise(1);
        let entry = port.entries.get_mut(&handle).and_then(|entry| Some((entry.place.take()?, entry)));
        let Some((place, entry)) = entry else {
            let kind = EVENT_UNLINKED;
            let told =
                Told { kind, result: RESULT_NOT_FOUND, node, port: index as u8, handle, ..Told::default() };
            port.tell(ready, &told, &mut self.effects);
            return;
        };
        entry.is_unlink_commanded = true;
        let entry = *entry;
        self.engine.unlink(entry.list(index), handle);
        self.engine.give_place_back(place);
        if entry.under_way == 0 {
            port.entries.remove(&handle);
            port.tell_unlinked(ready, node, handle, &entry, &mut self.effects);
        }
    }
}

/// Whether a result is one of something that was done.
pub(super) const fn is_success(result: u32) -> bool {
    matches!(result, RESULT_OK | RESULT_TRUNCATED)
}
