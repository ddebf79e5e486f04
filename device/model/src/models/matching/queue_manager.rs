//! Queue handling as a program. A second unit, of the same kind as the match unit, does what the list manager does in
//! hardware.
//!
//! The paper leaves the queue to a hardware unit, and names a programmable one as the next thing to explore (section
//! 8). It "makes it easier to change the list format, implement improved free space management algorithms, or cope with
//! hardware bugs elsewhere in the system". Here the hardware has memory ([`memory`]), and sends what the program
//! commands ([`stream`]). Only the program (`firmware/matching/programs/queue.nma`) knows where the items of the list
//! are, which one is next, when one is used up, and which slots are free. Both units run in the same cycles.
//! [`command`] has the commands.
//!
//! One word enters the program's input FIFO in each cycle. Answers to its commands come before everything else. After a
//! verdict, the hardware delays the next one until it has answered a command. A request comes only when the program has
//! reported that it is ready. So the program knows the meaning of each word, however long anything takes.

pub mod command;
mod inspect;
mod memory;
mod stream;

use alloc::collections::{BTreeMap, VecDeque};
use core::fmt;

use smallvec::SmallVec;
use thiserror::Error;

use self::command::Command;
pub use self::inspect::QueueState;
pub use self::memory::MAX_ITEMS;
use self::memory::{ItemMemory, SLOT_OF_END};
use self::stream::{Stream, Verdict};
use crate::models::matching::fifo::{Fifos, MAX_WORDS};
use crate::models::matching::item::{Header, Item, WORDS};
use crate::models::matching::list_manager::{Handle, ListManager, Matched, Misbehaved, Outcome, Timing, Use};
use crate::models::matching::unit::{Step, Unit};

/// One of the two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The matching program.
    Matcher,
    /// The program that keeps the list.
    Queue,
}

/// One of the two programs violates the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{party}: {why}")]
pub struct Fault {
    /// The program.
    pub party: Party,
    /// The violation.
    #[source]
    pub why: Misbehaved,
}

impl fmt::Display for Party {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Matcher => "the matching program",
            Self::Queue => "the queue's program",
        })
    }
}

impl Party {
    const fn fault(self, why: Misbehaved) -> Fault {
        Fault { party: self, why }
    }
}

/// Keeps a list and has headers matched against it: the hardware ([`ListManager`]) or a program ([`QueueManager`]).
pub trait MatchQueue {
    /// Appends an item to the list. Headers that have not begun yet find it. A program has [`MAX_ITEMS`] slots for
    /// items.
    fn append(&mut self, item: Item) -> Handle;
    /// Removes an item from the list. Headers that have not begun yet do not find it. Removing it a second time has no
    /// effect.
    fn unlink(&mut self, handle: Handle);
    /// A header arrived.
    fn on_header(&mut self, header: Header);
    /// The result for the next header, in the order of arrival.
    fn poll_outcome(&mut self) -> Option<Outcome>;
    /// Runs until every header has its outcome, with `watchdog` cycles for each.
    ///
    /// # Errors
    /// [`Fault`].
    fn run(&mut self, watchdog: u64) -> Result<(), Fault>;
    /// Cycles so far.
    fn cycle(&self) -> u64;
}

impl MatchQueue for ListManager {
    fn append(&mut self, item: Item) -> Handle {
        Self::append(self, item)
    }

    fn unlink(&mut self, handle: Handle) {
        Self::unlink(self, handle);
    }

    fn on_header(&mut self, header: Header) {
        Self::on_header(self, header);
    }

    fn poll_outcome(&mut self) -> Option<Outcome> {
        Self::poll_outcome(self)
    }

    fn run(&mut self, watchdog: u64) -> Result<(), Fault> {
        Self::run(self, watchdog).map_err(|why| Party::Matcher.fault(why))
    }

    fn cycle(&self) -> u64 {
        Self::cycle(self)
    }
}

/// A unit with its FIFOs.
#[derive(Clone, Debug)]
struct Engine {
    unit: Unit,
    fifos: Fifos,
    /// Whether the unit waited in its last cycle.
    is_waiting: bool,
}

impl Engine {
    const fn new(unit: Unit, fifo_words: usize) -> Self {
        Self { unit, fifos: Fifos::new(fifo_words), is_waiting: false }
    }

