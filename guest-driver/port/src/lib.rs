//! The host's half of a port: the operations of a program's library on a NIC, without clock, system call or thread.
//!
//! The same code runs in three places: in guests, below the user library, which maps, sleeps and wakes; in the
//! simulator's hosts, where the device's stores become visible at an instant of model time; and in process, against the
//! device daemon. These places differ in their memory, which is a trait here ([`Page`], [`Reports`], [`Records`]), and
//! in their waiting, which this crate does not do. If a call returns `true`, a doorbell is due; an operation
//! that cannot continue returns `None`.
//!
//! - [`Requester`]: slots of the requester page: filling, posting, and finding those that are free again;
//! - [`Queue`]: records of the receive queue: reading them in order, releasing them at the interval that the device
//!   knows, and skipping those that a faulty device left out;
//! - one module for each kind of card interface, with the contents of slots and records only: [`slices`], [`matching`],
//!   [`inic`], [`grim`];
//! - [`gamma`]: the driver's part if the card does not know ports: rings, windows, messages in frames;
//! - [`command`]: the contents of slots of card interfaces with commands;
//! - [`Windows`]: the places of these pages in the BAR, and further windows of the card's model;
//! - [`atomic`]: these traits over words that another thread or process reads and writes;
//! - [`doorbell`]: when a driver rings the doorbell.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod address;
pub mod atomic;
pub mod command;
pub mod doorbell;
mod fault;
pub mod gamma;
pub mod grim;
pub mod inic;
pub mod matching;
mod memory;
mod queue;
mod regions;
mod requester;
pub mod slices;
mod status;
mod turns;
mod windows;

pub use address::Address;
pub use fault::{BadValue, Fault, Loss};
pub use memory::{Page, Record, Records, Register, Reports};
pub use queue::{Kind, Queue};
pub use regions::open_region;
pub use requester::Requester;
pub use status::{Refusal, Status};
pub use turns::{Turn, Turns};
pub use windows::{WindowError, WindowLocation, Windows};
