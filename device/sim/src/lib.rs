//! The deterministic discrete-event simulator.
//!
//! The same model code as behind QEMU, under a shell whose only clock is model time: an event queue, hosts that perform
//! scripted workloads, and checkers outside the models.
//!
//! * [`host`]: what a program and its library do with a NIC;
//! * [`world`]: nodes, network and the loop over the [`queue`] of events;
//! * [`checker`]: the checkers;
//! * [`hand_over`]: programs that cards take while they run;
//! * [`bound`]: what ends a run that would go on for ever;
//! * [`run()`]: one simulation, from its configuration to the report that live runs share;
//! * `part`, `threads`: a stretch of nodes, and several threads, each with one;
//! * [`observer`]: timelines and captures on demand;
//! * [`frames`]: numbered frames, and what drivers must have raised of them;
//! * [`swarm`]: many random simulations with faults;
//! * [`bench`]: how fast all of this is.
//!
//! Events are totally ordered by (time, node, order), every random choice comes from the seed, and nothing depends on
//! the order of a hash or on threads: the same configuration gives the same bytes.

pub mod bench;
pub mod bound;
pub mod checker;
pub mod figures;
pub mod frames;
pub mod hand_over;
pub mod host;
pub mod medium;
pub mod observer;
mod part;
pub mod queue;
pub mod run;
pub mod swarm;
mod threads;
pub mod world;

pub use run::{Outcome, RunError, run};
