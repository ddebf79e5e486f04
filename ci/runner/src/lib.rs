//! Runs the steps and the test binaries of `ci/test`, ends what hangs, and says what hung where.
//!
//! * [`limits`] decides what a hang is, out of samples;
//! * [`libtest`] reads what test binaries print;
//! * [`tree`] finds, counts and ends processes; [`stacks`] tells where they stand;
//! * [`supervise`] runs a command under all of these.

pub mod libtest;
pub mod limits;
pub mod stacks;
pub mod supervise;
pub mod tree;
