//! All tests of the package from outside, in one program: linked once.

mod device_faults;
mod matching;
mod observed;
mod program;
mod swarm;
mod tampered;
mod workloads;
