//! `niclab-device`: the daemon that serves the cards of one cluster's guests.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Parser, Subcommand};
use niclab_device::bench;
use niclab_device::daemon::Daemon;
use niclab_device::lifetime::Lifetime;
use niclab_device::monitor::clear_place;
use niclab_device::sandbox;
use niclab_output::print;
use niclab_spec::daemon::{DaemonConfig, READY_LINE};
use niclab_spec::descriptors;
use niclab_spec::pci::MAX_QUEUE_PAIRS;

/// Models the NICs of a cluster behind the vhost-user sockets of its guests.
///
/// `niclab` starts this program. Start it by hand only to examine the daemon of one cluster alone. It prints "ready"
/// once it listens on all sockets. It ends on SIGTERM or SIGINT, when its standard input closes, or when its parent
/// ends.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, arg_required_else_help = true)]
struct Arguments {
    /// The configuration that `niclab` wrote (JSON).
    #[arg(long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Measure this program's own code in process, without QEMU: messages, frames.
    Bench(BenchArguments),
    /// Do a fixed amount of work in process, for tools that count instructions, and print the number of completed
    /// units.
    Work(WorkArguments),
    /// Print the sandbox that the running kernel gives the daemon.
    Sandbox,
    /// Measure in process how long one guest's control requests wait while another guest attacks.
    Hostile(HostileArguments),
}

#[derive(Debug, clap::Args)]
struct WorkArguments {
    /// The kind of work.
    #[arg(value_parser = PossibleValuesParser::new(bench::works().map(|work| {
        PossibleValue::new(work.name).help(work.unit)
    })))]
    name: String,
    /// Units of work.
    #[arg(value_name = "UNITS")]
    count: u64,
}

#[derive(Debug, clap::Args)]
struct HostileArguments {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Wall time of each attack, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    wall_ms: u64,
    /// Run only attacks whose name contains this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

#[derive(Debug, clap::Args)]
struct BenchArguments {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Wall time of each measurement, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    wall_ms: u64,
    /// Measure also the vhost ports of this DPDK testpmd, in the same run.
    #[arg(long, value_name = "PROGRAM")]
    testpmd: Option<PathBuf>,
    /// Queue pairs of each Ethernet function, and of testpmd's ports.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_QUEUE_PAIRS.into()))]
    queues: u32,
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    let arguments = Arguments::parse();
    if let Err(error) = descriptors::raise_limit() {
        log::warn!("cannot raise the limit of open files: {error}");
    }
    let result = match arguments {
        Arguments { command: Some(Action::Bench(arguments)), .. } => bench(&arguments),
        Arguments { command: Some(Action::Work(arguments)), .. } => work(&arguments),
        Arguments { command: Some(Action::Sandbox), .. } => {
            print(&sandbox::enter(&[]).to_string()).map_err(Into::into)
        }
        Arguments { command: Some(Action::Hostile(arguments)), .. } => hostile(&arguments),
        Arguments { config: Some(config), .. } => serve(&config),
        // Clap requires one of the two.
        Arguments { .. } => Ok(()),
    };
    ExitCode::from(niclab_output::exit_code(result.map(|()| 0), |error| {
        log::error!("{}", niclab_spec::explain(error.as_ref()));
        1
    }))
}

fn bench(arguments: &BenchArguments) -> anyhow::Result<()> {
    log::set_max_level(log::LevelFilter::Warn);
    let options = bench::Options {
        duration: Duration::from_millis(arguments.wall_ms),
        testpmd: arguments.testpmd.clone(),
        queue_pairs: arguments.queues as usize,
    };
    print_report(&bench::run(&options)?, arguments.json)
}

fn work(arguments: &WorkArguments) -> anyhow::Result<()> {
    log::set_max_level(log::LevelFilter::Warn);
    let work = bench::works()
        .find(|work| work.name == arguments.name)
        .context("this kind of work does not exist")?;
    Ok(print(&(work.run)(arguments.count)?.to_string())?)
}

fn hostile(arguments: &HostileArguments) -> anyhow::Result<()> {
    log::set_max_level(log::LevelFilter::Error);
    let duration = Duration::from_millis(arguments.wall_ms);
    print_report(&bench::hostile::run(duration, &arguments.only)?, arguments.json)
}

fn print_report(report: &(impl serde::Serialize + std::fmt::Display), as_json: bool) -> anyhow::Result<()> {
    let text = if as_json { serde_json::to_string_pretty(report)? } else { report.to_string() };
    Ok(print(&text)?)
}

fn serve(config: &Path) -> anyhow::Result<()> {
    let lifetime = Lifetime::begin()?;
    let config = DaemonConfig::read(config)?;
    clear_socket_paths(&config)?;
    let daemon = Daemon::start_after(&config, || {
        let sockets = config.nodes.iter().flat_map(|node| [&node.cluster_socket, &node.ethernet_socket]);
        let sockets = sockets.chain([&config.monitor_socket]).map(PathBuf::as_path);
        let sandbox = sandbox::enter(&sandbox::folders_of(sockets));
        let level = if sandbox.is_whole() { log::Level::Info } else { log::Level::Warn };
        log::log!(level, "sandbox: {sandbox}");
    })?;
    daemon.shell().when_time_ends(Lifetime::end);
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{READY_LINE}")
        .and_then(|()| stdout.flush())
        .context("cannot write \"ready\" to standard output")?;
    lifetime.watch_standard_input()?;
    let signal = lifetime.wait()?;
    let end = daemon.shell().end_of_time();
    log::info!("cluster {}: ends on {signal}", config.cluster);
    drop(daemon);
    // The launcher shows the last lines of the log, so the reason is logged last.
    end.map_or(Ok(()), |end| Err(end.into()))
}

/// Removes the sockets that a killed daemon left at the paths of the configuration. Files of other kinds stay.
fn clear_socket_paths(config: &DaemonConfig) -> anyhow::Result<()> {
    let sockets = config.nodes.iter().flat_map(|node| [&node.cluster_socket, &node.ethernet_socket]);
    for path in sockets.chain([&config.monitor_socket]) {
        clear_place(path).with_context(|| format!("cannot listen on {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_commands_are_valid() {
        let exceptions = [("niclab-device work NAME UNITS", "NAME stands for any kind of work")];
        let wrong =
            niclab_harness::invalid::<Arguments>(&niclab_harness::documented("niclab-device"), &exceptions);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
