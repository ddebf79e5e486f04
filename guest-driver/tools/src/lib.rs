//! Library of `niclab-perf`: benchmarks between two nodes of a cluster over a NIC's user library, TCP or UDP.
//!
//! - [`cli`]: the command line, and the pairing of ranks;
//! - [`channel`]: the interface of a transport; [`slices`], [`matching`], [`inic`], [`grim`], [`gamma`] and [`tcp`]
//!   implement it; [`udp`] loses messages, so it has a stream of its own instead;
//! - [`software`]: matching of messages by the host, as a comparison for that of the NIC;
//! - [`meeting`]: both ends meet over the channel itself, and end the run without losing the last message;
//! - [`cue`]: cues, at which a coordinated benchmark waits for its coordinator;
//! - [`mod@bench`]: one module per benchmark; [`workload`]: a whole workload, as in the simulator;
//! - [`collective`]: collective operations that groups of cards carry out;
//! - [`report`]: the table and the JSON document.
//!
//! Every time that is measured here is wall time of the guest. The device knows the model time, and `niclab` reports
//! it.

pub mod bench;
pub mod channel;
pub mod cli;
pub mod collective;
pub mod counters;
pub mod cue;
mod failure;
pub mod gamma;
pub mod grim;
pub mod inic;
pub mod matching;
pub mod meeting;
pub mod nic;
mod pattern;
pub mod report;
pub mod run;
pub mod slices;
pub mod software;
pub mod task;
pub mod tcp;
pub mod udp;
pub mod workload;

pub use failure::Failure;
