//! Live scenarios: `niclab-perf` runs workloads in the guests of a booted cluster, or the user's program runs there.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use niclab_agent::{Exec, message::WINDOW_BYTES};
use niclab_spec::{
    Cluster, ClusterName, RecordingError, Report, Scenario, SimConfig, Workload, WorkloadKind,
};
use thiserror::Error;

use super::{
    budget::{self, Verdict},
    conduct::{Ended, conduct},
};
use crate::{
    arguments::ClusterArgs,
    boot::{
        prepare,
        running::{Failure, RunningCluster},
    },
    daemon::monitor,
    debug_kernel::{self, KernelFindings},
    host::{exit_code::OWN_FAILURE, runtime::RuntimeRoot},
    report::live::{CommandOutcome, Measurement, Outcome},
    user_program::{self, Program, StdoutUse, TimeLimit},
};

/// Longest wall time of one workload, and of a program without a time limit of its own.
const WORKLOAD_TIMEOUT: Duration = Duration::from_secs(300);

/// The cue at which the measured part begins.
const CUE_WARM: &str = "warm";

/// The cue at which the measured part ends.
const CUE_MEASURED: &str = "measured";

/// Bytes that a guest buffers before its program reads any, less those of answers to cues.
const MAX_PROGRAMS_BYTES: usize = WINDOW_BYTES as usize - 1024;

/// The guests cannot run the workload.
#[derive(Debug, Error)]
pub enum Unperformable {
    /// The recording to replay cannot be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The workload is too long to send to the guests.
    #[error(
        "the workload takes {bytes} bytes, and guests accept at most {MAX_PROGRAMS_BYTES}: record fewer messages, or \
         use mode = \"sim\""
    )]
    TooLong {
        /// Size of the JSON document.
        bytes: usize,
    },
    /// The program's folder cannot be shared with the guests.
    #[error("cannot use the program's folder {}: {error}\n  fix: correct `folder` of [workload]", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
}

/// A workload did not end, because messages that it waits for were lost.
#[derive(Debug, Error)]
#[error("{}; {reason}", .verdict)]
pub struct MessagesLost {
    /// The verdict that no message may be lost.
    pub verdict: Verdict,
    /// How the workload ended.
    pub reason: String,
}

/// A cluster that is up, with its workload.
pub struct LiveCluster {
    running: RunningCluster,
    cluster: Cluster,
    boot: Duration,
    workload: Workload,
    /// The workload as the guests read it: one line of JSON.
    programs: Vec<u8>,
    /// If the last program did not end in time: on which nodes.
    timed_out: Option<String>,
}

impl LiveCluster {
    /// Boots the scenario's cluster.
    ///
    /// # Errors
    /// [`Unperformable`], or if the cluster cannot be booted.
    pub fn boot(scenario: &Scenario, offline: bool) -> Result<Self> {
        let programs = programs(scenario)?;
        let root = RuntimeRoot::locate()?;
        root.sweep();
        let cluster = scenario.cluster.clone();
        let name = cluster.name.clone().unwrap_or_else(|| ClusterName::of_run(std::process::id()));
        let is_program = scenario.workload.kind == WorkloadKind::Program;
        let shared_folder = scenario.workload.folder.as_deref().map(existing).transpose()?;
        let args = ClusterArgs { offline, no_share: !is_program, shared_folder, ..ClusterArgs::default() };
        let plan = prepare::plan(&args, &cluster, &name, &root, offline)?;
        let folder = root.claim(&name)?;
        let timeout = args.boot_timeout(plan.nodes.len(), plan.timeout_factor);
        let begin = Instant::now();
        let running = RunningCluster::boot(plan, folder, timeout, &mut |_| {})?;
        let workload = scenario.workload.clone();
        Ok(Self { running, cluster, boot: begin.elapsed(), workload, programs, timed_out: None })
    }

    /// Sets the workload to that of another scenario of this cluster.
    ///
    /// # Errors
    /// [`Unperformable`].
    pub fn change_workload(&mut self, scenario: &Scenario) -> Result<(), Unperformable> {
        self.programs = programs(scenario)?;
        self.workload = scenario.workload.clone();
        Ok(())
    }

    /// Runs the workload, and reports by how much it increased the counts.
    ///
    /// # Errors
    /// If the cluster ends, or a workload of niclab's own takes too long; [`MessagesLost`] if lost messages may be the
    /// reason. A program of the user's that takes too long is killed, and [`Self::take_timed_out`] reports it.
    pub fn measure(&mut self) -> Result<Report> {
        let report = match self.workload.kind {
            WorkloadKind::Program => self.run_program(&self.workload.command.clone())?,
            _ => self.run_workload()?,
        };
        Ok(Report { workload: Some(self.workload.clone()), ..report })
    }

    /// If the program did not end in time in the last measurement: a message that names the nodes.
    pub fn take_timed_out(&mut self) -> Option<String> {
        self.timed_out.take()
    }

