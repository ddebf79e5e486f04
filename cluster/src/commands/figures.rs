//! `niclab figures`: a paper's figures, made anew by the simulator, beside the paper's numbers.

use std::fs;

use anyhow::{Context, Result};

use super::terminal;
use crate::{
    cli::{FiguresArgs, PaperFigures},
    figures::{plot, ultra::UltraFigures},
    simulator::Simulator,
};

/// The code where a claim of the paper does not hold.
const CLAIM_BROKEN: u8 = 1;

/// Makes them.
///
/// # Errors
/// When the simulator is missing or fails, or the drawing cannot be written.
pub fn run(args: &FiguresArgs) -> Result<u8> {
    let PaperFigures::Ultra = args.paper;
    let simulator = Simulator::locate(args.offline)?;
    let figures = UltraFigures::measure(&mut |config| simulator.run(config))?;
    if let Some(path) = &args.svg {
        fs::write(path, plot::svg(&figures.panels()))
            .with_context(|| format!("cannot write the drawing {}", path.display()))?;
    }
    let text = if args.json { serde_json::to_string_pretty(&figures)? } else { figures.text() };
    terminal::print(&text)?;
    Ok(if figures.hold() { 0 } else { CLAIM_BROKEN })
}
