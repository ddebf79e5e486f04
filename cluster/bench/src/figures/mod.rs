//! The papers' figures, made anew, each number beside the paper's.

pub mod depth;
pub mod matching;
pub mod plot;
pub mod ultra;
