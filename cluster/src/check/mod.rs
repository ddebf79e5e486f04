//! `niclab check`: runs scenarios, live or simulated, and compares their reports with budgets.
//!
//! * [`budget`] judges a report, and compares two; it runs no program; [`change`] judges the difference of two;
//! * [`live`] runs workloads in guests, which [`conduct`] synchronises; [`crate::programs::simulator`] runs
//!   simulations;
//! * [`ratio`] compares wall times with a baseline's in alternating runs, until [`sequence`] decides;
//! * [`junit`] writes the verdicts for CI servers.

pub mod budget;
pub mod change;
pub mod conduct;
pub mod junit;
pub mod live;
pub mod ratio;
pub mod sequence;

use std::{path::Path, time::Instant};

use anyhow::Result;
use niclab_spec::{
    GuestKernel, Report, RuleChecking, SimConfig, Source, WorkloadKind, explain,
    report::{Mode, NodeFigures},
    scenario::{Scenario, ScenarioMode},
};
use serde::Serialize;

use self::{
    budget::{Outcome, Verdict},
    live::{LiveCluster, MessagesLost, Unperformable},
};
use crate::{
    boot::running::Failure,
    daemon::rules::broken_rules_text,
    debug_kernel::{self, KernelFindings},
    programs::simulator::Refused,
};

/// No budget is broken: all held, or wall time did not decide.
pub const HELD: u8 = 0;
/// A budget is broken.
pub const BROKEN: u8 = 1;
/// The scenario is invalid.
pub const BAD_SCENARIO: u8 = 2;
/// A cluster could not be booted, or a run did not end.
pub const NOT_RUN: u8 = 3;

/// The results of one scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// The file.
    pub scenario: String,
    /// Budgets, the checks that each run made itself, and comparisons of runs. Verdicts from before an error stay.
    pub verdicts: Vec<Verdict>,
    /// What the scenario probably misses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why the scenario was not run to its end.
    pub error: Option<String>,
    /// The first report of each kind of run: the simulation's, then the live one's.
    #[serde(skip)]
    pub reports: Vec<(String, Report)>,
    /// Wall time that it took, in seconds.
    pub wall_s: f64,
    /// The exit code.
    pub code: u8,
}

/// Runs a simulation.
pub type Simulate<'a> = dyn FnMut(&SimConfig) -> Result<Report> + 'a;

/// Checks one scenario. `simulate` runs simulations; a live scenario boots guests. `rules` overrides the scenario's
/// choice.
///
/// # Errors
/// Only if a signal ends niclab.
pub fn check(
    path: &Path,
    kernel: Option<&GuestKernel>,
    adversarial: Option<u64>,
    offline: bool,
    rules: Option<RuleChecking>,
    simulate: &mut Simulate<'_>,
) -> Result<Checked> {
    let begin = Instant::now();
    let (mut verdicts, mut warnings, mut reports) = (Vec::new(), Vec::new(), Vec::new());
    let result = match Source::read(path).and_then(|source| source.scenario()) {
        Ok(mut scenario) => {
            scenario.cluster.make_adversarial(adversarial);
            if let Some(kernel) = kernel {
                scenario.cluster.set_kernel(kernel.clone());
            }
            scenario.cluster.rules = rules.unwrap_or(scenario.cluster.rules);
            warnings = scenario.warnings();
            run(path, &scenario, offline, simulate, (&mut verdicts, &mut reports)).map_err(|error| {
                let is_refused = error.is::<Refused>() || error.is::<Unperformable>();
                let code = if is_refused { BAD_SCENARIO } else { NOT_RUN };
                (code, explain(error.as_ref()), error.downcast::<Failure>().ok())
            })
        }
        Err(error) => Err((BAD_SCENARIO, error.to_string(), None)),
    };
    let (error, code) = match result {
        Ok(()) => (None, code_of(&verdicts)),
        Err((_, _, Some(signal @ Failure::Signal(_)))) => return Err(signal.into()),
        Err((code, error, _)) => (Some(error), code),
    };
    let scenario = path.display().to_string();
    Ok(Checked { scenario, verdicts, warnings, error, reports, wall_s: begin.elapsed().as_secs_f64(), code })
}

/// The exit code for these verdicts.
fn code_of(verdicts: &[Verdict]) -> u8 {
    if verdicts.iter().any(|verdict| verdict.outcome == Outcome::Broken) { BROKEN } else { HELD }
}

