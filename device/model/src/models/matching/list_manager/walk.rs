//! A timing automaton for the walk along a list: what happens from the last word of one entity to the last word of the next, while
//! items fail, found once and then done at once.
//!
//! All that decides how these cycles pass is a [`Phase`]: the unit's place, how many words wait, which verdicts are on their way,
//! what the cache holds and when it comes. From there a step leads to another phase for each class of item: the unit's way
//! through its program, with what data must be for it to go that way ([`Path`]). Phases and steps are seen as they are first
//! passed by the list manager itself, and only items in local memory with others behind them are passed so. Everything else, and
//! an item of a class that was not met, is for the list manager, word by word or not.

use alloc::vec::Vec;

use super::{ListManager, Said, Store, cache, item_at};
use crate::models::matching::fifo::MAX_WORDS;
use crate::models::matching::item::WORDS;
use crate::models::matching::program::FAILED;
use crate::models::matching::unit::Path;

/// Phases and steps at most. Attack: lists whose items are of ever other classes, for a program with many, would fill this
/// machine's memory. Ours: bounds.
const MOST_PHASES: usize = 64;
/// Ours: a bound, for the same.
const MOST_STEPS: usize = 256;
/// Items in a row from one phase that lead nowhere, such as those that match, before no more are looked at there. Ours: a bound on
/// what looking costs.
const MOST_FAILURES: u32 = 64;
/// Cycles and words that must be left to whoever watches beyond those of a step. Ours: more than a burst that depends on them.
const MARGIN_CYCLES: u64 = 128;
/// Verdicts on their way at most. Ours: more than there can be.
const MOST_VERDICTS: usize = 4;

/// What decides on the cycles that follow the last word of an entity; cycles count from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Phase {
    place: (usize, u16, u8),
    /// Words in the input.
    waiting: usize,
    /// Entities sent, less items judged.
    lag: usize,
    /// When verdicts that are on their way can be heard. All are that the item failed.
    verdicts: [u64; MOST_VERDICTS],
    verdicts_written: usize,
    cache: cache::Phase,
}

/// From one phase to another.
#[derive(Clone, Debug)]
struct Step {
    path: Path,
    cycles: u64,
    verdicts: usize,
    to: usize,
}

/// A phase, and the steps from there.
#[derive(Clone, Debug)]
struct Known {
    phase: Phase,
    steps: Vec<Step>,
    failures: u32,
}

/// All that were met, with one program.
#[derive(Clone, Debug, Default)]
pub(super) struct Walks {
    known: Vec<Known>,
    steps: usize,
    /// A step is looked at.
    looking: Option<Looking>,
    /// Cycles that were passed so.
    cycles: u64,
}

/// Where a step began that is looked at.
#[derive(Clone, Copy, Debug)]
struct Looking {
    from: usize,
    /// Which header's, and how far.
    began: u64,
    sent: usize,
    verdicts: usize,
    cycle: u64,
    issued: u64,
    left: usize,
}

impl Walks {
    fn number_of(&mut self, phase: Phase) -> Option<usize> {
        if let Some(number) = self.known.iter().position(|known| known.phase == phase) {
            return Some(number);
        }
        if self.known.len() >= MOST_PHASES {
            return None;
        }
        self.known.push(Known { phase, steps: Vec::new(), failures: 0 });
        Some(self.known.len() - 1)
    }
}

impl ListManager {
    /// Cycles that were passed entity by entity.
    #[must_use]
    pub const fn walked(&self) -> u64 {
        self.walks.cycles
    }

    /// Goes along the list as far as is known how, and looks at one step more while it is passed. Nobody stops it before cycle
    /// `ends` or before so many words were issued.
    pub(super) fn walk(&mut self, ends: u64, last_word: u64) {
        if !self.unit.has_automaton() {
            return;
        }
        if let Some(looking) = self.walks.looking {
            if !self.has_looked(&looking, ends, last_word) {
                return;
            }
            self.walks.looking = None;
        }
        let Some(phase) = self.phase().filter(|_| self.is_among_plain()) else { return };
        let Some(number) = self.walks.number_of(phase) else { return };
        #[cfg(any(test, debug_assertions))]
        let beside = self.beside();
        let ended = self.go(number, ends, last_word);
        #[cfg(any(test, debug_assertions))]
        self.check_beside(beside, ends);
        if let Some(number) = ended {
            self.look(number, ends, last_word);
        }
    }

