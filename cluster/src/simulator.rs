//! The simulator, a program of its own: `niclab-sim` gets a configuration and gives a report.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result, bail};
use niclab_images::Terminal;
use niclab_spec::{Report, SimConfig};

use crate::{process::die_with_owner, tools::locate_simulator};

/// The code with which the simulator says that one of its checks did not hold. The report says which.
const CHECK_FAILED: i32 = 1;

/// Where the simulator is.
#[derive(Clone, Debug)]
pub struct Simulator(PathBuf);

impl Simulator {
    /// Finds it, or builds it.
    ///
    /// # Errors
    /// When it can be neither.
    pub fn locate(offline: bool) -> Result<Self> {
        Ok(Self(locate_simulator(offline, &Terminal::new())?))
    }

    /// Runs one simulation. A report whose checks did not all hold is a report.
    ///
    /// # Errors
    /// When it does not start, refuses the configuration, or gives no report.
    pub fn run(&self, config: &SimConfig) -> Result<Report> {
        let name = self.0.display();
        let mut command = Command::new(&self.0);
        command.args(["--config", "/dev/stdin"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        die_with_owner(&mut command);
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let text = serde_json::to_vec(config)?;
        // It reads all of its configuration before it writes anything, so that neither waits for the other.
        let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(&text));
        let output = child.wait_with_output().with_context(|| format!("{name} went away"))?;
        if !(output.status.success() || output.status.code() == Some(CHECK_FAILED)) {
            bail!("{name} could not run the workload ({}); what it said stands above", output.status);
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
