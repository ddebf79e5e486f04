//! INIC: a protocol assembled from components.
//!
//! R. G. Jaganathan, K. D. Underwood, R. Sass, *A Configurable Network Protocol for Cluster Based Communications using
//! Modular Hardware Primitives on an Intelligent NIC* (SC 2003). Sections are the paper's.
//!
//! * `descriptor`: the model's entry in the registry; `drawing`: random assemblies for swarms;
//! * [`config`]: its parameters;
//! * [`wire`]: its frames;
//! * [`counters`]: its counters;
//! * [`nic`]: the card: host, port, and the circuit of its assembly; its submodule loads another assembly;
//! * `components`: one file for each component of the paper; `token`: the data that they pass on; `arrivals`: the
//!   packets that a header acknowledges;
//! * `circuit`: components joined by FIFOs; `assembling`: builds a circuit of an assembly; `settings`: values of an
//!   assembly that several components need;
//! * `collectives`: barriers, multicasts and reductions, which cards perform without their hosts; `arithmetic`: the
//!   operations of reductions;
//! * `card`: state that components share; `send_memory`: memory for sent packets; `per_node`: state for each node;
//! * `command`: commands of programs; `control`: requests of drivers.
//!
//! `firmware/inic` has the table of components, their connections, and the rules for valid assemblies.

mod arithmetic;
mod arrivals;
mod assemblies;
mod assembling;
mod card;
mod circuit;
mod collectives;
mod command;
mod components;
pub mod config;
mod control;
pub mod counters;
pub mod descriptor;
mod drawing;
pub mod nic;
mod per_node;
mod send_memory;
mod settings;
mod token;
pub mod wire;

pub use config::Config;
pub use nic::Inic;
