//! All machines on the benchmark (section 6.1).
//!
//! The processors come in two sets: as the paper's tables and its simulator's defaults describe them, and with the two
//! decisions that the paper leaves open and that matter most taken the other way: branches of the embedded processor
//! predicted not taken, and threads that spin on a lock. Neither is fitted to anything. `niclab figures match` puts what
//! comes out beside what the paper says.

use serde::Serialize;

use crate::benchmark::{self, CLOCK_MHZ, List, Machine, RunError};
use crate::cache::CacheConfig;
use crate::embedded::EmbeddedConfig;
use crate::layout::{HEADERS, Placement};
use crate::match_unit::{MatchUnit, MatchUnitError};
use crate::multithreaded::{MultithreadedConfig, Spawning};
use crate::predictor::Prediction;
use crate::program::Locks;

/// The version of [`Comparison`] as JSON.
pub const COMPARISON_VERSION: u32 = 2;

/// The machines of one set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machines {
    /// Table 2.
    pub embedded: EmbeddedConfig,
    /// Table 3, column by column.
    pub multithreaded: [MultithreadedConfig; 3],
}

impl Machines {
    /// The paper's tables, and its simulator's defaults.
    pub fn as_described() -> Self {
        Self {
            embedded: EmbeddedConfig::default(),
            multithreaded: [
                MultithreadedConfig::one_core(),
                MultithreadedConfig::two_cores(),
                MultithreadedConfig::sixteen_cores(),
            ],
        }
    }

    /// Items from memory: headers from a FIFO, items of two lines with their locks in them, caches that invalidate one
    /// another, threads that begin near. docs/PROCESSORS.md has each choice with its source; none is fitted.
    pub fn from_memory() -> Self {
        let Self { embedded, multithreaded } = Self::as_described();
        Self {
            embedded: EmbeddedConfig { placement: Placement::InMemory, ..embedded },
            multithreaded: multithreaded.map(|config| MultithreadedConfig {
                placement: Placement::InMemory,
                locks: Locks::FullEmpty,
                coherent: true,
                spawning: Spawning::Near,
                ..config
            }),
        }
    }

    /// The same as the first with what the paper leaves open decided the other way.
    pub fn otherwise() -> Self {
        let Self { embedded, multithreaded } = Self::as_described();
        Self {
            embedded: EmbeddedConfig { prediction: Prediction::NotTaken, ..embedded },
            multithreaded: multithreaded.map(|config| MultithreadedConfig { waiting_spins: true, ..config }),
        }
    }
}

/// Machines with one decision taken otherwise, to show how much hangs on it.
pub fn variations() -> Vec<(&'static str, Machine)> {
    let Machines { embedded, multithreaded: [_, _, sixteen] } = Machines::as_described();
    let from_memory = |cache| CacheConfig { size_bytes: 128, ways: 4, ..cache };
    vec![
        ("embedded, as described", Machine::Embedded(embedded)),
        (
            "embedded, branches predicted not taken",
            Machine::Embedded(EmbeddedConfig { prediction: Prediction::NotTaken, ..embedded }),
        ),
        (
            "embedded, data cache of four lines: every item comes from memory",
            Machine::Embedded(EmbeddedConfig { data_cache: from_memory(embedded.data_cache), ..embedded }),
        ),
        ("16 cores, as described", Machine::Multithreaded(sixteen)),
        (
            "16 cores, waiting threads spin",
            Machine::Multithreaded(MultithreadedConfig { waiting_spins: true, ..sixteen }),
        ),
        (
            "16 cores, data caches of four lines: every item comes from memory",
            Machine::Multithreaded(MultithreadedConfig {
                data_cache: from_memory(sixteen.data_cache),
                ..sixteen
            }),
        ),
        (
            "16 cores, a lock takes as long as memory: 10 cycles",
            Machine::Multithreaded(MultithreadedConfig { lock_cycles: 10, ..sixteen }),
        ),
        (
            "16 cores, all three: spinning, items from memory, locks of 10 cycles",
            Machine::Multithreaded(MultithreadedConfig {
                waiting_spins: true,
                data_cache: from_memory(sixteen.data_cache),
                lock_cycles: 10,
                ..sixteen
            }),
        ),
        (
            "16 cores, taken branches cost nothing",
            Machine::Multithreaded(MultithreadedConfig { taken_branch_cycles: 0, ..sixteen }),
        ),
    ]
}

/// A processor on the benchmark.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Measured {
    /// Which.
    pub name: String,
    /// One for each of [`benchmark::LISTS`].
    pub lists: Vec<List>,
}

impl Measured {
    fn new(name: &str, machine: Machine) -> Result<Self, RunError> {
        let lists = benchmark::measure(|items| benchmark::run(machine, items))?;
        Ok(Self { name: name.to_owned(), lists })
    }
}

/// A set of processors on the benchmark.
///
/// # Errors
/// See [`RunError`].
pub fn processors(machines: &Machines) -> Result<Vec<Measured>, RunError> {
    let [one, two, sixteen] = machines.multithreaded.map(Machine::Multithreaded);
    [
        ("embedded", Machine::Embedded(machines.embedded)),
        ("1 core", one),
        ("2 cores", two),
        ("16 cores", sixteen),
    ]
    .into_iter()
    .map(|(name, machine)| Measured::new(name, machine))
    .collect()
}

/// All machines on the benchmark. All cycles are model time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Comparison {
    /// [`COMPARISON_VERSION`].
    pub version: u32,
    /// [`CLOCK_MHZ`].
    pub clock_mhz: u64,
    /// [`HEADERS`].
    pub headers_per_pass: u32,
    /// The match unit, on its engine.
    pub match_unit: MatchUnit,
    /// [`Machines::as_described`].
    pub as_described: Vec<Measured>,
    /// [`Machines::otherwise`].
    pub otherwise: Vec<Measured>,
    /// [`variations`].
    pub variations: Vec<Measured>,
}

impl Comparison {
    /// Simulates all of them.
    ///
    /// # Errors
    /// See [`MatchUnitError`].
    pub fn new() -> Result<Self, MatchUnitError> {
        Ok(Self {
            version: COMPARISON_VERSION,
            clock_mhz: CLOCK_MHZ,
            headers_per_pass: HEADERS,
            match_unit: MatchUnit::new()?,
            as_described: processors(&Machines::as_described())?,
            otherwise: processors(&Machines::otherwise())?,
            variations: variations()
                .into_iter()
                .map(|(name, machine)| Measured::new(name, machine))
                .collect::<Result<_, _>>()?,
        })
    }
}
