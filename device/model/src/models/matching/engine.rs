//! Matching on the card: one list manager with all lists of all ports, card memory and spill area, and the firmware.

use alloc::vec::Vec;

use niclab_abi::matching::{MAX_LIST_SIZE, PORTALS};
use niclab_isa::Word;
use niclab_isa::image::ImageError;

use crate::models::matching::config::{Config, PORTS};
use crate::models::matching::counters::Effects;
use crate::models::matching::item::{Header, Item, WORDS};
use crate::models::matching::list_manager::{
    Handle, ListManager, Matched, Outcome, Search, Store, Timing, Use,
};
use crate::models::matching::program;
use crate::models::matching::unit::Unit;
use crate::nic::{Content, DmaWords};
use crate::parts::effects::WORD_BYTES;
use crate::parts::host_interface::{BusTransfer, HostInterface, Machine};
use crate::platform::ledger::Stage;
use crate::platform::profile::Profile;
use crate::time::{Span, Time};

/// Cost of pricing the read of a spilled entry, in units of [`crate::nic::Nic::work_done`].
const SPILL_READ_WORK: u64 = 2;

/// Bytes of an entry in memory.
pub(super) const ENTRY_BYTES: u64 = WORDS as u64 * WORD_BYTES;

/// Cycles that a unit executes word by word before its automaton is made. Many cards match few headers. Ours: less than
/// making the automaton takes.
const AUTOMATED_FROM: u64 = 4_096;

/// Watchdog cycles of a program for a header, in addition to those for each item. With its first header a program may
/// also initialize itself. Ours: a bound.
const WATCHDOG_HEADER_CYCLES: u64 = 4_096;
/// Watchdog cycles of a program for each item of the lists. The slowest path of the built-in program takes less than a
/// third. Ours: a bound.
const WATCHDOG_ITEM_CYCLES: u64 = 64;
/// Maximum number of words that a program may issue for a header, however long the lists are. Attack: a guest's program
/// that uses all its watchdog cycles for each item would hold up everything else on this model's thread. The bound is
/// 24 words for each of [`niclab_abi::matching::MAX_LIST_SIZE`] items; the built-in program issues at most 21. All
/// unexpected messages that are compared with an appended entry share one bound. Otherwise each of them could cost as
/// much as a header. Ours: a bound.
pub(super) const MAX_PROGRAM_WORDS: u64 = 24 * MAX_LIST_SIZE as u64;

/// The spill area: host memory for entries that do not fit into the card's memory.
#[derive(Clone, Debug)]
struct Spill {
    address: u64,
    slots: u64,
    /// Slots from this one on were never used.
    unused: u64,
    free: Vec<u64>,
}

/// Where an entry is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryLocation {
    /// In the card's memory.
    Card,
    /// In this slot of the spill area.
    Spilled(u64),
}

/// A list: of a port's portal, posted or overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct List {
    pub(super) port: usize,
    pub(super) portal: u8,
    pub(super) is_overflow: bool,
}

impl List {
    const COUNT: usize = PORTS * PORTALS as usize * 2;

    /// The index after all other lists. This list has the entry that is being appended, while it is compared with
    /// unexpected messages.
    const APPENDED: usize = Self::COUNT;

    const fn index(self) -> usize {
        (self.port * PORTALS as usize + self.portal as usize) * 2 + self.is_overflow as usize
    }
}

/// The result for a header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    /// The handle of the entry that takes the message, and how.
    pub(super) matched: Option<(u32, Matched)>,
    /// When the result is known.
    pub(super) at: Time,
    /// The program misbehaved, and the built-in one has replaced it.
    pub(super) has_fallen_back: bool,
}

/// A program's decision on a header.
struct Decided {
    /// `None` if even the built-in program did not end.
    outcome: Option<Outcome>,
    /// When the unit worked on the header.
    work: Stage,
    has_fallen_back: bool,
}

