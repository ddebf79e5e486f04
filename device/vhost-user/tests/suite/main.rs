//! All integration tests of the package in one program, which is linked once. `lifetime` is a program of its own,
//! because it needs its own process.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod adversarial;
mod borrowed;
mod common;
mod deadlines;
mod descriptors;
mod device_faults;
mod ethernet;
mod ethernet_batches;
mod firmware_reload;
mod front_end;
mod hostile;
mod hostile_ethernet;
mod lockstep;
mod mac_endpoints;
mod matching;
mod monitor;
mod parts;
mod pending;
mod queues;
mod report;
mod rules;
mod stops;
mod turns;
mod ultra;
mod watch;