impl Checked {
    /// Turns undecided verdicts into broken ones.
    pub fn demand_decisions(&mut self) {
        for verdict in self.verdicts.iter_mut().filter(|verdict| verdict.outcome == Outcome::Undecided) {
            verdict.outcome = Outcome::Broken;
            verdict.found = format!("undecided: {}", verdict.found);
        }
        if self.error.is_none() {
            self.code = code_of(&self.verdicts);
        }
    }

    /// Turns broken ratios of wall times into undecided ones: a machine that is busy for long looks like a slow
    /// program.
    pub fn excuse_wall_time(&mut self) {
        let is_slow =
            |verdict: &&mut Verdict| verdict.outcome == Outcome::Broken && ratio::is_subject(&verdict.what);
        for verdict in self.verdicts.iter_mut().filter(is_slow) {
            verdict.outcome = Outcome::Undecided;
            verdict.found = format!("{}; ignored because of --ignore-wall-ratios", verdict.found);
        }
        if self.error.is_none() {
            self.code = code_of(&self.verdicts);
        }
    }

    /// The number of verdicts with this outcome.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> usize {
        self.verdicts.iter().filter(|verdict| verdict.outcome == outcome).count()
    }
}

fn run(
    path: &Path,
    scenario: &Scenario,
    offline: bool,
    simulate: &mut Simulate<'_>,
    (verdicts, kept): (&mut Vec<Verdict>, &mut Vec<(String, Report)>),
) -> Result<()> {
    if scenario.mode != ScenarioMode::Live {
        let name = path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let config = SimConfig::new(&scenario.cluster, &name, &scenario.workload);
        // If the mode is both, `repeat` applies to the live runs: simulations are deterministic.
        let runs = if scenario.mode == ScenarioMode::Sim { scenario.repeat } else { 1 };
        let reports: Vec<Report> = (0..runs).map(|_| simulate(&config)).collect::<Result<_>>()?;
        judge("sim", scenario, &reports, verdicts);
        kept.extend(reports.into_iter().next().map(|report| (Mode::Sim.name().to_owned(), report)));
    }
    if scenario.mode != ScenarioMode::Sim {
        let mut cluster = LiveCluster::boot(scenario, offline)?;
        let result = run_live(scenario, &mut cluster, kept, verdicts);
        cluster.shut_down();
        // Lost messages break the check, whether or not the workload survives the loss.
        match result.map_err(anyhow::Error::downcast::<MessagesLost>) {
            Err(Ok(lost)) => verdicts.extend(labelled("live", [with_reason(lost)])),
            Err(Err(error)) => return Err(error),
            Ok(()) => {}
        }
    }
    Ok(())
}

fn run_live(
    scenario: &Scenario,
    cluster: &mut LiveCluster,
    kept: &mut Vec<(String, Report)>,
    verdicts: &mut Vec<Verdict>,
) -> Result<()> {
    let (mut reports, mut timed_out) = (Vec::new(), None);
    for _ in 0..scenario.repeat {
        reports.push(cluster.measure()?);
        timed_out = cluster.take_timed_out();
        if timed_out.is_some() {
            break;
        }
    }
    judge("live", scenario, &reports, verdicts);
    if let Some(reason) = timed_out {
        let loss = reports.last().and_then(|report| budget::loss(&report.nodes));
        kept.extend(reports.into_iter().next().map(|report| (Mode::Live.name().to_owned(), report)));
        return Err(match loss {
            Some(verdict) => MessagesLost { verdict, reason }.into(),
            None => anyhow::Error::msg(reason),
        });
    }
    let simulated = kept.first().map(|(_, report)| report);
    // Estimates are not compared with the simulator's model time. So an estimate must break the check, not skip it.
    let exactness = reports.iter().filter(|_| simulated.is_some()).map(budget::exactness);
    for (number, verdict) in exactness.enumerate() {
        verdicts.extend(labelled(&format!("live, run {number}"), [verdict]));
    }
    if let (Some(simulated), Some(live)) = (simulated, reports.first()) {
        verdicts.extend(labelled("live against sim", budget::differences(simulated, live)));
    }
    kept.extend(reports.into_iter().next().map(|report| (Mode::Live.name().to_owned(), report)));
    for ratio in &scenario.ratios {
        verdicts.push(ratio::verdict(ratio, &scenario.workload, cluster)?);
    }
    verdicts.extend(cluster.watched()?.iter().map(kernel_verdict));
    Ok(())
}