/// The match engine of a card.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    manager: ListManager,
    builtin: Unit,
    /// A guest's program is loaded, which may do anything.
    is_foreign: bool,
    card_entries: u64,
    card_used: u64,
    max_entries: u64,
    max_list_size: usize,
    spill: Option<Spill>,
    /// The match unit as a resource in model time.
    unit: Machine,
    /// Words issued by units and entries read for headers, in units of [`crate::nic::Nic::work_done`].
    work: u64,
}

impl Engine {
    pub(super) fn new(config: &Config, interface: &HostInterface) -> Result<Self, ImageError> {
        let mut builtin = Unit::new(&program::portals()?)?;
        builtin.automate(AUTOMATED_FROM);
        let timing = timing(&config.profile);
        Ok(Self {
            manager: ListManager::with_lists(List::COUNT + 1, timing, Use::Consume, builtin.clone()),
            builtin,
            is_foreign: false,
            card_entries: config.match_entries.into(),
            card_used: 0,
            max_entries: config.max_entries.into(),
            max_list_size: config.max_list_size as usize,
            spill: None,
            unit: interface.machine("match_unit", "match unit"),
            work: 0,
        })
    }

    /// Number of stored entries, and number of those in the spill area.
    pub(super) fn entries(&self) -> (u64, u64) {
        let spilled = self.spill.as_ref().map_or(0, |spill| spill.unused - spill.free.len() as u64);
        (self.card_used + spilled, spilled)
    }

    /// Provides the spill area; false if there is one already.
    pub(super) fn open_spill(&mut self, address: u64, bytes: u64) -> bool {
        if self.spill.is_some() {
            return false;
        }
        self.spill = Some(Spill { address, slots: bytes / ENTRY_BYTES, unused: 0, free: Vec::new() });
        true
    }

    /// Removes the spill area, which must be empty.
    pub(super) fn close_spill(&mut self) {
        self.spill = None;
    }

    /// Cost of matching, linking and unlinking so far, in units of [`crate::nic::Nic::work_done`].
    pub(super) const fn work(&self) -> u64 {
        self.work + self.manager.steps()
    }

    /// Occupies the match unit for `cycles`.
    #[inline]
    fn occupy(&mut self, ready: Time, cycles: u64, effects: &mut Effects) -> Stage {
        effects.counters.unit_cycles += cycles;
        let span = Span::from_ps(effects.interface.profile().ni.clock_ps).times(cycles);
        effects.interface.work_for(&mut self.unit, ready, 0, span)
    }

    /// When the match unit is idle.
    pub(super) const fn unit_idle(&self) -> Time {
        self.unit.idle_at()
    }

    /// Allocates memory for an entry of a portal, in the card's memory if it has room. Attack: a guest provides a huge
    /// spill area, and the next header would be compared with all its entries. So list lengths have bounds of their
    /// own.
    pub(super) fn take_location(&mut self, list: List) -> Option<EntryLocation> {
        let (posted, overflow) =
            (List { is_overflow: false, ..list }.index(), List { is_overflow: true, ..list }.index());
        let of_portal = self.manager.searched(Search { first: posted, then: Some(overflow) });
        if of_portal >= self.max_list_size || self.entries().0 >= self.max_entries {
            return None;
        }
        if self.card_used < self.card_entries {
            self.card_used += 1;
            return Some(EntryLocation::Card);
        }
        let spill = self.spill.as_mut()?;
        if let Some(slot) = spill.free.pop() {
            return Some(EntryLocation::Spilled(slot));
        }
        if spill.unused >= spill.slots {
            return None;
        }
        spill.unused += 1;
        Some(EntryLocation::Spilled(spill.unused - 1))
    }

    pub(super) fn give_location_back(&mut self, location: EntryLocation) {
        match (location, &mut self.spill) {
            (EntryLocation::Card, _) => self.card_used = self.card_used.saturating_sub(1),
            (EntryLocation::Spilled(slot), Some(spill)) => spill.free.push(slot),
            (EntryLocation::Spilled(_), None) => {}
        }
    }

