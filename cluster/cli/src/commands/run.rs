//! `niclab run`: boots a cluster, runs a command on every node, reports, and shuts down.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Result;
use niclab_agent::Exec;
use niclab_cluster::host::exit_code::OWN_FAILURE;
use niclab_cluster::{
    boot::{
        node_end::NodeEnd,
        prepare,
        running::{Failure, RunningCluster},
    },
    check::budget,
    daemon::{monitor, rules::rules_text},
    debug_kernel::{self, coverage},
    host::runtime::RuntimeRoot,
    page,
    report::{
        live::{CommandOutcome, Measurement, Outcome},
        text::report_text,
    },
    supervisor::control::PLAN,
    user_program::{self, Program, StdoutUse, TimeLimit},
};
use niclab_output::{OutputErrors, OutputFile, Stdout, create_all};
use niclab_spec::{Budget, Cluster, ClusterName, Report, RuleChecking, report::Checked, watch::WatchSubject};

use super::{report::write_page, terminal, watch::RunWatches};
use crate::arguments::{ReportFormat, RunArgs};

/// The command if the user gives none.
const DEMONSTRATION: [&str; 3] = ["niclab-perf", "demo", "--json"];

/// The exit code if all commands succeeded, but the guests' debug kernel found a bug.
const KERNEL_BUG_FOUND: u8 = 1;

/// The exit code if all commands succeeded, but a node broke a rule and [`RuleChecking::is_failure`] holds.
const RULE_BROKEN: u8 = 1;

