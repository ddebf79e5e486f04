//! The list manager (section 3.2): keeps the list, streams header and items to the match unit, hears its verdicts.
//!
//! It sends one word a cycle. One cache for all lists ([`cache`]) has the items that come next. It is at most one item
//! ahead of the item that is being judged, so that behind one that matches the unit finds exactly one more entity of
//! eight words: the item that was begun, or, where none was, the end of the list. With that drained the unit says that
//! it is done, and the next header comes. What that takes, and what appending and unlinking take, is in [`Steps`].
//!
//! It keeps as many lists as it is made with, and a header names one of them, or two that it is matched against as if
//! they were one: that is how posted entries come before those for unexpected messages. Items that card memory does not
//! hold are read from where they lie instead, later ([`Timing::spill_latency`]).

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

/// Words that the unit may issue at once, however few it has left: a wait is not taken in smaller pieces than so. Ours:
/// a bound.
const WORDS_AT_ONCE: u64 = 1_024;

/// What becomes of an item that matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Use {
    /// Nothing: the paper's benchmark (section 5.1).
    Keep,
    /// Its threshold falls and its local offset moves on. It is unlinked when the threshold is zero, or when less is
    /// left than its maximum size and it does not truncate.
    #[default]
    Consume,
}

/// Names an item for as long as it is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(u64);

impl Handle {
    /// A handle of the caller's choice, for [`ListManager::link`].
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

/// What a header is matched against: one list, or two as if they were one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// The list whose items come first.
    pub first: usize,
    /// The list behind it.
    pub then: Option<usize>,
}

/// Where an item lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Store {
    /// In the card's memory.
    #[default]
    Card,
    /// In another, from which it is fetched whenever a header comes to it.
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

/// What became of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The item that took it, if one did.
    pub matched: Option<Matched>,
    /// Items that were judged.
    pub traversed: usize,
    /// Items that were fetched because they are spilled.
    pub spill_reads: usize,
    /// Cycles from its first word to where the next header's could follow.
    pub cycles: u64,
}

/// An item that took a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matched {
    /// The item.
    pub handle: Handle,
    /// Its place in the list when the header came.
    pub index: usize,
    /// Where in its memory the message begins.
    pub offset: u64,
    /// How many bytes of it are stored.
    pub length: u64,
    /// Whether that has used the item up, so that it is not linked any more.
    pub is_unlinked: bool,
}

/// The program does not keep to the hand-shake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misbehaved {
    /// It ran out of its last word.
    #[error("the program ran out of its end, at word {pc}")]
    RanOut {
        /// Where to.
        pc: usize,
    },
    /// It wrote something that it must not write there.
    #[error("the program answered {word:#x} {due}")]
    Answer {
        /// What it wrote.
        word: u64,
        /// Why not.
        due: Due,
    },
    /// It gave an item that is used more than the item or the message has.
    #[error("the program put {length} bytes at {offset}, outside of the item or more than the message has")]
    Result {
        /// Where the message would begin.
        offset: u64,
        /// How much of it would be stored.
        length: u64,
    },
    /// A queue's program gave a command that there is not, or that makes no sense where it stood.
    #[error(
        "the queue's program gave the command {word:#x}, which there is not or which cannot be carried out now"
    )]
    Command {
        /// Its last word.
        word: u64,
    },
    /// It did not end in time.
    #[error("the program did not end a header within {cycles} cycles")]
    Watchdog {
        /// How many it had.
        cycles: u64,
    },
}

/// What was due where a program answered something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing: no header is being matched.
    Nothing,
    /// Nothing yet: the item that is judged next was not sent.
    Item,
    /// A verdict.
    Verdict,
    /// That the end of the list fails.
    End,
    /// That the item behind one that matched is drained.
    Done,
}