    /// Runs a command on every node, as the user's program: with its environment and time limit.
    ///
    /// # Errors
    /// If the cluster ends, or the command fails on a node.
    pub fn run_command(&mut self, command: &[String]) -> Result<Report> {
        let report = self.run_program(command)?;
        let line = command.join(" ");
        if let Some(timed_out) = self.take_timed_out() {
            bail!("`{line}`: {timed_out}");
        }
        if let Some(node) = report.nodes.iter().find(|node| node.exit_code != Some(0)) {
            let how = node.error.as_deref().unwrap_or("it did not end");
            bail!("`{line}` failed on {}: {how}", node.name);
        }
        Ok(report)
    }

    /// Runs the user's program on every node. The whole run is measured.
    fn run_program(&mut self, command: &[String]) -> Result<Report> {
        let usual = WORKLOAD_TIMEOUT * self.running.plan().timeout_factor;
        let limit = self.workload.timeout_s.map_or(usual, Duration::from_secs);
        let program = Program {
            exec: Exec { argv: command.to_vec(), env: self.workload.environment.clone(), ..Exec::default() },
            // niclab's standard output has the verdicts.
            stdout: StdoutUse::Stderr,
            limit: Some(TimeLimit { limit, set_by: "timeout_s" }),
        };
        let measurement = Measurement::begin(&mut self.running)?;
        let ends = user_program::run(&mut self.running, &program)?;
        let readings = measurement.end(&mut self.running)?;
        self.timed_out = ends.timed_out;
        let outcome = Outcome {
            boot: self.boot,
            exit_code: ends.exit_code,
            commands: ends.outcomes,
            ..Outcome::default()
        };
        Ok(readings.report(&self.running, &self.cluster, outcome))
    }

    /// Runs a workload of niclab's own.
    fn run_workload(&mut self) -> Result<Report> {
        let command = ["niclab-perf", "workload", "--json", "--spec", "-"].map(str::to_owned);
        let programs = self.programs.clone();
        self.coordinated(&command, &programs)
    }

    /// Runs the `niclab-perf` benchmark that corresponds to the workload, a ping-pong or a stream, with more arguments,
    /// such as TCP as transport.
    ///
    /// # Errors
    /// As [`Self::measure`].
    pub fn benchmark(&mut self, more: &[&str]) -> Result<Report> {
        let command = benchmark_command(&self.workload, more);
        self.perform(&command)
    }

    /// Runs this command on every node: a coordinated `niclab-perf`, or a command that prints the same cues and report.
    /// The report covers the time between the cues.
    ///
    /// # Errors
    /// As [`Self::measure`].
    pub fn perform(&mut self, command: &[String]) -> Result<Report> {
        self.coordinated(command, &[])
    }

    /// [`Self::perform`] with `stdin` on standard input before the answers to cues.
    fn coordinated(&mut self, command: &[String], stdin: &[u8]) -> Result<Report> {
        let socket = self.running.plan().monitor_socket.clone();
        let before = monitor::stats(&socket)?;
        self.between_cues(command, stdin).map_err(|error| {
            // A cluster that has ended counts nothing.
            let after = (!error.is::<Failure>()).then(|| monitor::stats(&socket).ok()).flatten();
            match after.and_then(|after| budget::loss(&after.since(&before).nodes)) {
                Some(verdict) => MessagesLost { verdict, reason: error.to_string() }.into(),
                None => error,
            }
        })
    }

    fn between_cues(&mut self, command: &[String], stdin: &[u8]) -> Result<Report> {
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
        let names = self.running.plan().nodes.iter().map(|node| node.name.as_str());
        let Some(readings) = readings else { bail!("{}", why_unmeasured(names.zip(&ended))) };
        let commands = names.zip(&ended).map(|(node, ended)| {
            let outcome = CommandOutcome::new(node, Some(ended.code.clone()), &ended.stdout);
            CommandOutcome { output: ended.output.clone(), ..outcome.failed(ended.failure.clone()) }
        });
        let commands: Vec<CommandOutcome> = commands.collect();
        let codes = ended.iter().map(|ended| *ended.code.as_ref().unwrap_or(&OWN_FAILURE));
        let exit_code = codes.into_iter().find(|code| *code != 0).unwrap_or(0);
        let outcome = Outcome { boot: self.boot, exit_code, commands, ..Outcome::default() };
        Ok(readings.report(&self.running, &self.cluster, outcome))
    }

    /// The findings of the guests' kernels so far; empty without a debug kernel.
    ///
    /// # Errors
    /// If the cluster ends.
    pub fn watched(&mut self) -> Result<Vec<KernelFindings>> {
        debug_kernel::look(&mut self.running)
    }

    /// Takes the cluster down.
    pub fn shut_down(self) {
        self.running.shut_down(false);
    }
}

