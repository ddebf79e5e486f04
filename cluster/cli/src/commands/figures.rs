//! `niclab figures`: a paper's figures, made anew, beside the paper's numbers.

use std::fs;

use anyhow::{Context, Result};
use niclab_bench::{
    comparison,
    figures::{
        depth::DepthFigures,
        matching::{MatchFigures, Measurements},
        plot::{self, Panel},
        ultra::UltraFigures,
    },
};
use niclab_cluster::programs::simulator::Simulator;
use serde::Serialize;

use super::terminal;
use crate::arguments::{FiguresArgs, PaperFigures};

/// How often each depth is measured in guests.
const DEPTH_ROUNDS: usize = 5;

/// The code where a claim of the paper does not hold.
const CLAIM_BROKEN: u8 = 1;

/// Makes them.
///
/// # Errors
/// When the program that makes them is missing or fails, or the drawing cannot be written.
pub fn run(args: &FiguresArgs) -> Result<u8> {
    match args.paper {
        PaperFigures::Ultra => {
            let simulator = Simulator::locate(args.offline)?;
            let figures = UltraFigures::measure(&mut |config| simulator.run(config))?;
            show(args, &figures, &figures.panels(), UltraFigures::text, figures.hold())
        }
        PaperFigures::Match => {
            let measured = Measurements::read(&comparison::output(&["figures"], args.offline)?)?;
            let figures = MatchFigures::new(measured);
            show(args, &figures, &figures.panels(), MatchFigures::text, figures.hold())
        }
        PaperFigures::MatchLive => {
            let figures = DepthFigures::measure(DEPTH_ROUNDS, args.offline)?;
            // Nobody has published what could be held against it.
            show(args, &figures, &figures.panels(), DepthFigures::text, true)
        }
    }
}

fn show<F: Serialize>(
    args: &FiguresArgs,
    figures: &F,
    panels: &[Panel],
    text: impl Fn(&F) -> String,
    hold: bool,
) -> Result<u8> {
    if let Some(path) = &args.svg {
        fs::write(path, plot::svg(panels))
            .with_context(|| format!("cannot write the drawing {}", path.display()))?;
    }
    let text = if args.json { serde_json::to_string_pretty(figures)? } else { text(figures) };
    terminal::print(&text)?;
    Ok(if hold { 0 } else { CLAIM_BROKEN })
}
