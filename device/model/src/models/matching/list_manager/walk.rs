//! A timing automaton for the walk along a list: what happens from one entity to the next, from a header's begin to its
//! end, found once and then done at once.
//!
//! All that decides how these cycles pass is a [`Phase`]: the unit's place, how many words wait, which verdicts are on
//! their way, what the cache holds and when it comes, and how near the list's end is. From there a step leads to
//! another phase, or to the header's end, for each class of data: the unit's way through its program, with what data
//! must be for it to go that way ([`Path`]). Phases and steps are seen as they are first passed by the list manager
//! itself, and only where all items that decide are in local memory. Steps that a header went from its begin to its end
//! are put together to one ([`Whole`]), if they are few: so a short search is one step, and of its header and items
//! only that is computed which its answer depends on. Everything else, and data of a class that was not met, is for the
//! list manager, word by word or not. So is what it does between two headers.

#[cfg(any(test, debug_assertions))]
mod beside;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use super::{Job, Linked, ListManager, Said, Search, Store, Use, cache, is_result, item_at};
use crate::models::matching::fifo::{Fifos, MAX_WORDS};
use crate::models::matching::item::{Item, WORDS};
use crate::models::matching::program::{DONE, FAILED, SUCCEEDED};
use crate::models::matching::unit::{Expected, Path, Unit};

/// Phases and steps at most. Attack: lists whose items are of ever other classes, for a program with many, would fill
/// this machine's memory. Ours: bounds.
const MOST_PHASES: usize = 128;
/// Ours: a bound, for the same.
const MOST_STEPS: usize = 512;
/// Steps from one phase at most. Attack: items of ever other classes would each be tried with all of them. Ours: a
/// bound.
const MOST_STEPS_EACH: usize = 12;
/// Looks in a row from one phase that lead nowhere before no more are taken there. Ours: a bound on what looking costs.
const MOST_FAILURES: u32 = 64;
/// Cycles and words that must be left to whoever watches beyond those of a step. Ours: more than a burst that depends
/// on them.
const MARGIN_CYCLES: u64 = 128;
/// Verdicts on their way at most. Ours: more than there can be.
const MOST_VERDICTS: usize = 4;
/// Entities that a step sends at most before the end of the list. Ours: a bound; the built-in program needs one.
const MOST_ENTITIES: usize = 3;
/// Steps that are put together to one for a header at most. Ours: a bound; the built-in program needs three for one
/// whose first item matches.
const MOST_TOGETHER: usize = 6;
/// Headers' steps that are put together at most, and from one phase. Attack: lists whose items are of ever other
/// classes would have ever others put together, and every header would be tried with all of them. Ours: bounds.
const MOST_WHOLE: usize = 64;
/// Ours: a bound, for the same.
const MOST_WHOLE_EACH: usize = 4;
/// Items that are looked at at once for where they lie. Ours: measured.
const STRETCH: usize = 16;

/// What decides on the cycles that follow; they count from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Phase {
    place: (usize, u16, u8),
    /// The header was begun, and nothing of it was sent. Else it is between two entities.
    begins: bool,
    /// Items that were not sent, but not more than can decide.
    ahead: usize,
    /// Where those are all: items that the cache would hold at the list's head.
    head: usize,
    /// Words in the input.
    waiting: usize,
    /// Entities sent, less items judged.
    lag: usize,
    /// When verdicts that are on their way can be heard. All are that the item failed.
    verdicts: [u64; MOST_VERDICTS],
    verdicts_written: usize,
    cache: cache::Phase,
}

/// Words that enter the input with a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fed {
    /// Of the header and of items,
    before: usize,
    /// and then of the end of the list.
    end: usize,
}

/// Where a step leads.
#[derive(Clone, Debug)]
enum To {
    Phase(usize),
    End(End),
}

/// The unit's last word for a header was heard.
#[derive(Clone, Copy, Debug)]
struct End {
    place: (usize, u16, u8),
    /// How long ago the last word of its result was heard, if an item matched.
    result_since: Option<u64>,
    /// As it was then, or else is now.
    cache: cache::Phase,
    /// It is at the list's head again: see [`Job::has_settled`].
    has_settled: bool,
}

/// From one phase to another.
#[derive(Clone, Debug)]
struct Step {
    path: Path,
    cycles: u64,
    fed: Fed,
    verdicts: usize,
    to: To,
}

/// All steps of a header in one: to its end, where there are so many items at least.
#[derive(Clone, Debug)]
struct Whole {
    step: Step,
    end: End,
    least: usize,
}

