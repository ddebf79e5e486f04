//! The package's integration tests, in one program so that they are linked only once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod manual;
mod programs;
