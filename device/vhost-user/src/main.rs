//! `niclab-device`: the daemon behind the guests of one cluster.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use niclab_device::daemon::Daemon;
use niclab_spec::daemon::{DaemonConfig, READY_LINE};
use nix::sys::signal::{SigSet, Signal};

/// Models the NICs of a cluster behind the vhost-user sockets of its guests.
///
/// `niclab` starts this program; by hand it is of use to look at one cluster's daemon alone. It prints "ready" once it
/// listens on all sockets, and ends on SIGTERM or SIGINT, when its standard input closes, or with its parent.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The configuration that `niclab` wrote (JSON).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // Before any thread starts, so that all of them leave the signals to the one below.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block().context("cannot block signals")?;
    nix::sys::prctl::set_pdeathsig(Signal::SIGTERM).context("cannot ask to end with the parent")?;
    let config = DaemonConfig::read(&arguments.config)?;
    let daemon = Daemon::start(&config)?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{READY_LINE}").and_then(|()| stdout.flush()).context("cannot say that it is ready")?;
    watch_standard_input()?;
    let signal = signals.wait().context("cannot wait for signals")?;
    log::info!("cluster {}: ends on {signal}", config.cluster);
    drop(daemon);
    Ok(())
}

/// Turns the end of standard input into the signal that ends the daemon: the launcher holds the other end.
fn watch_standard_input() -> anyhow::Result<()> {
    let watch = || {
        let mut discarded = [0; 64];
        while matches!(std::io::stdin().read(&mut discarded), Ok(1..)) {}
        // Fails only when this process is gone.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), Signal::SIGTERM);
    };
    std::thread::Builder::new().name("stdin".to_owned()).spawn(watch).context("cannot start a thread")?;
    Ok(())
}