    /// Items that must follow one that is sent, so that the cache meets no end of the list.
    const fn ahead(&self) -> usize {
        self.timing.cache_items + 2
    }

    /// Whether the next items are in local memory, as many as the cache can meet with a step.
    fn is_among_plain(&self) -> bool {
        let Some(job) = &self.job else { return false };
        let index = job.sent / WORDS - 1;
        let is_plain =
            |index| item_at(&self.lists, job.search, index).is_some_and(|linked| linked.store == Store::Card);
        !job.is_held && (index..=index + self.ahead()).all(is_plain)
    }

    /// Where it is, if the walk is between two entities and no item has matched.
    fn phase(&self) -> Option<Phase> {
        let job = self.job.as_ref()?;
        let is_between = job.sent == job.begun && job.said == Said::Nothing && job.last.is_none();
        let index = (job.sent / WORDS).checked_sub(1).filter(|_| is_between)?;
        let mut verdicts = [0; MOST_VERDICTS];
        let mut verdicts_written = 0;
        for (at, word) in self.fifos.output() {
            if word != FAILED {
                return None;
            }
            *verdicts.get_mut(verdicts_written)? = at.saturating_sub(self.cycle);
            verdicts_written += 1;
        }
        let waiting = self.fifos.waiting();
        (waiting + WORDS <= MAX_WORDS).then_some(())?;
        Some(Phase {
            place: self.unit.place(),
            waiting,
            lag: (job.sent / WORDS).checked_sub(job.verdicts)?,
            verdicts,
            verdicts_written,
            cache: self.cache.phase(self.cycle, index)?,
        })
    }