impl Due {
    /// What is wrong with a word that is no verdict on what is judged, which was begun or not.
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
            Self::Item => formatter.write_str("before the item was sent that is judged next"),
            Self::Verdict => write!(formatter, "where a verdict was due, {FAILED} or {SUCCEEDED}"),
            Self::End => {
                write!(formatter, "for the end of the list, which takes no message: {FAILED} is due")
            }
            Self::Done => {
                write!(formatter, "where {DONE} was due, behind a match with its offset and length")
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Link(usize, Linked),
    /// From this list, or from whichever it is in.
    Unlink(Option<usize>, Handle),
}

/// What the program has said of the item that it is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    Succeeded,
    /// And where in the item's memory the message begins.
    Offset(u64),
    /// And how many bytes are stored there.
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
    /// Items that it may meet: no list changes while it is matched.
    items: usize,
    /// Spilled items begun.
    spill_reads: usize,
    /// What is being sent: the header, an item or the end of the list.
    entity: [u64; WORDS],
    /// Words sent, those of the header first.
    sent: usize,
    /// Words that were begun: entities times eight.
    begun: usize,
    /// Items judged.
    verdicts: usize,
    /// `succeeded`, and the words that follow it.
    said: Said,
    /// The cycle in which the last of them was heard.
    result_at: u64,
    /// It is looked at for the item in the list manager's hands: nothing comes out of the cache.
    is_held: bool,
    /// The cache has gone back to the list's head, for all items were sent and none had matched.
    has_settled: bool,
    /// Which entity behind the header is the end of the list, once that is decided.
    end: Option<usize>,
    /// The entity behind which nothing is sent any more.
    last: Option<usize>,
}

impl Job {
    /// Whether the entity with this index may be begun: an item, or the end of the list, which stands behind the last
    /// item, and behind one that matched if nothing else was begun there.
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

    /// What is left to send of the entity that was begun.
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
    /// Cycles that appending and unlinking took, but for items that were used up: those are their headers'.
    change_cycles: u64,
    /// Items that unlinking has looked at or moved: what it has cost.
    steps: u64,
    /// Changes that wait for the end of a header: a list is not changed under the unit's eyes.
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
    /// With one list, which is empty.
    #[must_use]
    pub fn new(timing: Timing, uses: Use, unit: Unit) -> Self {
        Self::with_lists(1, timing, uses, unit)
    }

    /// With so many lists, all empty.
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

    /// Appends an item to the first list: headers that were not begun yet find it.
    pub fn append(&mut self, item: Item) -> Handle {
        let handle = Handle(self.next_handle);
        self.next_handle += 1;
        self.link(0, handle, item, Store::Card);
        handle
    }

    /// Appends an item to the first list that is there before the first cycle, the cache with its head, too: it costs
    /// none.
    pub fn preload(&mut self, item: Item) -> Handle {
        debug_assert!(self.cycle == 0 && self.job.is_none(), "what costs no cycle is there before the first");
        let handle = Handle(self.next_handle);
        self.next_handle += 1;
        if let Some(list) = self.lists.first_mut() {
            list.push_back(Linked { handle, item, store: Store::Card });
        }
        self.cache.change();
        self.cache.preload(&self.lists);
        handle
    }

    /// Appends an item to a list under a handle that no other item has. There is nothing to append to in a list that is
    /// not among those that the manager was made with.
    pub fn link(&mut self, list: usize, handle: Handle, item: Item, store: Store) {
        self.changes.push_back(Change::Link(list, Linked { handle, item, store }));
        self.apply_changes();
    }

    /// Takes an item out of its list: headers that were not begun yet do not find it. One that is gone already stays
    /// gone.
    pub fn unlink(&mut self, handle: Handle) {
        self.changes.push_back(Change::Unlink(None, handle));
        self.apply_changes();
    }

    /// Takes an item out of a list of which it is known that the item is in it, if it is in any.
    pub fn unlink_from(&mut self, list: usize, handle: Handle) {
        self.changes.push_back(Change::Unlink(Some(list), handle));
        self.apply_changes();
    }

