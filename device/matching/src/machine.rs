//! Unit and list manager with a list and headers, cycle by cycle, and what each cycle brought. The list manager is
//! hardware, or a second unit with a program of its own.
//!
//! The unit executes a word at a time, since forwarding hides its three stages; here they are derived from what was
//! issued: the word issued in a cycle reads its operands in it, executes in the next one and writes in the one behind.

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

/// Everything that is given.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The program that matches.
    pub firmware: Firmware,
    /// The program that keeps the list, where hardware does not.
    pub queue: Option<Firmware>,
    /// The list.
    pub items: Vec<Item>,
    /// The headers, in the order of arrival; all are there from the first cycle on.
    pub headers: Vec<Header>,
    /// What becomes of items that match.
    pub uses: Use,
    /// Cycles that a header may take.
    pub watchdog: u64,
    /// The files that all this was read from, which nothing may be written to.
    pub files: Vec<PathBuf>,
}

/// What is given cannot be run.
#[derive(Debug, Error)]
pub enum SetupError {
    /// A branch leads out of a program.
    #[error("{party}: {error}")]
    Program {
        /// Which program.
        party: Party,
        /// Where.
        #[source]
        error: ImageError,
    },
    /// A program that keeps the list names items by slots of 16 bits.
    #[error(
        "the list has {items} items, and a program that keeps it has {MAX_ITEMS} slots for them\n  fix: take items \
         out, or leave --queue-program away: the hardware list manager takes any number"
    )]
    Items {
        /// How many there are.
        items: usize,
    },
}

/// Cycles that a program may take for a header if nobody says how many: so many, and [`WATCHDOG_PER_ITEM`] for each
/// item. The built-in program takes less than a tenth of it.
pub const WATCHDOG: u64 = 4_096;

/// [`WATCHDOG`].
pub const WATCHDOG_PER_ITEM: u64 = 256;

/// The watchdog for a list of so many items.
#[must_use]
pub const fn watchdog(items: usize) -> u64 {
    WATCHDOG.saturating_add(WATCHDOG_PER_ITEM.saturating_mul(items as u64))
}

/// A program was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("header {header}: {}\n  fix: {}", text(*by, *why), remedy(*by, *why))]
pub struct Stopped {
    /// The header that was being matched, by its place in the file.
    pub header: usize,
    /// Which of two programs; none where there is but one.
    pub by: Option<Party>,
    /// What it did.
    #[source]
    pub why: Misbehaved,
}

fn text(by: Option<Party>, why: Misbehaved) -> String {
    by.map_or_else(|| why.to_string(), |party| Fault { party, why }.to_string())
}

fn remedy(by: Option<Party>, why: Misbehaved) -> &'static str {
    match (why, by) {
        (Misbehaved::Watchdog { .. }, _) => {
            "`niclab match debug` shows where it goes round; --watchdog CYCLES gives it longer"
        }
        (_, Some(Party::Queue)) => {
            "`niclab match debug` steps there; docs/use/match/INSIDE.md, \"Queue handling as a program\", says what is to be done when"
        }
        _ => {
            "`niclab match debug` steps there; docs/use/match/INSIDE.md, \"What travels\", says what is to be answered when"
        }
    }
}

/// What can be seen of the machine between two cycles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The unit that matches.
    pub unit: UnitView,
    /// The unit whose program keeps the list, if one does.
    pub queue: Option<UnitView>,
    /// What keeps the list.
    pub manager: ManagerView,
    /// The header that is being matched, by its place in the file.
    pub header: Option<usize>,
    /// The item that is being judged, by its place in the file. At the end of the list there is none.
    pub judged: Option<usize>,
}

impl Snapshot {
    /// One of both units; the one that matches where there is but that.
    #[must_use]
    pub fn of(&self, party: Party) -> &UnitView {
        match (party, &self.queue) {
            (Party::Queue, Some(queue)) => queue,
            _ => &self.unit,
        }
    }
}

/// A cycle that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// Its number, from 0 on.
    pub number: u64,
    /// The machine before it.
    pub before: Snapshot,
    /// What the unit that matches did.
    pub unit: UnitCycle,
    /// What the unit did whose program keeps the list, if one does.
    pub queue: Option<UnitCycle>,
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
    /// What one of both units did, as [`Snapshot::of`].
    #[must_use]
    pub fn of(&self, party: Party) -> &UnitCycle {
        match (party, &self.queue) {
            (Party::Queue, Some(queue)) => queue,
            _ => &self.unit,
        }
    }

    /// The verdict that the list manager heard, if it heard one.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        match (self.before.manager.matching?.phase, self.unit.heard?) {
            (Phase::Verdict, SUCCEEDED) => Some(Verdict::Succeeded),
            (Phase::Verdict, FAILED) => Some(Verdict::Failed),
            _ => None,
        }
    }
}

/// What became of the headers, however they were matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// One for each header that has its outcome, in order.
    pub found: Vec<Found>,
    /// Cycles in all.
    pub cycles: u64,
    /// Cycles of these in which the list was changed and no header was matched: a program that keeps it began, and
    /// appended items. In hardware all items are there before the first cycle.
    pub append_cycles: u64,
    /// Why the program was stopped, if it was.
    pub stopped: Option<Stopped>,
}

/// Units and list manager at work.
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

    /// One of both programs; the one that matches where there is but that.
    #[must_use]
    pub fn firmware(&self, party: Party) -> &Firmware {
        &self.pipeline(party).firmware
    }

    /// The address of the word that comes next.
    #[must_use]
    pub fn pc(&self, party: Party) -> usize {
        self.manager.unit(party).pc()
    }

    /// The word that comes next, unless the program ran past its end.
    #[must_use]
    pub fn word(&self, party: Party) -> Option<&Word> {
        self.firmware(party).words().get(self.pc(party))
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
        let append_cycles = self.manager.change_cycles();
        Ran { found: self.found.clone(), cycles: self.cycles(), append_cycles, stopped: self.stopped }
    }

    /// How many headers there are in all.
    #[must_use]
    pub const fn headers(&self) -> usize {
        self.headers
    }

    /// Why a program was stopped.
    #[must_use]
    pub const fn stopped(&self) -> Option<Stopped> {
        self.stopped
    }

    /// Cycles so far.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.manager.queue().cycle()
    }

    /// Words that the input FIFO of a unit holds.
    #[must_use]
    pub fn fifo_words(&self, party: Party) -> usize {
        match (party, &self.queue) {
            (Party::Queue, Some(_)) => niclab_model::models::matching::fifo::MAX_WORDS,
            _ => Timing::default().fifo_words,
        }
    }

    /// The list as it is: places in the file, and items. Where a program keeps it, in the order of its slots, which
    /// come first.
    #[must_use]
    pub fn list(&self) -> Vec<(Option<u16>, usize, Item)> {
        self.manager.list().into_iter().map(|(slot, handle, item)| (slot, self.place(handle), item)).collect()
    }

    /// The machine as it is.
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

    /// Goes on until every header has its outcome, without a look at single cycles.
    ///
    /// # Errors
    /// [`Stopped`]; what was found before is [`Self::found`].
    pub fn run(&mut self) -> Result<(), Stopped> {
        let ended = self.manager.queue_mut().run(self.watchdog);
        self.collect();
        ended.map_err(|fault| self.stop(fault))
    }

    /// One cycle.
    ///
    /// # Errors
    /// [`Stopped`], from then on for each cycle.
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

    /// Takes what the list manager found; how many headers that are.
    fn collect(&mut self) -> usize {
        let before = self.found.len();
        while let Some(outcome) = self.manager.queue_mut().poll_outcome() {
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