    /// Executes one cycle. `front` is the first word of the input FIFO before a word entered it in this cycle.
    fn step(&mut self, cycle: u64, front: Option<u64>) -> Result<(), Misbehaved> {
        let step = self.unit.step(front);
        self.is_waiting = step == Step::Waited;
        match step {
            Step::Issued { took, output } => {
                if took {
                    self.fifos.pop();
                }
                if let Some(word) = output {
                    self.fifos.write(cycle, word);
                }
                Ok(())
            }
            Step::Waited => Ok(()),
            Step::RanOut => Err(Misbehaved::RanOut { pc: self.unit.pc() }),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Append(Handle, Item),
    Unlink(Handle),
}

/// A header that was announced to the program.
#[derive(Clone, Copy, Debug)]
struct Job {
    began: u64,
    /// `None` once the program has begun the header.
    header: Option<Header>,
    /// Bytes of the message.
    length: u64,
    failed: usize,
    outcome: Option<Option<Matched>>,
}

/// Words that enter the program's input FIFO consecutively.
type Group = SmallVec<[u64; WORDS + 1]>;

/// A queue that a program keeps, with the match unit.
#[derive(Clone, Debug)]
pub struct QueueManager {
    uses: Use,
    cycle: u64,
    queue: Engine,
    matcher: Engine,
    memory: ItemMemory,
    stream: Stream,
    /// A command whose further words have not arrived yet.
    incomplete: Option<Command>,
    /// Answers to commands, each with the first cycle in which it is there.
    answers: VecDeque<(u64, u64)>,
    /// The words that are entering the program's input FIFO.
    entering: Group,
    verdicts: VecDeque<Verdict>,
    /// The next verdict waits until a command was answered.
    is_held: bool,
    /// The program waits for a request.
    is_ready: bool,
    /// When the program began work that belongs to no header: its start, or a change of the list.
    change_began: Option<u64>,
    /// Cycles of such work so far.
    change_cycles: u64,
    /// The last cycle in which the program had no work.
    idle_at: u64,
    changes: VecDeque<Change>,
    headers: VecDeque<Header>,
    /// The item that the program must append.
    landed: Option<(Handle, Item)>,
    linked: BTreeMap<u16, Handle>,
    next_handle: u64,
    job: Option<Job>,
    outcomes: VecDeque<Outcome>,
}

impl QueueManager {
    /// A queue manager with an empty list. `queue` runs the program that keeps the list, `matcher` the matching
    /// program.
    #[must_use]
    pub fn new(timing: Timing, uses: Use, queue: Unit, matcher: Unit) -> Self {
        Self {
            uses,
            cycle: 0,
            queue: Engine::new(queue, MAX_WORDS),
            matcher: Engine::new(matcher, timing.fifo_words),
            memory: ItemMemory::new(timing.memory_latency),
            stream: Stream::new(timing.steps.turnaround()),
            incomplete: None,
            answers: VecDeque::new(),
            entering: Group::new(),
            verdicts: VecDeque::new(),
            is_held: false,
            is_ready: false,
            change_began: Some(0),
            change_cycles: 0,
            idle_at: 0,
            changes: VecDeque::new(),
            headers: VecDeque::new(),
            landed: None,
            linked: BTreeMap::new(),
            next_handle: 0,
            job: None,
            outcomes: VecDeque::new(),
        }
    }

    /// The items that the program has linked, in no particular order.
    pub fn linked(&self) -> impl Iterator<Item = Handle> {
        self.linked.values().copied()
    }

    /// Whether all changes are made and all headers have their outcomes.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_done = self.is_ready && self.job.is_none() && self.change_began.is_none();
        is_done && self.changes.is_empty() && self.headers.is_empty()
    }

    /// Cycles that belong to no header: the program's start, and its changes of the list. As for a header, each lasts
    /// until the next request could follow.
    #[must_use]
    pub const fn change_cycles(&self) -> u64 {
        self.change_cycles
    }

    /// The program at fault, if the current work takes longer than `watchdog` cycles.
    #[must_use]
    pub fn overdue(&self, watchdog: u64) -> Option<Fault> {
        let began = self.job.map(|job| job.began).or(self.change_began).unwrap_or(self.idle_at);
        if self.is_idle() || self.cycle - began <= watchdog {
            return None;
        }
        // If only one unit waits, the other one is at fault. If both wait, the match unit is at fault if it has every
        // word of an item and has not judged it. Otherwise the queue's unit is.
        let waits = |engine: &Engine| engine.is_waiting && engine.fifos.front().is_none();
        let is_matcher =
            waits(&self.queue) && (!waits(&self.matcher) || self.stream.owes_verdict() && self.job.is_some());
        let party = if is_matcher { Party::Matcher } else { Party::Queue };
        Some(party.fault(Misbehaved::Watchdog { cycles: watchdog }))
    }

    /// Executes one cycle.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn tick(&mut self) -> Result<(), Fault> {
        let (by_matcher, by_queue) = (|why| Party::Matcher.fault(why), |why| Party::Queue.fault(why));
        // A word that enters in a cycle cannot be taken in the same cycle.
        let fronts = (self.queue.fifos.front(), self.matcher.fifos.front());
        if let Some(word) = self.matcher.fifos.take_output(self.cycle) {
            self.on_verdict(word).map_err(by_matcher)?;
        }
        if let Some(word) = self.queue.fifos.take_output(self.cycle) {
            self.on_word(word).map_err(by_queue)?;
        }
        self.enter();
        if self.matcher.fifos.has_room()
            && let Some(word) = self.stream.next_word(self.cycle)
        {
            self.matcher.fifos.push(word);
        }
        self.queue.step(self.cycle, fronts.0).map_err(by_queue)?;
        self.matcher.step(self.cycle, fronts.1).map_err(by_matcher)?;
        self.cycle += 1;
        Ok(())
    }

