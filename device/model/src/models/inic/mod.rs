//! INIC: a protocol assembled from components.
//!
//! R. G. Jaganathan, K. D. Underwood, R. Sass, *A Configurable Network Protocol for Cluster Based Communications using
//! Modular Hardware Primitives on an Intelligent NIC* (SC 2003). Sections are the paper's.
//!
//! * `descriptor`: what the registry knows of the model; `drawing`: assemblies that swarms draw;
//! * [`config`]: its parameters;
//! * [`wire`]: its frames;
//! * [`counters`]: what it counts;
//! * [`nic`]: the card: host and port, and the circuit that its assembly is; under it how another assembly is taken;
//! * `components`: one file for each component of the paper; `token`: what goes between them; `arrivals`: what a header
//!   acknowledges;
//! * `circuit`: components joined by FIFOs; `assembling`: from an assembly to a circuit;
//!   `settings`: what several of them must know of it;
//! * `collectives`: barriers, multicasts and reductions, which cards carry out among themselves; `arithmetic`: what
//!   these make of values;
//! * `card`: what components share; `send_memory`: its memory for packets; `per_node`: what is kept for each node;
//! * `command`: what programs post; `control`: what drivers ask for.
//!
//! Which components there are, what joins them and which assemblies make sense is in `firmware/inic`.

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