    /// Takes all steps that are known from a phase on. Where that ends, if there one could be looked at.
    fn go(&mut self, from: usize, ends: u64, last_word: u64) -> Option<usize> {
        let ahead = self.ahead();
        let Self { walks, job: Some(job), unit, fifos, lists, cycle, .. } = self else { return None };
        let (mut number, begin) = (from, *cycle);
        let can_look = 'items: loop {
            let index = job.sent / WORDS - 1;
            let is_plain =
                |index| item_at(lists, job.search, index).is_some_and(|linked| linked.store == Store::Card);
            if !is_plain(index + ahead) {
                break false;
            }
            let (Some(linked), Some(known)) = (item_at(lists, job.search, index), walks.known.get(number))
            else {
                break false;
            };
            fifos.push_all(&linked.item.to_words());
            for step in &known.steps {
                let is_in_time = *cycle + step.cycles + MARGIN_CYCLES <= ends
                    && unit.issued().saturating_add(step.path.issued + MARGIN_CYCLES) <= last_word;
                if is_in_time && unit.go(&step.path, step.cycles, fifos) {
                    *cycle += step.cycles;
                    job.sent += WORDS;
                    job.verdicts += step.verdicts;
                    number = step.to;
                    continue 'items;
                }
            }
            fifos.take_back(WORDS);
            break true;
        };
        job.begun = job.sent;
        let passed = *cycle - begin;
        walks.cycles += passed;
        let phase = walks.known.get(number)?.phase;
        if passed > 0 {
            self.arrive(&phase);
        }
        can_look.then_some(number)
    }

    /// Is in a phase.
    fn arrive(&mut self, phase: &Phase) {
        let Some(job) = &mut self.job else { return };
        let index = job.sent / WORDS - 1;
        if let Some(linked) = item_at(&self.lists, job.search, index - 1) {
            job.entity = linked.item.to_words();
        }
        self.unit.set_place(phase.place);
        let cycle = self.cycle;
        let verdicts = phase.verdicts.into_iter().take(phase.verdicts_written);
        self.fifos.set_output(verdicts.map(|at| (cycle + at, FAILED)));
        self.cache.set_phase(cycle, index, &phase.cache, &self.lists);
    }

    /// Looks at how the next entity is passed.
    fn look(&mut self, from: usize, ends: u64, last_word: u64) {
        let (Some(known), Some(job)) = (self.walks.known.get_mut(from), &self.job) else { return };
        let is_in_time = self.cycle + 8 * MARGIN_CYCLES <= ends
            && self.unit.issued().saturating_add(8 * MARGIN_CYCLES) <= last_word;
        if known.failures >= MOST_FAILURES || self.walks.steps >= MOST_STEPS || !is_in_time {
            return;
        }
        known.failures += 1;
        self.walks.looking = Some(Looking {
            from,
            began: job.began,
            sent: job.sent,
            verdicts: job.verdicts,
            cycle: self.cycle,
            issued: self.unit.issued(),
            left: self.fifos.left(),
        });
        self.unit.track();
    }

    /// Whether there is nothing more to look at. What was a step is known from now on.
    fn has_looked(&mut self, looking: &Looking, ends: u64, last_word: u64) -> bool {
        let job = self.job.as_ref().filter(|job| job.began == looking.began && job.said == Said::Nothing);
        if job.is_some_and(|job| job.sent == looking.sent || job.sent != job.begun) {
            return false;
        }
        let (path, phase) = (self.unit.tracked(), self.phase());
        let (Some(path), Some(phase), Some(job)) = (path, phase, &self.job) else { return true };
        let is_whole = job.began == looking.began
            && job.sent == looking.sent + WORDS
            && self.unit.issued() == looking.issued + path.issued
            && self.fifos.left() == looking.left.wrapping_add(path.takes);
        let is_in_time = self.cycle + MARGIN_CYCLES <= ends
            && self.unit.issued().saturating_add(MARGIN_CYCLES) <= last_word;
        if !is_whole || !is_in_time {
            return true;
        }
        let (cycles, verdicts) = (self.cycle - looking.cycle, job.verdicts - looking.verdicts);
        let Some(to) = self.walks.number_of(phase) else { return true };
        if let Some(known) = self.walks.known.get_mut(looking.from) {
            known.steps.push(Step { path, cycles, verdicts, to });
            known.failures = 0;
            self.walks.steps += 1;
        }
        true
    }

    /// The same without automata: what this one is held to.
    #[cfg(any(test, debug_assertions))]
    fn beside(&mut self) -> Self {
        let lists = core::mem::take(&mut self.lists);
        let beside = Self {
            unit: self.unit.beside(),
            walks: Walks::default(),
            lists: Vec::new(),
            fifos: self.fifos.clone(),
            cache: self.cache.clone(),
            changes: self.changes.clone(),
            headers: self.headers.clone(),
            job: self.job.clone(),
            outcomes: self.outcomes.clone(),
            ..*self
        };
        self.lists = lists;
        beside
    }

    /// Holds this one to it.
    #[cfg(any(test, debug_assertions))]
    fn check_beside(&mut self, mut beside: Self, ends: u64) {
        if self.cycle == beside.cycle {
            return;
        }
        core::mem::swap(&mut self.lists, &mut beside.lists);
        let sent =
            |manager: &Self| manager.job.as_ref().map(|job| (job.sent, job.begun, job.verdicts, job.began));
        let most = self.cycle;
        while beside.cycle < most && sent(&beside) != sent(self) {
            assert_eq!(beside.advance(ends - beside.cycle), Ok(()), "beside the walk");
        }
        core::mem::swap(&mut self.lists, &mut beside.lists);
        assert_eq!((beside.cycle, sent(&beside)), (self.cycle, sent(self)), "the walk's cycles");
        assert_eq!(beside.phase(), self.phase(), "where the walk ended");
        assert!(beside.fifos.input().eq(self.fifos.input()), "the walk's input");
        assert!(beside.fifos.output().eq(self.fifos.output()), "the walk's output");
        self.unit.check_unit_beside(beside.unit);
    }
}
