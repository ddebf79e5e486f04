//! The papers' figures, made anew by the simulator, each number beside the paper's.

pub mod plot;
pub mod ultra;
