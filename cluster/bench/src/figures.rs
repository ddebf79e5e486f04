//! The papers' figures, reproduced with the models, each number next to the paper's.

pub mod compared;
pub mod plot;

use anyhow::Result;
use serde::Serialize;

use self::{
    compared::{Compared, are_as_declared},
    plot::Panel,
};

/// Figures of a paper, or of niclab's own.
#[derive(Clone, Copy, Debug)]
pub struct PaperFigures {
    /// Their name on the command line.
    pub name: &'static str,
    /// Their description in the help.
    pub help: &'static str,
    /// The file in docs/reference/figures with their text.
    pub file: &'static str,
    /// Makes them; the flag forbids the network.
    pub make: fn(bool) -> Result<Made>,
}

/// The result of [`PaperFigures::make`].
#[derive(Clone, Debug)]
pub struct Made {
    /// For people.
    pub text: String,
    /// For programs.
    pub json: String,
    /// Panels to draw.
    pub panels: Vec<Panel>,
    /// The paper's numbers next to the models'.
    pub compared: Vec<Compared>,
    /// Whether every number is as declared, and all other checks pass.
    pub hold: bool,
}

/// The contents of the JSON.
#[derive(Serialize)]
struct Whole<'a, F> {
    #[serde(flatten)]
    figures: &'a F,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    compared: &'a [Compared],
}

impl Made {
    /// The text as it is printed: it ends with exactly one newline.
    #[must_use]
    pub fn printed(&self) -> String {
        format!("{}\n", self.text.trim_end_matches('\n'))
    }

    /// A result; the JSON has all of `figures`. `hold`: whether all checks other than `compared` pass.
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
