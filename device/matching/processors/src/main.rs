//! `niclab-processors`: the match unit and the processors on the paper's benchmark, and the simulation speed of the
//! match unit.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use niclab_output::eprintln;
use niclab_processors::comparison::Comparison;
use niclab_processors::rate::{self, Rates};

/// Compares the match unit with other machines.
///
/// `niclab figures match` and `niclab bench --only match` start this program.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run the benchmark on all machines and print the cycles as JSON.
    Figures,
    /// Measure the simulation speed of the match unit.
    Bench(BenchArguments),
    /// Simulate at least CYCLES cycles of the match unit, for tools that count instructions, and print their number.
    Work {
        /// Length of the list that the list manager streams.
        items: u32,
        /// Minimum number of cycles.
        cycles: u64,
    },
}

#[derive(Debug, clap::Args)]
struct BenchArguments {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Number of measurements of each configuration.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u32,
}

fn main() -> ExitCode {
    ExitCode::from(niclab_output::exit_code(run(&Arguments::parse().command).map(|()| 0), |error| {
        eprintln!("niclab-processors: {error}");
        1
    }))
}

fn run(action: &Action) -> Result<(), Box<dyn std::error::Error>> {
    let text = match action {
        Action::Figures => serde_json::to_string(&Comparison::new()?)? + "\n",
        Action::Bench(arguments) => {
            let rates = Rates::measure(arguments.rounds)?;
            if arguments.json { serde_json::to_string_pretty(&rates)? + "\n" } else { rates.to_string() }
        }
        Action::Work { items, cycles } => format!("{}\n", rate::work(*items, *cycles)?),
    };
    Ok(niclab_output::print(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_commands_are_valid() {
        let wrong =
            niclab_harness::invalid::<Arguments>(&niclab_harness::documented("niclab-processors"), &[]);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
