//! What each NIC model brings of its own: how fast it is here, and how a guest with such a card may hurt others.

mod matching;
mod ultra;

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::BenchError;
use super::hostile::Attack;

/// What one model brings.
pub struct Benches {
    /// What its figures are called in the report.
    pub key: &'static str,
    /// Measures it, each figure for a while.
    pub measure: fn(Duration) -> Result<Measured, BenchError>,
    /// Attacks by such cards.
    pub attacks: &'static [Attack],
}

/// All models that bring something.
pub const MODELS: &[Benches] = &[ultra::BENCHES, matching::BENCHES];

/// Figures of one model.
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