    /// Takes all items out of a list that `keeps` does not want, in one pass. It is not for use while a header is
    /// matched.
    pub fn retain(&mut self, list: usize, mut keeps: impl FnMut(Handle) -> bool) {
        debug_assert!(self.job.is_none(), "a list is not changed under the unit's eyes");
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

    /// Puts an item into a list for headers that come before it is appended, in place of whatever is there: the unit
    /// looks at headers of messages that came unexpected.
    pub fn hold(&mut self, list: usize, handle: Handle, item: Item) {
        debug_assert!(self.job.is_none(), "a list is not changed under the unit's eyes");
        if let Some(list) = self.lists.get_mut(list) {
            self.elsewhere -= elsewhere(list);
            list.clear();
            list.push_back(Linked { handle, item, store: Store::Held });
            self.elsewhere += 1;
        }
        self.cache.change();
    }

    /// Takes back what was put there, unless a message has used it up.
    pub fn release(&mut self, list: usize) -> Option<Item> {
        self.cache.change();
        let linked = self.lists.get_mut(list)?.pop_front()?;
        self.elsewhere -= usize::from(linked.store != Store::Card);
        Some(linked.item)
    }

    /// Nothing happens for so many cycles but that memory delivers.
    pub fn rest(&mut self, cycles: u64) {
        debug_assert!(self.is_idle(), "there is nothing to wait for");
        self.cycle = self.cycle.saturating_add(cycles);
    }

    /// Cycles that appending and unlinking took so far, but for items that were used up.
    #[must_use]
    pub const fn change_cycles(&self) -> u64 {
        self.change_cycles
    }

    /// Items that unlinking has looked at or moved so far: what it has cost this program, not the hardware.
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

    /// What became of the next header, in the order of arrival.
    pub fn poll_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// The first list as it is.
    pub fn list(&self) -> impl Iterator<Item = &Item> {
        self.items(0)
    }

    /// A list as it is.
    pub fn items(&self, list: usize) -> impl Iterator<Item = &Item> {
        self.lists.get(list).into_iter().flatten().map(|linked| &linked.item)
    }

    /// Items that a header would meet at most.
    #[must_use]
    pub fn searched(&self, search: Search) -> usize {
        items_of(&self.lists, search)
    }

    /// Begins anew with another unit. Headers that have no outcome yet are forgotten; the lists stay.
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

    /// Goes on until every header has its outcome, giving each `watchdog` cycles.
    ///
    /// # Errors
    /// [`Misbehaved`].
    pub fn run(&mut self, watchdog: u64) -> Result<(), Misbehaved> {
        self.run_within(watchdog, u64::MAX)
    }

    /// The same, and the unit issues at most about so many words for all of it. A cycle in which it waits costs this
    /// program nothing, however long a list or a bus makes the wait; a word that it issues does.
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

    /// One cycle.
    ///
    /// # Errors
    /// [`Misbehaved`].
    pub fn tick(&mut self) -> Result<(), Misbehaved> {
        self.advance(1)
    }

    /// The next cycle, and up to `most` in which nothing is to be decided: until an entity has been sent, or something
    /// that the unit wrote is there.
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

    /// Begins to send the next entity, if one may be begun. In how many cycles to try again, if nothing that the unit
    /// writes comes before.
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
        // A verdict on something that was not begun is none.
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
                // What was begun behind it is sent to its end, and nothing behind that.
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

    /// An item is used for what it has, whatever the program says.
    fn check_result(&self, offset: u64, length: u64) -> Result<(), Misbehaved> {
        let is_right = |job| is_result((self.uses, &self.lists), job, job.verdicts, offset, length);
        if self.job.as_ref().is_none_or(is_right) {
            return Ok(());
        }
        Err(Misbehaved::Result { offset, length })
    }

    /// The header is over.
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
        // A result is commanded, told and written back while the unit drains the item behind it.
        let worked_until = taken.map_or(0, |taken| {
            let told_at = job.result_at + steps.result();
            told_at + self.write_back(told_at, taken.is_unlinked)
        });
        self.free_at = worked_until.max(self.cycle + steps.hear) + steps.pull;
        self.outcomes.push_back(Outcome {
            matched: taken,
            // Behind the last item, the end of the list was judged.
            traversed: if taken.is_some() { job.verdicts + 1 } else { job.verdicts.saturating_sub(1) },
            spill_reads: job.spill_reads,
            cycles: self.free_at - job.began,
        });
        self.apply_changes();
    }

    /// An item has taken a message: no further one is sent, and the item in local memory is changed. In how many
    /// cycles.
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
                // Its words go elsewhere.
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

    /// Takes an item out of a list, if it is there.
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

