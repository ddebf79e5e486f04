//! What became of a header.

use niclab_model::models::matching::list_manager::{Handle, Outcome};
use schemars::JsonSchema;
use serde::Serialize;

/// What became of one header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Found {
    /// The item that took it, by its place in the file.
    pub index: Option<usize>,
    /// Where in its memory the message begins.
    pub offset: Option<u64>,
    /// How many bytes of the message are stored.
    pub length: Option<u64>,
    /// Model cycles from where it begins to where the next header could.
    pub cycles: u64,
    /// Items that were judged.
    pub traversed: usize,
}

impl Found {
    /// Out of what a list manager says; `place` gives an item's place in the file.
    #[must_use]
    pub fn new(outcome: &Outcome, place: impl Fn(&Handle) -> usize) -> Self {
        Self {
            index: outcome.matched.map(|matched| place(&matched.handle)),
            offset: outcome.matched.map(|matched| matched.offset),
            length: outcome.matched.map(|matched| matched.length),
            cycles: outcome.cycles,
            traversed: outcome.traversed,
        }
    }
}
