//! The list manager (section 3.2): it keeps the lists, streams headers and items to the match unit, and receives the
//! unit's verdicts.
//!
//! It sends one word in each cycle. One cache for all lists ([`cache`]) has the next items. The list manager is at most
//! one item ahead of the item that is being judged. So after a matching item the unit finds exactly one more entity of
//! eight words. This is the next item if it was begun, and otherwise the end of the list. When the unit has drained
//! this entity, it reports that it is done, and the next header comes. [`Steps`] has the cycles for this, and for
//! appending and unlinking.
//!
//! The list manager has the number of lists that it was made with. A header names one of them, or two that it is
//! matched against as if they were one. In this way posted entries precede those for unexpected messages. Items that do
//! not fit into card memory are read from the spill area, with a longer latency ([`Timing::spill_latency`]).

mod cache;
pub mod inspect;
mod lists;
mod timing;
mod walk;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::models::matching::fifo::Fifos;

use self::cache::Cache;
use self::lists::{elsewhere, is_result, item_at, items_of, locate, remove};
pub use self::timing::{Steps, Timing};
use self::walk::Walks;
use crate::models::matching::item::{Header, Item, WORDS};
use crate::models::matching::program::{DONE, FAILED, SUCCEEDED};
use crate::models::matching::unit::Unit;

/// Minimum length of a burst, in cycles, even if the budget of words has less left. So a wait is not split into smaller
/// pieces. Ours: a bound.
const WORDS_AT_ONCE: u64 = 1_024;

/// What happens to an item that matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Use {
    /// Nothing: the paper's benchmark (section 5.1).
    Keep,
    /// Its threshold falls and its local offset advances. The item is unlinked when the threshold is zero, or when less
    /// than its maximum size is left and it does not truncate.
    #[default]
    Consume,
}

/// Identifies an item for as long as it is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(u64);

impl Handle {
    /// A handle that the caller chooses, for [`ListManager::link`].
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// The lists that a header is matched against: one list, or two as if they were one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// The list whose items come first.
    pub first: usize,
    /// The list after it.
    pub then: Option<usize>,
}

/// Where an item is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Store {
    /// In the card's memory.
    #[default]
    Card,
    /// In another memory, from which it is fetched each time a header comes to it.
    Spilled,
    /// In the list manager, which is about to append it.
    Held,
}

#[derive(Clone, Copy, Debug)]
struct Linked {
    handle: Handle,
    item: Item,
    store: Store,
}

/// The result for a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The item that took it, if one did.
    pub matched: Option<Matched>,
    /// Items that were judged.
    pub traversed: usize,
    /// Spilled items that were fetched.
    pub spill_reads: usize,
    /// Cycles from the header's first word to the earliest first word of the next header.
    pub cycles: u64,
}

/// An item that took a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matched {
    /// The item.
    pub handle: Handle,
    /// Its index in the list when the header came.
    pub index: usize,
    /// Where in its memory the message begins.
    pub offset: u64,
    /// Number of bytes of the message that are stored.
    pub length: u64,
    /// Whether the message has used up the item, so that the item is not linked any more.
    pub is_unlinked: bool,
}

/// The program violates the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misbehaved {
    /// It ran past its last word.
    #[error("the program ran past its end, at word {pc}")]
    RanOut {
        /// The word to which it ran.
        pc: usize,
    },
    /// It wrote a word that is not allowed at this point.
    #[error("the program answered {word:#x} {due}")]
    Answer {
        /// The word.
        word: u64,
        /// What was due instead.
        due: Due,
    },
    /// For an item that is consumed, its result exceeds the item or the message.
    #[error("the program stored {length} bytes at offset {offset}, which exceeds the item or the message")]
    Result {
        /// Where the message would begin.
        offset: u64,
        /// Number of bytes of it that would be stored.
        length: u64,
    },
    /// A queue's program gave a command that does not exist, or that is not allowed at this point.
    #[error("the program gave the command {word:#x}, which does not exist or is not allowed now")]
    Command {
        /// The command's last word.
        word: u64,
    },
    /// It did not finish in time.
    #[error("the program did not finish a header within {cycles} cycles")]
    Watchdog {
        /// The number of cycles that it had.
        cycles: u64,
    },
}

/// The word that was due when a program wrote another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing: no header is being matched.
    Nothing,
    /// Nothing yet: the item that is judged next was not sent.
    Item,
    /// A verdict.
    Verdict,
    /// The verdict that the end of the list fails.
    End,
    /// The report that the item after a matching one is drained.
    Done,
}

impl Due {
    /// The word that was due instead of `word`, which is not a valid verdict. `is_begun` says whether a word of the
    /// judged item was sent.
    pub(super) const fn of(word: u64, is_begun: bool) -> Self {
        match word {
            FAILED | SUCCEEDED if !is_begun => Self::Item,
            SUCCEEDED => Self::End,
            _ => Self::Verdict,
        }
    }
}

