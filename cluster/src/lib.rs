//! What the `niclab` command does: plans a virtual cluster, boots it, runs programs in it, watches it, and reports.
//!
//! From the inside out; each module uses those above it only:
//!
//! * [`arguments`]: which cluster is asked for; [`output`]: how tables are printed;
//! * [`host`]: processes that cannot outlive their owner, a cluster's folder, signals;
//! * [`programs`]: finds niclab's other programs, the simulator among them;
//! * [`plan`]: what would be started, as data, and what it needs on the host;
//! * [`guests`]: talks to a guest's agent and to its QEMU; [`daemon`]: asks the daemon, and watches through it;
//! * [`boot`]: carries a plan out, from templates of guests that have booted, and keeps watch;
//! * [`supervisor`]: keeps a cluster up behind its socket, for the commands that come later;
//! * [`debug`]: what a guest debug kernel has found, and which lines of a driver were carried out;
//! * [`report`]: makes reports of what a cluster did, and shows them;
//! * [`check`]: holds the runs of scenarios to their budgets; [`conform`]: puts a driver to the test.
//!
//! The command itself is the package `niclab-cli`; benchmarks and the papers' figures are `niclab-bench`.

// As `std`'s macros, which would panic where nobody reads standard error any more.
#[macro_use]
extern crate niclab_output;

pub mod arguments;
pub mod boot;
pub mod check;
pub mod conform;
pub mod daemon;
pub mod debug_kernel;
pub mod guests;
pub mod host;
pub mod output;
pub mod plan;
pub mod programs;
pub mod report;
pub mod supervisor;
