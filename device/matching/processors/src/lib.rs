//! Timing models of the processors that the match unit is compared with (paper 002, section 5).
//!
//! Nothing here is part of a NIC. The machines execute the paper's match function, instruction by instruction, on lists
//! and headers in a simulated memory:
//!
//! * [`instruction`], [`program`], [`interpreter`]: a subset of PowerPC, the match function and its benchmark, and the
//!   effects of instructions;
//! * [`layout`], [`memory`]: items and headers, and their place in memory;
//! * [`cache`]: first-level caches, and memory with its latency and width;
//! * [`coherence`]: the caches of several cores, independent or coherent;
//! * [`embedded`], [`predictor`]: table 2, an out-of-order processor modelled on SimpleScalar;
//! * [`multithreaded`]: table 3, in-order cores with several contexts, locks and threads;
//! * [`benchmark`]: figure 5 on any of these processors;
//! * [`match_unit`]: the benchmark on the NIC's match unit;
//! * [`comparison`]: all machines on the paper's lists;
//! * [`rate`]: the speed at which this computer simulates the match unit.
//!
//! All times except those of [`rate`] are model time. The same machine and list give the same cycles on every computer.

pub mod benchmark;
pub mod cache;
pub mod coherence;
pub mod comparison;
pub mod embedded;
pub mod instruction;
pub mod interpreter;
pub mod layout;
pub mod match_unit;
pub mod memory;
pub mod multithreaded;
pub mod predictor;
pub mod program;
pub mod rate;

use std::ops::Range;

use thiserror::Error;

pub use benchmark::{Machine, Pass, RunError, run};

use cache::{BandwidthError, CacheError};
use coherence::TooManyCores;
use interpreter::ExecutionError;
use multithreaded::ThreadNumber;

/// A processor that cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ConfigError {
    /// A part whose number is zero.
    #[error("the {name} is 0; it must be at least 1")]
    Zero {
        /// Name of the part.
        name: &'static str,
    },
    /// A cache has an impossible shape.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// Too many caches to be coherent.
    #[error(transparent)]
    Cores(#[from] TooManyCores),
    /// Memory has an impossible width.
    #[error(transparent)]
    Bandwidth(#[from] BandwidthError),
}

impl ConfigError {
    /// Refuses parts whose number is zero.
    fn check<const PARTS: usize>(parts: [(&'static str, usize); PARTS]) -> Result<(), Self> {
        let absent = parts.into_iter().find(|(_, number)| *number == 0);
        absent.map_or(Ok(()), |(name, _)| Err(Self::Zero { name }))
    }
}

/// A simulation that cannot continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SimulationError {
    /// The program has a fault.
    #[error(transparent)]
    Execution(#[from] ExecutionError),
    /// The program does not end.
    #[error("the program has not ended after {cycles} cycles: it or its list has a loop")]
    TooLong {
        /// The limit.
        cycles: u64,
    },
}

/// Activity of an out-of-order processor in one cycle, and its occupancy at the end of the cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occupancy {
    /// The cycle.
    pub cycle: u64,
    /// Operations issued.
    pub issued: usize,
    /// Instructions committed.
    pub committed: usize,
    /// ALUs used.
    pub alus: usize,
    /// Memory ports used.
    pub ports: usize,
    /// Entries used in the register update unit.
    pub ruu: usize,
    /// Entries used in the load and store queue.
    pub lsq: usize,
}

/// Receives the events of a simulation. Checkers implement it; `()` ignores all events.
pub trait Observer {
    /// Memory's data path is busy in these cycles.
    fn on_transfer(&mut self, _cycles: Range<u64>, _bytes: u32) {}
    /// A cycle of the embedded processor has ended.
    fn on_cycle(&mut self, _occupancy: &Occupancy) {}
    /// A core of the multithreaded processor issued an instruction.
    fn on_issue(&mut self, _cycle: u64, _core: usize, _thread: ThreadNumber) {}
    /// A thread took the lock of the item at an address.
    fn on_lock(&mut self, _cycle: u64, _thread: ThreadNumber, _address: u32) {}
    /// A thread released the lock of the item at an address.
    fn on_unlock(&mut self, _cycle: u64, _thread: ThreadNumber, _address: u32) {}
}

impl Observer for () {}
