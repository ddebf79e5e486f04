//! The papers' figures, made anew, each number beside the paper's.

pub mod compared;
pub mod plot;

use anyhow::Result;
use serde::Serialize;

use self::{
    compared::{Compared, are_as_declared},
    plot::Panel,
};

/// Figures of a paper, or such as nobody has published.
#[derive(Clone, Copy, Debug)]
pub struct PaperFigures {
    /// Their name on the command line.
    pub name: &'static str,
    /// What they show.
    pub help: &'static str,
    /// The file in docs/reference/figures that holds their text.
    pub file: &'static str,
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
    /// The paper's numbers beside ours.
    pub compared: Vec<Compared>,
    /// Whether each of them is as declared, and all else that is checked holds.
    pub hold: bool,
}

/// What is written as JSON.
#[derive(Serialize)]
struct Whole<'a, F> {
    #[serde(flatten)]
    figures: &'a F,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    compared: &'a [Compared],
}

impl Made {
    /// The text as it is printed: with one end of line.
    #[must_use]
    pub fn printed(&self) -> String {
        format!("{}\n", self.text.trim_end_matches('\n'))
    }

    /// Such a result, with all that `figures` hold as JSON. `hold`: whether all that is checked beside `compared` does.
    ///
    /// # Errors
    /// When they cannot be written as JSON.
    pub fn new(
        figures: &impl Serialize,
        text: String,
        panels: &[Panel],
        compared: Vec<Compared>,
        hold: bool,
    ) -> Result<Self> {
        let hold = hold && are_as_declared(&compared);
        let json = serde_json::to_string_pretty(&Whole { figures, compared: &compared })?;
        Ok(Self { text, json, panels: panels.to_vec(), compared, hold })
    }
}