    /// Lets the list manager change its lists. A change occupies the unit between headers, as a header does.
    fn change(&mut self, ready: Time, effects: &mut Effects, change: impl FnOnce(&mut ListManager)) -> Time {
        let before = self.manager.change_cycles();
        change(&mut self.manager);
        let cycles = self.manager.change_cycles() - before;
        if cycles == 0 { ready } else { self.occupy(ready, cycles, effects).end }
    }

    /// Appends an entry to a list. Returns when it is linked.
    pub(super) fn link(
        &mut self,
        ready: Time,
        list: List,
        handle: u32,
        item: Item,
        location: EntryLocation,
        effects: &mut Effects,
    ) -> Time {
        let name = name_of(list.port, handle);
        let (store, spilled_to) = match (location, &self.spill) {
            (EntryLocation::Spilled(slot), Some(spill)) => {
                (Store::Spilled, Some(spill.address + slot * ENTRY_BYTES))
            }
            _ => (Store::Card, None),
        };
        let linked = self.change(ready, effects, |manager| manager.link(list.index(), name, item, store));
        let words = || DmaWords::from_slice(&item.to_words());
        spilled_to.map_or(linked, |address| effects.dma_write(linked, address, words(), Content::Data))
    }

    /// Removes an entry from its list. Returns when it is unlinked.
    pub(super) fn unlink(&mut self, ready: Time, list: List, handle: u32, effects: &mut Effects) -> Time {
        let name = name_of(list.port, handle);
        self.change(ready, effects, |manager| manager.unlink_from(list.index(), name))
    }

    /// Removes the entries with these ascending handles from a port's lists, in one pass over each list. Removing them
    /// one by one would take quadratic time.
    pub(super) fn unlink_all(&mut self, port: usize, handles: &[u32]) {
        if handles.is_empty() {
            return;
        }
        for list in lists_of(port) {
            self.manager.retain(list, |name| handles.binary_search(&(name.number() as u32)).is_err());
        }
    }

    /// Removes all entries from a port's lists.
    pub(super) fn clear(&mut self, port: usize) {
        lists_of(port).for_each(|list| self.manager.retain(list, |_| false));
    }

    /// Matches a header against the posted entries of a portal, and then, if allowed, against its overflow entries.
    pub(super) fn search(
        &mut self,
        ready: Time,
        posted: List,
        with_overflow: bool,
        header: &Header,
        effects: &mut Effects,
    ) -> Verdict {
        let overflow = List { is_overflow: true, ..posted };
        let search = Search { first: posted.index(), then: with_overflow.then_some(overflow.index()) };
        let decided = self.decide(ready, search, header, MAX_PROGRAM_WORDS, effects);
        let Decided { outcome, work, has_fallen_back } = decided;
        // The built-in program always ends. If it did not, no entry would take the message.
        let Some(outcome) = outcome else { return Verdict { matched: None, at: ready, has_fallen_back } };
        effects.counters.headers += 1;
        effects.counters.entries_traversed += outcome.traversed as u64;
        effects.counters.spill_reads += outcome.spill_reads as u64;
        self.work += SPILL_READ_WORK * outcome.spill_reads as u64;
        for _ in 0..outcome.spill_reads {
            effects.interface.transfer(BusTransfer::DescriptorFetch, work.start, ENTRY_BYTES);
        }
        let matched = outcome.matched.map(|matched| (matched.handle.number() as u32, matched));
        Verdict { matched, at: work.end, has_fallen_back }
    }

    /// Has the program compare an unexpected message with an entry that is being appended. For the program, the message
    /// has just arrived, and the list has no other entry. `item` becomes what the message leaves of it. The program may
    /// issue at most `words` words, from which those that it issues are subtracted.
    pub(super) fn look_at_unexpected(
        &mut self,
        ready: Time,
        item: &mut Item,
        header: &Header,
        words: &mut u64,
        effects: &mut Effects,
    ) -> Verdict {
        let name = Handle::new(0);
        self.manager.hold(List::APPENDED, name, *item);
        let search = Search { first: List::APPENDED, then: None };
        let issued = self.manager.unit().issued();
        let Decided { outcome, work, has_fallen_back } = self.decide(ready, search, header, *words, effects);
        // The count of a program that replaces another one begins at zero.
        *words = words.saturating_sub(self.manager.unit().issued().saturating_sub(issued));
        *item = self.manager.release(List::APPENDED).unwrap_or(*item);
        let matched = outcome.and_then(|outcome| outcome.matched).map(|matched| (0, matched));
        Verdict { matched, at: work.end, has_fallen_back }
    }