impl fmt::Display for Due {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => formatter.write_str("while no header was being matched"),
            Self::Item => formatter.write_str("before the item that it judges next was sent"),
            Self::Verdict => write!(formatter, "where a verdict was due, {FAILED} or {SUCCEEDED}"),
            Self::End => {
                write!(formatter, "for the end of the list, which takes no message: {FAILED} is due")
            }
            Self::Done => {
                write!(formatter, "where {DONE} was due, after a match with its offset and length")
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Link(usize, Linked),
    /// From this list, or, with `None`, from any list that has the item.
    Unlink(Option<usize>, Handle),
}

/// The program's report on the current item so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    Succeeded,
    /// And the offset in the item's memory at which the message begins.
    Offset(u64),
    /// And the number of bytes that are stored there.
    All {
        offset: u64,
        length: u64,
    },
}

/// A header being matched.
#[derive(Clone, Debug)]
struct Job {
    search: Search,
    /// Bytes of the message.
    length: u64,
    began: u64,
    /// Number of items that the header can meet. No list changes while it is matched.
    items: usize,
    /// Spilled items that were begun.
    spill_reads: usize,
    /// The entity that is being sent: the header, an item or the end of the list.
    entity: [u64; WORDS],
    /// Words sent, including those of the header.
    sent: usize,
    /// Words of all entities that were begun: eight for each.
    begun: usize,
    /// Items judged.
    verdicts: usize,
    /// `succeeded`, and the words after it, as far as they were received.
    said: Said,
    /// The cycle in which the last of them was received.
    result_at: u64,
    /// The header is compared with the item that the list manager holds, so nothing comes out of the cache.
    is_held: bool,
    /// The cache has gone back to the list's head, because all items were sent and none had matched.
    has_settled: bool,
    /// The index, after the header, of the entity that is the end of the list, once this is decided.
    end: Option<usize>,
    /// The last entity that is sent for the header, once this is decided.
    last: Option<usize>,
}

impl Job {
    /// Whether the entity with this index may be begun: an item, or the end of the list. The end follows the last item.
    /// It also follows a matching item if nothing else was begun after that item.
    #[inline]
    fn may_begin(&mut self, index: usize) -> bool {
        if self.last.is_some() || index > self.verdicts + 1 {
            return false;
        }
        if index >= self.items || self.said != Said::Nothing {
            self.end = Some(index);
            self.last = Some(index);
        }
        true
    }

    /// The words of the current entity that were not sent yet.
    fn rest(&self) -> &[u64] {
        self.entity.get(WORDS - (self.begun - self.sent)..).unwrap_or_default()
    }
}

/// A list manager with its match unit.
#[derive(Clone, Debug)]
pub struct ListManager {
    timing: Timing,
    uses: Use,
    unit: Unit,
    cycle: u64,
    fifos: Fifos,
    lists: Vec<VecDeque<Linked>>,
    /// Items of all lists that are not in local memory.
    elsewhere: usize,
    cache: Cache,
    /// Cycles that appending and unlinking took, without items that were used up, which belong to their headers.
    change_cycles: u64,
    /// Items that unlinking has checked or moved: its cost.
    steps: u64,
    /// Changes that wait for the end of a header, because no list changes while the unit uses it.
    changes: VecDeque<Change>,
    next_handle: u64,
    headers: VecDeque<(Search, Header)>,
    job: Option<Job>,
    /// No header begins before this cycle.
    free_at: u64,
    outcomes: VecDeque<Outcome>,
    walks: Walks,
}

impl ListManager {
    /// A list manager with one empty list.
    #[must_use]
    pub fn new(timing: Timing, uses: Use, unit: Unit) -> Self {
        Self::with_lists(1, timing, uses, unit)
    }

    /// A list manager with this number of lists, all empty.
    #[must_use]
    pub fn with_lists(lists: usize, timing: Timing, uses: Use, unit: Unit) -> Self {
        Self {
            timing,
            uses,
            unit,
            cycle: 0,
            fifos: Fifos::new(timing.fifo_words),
            lists: vec![VecDeque::new(); lists],
            elsewhere: 0,
            cache: Cache::new(timing.cache_items, timing.memory_latency),
            change_cycles: 0,
            steps: 0,
            changes: VecDeque::new(),
            next_handle: 0,
            headers: VecDeque::new(),
            job: None,
            free_at: 0,
            outcomes: VecDeque::new(),
            walks: Walks::default(),
        }
    }

    /// Appends an item to the first list. Headers that have not begun yet find it.
    pub fn append(&mut self, item: Item) -> Handle {
        let handle = Handle(self.next_handle);
        self.next_handle += 1;
        self.link(0, handle, item, Store::Card);
        handle
    }

    /// Appends an item to the first list before the first cycle, and fills the cache from the list's head. This costs
    /// no cycle.
    pub fn preload(&mut self, item: Item) -> Handle {
        debug_assert!(self.cycle == 0 && self.job.is_none(), "items are preloaded before the first cycle");
        let handle = Handle(self.next_handle);
        self.next_handle += 1;
        if let Some(list) = self.lists.first_mut() {
            list.push_back(Linked { handle, item, store: Store::Card });
        }
        self.cache.change();
        self.cache.preload(&self.lists);
        handle
    }

