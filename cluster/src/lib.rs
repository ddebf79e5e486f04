//! What the `niclab` command does: plans a virtual cluster, boots it, runs programs in it, observes it, and reports.
//!
//! Each module uses only the modules above it in this list:
//! * [`arguments`]: which cluster the user asks for; [`output`]: how tables are printed;
//! * [`host`]: processes that cannot outlive their owner, a cluster's folder, signals;
//! * [`programs`]: finds niclab's other programs, the simulator among them;
//! * [`plan`]: what the launcher would start, as data, and what it needs on the host;
//! * [`guests`]: talks to a guest's agent and to its QEMU; [`daemon`]: queries the daemon, and observes through it;
//! * [`boot`]: carries out a plan, with templates of booted guests, and monitors the processes;
//! * [`supervisor`]: keeps a cluster up behind its socket, for later commands;
//! * [`debug_kernel`]: what a guest's debug kernel has found, and which lines of a driver were executed;
//! * [`report`]: makes reports of what a cluster did, and prints them;
//! * [`user_program`]: runs a user's program on every node;
//! * [`check`]: compares the runs of scenarios with their budgets; [`conform`]: tests a driver;
//! * [`page`]: shows runs and their verdicts to people, as HTML or as Markdown.
//!
//! The command itself is the package `niclab-cli`; benchmarks and the papers' figures are `niclab-bench`.

// `std`'s macros would panic if standard error is closed; these do not.
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
#[cfg(test)]
mod notes;
pub mod output;
pub mod page;
pub mod plan;
pub mod programs;
pub mod report;
pub mod supervisor;
pub mod user_program;
