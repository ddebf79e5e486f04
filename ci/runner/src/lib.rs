//! Runs the steps and the test binaries of `ci/test`, ends those that hang, and reports where they hung.
//!
//! * [`limits`] decides from samples whether a command hangs;
//! * [`libtest`] reads the output of test binaries;
//! * [`tree`] finds, counts and ends processes; [`stacks`] reports their threads' states and calls;
//! * [`supervise`] runs a command with the help of all of these.

pub mod libtest;
pub mod limits;
pub mod stacks;
pub mod supervise;
pub mod tree;
