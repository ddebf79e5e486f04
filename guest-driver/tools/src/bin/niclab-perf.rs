//! `niclab-perf`: latency and throughput between the nodes of a cluster, in the style of perftest.

use std::process::ExitCode;

use clap::Parser as _;
use niclab_tools::cli::Cli;

fn main() -> ExitCode {
    match niclab_tools::run::run(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("niclab-perf: {failure}");
            ExitCode::FAILURE
        }
    }
}
