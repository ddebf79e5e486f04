//! All tests of the package from outside, in one program: linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

#[path = "support/match_cases.rs"]
mod cases;
mod descriptor_ring;
mod gamma;
mod gamma_direct;
mod grim_conformance;
mod grim_hostile;
mod grim_peripherals;
mod inic_collectives;
mod inic_conformance;
mod inic_counts;
mod inic_hostile;
mod ledger;
mod match_conformance;
mod match_hostile;
mod match_interface;
mod matching;
#[path = "support/plain_rule.rs"]
mod plain_rule;
mod queue_program;
mod support;
mod ultra_conformance;
mod ultra_figures;
mod ultra_hostile;
mod ultra_interface;
