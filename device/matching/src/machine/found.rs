//! The outcome of a header.

use niclab_model::models::matching::list_manager::{Handle, Outcome};
use schemars::JsonSchema;
use serde::Serialize;

/// The outcome of one header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Found {
    /// The matching item, by its index in the file.
    pub index: Option<usize>,
    /// Offset of the message in the item's memory.
    pub offset: Option<u64>,
    /// Bytes of the message that are stored.
    pub length: Option<u64>,
    /// Model cycles from its beginning to the earliest beginning of the next header.
    pub cycles: u64,
    /// Number of items that were compared.
    pub traversed: usize,
}

impl Found {
    /// Converts a list manager's outcome; `place` returns an item's index in the file.
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
