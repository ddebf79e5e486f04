//! Workloads: which node sends what to which node, as programs without clock and system calls.
//!
//! A program is a [`Script`], which decides what to send next and is notified of what arrives. For each port it has one
//! [`Transport`], which knows how one kind of NIC sends and receives: what it posts, and what limits a sender. Both run
//! over [`niclab_port`]. Guests and the simulator's hosts run the same code, so both do the same operations in the same
//! order. That makes their model times equal.
//!
//! A [`Workload`] is the description in plain data. A [`Plan`] derives flows, ports and scripts from it, the same on
//! every node.
//!
//! A [`Program`] runs without a simulator: in guests and in process.
//!
//! Each message carries its [`Mark`], which determines what the receiver must see; a [`Verifier`] checks it.

#![no_std]

extern crate alloc;

mod atomic;
mod flow;
pub mod grim;
pub mod inic;
pub mod matching;
mod plan;
mod program;
mod script;
pub mod slices;
mod transport;
mod verifier;
mod workload;

pub use atomic::AtomicMemory;
pub use flow::{End, Flow, FlowId, Mark, PortPlan};
pub use grim::ChannelTerms;
pub use inic::PostTerms;
pub use matching::{Limits, Receive, Terms};
pub use plan::Plan;
pub use program::{InTurn, Ports, Program};
pub use script::{Outgoing, Script, Sizes};
pub use transport::{Listener, Memory, Read, Transport, Wrong};
pub use verifier::{Promise, Verifier};
pub use workload::{Pattern, Recorded, Route, Workload};

#[cfg(test)]
extern crate std;