/// Steps of a header from its begin on: phases, and places among their steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    steps: [(usize, usize); MOST_TOGETHER],
    /// How many there were.
    count: usize,
}

/// A phase, and the steps from there.
#[derive(Clone, Debug)]
struct Known {
    phase: Phase,
    steps: Vec<Step>,
    /// Those that are put together, the one that was gone last first.
    whole: Vec<Whole>,
    /// The same with all but one of the items that can decide.
    nearer: Option<usize>,
    failures: u32,
}

/// All that were met, with one program.
#[derive(Clone, Debug, Default)]
pub(super) struct Walks {
    known: Vec<Known>,
    steps: usize,
    /// Steps that were put together to one, or could not be.
    together: Vec<Taken>,
    /// Headers that were passed in one step.
    whole: u64,
    /// The phase in which the last header began.
    began: usize,
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

/// How far was gone.
enum Went {
    /// To the end of the header.
    Over(End),
    /// To a phase; whether what follows may be looked at.
    To(usize, bool),
}

impl Walks {
    fn number_of(&mut self, phase: &Phase) -> Option<usize> {
        if self.known.get(self.began).is_some_and(|known| known.phase == *phase) {
            return Some(self.began);
        }
        let known = self.known.iter().position(|known| known.phase == *phase);
        if known.is_none() && self.known.len() < MOST_PHASES {
            self.known.push(Known {
                phase: *phase,
                steps: Vec::new(),
                whole: Vec::new(),
                nearer: None,
                failures: 0,
            });
            return Some(self.known.len() - 1);
        }
        known
    }

    /// The phase that is this one with so many items ahead, and so many at the list's head.
    fn with_ahead(&mut self, number: usize, ahead: usize, head: usize) -> Option<usize> {
        let known = self.known.get(number)?;
        let is_next = ahead + 1 == known.phase.ahead;
        if let (true, Some(nearer)) = (is_next, known.nearer) {
            return Some(nearer);
        }
        let nearer = self.number_of(&Phase { ahead, head, ..known.phase })?;
        if let Some(known) = self.known.get_mut(number).filter(|_| is_next) {
            known.nearer = Some(nearer);
        }
        Some(nearer)
    }
}

impl Taken {
    /// One step more.
    #[inline]
    fn take(&mut self, from: usize, place: usize) {
        if let Some(step) = self.steps.get_mut(self.count) {
            *step = (from, place);
        }
        self.count += 1;
    }

    /// Where these steps begin, if there are several and all are here.
    fn begin(&self) -> Option<usize> {
        (2..=MOST_TOGETHER).contains(&self.count).then_some(self.steps[0].0)
    }
}

impl Job {
    /// The item that is sent next.
    const fn next_item(&self) -> usize {
        (self.sent / WORDS).saturating_sub(1)
    }
}

impl Fed {
    const NONE: Self = Self { before: 0, end: 0 };

    const fn words(self) -> usize {
        self.before + self.end
    }

    /// These words enter.
    #[inline(always)]
    fn enter(self, fifos: &mut Fifos, job: &Job, lists: &[VecDeque<Linked>]) {
        match self {
            Self { before: WORDS, end: 0 } if job.sent == 0 => fifos.push_entity(job.entity),
            Self { before: 0, end: WORDS } => fifos.push_entity(Item::END.to_words()),
            Self { before: WORDS, end: 0 } => {
                if let Some(linked) = item_at(lists, job.search, job.next_item()) {
                    fifos.push_entity(linked.item.to_words());
                }
            }
            _ => self.enter_parts(fifos, job, lists),
        }
    }

    /// The same where it is not one entity.
    #[inline(never)]
    fn enter_parts(self, fifos: &mut Fifos, job: &Job, lists: &[VecDeque<Linked>]) {
        let (mut left, mut index) = (self.before, job.next_item());
        if job.sent == 0 && left >= WORDS {
            fifos.push_entity(job.entity);
            left -= WORDS;
        }
        while left > 0 {
            let Some(linked) = item_at(lists, job.search, index) else { break };
            if left < WORDS {
                fifos.push_all(linked.item.to_words().get(..left).unwrap_or_default());
            } else {
                fifos.push_entity(linked.item.to_words());
            }
            (left, index) = (left.saturating_sub(WORDS), index + 1);
        }
        if self.end == WORDS {
            fifos.push_entity(Item::END.to_words());
        } else {
            fifos.push_all(Item::END.to_words().get(..self.end).unwrap_or_default());
        }
    }
}

/// What a step is passed with.
struct Walker<'a> {
    unit: &'a mut Unit,
    fifos: &'a mut Fifos,
    job: &'a mut Job,
    lists: &'a [VecDeque<Linked>],
    uses: Use,
    cycle: &'a mut u64,
    last_cycle: u64,
    last_issue: u64,
}