    /// Appends an item to a list under a unique handle. If the manager has no such list, nothing happens.
    pub fn link(&mut self, list: usize, handle: Handle, item: Item, store: Store) {
        self.changes.push_back(Change::Link(list, Linked { handle, item, store }));
        self.apply_changes();
    }

    /// Removes an item from its list. Headers that have not begun yet do not find it. Removing it a second time has no
    /// effect.
    pub fn unlink(&mut self, handle: Handle) {
        self.changes.push_back(Change::Unlink(None, handle));
        self.apply_changes();
    }

    /// Removes an item from the only list that can have it.
    pub fn unlink_from(&mut self, list: usize, handle: Handle) {
        self.changes.push_back(Change::Unlink(Some(list), handle));
        self.apply_changes();
    }

    /// Removes all items from a list for which `keeps` is false, in one pass. No header may be in progress.
    pub fn retain(&mut self, list: usize, mut keeps: impl FnMut(Handle) -> bool) {
        debug_assert!(self.job.is_none(), "no list changes while the unit uses it");
        let Some(list) = self.lists.get_mut(list) else { return };
        self.steps += list.len() as u64;
        let elsewhere = &mut self.elsewhere;
        list.retain(|linked| {
            let stays = keeps(linked.handle);
            *elsewhere -= usize::from(!stays && linked.store != Store::Card);
            stays
        });
        self.cache.change();
        self.cache.settle(self.cycle, &self.lists);
    }

    /// Replaces the contents of a list by an item that is not appended yet. The unit then compares the item with the
    /// headers of messages that came unexpected.
    pub fn hold(&mut self, list: usize, handle: Handle, item: Item) {
        debug_assert!(self.job.is_none(), "no list changes while the unit uses it");
        if let Some(list) = self.lists.get_mut(list) {
            self.elsewhere -= elsewhere(list);
            list.clear();
            list.push_back(Linked { handle, item, store: Store::Held });
            self.elsewhere += 1;
        }
        self.cache.change();
    }

    /// Takes the held item back, unless a message has used it up.
    pub fn release(&mut self, list: usize) -> Option<Item> {
        self.cache.change();
        let linked = self.lists.get_mut(list)?.pop_front()?;
        self.elsewhere -= usize::from(linked.store != Store::Card);
        Some(linked.item)
    }

    /// Lets cycles pass in which only memory delivers.
    pub fn rest(&mut self, cycles: u64) {
        debug_assert!(self.is_idle(), "no header waits for its outcome");
        self.cycle = self.cycle.saturating_add(cycles);
    }

    /// Cycles that appending and unlinking took so far, without items that were used up.
    #[must_use]
    pub const fn change_cycles(&self) -> u64 {
        self.change_cycles
    }

    /// Items that unlinking has checked or moved so far: its cost for this program, not for the hardware.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// A header arrived for the first list.
    pub fn on_header(&mut self, header: Header) {
        self.on_header_for(Search::default(), header);
    }

    /// A header arrived for these lists.
    pub fn on_header_for(&mut self, search: Search, header: Header) {
        self.headers.push_back((search, header));
    }

    /// The result for the next header, in the order of arrival.
    pub fn poll_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// The present items of the first list.
    pub fn list(&self) -> impl Iterator<Item = &Item> {
        self.items(0)
    }

    /// The present items of a list.
    pub fn items(&self, list: usize) -> impl Iterator<Item = &Item> {
        self.lists.get(list).into_iter().flatten().map(|linked| &linked.item)
    }

    /// Maximum number of items that a header would meet.
    #[must_use]
    pub fn searched(&self, search: Search) -> usize {
        items_of(&self.lists, search)
    }

    /// Restarts with another unit. Headers without an outcome are forgotten; the lists stay.
    pub fn restart(&mut self, unit: Unit) {
        self.unit = unit;
        self.walks = Walks::default();
        self.fifos = Fifos::new(self.timing.fifo_words);
        self.headers.clear();
        self.job = None;
        self.apply_changes();
        self.cache.settle(self.cycle, &self.lists);
    }

    /// The unit.
    #[must_use]
    pub const fn unit(&self) -> &Unit {
        &self.unit
    }

