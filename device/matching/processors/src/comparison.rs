//! All machines on the benchmark (section 6.1).
//!
//! The processors come in three sets:
//!
//! * as the paper's tables and its simulator's defaults describe them;
//! * with the opposite of the two most important decisions that the paper leaves open: branches of the embedded
//!   processor
//!   are predicted not taken, and threads spin on a lock;
//! * with headers, items and locks where the paper's figures have them.
//!
//! No set is fitted to any result. `niclab figures match` prints the results next to the paper's.

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

    /// Items from memory: headers from a FIFO, items of two lines that contain their locks, coherent caches, and
    /// threads that start near their spawner. docs/design/PROCESSORS.md has each choice with its source; none is
    /// fitted.
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

    /// [`Self::as_described`] with the opposite decisions where the paper leaves them open.
    pub fn otherwise() -> Self {
        let Self { embedded, multithreaded } = Self::as_described();
        Self {
            embedded: EmbeddedConfig { prediction: Prediction::NotTaken, ..embedded },
            multithreaded: multithreaded.map(|config| MultithreadedConfig { waiting_spins: true, ..config }),
        }
    }
}

/// Machines that differ in one decision, to show its influence.
pub fn variations() -> Vec<(&'static str, Machine)> {
    let mut all = variations_of_the_first_set();
    all.extend(variations_of_the_third_set());
    all
}

/// Variations of [`Machines::from_memory`], together with these machines themselves.
fn variations_of_the_third_set() -> Vec<(&'static str, Machine)> {
    let Machines { embedded, multithreaded: [one, _, sixteen] } = Machines::from_memory();
    // A cache with room for the items of four threads, but not for the shortest list.
    let keeps_no_list = |cache| CacheConfig { size_bytes: 512, ways: 16, ..cache };
    let reserving = |config| MultithreadedConfig { locks: Locks::Reserved, ..config };
    let no_list = |config: MultithreadedConfig| MultithreadedConfig {
        data_cache: keeps_no_list(config.data_cache),
        ..config
    };
    let embedded_no_list = EmbeddedConfig { data_cache: keeps_no_list(embedded.data_cache), ..embedded };
    let far = MultithreadedConfig { spawning: Spawning::Far, ..sixteen };
    let apart = MultithreadedConfig { coherent: false, ..sixteen };
    let mut all = vec![
        ("embedded, from memory", Machine::Embedded(embedded)),
        ("embedded, from memory, data cache of 16 lines: no list stays", Machine::Embedded(embedded_no_list)),
    ];
    let multithreaded = [
        ("1 core, from memory", one),
        ("1 core, from memory, load-reserve and store-conditional", reserving(one)),
        ("1 core, from memory, data cache of 16 lines: no list stays", no_list(one)),
        ("16 cores, from memory", sixteen),
        ("16 cores, from memory, load-reserve and store-conditional", reserving(sixteen)),
        ("16 cores, from memory, threads begin far", far),
        ("16 cores, from memory, caches know nothing of each other", apart),
        ("16 cores, from memory, data caches of 16 lines: no list stays", no_list(sixteen)),
    ];
    all.extend(multithreaded.map(|(name, config)| (name, Machine::Multithreaded(config))));
    all
}

fn variations_of_the_first_set() -> Vec<(&'static str, Machine)> {
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

/// Results of a processor on the benchmark.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Measured {
    /// Name of the processor.
    pub name: String,
    /// One for each of [`benchmark::LISTS`].
    pub lists: Vec<List>,
}

/// Results so far. A machine that is in a set and among the variations is simulated only once.
#[derive(Default)]
struct Simulated(Vec<(Machine, Vec<List>)>);

impl Simulated {
    fn measure(&mut self, name: &str, machine: Machine) -> Result<Measured, RunError> {
        let name = name.to_owned();
        if let Some((_, lists)) = self.0.iter().find(|(of, _)| *of == machine) {
            return Ok(Measured { name, lists: lists.clone() });
        }
        let lists = benchmark::measure(|items| benchmark::run(machine, items))?;
        self.0.push((machine, lists.clone()));
        Ok(Measured { name, lists })
    }
}

/// Runs a set of processors on the benchmark.
///
/// # Errors
/// See [`RunError`].
pub fn processors(machines: &Machines) -> Result<Vec<Measured>, RunError> {
    measure_set(machines, &mut Simulated::default())
}

fn measure_set(machines: &Machines, simulated: &mut Simulated) -> Result<Vec<Measured>, RunError> {
    let [one, two, sixteen] = machines.multithreaded.map(Machine::Multithreaded);
    [
        ("embedded", Machine::Embedded(machines.embedded)),
        ("1 core", one),
        ("2 cores", two),
        ("16 cores", sixteen),
    ]
    .into_iter()
    .map(|(name, machine)| simulated.measure(name, machine))
    .collect()
}

/// Results of all machines on the benchmark. All cycles are model time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Comparison {
    /// [`COMPARISON_VERSION`].
    pub version: u32,
    /// [`CLOCK_MHZ`].
    pub clock_mhz: u64,
    /// [`HEADERS`].
    pub headers_per_pass: u32,
    /// The match unit, run on its engine.
    pub match_unit: MatchUnit,
    /// [`Machines::as_described`].
    pub as_described: Vec<Measured>,
    /// [`Machines::otherwise`].
    pub otherwise: Vec<Measured>,
    /// [`Machines::from_memory`].
    pub from_memory: Vec<Measured>,
    /// [`variations`].
    pub variations: Vec<Measured>,
}

impl Comparison {
    /// Simulates all machines.
    ///
    /// # Errors
    /// See [`MatchUnitError`].
    pub fn new() -> Result<Self, MatchUnitError> {
        let mut simulated = Simulated::default();
        Ok(Self {
            version: COMPARISON_VERSION,
            clock_mhz: CLOCK_MHZ,
            headers_per_pass: HEADERS,
            match_unit: MatchUnit::new()?,
            as_described: measure_set(&Machines::as_described(), &mut simulated)?,
            otherwise: measure_set(&Machines::otherwise(), &mut simulated)?,
            from_memory: measure_set(&Machines::from_memory(), &mut simulated)?,
            variations: variations()
                .into_iter()
                .map(|(name, machine)| simulated.measure(name, machine))
                .collect::<Result<_, _>>()?,
        })
    }
}
