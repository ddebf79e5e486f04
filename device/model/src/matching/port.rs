//! A port: its status line, event queue, counters, match entries, unexpected messages and commands under way.

use alloc::collections::{BTreeMap, VecDeque};

use niclab_abi::bar::SLOTS;
use niclab_abi::control::PortOpen;
use niclab_abi::event::CAUSE_ARMED;
use niclab_abi::matching::{
    COUNTERS, COUNTERS_OFFSET, EVENT_UNLINKED, MatchEvent, PORTALS, RESULT_OK, event_status,
};
use niclab_abi::receive::{SLICE_NUMBER_SHIFT, StatusLine};

use crate::matching::commands::{Memory, Transfer};
use crate::matching::effects::{Effects, WORD_BYTES};
use crate::matching::engine::{List, Place};
use crate::matching::events::{EVENTS_AT_ONCE, EventQueue};
use crate::matching::item::Item;
use crate::matching::wire::Header;
use crate::nic::{Content, DmaWords};
use crate::parts::host_interface::BusTransfer;
use crate::time::Time;

/// Bits of an event's status word that say what came. That it came, the number says.
const STATUS_BITS: u64 = (1 << SLICE_NUMBER_SHIFT) - 1;

/// A put or a get of this port that is not over.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnderWay {
    pub(super) transfer: Transfer,
    pub(super) handle: u32,
    /// Its data has not left the memory yet, for all that is known.
    pub(super) waits_for_sent: bool,
    /// The target has not answered.
    pub(super) waits_for_answer: bool,
    /// Places of the event queue that were promised to it.
    pub(super) promised: u64,
}

/// A get of another port that is being answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    pub(super) handle: u32,
    pub(super) header: Header,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// A match entry: what the match unit does not look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) user: u64,
    pub(super) portal: u8,
    pub(super) memory: Memory,
    pub(super) counter: Option<u8>,
    pub(super) count_only: bool,
    pub(super) is_overflow: bool,
    /// Whether the program wants to be told when it unlinks itself.
    pub(super) tells_unlink: bool,
    /// Where it lies, while it is linked or about to be.
    pub(super) place: Option<Place>,
    /// Operations that it has begun to take.
    pub(super) under_way: u32,
    /// It was unlinked by a command, which is answered when nothing is under way any more. A place is promised.
    pub(super) is_unlink_commanded: bool,
}

impl Entry {
    /// The list that it is of, or for, in this port.
    pub(super) const fn list(&self, port: usize) -> List {
        List { port, portal: self.portal, is_overflow: self.is_overflow }
    }
}

/// A message that an overflow entry took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unexpected {
    /// Numbers rise in the order of arrival.
    pub(super) number: u64,
    pub(super) header: Header,
    /// Offset in the overflow entry's memory.
    pub(super) offset: u64,
    /// Bytes that were stored.
    pub(super) bytes: u64,
    pub(super) overflow_handle: u32,
    pub(super) overflow_user: u64,
    /// All of it is in memory.
    pub(super) is_stored: bool,
}

/// An append that searches the unexpected messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Appending {
    pub(super) handle: u32,
    pub(super) item: Item,
    pub(super) place: Place,
    /// Messages with lower numbers were searched.
    pub(super) next: u64,
}

/// A counter.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    failure: u64,
    success: u64,
    /// Successes at which to interrupt; zero: none.
    armed: u64,
}

/// What an event says beside its kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    pub(super) kind: u32,
    pub(super) result: u32,
    pub(super) portal: u8,
    /// Of the initiator.
    pub(super) node: u16,
    pub(super) port: u8,
    pub(super) handle: u32,
    pub(super) event: MatchEvent,
}

/// An open port.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) index: usize,
    status_address: u64,
    pub(super) status: StatusLine,
    /// When the status line last written is visible.
    status_visible: Time,
    /// Status lines that freed slots which were not launched again yet: launches that each counts, and when it is visible.
    /// Both rise. Never more than slots of a page.
    freed: VecDeque<(u64, Time)>,
    pub(super) events: EventQueue,
    counters: [Counter; COUNTERS as usize],
    counters_visible: Time,
    /// When the last data stored for the port is visible.
    pub(super) data_visible: Time,
    /// By token.
    pub(super) under_way: BTreeMap<u64, UnderWay>,
    /// By number.
    pub(super) served: BTreeMap<u64, Served>,
    /// By handle.
    pub(super) entries: BTreeMap<u32, Entry>,
    /// By portal, and by number, which is the order of arrival.
    pub(super) unexpected: [BTreeMap<u64, Unexpected>; PORTALS as usize],
    /// Unexpected messages that an entry has claimed before they were stored, by number, and its handle.
    pub(super) claimed: BTreeMap<u64, (Unexpected, u32)>,
    pub(super) appending: Option<Appending>,
}

