//! The benchmark of the paper's figure 5, on any of the simulated machines.
//!
//! Constants: the paper's section 5, and a bound, which is ours.

use serde::Serialize;
use thiserror::Error;

use crate::embedded::{Embedded, EmbeddedConfig};
use crate::layout::{self, Header, Item, Matched, Placement, flag};
use crate::memory::{OutsideMemory, ProcessorMemory};
use crate::multithreaded::{Multithreaded, MultithreadedConfig};
use crate::program::{self, Program, UnboundLabel};
use crate::{ConfigError, Observer, SimulationError};

/// Clock at which all machines are compared (paper, section 6).
pub const CLOCK_MHZ: u64 = 500;
/// Maximum length of a simulated list, which bounds the time: thirteen times the paper's longest list.
pub const MAX_ITEMS: u32 = 4096;
/// The lengths of the paper's lists.
pub const LISTS: [u32; 4] = [10, 30, 100, 300];
/// Watchdog of a run: cycles for each header and item, far more than any machine here needs.
const LIMIT_CYCLES: u64 = 10_000;

/// A benchmark that could not be run.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RunError {
    /// The list's length is out of range.
    #[error("a list of {items} items cannot be simulated; choose 1 to {MAX_ITEMS}")]
    ListLength {
        /// The requested length.
        items: u32,
    },
    /// The machine cannot be built.
    #[error("the machine cannot be built: {0}")]
    Config(#[from] ConfigError),
    /// A mistake in this crate's programs.
    #[error("the program cannot be assembled: {0}")]
    Program(#[from] UnboundLabel),
    /// The program or its data has a fault.
    #[error("the simulation ended: {0}")]
    Simulation(#[from] SimulationError),
    /// The benchmark's data does not fit in memory.
    #[error("the benchmark's data does not fit: {0}")]
    Memory(#[from] OutsideMemory),
    /// The machine computed a wrong result, so its timing is meaningless.
    #[error("header {header} matched {found:?} where {expected:?} is right: the simulated machine is wrong")]
    WrongResult {
        /// Index of the header within the pass.
        header: u32,
        /// The machine's result.
        found: Option<Matched>,
        /// The right result.
        expected: Option<Matched>,
    },
}

/// A machine to simulate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machine {
    /// Table 2.
    Embedded(EmbeddedConfig),
    /// Table 3.
    Multithreaded(MultithreadedConfig),
}

impl Machine {
    /// Layout of its data.
    pub fn placement(&self) -> Placement {
        match self {
            Self::Embedded(config) => config.placement,
            Self::Multithreaded(config) => config.placement,
        }
    }
}

/// A machine with its program, and its state between passes.
#[derive(Clone, Debug)]
pub struct Processor {
    machine: Simulated,
    program: Program,
    placement: Placement,
}

#[derive(Clone, Debug)]
enum Simulated {
    Embedded(Box<Embedded>),
    Multithreaded(Box<Multithreaded>),
}

impl Processor {
    /// A machine with cold caches.
    ///
    /// # Errors
    /// The configuration is impossible.
    pub fn new(machine: Machine) -> Result<Self, RunError> {
        let placement = machine.placement();
        let (machine, program) = match machine {
            Machine::Embedded(config) => {
                (Simulated::Embedded(Box::new(Embedded::new(config)?)), program::embedded(placement)?)
            }
            Machine::Multithreaded(config) => (
                Simulated::Multithreaded(Box::new(Multithreaded::new(config)?)),
                program::multithreaded(placement, config.locks)?,
            ),
        };
        Ok(Self { machine, program, placement })
    }

    /// Matches [`layout::HEADERS`] copies of a header, which have just arrived from the network, against the list in
    /// memory. Stores the results in memory. Returns the total cycles.
    ///
    /// # Errors The memory was not made by [`layout::memory()`], or the simulation does not end within `limit` cycles.
    pub fn pass(
        &mut self,
        memory: &mut ProcessorMemory,
        header: &Header,
        limit: u64,
        observer: &mut impl Observer,
    ) -> Result<u64, RunError> {
        layout::deliver(memory, header, self.placement)?;
        // The network bypasses the caches when it writes headers and the pointers of their queue. A FIFO is not cached.
        let written = match self.placement {
            Placement::Packed => vec![
                layout::HEADER_RING..layout::HEADER_RING + layout::HEADERS * layout::HEADER_BYTES,
                layout::QUEUE..layout::QUEUE + 8,
            ],
            Placement::InMemory => Vec::new(),
        };
        let cycles = match &mut self.machine {
            Simulated::Embedded(machine) => {
                for addresses in written {
                    machine.data_cache_mut().invalidate(addresses);
                }
                machine.run(&self.program, memory, limit, observer)?
            }
            Simulated::Multithreaded(machine) => {
                for addresses in written {
                    machine.data_caches_mut().invalidate(addresses);
                }
                machine.run(&self.program, memory, limit, observer)?
            }
        };
        Ok(cycles)
    }
}

/// One pass of the benchmark: [`layout::HEADERS`] identical headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Pass {
    /// Position of the match in the list, in percent. None for the first pass: the paper primes the instruction cache
    /// with it (section 5.1), and here it fills both caches.
    pub percent: Option<u32>,
    /// Items that each header was compared with, including the matching one.
    pub items_traversed: u32,
    /// Model time of the whole pass.
    pub model_cycles: u64,
}

impl Pass {
    /// Model time of one match, in cycles.
    pub fn cycles_per_match(&self) -> f64 {
        self.model_cycles as f64 / f64::from(layout::HEADERS)
    }
}

/// The benchmark of one machine with one list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct List {
    /// Its length.
    pub items: u32,
    /// The passes; the first one fills the caches.
    pub passes: Vec<Pass>,
}

