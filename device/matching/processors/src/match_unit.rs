//! The match unit on the benchmark: the engine and the list manager of the NIC, with the NIC's program.
//!
//! All passes are run cycle by cycle. So are the counts that the paper gives for its program's segments (section 4.3):
//! the cycles between the issues of the segments' first words.
//!
//! Constants: ours.

use niclab_isa::image::ImageError;
use niclab_isa::{PREDICATES, REGISTERS, WORD_BITS};
use niclab_model::models::matching::fifo::OUTPUT_CYCLES;
use niclab_model::models::matching::item::{Header, Item, Operation, WORDS, flag};
use niclab_model::models::matching::list_manager::{ListManager, Matched, Misbehaved, Steps, Timing, Use};
use niclab_model::models::matching::program;
use niclab_model::models::matching::unit::{Step, Unit};
use serde::Serialize;
use thiserror::Error;

use crate::benchmark::{self, List, Pass, RunError, measure};
use crate::layout::HEADERS;

/// Table 1: the segments of the program, in order, and their words.
pub const SEGMENTS: [(&str, usize); 6] = [
    ("initialization", 4),
    ("header", 9),
    ("list item, shared", 6),
    ("list item, fast path", 7),
    ("list item, slow path", 10),
    ("flush", 8),
];

/// Watchdog of a run: cycles for each header and item.
const WATCHDOG_CYCLES: u64 = 1_000;
const PROCESS: u16 = 7;
const MESSAGE_BYTES: u64 = 1024;

/// A benchmark of the match unit that could not be run.
#[derive(Debug, Error)]
pub enum MatchUnitError {
    /// The program cannot be loaded.
    #[error("the match unit's program cannot be loaded: {0}")]
    Program(#[from] ImageError),
    /// The program violates the protocol with the list manager.
    #[error("the match unit violates its protocol with the list manager: {0}")]
    Misbehaved(#[from] Misbehaved),
    /// A header has the wrong outcome.
    #[error(
        "a header that matches item {expected} has the outcome {found:?}: the match unit or its program is wrong"
    )]
    WrongResult {
        /// The item's index.
        expected: usize,
        /// The outcome.
        found: Option<Matched>,
    },
    /// The program's segments differ from [`SEGMENTS`].
    #[error(
        "the program does not go from word {from} to word {to}, where its segments should begin; SEGMENTS has \
         their lengths"
    )]
    Segments {
        /// The expected beginning of one segment.
        from: usize,
        /// The expected beginning of the next one.
        to: usize,
    },
    /// A benchmark of another machine failed.
    #[error(transparent)]
    Processor(#[from] RunError),
}

/// The match unit's results.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MatchUnit {
    /// Number of its program's words.
    pub program_words: usize,
    /// Words of each segment in [`SEGMENTS`].
    pub segments: Vec<usize>,
    /// Bits of a word.
    pub word_bits: u32,
    /// Cycles of parts of the program.
    pub model_cycles: Counts,
    /// Bits of its memories.
    pub bits: Memories,
    /// Results of the benchmark.
    pub lists: Vec<List>,
    /// Results with the gap between two headers fitted to the paper's ratios: [`Steps::FITTED`].
    pub fitted_lists: Vec<List>,
}

/// Cycles of parts of the program, with input always available (section 4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Counts {
    /// From an item with different match bits to the next item.
    pub item_that_differs: u64,
    /// From a matching item to the flush.
    pub item_that_matches: u64,
    /// The flush.
    pub flush: u64,
    /// A header whose first item matches, from its first word to the end of the flush.
    pub header: u64,
    /// From the issue of a word until the list manager receives its output.
    pub heard: u64,
}

/// Bits of the unit's memories (section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Memories {
    /// The program at its actual length.
    pub program: u64,
    /// The ALU's registers.
    pub alu_registers: u64,
    /// The ternary unit's registers.
    pub ternary_registers: u64,
    /// The predicates.
    pub predicates: u64,
    /// The input FIFO of [`Timing::default`].
    pub input_fifo: u64,
    /// The list manager's cache.
    pub item_cache: u64,
}

impl MatchUnit {
    /// Runs the benchmark and measures the counts.
    ///
    /// # Errors
    /// [`MatchUnitError`].
    pub fn new() -> Result<Self, MatchUnitError> {
        let program_words = program::portals()?.len();
        let registers = REGISTERS as u64 * 64;
        let timing = Timing::default();
        Ok(Self {
            program_words,
            segments: SEGMENTS.iter().map(|(_, words)| *words).collect(),
            word_bits: WORD_BITS,
            model_cycles: Counts::measure()?,
            bits: Memories {
                program: program_words as u64 * u64::from(WORD_BITS),
                alu_registers: registers,
                ternary_registers: registers,
                predicates: PREDICATES as u64,
                input_fifo: timing.fifo_words as u64 * 64,
                item_cache: (timing.cache_items * WORDS) as u64 * 64,
            },
            lists: measure(|items| run(items, Timing::default()))?,
            fitted_lists: measure(|items| run(items, Timing { steps: Steps::FITTED, ..Timing::default() }))?,
        })
    }
}

pub(crate) fn unit() -> Result<Unit, MatchUnitError> {
    let mut unit = Unit::new(&program::portals()?)?;
    unit.automate(0);
    Ok(unit)
}

/// The benchmark's posted receive at an index.
fn item(index: u32) -> Item {
    Item {
        match_bits: benchmark::match_bits(index),
        dont_ignore_bits: u64::MAX,
        node: 0,
        process: PROCESS,
        flags: flag::VALID | flag::PUT,
        length: 1 << 16,
        threshold: 1,
        ..Item::default()
    }
}

