//! From a plan to a cluster that runs.
//!
//! * [`prepare`] reads the cluster file, builds what is missing and makes the plan;
//! * [`template`] saves a guest that has booted, from which nodes are restored;
//! * [`running`] carries a plan out and watches it, [`progress`] says how far it is, [`failure`] why it ended, and
//!   [`node_end`] why a node did;
//! * [`command`] runs commands on its nodes.

pub mod command;
pub mod driver;
pub mod failure;
pub mod node_end;
pub mod prepare;
pub mod progress;
pub mod running;
pub mod template;
