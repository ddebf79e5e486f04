//! The NIC models, the parts they are made of, and the fabric between them.
//!
//! Everything here is sans-IO: no clock, no thread, no lock, no file descriptor, no global, no unseeded randomness.
//! Time is an argument, effects are data. Two shells drive the same code: the live one behind QEMU, and the
//! deterministic simulator.
//!
//! * [`time`]: model time, integer picoseconds;
//! * [`nic`]: the trait of every NIC model: what goes in, what comes out;
//! * [`platform`]: host, bus and what each transaction costs: profile and ledger;
//! * [`parts`]: what models are made of: FIFO memory, credits, regions;
//! * [`fabric`]: links with seeded faults, and the switch;
//! * [`conventional`]: the Ethernet function as the conventional NIC that it is, priced;
//! * [`models`]: one folder for each NIC model, all of the same anatomy: `config`, `wire`, the units named by the
//!   paper, `nic`.

#![no_std]

extern crate alloc;

pub mod conventional;
pub mod fabric;
pub mod models;
pub mod nic;
pub mod parts;
pub mod platform;
pub mod time;

/// Random values from a seed.
pub use niclab_random as random;
