//! A timing automaton for the walk along a list. It records once what happens from one entity to the next, from a
//! header's start to its end, and then repeats this at once.
//!
//! A [`Phase`] is the complete state that decides how these cycles pass. It has the unit's position in its program, the
//! number of waiting words, and the verdicts in flight. It also has the items in the cache, their arrival times, and
//! the distance to the list's end.
//!
//! For each class of data, a step leads from a phase to another one, or to the header's end. A step has the unit's path
//! through its program, and the conditions on the data for this path ([`Path`]). The automaton records phases and steps
//! when the list manager itself first passes them. It does so only if all items that decide are in local memory.
//!
//! If a header takes few steps from its start to its end, they are joined to one ([`Whole`]). So a short search is one
//! step, which computes only those parts of header and items that its answer depends on. The list manager does
//! everything else, including data of a new class, with the unit's automaton or word by word. It also does its own work
//! between two headers.

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

/// Maximum numbers of phases and steps. Attack: lists whose items keep introducing new classes, for a program with many
/// classes, would fill this machine's memory. Ours: bounds.
const MAX_PHASES: usize = 128;
/// Ours: a bound, for the same reason.
const MAX_STEPS: usize = 512;
/// Maximum number of steps from one phase. Attack: items that keep introducing new classes would each be tried with all
/// steps. Ours: a bound.
const MAX_STEPS_EACH: usize = 12;
/// Number of consecutive failed recordings from one phase, after which none is tried there. Ours: a bound on the cost
/// of recording.
const MAX_FAILURES: u32 = 64;
/// Number of cycles, and of words, by which a step must stay below the watchdog and the word budget. Ours: more than a
/// burst that depends on them.
const MARGIN_CYCLES: u64 = 128;
/// Maximum number of verdicts in flight. Ours: more than are possible.
const MAX_VERDICTS: usize = 4;
/// Maximum number of entities that a step sends before the end of the list. Ours: a bound; the built-in program needs
/// one.
const MAX_ENTITIES: usize = 3;
/// Maximum number of steps that are joined to one for a header. Ours: a bound; the built-in program needs three for a
/// header whose first item matches.
const MAX_TOGETHER: usize = 6;
/// Maximum number of joined steps, in total and from one phase. Attack: lists whose items keep introducing new classes
/// would join steps without end, and every header would be tried with all of them. Ours: bounds.
const MAX_WHOLE: usize = 64;
/// Ours: a bound, for the same reason.
const MAX_WHOLE_EACH: usize = 4;
/// Number of items whose location is checked at once. Ours: measured.
const STRETCH: usize = 16;

/// The state that determines the following cycles. Its times are relative to the present cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Phase {
    place: (usize, u16, u8),
    /// The header was begun, and nothing of it was sent. If false, the phase is between two entities.
    begins: bool,
    /// Number of items that were not sent, limited to those that can decide.
    ahead: usize,
    /// If these are all remaining items: the number of items that the cache would hold at the list's head.
    head: usize,
    /// Words in the input.
    waiting: usize,
    /// Entities sent, minus items judged.
    lag: usize,
    /// When the verdicts in flight can be received. All of them say that the item failed.
    verdicts: [u64; MAX_VERDICTS],
    verdicts_written: usize,
    cache: cache::Phase,
}

/// Words that enter the input with a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fed {
    /// Words of the header and of items,
    before: usize,
    /// and then of the end of the list.
    end: usize,
}

/// The target of a step.
#[derive(Clone, Debug)]
enum To {
    Phase(usize),
    End(End),
}

/// The state when the unit's last word for a header was received.
#[derive(Clone, Copy, Debug)]
struct End {
    place: (usize, u16, u8),
    /// Cycles since the last word of its result was received, if an item matched.
    result_since: Option<u64>,
    /// The cache's state at that time, or, without a match, its present state.
    cache: cache::Phase,
    /// The cache is at the list's head again: see [`Job::has_settled`].
    has_settled: bool,
}

