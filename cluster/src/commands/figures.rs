//! `niclab figures`: a paper's figures, made anew by the simulator, beside the paper's numbers.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use niclab_images::Terminal;
use niclab_spec::{Report, SimConfig};

use super::terminal;
use crate::{
    cli::{FiguresArgs, PaperFigures},
    figures::{plot, ultra::UltraFigures},
    tools::locate_simulator,
};

/// The code where a claim of the paper does not hold.
const CLAIM_BROKEN: u8 = 1;

/// Makes them.
///
/// # Errors
/// When the simulator is missing or fails, or the drawing cannot be written.
pub fn run(args: &FiguresArgs) -> Result<u8> {
    let PaperFigures::Ultra = args.paper;
    let simulator = locate_simulator(args.offline, &Terminal::new())?;
    let figures = UltraFigures::measure(&mut |config| simulate(&simulator, config))?;
    if let Some(path) = &args.svg {
        fs::write(path, plot::svg(&figures.panels()))
            .with_context(|| format!("cannot write the drawing {}", path.display()))?;
    }
    let text = if args.json { serde_json::to_string_pretty(&figures)? } else { figures.text() };
    terminal::print(&text)?;
    Ok(if figures.hold() { 0 } else { CLAIM_BROKEN })
}

/// Runs one simulation.
fn simulate(simulator: &Path, config: &SimConfig) -> Result<Report> {
    let name = simulator.display();
    let mut child = Command::new(simulator)
        .args(["--config", "/dev/stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let text = serde_json::to_vec(config)?;
    // It reads all of its configuration before it writes anything, so that neither waits for the other.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(&text));
    let output = child.wait_with_output().with_context(|| format!("{name} went away"))?;
    if !output.status.success() {
        bail!("{name} failed on {:?}: {}", config.workload, output.status);
    }
    written.with_context(|| format!("{name} did not read its configuration"))?;
    Ok(Report::from_json("the simulator's report", &String::from_utf8(output.stdout)?)?)
}