impl Port {
    pub(super) fn new(index: usize, open: &PortOpen) -> Self {
        Self {
            index,
            status_address: open.status_address,
            status: StatusLine::default(),
            status_visible: Time::ZERO,
            freed: VecDeque::new(),
            events: EventQueue::new(open.slices_address, open.slices),
            counters: [Counter::default(); COUNTERS as usize],
            counters_visible: Time::ZERO,
            data_visible: Time::ZERO,
            under_way: BTreeMap::new(),
            served: BTreeMap::new(),
            entries: BTreeMap::new(),
            unexpected: Default::default(),
            claimed: BTreeMap::new(),
            appending: None,
        }
    }

    /// Whether a command of any kind can be taken: its events have room, those before it are not too many, and none is in work.
    #[inline]
    pub(super) fn accepts_command(&self, most_under_way: usize) -> bool {
        self.appending.is_none()
            && self.events.has_room(EVENTS_AT_ONCE)
            && self.under_way.len() < most_under_way
    }

    /// When the last effect of the port is visible.
    pub(super) fn last_effect(&self) -> Time {
        self.status_visible.max(self.events.last_visible()).max(self.counters_visible).max(self.data_visible)
    }

    /// How many unexpected messages the card remembers for the port.
    pub(super) fn unexpected_messages(&self) -> usize {
        self.unexpected.iter().map(BTreeMap::len).sum::<usize>() + self.claimed.len()
    }

    /// When the program could know that the slot of its next launch is free: not before a status line that counts the
    /// launch which used that slot last was visible.
    pub(super) fn slot_free(&mut self) -> Time {
        let Some(needed) = (self.status.launched + 1).checked_sub(SLOTS.into()).filter(|needed| *needed > 0)
        else {
            return Time::ZERO;
        };
        while self.freed.front().is_some_and(|&(counted, _)| counted < needed) {
            self.freed.pop_front();
        }
        self.freed.front().map_or(Time::ZERO, |&(_, visible)| visible)
    }

    /// Writes the status line. Each reason has a line of its own: how many there are must not depend on how much a shell
    /// feeds at once.
    pub(super) fn write_status(&mut self, at: Time, effects: &mut Effects) {
        let line = &self.status;
        let words =
            [line.launched, line.notified, line.acknowledged, line.sent, line.refused, line.refusal, 0, 0];
        let launched = line.launched;
        // It tells the sender of a message, and no part of the message waits for it.
        let message = effects.interface.ledger().attributed();
        effects.interface.ledger_mut().attribute(None);
        self.status_visible =
            effects.dma_write(at, self.status_address, DmaWords::from_slice(&words), Content::Counts);
        effects.interface.ledger_mut().attribute(message);
        if self.freed.back().is_none_or(|&(counted, _)| counted < launched) {
            self.freed.push_back((launched, self.status_visible));
        }
    }

    /// Counts a launch or a register write that is refused, and tells why.
    pub(super) fn refuse(&mut self, at: Time, reason: u64, effects: &mut Effects) {
        effects.counters.refused += 1;
        self.status.refused += 1;
        self.status.refusal = reason;
        self.write_status(at, effects);
    }