impl Walker<'_> {
    /// Passes a step; false, and nothing is done but that its words are `fed`, if it is not the data's, or if it takes
    /// too long.
    #[inline(always)]
    fn pass(&mut self, step: &Step, fed: &mut Fed) -> bool {
        let Self { unit, fifos, job, lists, uses, .. } = self;
        if *self.cycle + step.cycles > self.last_cycle || unit.issued() + step.path.issued > self.last_issue {
            return false;
        }
        if *fed != step.fed {
            fifos.take_back(fed.words());
            *fed = step.fed;
            fed.enter(fifos, job, lists);
        }
        let is_match = matches!(&step.to, To::End(end) if end.result_since.is_some());
        let verdicts = job.verdicts + step.verdicts;
        let is_right = |[offset, length]: [u64; 2]| {
            !is_match || is_result((*uses, lists), job, verdicts, offset, length)
        };
        let Some([offset, length]) = unit.go(&step.path, step.cycles, fifos, is_right) else { return false };
        *self.cycle += step.cycles;
        job.sent += fed.words();
        job.begun = job.sent;
        job.verdicts = verdicts;
        if is_match {
            job.said = Said::All { offset, length };
        }
        true
    }
}

impl Walks {
    /// Passes all steps of a header in one, if these are known from a phase on.
    fn pass_whole(&mut self, from: usize, walker: &mut Walker<'_>) -> Option<End> {
        let known = self.known.get_mut(from).filter(|known| known.phase.begins)?;
        let mut fed = Fed::NONE;
        let items = walker.job.items;
        let place =
            known.whole.iter().position(|whole| items >= whole.least && walker.pass(&whole.step, &mut fed));
        let Some(place) = place else {
            walker.fifos.take_back(fed.words());
            return None;
        };
        self.whole += 1;
        known.whole.swap(0, place);
        known.whole.first().map(|whole| whole.end)
    }
}

impl ListManager {
    /// Cycles that were passed entity by entity.
    #[must_use]
    pub const fn walked(&self) -> u64 {
        self.walks.cycles
    }

    /// Headers that were passed in one step.
    #[must_use]
    pub const fn passed_whole(&self) -> u64 {
        self.walks.whole
    }

    /// Goes along the list as far as is known how, and looks at one step more while it is passed. Nobody stops it
    /// before cycle `ends` or before so many words were issued. Whether it has gone to the end of a header, and to
    /// where the next one may begin.
    pub(super) fn walk(&mut self, ends: u64, last_word: u64) -> bool {
        if !self.unit.has_automaton() {
            return false;
        }
        if let Some(looking) = self.walks.looking {
            if !self.has_looked(&looking) {
                return false;
            }
            self.walks.looking = None;
        }
        if self.job.is_none() && self.fifos.output_at().is_none() {
            // A header that is there may have to wait for what the last one's item takes.
            if self.cycle < self.free_at && !self.headers.is_empty() && !self.wait() {
                return false;
            }
            self.begin();
        }
        let Some(phase) = self.phase() else { return false };
        let Some(number) = self.walks.number_of(&phase) else { return false };
        if phase.begins {
            self.walks.began = number;
        }
        #[cfg(any(test, debug_assertions))]
        let beside = self.beside();
        let went = self.go(number, ends, last_word);
        #[cfg(any(test, debug_assertions))]
        self.check_beside(beside, ends, &went);
        match went {
            Some(Went::Over(_)) => {
                self.end();
                return self.wait();
            }
            Some(Went::To(number, true)) => self.look(number, ends, last_word),
            _ => {}
        }
        false
    }

    /// Waits until a header may begin that is there, or a cycle; false if the unit has anything to do meanwhile.
    fn wait(&mut self) -> bool {
        let cycles = if self.headers.is_empty() { 0 } else { self.free_at.saturating_sub(self.cycle) }.max(1);
        let waits = self.fifos.waiting() == 0 && cycles <= MARGIN_CYCLES && self.unit.wait(cycles);
        self.cycle += if waits { cycles } else { 0 };
        self.walks.cycles += if waits { cycles } else { 0 };
        waits
    }

    /// Items from the next one on that can decide on a step: those that it sends, and those behind them that the cache
    /// meets.
    const fn most_ahead(&self) -> usize {
        self.cache.places() + MOST_ENTITIES + 1
    }

