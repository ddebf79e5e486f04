//! From a plan to a cluster that runs.
//!
//! * [`prepare`] reads the cluster file, builds what is missing and makes the plan;
//! * [`template`] saves a guest that has booted, from which nodes are restored;
//! * [`running`] carries a plan out and watches it, [`progress`] says how far it is, and [`failure`] why it ended;
//! * [`command`] runs commands on its nodes.

pub mod command;
pub mod driver;
pub mod failure;
pub mod prepare;
pub mod progress;
pub mod running;
pub mod template;
