//! The outcomes of the headers, as JSON and as text.

use std::fmt;

use niclab_model::models::matching::list_manager::Use;
use schemars::{JsonSchema, Schema, schema_for};
use serde::Serialize;

use crate::firmware::Firmware;
use crate::machine::{Found, Ran, Setup};

/// The clock of the paper's match unit (section 5.2).
pub const CLOCK_HZ: u64 = 500_000_000;

/// The list manager that is not a program.
const HARDWARE: &str = "hardware";

/// The version of the JSON.
pub const VERSION: u32 = 1;

/// Why the program was stopped before all headers were matched.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Failure {
    /// The header in progress, by its index in the file.
    pub header: usize,
    /// The fault of the program, and the fix.
    pub message: String,
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Results {
    /// The version of this format: 1.
    pub version: u32,
    /// The program's file, or `built-in`.
    pub program: String,
    /// Number of the program's words.
    pub words: usize,
    /// The list manager: `hardware`, or the program's file, or `built-in`.
    pub queue: String,
    /// Number of items in the list.
    pub items: usize,
    /// Whether matching items were left unchanged.
    pub keep: bool,
    /// The clock of the match unit, in Hz of model time.
    pub clock_hz: u64,
    /// Model cycles until the last outcome is known.
    pub cycles: u64,
    /// Model cycles in which a program that keeps the list starts and appends items. They are part of `cycles`, but of
    /// no header.
    pub append_cycles: u64,
    /// One entry for each header that was matched, in order.
    pub headers: Vec<Found>,
    /// The reason if there are fewer entries than headers.
    pub error: Option<Failure>,
}

impl Results {
    /// The results of a run with this setup.
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
                "{append_cycles} cycles before the first header: the program starts and appends {items} items"
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

/// Writes the table of outcomes.
///
/// # Errors Errors of `out`.
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
