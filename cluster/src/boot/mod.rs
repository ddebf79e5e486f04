//! From a plan to a running cluster.
//!
//! * [`prepare`] reads the cluster file, builds what is missing and makes the plan;
//! * [`template`] saves a booted guest, from which nodes are restored;
//! * [`running`] carries out a plan and monitors it; [`progress`] has the boot stage of each node, [`failure`] why a
//!   cluster ended, and [`node_end`] why a node did;
//! * [`driver`] loads the user's own driver; [`command`] runs commands on nodes.

pub mod command;
pub mod driver;
pub mod failure;
pub mod node_end;
pub mod prepare;
pub mod progress;
pub mod running;
pub mod template;
