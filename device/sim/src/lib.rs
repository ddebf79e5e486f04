//! The deterministic discrete-event simulator.
//!
//! It runs the same model code as the daemon behind QEMU, but its only clock is model time. It has an event queue,
//! hosts that run scripted workloads, and checkers outside the models.
//!
//! * [`host`]: what a program and its library do with a NIC;
//! * [`simulation`]: nodes, network, and the loop that processes the [`queue`] of events;
//! * [`checker`]: the checkers;
//! * [`firmware_reload`]: firmware reloads of cards while they run;
//! * [`bound`]: the limit that ends an endless run;
//! * [`run()`]: one simulation, from its configuration to the report that live runs share;
//! * `part`, `threads`: partitions of the nodes, each processed by one thread;
//! * [`observer`]: timelines and captures on demand;
//! * [`frames`]: numbered frames, and the errors of them that drivers must report;
//! * [`swarm`]: many random simulations with faults;
//! * [`mod@bench`]: the simulator's speed.
//!
//! Events are totally ordered by (time, node, order), and every random choice comes from the seed. Nothing depends on
//! the order of a hash or on threads. So the same configuration gives the same bytes.

pub mod bench;
pub mod bound;
pub mod checker;
pub mod figures;
pub mod firmware_reload;
pub mod frames;
pub mod host;
pub mod medium;
pub mod observer;
mod part;
pub mod queue;
pub mod run;
pub mod simulation;
pub mod swarm;
mod threads;

pub use run::{Outcome, RunError, run};
