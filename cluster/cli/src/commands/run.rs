//! `niclab run`: boots a cluster, runs a command on every node, reports, and shuts down.

use std::{
    io,
    path::Path,
    sync::{Arc, mpsc::Sender},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use niclab_agent::{Exec, ExitStatus, ToGuest};
use niclab_cluster::host::deadline::Deadline;
use niclab_cluster::host::exit_code::OWN_FAILURE;
use niclab_cluster::{
    boot::{
        prepare,
        running::{Event, Failure, RunningCluster},
    },
    daemon::{monitor, rules::rules_text},
    debug_kernel::{self, coverage},
    guests::{
        agent::{AgentClient, Output},
        program::{ConsoleMark, ProgramFailure},
    },
    host::runtime::RuntimeRoot,
    output::Prefixer,
    page,
    report::{
        live::{CommandOutcome, Measurement, Outcome},
        text::report_text,
    },
    supervisor::control::PLAN,
};
use niclab_output::{OutputErrors, OutputFile, Stdout, create_all, reader_is_gone};
use niclab_spec::{Cluster, ClusterName, Report, RuleChecking, watch::WatchSubject};

use super::{report::write_page, terminal, watch::RunWatches};
use crate::arguments::{ReportFormat, RunArgs};

/// The command if the user gives none.
const DEMONSTRATION: [&str; 3] = ["niclab-perf", "demo", "--json"];

/// The exit code if all commands succeeded, but the guests' debug kernel found a bug.
const KERNEL_BUG_FOUND: u8 = 1;

/// Maximum bytes of `niclab-perf`'s JSON that niclab keeps for the report; the demonstration prints less. niclab prints
/// all other output, and keeps none of it.
const MAX_RESULT_BYTES: usize = 4 * 1024 * 1024;

/// The exit code if all commands succeeded, but a node broke a rule and [`RuleChecking::is_failure`] holds.
const RULE_BROKEN: u8 = 1;

/// The timeout if the user gives none. A deadline at the largest `Duration` would overflow, so this is ten years.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The output files of a run, opened before the boot.
struct Outputs {
    report: Option<OutputFile>,
    html: Option<OutputFile>,
    coverage: Option<OutputFile>,
    watches: [(WatchSubject, Option<OutputFile>); 3],
}

impl Outputs {
    fn open(args: &RunArgs) -> Result<Self, OutputErrors> {
        let watch = &args.watch;
        let html = &args.page.html;
        let paths = [&args.report_file, html, &args.coverage, &watch.trace, &watch.capture, &watch.record];
        let cluster_file: Vec<&Path> = args.cluster.cluster.as_deref().into_iter().collect();
        let [report, html, coverage, trace, capture, recording] =
            create_all(paths.map(Option::as_deref), &cluster_file, Stdout::Taken)?;
        let watches = [
            (WatchSubject::Trace, trace),
            (WatchSubject::Capture, capture),
            (WatchSubject::Recording, recording),
        ];
        Ok(Self { report, html, coverage, watches })
    }
}

/// Boots the cluster and runs the command on every node. Returns the first exit code of a command that is not 0, else
/// the code of another failure, else 0.
///
/// # Errors
/// When a file cannot be written, the cluster cannot be booted, or the cluster ends before all commands have ended.
pub fn run(args: &RunArgs) -> Result<u8> {
    let outputs = Outputs::open(args)?;
    let root = RuntimeRoot::locate()?;
    root.sweep();
    let cluster = prepare::cluster(&args.cluster)?;
    let name = cluster.name.clone().unwrap_or_else(|| ClusterName::of_run(std::process::id()));
    let mut plan = prepare::plan(&args.cluster, &cluster, &name, &root, args.cluster.offline)?;
    plan.on_node_exit = args.node_exit.over(cluster.on_node_exit);
    if args.coverage.is_some() {
        coverage::check(&plan)?;
    }
    let folder = root.claim(&name)?;
    if cluster.rules == RuleChecking::Stop {
        // During the run, `niclab debug` reads this plan to find the guest that was stopped because it broke a rule.
        folder.write(PLAN, &serde_json::to_string(&plan)?)?;
    }
    let (count, accelerator) = (plan.nodes.len(), plan.accelerator.clone());
    let starting = plan.start.way.doing();
    eprintln!("niclab: {starting} {count} nodes ({}: {})", accelerator.name(), accelerator.reason);
    let begin = Instant::now();
    let timeout = args.cluster.boot_timeout(count, plan.timeout_factor);
    let mut running = RunningCluster::boot(plan, folder, timeout, &mut |node| {
        log::info!("{} is healthy", node.name);
    })?;
    let boot = begin.elapsed();
    eprintln!("niclab: {count} nodes healthy in {:.1} s", boot.as_secs_f64());
    running.plan().drivers_in_use().iter().for_each(|line| eprintln!("niclab: {line}"));
    let result = commands_and_report(&mut running, args, outputs, &cluster, boot);
    if result.is_err() {
        // The guests no longer answer, but the debug kernel has written its findings to their consoles.
        let kernel_findings = debug_kernel::look_at_consoles(running.plan());
        if debug_kernel::is_anything_found(&kernel_findings) {
            eprint!("{}", debug_kernel::text(&kernel_findings));
        }
    }
    running.shut_down(false);
    result
}

/// Runs the commands, and prints and writes the reports that the user wants.
fn commands_and_report(
    running: &mut RunningCluster,
    args: &RunArgs,
    outputs: Outputs,
    cluster: &Cluster,
    boot: Duration,
) -> Result<u8> {
    // The demonstration always prints at least a summary. A user's command has a report only if an option asks for it.
    let format = args.report.or_else(|| args.command.is_empty().then_some(ReportFormat::Summary));
    let is_wanted = format.is_some() || outputs.report.is_some() || outputs.html.is_some();
    let measurement = is_wanted.then(|| Measurement::begin(running)).transpose()?;
    // The observers run only inside the measured interval, so that their files contain only what the report measures.
    let watches = RunWatches::begin(outputs.watches, &running.plan().monitor_socket)?;
    let (mut commands, mut exit_code) = commands(running, args)?;
    let watch_files = watches.end();
    let readings = measurement.map(|measurement| measurement.end(running)).transpose()?;
    // Only after the measurement has ended, because querying the debug kernels would change its results.
    let kernel_findings = debug_kernel::look(running)?;
    eprint!("{}", debug_kernel::text(&kernel_findings));
    if exit_code == 0 && debug_kernel::is_anything_found(&kernel_findings) {
        exit_code = KERNEL_BUG_FOUND;
    }
    for (rank, end) in running.ended_nodes() {
        commands[*rank].node_ended(end);
        // The run has failed even if the node's command succeeded before the node ended.
        exit_code = if exit_code == 0 { OWN_FAILURE } else { exit_code };
    }
    if let Some(file) = outputs.coverage {
        coverage::write(running, file)?;
    }
    if let Some(readings) = readings {
        let report = readings.report(
            running,
            cluster,
            Outcome { boot, exit_code, commands, watched: kernel_findings },
        );
        // If the report's file cannot be written, niclab still prints the report on standard output.
        let written = outputs.report.map(|file| file.write(report.to_json().as_bytes())).transpose();
        let page = outputs.html.map(|file| write_page(file, &report)).transpose();
        print_report(format, &report)?;
        written?;
        page?;
    }
    for file in watch_files? {
        eprintln!("niclab: {}", file.text());
    }
    let has_broken_rule = cluster.rules.is_on() && has_broken_rule(running, format)?;
    Ok(if has_broken_rule && cluster.rules.is_failure() && exit_code == 0 { RULE_BROKEN } else { exit_code })
}

/// Whether any node broke a rule. Prints the broken rules, unless the report is printed as text, which contains them.
fn has_broken_rule(running: &RunningCluster, format: Option<ReportFormat>) -> Result<bool> {
    let nodes = monitor::stats(&running.plan().monitor_socket)?.nodes;
    if format != Some(ReportFormat::Text) {
        eprint!("{}", rules_text(&nodes));
    }
    Ok(nodes.iter().any(|node| !node.broken_rules.is_empty()))
}

/// Runs the command on every node, and waits until all have ended. Returns the outcome for each node, and the first
/// exit code that is not 0.
fn commands(running: &mut RunningCluster, args: &RunArgs) -> Result<(Vec<CommandOutcome>, u8)> {
    let is_demonstration = args.command.is_empty();
    let argv: Vec<String> =
        if is_demonstration { DEMONSTRATION.map(str::to_owned).to_vec() } else { args.command.clone() };
    let is_reported = args.report.is_some() || args.report_file.is_some();
    let keep = is_demonstration || (is_reported && is_measurement(&argv));
    let marks: Vec<ConsoleMark> =
        running.plan().nodes.iter().map(|node| ConsoleMark::now(&node.console)).collect();
    let results = start_all(running, &argv, args.report == Some(ReportFormat::Json), keep);
    let timeout = args.timeout.map_or(FOREVER, Duration::from_secs);
    let deadline = Deadline::after(timeout);
    let mut codes: Vec<Option<Result<u8, String>>> = vec![None; running.plan().nodes.len()];
    let mut first_error_code = 0;
    while codes.iter().any(Option::is_none) {
        let Some(event) = running.next_event(deadline)? else {
            return Err(running.with_consoles(Failure::TimedOut(timeout)).into());
        };
        // Commands that read guests' counters before may end only now. Their numbers are larger than all ranks.
        if let Event::CommandOver(rank, result) = event
            && rank < codes.len()
        {
            if first_error_code == 0 {
                first_error_code = *result.as_ref().unwrap_or(&OWN_FAILURE);
            }
            if let Err(error) = &result
                && !running.ended_nodes().contains_key(&rank)
                && !reader_is_gone()
            {
                eprintln!("niclab: {}: {error}", running.plan().nodes[rank].name);
            }
            codes[rank] = Some(result);
        }
    }
    let ended: Vec<CommandEnd> =
        results.into_iter().map(|result| result.join().unwrap_or_default()).collect();
    let failures: Vec<Option<ProgramFailure>> =
        marks.iter().zip(&ended).map(|(mark, ended)| mark.failure(ended.status?)).collect();
    print_failures(running, &failures);
    let nodes = running.plan().nodes.iter().zip(codes).zip(ended).zip(failures);
    let outcomes = nodes.map(|(((node, code), ended), failure)| {
        CommandOutcome::new(&node.name, code, &ended.output).failed(failure)
    });
    Ok((outcomes.collect(), first_error_code))
}

/// Prints how the command failed on each node, and the folder in which niclab keeps the consoles.
fn print_failures(running: &mut RunningCluster, failures: &[Option<ProgramFailure>]) {
    let nodes = running.plan().nodes.iter().zip(failures);
    for (node, failure) in nodes.filter_map(|(node, failure)| Some((&node.name, failure.as_ref()?))) {
        eprintln!("niclab: {node}: the command failed: {}", failure.how);
        failure.console.iter().for_each(|line| eprintln!("niclab: {node}: console: {line}"));
    }
    let has_failed = failures.iter().any(Option::is_some) || !running.ended_nodes().is_empty();
    if has_failed && let Some(folder) = running.keep_consoles() {
        eprintln!("niclab: the consoles of all nodes are kept in {}", folder.display());
    }
}

/// Whether the command is `niclab-perf` with JSON output. niclab includes that output in the report.
fn is_measurement(argv: &[String]) -> bool {
    let program = argv.first().and_then(|program| Path::new(program).file_name());
    program.is_some_and(|name| name == DEMONSTRATION[0]) && argv.iter().any(|argument| argument == "--json")
}

/// The result of a command on one node.
#[derive(Default)]
struct CommandEnd {
    /// Its standard output, if niclab keeps it for the report.
    output: Vec<u8>,
    /// The exit status, if the command started.
    status: Option<ExitStatus>,
}

/// Starts the command on every node, each with a thread that relays its output. `to_stderr`: its standard output goes
/// to standard error, because the report on standard output is JSON. `keep`: niclab keeps it for the report instead.
fn start_all(
    running: &RunningCluster,
    argv: &[String],
    to_stderr: bool,
    keep: bool,
) -> Vec<thread::JoinHandle<CommandEnd>> {
    let width = running.plan().nodes.iter().map(|node| node.name.len()).max().unwrap_or(0);
    let nodes = running.plan().nodes.iter().zip(running.agents()).enumerate();
    nodes
        .map(|(rank, (node, agent))| {
            let relay = Relay {
                rank,
                stdout: Prefixer::new(&node.name, width),
                stderr: Prefixer::new(&node.name, width),
                to_stderr,
                kept: keep.then(Vec::new),
            };
            let exec = Exec { argv: argv.to_vec(), ..Exec::default() };
            let (agent, sender) = (Arc::clone(agent), running.sender());
            thread::spawn(move || relay.run(&agent, exec, &sender))
        })
        .collect()
}

/// Relays one command's output to the user.
struct Relay {
    rank: usize,
    stdout: Prefixer,
    stderr: Prefixer,
    /// Whether its standard output goes to standard error.
    to_stderr: bool,
    /// The standard output that niclab keeps for the report instead of printing it.
    kept: Option<Vec<u8>>,
}

impl Relay {
    fn run(mut self, agent: &Arc<AgentClient>, exec: Exec, sender: &Sender<Event>) -> CommandEnd {
        let mut status = None;
        let result = self.relay(agent, exec, &mut status).map_err(|error| error.to_string());
        // Sending fails only while the cluster shuts down.
        let _ = sender.send(Event::CommandOver(self.rank, result));
        CommandEnd { output: self.kept.unwrap_or_default(), status }
    }

    fn relay(&mut self, agent: &Arc<AgentClient>, exec: Exec, status: &mut Option<ExitStatus>) -> Result<u8> {
        let command = agent.exec(exec)?;
        command.sender().send(ToGuest::StdinEnd)?;
        match command.follow(|output| self.print(output).map_err(cannot_print))? {
            Ok(ended) => {
                self.flush().map_err(cannot_print)?;
                *status = Some(ended);
                Ok(ended.shell_code())
            }
            Err(refusal) => {
                eprintln!("niclab: {}", refusal.message);
                Ok(refusal.code)
            }
        }
    }

    fn print(&mut self, output: Output<'_>) -> io::Result<()> {
        match (output, &mut self.kept) {
            // Output beyond the maximum is printed.
            (Output::Stdout(bytes), Some(kept)) if kept.len() + bytes.len() <= MAX_RESULT_BYTES => {
                kept.extend(bytes);
                Ok(())
            }
            (Output::Stdout(bytes), _) if !self.to_stderr => {
                self.stdout.push(bytes, &mut niclab_output::stdout())
            }
            (Output::Stdout(bytes), _) => self.stdout.push(bytes, &mut io::stderr().lock()),
            (Output::Stderr(bytes), _) => self.stderr.push(bytes, &mut io::stderr().lock()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.to_stderr {
            self.stdout.flush(&mut io::stderr().lock())?;
        } else {
            self.stdout.flush(&mut niclab_output::stdout())?;
        }
        self.stderr.flush(&mut io::stderr().lock())
    }
}

fn cannot_print(error: io::Error) -> anyhow::Error {
    anyhow::anyhow!("niclab ended the command because its output cannot be printed: {error}")
}

fn print_report(format: Option<ReportFormat>, report: &Report) -> Result<()> {
    match format {
        Some(ReportFormat::Json) => terminal::print(&report.to_json())?,
        Some(ReportFormat::Summary) => terminal::print(&format!("\n{}", page::summary(report)))?,
        Some(ReportFormat::Text) => terminal::print(&format!("\n{}", report_text(report)))?,
        None => {}
    }
    Ok(())
}