    /// Where it is, if it is at a header's begin or between two entities, no item has matched, and all items that
    /// decide are in local memory.
    fn phase(&self) -> Option<Phase> {
        let job = self.job.as_ref()?;
        let begins = job.sent == 0;
        let is_between = (job.sent == job.begun || begins) && job.said == Said::Nothing && job.last.is_none();
        if !is_between || job.is_held {
            return None;
        }
        let index = job.next_item();
        let most = self.most_ahead();
        let ahead = job.items.checked_sub(index)?.min(most);
        let head = if ahead < most { job.items.min(self.cache.places()) } else { 0 };
        let is_plain = |range| are_plain(&self.lists, job.search, range);
        if self.elsewhere != 0 && !(is_plain(index..index + ahead) && is_plain(0..head)) {
            return None;
        }
        let mut verdicts = [0; MOST_VERDICTS];
        let mut verdicts_written = 0;
        for (at, word) in self.fifos.output() {
            if word != FAILED || begins {
                return None;
            }
            *verdicts.get_mut(verdicts_written)? = at.saturating_sub(self.cycle);
            verdicts_written += 1;
        }
        let waiting = self.fifos.waiting();
        (waiting + WORDS <= MAX_WORDS).then_some(())?;
        Some(Phase {
            place: self.unit.place(),
            begins,
            ahead,
            head,
            waiting,
            lag: (job.sent / WORDS).checked_sub(job.verdicts)?,
            verdicts,
            verdicts_written,
            cache: self.cache.phase(self.cycle, index)?,
        })
    }

