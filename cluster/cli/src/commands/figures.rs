//! `niclab figures`: a paper's figures, made anew, beside the paper's numbers.

use std::fs;

use anyhow::{Context, Result};
use niclab_bench::{figures::plot, validation::Validation};

use super::terminal;
use crate::arguments::{FiguresArgs, ValidationArgs};

/// The code where a number is not as declared.
const CLAIM_BROKEN: u8 = 1;

/// Makes them.
///
/// # Errors
/// When the program that makes them is missing or fails, or the drawing cannot be written.
pub fn run(args: &FiguresArgs) -> Result<u8> {
    let made = (args.paper.make)(args.offline)?;
    if let Some(path) = &args.svg {
        fs::write(path, plot::svg(&made.panels))
            .with_context(|| format!("cannot write the drawing {}", path.display()))?;
    }
    terminal::print(if args.json { &made.json } else { &made.text })?;
    Ok(if made.hold { 0 } else { CLAIM_BROKEN })
}

/// Puts all papers' numbers beside ours.
///
/// # Errors
/// When a program that makes them is missing or fails, or a file cannot be written.
pub fn validate(args: &ValidationArgs) -> Result<u8> {
    let validation = Validation::make(args.offline)?;
    if let Some(folder) = &args.into {
        validation.write_into(folder)?;
    }
    terminal::print(&if args.json { validation.json()? } else { validation.page() })?;
    Ok(if validation.hold() { 0 } else { CLAIM_BROKEN })
}
