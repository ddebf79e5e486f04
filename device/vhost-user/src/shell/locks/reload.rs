//! Cards that are loading firmware ([`crate::shell::firmware_reload`]).

use niclab_model::time::Time;

/// A firmware reload of several cards.
#[derive(Debug)]
pub struct Loading {
    /// The nodes of the cards.
    pub nodes: Vec<usize>,
    /// When it began.
    pub begin: Time,
    /// All cards have begun.
    pub has_begun: bool,
}
