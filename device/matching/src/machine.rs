//! Unit and list manager with a list and headers, cycle by cycle. The list manager is hardware, or a second unit with
//! its own program.
//!
//! The unit executes one word at a time, since forwarding hides its three stages. This module derives the stages from
//! the issued words: a word reads its operands in the cycle of its issue, executes in the next one and writes in the
//! third.

mod found;
mod manager;
mod pipeline;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

use niclab_isa::Word;
use niclab_isa::image::ImageError;
use niclab_model::models::matching::item::{Header, Item};
use niclab_model::models::matching::list_manager::inspect::Phase;
use niclab_model::models::matching::list_manager::{Handle, Misbehaved, Timing, Use};
use niclab_model::models::matching::program::{FAILED, SUCCEEDED};
pub use niclab_model::models::matching::queue_manager::Party;
use niclab_model::models::matching::queue_manager::{Fault, MAX_ITEMS};
use thiserror::Error;

pub use found::Found;
use manager::Manager;
pub use manager::ManagerView;
use pipeline::Pipeline;
pub use pipeline::{Stages, UnitCycle, UnitView};

use crate::firmware::Firmware;

/// The programs and their input.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The program that matches.
    pub firmware: Firmware,
    /// The program that keeps the list; None for hardware.
    pub queue: Option<Firmware>,
    /// The list.
    pub items: Vec<Item>,
    /// The headers, in the order of arrival. All are present from the first cycle.
    pub headers: Vec<Header>,
    /// Whether matching items are used up or kept.
    pub uses: Use,
    /// Maximum number of cycles for a header.
    pub watchdog: u64,
    /// The input files, which no output may overwrite.
    pub files: Vec<PathBuf>,
}

/// The setup cannot be run.
#[derive(Debug, Error)]
pub enum SetupError {
    /// A branch leaves its program.
    #[error("{party}: {error}")]
    Program {
        /// The program.
        party: Party,
        /// The location.
        #[source]
        error: ImageError,
    },
    /// The list is too long for a program that keeps it, which names items by slots of 16 bits.
    #[error(
        "the list has {items} items, but a program that keeps it has only {MAX_ITEMS} slots\n  fix: remove items \
         or --queue-program; the hardware list manager has no such limit"
    )]
    Items {
        /// Number of items.
        items: usize,
    },
}

/// Default of the watchdog: this number of cycles for a header, plus [`WATCHDOG_PER_ITEM`] for each item. The built-in
/// program takes less than a tenth of it.
pub const WATCHDOG: u64 = 4_096;

/// See [`WATCHDOG`].
pub const WATCHDOG_PER_ITEM: u64 = 256;

/// The default watchdog for a list with this number of items.
#[must_use]
pub const fn watchdog(items: usize) -> u64 {
    WATCHDOG.saturating_add(WATCHDOG_PER_ITEM.saturating_mul(items as u64))
}

/// A program was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("header {header}: {}\n  fix: {}", text(*by, *why), remedy(*by, *why))]
pub struct Stopped {
    /// The header in progress, by its index in the file.
    pub header: usize,
    /// The program at fault, if there are two.
    pub by: Option<Party>,
    /// Its fault.
    #[source]
    pub why: Misbehaved,
}

fn text(by: Option<Party>, why: Misbehaved) -> String {
    by.map_or_else(|| why.to_string(), |party| Fault { party, why }.to_string())
}

fn remedy(by: Option<Party>, why: Misbehaved) -> &'static str {
    match (why, by) {
        (Misbehaved::Watchdog { .. }, _) => {
            "`niclab match debug` shows the loop; --watchdog CYCLES raises the limit"
        }
        (_, Some(Party::Queue)) => {
            "`niclab match debug` steps to it; docs/use/match/INSIDE.md, \"Queue handling as a program\", has \
             the commands and their order"
        }
        _ => {
            "`niclab match debug` steps to it; docs/use/match/INSIDE.md, \"What travels\", has the answers \
             and their order"
        }
    }
}

