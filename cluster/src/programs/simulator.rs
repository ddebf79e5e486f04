//! The simulator, a program of its own: `niclab-sim` gets a configuration and gives a report.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result, bail};
use niclab_images::Terminal;
use niclab_output::READER_GONE;
use niclab_spec::{Report, SimConfig};
use thiserror::Error;

use crate::{
    host::process::die_with_owner,
    programs::{self, SIMULATOR},
};

/// The code with which the simulator says that one of its checks did not hold. The report says which.
const CHECK_FAILED: i32 = 1;

/// The code with which it says that the configuration cannot be run.
const REFUSED: i32 = 2;

/// The simulator cannot run a workload, and has said why on standard error.
#[derive(Debug, Error)]
#[error("{} cannot run the workload; what it said stands above", .0.display())]
pub struct Refused(PathBuf);

/// The reader of a FIFO that the simulator wrote is gone.
#[derive(Debug, Error)]
#[error("nobody reads what {} writes any more", .0.display())]
pub struct Unread(PathBuf);

/// What a simulation shows of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observed<'a> {
    /// Where its timeline goes.
    pub trace: Option<&'a Path>,
    /// Where the capture of all its links goes.
    pub capture: Option<&'a Path>,
}

/// Where the simulator is.
#[derive(Clone, Debug)]
pub struct Simulator(PathBuf);

impl Simulator {
    /// Finds it, or builds it.
    ///
    /// # Errors
    /// When it can be neither.
    pub fn locate(offline: bool) -> Result<Self> {
        Ok(Self(programs::locate(SIMULATOR, offline, &Terminal::new())?))
    }

    /// Runs one simulation. A report whose checks did not all hold is a report.
    ///
    /// # Errors
    /// [`Refused`] when the configuration cannot be run, [`Unread`] when the reader of a FIFO is gone; others when it
    /// does not start or gives no report.
    pub fn run(&self, config: &SimConfig) -> Result<Report> {
        self.run_observed(config, Observed::default())
    }

    /// Runs one simulation, whose measured part is shown in files.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_observed(&self, config: &SimConfig, observed: Observed<'_>) -> Result<Report> {
        let name = self.0.display();
        let mut command = Command::new(&self.0);
        command.args(["--config", "/dev/stdin"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        for (option, path) in [("--trace", observed.trace), ("--capture", observed.capture)] {
            if let Some(path) = path {
                command.arg(option).arg(path);
            }
        }
        die_with_owner(&mut command);
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let text = serde_json::to_vec(config)?;
        // It reads all of its configuration before it writes anything, so that neither waits for the other.
        let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(&text));
        let output = child.wait_with_output().with_context(|| format!("{name} went away"))?;
        match output.status.code() {
            Some(0 | CHECK_FAILED) => {}
            Some(code) if code == i32::from(READER_GONE) => return Err(Unread(self.0.clone()).into()),
            Some(REFUSED) => return Err(Refused(self.0.clone()).into()),
            _ => bail!("{name} failed ({}); what it said stands above", output.status),
        }
        written.with_context(|| format!("{name} did not read its configuration"))?;
        Ok(Report::from_json("the simulator's report", &String::from_utf8(output.stdout)?)?)
    }

    /// Runs it with these arguments, its output as ours.
    ///
    /// # Errors
    /// When it does not start.
    pub fn pass_on(&self, arguments: &[String]) -> Result<ExitStatus> {
        let mut command = Command::new(&self.0);
        command.args(arguments).stdin(Stdio::null());
        die_with_owner(&mut command);
        command.status().with_context(|| format!("cannot start {}", self.0.display()))
    }
}
