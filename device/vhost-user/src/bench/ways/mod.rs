//! For each card interface: its speed in process, and how a guest with such a card may delay others.

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

/// The benchmark of one card interface.
pub struct Benches {
    /// The key of its figures in the report.
    pub key: fn() -> &'static str,
    /// Measures each figure for this time.
    pub measure: fn(Duration) -> Result<Measured, BenchError>,
}

/// All benchmarks.
pub const ALL: &[Benches] = &[slices::BENCHES, matching::BENCHES];

/// Attacks of guests with such cards.
pub const ATTACKS: &[&[Attack]] = &[grim::ATTACKS, matching::ATTACKS, inic::ATTACKS, rings::ATTACKS];

/// Kinds of work whose instructions are counted.
pub const WORKS: &[&[Work]] = &[slices::WORKS, matching::WORKS];

/// Figures of one card interface.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Measured {
    /// For programs.
    json: Value,
    /// For people.
    #[serde(skip)]
    pub text: String,
}

impl Measured {
    fn new(figures: &(impl Serialize + Display)) -> Self {
        Self { json: serde_json::json!(figures), text: figures.to_string() }
    }
}
