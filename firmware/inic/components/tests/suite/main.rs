//! All tests of the package from outside, in one program: linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod checks;
mod images;
mod resources;
