//! What the tools for firmware share: what is wrong with a source becomes a [`Diagnostic`] that names the place and the mend,
//! reported together, up to [`MAX_DIAGNOSTICS`]; [`nearest`] finds the name that was meant; and [`OutputFile`] is where commands write, the one place here that does I/O.

mod alike;
mod diagnostic;
mod output;

pub use alike::nearest;
pub use diagnostic::{Diagnostic, MAX_DIAGNOSTICS, Place, Rejected, Report, render, shortened};
pub use output::{OutputError, OutputFile};
