//! The `niclab` command.

// Messages to a standard error that nobody reads any more are no reason to leave a cluster behind.
#[macro_use]
extern crate niclab_output;

mod arguments;
mod commands;
#[cfg(test)]
mod documented;
mod extcap;
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
    ExitCode::from(niclab_output::exit_code(commands::dispatch(cli.command), |error| {
        if niclab_output::is_unread(error.as_ref()) {
            return niclab_output::READER_GONE;
        }
        eprintln!("niclab: {}", niclab_spec::explain(error.as_ref()));
        commands::error_code(&error)
    }))
}
