//! `niclab-sim`: runs one simulation, a swarm of them, or the simulator's benchmark.

use std::fmt::Display;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use niclab_output::{OutputError, OutputFile, READER_GONE, Stdout, create_all, eprintln, is_unread, print};
use niclab_sim::bench;
use niclab_sim::observer::Observer;
use niclab_sim::run::{Options, run_observed};
use niclab_sim::swarm::Swarm;
use niclab_spec::{NicModel, SimConfig};
use serde::Serialize;

/// Simulates a cluster of NICs with the same models that serve guests.
///
/// `niclab sim` starts this program. It prints the report as JSON. Exit codes: 0 if every check held, 1 if a check
/// failed, 2 if the simulation cannot run.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, arg_required_else_help = true)]
struct Arguments {
    /// The configuration that `niclab sim` wrote (JSON).
    #[arg(long, value_name = "FILE", required_unless_present = "swarm", conflicts_with = "swarm")]
    config: Option<PathBuf>,
    /// Write the report to this file, not to standard output.
    #[arg(long, value_name = "FILE", conflicts_with = "swarm")]
    report: Option<PathBuf>,
    /// Run N random configurations, each first with faults, then without.
    #[arg(long, value_name = "N")]
    swarm: Option<usize>,
    /// Run only configurations of this NIC model.
    #[arg(long, value_name = "NAME", requires = "swarm", value_parser = nic_model)]
    nic: Option<NicModel>,
    /// Use this seed instead of the configuration's; in a swarm, the first run's seed.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Make every NIC behave adversarially: as its manual allows, but real hardware seldom does. This is the seed of
    /// the random behaviour; in a swarm, each run adds its own seed.
    #[arg(long, value_name = "S")]
    adversarial: Option<u64>,
    /// Number of threads that share the runs of a swarm, or the nodes of one simulation. The output does not depend on
    /// it. Default: one for each core, or one for a simulation of fewer than 256 nodes.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Write a timeline of the measured part to this file, for ui.perfetto.dev.
    #[arg(long, value_name = "FILE", conflicts_with = "swarm")]
    trace: Option<PathBuf>,
    /// Write the measured part's frames on all links to this file, for Wireshark (pcapng).
    #[arg(long, value_name = "FILE", conflicts_with = "swarm")]
    capture: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Measure the simulator's speed for several numbers of nodes, or for one configuration.
    Bench(BenchArguments),
    /// Simulate a fixed amount of work, for tools that count instructions. Prints the number of events.
    Work(WorkArguments),
}

#[derive(Debug, clap::Args)]
struct WorkArguments {
    /// Number of nodes.
    nodes: u32,
    /// Messages from each node to each partner.
    count: u64,
    /// Number of threads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
}

#[derive(Debug, clap::Args)]
struct BenchArguments {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Maximum number of nodes.
    #[arg(long, value_name = "N", default_value_t = 4_096)]
    nodes: u32,
    /// Messages from each node to each partner.
    #[arg(long, value_name = "N", default_value_t = 100)]
    count: u64,
    /// Measure this configuration instead. Prints frames and events for each second of a core's time.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "count"])]
    config: Option<PathBuf>,
    /// How often to simulate it.
    #[arg(
        long,
        value_name = "N",
        requires = "config",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    rounds: u32,
}

type Failure = Box<dyn std::error::Error>;

fn nic_model(name: &str) -> Result<NicModel, String> {
    let known = || format!("no model is called `{name}`; use one of {}", NicModel::names().join(", "));
    NicModel::named(name).ok_or_else(known)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match (&arguments.command, arguments.swarm) {
        (Some(Action::Bench(arguments)), _) => measure(arguments).map(|()| true),
        (Some(Action::Work(arguments)), _) => work(arguments).map(|()| true),
        (None, Some(count)) => swarm(&arguments, count),
        (None, None) => simulate(&arguments),
    };
    ExitCode::from(niclab_output::exit_code(result.map(|held| u8::from(!held)), |error| {
        if is_unread(error.as_ref()) {
            return READER_GONE;
        }
        eprintln!("niclab-sim: {error}");
        2
    }))
}

