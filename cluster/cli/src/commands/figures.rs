//! `niclab figures`: reproduces a paper's figures, next to the paper's numbers. `niclab validation`: all papers.

use anyhow::Result;
use niclab_bench::{
    figures::plot,
    validation::{Pages, Validation},
};

use niclab_output::{Stdout, create_all};

use super::terminal;
use crate::arguments::{FiguresArgs, ValidationArgs};

/// The code if a number is not as declared.
const CLAIM_BROKEN: u8 = 1;

/// Makes the figures of one paper.
///
/// # Errors
/// When the program that makes them is missing or fails, or the drawing cannot be written.
pub fn run(args: &FiguresArgs) -> Result<u8> {
    let [drawing] = create_all([args.svg.as_deref()], &[], Stdout::Taken)?;
    let made = (args.paper.make)(args.offline)?;
    let written = drawing.map(|file| file.write(plot::svg(&made.panels).as_bytes())).transpose();
    terminal::print(if args.json { &made.json } else { &made.text })?;
    written?;
    Ok(if made.hold { 0 } else { CLAIM_BROKEN })
}

/// Compares all papers' numbers with the models'.
///
/// # Errors
/// When a program that makes them is missing or fails, or a file cannot be written.
pub fn validate(args: &ValidationArgs) -> Result<u8> {
    let pages = args.into.as_deref().map(Pages::open).transpose()?;
    let validation = Validation::make(args.offline)?;
    let written = pages.map(|pages| validation.write_into(pages)).transpose();
    terminal::print(&if args.json { validation.json()? } else { validation.page() })?;
    written?;
    Ok(if validation.hold() { 0 } else { CLAIM_BROKEN })
}
