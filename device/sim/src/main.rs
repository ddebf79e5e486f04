//! `niclab-sim`: runs one simulation.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use niclab_sim::run::{Options, run};
use niclab_spec::SimConfig;

/// Simulates a cluster NIC by the same models that serve guests.
///
/// `niclab sim` starts this program. It prints the report as JSON. Exit codes: 0 when every check held, 1 when one did not,
/// 2 when the simulation cannot be run.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    /// The configuration that `niclab sim` wrote (JSON).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Write the report to this file instead.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Another seed than the configuration's.
    #[arg(long)]
    seed: Option<u64>,
}

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match simulate(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("niclab-sim: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs one simulation; whether every check held.
fn simulate(arguments: &Arguments) -> Result<bool, Failure> {
    let mut config = SimConfig::read(&arguments.config)?;
    config.seed = arguments.seed.unwrap_or(config.seed);
    let outcome = run(&config, &Options::default())?;
    write(arguments.report.as_deref(), &outcome.report.to_json())?;
    for failed in outcome.report.checks.iter().filter(|checked| !checked.held) {
        eprintln!("niclab-sim: {} failed: {}", failed.name, failed.detail);
    }
    if !outcome.is_sound() {
        let (config, seed) = (arguments.config.display(), config.seed);
        eprintln!("niclab-sim: to see it again: niclab-sim --config {config} --seed {seed}");
    }
    Ok(outcome.is_sound())
}

fn write(path: Option<&Path>, text: &str) -> Result<(), Failure> {
    match path {
        Some(path) => fs::write(path, text)
            .map_err(|error| format!("cannot write the report {}: {error}", path.display()).into()),
        None => Ok(std::io::stdout().lock().write_all(text.as_bytes())?),
    }
}
