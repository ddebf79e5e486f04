//! All tests of the package from outside, in one program: linked once.

mod debug;
mod run;
mod support;
mod trace;
