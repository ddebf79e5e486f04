//! The assembler of the match unit: [`assemble`] turns a source into words, [`listing`] and [`lines`] show them, and
//! [`disassemble`] turns words back into a source that gives the same words.
//!
//! A line of the source is a word; `|` separates its statements, one for each unit:
//!
//! ```text
//! item:   t2 = in | p15 = match t1, t3, mask t2 | r4 = add r4, 1 if p8 | br found if p15
//! ```
//!
//! docs/use/match/MACHINE.md describes the language. Every fault of a source becomes a [`niclab_source::Diagnostic`],
//! which names the place and the fix.

mod cursor;
mod hazards;
mod lexer;
mod lists;
mod source;
mod statement;
mod symbols;
mod text;

pub use hazards::Warning;
pub use source::{Program, assemble};
pub use symbols::Register;
pub use text::{disassemble, lines, listing};
