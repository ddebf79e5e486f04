//! All tests of the package from outside, in one program: linked once. `lifetime` is one by itself: it needs a process
//! of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod adversarial;
mod common;
mod deadlines;
mod descriptors;
mod device_faults;
mod ethernet;
mod front_end;
mod hand_over;
mod hostile;
mod hostile_ethernet;
mod lent;
mod lockstep;
mod matching;
mod monitor;
mod parts;
mod pending;
mod queues;
mod report;
mod rules;
mod series;
mod stations;
mod stops;
mod turns;
mod ultra;
mod watch;
