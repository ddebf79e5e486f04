//! All tests of the package from outside, in one program: linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod adversarial;
mod agreement;
mod device_faults;
mod drivers;
mod faults;
mod library;
mod seeded_bugs;
#[allow(dead_code, reason = "only the extended tests use who finds a bug")]
#[path = "../../seeded_bugs/table.rs"]
mod seeded_bug_table;
mod recording;
mod stage;
mod two_clocks;
mod workloads;
