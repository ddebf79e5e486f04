//! All tests of the package from outside, in one program: linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod agreement;
mod device_faults;
mod faults;
mod library;
mod planted;
mod recording;
mod stage;
mod two_clocks;
mod workloads;
