//! All tests of the package from outside, in one program: linked once.

mod assembler;
mod bench;
mod booting;
mod check;
mod command_line;
mod commands;
mod figures;
mod matching;
mod profiles;
mod support;
