//! The waveform: a VCD file for GTKWave and similar viewers.
//!
//! Cycle `c` is the time from `2c` to `2c + 2` nanoseconds; the clock rises at its beginning. Each cycle has the state
//! that the word issued in it sees: registers, predicates and FIFOs after the previous cycle. It also has the words in
//! the stages, and the words that the cycle moves.

mod signals;

use std::io::BufWriter;
use std::path::{Path, PathBuf};

use niclab_isa::Word;
use niclab_output::{OutputError, OutputFile, OutputWriter};
use thiserror::Error;

pub use signals::phase_name;
use signals::{View, Wave};

use crate::machine::{Cycle, Machine, Party, Stopped};

/// Nanoseconds of a cycle: 500 MHz.
pub const CYCLE_NS: u64 = 1_000_000_000 / crate::results::CLOCK_HZ;

/// A waveform cannot be written.
#[derive(Debug, Error)]
#[error("the waveform: {0}")]
pub struct TraceError(#[from] OutputError);

/// The reason why no cycle could be executed.
#[derive(Debug, Error)]
pub enum TickError {
    /// The program was stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The waveform cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// Executes one cycle, and adds it to the waveform, if any.
///
/// # Errors
/// [`TickError`].
pub fn tick(machine: &mut Machine, trace: Option<&mut Trace>) -> Result<Cycle, TickError> {
    let word = next_word(machine);
    let cycle = machine.tick()?;
    if let Some(trace) = trace {
        let view = View { before: &cycle.before, cycle: Some(&cycle), word };
        let Trace { wave, output } = trace;
        wave.cycle(&view).map_err(|error| TraceError::from(output.fail(error)))?;
    }
    Ok(cycle)
}

fn next_word(machine: &Machine) -> Option<(Word, String)> {
    let unit = Party::Matcher;
    machine.word(unit).map(|word| (*word, machine.firmware(unit).place(machine.pc(unit))))
}

/// A waveform that is being written. It appears under its name once it is complete.
pub struct Trace {
    output: OutputFile,
    wave: Wave<BufWriter<OutputWriter>>,
}

impl Trace {
    /// Begins the waveform of a machine before its first cycle. The file must not be one of `inputs`.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn create(path: &Path, inputs: &[PathBuf]) -> Result<Self, TraceError> {
        let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
        let output = OutputFile::create(path, &inputs)?;
        let out = BufWriter::new(output.writer()?);
        let wave = Wave::begin(out).map_err(|error| output.fail(error))?;
        Ok(Self { output, wave })
    }

    /// Completes the waveform after the last cycle; the file appears.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn finish(mut self, machine: &Machine) -> Result<(), TraceError> {
        let view = View { before: &machine.snapshot(), cycle: None, word: next_word(machine) };
        self.wave.end(&view).map_err(|error| self.output.fail(error))?;
        Ok(self.output.finish()?)
    }
}