/// A transition from one phase to another.
#[derive(Clone, Debug)]
struct Step {
    path: Path,
    cycles: u64,
    fed: Fed,
    verdicts: usize,
    to: To,
}

/// All steps of a header, joined to one that leads to the header's end. It is valid for lists of at least `least`
/// items.
#[derive(Clone, Debug)]
struct Whole {
    step: Step,
    end: End,
    least: usize,
}

/// Steps of a header from its start on: phases, and indices of the phases' steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    steps: [(usize, usize); MAX_TOGETHER],
    /// Number of these steps.
    count: usize,
}

/// A phase, and the steps from it.
#[derive(Clone, Debug)]
struct Known {
    phase: Phase,
    steps: Vec<Step>,
    /// The joined steps from it, the last used one first.
    whole: Vec<Whole>,
    /// The same phase with one item less among those that can decide.
    nearer: Option<usize>,
    failures: u32,
}

/// All phases and steps that occurred with one program.
#[derive(Clone, Debug, Default)]
pub(super) struct Walks {
    known: Vec<Known>,
    steps: usize,
    /// Steps that were joined to one, or could not be.
    together: Vec<Taken>,
    /// Headers that were passed in one step.
    whole: u64,
    /// The phase in which the last header began.
    began: usize,
    /// The step that is being recorded.
    looking: Option<Looking>,
    /// Cycles that steps have passed.
    cycles: u64,
}

/// The state at the start of the step that is being recorded.
#[derive(Clone, Copy, Debug)]
struct Looking {
    from: usize,
    /// The header, and its progress.
    began: u64,
    sent: usize,
    verdicts: usize,
    cycle: u64,
    issued: u64,
    left: usize,
}

/// How far the walk went.
enum Went {
    /// To the end of the header.
    Over(End),
    /// To a phase; true if the next step may be recorded.
    To(usize, bool),
}

