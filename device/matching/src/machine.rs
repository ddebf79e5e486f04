//! Unit and list manager with a list and headers, cycle by cycle, and what each cycle brought.
//!
//! The unit executes a word at a time, since forwarding hides its three stages; here they are derived from what was issued: the
//! word issued in a cycle reads its operands in it, executes in the next one and writes in the one behind.

use std::collections::HashMap;
use std::fmt;

use niclab_isa::image::ImageError;
use niclab_isa::{PREDICATES, REGISTERS, Word};
use niclab_model::matching::item::{Header, Item};
use niclab_model::matching::list_manager::inspect::{Phase, State};
use niclab_model::matching::list_manager::{Handle, ListManager, Misbehaved, Timing, Use};
use niclab_model::matching::program::{FAILED, SUCCEEDED};
use niclab_model::matching::unit::{OUTPUT_CYCLES, Unit};
use thiserror::Error;

use crate::firmware::Firmware;
use crate::results::Found;

/// Everything that is given.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The program.
    pub firmware: Firmware,
    /// The list.
    pub items: Vec<Item>,
    /// The headers, in the order of arrival; all are there from the first cycle on.
    pub headers: Vec<Header>,
    /// What becomes of items that match.
    pub uses: Use,
    /// Cycles that a header may take.
    pub watchdog: u64,
}

/// Cycles that a program may take for a header if nobody says how many: so many, and [`WATCHDOG_PER_ITEM`] for each item. The
/// built-in program takes less than a tenth of it.
pub const WATCHDOG: u64 = 4_096;

/// [`WATCHDOG`].
pub const WATCHDOG_PER_ITEM: u64 = 256;

/// The watchdog for a list of so many items.
#[must_use]
pub const fn watchdog(items: usize) -> u64 {
    WATCHDOG.saturating_add(WATCHDOG_PER_ITEM.saturating_mul(items as u64))
}

/// The program was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("header {header}: {why}\n  mend: {}", mend(*why))]
pub struct Stopped {
    /// The header that was being matched, by its place in the file.
    pub header: usize,
    /// What it did.
    #[source]
    pub why: Misbehaved,
}

fn mend(why: Misbehaved) -> &'static str {
    match why {
        Misbehaved::Watchdog { .. } => {
            "`niclab match debug` shows where it goes round; --watchdog CYCLES gives it longer"
        }
        _ => {
            "`niclab match debug` steps there; docs/MATCH.md, \"What travels\", says what is to be answered when"
        }
    }
}

/// What can be seen of the machine between two cycles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The ALU's registers.
    pub alu: [u64; REGISTERS],
    /// The ternary unit's registers.
    pub ternary: [u64; REGISTERS],
    /// The predicates.
    pub predicates: [bool; PREDICATES],
    /// The address of the next word.
    pub pc: usize,
    /// Where a branch that was taken leads, and how many words come before.
    pub taken: Option<(usize, usize)>,
    /// What the list manager holds.
    pub manager: State,
    /// The header that is being matched, by its place in the file.
    pub header: Option<usize>,
    /// The item that is being judged, by its place in the file. At the end of the list there is none.
    pub judged: Option<usize>,
}

/// A cycle that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// Its number, from 0 on.
    pub number: u64,
    /// The machine before it.
    pub before: Snapshot,
    /// The words in the three stages.
    pub stages: Stages,
    /// What the unit took out of the input FIFO.
    pub took: Option<u64>,
    /// What the unit appended to the output FIFO.
    pub appended: Option<u64>,
    /// What the list manager put into the input FIFO.
    pub fed: Option<u64>,
    /// What the list manager heard: what was appended [`OUTPUT_CYCLES`] before.
    pub heard: Option<u64>,
    /// The header that began, by its place in the file.
    pub began: Option<usize>,
    /// The header that ended, by its place in the file.
    pub ended: Option<usize>,
}

/// What an item was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It takes the message.
    Succeeded,
    /// It does not, or there was no item but the end of the list.
    Failed,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        })
    }
}

impl Cycle {
    /// The verdict that the list manager heard, if it heard one.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        match (self.before.manager.matching?.phase, self.heard?) {
            (Phase::Verdict, SUCCEEDED) => Some(Verdict::Succeeded),
            (Phase::Verdict, FAILED) => Some(Verdict::Failed),
            _ => None,
        }
    }
}

/// Addresses of words, by stage. A stage is empty behind a word that waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// The word that is issued, or waits for input.
    pub read: Option<usize>,
    /// Whether it waits.
    pub waits: bool,
    /// The word that executes.
    pub execute: Option<usize>,
    /// The word that writes.
    pub write: Option<usize>,
}

/// What became of the headers, however they were matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// One for each header that has its outcome, in order.
    pub found: Vec<Found>,
    /// Cycles in all.
    pub cycles: u64,
    /// Why the program was stopped, if it was.
    pub stopped: Option<Stopped>,
}

/// Unit and list manager at work.
#[derive(Clone, Debug)]
pub struct Machine {
    firmware: Firmware,
    manager: ListManager,
    places: HashMap<Handle, usize>,
    watchdog: u64,
    headers: usize,
    stages: Stages,
    found: Vec<Found>,
    stopped: Option<Stopped>,
}