/// Why the counters were not read: how the benchmarks ended on the nodes.
fn why_unmeasured<'a>(ends: impl IntoIterator<Item = (&'a str, &'a Ended)>) -> String {
    let reason = |(node, ended): (&str, &Ended)| {
        let how = match (&ended.failure, &ended.code) {
            (Some(failure), _) => failure.how.clone(),
            (None, Err(error)) => error.clone(),
            (None, Ok(code)) => format!("exit code {code}"),
        };
        let said = ended.output.last().map_or_else(String::new, |line| format!(" ({line})"));
        format!("\n  {node}: {how}{said}")
    };
    let reasons: String = ends.into_iter().map(reason).collect();
    format!("niclab-perf did not reach its measured part:{reasons}")
}

/// The absolute path of a folder that exists.
fn existing(folder: &Path) -> Result<PathBuf, Unperformable> {
    let found = folder
        .canonicalize()
        .and_then(|path| if path.is_dir() { Ok(path) } else { Err(io::ErrorKind::NotADirectory.into()) });
    found.map_err(|error| Unperformable::Folder { folder: folder.to_owned(), error })
}

/// The scenario's workload as the guests read it; nothing for the user's own program.
fn programs(scenario: &Scenario) -> Result<Vec<u8>, Unperformable> {
    if scenario.workload.kind == WorkloadKind::Program {
        return Ok(Vec::new());
    }
    let config = SimConfig::new(&scenario.cluster, "", &scenario.workload);
    let programs = config.programs(config.recorded(Path::new(""))?);
    // The document contains only numbers, names and lists, so it always serialises.
    let mut line = serde_json::to_vec(&programs).unwrap_or_default();
    line.push(b'\n');
    if line.len() > MAX_PROGRAMS_BYTES { Err(Unperformable::TooLong { bytes: line.len() }) } else { Ok(line) }
}

/// A ping-pong or a stream: a scenario with a ratio and another workload is refused earlier.
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

    fn sent(text: &str) -> Result<String, Unperformable> {
        let scenario = Source::from_text("s.toml", text).scenario().unwrap();
        programs(&scenario).map(|line| String::from_utf8(line).unwrap())
    }

    #[test]
    fn every_kind_of_workload_is_sent_in_one_line() {
        for kind in WorkloadKind::ALL.into_iter().filter(|kind| *kind != WorkloadKind::Replay) {
            let name = kind.name();
            let nic = match kind {
                WorkloadKind::Reduce => "model = \"inic\"",
                WorkloadKind::Echo => "model = \"grim\", grim.io_card_channel = 7",
                _ => "model = \"ultra\"",
            };
            let cluster = format!("nodes = 4, nic = {{ {nic} }}");
            let text = format!("mode = \"live\"\ncluster = {{ {cluster} }}\nworkload.kind = \"{name}\"");
            let line = sent(&text).unwrap();
            assert!(line.contains(name) && line.find('\n') == Some(line.len() - 1), "{line}");
        }
    }

    #[test]
    fn recording_is_sent_to_guests_unless_too_long() {
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
        assert!(sent(&scenario).unwrap().contains("[[5,1,2,0,3,16,false],[5,1,2,0,3,16,false]]"));
        record(20_000);
        assert!(matches!(sent(&scenario), Err(Unperformable::TooLong { bytes: 400_000.. })));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(sent(&scenario), Err(Unperformable::Recording(_))));
    }

    #[test]
    fn unmeasured_benchmark_names_each_node_and_its_last_words() {
        let ended = |code, output: &[&str]| Ended {
            code,
            stdout: Vec::new(),
            failure: None,
            output: output.iter().map(|&line| line.to_owned()).collect(),
        };
        let ends =
            [ended(Err("another node failed".into()), &[]), ended(Ok(3), &["first", "no more messages"])];
        assert_eq!(
            why_unmeasured(["node0", "node1"].into_iter().zip(&ends)),
            "niclab-perf did not reach its measured part:\n  node0: another node failed\n  node1: exit code 3 (no more \
             messages)"
        );
    }

    #[test]
    fn folder_of_a_program_must_exist() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        std::fs::write(&file, "").unwrap();
        assert!(existing(folder.path()).unwrap().is_absolute());
        for wrong in [&file, &folder.path().join("no")] {
            let message = existing(wrong).unwrap_err().to_string();
            assert!(message.contains(&wrong.display().to_string()) && message.contains("fix:"), "{message}");
        }
    }

    #[test]
    fn benchmark_command_has_the_workload_arguments() {
        let workload = Workload { count: 7, ..Workload::new(WorkloadKind::Stream) };
        let line = benchmark_command(&workload, &["--transport", "tcp"]).join(" ");
        assert!(
            line.ends_with("stream --json --coordinated --transport tcp --size 16 --iterations 7 --warmup 0"),
            "{line}"
        );
    }
}
