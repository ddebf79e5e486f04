//! Scenarios in guests: a booted cluster on which `niclab-perf` performs workloads.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use niclab_spec::{Cluster, ClusterName, Report, Scenario, ScenarioMode, Workload, WorkloadKind};

use super::conduct::conduct;
use crate::{
    arguments::ClusterArgs,
    boot::{prepare, running::RunningCluster},
    host::{exit_code::OWN_FAILURE, runtime::RuntimeRoot},
    report::live::{CommandOutcome, Measurement, Outcome},
};

/// Longest wall time of one workload.
const WORKLOAD_TIMEOUT: Duration = Duration::from_secs(300);

/// The cue at which what is measured begins.
const CUE_WARM: &str = "warm";

/// The cue at which it ends.
const CUE_MEASURED: &str = "measured";

/// A cluster that is up.
pub struct LiveCluster {
    running: RunningCluster,
    cluster: Cluster,
    boot: Duration,
    /// Whether it is compared with the simulator, operation by operation.
    is_compared: bool,
}

impl LiveCluster {
    /// Boots the scenario's cluster.
    ///
    /// # Errors
    /// When it cannot be booted.
    pub fn boot(scenario: &Scenario, offline: bool) -> Result<Self> {
        let root = RuntimeRoot::locate()?;
        root.sweep();
        let cluster = scenario.cluster.clone();
        let name = cluster.name.clone().unwrap_or_else(|| ClusterName::of_run(std::process::id()));
        let args = ClusterArgs { offline, no_share: true, ..ClusterArgs::default() };
        let plan = prepare::plan(&args, &cluster, &name, &root, offline)?;
        let folder = root.claim(&name)?;
        let timeout = args.boot_timeout(plan.nodes.len());
        let begin = Instant::now();
        let running = RunningCluster::boot(plan, folder, timeout, &mut |_| {})?;
        let is_compared = scenario.mode == ScenarioMode::Both;
        Ok(Self { running, cluster, boot: begin.elapsed(), is_compared })
    }

    /// Performs the workload, and reports what it added to the counts.
    ///
    /// # Errors
    /// When the cluster ends or takes too long.
    pub fn measure(&mut self, workload: &Workload) -> Result<Report> {
        let more: &[&str] = if self.is_compared { &["--as-simulated"] } else { &[] };
        let mut report = self.benchmark(workload, more)?;
        report.workload = Some(workload.clone());
        Ok(report)
    }

    /// Performs the workload with further arguments of `niclab-perf`. What is reported lies between its cues.
    ///
    /// # Errors
    /// As [`Self::measure`].
    pub fn benchmark(&mut self, workload: &Workload, more: &[&str]) -> Result<Report> {
        let mut command = command(workload);
        command.extend(more.iter().map(|argument| (*argument).to_owned()));
        let (mut measurement, mut readings) = (None, None);
        let mut at_cue = |running: &mut RunningCluster, cue: &str| -> Result<()> {
            match (cue, measurement.take()) {
                (CUE_WARM, _) => measurement = Some(Measurement::begin(running)?),
                (CUE_MEASURED, Some(begun)) => readings = Some(Measurement::end(begun, running)?),
                _ => {}
            }
            Ok(())
        };
        let ended = conduct(&mut self.running, &command, WORKLOAD_TIMEOUT, &mut at_cue)?;
        let nodes = self.running.plan().nodes.iter().zip(&ended);
        let commands: Vec<CommandOutcome> = nodes
            .map(|(node, ended)| CommandOutcome::new(&node.name, Some(ended.code.clone()), &ended.stdout))
            .collect();
        let Some(readings) = readings else { bail!("{}", why_unmeasured(&commands)) };
        let codes = ended.iter().map(|ended| *ended.code.as_ref().unwrap_or(&OWN_FAILURE));
        let exit_code = codes.into_iter().find(|code| *code != 0).unwrap_or(0);
        let outcome = Outcome { boot: self.boot, exit_code, commands };
        Ok(readings.report(&self.running, &self.cluster, outcome))
    }

    /// Takes it down.
    pub fn shut_down(self) {
        self.running.shut_down(false);
    }
}

/// Why no counters were read: what the benchmarks that failed say.
fn why_unmeasured(commands: &[CommandOutcome]) -> String {
    let reasons: Vec<String> = commands
        .iter()
        .map(|command| match (&command.error, command.exit_code) {
            (Some(error), _) => error.clone(),
            (None, Some(code)) => format!("exit code {code}"),
            (None, None) => "no end".to_owned(),
        })
        .collect();
    format!("niclab-perf never came to its measured part; by rank: {}", reasons.join(", "))
}

/// The workload as a command line of `niclab-perf`. The scenario was refused if there is none.
fn command(workload: &Workload) -> Vec<String> {
    let benchmark = if workload.kind == WorkloadKind::Stream { "stream" } else { "pingpong" };
    let numbers = [
        ("--size", u64::from(workload.message_bytes)),
        ("--iterations", workload.count),
        ("--warmup", workload.warmup),
        ("--interrupt-every", workload.interrupt_every),
        ("--slices", u64::from(workload.slices)),
    ];
    let fixed = ["niclab-perf", benchmark, "--json", "--conducted"];
    let mut command: Vec<String> = fixed.into_iter().map(str::to_owned).collect();
    command.extend(numbers.into_iter().flat_map(|(option, number)| [option.to_owned(), number.to_string()]));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_a_command_line() {
        let workload = Workload { count: 7, ..Workload::new(WorkloadKind::Stream) };
        let line = command(&workload).join(" ");
        assert!(
            line.starts_with("niclab-perf stream --json --conducted --size 16 --iterations 7 --warmup 0"),
            "{line}"
        );
    }
}
