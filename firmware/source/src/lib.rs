//! What the tools for firmware share: what is wrong with a source becomes a [`Diagnostic`] that names the place and the
//! fix, reported together, up to [`MAX_DIAGNOSTICS`]; and [`nearest`] finds the name that was meant.

mod alike;
mod diagnostic;

pub use alike::nearest;
pub use diagnostic::{Diagnostic, MAX_DIAGNOSTICS, Place, Rejected, Report, render, shortened};
