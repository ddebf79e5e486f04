//! All tests of the package from outside, in one program: linked once.

mod agreement;
mod device_faults;
mod faults;
mod recording;
mod two_clocks;