/// The header that matches the item at an index.
fn header(index: u32) -> Header {
    Header {
        match_bits: benchmark::match_bits(index),
        node: 0,
        process: PROCESS,
        operation: Operation::Put,
        length: MESSAGE_BYTES,
        remote_offset: 0,
    }
}

/// A match unit with the benchmark's list of `items` items. Matching items stay in the list (section 5.1).
///
/// # Errors The program cannot be loaded.
pub fn machine(items: u32, timing: Timing) -> Result<ListManager, MatchUnitError> {
    let mut manager = ListManager::new(timing, Use::Keep, unit()?);
    for index in 0..items {
        manager.preload(item(index));
    }
    Ok(manager)
}

/// Runs one pass: [`HEADERS`] headers that match the item at `index`, all present from the start. Returns its cycles.
///
/// # Errors The unit finds another item, or its program is faulty.
pub fn pass(manager: &mut ListManager, index: u32) -> Result<u64, MatchUnitError> {
    for _ in 0..HEADERS {
        manager.on_header(header(index));
    }
    manager.run(WATCHDOG_CYCLES * (u64::from(index) + 1))?;
    let expected = index as usize;
    let mut cycles = 0;
    while let Some(outcome) = manager.poll_outcome() {
        match outcome.matched {
            Some(found) if (found.index, found.offset, found.length) == (expected, 0, MESSAGE_BYTES) => {}
            found => return Err(MatchUnitError::WrongResult { expected, found }),
        }
        cycles += outcome.cycles;
    }
    Ok(cycles)
}

/// Runs the benchmark.
///
/// # Errors [`MatchUnitError`].
pub fn run(items: u32, timing: Timing) -> Result<Vec<Pass>, MatchUnitError> {
    let mut manager = machine(items, timing)?;
    benchmark::passes(items)
        .map(|(percent, items_traversed)| {
            let model_cycles = pass(&mut manager, items_traversed - 1)?;
            Ok(Pass { percent, items_traversed, model_cycles })
        })
        .collect()
}

/// The words of a header and three items, of which the second one matches.
pub(crate) fn stream() -> Vec<u64> {
    let entities = [header(1).to_words(), item(0).to_words(), item(1).to_words(), item(2).to_words()];
    entities.concat()
}

impl Counts {
    fn measure() -> Result<Self, MatchUnitError> {
        let begins = |segment: usize| SEGMENTS.iter().take(segment).map(|(_, words)| words).sum();
        let [to_header, to_item, to_flush] = [1, 2, 5].map(begins);
        // The cycles in which the first words of these segments are issued. The first item has different match bits.
        let visits = visits(&stream(), [to_header, to_item, to_flush])?;
        let cycle = |place: usize, expected: usize| match visits.get(place) {
            Some((pc, cycle)) if *pc == expected => Ok(*cycle),
            _ => Err(MatchUnitError::Segments { from: to_header, to: expected }),
        };
        let (begin, differs) = (cycle(0, to_header)?, cycle(1, to_item)?);
        let (matches, flush, end) = (cycle(2, to_item)?, cycle(3, to_flush)?, cycle(4, to_header)?);
        let item_that_differs = matches - differs;
        Ok(Self {
            item_that_differs,
            item_that_matches: flush - matches,
            flush: end - flush,
            header: end - begin - item_that_differs,
            heard: OUTPUT_CYCLES,
        })
    }
}

/// Cycles in which the unit issues the words at `places`, for two headers.
fn visits(words: &[u64], places: [usize; 3]) -> Result<Vec<(usize, u64)>, MatchUnitError> {
    let mut unit = unit()?;
    let mut visits = Vec::new();
    let mut input = words.iter().cycle().take(2 * words.len()).copied().peekable();
    loop {
        if places.contains(&unit.pc()) {
            visits.push((unit.pc(), unit.cycles()));
        }
        match unit.step(input.peek().copied()) {
            Step::Issued { took: true, .. } => drop(input.next()),
            Step::Issued { .. } => {}
            Step::Waited | Step::RanOut => return Ok(visits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_equal_the_papers() {
        let expected = Counts { item_that_differs: 8, item_that_matches: 14, flush: 8, header: 31, heard: 3 };
        assert_eq!(Counts::measure().unwrap(), expected);
        let words: usize = SEGMENTS.iter().map(|(_, words)| words).sum();
        assert_eq!(words, program::portals().unwrap().len());
    }

    #[test]
    fn a_wrong_match_is_an_error() {
        let mut manager = machine(2, Timing::default()).unwrap();
        manager.append(item(7));
        // The item for index 7 is at index 2.
        assert!(matches!(pass(&mut manager, 7), Err(MatchUnitError::WrongResult { expected: 7, .. })));
    }

    #[test]
    fn a_match_takes_4_derived_or_6_fitted_cycles_over_hardware() {
        for (steps, over) in [(Steps::DERIVED, 4), (Steps::FITTED, 6)] {
            for items in benchmark::LISTS {
                // The first pass also initializes the program.
                let passes = run(items, Timing { steps, ..Timing::default() }).unwrap();
                for pass in passes.iter().skip(1) {
                    let hardware = u64::from(HEADERS * (24 + 8 * pass.items_traversed));
                    assert_eq!(pass.model_cycles - hardware, u64::from(HEADERS) * over);
                }
            }
        }
    }
}
