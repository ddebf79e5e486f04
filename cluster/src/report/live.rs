//! Makes the report of what a running cluster did between two instants.

use std::time::{Duration, Instant};

use anyhow::Result;
use niclab_spec::{
    Cluster, Report,
    monitor::DaemonStats,
    report::{Accelerator, GuestTime, Mode, REPORT_VERSION, WallFigures, WallResult, nic_names},
};

use super::{
    kernels::{self, Kernel},
    perf,
};
use crate::{
    boot::{node_end::NodeEnd, running::RunningCluster},
    daemon::monitor,
    debug_kernel::KernelFindings,
    guests::program::ProgramFailure,
};

/// The differences of all counters over the reported time.
pub struct Readings {
    wall: Duration,
    device: DaemonStats,
    kernels: Option<Vec<Kernel>>,
}

/// The counters at the beginning of the reported time.
pub struct Measurement {
    begin: Instant,
    device: DaemonStats,
    kernels: Option<Vec<Kernel>>,
}

/// Results that only the caller knows.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Wall time from the first process until all nodes were healthy.
    pub boot: Duration,
    /// The exit code of the run.
    pub exit_code: u8,
    /// The commands, by rank.
    pub commands: Vec<CommandOutcome>,
    /// The findings of the guests' debug kernels, by rank.
    pub watched: Vec<KernelFindings>,
}

/// How one node's command ended.
#[derive(Clone, Debug, Default)]
pub struct CommandOutcome {
    /// Its exit code; `None` if it did not end.
    pub exit_code: Option<u8>,
    /// Why it failed, if it did.
    pub error: Option<String>,
    /// The last lines on its guest's console, if it failed.
    pub console: Vec<String>,
    /// The last lines of its output, if it failed.
    pub output: Vec<String>,
    /// Its measurements.
    pub results: Vec<WallResult>,
}

impl CommandOutcome {
    /// The outcome of the command on this node, with its measurements if it is a `niclab-perf`. Without a code it did
    /// not end.
    #[must_use]
    pub fn new(node: &str, code: Option<Result<u8, String>>, output: &[u8]) -> Self {
        let results = perf::results(node, output).unwrap_or_else(|error| {
            eprintln!("niclab: {node}: the report does not contain its measurements: {error}");
            Vec::new()
        });
        let (exit_code, error) = match code {
            Some(Ok(code)) => (Some(code), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        Self { exit_code, error, results, ..Self::default() }
    }

    /// Adds how the command failed, if it did.
    #[must_use]
    pub fn failed(self, failure: Option<ProgramFailure>) -> Self {
        match failure {
            Some(ProgramFailure { how, console }) => Self { error: Some(how), console, ..self },
            None => self,
        }
    }

    /// The outcome on a node of a cluster that ended before the command did.
    #[must_use]
    pub fn of_ended_cluster(end: Option<&NodeEnd>) -> Self {
        let mut outcome =
            Self { error: Some("the cluster ended before the command".to_owned()), ..Self::default() };
        end.into_iter().for_each(|end| outcome.node_ended(end));
        outcome
    }

    /// Adds that the command's node has ended.
    pub fn node_ended(&mut self, end: &NodeEnd) {
        self.error = Some(end.reason.clone());
        self.console = end.details.lines().map(str::to_owned).collect();
    }
}

impl Measurement {
    /// Reads every counter.
    ///
    /// # Errors
    /// If the daemon does not answer, or the cluster ends.
    pub fn begin(running: &mut RunningCluster) -> Result<Self> {
        let kernels = kernels::read(running)?;
        let device = monitor::begin_measurement(&running.plan().monitor_socket)?;
        Ok(Self { begin: Instant::now(), device, kernels })
    }

    /// Reads every counter again.
    ///
    /// # Errors
    /// If the daemon does not answer, or the cluster ends.
    pub fn end(self, running: &mut RunningCluster) -> Result<Readings> {
        let wall = self.begin.elapsed();
        let device = monitor::stats(&running.plan().monitor_socket)?.since(&self.device);
        let kernels = match &self.kernels {
            Some(before) => kernels::read(running)?.map(|after| differences(before, &after)),
            None => None,
        };
        Ok(Readings { wall, device, kernels })
    }
}

impl Measurement {
    /// Reads the daemon's counters again, but not the guests', which may have ended.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn end_without_guests(self, running: &RunningCluster) -> Result<Readings> {
        let wall = self.begin.elapsed();
        let device = monitor::stats(&running.plan().monitor_socket)?.since(&self.device);
        Ok(Readings { wall, device, kernels: None })
    }
}

impl Readings {
    /// The report of these readings.
    #[must_use]
    pub fn report(self, running: &RunningCluster, cluster: &Cluster, outcome: Outcome) -> Report {
        let Self { wall: commands, device, kernels } = self;
        let named = running.plan().nodes.iter().zip(kernels.iter().flatten());
        // A guest that did not report is left out.
        let named = named.filter(|(_, kernel)| kernel.time != GuestTime::default());
        let guests = named.map(|(node, kernel)| GuestTime { node: node.name.clone(), ..kernel.time.clone() });
        let wall = WallFigures {
            boot_ns: nanoseconds(outcome.boot),
            commands_ns: nanoseconds(commands),
            results: outcome.commands.iter().flat_map(|command| command.results.clone()).collect(),
            guests: guests.collect(),
        };
        let plan = running.plan();
        let mut report = Report {
            version: REPORT_VERSION,
            niclab_version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: Mode::Live,
            cluster: plan.name.to_string(),
            seed: cluster.seed,
            profile: cluster.profile.name.clone(),
            nic: nic_names(cluster.nodes.iter().map(|node| node.nic.model)),
            accelerator: Some(Accelerator {
                name: plan.accelerator.name().to_owned(),
                reason: plan.accelerator.reason.clone(),
            }),
            qemu_version: Some(plan.qemu_version.clone()),
            kernel_release: Some(plan.kernel_release.clone()),
            workload: None,
            exit_code: Some(outcome.exit_code),
            wall: Some(wall),
            model: device.model,
            nodes: device.nodes,
            fabric: device.fabric,
            total: Vec::new(),
            checks: Vec::new(),
        };
        add_outcomes(&mut report, outcome.commands, kernels);
        for (node, watched) in report.nodes.iter_mut().zip(outcome.watched) {
            node.kernel_findings = watched.findings;
            node.kernel_debug_tools = watched.tools.iter().map(|tool| tool.name().to_owned()).collect();
        }
        report.checks.extend(kernels::check(&report.nodes));
        let received = report.nodes.iter().fold((0_u64, 0_u64), |(messages, bytes), node| {
            (messages.wrapping_add(node.messages_received), bytes.wrapping_add(node.bytes_received))
        });
        report.model.set_rates(received.0, received.1, report.model.time_ps);
        report.add_up();
        report
    }
}

fn add_outcomes(report: &mut Report, commands: Vec<CommandOutcome>, kernels: Option<Vec<Kernel>>) {
    for (node, command) in report.nodes.iter_mut().zip(commands) {
        node.exit_code = command.exit_code;
        node.error = command.error;
        node.console = command.console;
        node.output = command.output;
    }
    for (node, kernel) in report.nodes.iter_mut().zip(kernels.into_iter().flatten()) {
        // A guest that has ended has no counts.
        node.guest_interrupts = Some(kernel.interrupts).filter(|counts| !counts.is_empty());
    }
}

fn differences(before: &[Kernel], after: &[Kernel]) -> Vec<Kernel> {
    before.iter().zip(after).map(|(before, after)| kernels::difference(before, after)).collect()
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
