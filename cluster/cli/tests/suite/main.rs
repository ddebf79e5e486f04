//! All integration tests of the package, in one program, which is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod assembler;
mod bench;
mod booting;
mod check;
mod command_line;
mod commands;
mod compare;
mod documented;
mod figures;
mod inic;
mod matching;
mod outputs;
mod pages;
mod profiles;
mod programs;
mod script;
mod support;
