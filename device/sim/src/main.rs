//! `niclab-sim`: runs one simulation, a swarm of them, or the simulator's benchmark.

use std::fmt::Display;
use std::fs;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use niclab_sim::bench;
use niclab_sim::observer::Observer;
use niclab_sim::run::{Options, run_observed};
use niclab_sim::swarm::Swarm;
use niclab_spec::{NicModel, SimConfig};
use serde::Serialize;
use tempfile::NamedTempFile;

/// Simulates a cluster of NICs by the same models that serve guests.
///
/// `niclab sim` starts this program. It prints the report as JSON. Exit codes: 0 when every check held, 1 when one did not,
/// 2 when the simulation cannot be run.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, arg_required_else_help = true)]
struct Arguments {
    /// The configuration that `niclab sim` wrote (JSON).
    #[arg(long, value_name = "FILE", required_unless_present = "swarm", conflicts_with = "swarm")]
    config: Option<PathBuf>,
    /// Write the report to this file, not to standard output.
    #[arg(long, value_name = "FILE", conflicts_with = "swarm")]
    report: Option<PathBuf>,
    /// Run so many random configurations, first with faults, then healed.
    #[arg(long, value_name = "N")]
    swarm: Option<usize>,
    /// Only configurations of this NIC model.
    #[arg(long, value_name = "NAME", requires = "swarm", value_parser = nic_model)]
    nic: Option<NicModel>,
    /// The seed, instead of the configuration's; the first one of a swarm.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Have every NIC do what its manual allows and kind hardware seldom does, drawn from this seed; in a swarm from its sum with each
    /// run's seed.
    #[arg(long, value_name = "S")]
    unkind: Option<u64>,
    /// Threads over which a swarm is spread, or the nodes of one simulation; what is printed does not depend on it. Default: one
    /// for each core, and one for a simulation of fewer than 256 nodes.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Write a timeline of the measured part to this file, for ui.perfetto.dev.
    #[arg(long, value_name = "FILE", conflicts_with = "swarm")]
    trace: Option<PathBuf>,
    /// Write the frames of the measured part, on every link, to this file, for Wireshark (pcapng).
    #[arg(long, value_name = "FILE", conflicts_with = "swarm")]
    capture: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Measure the simulator over numbers of nodes, or with one configuration.
    Bench(BenchArguments),
    /// Simulate a fixed amount of work, for tools that count instructions; prints how many events it had.
    Work(WorkArguments),
}

#[derive(Debug, clap::Args)]
struct WorkArguments {
    /// Nodes.
    nodes: u32,
    /// Messages from each node to each partner.
    count: u64,
    /// Threads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
}

#[derive(Debug, clap::Args)]
struct BenchArguments {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Most nodes.
    #[arg(long, value_name = "N", default_value_t = 4_096)]
    nodes: u32,
    /// Messages from each node to each partner.
    #[arg(long, value_name = "N", default_value_t = 100)]
    count: u64,
    /// Measure this configuration instead: frames and events for each second of a core's time.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "count"])]
    config: Option<PathBuf>,
    /// How often it is simulated.
    #[arg(long, value_name = "N", requires = "config", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
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
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("niclab-sim: {error}");
            ExitCode::from(2)
        }
    }
}

fn work(arguments: &WorkArguments) -> Result<(), Failure> {
    let events = bench::work(arguments.nodes, arguments.count, arguments.threads)?;
    Ok(writeln!(std::io::stdout(), "{events}")?)
}

