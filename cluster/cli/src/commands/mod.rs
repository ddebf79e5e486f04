//! One module for each subcommand.

mod bench;
mod check;
mod compare;
mod conform;
mod debug;
mod doctor;
mod down;
mod driver;
mod exec;
mod extcap;
mod fault;
mod figures;
mod inspect;
mod kernel;
mod logs;
#[cfg(feature = "manuals")]
mod manuals;
mod match_unit;
mod plan;
mod profile;
mod protocol;
mod report;
mod rules;
pub mod run;
mod schema;
mod shell;
mod sim;
mod terminal;
mod up;
mod watch;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use niclab_cluster::{
    boot::running::Failure,
    host::{
        exit_code::{self, OWN_FAILURE},
        runtime::{Condition, RuntimeError, RuntimeRoot},
    },
    plan::Plan,
    supervisor::{
        self,
        control::{self, ControlError, FAILURE, PLAN, Reply, Request, Status},
    },
};
use niclab_spec::{BudgetTextError, ClusterName};

use crate::arguments::{Command, DriverAction, KernelAction};

/// The exit code for invalid values of options, which clap uses as well.
const INVALID_ARGUMENTS: u8 = 2;

/// Runs the command.
///
/// # Errors
/// With a message for the user.
pub fn dispatch(command: Command) -> Result<u8> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Up(args) => up::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Exec(args) => exec::run(args),
        Command::Shell(args) => shell::run(&args),
        Command::Debug(args) => debug::run(&args),
        Command::Driver(DriverAction::Watch(args)) => driver::watch(&args),
        Command::Driver(DriverAction::Build(args)) => driver::build(&args),
        Command::Kernel(KernelAction::Build(args)) => kernel::build(&args),
        Command::Logs(args) => logs::run(&args),
        Command::Down(args) => down::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Fault(args) => fault::run(&args),
        Command::Trace(args) => watch::trace(&args),
        Command::Capture(args) => watch::capture(&args),
        Command::Record(args) => watch::record(&args),
        Command::Extcap(args) => extcap::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Conform(args) => conform::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Firmware(tool) => match_unit::run(&tool),
        Command::Protocol(tool) => protocol::run(&tool),
        Command::Report(args) => report::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Figures(args) => figures::run(&args),
        Command::Validation(args) => figures::validate(&args),
        Command::Rules(args) => rules::run(&args),
        Command::Schema(args) => schema::run(&args),
        #[cfg(feature = "manuals")]
        Command::Manuals { folder } => manuals::run(&folder),
        Command::Supervise => Ok(supervisor::supervise().map(|()| 0)?),
    }
}

/// The exit code for an error.
#[must_use]
pub fn error_code(error: &anyhow::Error) -> u8 {
    if error.is::<BudgetTextError>() {
        // As for other options with invalid values.
        return INVALID_ARGUMENTS;
    }
    match error.downcast_ref::<Failure>() {
        Some(Failure::Signal(signal)) => u8::try_from(exit_code::of_signal(*signal)).unwrap_or(OWN_FAILURE),
        _ => OWN_FAILURE,
    }
}

/// The folder of a running cluster.
fn folder_of(name: &ClusterName) -> Result<PathBuf> {
    let root = RuntimeRoot::locate()?;
    let folder = root.folder(name);
    match root.condition(name)? {
        Condition::Alive => return Ok(folder),
        Condition::Dead => {
            if let Ok(failure) = std::fs::read_to_string(folder.join(FAILURE)) {
                bail!(
                    "the cluster `{name}` ended by itself: {failure}\n`niclab down --name {name}` cleans up after it"
                );
            }
            bail!(
                "the niclab process of the cluster `{name}` died; `niclab down --name {name}` cleans up after it"
            );
        }
        Condition::Foreign(why) => return Err(RuntimeError::NotACluster { path: folder, why }.into()),
        Condition::Absent => {}
    }
    Err(no_cluster(&root, name)?)
}

/// The error for a missing cluster, with the names of those that exist.
fn no_cluster(root: &RuntimeRoot, name: &ClusterName) -> Result<anyhow::Error> {
    let others: Vec<String> = root.names()?.iter().map(ToString::to_string).collect();
    Ok(if others.is_empty() {
        anyhow!("no cluster is up; `niclab up` boots one")
    } else {
        anyhow!("there is no cluster `{name}`; there are: {} (use --name)", others.join(", "))
    })
}

fn status_of(name: &ClusterName) -> Result<Status> {
    match control::ask(&folder_of(name)?, &Request::Status)? {
        Reply::Status(status) => Ok(status),
        reply => Err(ControlError::Unexpected(Box::new(reply)).into()),
    }
}

/// The plan of a running cluster.
fn plan_of(name: &ClusterName) -> Result<Plan> {
    read_plan(&folder_of(name)?)
}

/// The plan in a cluster's folder.
fn read_plan(folder: &Path) -> Result<Plan> {
    let path = folder.join(PLAN);
    let text = std::fs::read(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => anyhow!(
                "{} is gone; a program that removes old files from there may have removed it. The cluster still runs: \
                 `niclab exec`, `niclab inspect` and `niclab down` work without it. Set NICLAB_RUNTIME_DIR to a folder \
                 that nothing cleans",
            path.display()
        ),
        _ => anyhow!("cannot read {}: {error}", path.display()),
    })?;
    serde_json::from_slice(&text).context("another build of niclab booted this cluster; use that build")
}
