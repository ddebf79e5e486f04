//! Scenarios in guests: a booted cluster on which `niclab-perf` performs workloads.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use niclab_agent::message::WINDOW_BYTES;
use niclab_spec::{
    Cluster, ClusterName, RecordingError, Report, Scenario, SimConfig, Workload, WorkloadKind,
};
use thiserror::Error;

use super::conduct::conduct;
use crate::{
    arguments::ClusterArgs,
    boot::{prepare, running::RunningCluster},
    debug_kernel::{self, KernelFindings},
    host::{exit_code::OWN_FAILURE, runtime::RuntimeRoot},
    report::live::{CommandOutcome, Measurement, Outcome},
};

/// Longest wall time of one workload.
const WORKLOAD_TIMEOUT: Duration = Duration::from_secs(300);

/// The cue at which what is measured begins.
const CUE_WARM: &str = "warm";

/// The cue at which it ends.
const CUE_MEASURED: &str = "measured";

/// Bytes that a guest takes before its program reads any, less those of answers to cues.
const MAX_PROGRAMS_BYTES: usize = WINDOW_BYTES as usize - 1024;

/// Guests cannot perform the workload.
#[derive(Debug, Error)]
pub enum Unperformable {
    /// What they should replay.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// They cannot be told of it.
    #[error(
        "guests are told of {MAX_PROGRAMS_BYTES} bytes of a workload, and this one takes {bytes}: record fewer messages, or use \
         mode = \"sim\""
    )]
    TooLong {
        /// Of the JSON document.
        bytes: usize,
    },
}

/// A cluster that is up.
pub struct LiveCluster {
    running: RunningCluster,
    cluster: Cluster,
    boot: Duration,
    workload: Workload,
    /// The workload as guests are told of it: a line.
    programs: Vec<u8>,
}

impl LiveCluster {
    /// Boots the scenario's cluster.
    ///
    /// # Errors
    /// [`Unperformable`], or when it cannot be booted.
    pub fn boot(scenario: &Scenario, offline: bool) -> Result<Self> {
        let programs = programs(scenario)?;
        let root = RuntimeRoot::locate()?;
        root.sweep();
        let cluster = scenario.cluster.clone();
        let name = cluster.name.clone().unwrap_or_else(|| ClusterName::of_run(std::process::id()));
        let args = ClusterArgs { offline, no_share: true, ..ClusterArgs::default() };
        let plan = prepare::plan(&args, &cluster, &name, &root, offline)?;
        let folder = root.claim(&name)?;
        let timeout = args.boot_timeout(plan.nodes.len(), plan.timeout_factor);
        let begin = Instant::now();
        let running = RunningCluster::boot(plan, folder, timeout, &mut |_| {})?;
        let workload = scenario.workload.clone();
        Ok(Self { running, cluster, boot: begin.elapsed(), workload, programs })
    }

    /// Has guests perform the workload of another scenario of this cluster from now on.
    ///
    /// # Errors
    /// [`Unperformable`].
    pub fn change_workload(&mut self, scenario: &Scenario) -> Result<(), Unperformable> {
        self.programs = programs(scenario)?;
        self.workload = scenario.workload.clone();
        Ok(())
    }

    /// Performs the workload, and reports what it added to the counts.
    ///
    /// # Errors
    /// When the cluster ends or takes too long.
    pub fn measure(&mut self) -> Result<Report> {
        let command = ["niclab-perf", "workload", "--json", "--spec", "-"].map(str::to_owned);
        let programs = self.programs.clone();
        let report = self.coordinated(&command, &programs)?;
        Ok(Report { workload: Some(self.workload.clone()), ..report })
    }

    /// Runs the benchmark of the library that does what the workload does, a ping-pong or a stream, with more
    /// arguments: over TCP, say.
    ///
    /// # Errors
    /// As [`Self::measure`].
    pub fn benchmark(&mut self, more: &[&str]) -> Result<Report> {
        let command = benchmark_command(&self.workload, more);
        self.perform(&command)
    }

    /// Runs this command on every node: a `niclab-perf` that is coordinated, or what has its cues and its report. What is
    /// reported lies between the cues.
    ///
    /// # Errors
    /// As [`Self::measure`].
    pub fn perform(&mut self, command: &[String]) -> Result<Report> {
        self.coordinated(command, &[])
    }

