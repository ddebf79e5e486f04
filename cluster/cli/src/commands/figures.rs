//! `niclab figures`: a paper's figures, made anew, beside the paper's numbers.

use std::fs;

use anyhow::{Context, Result};
use niclab_bench::figures::plot;

use super::terminal;
use crate::arguments::FiguresArgs;

/// The code where a claim of the paper does not hold.
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
