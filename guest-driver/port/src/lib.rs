//! The host's half of a port: what a program's library does with a NIC, without a clock, a system call or a thread.
//!
//! The same code runs in three places: in guests, under the user library, which maps, sleeps and wakes; in the
//! simulator's hosts, where what a device writes is visible at an instant of model time; and in process, against the
//! device daemon. What differs between these is the memory, which is a trait here ([`Page`], [`Reports`], [`Records`]),
//! and what is done while there is nothing to do, which is not here at all. Where something outside is needed, a call
//! says so: a doorbell is due when it returns `true`, and what cannot go on returns nothing.
//!
//! - [`Requester`]: slots of the requester page, filled and launched in turn; which of them are free again;
//! - [`Queue`]: records of the receive queue, read in turn, released on the beat that the device was told, and passed
//!   over where a faulty device left them out;
//! - one module for each way of using a card, which knows what stands in a slot and in a record, and nothing else:
//!   [`slices`], [`lists`], [`posts`], [`channels`];
//! - [`active_ports`]: what a driver does itself, where the card knows nothing of ports: rings, windows, messages in
//!   frames;
//! - [`command`]: what stands in a slot where ways of using a card ask by commands;
//! - [`Windows`]: where in the BAR these pages are, and what else the card's model has there;
//! - [`atomic`]: these traits over words that another thread or process reads and writes.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod active_ports;
mod address;
pub mod atomic;
pub mod channels;
pub mod command;
mod fault;
pub mod lists;
mod memory;
pub mod posts;
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
pub use windows::{Place, WindowError, Windows};
