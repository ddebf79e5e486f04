//! What became of the headers, for programs and for people.

use std::fmt;

use niclab_model::models::matching::list_manager::Use;
use schemars::{JsonSchema, Schema, schema_for};
use serde::Serialize;

use crate::firmware::Firmware;
use crate::machine::{Found, Ran, Setup};

/// The clock of the paper's match unit (section 5.2).
pub const CLOCK_HZ: u64 = 500_000_000;

/// What keeps the list where no program does.
const HARDWARE: &str = "hardware";

/// The version of the JSON.
pub const VERSION: u32 = 1;

/// Why the program was stopped before all headers were matched.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Failure {
    /// The header that was being matched, by its place in the file.
    pub header: usize,
    /// What it did, and the fix.
    pub message: String,
}

/// What became of all.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Results {
    /// The version of this form: 1.
    pub version: u32,
    /// The program's file, or `built-in`.
    pub program: String,
    /// Its words.
    pub words: usize,
    /// What kept the list: `hardware`, or the program that did, as `program`.
    pub queue: String,
    /// Items of the list.
    pub items: usize,
    /// Whether items that matched were kept as they were.
    pub keep: bool,
    /// The clock of the match unit, in Hz of model time.
    pub clock_hz: u64,
    /// Model cycles in all, to the one in which the last outcome is known.
    pub cycles: u64,
    /// Model cycles of these in which a program that keeps the list began and items were appended. They stand in no
    /// header.
    pub append_cycles: u64,
    /// One entry for each header that was matched, in order.
    pub headers: Vec<Found>,
    /// Why there are fewer entries than headers.
    pub error: Option<Failure>,
}

impl Results {
    /// What became of everything that was given.
    #[must_use]
    pub fn new(setup: &Setup, ran: Ran) -> Self {
        let queue = setup.queue.as_ref().map_or(HARDWARE, Firmware::name);
        Self {
            version: VERSION,
            program: setup.firmware.name().to_owned(),
            words: setup.firmware.words().len(),
            queue: queue.to_owned(),
            items: setup.items.len(),
            keep: setup.uses == Use::Keep,
            clock_hz: CLOCK_HZ,
            cycles: ran.cycles,
            append_cycles: ran.append_cycles,
            headers: ran.found,
            error: ran
                .stopped
                .map(|stopped| Failure { header: stopped.header, message: stopped.to_string() }),
        }
    }
}

impl fmt::Display for Results {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, words, queue, items, keep, cycles, append_cycles, clock_hz, .. } = self;
        let uses = if *keep { "kept as they are" } else { "used up" };
        writeln!(
            formatter,
            "program {program}, {words} words; list of {items} kept by {queue}, items that match are {uses}"
        )?;
        write_found(formatter, &self.headers)?;
        if queue != HARDWARE {
            writeln!(
                formatter,
                "{append_cycles} cycles before the first header: the program begins, and {items} items are appended"
            )?;
        }
        let model_ns = u128::from(*cycles) * 1_000_000_000 / u128::from(*clock_hz);
        writeln!(formatter, "{cycles} cycles, {model_ns} ns of model time")
    }
}

/// The JSON Schema of [`Results`].
#[must_use]
pub fn results_schema() -> Schema {
    schema_for!(Results)
}

/// Writes the table of what was found.
///
/// # Errors
/// As `out`.
pub fn write_found(out: &mut dyn fmt::Write, headers: &[Found]) -> fmt::Result {
    writeln!(
        out,
        "{:>8} {:>8} {:>20} {:>20} {:>9} {:>9}",
        "header", "index", "offset", "length", "cycles", "traversed"
    )?;
    let or_none = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    for (header, found) in headers.iter().enumerate() {
        let index = found.index.map_or_else(|| "none".to_owned(), |index| index.to_string());
        let (offset, length) = (or_none(found.offset), or_none(found.length));
        writeln!(
            out,
            "{header:>8} {index:>8} {offset:>20} {length:>20} {:>9} {:>9}",
            found.cycles, found.traversed
        )?;
    }
    Ok(())
}