/// The machine's state between two cycles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The matching unit.
    pub unit: UnitView,
    /// The unit with the program that keeps the list, if any.
    pub queue: Option<UnitView>,
    /// The list manager.
    pub manager: ManagerView,
    /// The header in progress, by its index in the file.
    pub header: Option<usize>,
    /// The item under comparison, by its index in the file. None at the end of the list.
    pub judged: Option<usize>,
}

impl Snapshot {
    /// The unit of this party. Without a queue program, always the matching unit.
    #[must_use]
    pub fn of(&self, party: Party) -> &UnitView {
        match (party, &self.queue) {
            (Party::Queue, Some(queue)) => queue,
            _ => &self.unit,
        }
    }
}

/// A completed cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// Its number, counted from 0.
    pub number: u64,
    /// The machine before the cycle.
    pub before: Snapshot,
    /// Activity of the matching unit.
    pub unit: UnitCycle,
    /// Activity of the unit with the queue program, if any.
    pub queue: Option<UnitCycle>,
    /// The header that began, by its index in the file.
    pub began: Option<usize>,
    /// The header that ended, by its index in the file.
    pub ended: Option<usize>,
}

/// The result of comparing an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The item matches.
    Succeeded,
    /// The item does not match, or the list has ended.
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
    /// Activity of this party's unit, as in [`Snapshot::of`].
    #[must_use]
    pub fn of(&self, party: Party) -> &UnitCycle {
        match (party, &self.queue) {
            (Party::Queue, Some(queue)) => queue,
            _ => &self.unit,
        }
    }

    /// The verdict that the list manager received in this cycle, if any.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        match (self.before.manager.matching?.phase, self.unit.heard?) {
            (Phase::Verdict, SUCCEEDED) => Some(Verdict::Succeeded),
            (Phase::Verdict, FAILED) => Some(Verdict::Failed),
            _ => None,
        }
    }
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// One entry for each header that has its outcome, in order.
    pub found: Vec<Found>,
    /// Total cycles.
    pub cycles: u64,
    /// Part of these cycles in which no header was matched, because a queue program started or appended items. In
    /// hardware all items are present before the first cycle.
    pub append_cycles: u64,
    /// The reason if the program was stopped.
    pub stopped: Option<Stopped>,
}

/// Units and list manager of a run.
#[derive(Clone, Debug)]
pub struct Machine {
    unit: Pipeline,
    queue: Option<Pipeline>,
    manager: Manager,
    places: HashMap<Handle, usize>,
    watchdog: u64,
    headers: usize,
    found: Vec<Found>,
    stopped: Option<Stopped>,
}

