//! The papers' figures, made anew, each number beside the paper's.

pub mod plot;

use anyhow::Result;
use serde::Serialize;

use self::plot::Panel;

/// Figures of a paper, or such as nobody has published.
#[derive(Clone, Copy, Debug)]
pub struct PaperFigures {
    /// Their name on the command line.
    pub name: &'static str,
    /// What they show.
    pub help: &'static str,
    /// Makes them; offline where the flag is set.
    pub make: fn(bool) -> Result<Made>,
}

/// Figures that were made.
#[derive(Clone, Debug)]
pub struct Made {
    /// For people.
    pub text: String,
    /// For programs.
    pub json: String,
    /// To be drawn.
    pub panels: Vec<Panel>,
    /// Whether every claim of the paper holds.
    pub hold: bool,
}

impl Made {
    /// Such a result, with all that `figures` hold as JSON.
    ///
    /// # Errors
    /// When they cannot be written as JSON.
    pub fn new(figures: &impl Serialize, text: String, panels: &[Panel], hold: bool) -> Result<Self> {
        Ok(Self { text, json: serde_json::to_string_pretty(figures)?, panels: panels.to_vec(), hold })
    }
}
