//! All tests of the package from outside, in one program: linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod adversarial;
mod agreement;
mod device_faults;
mod drivers;
mod faults;
mod library;
mod planted;
#[allow(dead_code, reason = "who finds a fault matters where it is planted")]
#[path = "../../planted/table.rs"]
mod planted_table;
mod recording;
mod stage;
mod two_clocks;
mod workloads;