impl Machine {
    /// A machine before its first cycle.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn new(setup: &Setup) -> Result<Self, SetupError> {
        let mut manager = Manager::new(setup)?;
        let items = setup.items.iter().enumerate();
        let places = items.map(|(place, item)| (manager.append(*item), place)).collect();
        setup.headers.iter().for_each(|header| manager.queue_mut().on_header(*header));
        Ok(Self {
            unit: Pipeline::new(setup.firmware.clone()),
            queue: setup.queue.clone().map(Pipeline::new),
            manager,
            places,
            watchdog: setup.watchdog,
            headers: setup.headers.len(),
            found: Vec::new(),
            stopped: None,
        })
    }

    /// Whether a program keeps the list.
    #[must_use]
    pub const fn has_queue(&self) -> bool {
        self.queue.is_some()
    }

    fn pipeline(&self, party: Party) -> &Pipeline {
        self.queue.as_ref().filter(|_| party == Party::Queue).unwrap_or(&self.unit)
    }

    /// The program of this party. Without a queue program, always the matching program.
    #[must_use]
    pub fn firmware(&self, party: Party) -> &Firmware {
        &self.pipeline(party).firmware
    }

    /// The address of the next word.
    #[must_use]
    pub fn pc(&self, party: Party) -> usize {
        self.manager.unit(party).pc()
    }

    /// The next word, unless the program ran past its end.
    #[must_use]
    pub fn word(&self, party: Party) -> Option<&Word> {
        self.firmware(party).words().get(self.pc(party))
    }

    /// Whether every header has its outcome.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.manager.is_idle()
    }

    /// The outcomes so far.
    #[must_use]
    pub fn found(&self) -> &[Found] {
        &self.found
    }

    /// The results so far.
    #[must_use]
    pub fn ran(&self) -> Ran {
        let append_cycles = self.manager.change_cycles();
        Ran { found: self.found.clone(), cycles: self.cycles(), append_cycles, stopped: self.stopped }
    }

    /// Total number of headers.
    #[must_use]
    pub const fn headers(&self) -> usize {
        self.headers
    }

    /// The reason if a program was stopped.
    #[must_use]
    pub const fn stopped(&self) -> Option<Stopped> {
        self.stopped
    }

    /// Cycles so far.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.manager.queue().cycle()
    }

    /// Capacity of a unit's input FIFO in words.
    #[must_use]
    pub fn fifo_words(&self, party: Party) -> usize {
        match (party, &self.queue) {
            (Party::Queue, Some(_)) => niclab_model::models::matching::fifo::MAX_WORDS,
            _ => Timing::default().fifo_words,
        }
    }

    /// The current list: slot, index in the file, and item. Hardware has no slots; a program's list is in the order of
    /// slots.
    #[must_use]
    pub fn list(&self) -> Vec<(Option<u16>, usize, Item)> {
        self.manager.list().into_iter().map(|(slot, handle, item)| (slot, self.place(handle), item)).collect()
    }

    /// The machine's current state.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let (manager, judged) = self.manager.look();
        Snapshot {
            unit: self.manager.view(Party::Matcher),
            queue: self.queue.as_ref().map(|_| self.manager.view(Party::Queue)),
            header: manager.matching.map(|_| self.found.len()),
            judged: judged.map(|handle| self.place(handle)),
            manager,
        }
    }

    /// Runs until every header has its outcome, without observing single cycles.
    ///
    /// # Errors [`Stopped`]; [`Self::found`] has the earlier outcomes.
    pub fn run(&mut self) -> Result<(), Stopped> {
        let ended = self.manager.queue_mut().run(self.watchdog);
        self.collect();
        ended.map_err(|fault| self.stop(fault))
    }

    /// Executes one cycle.
    ///
    /// # Errors [`Stopped`], also for each later cycle.
    pub fn tick(&mut self) -> Result<Cycle, Stopped> {
        self.stopped.map_or(Ok(()), Err)?;
        let before = self.snapshot();
        let number = self.cycles();
        let issued = [Party::Matcher, Party::Queue].map(|party| self.manager.unit(party).issued());
        let ended = self.manager.tick();
        let collected = self.collect();
        ended.map_err(|fault| self.stop(fault))?;

        let after = self.snapshot();
        let [unit_issued, queue_issued] = issued;
        let is_issued = self.manager.unit(Party::Matcher).issued() > unit_issued;
        let unit = self.unit.cycle(number, &before.unit, &after.unit, is_issued);
        let is_issued = self.manager.unit(Party::Queue).issued() > queue_issued;
        let queue = match (&mut self.queue, &before.queue, &after.queue) {
            (Some(pipeline), Some(before), Some(after)) => {
                Some(pipeline.cycle(number, before, after, is_issued))
            }
            _ => None,
        };
        let began = after.manager.matching.is_some_and(|matching| matching.began == number);
        let cycle = Cycle {
            number,
            unit,
            queue,
            began: began.then_some(self.found.len()),
            ended: (collected > 0).then(|| self.found.len() - 1),
            before,
        };
        if let Some(fault) = self.manager.overdue(self.watchdog) {
            self.stop(fault);
        }
        Ok(cycle)
    }

    fn stop(&mut self, fault: Fault) -> Stopped {
        let by = self.queue.is_some().then_some(fault.party);
        *self.stopped.insert(Stopped { header: self.found.len(), by, why: fault.why })
    }

    /// Collects outcomes of the list manager. Returns their number.
    fn collect(&mut self) -> usize {
        let before = self.found.len();
        while let Some(outcome) = self.manager.queue_mut().poll_outcome() {
            let found = Found::new(&outcome, |handle| self.place(*handle));
            self.found.push(found);
        }
        self.found.len() - before
    }

    /// The item's index in the file. Every handle of the list manager has one.
    fn place(&self, handle: Handle) -> usize {
        self.places.get(&handle).copied().unwrap_or(usize::MAX)
    }
}
