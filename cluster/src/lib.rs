//! The `niclab` command: plans a virtual cluster, boots it, runs programs in it, watches it, and reports.
//!
//! From the inside out:
//!
//! * [`plan`] says what would be started, as data; [`accelerator`] and [`tools`] find what it needs on the host;
//! * [`process`] and [`runtime`] start processes that cannot outlive their owner, and keep a cluster's folder;
//! * [`template`] saves a guest that has booted, from which nodes are restored;
//! * [`running`] carries a plan out and watches it, and [`course`] says how far it is; [`agent_client`] and [`monitor`] talk to guests and daemon;
//! * [`watch`] brings timelines, captures and recordings from the daemon into files;
//! * [`supervisor`] keeps a cluster up behind [`control`], its socket, for the commands that come later;
//! * [`bench`] measures whole clusters beside what they are compared with;
//! * [`figures`] puts what models do beside what papers say; [`simulator`] and [`comparison`] run the programs that do it;
//! * [`check`] holds the simulated runs of scenarios to their budgets;
//! * [`commands`] has one module for each subcommand, and [`cli`] their arguments.

pub mod accelerator;
pub mod agent_client;
pub mod bench;
pub mod check;
pub mod cli;
pub mod commands;
pub mod comparison;
pub mod control;
pub mod course;
pub mod figures;
pub mod monitor;
pub mod output;
pub mod placement;
pub mod plan;
pub mod prepare;
pub mod process;
pub mod qmp;
pub mod report;
pub mod running;
pub mod runtime;
pub mod signals;
pub mod simulator;
pub mod supervisor;
pub mod template;
pub mod tools;
pub mod watch;
