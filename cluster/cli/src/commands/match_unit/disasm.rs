//! `niclab disasm`: prints a firmware image of the match unit as source.

use std::fs;

use anyhow::{Context, Result};
use niclab_asm::{Program, disassemble, listing};
use niclab_isa::{MAX_WORDS, image};

use crate::commands::terminal;
use crate::match_unit::DisasmArgs;

/// The code if the file is no valid image.
const REFUSED: u8 = 1;

/// Prints the source.
///
/// # Errors
/// When the file cannot be read, or standard output is closed.
pub fn run(args: &DisasmArgs) -> Result<u8> {
    let file = args.image.display();
    let bytes = fs::read(&args.image).with_context(|| format!("cannot read {file}"))?;
    let words = match image::read(&bytes, MAX_WORDS) {
        Ok(words) => words,
        Err(error) => {
            eprintln!("niclab: {file}: {error}");
            return Ok(REFUSED);
        }
    };
    let text = if args.listing { listing(&Program::of_words(words)) } else { disassemble(&words) };
    terminal::print(&text)?;
    Ok(0)
}
