//! `niclab-perf`: latency and throughput between the nodes of a cluster, in the style of perftest.

use std::process::ExitCode;

use clap::Parser as _;
use niclab_output::eprintln;
use niclab_tools::cli::Cli;

fn main() -> ExitCode {
    let result = niclab_tools::run::run(&Cli::parse().command);
    ExitCode::from(niclab_output::exit_code(result.map(|()| 0), |failure| {
        eprintln!("niclab-perf: {failure}");
        1
    }))
}