impl Machine {
    /// A machine before its first cycle.
    ///
    /// # Errors
    /// When the program has a branch that leads out of it.
    pub fn new(setup: &Setup) -> Result<Self, ImageError> {
        let unit = Unit::new(setup.firmware.words())?;
        let mut manager = ListManager::new(Timing::default(), setup.uses, unit);
        let items = setup.items.iter().enumerate();
        let places = items.map(|(place, item)| (manager.append(*item), place)).collect();
        setup.headers.iter().for_each(|header| manager.on_header(*header));
        Ok(Self {
            firmware: setup.firmware.clone(),
            manager,
            places,
            watchdog: setup.watchdog,
            headers: setup.headers.len(),
            stages: Stages::default(),
            found: Vec::new(),
            stopped: None,
        })
    }

    /// The program.
    #[must_use]
    pub const fn firmware(&self) -> &Firmware {
        &self.firmware
    }

    /// The address of the word that comes next.
    #[must_use]
    pub const fn pc(&self) -> usize {
        self.manager.unit().pc()
    }

    /// The word that comes next, unless the program ran out of its end.
    #[must_use]
    pub fn word(&self) -> Option<&Word> {
        self.firmware.words().get(self.pc())
    }

    /// Whether every header has its outcome.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.manager.is_idle()
    }

    /// What became of headers so far.
    #[must_use]
    pub fn found(&self) -> &[Found] {
        &self.found
    }

    /// What became of everything so far.
    #[must_use]
    pub fn ran(&self) -> Ran {
        Ran { found: self.found.clone(), cycles: self.cycles(), stopped: self.stopped }
    }

    /// How many headers there are in all.
    #[must_use]
    pub const fn headers(&self) -> usize {
        self.headers
    }

    /// Why the program was stopped.
    #[must_use]
    pub const fn stopped(&self) -> Option<Stopped> {
        self.stopped
    }

    /// Cycles so far.
    #[must_use]
    pub const fn cycles(&self) -> u64 {
        self.manager.cycle()
    }

    /// Words of the input FIFO.
    #[must_use]
    pub const fn fifo_words(&self) -> usize {
        self.manager.timing().fifo_words
    }

    /// The list as it is: places in the file, and items.
    pub fn list(&self) -> impl Iterator<Item = (usize, &Item)> {
        self.manager.linked().map(|(handle, item)| (self.place(handle), item))
    }

    /// The machine as it is.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let (unit, manager) = (self.manager.unit(), self.manager.state());
        let judged = manager.matching.and_then(|matching| self.manager.linked().nth(matching.judged));
        Snapshot {
            alu: *unit.alu(),
            ternary: *unit.ternary(),
            predicates: unit.predicates(),
            pc: unit.pc(),
            taken: unit.taken(),
            header: manager.matching.map(|_| self.found.len()),
            judged: judged.map(|(handle, _)| self.place(handle)),
            manager,
        }
    }

    /// The words in the stages in the cycle that was last.
    #[must_use]
    pub const fn stages(&self) -> Stages {
        self.stages
    }

    /// Goes on until every header has its outcome, without a look at single cycles.
    ///
    /// # Errors
    /// [`Stopped`]; what was found before is [`Self::found`].
    pub fn run(&mut self) -> Result<(), Stopped> {
        let ended = self.manager.run(self.watchdog);
        self.collect();
        ended.map_err(|why| self.stop(why))
    }

    /// One cycle.
    ///
    /// # Errors
    /// [`Stopped`], from then on for each cycle.
    pub fn tick(&mut self) -> Result<Cycle, Stopped> {
        self.stopped.map_or(Ok(()), Err)?;
        let before = self.snapshot();
        let (number, issued) = (self.manager.cycle(), self.manager.unit().issued());
        let takes = self.word().is_some_and(|word| word.input.take);
        let ended = self.manager.tick();
        let collected = self.collect();
        ended.map_err(|why| self.stop(why))?;

        let after = self.manager.state();
        let is_issued = self.manager.unit().issued() > issued;
        let took = before.manager.input.first().copied().filter(|_| takes && is_issued);
        let is_fed = after.input.len() + usize::from(took.is_some()) > before.manager.input.len();
        // What a word wrote stands last, with a time that tells it from what stood there.
        let appended = after.output.last().filter(|word| word.from_cycle == number + OUTPUT_CYCLES);
        let fed = after.input.last().copied().filter(|_| is_fed);
        let heard = before.manager.output.first().filter(|word| word.from_cycle <= number);
        let began = after.matching.is_some_and(|matching| matching.began == number);
        self.stages = Stages {
            read: Some(before.pc),
            waits: !is_issued,
            execute: self.stages.read.filter(|_| !self.stages.waits),
            write: self.stages.execute,
        };
        let cycle = Cycle {
            number,
            stages: self.stages,
            took,
            appended: appended.map(|word| word.word),
            fed,
            heard: heard.map(|word| word.word),
            began: began.then_some(self.found.len()),
            ended: (collected > 0).then(|| self.found.len() - 1),
            before,
        };
        let late = after.matching.is_some_and(|matching| number + 1 - matching.began > self.watchdog);
        if late {
            self.stop(Misbehaved::Watchdog { cycles: self.watchdog });
        }
        Ok(cycle)
    }

    fn stop(&mut self, why: Misbehaved) -> Stopped {
        *self.stopped.insert(Stopped { header: self.found.len(), why })
    }

    /// Takes what the list manager found; how many headers that are.
    fn collect(&mut self) -> usize {
        let before = self.found.len();
        while let Some(outcome) = self.manager.poll_outcome() {
            let found = Found::new(&outcome, |handle| self.place(*handle));
            self.found.push(found);
        }
        self.found.len() - before
    }

    /// The item's place in the file. Handles are the list manager's own, each of which has a place.
    fn place(&self, handle: Handle) -> usize {
        self.places.get(&handle).copied().unwrap_or(usize::MAX)
    }
}
