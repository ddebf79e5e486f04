//! Timing models of the processors that the match unit is compared with (paper 002, section 5).
//!
//! Nothing here is part of a NIC: these are the machines that the match unit is better or worse than. They execute the
//! paper's match function, instruction by instruction, on lists and headers in a simulated memory:
//!
//! * [`instruction`], [`program`], [`interpreter`]: a part of PowerPC, the match function and its benchmark in it, and
//!   what instructions do;
//! * [`layout`], [`memory`]: items and headers, and where they lie;
//! * [`cache`]: first-level caches, and the memory behind them with its latency and width;
//! * [`coherence`]: the caches of several cores, apart or invalidating one another;
//! * [`embedded`], [`predictor`]: table 2, an out-of-order processor after SimpleScalar;
//! * [`multithreaded`]: table 3, in-order cores with several contexts, locks and threads;
//! * [`benchmark`]: figure 5 on any of them;
//! * [`match_unit`]: the same on the NIC's match unit;
//! * [`comparison`]: all of them on the paper's lists;
//! * [`rate`]: how fast this computer simulates the match unit.
//!
//! All times but those of [`rate`] are model time. The same machine and list give the same cycles on every computer.

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
    /// A part that must be there.
    #[error("the {name} is 0; it must be at least 1")]
    Zero {
        /// What it is.
        name: &'static str,
    },
    /// A cache.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// Caches that invalidate one another.
    #[error(transparent)]
    Cores(#[from] TooManyCores),
    /// Memory.
    #[error(transparent)]
    Bandwidth(#[from] BandwidthError),
}

impl ConfigError {
    /// Refuses parts, each with its name, of which there are none.
    fn check<const PARTS: usize>(parts: [(&'static str, usize); PARTS]) -> Result<(), Self> {
        let absent = parts.into_iter().find(|(_, number)| *number == 0);
        absent.map_or(Ok(()), |(name, _)| Err(Self::Zero { name }))
    }
}

/// A simulation that cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SimulationError {
    /// The program.
    #[error(transparent)]
    Execution(#[from] ExecutionError),
    /// It does not end.
    #[error("not at its end after {cycles} cycles: it runs in a circle, or its list does")]
    TooLong {
        /// The limit.
        cycles: u64,
    },
}

/// What an out-of-order processor did in one cycle, and how full it was at its end.
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
    /// Places taken in the register update unit.
    pub ruu: usize,
    /// Places taken in the load and store queue.
    pub lsq: usize,
}

/// Is told what happens in a simulation. Checkers implement it; `()` looks at nothing.
pub trait Observer {
    /// Memory's data path is taken in these cycles.
    fn on_transfer(&mut self, _cycles: Range<u64>, _bytes: u32) {}
    /// A cycle of the embedded processor is over.
    fn on_cycle(&mut self, _occupancy: &Occupancy) {}
    /// A core of the multithreaded processor issued an instruction.
    fn on_issue(&mut self, _cycle: u64, _core: usize, _thread: ThreadNumber) {}
    /// A thread took the lock of the item at an address.
    fn on_lock(&mut self, _cycle: u64, _thread: ThreadNumber, _address: u32) {}
    /// A thread gave it back.
    fn on_unlock(&mut self, _cycle: u64, _thread: ThreadNumber, _address: u32) {}
}

impl Observer for () {}
