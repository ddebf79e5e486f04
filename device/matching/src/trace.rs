//! The waveform: a VCD file, which GTKWave and its like show.
//!
//! Cycle `c` is the time from `2c` to `2c + 2` nanoseconds; the clock rises at its beginning. What stands in a cycle is what the
//! word that is issued in it finds: registers, predicates and FIFOs as the cycle before left them, the words in the stages,
//! and what the cycle moves.

mod signals;

use std::fs;
use std::io::{self, BufWriter};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use niclab_isa::Word;
use tempfile::NamedTempFile;
use thiserror::Error;

pub use signals::phase_name;
use signals::{View, Wave};

use crate::machine::{Cycle, Machine, Stopped};

/// Nanoseconds of a cycle: 500 MHz.
pub const CYCLE_NS: u64 = 1_000_000_000 / crate::results::CLOCK_HZ;

/// A waveform cannot be written.
#[derive(Debug, Error)]
#[error("cannot write the waveform {}: {error}\n  mend: is its folder there, and is there room?", file.display())]
pub struct TraceError {
    file: PathBuf,
    #[source]
    error: io::Error,
}

/// Why there was no further cycle.
#[derive(Debug, Error)]
pub enum TickError {
    /// The program was stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// Its waveform cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// One cycle, which is written if there is a waveform.
///
/// # Errors
/// [`TickError`].
pub fn tick(machine: &mut Machine, trace: Option<&mut Trace>) -> Result<Cycle, TickError> {
    let word = next_word(machine);
    let cycle = machine.tick()?;
    if let Some(trace) = trace {
        let view = View { before: &cycle.before, cycle: Some(&cycle), word };
        trace.wave.cycle(&view).map_err(|error| trace.fail(error))?;
    }
    Ok(cycle)
}

fn next_word(machine: &Machine) -> Option<(Word, String)> {
    machine.word().map(|word| (*word, machine.firmware().place(machine.pc())))
}

/// A waveform that is being written. It appears under its name when it is whole.
pub struct Trace {
    path: PathBuf,
    file: NamedTempFile,
    wave: Wave<BufWriter<fs::File>>,
}

impl Trace {
    /// Begins the waveform of a machine that has not begun.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn create(path: &Path) -> Result<Self, TraceError> {
        let fail = |error| TraceError { file: path.to_owned(), error };
        // Beside it, so that it can be renamed.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let readable = fs::Permissions::from_mode(0o666);
        let file = tempfile::Builder::new().prefix(".niclab-").permissions(readable).tempfile_in(folder);
        let file = file.map_err(fail)?;
        let out = BufWriter::new(file.reopen().map_err(fail)?);
        Ok(Self { path: path.to_owned(), wave: Wave::begin(out).map_err(fail)?, file })
    }

    /// The last cycle is over: the waveform appears.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn finish(mut self, machine: &Machine) -> Result<(), TraceError> {
        let view = View { before: &machine.snapshot(), cycle: None, word: next_word(machine) };
        self.wave.end(&view).map_err(|error| self.fail(error))?;
        let Self { path, file, .. } = self;
        match file.persist(&path) {
            Ok(_) => Ok(()),
            Err(error) => Err(TraceError { file: path, error: error.error }),
        }
    }

    fn fail(&self, error: io::Error) -> TraceError {
        TraceError { file: self.path.clone(), error }
    }
}