    /// Cycles so far.
    #[must_use]
    pub const fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Whether every header has its outcome.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.job.is_none() && self.headers.is_empty()
    }

    /// Runs until every header has its outcome, with `watchdog` cycles for each.
    ///
    /// # Errors
    /// [`Misbehaved`].
    pub fn run(&mut self, watchdog: u64) -> Result<(), Misbehaved> {
        self.run_within(watchdog, u64::MAX)
    }

    /// The same, with a budget of about `words` words that the unit may issue for all headers. A cycle in which the
    /// unit waits costs this program nothing, however long a list or a bus makes the wait. A word that it issues does.
    ///
    /// # Errors
    /// [`Misbehaved`].
    pub fn run_within(&mut self, watchdog: u64, words: u64) -> Result<(), Misbehaved> {
        let last_word = self.unit.issued().saturating_add(words);
        while !self.is_idle() {
            let ends = self.job.as_ref().map_or(self.cycle, |job| job.began) + watchdog + 1;
            if !self.walk(ends, last_word) {
                let words_left = last_word.saturating_sub(self.unit.issued()).max(WORDS_AT_ONCE);
                self.advance(ends.saturating_sub(self.cycle).max(1).min(words_left))?;
            }
            let is_late = self.job.as_ref().is_some_and(|job| self.cycle - job.began > watchdog);
            let is_long = !self.is_idle() && self.unit.issued() > last_word;
            if is_late || is_long {
                return Err(Misbehaved::Watchdog { cycles: watchdog });
            }
        }
        Ok(())
    }

    /// Executes one cycle.
    ///
    /// # Errors
    /// [`Misbehaved`].
    pub fn tick(&mut self) -> Result<(), Misbehaved> {
        self.advance(1)
    }

    /// Executes the next cycle, and up to `most` cycles in which nothing has to be decided. Ends when an entity was
    /// sent, or when a word that the unit wrote is available.
    fn advance(&mut self, most: u64) -> Result<(), Misbehaved> {
        while let Some(word) = self.fifos.take_output(self.cycle) {
            self.on_output(word)?;
        }
        self.begin();
        let pause = self.begin_entity();
        let feed = self.job.as_ref().map_or(&[][..], Job::rest);
        let burst = self.unit.run(&mut self.fifos, feed, self.cycle, most.min(pause));
        if let Some(job) = &mut self.job {
            job.sent += burst.sent;
        }
        self.cycle += burst.cycles;
        if burst.ran_out { Err(Misbehaved::RanOut { pc: self.unit.pc() }) } else { Ok(()) }
    }

    fn begin(&mut self) {
        if self.job.is_some() || self.cycle < self.free_at {
            return;
        }
        let Some((search, header)) = self.headers.pop_front() else { return };
        let is_held = item_at(&self.lists, search, 0).is_some_and(|linked| linked.store == Store::Held);
        if !is_held {
            self.cache.begin(self.cycle, search, &self.lists);
        }
        let items = items_of(&self.lists, search);
        self.job = Some(Job {
            search,
            length: header.length,
            began: self.cycle,
            items,
            spill_reads: 0,
            entity: header.to_words(),
            sent: 0,
            begun: WORDS,
            verdicts: 0,
            said: Said::Nothing,
            result_at: 0,
            is_held,
            has_settled: false,
            end: None,
            last: None,
        });
    }

    /// Begins to send the next entity, if one may be begun. Returns after how many cycles to try again, if the unit
    /// writes nothing before.
    fn begin_entity(&mut self) -> u64 {
        let Some(job) = &mut self.job else {
            let pause = if self.headers.is_empty() { 0 } else { self.free_at.saturating_sub(self.cycle) };
            return pause.max(1);
        };
        if job.sent < job.begun {
            return u64::MAX;
        }
        if !self.fifos.has_room() {
            return 1;
        }
        let index = job.sent / WORDS - 1;
        if !job.may_begin(index) {
            return u64::MAX;
        }
        job.entity = if job.end == Some(index) {
            if !job.is_held && job.said == Said::Nothing {
                self.cache.settle(self.cycle, &self.lists);
                job.has_settled = true;
            }
            Item::END.to_words()
        } else {
            let Some(linked) = item_at(&self.lists, job.search, index) else { return u64::MAX };
            let available = match linked.store {
                Store::Card => self.cache.arrival(self.cycle, &self.lists),
                Store::Spilled => job.began.saturating_add(self.timing.spill_cycles(job.spill_reads)),
                Store::Held => 0,
            };
            if available > self.cycle {
                return available - self.cycle;
            }
            job.spill_reads += usize::from(linked.store == Store::Spilled);
            if linked.store != Store::Held {
                self.cache.leave(self.cycle, index, linked.store == Store::Card, &self.lists);
            }
            linked.item.to_words()
        };
        job.begun += WORDS;
        u64::MAX
    }

    fn on_output(&mut self, word: u64) -> Result<(), Misbehaved> {
        let Some(job) = &mut self.job else { return Err(Misbehaved::Answer { word, due: Due::Nothing }) };
        // A verdict on an entity that was not begun is invalid.
        let is_begun = job.sent > (job.verdicts + 1) * WORDS;
        match (job.said, word) {
            (Said::Nothing, FAILED) if is_begun => {
                job.verdicts += 1;
                if job.verdicts > job.items {
                    self.end();
                }
            }
            (Said::Nothing, SUCCEEDED) if is_begun && job.verdicts < job.items => {
                job.said = Said::Succeeded;
                // An entity that was begun after the item is sent completely, and nothing after it.
                let begun = job.sent.saturating_sub(WORDS).div_ceil(WORDS);
                if begun > job.verdicts + 1 {
                    job.last = Some(begun - 1);
                }
            }
            (Said::Succeeded, offset) => job.said = Said::Offset(offset),
            (Said::Offset(offset), length) => {
                job.said = Said::All { offset, length };
                job.result_at = self.cycle;
                return self.check_result(offset, length);
            }
            (Said::All { .. }, DONE) => self.end(),
            (said, word) => {
                let due = if said == Said::Nothing { Due::of(word, is_begun) } else { Due::Done };
                return Err(Misbehaved::Answer { word, due });
            }
        }
        Ok(())
    }

    /// If items are consumed, a result must be inside the item and the message.
    fn check_result(&self, offset: u64, length: u64) -> Result<(), Misbehaved> {
        let is_right = |job| is_result((self.uses, &self.lists), job, job.verdicts, offset, length);
        if self.job.as_ref().is_none_or(is_right) {
            return Ok(());
        }
        Err(Misbehaved::Result { offset, length })
    }

    /// The header has ended.
    fn end(&mut self) {
        if self.is_looking() {
            self.see_end();
        }
        let Some(job) = self.job.take() else { return };
        let steps = self.timing.steps;
        let taken = match job.said {
            Said::All { offset, length } => self.take(job.search, job.verdicts, offset, length),
            _ => None,
        };
        // The list manager sends command and event and writes the item back, while the unit drains the next item.
        let worked_until = taken.map_or(0, |taken| {
            let told_at = job.result_at + steps.result();
            told_at + self.write_back(told_at, taken.is_unlinked)
        });
        self.free_at = worked_until.max(self.cycle + steps.hear) + steps.pull;
        self.outcomes.push_back(Outcome {
            matched: taken,
            // After the last item, the unit also judged the end of the list.
            traversed: if taken.is_some() { job.verdicts + 1 } else { job.verdicts.saturating_sub(1) },
            spill_reads: job.spill_reads,
            cycles: self.free_at - job.began,
        });
        self.apply_changes();
    }

    /// An item has taken a message. No further item is sent, and the item in local memory is changed. Returns the
    /// cycles for this.
    fn write_back(&mut self, now: u64, is_unlinked: bool) -> u64 {
        let steps = self.timing.steps;
        self.cache.settle(now, &self.lists);
        match self.uses {
            Use::Keep => 0,
            Use::Consume if is_unlinked => steps.unlink_words,
            Use::Consume => {
                self.cache.write(now, steps.update_words);
                steps.update_words
            }
        }
    }

    /// The item at `index` takes a message.
    fn take(&mut self, search: Search, index: usize, offset: u64, length: u64) -> Option<Matched> {
        let (list, place) = locate(&self.lists, search, index)?;
        let list = self.lists.get_mut(list)?;
        let linked = list.get_mut(place)?;
        let handle = linked.handle;
        let is_unlinked = self.uses == Use::Consume && linked.item.consume(length);
        if is_unlinked {
            self.elsewhere -= usize::from(linked.store != Store::Card);
            list.remove(place);
            self.cache.change();
        }
        Some(Matched { handle, index, offset, length, is_unlinked })
    }

    fn apply_changes(&mut self) {
        if self.job.is_some() {
            return;
        }
        if self.changes.is_empty() {
            return;
        }
        self.cache.change();
        for change in core::mem::take(&mut self.changes) {
            let cycles = self.apply(change);
            self.change_cycles += cycles;
            self.free_at = self.free_at.max(self.cycle) + cycles;
        }
        self.cache.settle(self.free_at, &self.lists);
    }

    /// Makes a change. Returns its cycles.
    fn apply(&mut self, change: Change) -> u64 {
        let steps = self.timing.steps;
        match change {
            Change::Link(list, linked) => {
                let Some(list) = self.lists.get_mut(list) else { return 0 };
                list.push_back(linked);
                self.elsewhere += usize::from(linked.store != Store::Card);
                if linked.store == Store::Card {
                    self.cache.write(self.free_at.max(self.cycle), WORDS as u64);
                    return steps.append();
                }
                // The item's words are in another memory.
                steps.link_words
            }
            Change::Unlink(Some(list), handle) => {
                if self.remove(list, handle) {
                    steps.unlink_words
                } else {
                    0
                }
            }
            Change::Unlink(None, handle) => {
                let is_found = (0..self.lists.len()).any(|list| self.remove(list, handle));
                if is_found { steps.unlink_words } else { 0 }
            }
        }
    }

    /// Removes an item from a list, if it is there.
    fn remove(&mut self, list: usize, handle: Handle) -> bool {
        let Some(list) = self.lists.get_mut(list) else { return false };
        let (removed, looked_at) = remove(list, handle);
        self.steps += looked_at;
        self.elsewhere -= usize::from(removed.is_some_and(|linked| linked.store != Store::Card));
        removed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;

    use super::*;
    use crate::models::matching::item::{INFINITE, Operation, flag};
    use crate::models::matching::program::portals;

    const ITEM: Item = Item {
        match_bits: 5,
        dont_ignore_bits: u64::MAX,
        node: 1,
        process: 1,
        flags: flag::VALID | flag::PUT,
        length: 1_000,
        local_offset: 0,
        max_size: 0,
        threshold: INFINITE,
        start: 0,
    };
    const HEADER: Header = Header {
        match_bits: 5,
        node: 1,
        process: 1,
        operation: Operation::Put,
        length: 64,
        remote_offset: 0,
    };

    fn manager(uses: Use, items: impl IntoIterator<Item = Item>) -> ListManager {
        let unit = Unit::new(&portals().unwrap()).unwrap();
        let mut manager = ListManager::new(Timing::default(), uses, unit);
        for item in items {
            manager.preload(item);
        }
        manager
    }

    /// `misses` items with other match bits, and one that matches.
    fn list(misses: usize) -> Vec<Item> {
        let mut items = vec![Item { match_bits: 6, ..ITEM }; misses];
        items.push(ITEM);
        items
    }

    fn run(manager: &mut ListManager, headers: usize) -> Vec<Outcome> {
        (0..headers).for_each(|_| manager.on_header(HEADER));
        manager.run(100_000).unwrap();
        core::iter::from_fn(|| manager.poll_outcome()).collect()
    }

    #[test]
    fn a_header_costs_twenty_eight_cycles_and_eight_for_each_item() {
        for misses in [0, 1, 2, 3, 9, 29, 299] {
            let mut manager = manager(Use::Keep, list(misses));
            let outcomes = run(&mut manager, 64);
            let n = misses as u64 + 1;
            // The first is preceded by the program's initialization.
            for outcome in &outcomes[1..] {
                assert_eq!(outcome.cycles, 28 + 8 * n, "{n} items");
                assert_eq!((outcome.traversed, outcome.matched.unwrap().index), (misses + 1, misses));
            }
        }
    }

    /// Cycles of the last of four headers.
    fn cycles(manager: &mut ListManager) -> u64 {
        run(manager, 4).last().unwrap().cycles
    }

    #[test]
    fn two_cache_slots_cover_16_cycles_and_three_cover_24() {
        let cost = |cache_items, memory_latency, misses: usize| {
            let timing = Timing { cache_items, memory_latency, ..Timing::default() };
            let unit = Unit::new(&portals().unwrap()).unwrap();
            let mut manager = ListManager::new(timing, Use::Keep, unit);
            for item in list(misses) {
                manager.preload(item);
            }
            cycles(&mut manager)
        };
        for (items, covered) in [(1, 8), (2, 16), (3, 24)] {
            for misses in [0, 1, 2, 3, 9, 29] {
                assert_eq!(cost(items, covered, misses), 36 + 8 * misses as u64, "{items} slots, {misses}");
            }
            assert!(cost(items, covered + 1, 29) > 36 + 8 * 29, "{items} slots");
        }
    }

    #[test]
    fn cached_items_of_another_list_are_discarded() {
        let unit = Unit::new(&portals().unwrap()).unwrap();
        let mut manager = ListManager::with_lists(2, Timing::default(), Use::Keep, unit);
        for list in 0..2 {
            manager.link(list, Handle::new(list as u64), ITEM, Store::Card);
        }
        let cost = |manager: &mut ListManager, first| {
            manager.rest(100);
            manager.on_header_for(Search { first, then: None }, HEADER);
            manager.run(1_000).unwrap();
            manager.poll_outcome().unwrap().cycles
        };
        cost(&mut manager, 0);
        let costs = [0, 1, 1, 0].map(|list| cost(&mut manager, list));
        // After a header's eight words, two of the ten cycles of memory are left.
        assert_eq!(costs, [36, 38, 36, 38]);
    }

    #[test]
    fn unlinked_items_leave_the_cache() {
        let unit = Unit::new(&portals().unwrap()).unwrap();
        let timing = Timing { memory_latency: 40, ..Timing::default() };
        let mut manager = ListManager::new(timing, Use::Keep, unit);
        let handles = [ITEM; 3].map(|item| manager.preload(item));
        run(&mut manager, 1);
        manager.rest(100);
        handles[..2].iter().for_each(|handle| manager.unlink(*handle));
        let [outcome] = run(&mut manager, 1)[..] else { panic!("one outcome") };
        assert_eq!(outcome.matched.unwrap().handle, handles[2]);
        // The item was requested when the first one was unlinked, 40 cycles before it arrives. Unlinking the second
        // item takes three of these cycles, and the header's words take eight.
        assert_eq!(outcome.cycles, 36 + 40 - 3 - 8);
    }

    #[test]
    fn the_cache_is_filled_again_when_an_item_is_used_up() {
        let mut manager = manager(Use::Consume, vec![Item { threshold: 1, ..ITEM }; 9]);
        let outcomes = run(&mut manager, 9);
        // Writing the links of a used-up item takes one cycle longer than the flush.
        assert!(outcomes[1..].iter().all(|outcome| outcome.cycles == 37), "{outcomes:?}");
        assert_eq!(manager.list().count(), 0);
        assert_eq!(manager.change_cycles(), 0, "these cycles belong to the headers");
    }

    #[test]
    fn changes_of_a_list_take_cycles() {
        let mut manager = manager(Use::Keep, []);
        let handles = [ITEM; 2].map(|item| manager.append(item));
        assert_eq!(manager.change_cycles(), 2 * (2 + 8));
        manager.on_header(HEADER);
        manager.tick().unwrap();
        assert_eq!(manager.state().matching, None, "the header waits for the changes");
        manager.run(1_000).unwrap();
        manager.unlink(handles[0]);
        manager.unlink(handles[0]);
        assert_eq!(manager.change_cycles(), 20 + 3, "an item that is gone costs nothing");
    }

    #[test]
    fn a_list_without_a_match_ends_and_the_next_header_follows() {
        let mut manager = manager(Use::Keep, vec![Item { match_bits: 6, ..ITEM }; 3]);
        let outcomes = run(&mut manager, 3);
        assert!(outcomes.iter().all(|outcome| outcome.matched.is_none() && outcome.traversed == 3));
        manager.append(ITEM);
        let [outcome] = run(&mut manager, 1)[..] else { panic!("one outcome") };
        assert_eq!(outcome.matched.unwrap().index, 3);
    }

    #[test]
    fn an_empty_list_takes_nothing() {
        let outcomes = run(&mut manager(Use::Keep, []), 2);
        assert!(outcomes.iter().all(|outcome| outcome.matched.is_none() && outcome.traversed == 0));
        assert_eq!(outcomes.len(), 2);
    }

    #[test]
    fn an_item_is_used_up_by_its_threshold() {
        let mut manager = manager(Use::Consume, [Item { threshold: 2, ..ITEM }, ITEM]);
        let outcomes = run(&mut manager, 3);
        let places: Vec<_> = outcomes.iter().map(|o| o.matched.map(|m| (m.index, m.offset))).collect();
        assert_eq!(places, [Some((0, 0)), Some((0, 64)), Some((0, 0))]);
        assert_ne!(outcomes[0].matched.unwrap().handle, outcomes[2].matched.unwrap().handle);
    }

    #[test]
    fn changes_wait_for_the_end_of_a_header() {
        let mut manager = manager(Use::Keep, [Item { match_bits: 6, ..ITEM }]);
        let first = manager.append(ITEM);
        manager.on_header(HEADER);
        manager.on_header(HEADER);
        (0..12).for_each(|_| manager.tick().unwrap());
        manager.unlink(first);
        manager.run(1_000).unwrap();
        assert_eq!(manager.poll_outcome().unwrap().matched.unwrap().handle, first, "the header had begun");
        assert_eq!(manager.poll_outcome().unwrap().matched, None);
    }

    #[test]
    fn header_stopped_by_its_word_budget_has_no_outcome() {
        let mut ended = Vec::new();
        for words in 0..200 {
            let mut manager = manager(Use::Consume, list(9));
            manager.on_header(HEADER);
            let has_ended = manager.run_within(100_000, words).is_ok();
            assert_eq!(has_ended, manager.poll_outcome().is_some(), "{words} words");
            ended.push(has_ended);
        }
        assert!(!ended[0] && ended[199] && ended.is_sorted());
    }

    #[test]
    fn a_program_that_never_ends_is_stopped() {
        let unit = Unit::new(
            &[niclab_isa::Word {
                branch: niclab_isa::Branch { sense: true, ..Default::default() },
                ..Default::default()
            }; 3],
        );
        let mut manager = ListManager::new(Timing::default(), Use::Keep, unit.unwrap());
        manager.on_header(HEADER);
        assert_eq!(manager.run(500), Err(Misbehaved::Watchdog { cycles: 500 }));
    }

    /// Items and headers of few classes, so that many of them differ in only one property.
    fn any_item() -> impl Strategy<Value = Item> {
        let bits = prop_oneof![6 => Just(6_u64), 1 => Just(5_u64)];
        let masks = prop_oneof![4 => Just(u64::MAX), 1 => Just(!1_u64), 1 => Just(!3_u64)];
        let flags = prop_oneof![3 => Just(flag::VALID | flag::PUT), 1 => 0..64_u16];
        let sizes = (prop_oneof![Just(1_000_u64), Just(64), Just(8)], 0..9_u64, 0..100_u64);
        let threshold = prop_oneof![3 => Just(INFINITE), 1 => 0..3_u32];
        (bits, masks, flags, sizes, threshold, 0..4_u8).prop_map(
            |(match_bits, dont_ignore_bits, flags, (length, local_offset, max_size), threshold, source)| {
                Item {
                    match_bits,
                    dont_ignore_bits,
                    node: if source & 1 == 0 { 1 } else { 2 },
                    process: if source & 2 == 0 { 1 } else { u16::MAX },
                    flags,
                    length,
                    local_offset,
                    max_size,
                    threshold,
                    start: 0,
                }
            },
        )
    }

    /// The built-in program with some of its words replaced, moved or removed.
    fn any_program() -> impl Strategy<Value = Vec<niclab_isa::Word>> {
        let changes = prop::collection::vec((0..44_usize, 0..44_usize), 0..3);
        changes.prop_map(|changes| {
            let mut program = portals().unwrap();
            for (from, to) in changes {
                program[to] = program[from];
            }
            program
        })
    }

    fn any_timing() -> impl Strategy<Value = Timing> {
        let fifos = prop_oneof![Just(16_usize), 8..60_usize];
        (1..4_usize, prop_oneof![Just(10_u64), 1..40_u64], fifos, 0..30_u64).prop_map(
            |(cache_items, memory_latency, fifo_words, spill_latency)| Timing {
                cache_items,
                memory_latency,
                fifo_words,
                spill_latency,
                ..Timing::default()
            },
        )
    }

    /// A program, its list manager and items, headers, the idle time between them, and the budget of a header.
    #[derive(Clone, Debug)]
    struct Case {
        program: Vec<niclab_isa::Word>,
        timing: Timing,
        items: Vec<(Item, u8, usize)>,
        headers: Vec<((u8, u64, u64), usize, bool)>,
        rests: Vec<u64>,
        watchdog: u64,
        words: u64,
    }

    fn any_case() -> impl Strategy<Value = Case> {
        (
            any_program(),
            any_timing(),
            prop::collection::vec((any_item(), 0..12_u8, 1..12_usize), 1..12),
            prop::collection::vec(((0..4_u8, 4..8_u64, 0..100_u64), 1..6_usize, any::<bool>()), 1..12),
            prop::collection::vec(0..30_u64, 12),
            prop_oneof![4 => Just(100_000_u64), 1 => 10..2_000_u64],
            prop_oneof![4 => Just(u64::MAX), 1 => 0..3_000_u64],
        )
            .prop_map(|(program, timing, items, headers, rests, watchdog, words)| Case {
                program,
                timing,
                items,
                headers,
                rests,
                watchdog,
                words,
            })
    }

    /// Compares the list manager with automata to the one without. Returns how many headers took one step.
    fn hold(case: &Case) -> u64 {
        let Case { program, timing, items, headers, rests, watchdog, words } = case;
        let mut managers = [false, true].map(|is_automated| {
            let mut unit = Unit::new(program).unwrap();
            if is_automated {
                unit.automate(0);
            }
            let mut manager = ListManager::with_lists(2, *timing, Use::Consume, unit);
            let all =
                items.iter().flat_map(|(item, store, times)| core::iter::repeat_n((item, store), *times));
            for (number, (item, store)) in all.enumerate() {
                let store = if *store == 0 { Store::Spilled } else { Store::Card };
                manager.link(number % 2, Handle::new(number as u64), *item, store);
            }
            manager
        });
        let repeated = headers.iter().zip(rests).flat_map(|((header, times, at_once), rest)| {
            // One after the other, or all at once.
            let (runs, each) = if *at_once { (1, *times) } else { (*times, 1) };
            core::iter::repeat_n((header, each, rest), runs)
        });
        for ((kind, match_bits, length), each, rest) in repeated {
            let then = (kind & 1 == 1).then_some(1);
            let header =
                Header { match_bits: *match_bits, length: *length, remote_offset: *length / 2, ..HEADER };
            let seen = managers.each_mut().map(|manager| {
                (0..each).for_each(|_| manager.on_header_for(Search { first: 0, then }, header));
                let ended = manager.run_within(*watchdog, *words);
                let outcome: Vec<_> = core::iter::from_fn(|| manager.poll_outcome()).collect();
                if ended.is_ok() {
                    manager.rest(*rest);
                }
                let unit = (manager.unit.issued(), manager.unit.cycles());
                (ended, outcome, manager.cycle, manager.free_at, unit)
            });
            assert_eq!(seen[0], seen[1]);
            let items = managers.each_ref().map(|manager| {
                let elsewhere: usize = manager.lists.iter().map(elsewhere).sum();
                assert_eq!(manager.elsewhere, elsewhere, "items that are not in local memory");
                manager.lists.iter().flatten().map(|linked| linked.item).collect::<Vec<_>>()
            });
            assert_eq!(items[0], items[1]);
            if seen[0].0.is_err() {
                break;
            }
        }
        managers[1].passed_whole()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn automata_equal_the_list_manager_and_its_unit(case in any_case()) {
            hold(&case);
        }
    }

    #[test]
    fn headers_of_many_programs_take_one_step() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let whole = |_| {
            let mut case = Strategy::new_tree(&any_case(), &mut runner).unwrap().current();
            // A single step excludes spilled items, and needs a short list.
            case.items.truncate(3);
            case.items.iter_mut().for_each(|(_, store, times)| (*store, *times) = (1, 1 + *times % 2));
            hold(&case)
        };
        let whole: Vec<_> = (0..100).map(whole).collect();
        let count = whole.iter().filter(|whole| **whole > 0).count();
        assert!(count >= 20 && whole.iter().sum::<u64>() >= 200, "{whole:?}");
    }
}