    /// Has the program decide. If it does not end, the built-in program decides.
    fn decide(
        &mut self,
        ready: Time,
        search: Search,
        header: &Header,
        most_words: u64,
        effects: &mut Effects,
    ) -> Decided {
        // Memory continues to deliver while the unit is idle.
        let idle_ps = ready.since(self.unit_idle()).as_ps();
        self.manager.rest(idle_ps / effects.interface.profile().ni.clock_ps.max(1));
        let (outcome, has_fallen_back) = match self.run(search, header, most_words) {
            Some(outcome) => (Some(outcome), false),
            None => {
                self.manager.restart(self.builtin.clone());
                self.is_foreign = false;
                effects.counters.firmware_fallbacks += 1;
                (self.run(search, header, most_words), true)
            }
        };
        let cycles = outcome.map_or(0, |outcome| outcome.cycles);
        Decided { outcome, work: self.occupy(ready, cycles, effects), has_fallen_back }
    }

    /// The program's outcome for one header; `None` if it misbehaves.
    fn run(&mut self, search: Search, header: &Header, most_words: u64) -> Option<Outcome> {
        let timing = self.manager.timing();
        let items = self.manager.searched(search);
        let each = WATCHDOG_ITEM_CYCLES + timing.spill_interval;
        let watchdog = WATCHDOG_HEADER_CYCLES + timing.spill_latency + each * items as u64;
        let own = WATCHDOG_HEADER_CYCLES + WATCHDOG_ITEM_CYCLES * items as u64;
        let words = if self.is_foreign { own.min(most_words) } else { u64::MAX };
        let issued = self.manager.unit().issued();
        self.manager.on_header_for(search, *header);
        let has_ended = self.manager.run_within(watchdog, words).is_ok();
        let issued = self.manager.unit().issued() - issued;
        self.work += issued + issued / 4;
        if has_ended { self.manager.poll_outcome() } else { None }
    }

    /// Loads a program; `None` loads the built-in one.
    ///
    /// # Errors
    /// If a branch leads outside the program.
    pub(super) fn load(&mut self, program: Option<&[Word]>) -> Result<(), ImageError> {
        let mut unit = program.map_or_else(|| Ok(self.builtin.clone()), Unit::new)?;
        unit.automate(AUTOMATED_FROM);
        self.is_foreign = program.is_some();
        self.manager.restart(unit);
        Ok(())
    }
}

/// The handle of a port's entry in the list manager.
const fn name_of(port: usize, handle: u32) -> Handle {
    Handle::new((port as u64) << 32 | handle as u64)
}

/// All lists of a port.
fn lists_of(port: usize) -> core::ops::Range<usize> {
    let first = List { port, portal: 0, is_overflow: false }.index();
    first..first + List::COUNT / PORTS
}

/// Times to read a spilled entry over an idle bus, in cycles of the unit.
fn timing(profile: &Profile) -> Timing {
    let price = profile.bus.descriptor_fetch;
    let clock_ps = profile.ni.clock_ps.max(1);
    let cycles = |ps: u64| ps.div_ceil(clock_ps);
    let occupancy_ps = price.occupancy(ENTRY_BYTES).as_ps();
    // Bounded, so that a header ends with any prices.
    /// Ours: a bound.
    const MOST: u64 = 1 << 32;
    let latency_ps = occupancy_ps.saturating_add(price.latency().as_ps());
    Timing {
        spill_latency: cycles(latency_ps).min(MOST),
        spill_interval: cycles(occupancy_ps).clamp(WORDS as u64, MOST),
        ..Timing::default()
    }
}
