//! The assembler of the match unit: [`assemble`] turns a source into words, [`listing`] and [`lines`] show them, and
//! [`disassemble`] turns words back into a source that gives the same words.
//!
//! A line of the source is a word; its statements, one for each unit, are separated by `|`:
//!
//! ```text
//! item:   t2 = in | p15 = match t1, t3, mask t2 | r4 = add r4, 1 if p8 | br found if p15
//! ```
//!
//! [`OutputFile`] is where its commands, and those of the match unit at the desk, write: the one place here that does I/O.
//!
//! docs/match/MACHINE.md describes the language. Whatever is wrong with a source becomes a [`Diagnostic`] that names the place and
//! the mend; they are reported together, up to [`MAX_DIAGNOSTICS`].

mod cursor;
mod diagnostic;
mod hazards;
mod lexer;
mod lists;
mod output;
mod source;
mod statement;
mod symbols;
mod text;

pub use diagnostic::{Diagnostic, MAX_DIAGNOSTICS, Place, Rejected, Warning, render, shortened};
pub use output::{OutputError, OutputFile};
pub use source::{Program, assemble};
pub use symbols::Register;
pub use text::{disassemble, lines, listing};