    /// Stores an event, for which a place was promised. Returns when the program has it.
    pub(super) fn tell(&mut self, ready: Time, told: &Told, effects: &mut Effects) -> Time {
        let (number, address) = self.events.take_place();
        let event = &told.event;
        let source = u64::from(told.node) << 48 | u64::from(told.port) << 32 | u64::from(told.handle);
        let words = [
            event.user,
            event.match_bits,
            event.header_data,
            event.requested_bytes,
            event.moved_bytes,
            event.offset,
            source,
            event.overflow_handle,
            event.overflow_user,
            0,
            event_status(told.kind, told.result, told.portal.into(), number as u32),
        ];
        let message = effects.interface.ledger().attributed();
        let content = Content::Completion { status: STATUS_BITS };
        let visible = effects.dma_write(ready, address, DmaWords::from_slice(&words), content);
        self.events.on_visible(visible);
        effects.counters.events += 1;
        let consumed = effects.interface.host_receive(visible, words.len() as u64 * WORD_BYTES);
        if self.events.is_release_due() {
            effects.interface.ledger_mut().attribute(None);
            let arrived = effects.interface.transfer(BusTransfer::PioWrite, consumed, WORD_BYTES).end;
            effects.interface.ledger_mut().attribute(message);
            self.events.on_release_priced(arrived);
        }
        if self.events.take_armed() {
            effects.interrupt(visible, CAUSE_ARMED, self.index, message);
        }
        consumed
    }

    /// Counts an operation. Returns when the count is visible.
    pub(super) fn count(
        &mut self,
        ready: Time,
        counter: Option<u8>,
        is_success: bool,
        effects: &mut Effects,
    ) -> Time {
        let Some((number, counter)) = counter.and_then(|n| Some((n, self.counters.get_mut(usize::from(n))?)))
        else {
            return ready;
        };
        counter.success += u64::from(is_success);
        counter.failure += u64::from(!is_success);
        let words = DmaWords::from_slice(&[counter.failure, counter.success]);
        let is_armed = counter.armed != 0 && counter.success >= counter.armed;
        if is_armed {
            counter.armed = 0;
        }
        let address = self.status_address + COUNTERS_OFFSET + 2 * WORD_BYTES * u64::from(number);
        let visible = effects.dma_write(ready, address, words, Content::Counts);
        self.counters_visible = visible;
        if is_armed {
            let message = effects.interface.ledger().attributed();
            effects.interrupt(visible, CAUSE_ARMED, self.index, message);
        }
        visible
    }

    /// Interrupts as soon as a counter has so many successes, at once when it has them; zero disarms.
    pub(super) fn arm_counter(&mut self, ready: Time, counter: u8, threshold: u64, effects: &mut Effects) {
        let Some(counter) = self.counters.get_mut(usize::from(counter)) else { return };
        counter.armed = threshold;
        if threshold != 0 && counter.success >= threshold {
            counter.armed = 0;
            effects.interrupt(ready.max(self.counters_visible), CAUSE_ARMED, self.index, None);
        }
    }

    /// An operation of an entry is over, and told. If that was the last of one that is not linked any more, so is the entry:
    /// `has_place` says whether the operation has a place of the event queue left, promised for this, which is used or given
    /// back.
    pub(super) fn end_operation(
        &mut self,
        at: Time,
        node: u16,
        handle: u32,
        has_place: bool,
        effects: &mut Effects,
    ) {
        let Some(entry) = self.entries.get_mut(&handle) else {
            self.events.forgo(has_place.into());
            return;
        };
        entry.under_way = entry.under_way.saturating_sub(1);
        let is_over = entry.place.is_none() && entry.under_way == 0;
        let entry = *entry;
        if !is_over {
            self.events.forgo(has_place.into());
            return;
        }
        self.entries.remove(&handle);
        if entry.is_unlink_commanded {
            self.events.forgo(has_place.into());
            self.tell_unlinked(at, node, handle, &entry, effects);
        } else if has_place && entry.tells_unlink {
            self.tell_unlinked(at, node, handle, &entry, effects);
        } else {
            self.events.forgo(has_place.into());
        }
    }

    /// Tells that an entry is not linked any more, and that its memory is the program's.
    pub(super) fn tell_unlinked(
        &mut self,
        at: Time,
        node: u16,
        handle: u32,
        entry: &Entry,
        effects: &mut Effects,
    ) {
        let message = effects.interface.ledger().attributed();
        effects.interface.ledger_mut().attribute(None);
        let event = MatchEvent { user: entry.user, ..MatchEvent::default() };
        let told = Told {
            kind: EVENT_UNLINKED,
            result: RESULT_OK,
            portal: entry.portal,
            node,
            port: self.index as u8,
            handle,
            event,
        };
        self.tell(at, &told, effects);
        effects.interface.ledger_mut().attribute(message);
    }
}
