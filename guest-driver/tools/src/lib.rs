//! What `niclab-perf` is made of: benchmarks between two nodes of a cluster, over a NIC's user library, over TCP or
//! UDP.
//!
//! - [`cli`]: the command line, and who talks to whom;
//! - [`channel`]: what a benchmark needs of a transport; [`slices`], [`lists`], [`posts`], [`channels`], [`active`] and
//!   [`tcp`] are transports; [`udp`], which loses messages, is none, and streams in its own way;
//! - [`software`]: the matching of messages by the host, which that of the NIC is compared with;
//! - [`meeting`]: both ends find each other through the channel itself, and part without losing the last message;
//! - [`cue`]: where a coordinated workload stops until it is told to go on;
//! - [`mod@bench`]: one module per benchmark; [`workload`]: a whole workload, as the simulator performs it;
//! - [`collective`]: what groups of cards do among themselves;
//! - [`report`]: the table and the JSON document.
//!
//! Every time that is measured here is wall time of the guest; what the modelled hardware would have taken, the device
//! knows and `niclab` reports.

pub mod active;
pub mod bench;
pub mod channel;
pub mod channels;
pub mod cli;
pub mod collective;
pub mod counters;
pub mod cue;
mod failure;
pub mod lists;
pub mod meeting;
pub mod nic;
mod pattern;
pub mod posts;
pub mod report;
pub mod run;
pub mod slices;
pub mod software;
pub mod task;
pub mod tcp;
pub mod udp;
pub mod workload;

pub use failure::Failure;