/// Judges the budgets on the first run, the checks that each run made itself, and whether all runs have the same
/// counts. The counts of a user's program may differ, so its budgets are judged on each run.
fn judge(mode: &str, scenario: &Scenario, reports: &[Report], found: &mut Vec<Verdict>) {
    let Some((first, others)) = reports.split_first() else { return };
    let is_program = scenario.workload.kind == WorkloadKind::Program;
    if !is_program {
        found.extend(labelled(mode, budget::verdicts(&scenario.budgets, first)));
    }
    for (number, report) in reports.iter().enumerate() {
        let label = if others.is_empty() { mode.to_owned() } else { format!("{mode}, run {number}") };
        if is_program {
            found.extend(labelled(&label, budget::verdicts(&scenario.budgets, report)));
        }
        found.extend(labelled(&label, report.checks.iter().map(budget::of_checker)));
        found.extend(labelled(&label, commands(report)));
        if scenario.cluster.rules.is_failure() && report.exit_code.is_some() {
            found.extend(labelled(&label, report.nodes.iter().map(broken_rules)));
        }
    }
    for (number, other) in (1..).zip(others).filter(|_| !is_program) {
        let label = format!("{mode}, run {number} against run 0");
        found.extend(labelled(&label, budget::differences(first, other)));
    }
}

/// The verdict on lost messages, with the end of the workload as a cause.
fn with_reason(lost: MessagesLost) -> Verdict {
    let MessagesLost { mut verdict, reason } = lost;
    verdict.causes.extend(reason.lines().map(|line| line.trim_start().to_owned()));
    verdict
}

/// The verdict on what a node's debug kernel found.
fn kernel_verdict(node: &KernelFindings) -> Verdict {
    let found = debug_kernel::text(std::slice::from_ref(node));
    let lines = found.lines().map(str::to_owned);
    let is_quiet = node.findings.is_empty();
    Verdict {
        what: format!("live: kernel of {}", node.node),
        outcome: Outcome::of(is_quiet),
        expected: "no findings".to_owned(),
        found: format!("{} findings", node.findings.len()),
        causes: if is_quiet { Vec::new() } else { lines.collect() },
    }
}

/// The verdict on the rules that a node broke.
pub(crate) fn broken_rules(node: &NodeFigures) -> Verdict {
    let found: Vec<String> =
        node.broken_rules.iter().map(|(name, count)| format!("{name} {count} times")).collect();
    Verdict {
        what: format!("rules of {}", node.name),
        outcome: Outcome::of(found.is_empty()),
        expected: "none broken".to_owned(),
        found: if found.is_empty() { "none broken".to_owned() } else { found.join(", ") },
        causes: broken_rules_text(std::slice::from_ref(node)).lines().map(str::to_owned).collect(),
    }
}

/// The verdicts on how the commands of a live run ended.
pub(crate) fn commands(report: &Report) -> Vec<Verdict> {
    let nodes = report.nodes.iter().filter(|_| report.exit_code.is_some());
    nodes
        .map(|node| {
            let code = node.exit_code.map_or_else(|| "did not end".to_owned(), |code| format!("code {code}"));
            let console = node.console.iter().map(|line| format!("console: {line}"));
            let output = node.output.iter().map(|line| format!("output: {line}"));
            Verdict {
                what: format!("command of {}", node.name),
                outcome: Outcome::of(node.exit_code == Some(0)),
                expected: "code 0".to_owned(),
                found: node.error.clone().unwrap_or(code),
                causes: console.chain(output).collect(),
            }
        })
        .collect()
}