/// Threads that are worth their while for so many nodes: of 256, two threads carry out in a little more than half the time what one does, and
/// of few they wait for each other most of the time.
fn threads_for(nodes: usize) -> usize {
    if nodes < 256 { 1 } else { cores() }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs one simulation; whether every check held.
fn simulate(arguments: &Arguments) -> Result<bool, Failure> {
    let path = arguments.config.as_deref().ok_or("give --config FILE")?;
    let mut config = SimConfig::read(path)?;
    config.seed = arguments.seed.unwrap_or(config.seed);
    if arguments.unkind.is_some() {
        config.nodes.iter_mut().for_each(|node| node.unkind = arguments.unkind);
    }
    let (trace, capture) = (WholeFile::create(&arguments.trace)?, WholeFile::create(&arguments.capture)?);
    let options = Options {
        threads: arguments.threads.unwrap_or_else(|| threads_for(config.nodes.len())).max(1),
        ..Options::default()
    };
    let outcome = run_observed(&config, &options, observer(&config, trace.as_ref(), capture.as_ref())?)?;
    [trace, capture].into_iter().flatten().try_for_each(WholeFile::keep)?;
    write(arguments.report.as_deref(), &outcome.report.to_json())?;
    for failed in outcome.report.checks.iter().filter(|checked| !checked.held) {
        eprintln!("niclab-sim: {} failed: {}", failed.name, failed.detail);
    }
    if !outcome.is_sound() {
        let (path, seed) = (path.display(), config.seed);
        eprintln!("niclab-sim: to see it again: niclab-sim --config {path} --seed {seed}");
    }
    Ok(outcome.is_sound())
}

/// A file that appears under its name when it is whole.
struct WholeFile<'a> {
    path: &'a Path,
    file: NamedTempFile,
}

impl<'a> WholeFile<'a> {
    /// Begins the file, if one is wanted.
    fn create(path: &'a Option<PathBuf>) -> Result<Option<Self>, Failure> {
        let Some(path) = path else { return Ok(None) };
        // Beside it, so that it can be renamed.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let readable = fs::Permissions::from_mode(0o666);
        let file = tempfile::Builder::new().prefix(".niclab-").permissions(readable).tempfile_in(folder);
        let file =
            file.map_err(|error| format!("cannot write {}: {error}; is its folder there?", path.display()))?;
        Ok(Some(Self { path, file }))
    }

    fn keep(self) -> Result<(), Failure> {
        let path = self.path;
        self.file
            .persist(path)
            .map_err(|error| format!("cannot write {}: {}", path.display(), error.error))?;
        Ok(())
    }
}

/// Who writes timeline and capture, where they are wanted.
fn observer<'a>(
    config: &SimConfig,
    trace: Option<&'a WholeFile<'_>>,
    capture: Option<&'a WholeFile<'_>>,
) -> Result<Option<Observer<'a>>, Failure> {
    if trace.is_none() && capture.is_none() {
        return Ok(None);
    }
    let names: Vec<String> = config.nodes.iter().map(|node| node.name.clone()).collect();
    let out = |file: &'a WholeFile<'_>| -> Box<dyn Write + 'a> { Box::new(BufWriter::new(&file.file)) };
    Ok(Some(Observer::new(&names, trace.map(out), capture.map(out))?))
}

/// Runs a swarm; whether every check of every run held.
fn swarm(arguments: &Arguments, count: usize) -> Result<bool, Failure> {
    let threads = arguments.threads.unwrap_or_else(cores);
    let swarm = Swarm::of(arguments.nic, arguments.unkind, arguments.seed.unwrap_or(1), count, threads);
    write(None, &swarm.to_string())?;
    Ok(swarm.is_sound())
}

fn measure(arguments: &BenchArguments) -> Result<(), Failure> {
    let Some(path) = &arguments.config else {
        return print(&bench::measure(arguments.nodes, arguments.count)?, arguments.json);
    };
    print(&bench::speed(&SimConfig::read(path)?, arguments.rounds)?, arguments.json)
}

fn print(measured: &(impl Serialize + Display), is_json: bool) -> Result<(), Failure> {
    let text = if is_json { serde_json::to_string_pretty(measured)? + "\n" } else { measured.to_string() };
    write(None, &text)
}

fn write(path: Option<&Path>, text: &str) -> Result<(), Failure> {
    match path {
        Some(path) => fs::write(path, text)
            .map_err(|error| format!("cannot write the report {}: {error}", path.display()).into()),
        None => Ok(std::io::stdout().lock().write_all(text.as_bytes())?),
    }
}