    /// Takes all steps that are known from a phase on.
    fn go(&mut self, from: usize, ends: u64, last_word: u64) -> Option<Went> {
        let most = self.most_ahead();
        let head = self.cache.places();
        let Self { walks, job: Some(job), unit, fifos, lists, cycle, uses, elsewhere, .. } = self else {
            return None;
        };
        let (mut number, begin) = (from, *cycle);
        let (last_cycle, last_issue) =
            (ends.saturating_sub(MARGIN_CYCLES), last_word.saturating_sub(MARGIN_CYCLES));
        let is_plain = *elsewhere == 0;
        // Items before this one are in local memory.
        let mut plain =
            if is_plain { job.items } else { job.items.min(job.next_item().saturating_add(most)) };
        let mut walker =
            Walker { unit, fifos, job, lists, uses: *uses, cycle: &mut *cycle, last_cycle, last_issue };
        let mut taken = Taken::default();
        walker.unit.begin_ways();
        let whole = if is_plain { walks.pass_whole(from, &mut walker) } else { None };
        let went = 'steps: loop {
            if let Some(end) = whole {
                break Went::Over(end);
            }
            let (index, items) = (walker.job.next_item(), walker.job.items);
            let ahead = most.min(items - index);
            if plain < index + ahead {
                let stretch = items.min(index + ahead + STRETCH);
                let ends = [stretch, index + ahead].into_iter();
                let mut ends = ends.filter(|end| are_plain(lists, walker.job.search, plain..*end));
                let Some(end) = ends.next() else { break Went::To(number, false) };
                plain = end;
            }
            if walks.known.get(number).is_none_or(|known| known.phase.ahead != ahead) {
                // The list's end comes into sight.
                let is_plain = is_plain || are_plain(lists, walker.job.search, 0..head.min(items));
                match walks.with_ahead(number, ahead, head.min(items)).filter(|_| is_plain) {
                    Some(nearer) => number = nearer,
                    None => break Went::To(number, false),
                }
            }
            let Some(known) = walks.known.get(number) else { break Went::To(number, false) };
            let mut fed = Fed::NONE;
            for (place, step) in known.steps.iter().enumerate() {
                if walker.pass(step, &mut fed) {
                    taken.take(number, place);
                    match &step.to {
                        To::Phase(to) => number = *to,
                        To::End(end) => break 'steps Went::Over(*end),
                    }
                    continue 'steps;
                }
            }
            walker.fifos.take_back(fed.words());
            break Went::To(number, true);
        };
        unit.end_ways();
        walks.cycles += *cycle - begin;
        match went {
            Went::Over(end) => {
                self.arrive_at_end(&end);
                self.put_together(&taken);
            }
            Went::To(number, _) if self.cycle > begin => self.arrive(number),
            Went::To(..) => {}
        }
        Some(went)
    }

    /// A header went these steps: the next one that would goes them as one.
    fn put_together(&mut self, taken: &Taken) {
        let is_full = self.walks.together.len() >= MOST_WHOLE;
        let (Some(from), false) = (taken.begin(), is_full) else { return };
        if !self.walks.known.get(from).is_some_and(|known| known.phase.begins)
            || self.walks.together.contains(taken)
        {
            return;
        }
        self.walks.together.push(*taken);
        let Some(whole) = self.together(taken) else { return };
        if let Some(known) = self.walks.known.get_mut(from)
            && known.whole.len() < MOST_WHOLE_EACH
        {
            known.whole.push(whole);
        }
    }

    /// These steps as one, if they are from a header's begin to its end.
    fn together(&self, taken: &Taken) -> Option<Whole> {
        let most = self.most_ahead();
        let known = |number: usize| self.walks.known.get(number);
        let is_far = known(taken.begin()?)?.phase.ahead == most;
        let (mut steps, mut least) = (Vec::new(), 0);
        let (mut cycles, mut fed, mut verdicts) = (0, Fed::NONE, 0);
        for (from, place) in taken.steps.get(..taken.count)? {
            let phase = &known(*from)?.phase;
            // Where a list ends that is not in sight at first, these items do not say.
            if is_far && phase.ahead != most || fed.end != 0 {
                return None;
            }
            if is_far {
                least = (fed.before / WORDS).saturating_sub(1) + most;
            }
            let step = known(*from)?.steps.get(*place)?;
            cycles += step.cycles;
            verdicts += step.verdicts;
            fed = Fed { before: fed.before + step.fed.before, end: step.fed.end };
            steps.push(step);
        }
        let waiting = known(taken.begin()?)?.phase.waiting;
        (waiting + fed.words() <= MAX_WORDS).then_some(())?;
        let To::End(end) = steps.last()?.to else { return None };
        let paths: Vec<_> = steps.iter().map(|step| &step.path).collect();
        let path = self.unit.joined(&paths)?;
        let step = Step { path, cycles, fed, verdicts, to: To::End(end) };
        Some(Whole { step, end, least })
    }

    /// Is in a phase, but for how near the list's end is.
    fn arrive(&mut self, number: usize) {
        let (Some(job), Some(known)) = (&mut self.job, self.walks.known.get(number)) else { return };
        let phase = &known.phase;
        let index = job.next_item();
        if let Some(linked) = index.checked_sub(1).and_then(|last| item_at(&self.lists, job.search, last)) {
            job.entity = linked.item.to_words();
        }
        self.unit.set_place(phase.place);
        let cycle = self.cycle;
        let verdicts = phase.verdicts.into_iter().take(phase.verdicts_written);
        self.fifos.set_output(verdicts.map(|at| (cycle + at, FAILED)));
        self.cache.set_phase(cycle, index, &phase.cache, &self.lists);
    }

    /// Hears the last word for a header.
    fn arrive_at_end(&mut self, end: &End) {
        let Some(job) = &mut self.job else { return };
        self.unit.set_place(end.place);
        self.fifos.set_output(core::iter::empty());
        job.has_settled = end.has_settled;
        job.result_at = end.result_since.map_or(0, |since| self.cycle - since);
        let (now, index) = reference(self.cycle, job);
        self.cache.set_phase(now, index, &end.cache, &self.lists);
    }

    /// Looks at how the next entity is passed.
    fn look(&mut self, from: usize, ends: u64, last_word: u64) {
        let (Some(known), Some(job)) = (self.walks.known.get_mut(from), &self.job) else { return };
        let is_in_time = self.cycle + 4 * MARGIN_CYCLES <= ends
            && self.unit.issued().saturating_add(4 * MARGIN_CYCLES) <= last_word;
        let is_full = self.walks.steps >= MOST_STEPS || known.steps.len() >= MOST_STEPS_EACH;
        if known.failures >= MOST_FAILURES || is_full || !is_in_time {
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
    fn has_looked(&mut self, looking: &Looking) -> bool {
        let Some(job) = self.job.as_ref().filter(|job| job.began == looking.began) else { return true };
        let sent = job.sent - looking.sent;
        if sent == 0 || job.sent != job.begun {
            return false;
        }
        let (phase, verdicts) = (self.phase(), job.verdicts - looking.verdicts);
        let Some(phase) = phase else {
            // A match may be under way.
            return sent > (MOST_ENTITIES + 1) * WORDS;
        };
        let fed = Fed { before: sent, end: 0 };
        let written = (verdicts + phase.verdicts_written).checked_sub(self.written_before(looking));
        let Some(path) = written.and_then(|written| self.seen(looking, fed, written, &[])) else {
            return true;
        };
        // From where the list's end is not in sight, it is so for the next phase, too: where it comes into sight is
        // looked at then.
        let most = self.most_ahead();
        let is_far = self.walks.known.get(looking.from).is_some_and(|from| from.phase.ahead == most);
        let phase = if is_far { Phase { ahead: most, head: 0, ..phase } } else { phase };
        if let Some(to) = self.walks.number_of(&phase) {
            let cycles = self.cycle - looking.cycle;
            self.walks.add(looking.from, Step { path, cycles, fed, verdicts, to: To::Phase(to) });
        }
        true
    }

    /// Whether a step is looked at.
    pub(super) const fn is_looking(&self) -> bool {
        self.walks.looking.is_some()
    }

    /// The last word for a header is heard, behind a step that is looked at.
    pub(super) fn see_end(&mut self) {
        let (Some(looking), Some(job)) = (self.walks.looking.take(), &self.job) else { return };
        let matched: &[Expected] = match job.said {
            Said::Nothing => &[],
            _ => &[Expected::Word(SUCCEEDED), Expected::Any(0), Expected::Any(1), Expected::Word(DONE)],
        };
        if job.began != looking.began || self.fifos.output_at().is_some() {
            return;
        }
        let sent_before_end = job.end.map_or(job.sent, |end| job.sent.min((end + 1) * WORDS));
        let Some(before) = sent_before_end.checked_sub(looking.sent) else { return };
        let fed = Fed { before, end: job.sent - sent_before_end };
        let verdicts = job.verdicts - looking.verdicts;
        let ((now, index), has_settled) = (reference(self.cycle, job), job.has_settled);
        let Some(cache) = self.cache.phase(now, index) else { return };
        let result_since = (!matched.is_empty()).then(|| self.cycle - now);
        let written = verdicts.checked_sub(self.written_before(&looking));
        let path = written.and_then(|written| self.seen(&looking, fed, written, matched));
        if let Some(path) = path {
            let end = End { place: self.unit.place(), result_since, cache, has_settled };
            let cycles = self.cycle - looking.cycle;
            self.walks.add(looking.from, Step { path, cycles, fed, verdicts, to: To::End(end) });
        }
    }

    /// Verdicts that were on their way when a step began that is looked at.
    fn written_before(&self, looking: &Looking) -> usize {
        self.walks.known.get(looking.from).map_or(0, |known| known.phase.verdicts_written)
    }

    /// The unit's way, if it is one, with so many items that failed, and these words behind.
    fn seen(&mut self, looking: &Looking, fed: Fed, failed: usize, last: &[Expected]) -> Option<Path> {
        let waiting = self.walks.known.get(looking.from)?.phase.waiting;
        // Nothing is judged before a whole header was sent.
        let is_cut = looking.sent == 0 && fed.before < WORDS;
        if is_cut || fed.before > MOST_ENTITIES * WORDS || waiting + fed.words() > MAX_WORDS {
            return None;
        }
        let failed = core::iter::repeat_n(Expected::Word(FAILED), failed);
        let written: Vec<_> = failed.chain(last.iter().copied()).collect();
        let path = self.unit.tracked(&written)?;
        let is_whole = self.unit.issued() == looking.issued + path.issued
            && self.fifos.left() == looking.left.wrapping_add(path.takes);
        is_whole.then_some(path)
    }
}

impl Walks {
    fn add(&mut self, from: usize, step: Step) {
        if let Some(known) = self.known.get_mut(from) {
            known.steps.push(step);
            known.failures = 0;
            self.steps += 1;
        }
    }
}

/// From when on, and from which place of the walk, the cache counts at a header's end. Where an item has matched, the
/// list manager is at work since its result.
const fn reference(cycle: u64, job: &Job) -> (u64, usize) {
    let now = if matches!(job.said, Said::Nothing) { cycle } else { job.result_at };
    (now, if job.has_settled { 0 } else { job.verdicts })
}

/// Whether all these items of a search are there, in local memory.
fn are_plain(lists: &[VecDeque<Linked>], search: Search, range: Range<usize>) -> bool {
    let mut begin = 0;
    for list in [Some(search.first), search.then].into_iter().flatten() {
        let Some(list) = lists.get(list) else { continue };
        let place = |index: usize| index.saturating_sub(begin).min(list.len());
        let mut items = list.range(place(range.start)..place(range.end));
        if !items.all(|linked| linked.store == Store::Card) {
            return false;
        }
        begin += list.len();
    }
    range.end <= begin
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::models::matching::item::{ANY_NODE, Header, INFINITE, Operation, flag};
    use crate::models::matching::list_manager::Timing;
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

    /// So many items of a few classes, in no order, and behind them one that takes all that they do not.
    fn manager(items: u32) -> ListManager {
        let mut unit = Unit::new(&portals().unwrap()).unwrap();
        unit.automate(0);
        let mut manager = ListManager::new(Timing::default(), Use::Keep, unit);
        let last =
            Item { node: ANY_NODE, flags: flag::VALID | flag::PUT | flag::GET | flag::TRUNCATE, ..ITEM };
        for place in 0..items {
            let drawn = u64::from(place.wrapping_mul(0x9e37_79b9) >> 16);
            manager.preload(Item {
                match_bits: if drawn % 3 == 0 { 5 } else { 8 + drawn % 5 },
                process: 1 + (drawn / 3 % 2) as u16,
                node: if drawn / 8 % 2 == 0 { ANY_NODE } else { drawn as u32 / 16 % 4 },
                flags: flag::VALID | if drawn / 64 % 2 == 0 { flag::PUT } else { flag::GET },
                length: 50 + drawn % 100,
                ..last
            });
        }
        manager.preload(last);
        manager
    }

    /// Headers that an item takes and some that none does, no two alike, one by one or all at once. How many cycles of
    /// a hundred were walked.
    fn run(manager: &mut ListManager, at_once: bool) -> u64 {
        let (cycle, walked) = (manager.cycle, manager.walked());
        for number in 0..90_u32 {
            let match_bits = if number % 3 == 0 { 7 } else { 5 };
            let operation = if number % 2 == 0 { Operation::Put } else { Operation::Get };
            let (length, node, remote_offset) = (20 + u64::from(number), number % 4, number.into());
            manager.on_header(Header { match_bits, operation, length, node, remote_offset, ..HEADER });
            if !at_once {
                manager.run(100_000).unwrap();
            }
        }
        manager.run(100_000).unwrap();
        (manager.walked() - walked) * 100 / (manager.cycle - cycle)
    }

    /// A manager that knows all that these headers need, and its steps that they take: by phase and place in it.
    fn learned() -> (ListManager, Vec<(usize, usize)>) {
        let mut learned = manager(19);
        for _ in 0..3 {
            run(&mut learned, true);
        }
        let known = learned.walks.known.iter().enumerate();
        let steps: Vec<_> =
            known.flat_map(|(from, known)| (0..known.steps.len()).map(move |place| (from, place))).collect();
        let is_taken = |(from, place): &(usize, usize)| {
            let mut manager = learned.clone();
            manager.walks.known[*from].steps[*place].cycles += 1;
            is_found(&mut manager)
        };
        let taken: Vec<_> = steps.iter().copied().filter(is_taken).collect();
        assert!(
            taken.len() > 12 && 2 * taken.len() > steps.len(),
            "{} of {} are taken",
            taken.len(),
            steps.len()
        );
        (learned, taken)
    }

    /// Whether what was planted is found.
    fn is_found(manager: &mut ListManager) -> bool {
        catch_unwind(AssertUnwindSafe(|| run(manager, true))).is_err()
    }

    #[test]
    fn short_and_long_lists_are_walked_from_begin_to_end() {
        for at_once in [false, true] {
            for items in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 29, 299] {
                let mut manager = manager(items);
                for _ in 0..3 {
                    run(&mut manager, at_once);
                }
                let share = run(&mut manager, at_once);
                assert!(share >= 95, "{share} of 100 with {items} items");
            }
        }
    }

    #[test]
    fn short_searches_are_one_step() {
        for at_once in [false, true] {
            for items in [0, 1, 2, 3] {
                let mut manager = manager(items);
                manager.uses = Use::Consume;
                for _ in 0..4 {
                    run(&mut manager, at_once);
                }
                let whole = manager.walks.whole;
                run(&mut manager, at_once);
                let share = (manager.walks.whole - whole) * 100 / 90;
                assert!(share >= if items < 3 { 95 } else { 10 }, "{share} of 100 with {items} items");
                assert!(manager.walks.known.iter().all(|known| known.whole.len() <= MOST_WHOLE_EACH));
                assert!(manager.walks.together.len() <= MOST_WHOLE);
            }
        }
    }

    #[test]
    fn a_whole_step_of_a_long_list_is_none_of_a_short_one() {
        // Headers that one of the first items takes, of lists that become shorter; each is held to the list manager
        // without automata.
        for misses in 0..4 {
            let mut unit = Unit::new(&portals().unwrap()).unwrap();
            unit.automate(0);
            let mut manager = ListManager::new(Timing::default(), Use::Keep, unit);
            for _ in 0..misses {
                manager.append(Item { match_bits: 6, ..ITEM });
            }
            let handles: Vec<_> = (0..14).map(|_| manager.append(ITEM)).collect();
            for handle in handles.into_iter().rev() {
                let whole = manager.walks.whole;
                for _ in 0..20 {
                    manager.on_header(HEADER);
                    manager.run(100_000).unwrap();
                    manager.rest(100);
                }
                let items = manager.items(0).count();
                let is_long = items > misses + 1 + manager.most_ahead();
                assert!(manager.walks.whole >= whole + 10 || !is_long, "{items} items, {misses} misses");
                manager.unlink(handle);
            }
        }
    }

    #[test]
    fn a_step_that_is_not_what_happens_is_found() {
        let (learned, taken) = learned();
        let finds = |what: &str, plant: &dyn Fn(&mut Step) -> bool| {
            let mut planted = 0;
            for (from, place) in &taken {
                let mut manager = learned.clone();
                if plant(&mut manager.walks.known[*from].steps[*place]) {
                    assert!(
                        is_found(&mut manager),
                        "{what}: step {place} of phase {from}: {:?}",
                        learned.walks.known[*from].steps[*place]
                    );
                    planted += 1;
                }
            }
            assert!(planted > 0);
        };
        finds("verdicts", &|step| {
            step.verdicts += 1;
            true
        });
        finds("words issued", &|step| {
            step.path.issued += 1;
            true
        });
        finds("words taken", &|step| {
            step.path.takes += 1;
            true
        });
        finds("phase", &|step| match &mut step.to {
            To::Phase(to) => {
                *to = 0;
                true
            }
            To::End(_) => false,
        });
        finds("result", &|step| match &mut step.to {
            To::End(End { result_since: Some(since), .. }) => {
                *since += 1;
                true
            }
            _ => false,
        });
        finds("cache", &|step| match &mut step.to {
            To::End(end) if end.result_since.is_none() => {
                end.has_settled = !end.has_settled;
                true
            }
            _ => false,
        });
        finds("place", &|step| match &mut step.to {
            To::End(end) => {
                end.place.0 += 1;
                true
            }
            To::Phase(_) => false,
        });
    }

    /// A manager of a short list, most of whose headers are passed in one step.
    fn learned_whole() -> ListManager {
        let mut learned = manager(1);
        for _ in 0..3 {
            run(&mut learned, true);
        }
        learned
    }

    #[test]
    fn a_whole_step_that_is_not_what_happens_is_found() {
        let learned = learned_whole();
        type Plant = fn(&mut Whole);
        let plants: [(&str, Plant); 6] = [
            ("cycles", |whole| whole.step.cycles += 1),
            ("words issued", |whole| whole.step.path.issued += 1),
            ("words taken", |whole| whole.step.path.takes += 1),
            ("verdicts", |whole| whole.step.verdicts += 1),
            ("place", |whole| whole.end.place.0 += 1),
            ("cache", |whole| whole.end.has_settled = !whole.end.has_settled),
        ];
        for (what, plant) in plants {
            let mut manager = learned.clone();
            manager.walks.known.iter_mut().flat_map(|known| &mut known.whole).for_each(plant);
            assert!(is_found(&mut manager), "{what}");
        }
        let lengths = learned.walks.known.iter().flat_map(|known| &known.whole);
        let longest = lengths.map(|whole| whole.step.path.len()).max().unwrap();
        let whole = {
            let mut manager = learned.clone();
            run(&mut manager, true);
            manager.walks.whole
        };
        // What is wrong is found, or it is no way for any more headers: else it says what all of these headers are.
        let forgets = |place: usize| {
            let mut manager = learned.clone();
            for whole in manager.walks.known.iter_mut().flat_map(|known| &mut known.whole) {
                if place < whole.step.path.len() {
                    whole.step.path.forget(place);
                }
            }
            is_found(&mut manager) || manager.walks.whole < whole
        };
        let found = (0..longest).filter(|place| forgets(*place)).count();
        assert!(found * 2 > longest, "of {longest} places {found} are missed");
    }

    #[test]
    fn a_way_that_forgets_anything_is_found() {
        let (learned, taken) = learned();
        let (mut found, mut harmless) = (0, 0);
        for (from, place) in taken {
            for micro in 0..learned.walks.known[from].steps[place].path.len() {
                let mut manager = learned.clone();
                manager.walks.known[from].steps[place].path.forget(micro);
                // What does no harm is a condition that all headers and items meet which take this step.
                let count = if is_found(&mut manager) { &mut found } else { &mut harmless };
                *count += 1;
            }
        }
        assert!(found > 50, "{found} were found, {harmless} did no harm");
    }
}