fn labelled(label: &str, verdicts: impl IntoIterator<Item = Verdict>) -> impl Iterator<Item = Verdict> {
    verdicts.into_iter().map(move |verdict| Verdict { what: format!("{label}: {}", verdict.what), ..verdict })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(outcomes: &[Outcome], error: Option<&str>, code: u8) -> Checked {
        let verdict = |outcome: &Outcome| Verdict {
            what: "wall time".into(),
            outcome: *outcome,
            expected: "at least 3 times".into(),
            found: "median 3".into(),
            causes: Vec::new(),
        };
        Checked {
            scenario: "s.toml".into(),
            verdicts: outcomes.iter().map(verdict).collect(),
            warnings: Vec::new(),
            error: error.map(str::to_owned),
            reports: Vec::new(),
            wall_s: 1.0,
            code,
        }
    }

    #[test]
    fn ignored_wall_time_excuses_no_other_verdict() {
        let mut checked = checked(&[Outcome::Held, Outcome::Broken], None, BROKEN);
        checked.excuse_wall_time();
        assert_eq!((checked.code, checked.count(Outcome::Broken)), (BROKEN, 1), "a budget on counts");
        checked.verdicts[1].what = "live: wall time of tcp divided by that of the modelled NIC".into();
        checked.excuse_wall_time();
        assert_eq!((checked.code, checked.count(Outcome::Undecided)), (HELD, 1));
        assert!(checked.verdicts[1].found.ends_with("; ignored because of --ignore-wall-ratios"));
        checked.verdicts[1].outcome = Outcome::Broken;
        checked.error = Some("the guest ended".to_owned());
        checked.code = NOT_RUN;
        checked.excuse_wall_time();
        assert_eq!(checked.code, NOT_RUN);
    }

    #[test]
    fn undecided_fails_only_if_decisions_are_demanded() {
        use Outcome::{Broken, Held, Undecided};
        for (outcomes, code, demanded) in [
            (vec![Held, Held], HELD, HELD),
            (vec![Held, Undecided], HELD, BROKEN),
            (vec![Undecided, Broken], BROKEN, BROKEN),
        ] {
            let mut checked = checked(&outcomes, None, HELD);
            assert_eq!(code_of(&checked.verdicts), code, "{outcomes:?}");
            checked.demand_decisions();
            assert_eq!(checked.code, demanded, "{outcomes:?}");
            assert_eq!(checked.count(Undecided), 0);
        }
    }

    #[test]
    fn broken_rule_breaks_the_check() {
        let mut node = NodeFigures::new("node0");
        assert_eq!(broken_rules(&node).outcome, Outcome::Held);
        node.broken_rules.insert("slot-free".to_owned(), 2);
        let verdict = broken_rules(&node);
        assert_eq!((verdict.outcome, verdict.found.as_str()), (Outcome::Broken, "slot-free 2 times"));
        assert_eq!(code_of(&[verdict]), BROKEN);
    }

    #[test]
    fn budgets_of_a_program_are_judged_on_each_run() {
        let verdicts = |workload: &str| {
            let budget = "[[budget]]\nwhat = \"messages\"\nat_least = 3\n";
            let text = format!("mode = \"live\"\nrepeat = 2\n[workload]\n{workload}\n{budget}");
            let scenario = Source::from_text("s.toml", text).scenario().unwrap();
            let report = |messages| {
                let node = NodeFigures { messages_received: messages, ..NodeFigures::new("node0") };
                Report { nodes: vec![node], ..Report::default() }
            };
            let mut found = Vec::new();
            judge("live", &scenario, &[report(3), report(2)], &mut found);
            found.into_iter().map(|verdict| (verdict.what, verdict.outcome)).collect::<Vec<_>>()
        };
        assert_eq!(
            verdicts("kind = \"program\"\ncommand = [\"x\"]"),
            [
                ("live, run 0: messages".to_owned(), Outcome::Held),
                ("live, run 1: messages".to_owned(), Outcome::Broken)
            ]
        );
        let of_niclab = verdicts("kind = \"stream\"");
        assert_eq!(of_niclab[0], ("live: messages".to_owned(), Outcome::Held));
        assert_eq!(of_niclab[1].1, Outcome::Broken, "other counts: {of_niclab:?}");
    }

    #[test]
    fn failed_command_is_shown_with_console_and_output() {
        let node = NodeFigures {
            exit_code: Some(139),
            error: Some("killed by signal 11 (SIGSEGV)".to_owned()),
            console: vec!["segfault at 0".to_owned()],
            output: vec!["round 7".to_owned()],
            ..NodeFigures::new("node1")
        };
        let report = Report { exit_code: Some(139), nodes: vec![node], ..Report::default() };
        let verdicts = commands(&report);
        assert_eq!(code_of(&verdicts), BROKEN);
        assert_eq!(
            verdicts[0].to_string(),
            "command of node1: expected code 0, found killed by signal 11 (SIGSEGV)\n    console: segfault at 0\n    \
             output: round 7"
        );
    }

    #[test]
    fn lost_messages_name_how_the_workload_ended() {
        let mut sender = NodeFigures::new("node0");
        sender.messages_sent = 3;
        let lost = MessagesLost {
            verdict: budget::loss(&[sender]).unwrap(),
            reason: "did not end:\n  node1: exit code 1".to_owned(),
        };
        let verdict = with_reason(lost);
        assert_eq!((verdict.outcome, verdict.found.as_str()), (Outcome::Broken, "3 of 3"));
        assert_eq!(verdict.causes, ["did not end:", "node1: exit code 1"]);
    }

    #[test]
    fn scenario_that_did_not_run_keeps_its_exit_code() {
        let mut checked = checked(&[Outcome::Undecided], Some("no boot"), NOT_RUN);
        checked.demand_decisions();
        assert_eq!((checked.code, checked.verdicts[0].found.as_str()), (NOT_RUN, "undecided: median 3"));
    }
}
