//! The `niclab` command.

mod arguments;
mod commands;
mod match_unit;
mod name;
mod protocol;

use std::process::ExitCode;

use crate::arguments::Cli;
use clap::Parser;
use niclab_cluster::host::signals;
use niclab_spec::descriptors;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = match cli.verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let environment = env_logger::Env::default().default_filter_or(level);
    env_logger::Builder::from_env(environment).format_timestamp_millis().format_target(false).init();
    if let Err(error) = signals::take_over() {
        log::warn!("signals are not taken care of: {error}");
    }
    // The launcher holds a few descriptors for each node itself, and its children begin with its limit.
    if let Err(error) = descriptors::raise_limit() {
        log::warn!("cannot raise the limit of open files: {error}");
    }
    match commands::dispatch(cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("niclab: {}", niclab_spec::explain(error.as_ref()));
            ExitCode::from(commands::error_code(&error))
        }
    }
}
