//! The network: frames, links with their faults, and the switch.
//!
//! * [`ethernet`]: the header that every frame has.

pub mod ethernet;
