//! Code that the firmware tools share. Faults of a source become [`Diagnostic`]s with place and fix, reported
//! together, up to [`MAX_DIAGNOSTICS`]. [`nearest`] finds the name that a misspelt one most likely means.

mod alike;
mod diagnostic;

pub use alike::nearest;
pub use diagnostic::{Diagnostic, MAX_DIAGNOSTICS, Place, Rejected, Report, render, shortened};
