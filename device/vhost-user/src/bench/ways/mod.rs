//! For each way of using a card: how fast it is here, and how a guest with such a card may hurt others.

mod channels;
mod lists;
mod posts;
mod rings;
mod slices;

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::BenchError;
use super::hostile::Attack;
use super::work::Work;

/// What is measured of one way.
pub struct Benches {
    /// What its figures are called in the report.
    pub key: fn() -> &'static str,
    /// Measures it, each figure for a while.
    pub measure: fn(Duration) -> Result<Measured, BenchError>,
}

/// All ways.
pub const ALL: &[Benches] = &[slices::BENCHES, lists::BENCHES];

/// What guests with such cards may do to others.
pub const ATTACKS: &[&[Attack]] = &[channels::ATTACKS, lists::ATTACKS, posts::ATTACKS, rings::ATTACKS];

/// Work that instructions are counted of.
pub const WORKS: &[&[Work]] = &[slices::WORKS, lists::WORKS];

/// Figures of one way.
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
