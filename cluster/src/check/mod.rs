//! `niclab check`: runs scenarios in the simulator and holds their reports to budgets.
//!
//! * [`budget`] judges a report, and compares two; it runs nothing;
//! * [`junit`] writes the verdicts for CI servers.

pub mod budget;
pub mod junit;

use std::{path::Path, time::Instant};

use niclab_spec::{
    Report, SimConfig, Source,
    scenario::{Scenario, ScenarioMode},
};

use budget::Verdict;
use serde::Serialize;

/// Every budget held.
pub const HELD: u8 = 0;
/// A budget is broken.
pub const BROKEN: u8 = 1;
/// The scenario is wrong.
pub const BAD_SCENARIO: u8 = 2;
/// It could not be run.
pub const NOT_RUN: u8 = 3;

/// What became of one scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// The file.
    pub scenario: String,
    /// Budgets, the simulator's own checks, and the comparison of repeated runs.
    pub verdicts: Vec<Verdict>,
    /// Why there is no verdict.
    pub error: Option<String>,
    /// Wall time that it took, in seconds.
    pub wall_s: f64,
    /// The exit code that it calls for.
    pub code: u8,
}

/// Checks one scenario; `simulate` runs it.
pub fn check(path: &Path, simulate: &mut dyn FnMut(&SimConfig) -> anyhow::Result<Report>) -> Checked {
    let begin = Instant::now();
    let result = read(path)
        .and_then(|scenario| run(path, &scenario, simulate).map_err(|error| (NOT_RUN, format!("{error:#}"))));
    let (verdicts, error, code) = match result {
        Ok(verdicts) if verdicts.iter().all(|verdict| verdict.held) => (verdicts, None, HELD),
        Ok(verdicts) => (verdicts, None, BROKEN),
        Err((code, error)) => (Vec::new(), Some(error), code),
    };
    let scenario = path.display().to_string();
    Checked { scenario, verdicts, error, wall_s: begin.elapsed().as_secs_f64(), code }
}

fn read(path: &Path) -> Result<Scenario, (u8, String)> {
    let bad = |error: niclab_spec::SpecError| (BAD_SCENARIO, error.to_string());
    let scenario = Source::read(path).and_then(|source| source.scenario()).map_err(bad)?;
    if scenario.mode != ScenarioMode::Sim {
        let error = format!(
            "{}: `niclab check` runs scenarios in the simulator only; mend: use mode = \"sim\"",
            path.display()
        );
        return Err((BAD_SCENARIO, error));
    }
    Ok(scenario)
}

fn run(
    path: &Path,
    scenario: &Scenario,
    simulate: &mut dyn FnMut(&SimConfig) -> anyhow::Result<Report>,
) -> anyhow::Result<Vec<Verdict>> {
    let name = path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let config = SimConfig::new(&scenario.cluster, &name, &scenario.workload);
    let first = simulate(&config)?;
    let mut verdicts = budget::verdicts(&scenario.budgets, &first);
    verdicts.extend(first.checks.iter().map(budget::of_checker));
    for _ in 1..scenario.repeat {
        verdicts.extend(budget::differences(&first, &simulate(&config)?));
    }
    Ok(verdicts)
}
