//! Benchmarks of each card interface through the in-process front end, and the attacks by which a guest with such a
//! card tries to delay other guests ([`hostile`](super::hostile)).

mod grim;
mod inic;
mod matching;
mod rings;
mod slices;

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::BenchError;
use super::hostile::Attack;
use super::work::Work;

/// The benchmarks of one card interface.
pub struct Benches {
    /// The key of the interface's figures in the report.
    pub key: fn() -> &'static str,
    /// Measures each figure for this wall time.
    pub measure: fn(Duration) -> Result<Measured, BenchError>,
}

/// The benchmarks of all card interfaces that have some.
pub const ALL: &[Benches] = &[slices::BENCHES, matching::BENCHES];

/// The attacks that need a certain card interface.
pub const ATTACKS: &[&[Attack]] = &[grim::ATTACKS, matching::ATTACKS, inic::ATTACKS, rings::ATTACKS];

/// The kinds of work for tools that count instructions.
pub const WORKS: &[&[Work]] = &[slices::WORKS, matching::WORKS];

/// The figures of one card interface.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Measured {
    /// The figures as JSON, for programs.
    json: Value,
    /// The figures as lines of text, for people.
    #[serde(skip)]
    pub text: String,
}

impl Measured {
    fn new(figures: &(impl Serialize + Display)) -> Self {
        Self { json: serde_json::json!(figures), text: figures.to_string() }
    }
}