/// Runs the benchmark with each of [`LISTS`].
pub(crate) fn measure<E>(mut run: impl FnMut(u32) -> Result<Vec<Pass>, E>) -> Result<Vec<List>, E> {
    LISTS.into_iter().map(|items| run(items).map(|passes| List { items, passes })).collect()
}

/// The passes in order: the position of the match in percent, and the items that a match traverses. The first pass
/// fills the caches.
pub(crate) fn passes(items: u32) -> impl Iterator<Item = (Option<u32>, u32)> {
    std::iter::once(None)
        .chain((0..=100).step_by(10).map(Some))
        .map(move |percent| (percent, items_traversed(items, percent.unwrap_or(100))))
}

/// Items traversed by a match at a position in percent: the first item at 0, the whole list at 100.
fn items_traversed(items: u32, percent: u32) -> u32 {
    (items * percent / 100).max(1)
}

/// The match bits of the item at an index, different for each item.
pub(crate) fn match_bits(index: u32) -> u64 {
    0x4d50_4900_0000_0000 | u64::from(index)
}

/// A posted receive as in MPI: bits and source given, offset managed by the receiver.
fn posted_receive(index: u32) -> Item {
    Item {
        match_bits: match_bits(index),
        dont_ignore: u64::MAX,
        nid: 0,
        pid: 7,
        flags: flag::VALID | flag::PUTS,
        threshold: 1,
        length: 1 << 16,
        local_offset: 0,
        max_size: 0,
    }
}

/// Runs the benchmark: a pass to the end of the list that fills the caches, then eleven passes from the first item to
/// the last in steps of 10 percent.
///
/// # Errors See [`RunError`]; every result of every pass is compared with the right one.
pub fn run(machine: Machine, items: u32) -> Result<Vec<Pass>, RunError> {
    if !(1..=MAX_ITEMS).contains(&items) {
        return Err(RunError::ListLength { items });
    }
    let list: Vec<Item> = (0..items).map(posted_receive).collect();
    let mut memory = layout::memory(&list, machine.placement())?;
    let mut processor = Processor::new(machine)?;
    let limit = LIMIT_CYCLES * u64::from(layout::HEADERS * items);
    let mut passes = Vec::new();
    for (percent, items_traversed) in self::passes(items) {
        let index = items_traversed - 1;
        let header = Header {
            match_bits: match_bits(index),
            pid: 7,
            operation: layout::PUT,
            length: 1024,
            remote_offset: 0,
        };
        let model_cycles = processor.pass(&mut memory, &header, limit, &mut ())?;
        let expected = Some(Matched { index, offset: 0, length: 1024 });
        for header in 0..layout::HEADERS {
            let found = layout::result(&memory, header)?;
            if found != expected {
                return Err(RunError::WrongResult { header, found, expected });
            }
        }
        passes.push(Pass { percent, items_traversed, model_cycles });
    }
    Ok(passes)
}
