//! Scenarios in guests: a booted cluster on which `niclab-perf` performs workloads.

use std::time::{Duration, Instant};

use anyhow::Result;
use niclab_spec::{Cluster, Report, Scenario, Workload, WorkloadKind};

use crate::{
    cli::{ClusterArgs, ReportFormat, RunArgs, RunWatchArgs},
    commands::run::measured,
    prepare,
    running::RunningCluster,
    runtime::{RUN_PREFIX, RuntimeRoot},
};

/// Longest wall time of one workload.
const WORKLOAD_TIMEOUT_S: u64 = 300;

/// A cluster that is up.
pub struct LiveCluster {
    running: RunningCluster,
    cluster: Cluster,
    boot: Duration,
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
        let name = cluster.name.clone().unwrap_or_else(|| format!("{RUN_PREFIX}{}", std::process::id()));
        let args = ClusterArgs { offline, no_share: true, ..ClusterArgs::default() };
        let plan = prepare::plan(&args, &cluster, &name, &root, offline)?;
        let folder = root.claim(&name)?;
        let timeout = args.boot_timeout(plan.nodes.len());
        let begin = Instant::now();
        let running = RunningCluster::boot(plan, folder, timeout, &mut |_| {})?;
        Ok(Self { running, cluster, boot: begin.elapsed() })
    }

    /// Performs the workload, and reports what it added to the counts.
    ///
    /// # Errors
    /// When the cluster ends or takes too long.
    pub fn measure(&mut self, workload: &Workload) -> Result<Report> {
        let mut report = self.benchmark(workload, &[])?;
        report.workload = Some(workload.clone());
        Ok(report)
    }

    /// Performs the workload with further arguments of `niclab-perf`.
    ///
    /// # Errors
    /// As [`Self::measure`].
    pub fn benchmark(&mut self, workload: &Workload, more: &[&str]) -> Result<Report> {
        let mut command = command(workload);
        command.extend(more.iter().map(|argument| (*argument).to_owned()));
        let args = RunArgs {
            cluster: ClusterArgs::default(),
            report: Some(ReportFormat::Json),
            report_file: None,
            watch: RunWatchArgs::default(),
            timeout: Some(WORKLOAD_TIMEOUT_S),
            command,
        };
        Ok(measured(&mut self.running, &args, &self.cluster, self.boot)?.0)
    }

    /// Takes it down.
    pub fn shut_down(self) {
        self.running.shut_down(false);
    }
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
    let mut command = vec!["niclab-perf".to_owned(), benchmark.to_owned(), "--json".to_owned()];
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
        assert!(line.starts_with("niclab-perf stream --json --size 16 --iterations 7 --warmup 0"), "{line}");
    }
}
