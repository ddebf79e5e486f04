//! Runs the simulator, a separate program: `niclab-sim` reads a configuration and prints a report.

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

/// The simulator's exit code if one of its checks did not hold. The report names the check.
const CHECK_FAILED: i32 = 1;

/// The simulator's exit code if it cannot run the configuration.
const REFUSED: i32 = 2;

/// The simulator cannot run a workload; its message is on standard error.
#[derive(Debug, Error)]
#[error("{} cannot run the workload; its message is above", .0.display())]
pub struct Refused(PathBuf);

/// The reader of a FIFO that the simulator wrote has closed it.
#[derive(Debug, Error)]
#[error("the reader of a FIFO that {} writes has closed it", .0.display())]
pub struct Unread(PathBuf);

/// The files in which a simulation is observed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observed<'a> {
    /// The file of its timeline.
    pub trace: Option<&'a Path>,
    /// The file of the capture of all its links.
    pub capture: Option<&'a Path>,
}

/// The simulator's path.
#[derive(Clone, Debug)]
pub struct Simulator(PathBuf);

impl Simulator {
    /// Finds the simulator, or builds it.
    ///
    /// # Errors
    /// If neither is possible.
    pub fn locate(offline: bool) -> Result<Self> {
        Ok(Self(programs::locate(SIMULATOR, offline, &Terminal::new())?))
    }

    /// Runs one simulation. If a check does not hold, the result is still a report.
    ///
    /// # Errors
    /// [`Refused`] if the configuration cannot be run, [`Unread`] if the reader of a FIFO closed it. Others if the
    /// simulator does not start or prints no report.
    pub fn run(&self, config: &SimConfig) -> Result<Report> {
        self.run_observed(config, Observed::default())
    }

    /// Runs one simulation, and observes its measured part in files.
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
        // The simulator reads its whole configuration before it writes anything, so neither side blocks the other.
        let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(&text));
        let output = child.wait_with_output().with_context(|| format!("cannot read the output of {name}"))?;
        match output.status.code() {
            Some(0 | CHECK_FAILED) => {}
            Some(code) if code == i32::from(READER_GONE) => return Err(Unread(self.0.clone()).into()),
            Some(REFUSED) => return Err(Refused(self.0.clone()).into()),
            _ => bail!("{name} failed ({}); its message is above", output.status),
        }
        written.with_context(|| format!("{name} did not read its configuration"))?;
        Ok(Report::from_json("the simulator's report", &String::from_utf8(output.stdout)?)?)
    }

    /// Runs the simulator with these arguments; it inherits standard output and standard error.
    ///
    /// # Errors
    /// If it does not start.
    pub fn pass_on(&self, arguments: &[String]) -> Result<ExitStatus> {
        let mut command = Command::new(&self.0);
        command.args(arguments).stdin(Stdio::null());
        die_with_owner(&mut command);
        command.status().with_context(|| format!("cannot start {}", self.0.display()))
    }
}