impl Walks {
    fn number_of(&mut self, phase: &Phase) -> Option<usize> {
        if self.known.get(self.began).is_some_and(|known| known.phase == *phase) {
            return Some(self.began);
        }
        let known = self.known.iter().position(|known| known.phase == *phase);
        if known.is_none() && self.known.len() < MAX_PHASES {
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

    /// The phase that equals this one, but with `ahead` items ahead and `head` items at the list's head.
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
    /// Adds a step.
    #[inline]
    fn take(&mut self, from: usize, place: usize) {
        if let Some(step) = self.steps.get_mut(self.count) {
            *step = (from, place);
        }
        self.count += 1;
    }

    /// The phase in which these steps begin, if there are several and all were kept.
    fn begin(&self) -> Option<usize> {
        (2..=MAX_TOGETHER).contains(&self.count).then_some(self.steps[0].0)
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

    /// Enters these words into the input FIFO.
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

    /// The same for words that are not exactly one entity.
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

/// The state that passing a step needs.
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
    /// Passes a step. Returns false if the data does not fit the step, or if the step takes too long. Nothing changes
    /// then, except that the step's words are `fed`.
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
    /// Passes a header in one step, if a joined step from this phase fits.
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

    /// Walks along the list as far as steps are known, and begins to record one step more. The walk may use all cycles
    /// before `ends`, and all words before number `last_word`. Returns whether it has passed the end of a header, and
    /// the cycles until the next one may begin.
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
            // A waiting header may have to wait until the last header's item is written back.
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

    /// Waits until a waiting header may begin, or for one cycle. Returns false if the unit has work in the meantime.
    fn wait(&mut self) -> bool {
        let cycles = if self.headers.is_empty() { 0 } else { self.free_at.saturating_sub(self.cycle) }.max(1);
        let waits = self.fifos.waiting() == 0 && cycles <= MARGIN_CYCLES && self.unit.wait(cycles);
        self.cycle += if waits { cycles } else { 0 };
        self.walks.cycles += if waits { cycles } else { 0 };
        waits
    }

    /// Maximum number of items, from the next one on, that can decide on a step: those that it sends, and those after
    /// them that the cache meets.
    const fn most_ahead(&self) -> usize {
        self.cache.places() + MAX_ENTITIES + 1
    }

    /// The present phase. `None` unless the walk is at a header's start or between two entities, no item has matched,
    /// and all items that decide are in local memory.
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
        let mut verdicts = [0; MAX_VERDICTS];
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

    /// Takes all known steps from a phase on.
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
        // Items before this index are in local memory.
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
                // The list's end comes near enough to decide.
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

    /// Joins the steps that a header took, so that the next such header takes one.
    fn put_together(&mut self, taken: &Taken) {
        let is_full = self.walks.together.len() >= MAX_WHOLE;
        let (Some(from), false) = (taken.begin(), is_full) else { return };
        if !self.walks.known.get(from).is_some_and(|known| known.phase.begins)
            || self.walks.together.contains(taken)
        {
            return;
        }
        self.walks.together.push(*taken);
        let Some(whole) = self.together(taken) else { return };
        if let Some(known) = self.walks.known.get_mut(from)
            && known.whole.len() < MAX_WHOLE_EACH
        {
            known.whole.push(whole);
        }
    }

    /// Joins these steps to one, if they lead from a header's start to its end.
    fn together(&self, taken: &Taken) -> Option<Whole> {
        let most = self.most_ahead();
        let known = |number: usize| self.walks.known.get(number);
        let is_far = known(taken.begin()?)?.phase.ahead == most;
        let (mut steps, mut least) = (Vec::new(), 0);
        let (mut cycles, mut fed, mut verdicts) = (0, Fed::NONE, 0);
        for (from, place) in taken.steps.get(..taken.count)? {
            let phase = &known(*from)?.phase;
            // If the list's end was too far away at first, these items do not determine where it is.
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

    /// Sets the state to a phase, except for the distance to the list's end.
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

    /// Receives the last word for a header.
    fn arrive_at_end(&mut self, end: &End) {
        let Some(job) = &mut self.job else { return };
        self.unit.set_place(end.place);
        self.fifos.set_output(core::iter::empty());
        job.has_settled = end.has_settled;
        job.result_at = end.result_since.map_or(0, |since| self.cycle - since);
        let (now, index) = reference(self.cycle, job);
        self.cache.set_phase(now, index, &end.cache, &self.lists);
    }

    /// Begins to record how the next entity is passed.
    fn look(&mut self, from: usize, ends: u64, last_word: u64) {
        let (Some(known), Some(job)) = (self.walks.known.get_mut(from), &self.job) else { return };
        let is_in_time = self.cycle + 4 * MARGIN_CYCLES <= ends
            && self.unit.issued().saturating_add(4 * MARGIN_CYCLES) <= last_word;
        let is_full = self.walks.steps >= MAX_STEPS || known.steps.len() >= MAX_STEPS_EACH;
        if known.failures >= MAX_FAILURES || is_full || !is_in_time {
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

    /// Whether the recording is over. A valid step is known from now on.
    fn has_looked(&mut self, looking: &Looking) -> bool {
        let Some(job) = self.job.as_ref().filter(|job| job.began == looking.began) else { return true };
        let sent = job.sent - looking.sent;
        if sent == 0 || job.sent != job.begun {
            return false;
        }
        let (phase, verdicts) = (self.phase(), job.verdicts - looking.verdicts);
        let Some(phase) = phase else {
            // A match may be in progress.
            return sent > (MAX_ENTITIES + 1) * WORDS;
        };
        let fed = Fed { before: sent, end: 0 };
        let written = (verdicts + phase.verdicts_written).checked_sub(self.written_before(looking));
        let Some(path) = written.and_then(|written| self.seen(looking, fed, written, &[])) else {
            return true;
        };
        // If the list's end is too far away to decide in the first phase, it counts as far away in the next one, too.
        // Where it comes near enough, a step of its own is recorded.
        let most = self.most_ahead();
        let is_far = self.walks.known.get(looking.from).is_some_and(|from| from.phase.ahead == most);
        let phase = if is_far { Phase { ahead: most, head: 0, ..phase } } else { phase };
        if let Some(to) = self.walks.number_of(&phase) {
            let cycles = self.cycle - looking.cycle;
            self.walks.add(looking.from, Step { path, cycles, fed, verdicts, to: To::Phase(to) });
        }
        true
    }

    /// Whether a step is being recorded.
    pub(super) const fn is_looking(&self) -> bool {
        self.walks.looking.is_some()
    }

    /// The last word for a header was received, which ends a step that is being recorded.
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

    /// Verdicts that were in flight when the step that is being recorded began.
    fn written_before(&self, looking: &Looking) -> usize {
        self.walks.known.get(looking.from).map_or(0, |known| known.phase.verdicts_written)
    }

    /// The unit's path, if it is valid and wrote `failed` failures and then these words.
    fn seen(&mut self, looking: &Looking, fed: Fed, failed: usize, last: &[Expected]) -> Option<Path> {
        let waiting = self.walks.known.get(looking.from)?.phase.waiting;
        // The unit judges nothing before it has a complete header.
        let is_cut = looking.sent == 0 && fed.before < WORDS;
        if is_cut || fed.before > MAX_ENTITIES * WORDS || waiting + fed.words() > MAX_WORDS {
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

/// The cycle and the walk's index to which the cache's state at a header's end is relative. If an item has matched, the
/// list manager has been working since its result.
const fn reference(cycle: u64, job: &Job) -> (u64, usize) {
    let now = if matches!(job.said, Said::Nothing) { cycle } else { job.result_at };
    (now, if job.has_settled { 0 } else { job.verdicts })
}

/// Whether all these items of a search exist and are in local memory.
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

    /// A list with this number of items of a few classes, in no order, and then one that takes all messages that the
    /// others do not take.
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

    /// Runs headers that an item takes and some that none takes, no two alike, one by one or all at once. Returns the
    /// percentage of the cycles that were walked.
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

    /// A manager that knows all steps that these headers need, and the steps that they take, by phase and index in it.
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

    /// Whether the comparison finds the seeded error.
    fn is_found(manager: &mut ListManager) -> bool {
        catch_unwind(AssertUnwindSafe(|| run(manager, true))).is_err()
    }

    #[test]
    fn short_and_long_lists_are_walked_from_start_to_end() {
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
                assert!(manager.walks.known.iter().all(|known| known.whole.len() <= MAX_WHOLE_EACH));
                assert!(manager.walks.together.len() <= MAX_WHOLE);
            }
        }
    }

    #[test]
    fn joined_step_of_a_long_list_does_not_fit_a_short_one() {
        // Headers that one of the first items takes, in lists that become shorter. Each is compared with the list
        // manager without automata.
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
    fn wrong_step_is_found() {
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
    fn wrong_joined_step_is_found() {
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
        // The error is found, or the step fits no header any more. Otherwise the missing part is a condition that all
        // of these headers meet.
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
        assert!(found * 2 > longest, "of {longest} parts, {found} are noticed when missing");
    }

    #[test]
    fn path_with_a_missing_part_is_found() {
        let (learned, taken) = learned();
        let (mut found, mut harmless) = (0, 0);
        for (from, place) in taken {
            for micro in 0..learned.walks.known[from].steps[place].path.len() {
                let mut manager = learned.clone();
                manager.walks.known[from].steps[place].path.forget(micro);
                // A missing part does no harm if it is a condition that all headers and items that take this step meet.
                let count = if is_found(&mut manager) { &mut found } else { &mut harmless };
                *count += 1;
            }
        }
        assert!(found > 50, "{found} were found, {harmless} did no harm");
    }
}
