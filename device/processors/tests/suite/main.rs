//! All tests of the package from outside, in one program: linked once.

mod comparison;
mod limits;
mod results;