fn work(arguments: &WorkArguments) -> Result<(), Failure> {
    let events = bench::work(arguments.nodes, arguments.count, arguments.threads)?;
    Ok(print(&events.to_string())?)
}

/// The default number of threads. With 256 nodes two threads take little more than half the time of one. With few nodes
/// they wait for each other most of the time.
fn threads_for(nodes: usize) -> usize {
    if nodes < 256 { 1 } else { cores() }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs one simulation. Returns whether every check held.
fn simulate(arguments: &Arguments) -> Result<bool, Failure> {
    let path = arguments.config.as_deref().ok_or("no configuration is given; add --config FILE")?;
    let mut config = SimConfig::read(path)?;
    config.seed = arguments.seed.unwrap_or(config.seed);
    if arguments.adversarial.is_some() {
        config.nodes.iter_mut().for_each(|node| node.adversarial = arguments.adversarial);
    }
    let files = [&arguments.report, &arguments.trace, &arguments.capture].map(Option::as_deref);
    let [report, trace, capture] = create_all(files, &[path], Stdout::Taken)?;
    let options = Options {
        threads: arguments.threads.unwrap_or_else(|| threads_for(config.nodes.len())).max(1),
        ..Options::default()
    };
    let watched = [&trace, &capture].map(Option::as_ref);
    let outcome = observer(&config, watched)
        .and_then(|observer| Ok(run_observed(&config, &options, observer)?))
        .map_err(|error| -> Failure {
            match watched.into_iter().flatten().find(|file| file.reader_is_gone()) {
                Some(unread) => OutputError::ReaderGone(unread.path().to_owned()).into(),
                None => error,
            }
        })?;
    [trace, capture].into_iter().flatten().try_for_each(OutputFile::finish)?;
    match report {
        Some(file) => file.write(outcome.report.to_json().as_bytes())?,
        None => print(&outcome.report.to_json())?,
    }
    for failed in outcome.report.checks.iter().filter(|checked| !checked.held) {
        eprintln!("niclab-sim: {} failed: {}", failed.name, failed.detail);
    }
    if !outcome.is_sound() {
        let (path, seed) = (path.display(), config.seed);
        eprintln!("niclab-sim: to reproduce: niclab-sim --config {path} --seed {seed}");
    }
    Ok(outcome.is_sound())
}

/// The observer that writes timeline and capture, if either is requested.
fn observer(
    config: &SimConfig,
    files: [Option<&OutputFile>; 2],
) -> Result<Option<Observer<'static>>, Failure> {
    if files.iter().all(Option::is_none) {
        return Ok(None);
    }
    let names: Vec<String> = config.nodes.iter().map(|node| node.name.clone()).collect();
    let out = |file: Option<&OutputFile>| -> Result<Option<Box<dyn Write>>, OutputError> {
        Ok(match file {
            Some(file) => Some(Box::new(BufWriter::new(file.writer()?))),
            None => None,
        })
    };
    let [trace, capture] = files;
    Ok(Some(Observer::new(&names, out(trace)?, out(capture)?)?))
}

/// Runs a swarm. Returns whether every check of every run held.
fn swarm(arguments: &Arguments, count: usize) -> Result<bool, Failure> {
    let threads = arguments.threads.unwrap_or_else(cores);
    let swarm = Swarm::of(arguments.nic, arguments.adversarial, arguments.seed.unwrap_or(1), count, threads);
    print(&swarm.to_string())?;
    Ok(swarm.is_sound())
}

fn measure(arguments: &BenchArguments) -> Result<(), Failure> {
    let Some(path) = &arguments.config else {
        return show(&bench::measure(arguments.nodes, arguments.count)?, arguments.json);
    };
    show(&bench::speed(&SimConfig::read(path)?, arguments.rounds)?, arguments.json)
}

fn show(measured: &(impl Serialize + Display), is_json: bool) -> Result<(), Failure> {
    let text = if is_json { serde_json::to_string_pretty(measured)? } else { measured.to_string() };
    Ok(print(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_commands_are_valid() {
        let wrong = niclab_harness::invalid::<Arguments>(&niclab_harness::documented("niclab-sim"), &[]);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