    /// The match unit wrote a word.
    fn on_verdict(&mut self, word: u64) -> Result<(), Misbehaved> {
        let Some(verdict) = self.stream.on_output(self.cycle, word)? else { return Ok(()) };
        if let Some((offset, length)) = verdict.result {
            self.check_result(verdict.slot, offset, length)?;
        }
        self.verdicts.push_back(verdict);
        Ok(())
    }

    /// If items are consumed, a result must be inside the item's memory and the message.
    fn check_result(&self, slot: u16, offset: u64, length: u64) -> Result<(), Misbehaved> {
        let (Some(job), Use::Consume) = (&self.job, self.uses) else { return Ok(()) };
        let room = self.memory.length(slot).unwrap_or(0);
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= room);
        if is_inside && length <= job.length { Ok(()) } else { Err(Misbehaved::Result { offset, length }) }
    }

    /// Enters at most one word into the program's input FIFO.
    fn enter(&mut self) {
        if !self.queue.fifos.has_room() {
            return;
        }
        if self.entering.is_empty() {
            if let Some(&(at, word)) = self.answers.front() {
                if at <= self.cycle {
                    self.answers.pop_front();
                    self.is_held = false;
                    self.queue.fifos.push(word);
                }
                return;
            }
            if !self.is_held
                && let Some(verdict) = self.verdicts.pop_front()
            {
                self.is_held = true;
                self.entering = self.tell(&verdict);
            } else if self.is_ready {
                self.settle();
                self.entering = self.request();
            }
        }
        if !self.entering.is_empty() {
            self.queue.fifos.push(self.entering.remove(0));
        }
    }

    /// A request can come in this cycle, because the previous one has ended.
    fn settle(&mut self) {
        if let Some(Job { began, failed, outcome: Some(matched), .. }) = self.job.take() {
            let traversed = failed + usize::from(matched.is_some());
            let cycles = self.cycle - began;
            self.outcomes.push_back(Outcome { matched, traversed, spill_reads: 0, cycles });
        }
        if let Some(began) = self.change_began.take() {
            self.change_cycles += self.cycle - began;
        }
    }

    /// The words of a verdict for the program.
    fn tell(&mut self, verdict: &Verdict) -> Group {
        if verdict.result.is_none()
            && let Some(job) = &mut self.job
        {
            job.failed += usize::from(verdict.slot != SLOT_OF_END);
        }
        verdict.words()
    }

    /// The words of the next request; empty if there is none. Changes come before headers.
    fn request(&mut self) -> Group {
        let mut words = Group::new();
        while let Some(change) = self.changes.pop_front() {
            match change {
                Change::Append(handle, item) => {
                    self.landed = Some((handle, item));
                    words.push(command::APPEND);
                    words.extend(item.to_words());
                }
                Change::Unlink(handle) => {
                    // The item may not be in the program's list any more.
                    let slot = self.linked.iter().find(|(_, other)| **other == handle);
                    words.extend(slot.map(|(slot, _)| command::at(*slot) | command::UNLINK));
                }
            }
            if !words.is_empty() {
                self.is_ready = false;
                self.change_began = Some(self.cycle);
                return words;
            }
        }
        if let Some(header) = self.headers.pop_front() {
            self.is_ready = false;
            let (began, length) = (self.cycle, header.length);
            self.job = Some(Job { began, header: Some(header), length, failed: 0, outcome: None });
            let keeps = if self.uses == Use::Keep { command::KEEPS } else { 0 };
            words.push(command::ARRIVED | keeps);
        } else {
            self.idle_at = self.cycle;
        }
        words
    }

    /// The program wrote the next word of a command.
    fn on_word(&mut self, word: u64) -> Result<(), Misbehaved> {
        let command = match self.incomplete.take() {
            None => Command::new(word),
            Some(command) => Some(command.with(word)),
        };
        let command = command.ok_or(Misbehaved::Command { word })?;
        if !command.is_complete() {
            self.incomplete = Some(command);
            return Ok(());
        }
        if let (command::DELIVER, Some(offset), Some(length)) =
            (command.op, command.operand(0), command.operand(1))
        {
            self.check_result(command.slot, offset, length)?;
        }
        self.carry_out(&command).ok_or(Misbehaved::Command { word })
    }

    /// The header that the program works on; `None` once the program has reported that it is ready.
    fn job(&mut self) -> Option<&mut Job> {
        self.job.as_mut().filter(|_| !self.is_ready)
    }

    /// Executes a command; `None` if it is invalid at this point.
    fn carry_out(&mut self, command: &Command) -> Option<()> {
        let Command { op, slot, index, .. } = *command;
        let answer_at = self.cycle + 1;
        match op {
            command::NOTHING => {}
            command::READY => self.on_ready()?,
            command::HEADER => {
                let header = self.job()?.header.take()?;
                self.stream.begin(&header);
            }
            command::SEND => {
                let (slot, item) = self.memory.next_fetched()?;
                self.stream.send(slot, item);
            }
            command::DROP => self.memory.drop_fetched(),
            command::FETCH => {
                self.memory.fetch(self.cycle, slot)?;
                self.answers.push_back((answer_at, self.memory.load(slot, 0)?));
            }
            command::LOAD => self.answers.push_back((answer_at, self.memory.load(slot, index)?)),
            command::STORE => self.memory.store(slot, index, command.operand(0)?)?,
            command::PLACE => {
                let (handle, item) = self.landed.take()?;
                self.memory.place(slot, &item)?;
                if self.linked.insert(slot, handle).is_some() {
                    return None;
                }
            }
            command::WRITE => self.memory.write(slot, index, command.operand(0)?)?,
            command::DELIVER => {
                let handle = *self.linked.get(&slot)?;
                let (offset, length) = (command.operand(0)?, command.operand(1)?);
                let job = self.job()?;
                let index = job.failed;
                job.outcome = Some(Some(Matched { handle, index, offset, length, is_unlinked: false }));
            }
            command::NONE => self.job()?.outcome = Some(None),
            command::UNLINKED => {
                let handle = self.linked.remove(&slot)?;
                if let Some(Job { outcome: Some(Some(matched)), .. }) = &mut self.job {
                    matched.is_unlinked |= matched.handle == handle;
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// The program has finished the last request. `None` while a header has no outcome, or an item to append has no
    /// slot.
    fn on_ready(&mut self) -> Option<()> {
        if self.job.is_some_and(|job| job.outcome.is_none()) || self.landed.is_some() {
            return None;
        }
        self.is_ready = true;
        self.is_held = false;
        Some(())
    }
}

impl MatchQueue for QueueManager {
    fn append(&mut self, item: Item) -> Handle {
        let handle = Handle::new(self.next_handle);
        self.next_handle += 1;
        self.changes.push_back(Change::Append(handle, item));
        handle
    }

    fn unlink(&mut self, handle: Handle) {
        self.changes.push_back(Change::Unlink(handle));
    }

    fn on_header(&mut self, header: Header) {
        self.headers.push_back(header);
    }

    fn poll_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    fn run(&mut self, watchdog: u64) -> Result<(), Fault> {
        while !self.is_idle() {
            self.tick()?;
            self.overdue(watchdog).map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    fn cycle(&self) -> u64 {
        self.cycle
    }
}
