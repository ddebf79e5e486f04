//! Workloads: who sends what to whom, as programs without clock and system call.
//!
//! A program is a [`Script`], which says what to send next and hears what arrived, over one [`Transport`] for each
//! port, which knows how messages of one kind of NIC are sent and received: what is posted for them, who may be how far
//! ahead of whom. Both run over [`niclab_port`], and the same code in guests and in the simulator's hosts, so that both
//! do the same operations in the same order: that is what makes their model times equal.
//!
//! A [`Workload`] says it all in plain data, and a [`Plan`] makes flows, ports and scripts of it, the same wherever it
//! is made.
//!
//! A [`Program`] goes on by itself, as it does in guests and in process.
//!
//! Each message carries its [`Mark`], by which whoever receives it knows what it must be; a [`Verifier`] holds it to
//! that.

#![no_std]

extern crate alloc;

mod atomic;
pub mod channels;
mod flow;
pub mod lists;
mod plan;
pub mod posts;
mod program;
mod script;
pub mod slices;
mod transport;
mod verifier;
mod workload;

pub use atomic::AtomicMemory;
pub use channels::ChannelTerms;
pub use flow::{End, Flow, FlowId, Mark, PortPlan};
pub use lists::{Limits, Receive, Terms};
pub use plan::Plan;
pub use posts::PostTerms;
pub use program::{InTurn, Ports, Program};
pub use script::{Outgoing, Script, Sizes};
pub use transport::{Listener, Memory, Read, Transport, Wrong};
pub use verifier::{Promise, Verifier};
pub use workload::{Pattern, Recorded, Route, Workload};

#[cfg(test)]
extern crate std;