/// The exit code if a budget is broken, and no command returned another code.
const BUDGET_BROKEN: u8 = 1;

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
/// When a budget is invalid, a file cannot be written, the cluster cannot be booted, or the cluster ends before all
/// commands have ended.
pub fn run(args: &RunArgs) -> Result<u8> {
    let outputs = Outputs::open(args)?;
    let root = RuntimeRoot::locate()?;
    root.sweep();
    let cluster = prepare::cluster(&args.cluster)?;
    let budgets = args.budgets.of(&cluster)?;
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
    let result = commands_and_report(&mut running, args, outputs, &cluster, &budgets, boot);
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
    budgets: &[Budget],
    boot: Duration,
) -> Result<u8> {
    // The demonstration always prints at least a summary. A user's command has a report only if an option asks for it.
    let format = args.report.or_else(|| args.command.is_empty().then_some(ReportFormat::Summary));
    let is_wanted =
        format.is_some() || outputs.report.is_some() || outputs.html.is_some() || !budgets.is_empty();
    let measurement = is_wanted.then(|| Measurement::begin(running)).transpose()?;
    // The observers run only inside the measured interval, so that their files contain only what the report measures.
    let watches = RunWatches::begin(outputs.watches, &running.plan().monitor_socket)?;
    let mut ends = match user_program::run(running, &program(args, args.report)) {
        Ok(ends) => ends,
        Err(error) => {
            if let (Some(begun), Some(failure)) = (measurement, error.downcast_ref::<Failure>()) {
                let report = report_of_failure(running, failure, begun, cluster, boot);
                report.map_or(Ok(()), |report| put_report(&report, outputs.report, outputs.html, format))?;
            }
            return Err(error);
        }
    };
    let mut exit_code = ends.exit_code;
    let watch_files = watches.end();
    let readings = measurement.map(|measurement| measurement.end(running)).transpose()?;
    // Only after the measurement has ended, because querying the debug kernels would change its results.
    let kernel_findings = debug_kernel::look(running)?;
    eprint!("{}", debug_kernel::text(&kernel_findings));
    if exit_code == 0 && debug_kernel::is_anything_found(&kernel_findings) {
        exit_code = KERNEL_BUG_FOUND;
    }
    for (rank, end) in running.ended_nodes() {
        ends.outcomes[*rank].node_ended(end);
        // The run has failed even if the node's command succeeded before the node ended.
        exit_code = if exit_code == 0 { OWN_FAILURE } else { exit_code };
    }
    if let Some(file) = outputs.coverage {
        coverage::write(running, file)?;
    }
    if let Some(readings) = readings {
        let outcome = Outcome { boot, exit_code, commands: ends.outcomes, watched: kernel_findings };
        let mut report = readings.report(running, cluster, outcome);
        // A command's own code stays. A time-out does not hide a broken budget, such as lost messages, which caused it.
        if judge(budgets, &mut report) && (exit_code == 0 || ends.timed_out.is_some()) {
            exit_code = BUDGET_BROKEN;
        }
        report.exit_code = Some(exit_code);
        put_report(&report, outputs.report, outputs.html, format)?;
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

/// The command line, and how niclab runs it.
fn program(args: &RunArgs, format: Option<ReportFormat>) -> Program {
    let is_demonstration = args.command.is_empty();
    let argv: Vec<String> =
        if is_demonstration { DEMONSTRATION.map(str::to_owned).to_vec() } else { args.command.clone() };
    let is_reported = format.is_some() || args.report_file.is_some();
    let is_kept = is_demonstration || (is_reported && is_measurement(&argv));
    let stdout = match (is_kept, format) {
        (true, Some(ReportFormat::Json)) => StdoutUse::KeepElseStderr,
        (true, _) => StdoutUse::Keep,
        (false, Some(ReportFormat::Json)) => StdoutUse::Stderr,
        (false, _) => StdoutUse::Stdout,
    };
    let limit =
        args.timeout.map(|seconds| TimeLimit { limit: Duration::from_secs(seconds), set_by: "--timeout" });
    Program { exec: Exec { argv, ..Exec::default() }, stdout, limit }
}

/// Whether the command is `niclab-perf` with JSON output. niclab includes that output in the report.
fn is_measurement(argv: &[String]) -> bool {
    let program = argv.first().and_then(|program| Path::new(program).file_name());
    program.is_some_and(|name| name == DEMONSTRATION[0]) && argv.iter().any(|argument| argument == "--json")
}

/// Prints the verdict of each broken budget, and adds all verdicts to the report. Returns whether one is broken.
fn judge(budgets: &[Budget], report: &mut Report) -> bool {
    let verdicts = budget::verdicts(budgets, report);
    let held = verdicts.iter().filter(|verdict| verdict.is_held()).count();
    for verdict in verdicts.iter().filter(|verdict| !verdict.is_held()) {
        eprintln!("niclab: broken budget: {verdict}");
    }
    if !verdicts.is_empty() {
        eprintln!("niclab: {held} of {} budgets held", verdicts.len());
    }
    report.checks.extend(verdicts.iter().map(|verdict| Checked {
        name: format!("budget: {}", verdict.what),
        held: verdict.is_held(),
        detail: format!("expected {}, found {}", verdict.expected, verdict.found),
    }));
    held < verdicts.len()
}

/// The report of a cluster that ended before all commands did, without the guests' own counts; `None` if the user ended
/// it, or if the daemon does not answer.
fn report_of_failure(
    running: &RunningCluster,
    failure: &Failure,
    measurement: Measurement,
    cluster: &Cluster,
    boot: Duration,
) -> Option<Report> {
    if failure.is_asked_for() {
        return None;
    }
    let readings = measurement.end_without_guests(running).ok()?;
    let ends = running.plan().nodes.iter().map(|node| NodeEnd::of_node(failure, &node.name));
    let commands = ends.map(|end| CommandOutcome::of_ended_cluster(end.as_ref())).collect();
    let outcome = Outcome { boot, exit_code: OWN_FAILURE, commands, ..Outcome::default() };
    Some(readings.report(running, cluster, outcome))
}

/// Writes the report and its page into their files, and prints it.
fn put_report(
    report: &Report,
    file: Option<OutputFile>,
    html: Option<OutputFile>,
    format: Option<ReportFormat>,
) -> Result<()> {
    // If a file cannot be written, niclab still prints the report on standard output.
    let written = file.map(|file| file.write(report.to_json().as_bytes())).transpose();
    let page = html.map(|file| write_page(file, report)).transpose();
    print_report(format, report)?;
    written?;
    page?;
    Ok(())
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