    /// [`Self::perform`] with this on standard input before the answers to cues.
    fn coordinated(&mut self, command: &[String], stdin: &[u8]) -> Result<Report> {
        let (mut measurement, mut readings) = (None, None);
        let mut at_cue = |running: &mut RunningCluster, cue: &str| -> Result<()> {
            match (cue, measurement.take()) {
                (CUE_WARM, _) => measurement = Some(Measurement::begin(running)?),
                (CUE_MEASURED, Some(begun)) => readings = Some(Measurement::end(begun, running)?),
                _ => {}
            }
            Ok(())
        };
        let limit = WORKLOAD_TIMEOUT * self.running.plan().timeout_factor;
        let ended = conduct(&mut self.running, command, stdin, limit, &mut at_cue)?;
        let nodes = self.running.plan().nodes.iter().zip(&ended);
        let commands: Vec<CommandOutcome> = nodes
            .map(|(node, ended)| CommandOutcome::new(&node.name, Some(ended.code.clone()), &ended.stdout))
            .collect();
        let Some(readings) = readings else { bail!("{}", why_unmeasured(&commands)) };
        let codes = ended.iter().map(|ended| *ended.code.as_ref().unwrap_or(&OWN_FAILURE));
        let exit_code = codes.into_iter().find(|code| *code != 0).unwrap_or(0);
        let outcome = Outcome { boot: self.boot, exit_code, commands, ..Outcome::default() };
        Ok(readings.report(&self.running, &self.cluster, outcome))
    }

    /// What the guests' kernels have found so far; empty if they do not watch.
    ///
    /// # Errors
    /// When the cluster ends.
    pub fn watched(&mut self) -> Result<Vec<KernelFindings>> {
        debug_kernel::look(&mut self.running)
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

/// The scenario's workload as guests are told of it.
fn programs(scenario: &Scenario) -> Result<Vec<u8>, Unperformable> {
    let config = SimConfig::new(&scenario.cluster, "", &scenario.workload);
    let programs = config.programs(config.recorded(Path::new(""))?);
    // Numbers, names and lists of these: there is nothing that JSON cannot say.
    let mut line = serde_json::to_vec(&programs).unwrap_or_default();
    line.push(b'\n');
    if line.len() > MAX_PROGRAMS_BYTES { Err(Unperformable::TooLong { bytes: line.len() }) } else { Ok(line) }
}

/// A ping-pong or a stream: with a ratio to it, a scenario was refused if its workload is another.
fn benchmark_command(workload: &Workload, more: &[&str]) -> Vec<String> {
    let benchmark = if workload.kind == WorkloadKind::Stream { "stream" } else { "pingpong" };
    let numbers = [
        ("--size", u64::from(workload.message_bytes)),
        ("--iterations", workload.count),
        ("--warmup", workload.warmup),
    ];
    let fixed = ["niclab-perf", benchmark, "--json", "--coordinated"];
    let mut command: Vec<String> = fixed.iter().chain(more).map(|argument| (*argument).to_owned()).collect();
    command.extend(numbers.into_iter().flat_map(|(option, number)| [option.to_owned(), number.to_string()]));
    command
}

#[cfg(test)]
mod tests {
    use niclab_spec::Source;

    use super::*;

    fn told(text: &str) -> Result<String, Unperformable> {
        let scenario = Source::from_text("s.toml", text).scenario().unwrap();
        programs(&scenario).map(|line| String::from_utf8(line).unwrap())
    }

    #[test]
    fn guests_are_told_of_every_kind_of_workload_in_one_line() {
        for kind in WorkloadKind::ALL.into_iter().filter(|kind| *kind != WorkloadKind::Replay) {
            let name = kind.name();
            let nic = match kind {
                WorkloadKind::Reduce => "model = \"inic\"",
                WorkloadKind::Echo => "model = \"grim\", grim.io_card_channel = 7",
                _ => "model = \"ultra\"",
            };
            let cluster = format!("nodes = 4, nic = {{ {nic} }}");
            let text = format!("mode = \"live\"\ncluster = {{ {cluster} }}\nworkload.kind = \"{name}\"");
            let line = told(&text).unwrap();
            assert!(line.contains(name) && line.find('\n') == Some(line.len() - 1), "{line}");
        }
    }

    #[test]
    fn a_recording_travels_along_and_one_that_is_too_long_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        let scenario = format!("mode = \"live\"\n[workload]\nkind = \"replay\"\nrecording = {path:?}");
        let record = |count: usize| {
            let message = r#"{"model_time_ps": 5, "node": 1, "port": 2, "to": 0, "to_port": 3, "bytes": 16}"#;
            let lines = vec![message; count].join("\n");
            let text =
                format!("{{\"niclab_recording\": 2, \"nodes\": 2}}\n{lines}\n{{\"messages\": {count}}}\n");
            std::fs::write(&path, text).unwrap();
        };
        record(2);
        assert!(told(&scenario).unwrap().contains("[[5,1,2,0,3,16,false],[5,1,2,0,3,16,false]]"));
        record(20_000);
        assert!(matches!(told(&scenario), Err(Unperformable::TooLong { bytes: 400_000.. })));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(told(&scenario), Err(Unperformable::Recording(_))));
    }

    #[test]
    fn a_benchmark_is_a_command_line() {
        let workload = Workload { count: 7, ..Workload::new(WorkloadKind::Stream) };
        let line = benchmark_command(&workload, &["--transport", "tcp"]).join(" ");
        assert!(
            line.ends_with("stream --json --coordinated --transport tcp --size 16 --iterations 7 --warmup 0"),
            "{line}"
        );
    }
}