    /// Cycles of the last of a few headers.
    fn cycles(manager: &mut ListManager) -> u64 {
        run(manager, 4).last().unwrap().cycles
    }

    #[test]
    fn two_places_cover_a_round_trip_of_sixteen_cycles_and_three_of_twenty_four() {
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
                assert_eq!(cost(items, covered, misses), 36 + 8 * misses as u64, "{items} places, {misses}");
            }
            assert!(cost(items, covered + 1, 29) > 36 + 8 * 29, "{items} places");
        }
    }

    #[test]
    fn what_is_in_the_cache_of_another_list_is_not_there() {
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
        // Behind a header's eight words, of the ten cycles that memory takes two are left.
        assert_eq!(costs, [36, 38, 36, 38]);
    }

    #[test]
    fn what_was_unlinked_is_not_in_the_cache() {
        let unit = Unit::new(&portals().unwrap()).unwrap();
        let timing = Timing { memory_latency: 40, ..Timing::default() };
        let mut manager = ListManager::new(timing, Use::Keep, unit);
        let handles = [ITEM; 3].map(|item| manager.preload(item));
        run(&mut manager, 1);
        manager.rest(100);
        handles[..2].iter().for_each(|handle| manager.unlink(*handle));
        let [outcome] = run(&mut manager, 1)[..] else { panic!("one outcome") };
        assert_eq!(outcome.matched.unwrap().handle, handles[2]);
        // It was asked for when the first was unlinked, 40 cycles before it is here. Unlinking the second takes three
        // of them, the header's words eight.
        assert_eq!(outcome.cycles, 36 + 40 - 3 - 8);
    }

    #[test]
    fn the_cache_is_filled_again_when_an_item_is_used_up() {
        let mut manager = manager(Use::Consume, vec![Item { threshold: 1, ..ITEM }; 9]);
        let outcomes = run(&mut manager, 9);
        // The links of an item that is used up are written one cycle longer than the flush takes.
        assert!(outcomes[1..].iter().all(|outcome| outcome.cycles == 37), "{outcomes:?}");
        assert_eq!(manager.list().count(), 0);
        assert_eq!(manager.change_cycles(), 0, "that is the headers' own");
    }

    #[test]
    fn changes_of_a_list_take_cycles() {
        let mut manager = manager(Use::Keep, []);
        let handles = [ITEM; 2].map(|item| manager.append(item));
        assert_eq!(manager.change_cycles(), 2 * (2 + 8));
        manager.on_header(HEADER);
        manager.tick().unwrap();
        assert_eq!(manager.state().matching, None, "the header waits for them");
        manager.run(1_000).unwrap();
        manager.unlink(handles[0]);
        manager.unlink(handles[0]);
        assert_eq!(manager.change_cycles(), 20 + 3, "what is gone costs nothing");
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
        assert_eq!(manager.poll_outcome().unwrap().matched.unwrap().handle, first, "it had begun");
        assert_eq!(manager.poll_outcome().unwrap().matched, None);
    }

    #[test]
    fn a_header_that_is_stopped_for_its_words_has_no_outcome() {
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

    /// Items and headers of few classes, so that many differ in one thing alone.
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

    /// The built-in program with some words of it replaced, moved or left out.
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

    /// A program, its list manager and items, headers, how long there is nothing to do between them, and what a header
    /// may take.
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

    /// Holds the list manager with automata to the one without. How many headers went in one step.
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
        fn automata_are_the_list_manager_and_its_unit(case in any_case()) {
            hold(&case);
        }
    }

    #[test]
    fn headers_of_any_program_go_in_one_step() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let whole = |_| {
            let mut case = Strategy::new_tree(&any_case(), &mut runner).unwrap().current();
            // What no item is spilled of, for they are not for one step, and what short lists are left of.
            case.items.truncate(3);
            case.items.iter_mut().for_each(|(_, store, times)| (*store, *times) = (1, 1 + *times % 2));
            hold(&case)
        };
        let whole: Vec<_> = (0..100).map(whole).collect();
        let count = whole.iter().filter(|whole| **whole > 0).count();
        assert!(count >= 20 && whole.iter().sum::<u64>() >= 200, "{whole:?}");
    }
}
