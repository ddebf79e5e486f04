//! A page about runs, for people: one HTML file without scripts and without the network, or Markdown for a merge
//! request.
//!
//! * [`Run`] is what a page shows of one run; [`figures`] computes the numbers of its summary;
//! * [`document`] is the HTML file, with [`tables`], [`charts`] and the [`topology`];
//! * [`difference`] is the difference to a baseline; [`mod@markdown`] is the short form;
//! * [`mod@summary`] is a run in a few lines of a terminal.
//!
//! Names of nodes and lines of consoles come from users, so every text is escaped.

mod charts;
mod difference;
mod document;
mod figures;
mod markdown;
mod summary;
mod tables;
mod topology;

pub use document::html;
pub use markdown::markdown;
pub use summary::summary;

use niclab_spec::Report;

use crate::check::{
    self, Checked,
    budget::{self, Outcome, Verdict},
};

/// What a page shows of one run or of one scenario.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The name of the run: its cluster, its file or its scenario.
    pub name: String,
    /// The verdicts, which the page shows first.
    pub verdicts: Vec<Verdict>,
    /// What the scenario probably misses.
    pub warnings: Vec<String>,
    /// Why the run did not end as it should.
    pub error: Option<String>,
    /// The reports, each with its name. If there are two, the first is the baseline.
    pub reports: Vec<(String, Report)>,
}

impl Run {
    /// A run with its reports. Its verdicts are the results of the last report's commands and checks.
    #[must_use]
    pub fn new(name: &str, reports: Vec<(String, Report)>) -> Self {
        let verdicts = reports.last().map_or_else(Vec::new, |(_, report)| results(report));
        Self { name: name.to_owned(), verdicts, reports, ..Self::default() }
    }

    /// The run of a scenario. In mode `both`, the simulation is the baseline of the live run.
    #[must_use]
    pub fn of_check(checked: &Checked) -> Self {
        Self {
            name: checked.scenario.clone(),
            verdicts: checked.verdicts.clone(),
            warnings: checked.warnings.clone(),
            error: checked.error.clone(),
            reports: checked.reports.clone(),
        }
    }

    /// The report of the run.
    fn report(&self) -> Option<&Report> {
        self.reports.last().map(|(_, report)| report)
    }

    /// The report that the run is compared with.
    fn baseline(&self) -> Option<&Report> {
        let (_, earlier) = self.reports.split_last()?;
        earlier.first().map(|(_, report)| report)
    }

    /// The result in a few words, and whether it is good, bad or open.
    fn result(&self) -> (String, Outcome) {
        let count = |outcome| self.verdicts.iter().filter(|verdict| verdict.outcome == outcome).count();
        let (broken, undecided, all) =
            (count(Outcome::Broken), count(Outcome::Undecided), self.verdicts.len());
        match (broken, undecided) {
            _ if self.error.is_some() => ("not run to its end".to_owned(), Outcome::Broken),
            (0, 0) => (format!("all {all} held"), Outcome::Held),
            (0, _) => (format!("{undecided} of {all} undecided"), Outcome::Undecided),
            _ => (format!("{broken} of {all} broken"), Outcome::Broken),
        }
    }
}

/// The results of a report's commands, of its checks, of the rules and of the debug kernels.
fn results(report: &Report) -> Vec<Verdict> {
    let mut verdicts = check::commands(report);
    verdicts.extend(report.checks.iter().map(budget::of_checker));
    verdicts.extend(report.nodes.iter().filter(|node| node.rules_checked > 0).map(check::broken_rules));
    for node in report.nodes.iter().filter(|node| !node.kernel_findings.is_empty()) {
        verdicts.push(Verdict {
            what: format!("kernel of {}", node.name),
            outcome: Outcome::Broken,
            expected: "no findings".to_owned(),
            found: format!("{} findings", node.kernel_findings.len()),
            causes: node.kernel_findings.iter().map(|finding| finding.title.clone()).collect(),
        });
    }
    verdicts
}

/// The word for an outcome.
const fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Held => "held",
        Outcome::Broken => "BROKEN",
        Outcome::Undecided => "undecided",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::sample;

    #[test]
    fn run_has_results_of_commands_and_checks() {
        let mut report = sample();
        report.nodes[0].exit_code = Some(3);
        let run = Run::new("c", vec![("r".to_owned(), report)]);
        let found: Vec<(&str, Outcome)> =
            run.verdicts.iter().map(|verdict| (verdict.what.as_str(), verdict.outcome)).collect();
        assert_eq!(found, [("command of node0", Outcome::Broken), ("nothing-lost", Outcome::Broken)]);
        assert_eq!(run.result(), ("2 of 2 broken".to_owned(), Outcome::Broken));
        assert!(run.baseline().is_none());
    }
}
