//! All integration tests of the package in one program, which is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod adversarial;
mod agreement;
mod device_faults;
mod drivers;
mod faults;
mod library;
mod recording;
#[allow(dead_code, reason = "only the extended tests use which test finds a bug")]
#[path = "../../seeded_bugs/table.rs"]
mod seeded_bug_table;
mod seeded_bugs;
mod stage;
mod two_clocks;
mod workloads;
