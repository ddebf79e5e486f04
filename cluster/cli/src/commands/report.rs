//! `niclab report`: shows one report as tables, or compares several.

use std::path::Path;

use anyhow::{Result, bail};
use niclab_cluster::{
    check::{BROKEN, HELD, budget::Verdict, change},
    page::{self, Run},
    report::{compare::Comparison, text::report_text},
};
use niclab_output::{OutputError, OutputFile, Stdout, create_all};
use niclab_spec::Report;
use serde::Serialize;

use super::{check, terminal};
use crate::reports::ReportArgs;

/// A comparison with the verdicts on its changes, as JSON.
#[derive(Serialize)]
struct Judged<'a> {
    #[serde(flatten)]
    comparison: &'a Comparison,
    #[serde(skip_serializing_if = "<[Verdict]>::is_empty")]
    verdicts: &'a [Verdict],
}

/// Prints the report or the comparison. Returns [`BROKEN`] if a figure has changed by more than a limit allows.
///
/// # Errors
/// When a file is no report of this version, or the page cannot be written; the message names the file and the fix.
pub fn run(args: &ReportArgs) -> Result<u8> {
    refuse_limits(args)?;
    let inputs: Vec<&Path> = args.files.iter().map(AsRef::as_ref).collect();
    let [html] = create_all([args.page.html.as_deref()], &inputs, Stdout::Taken)?;
    let mut reports = Vec::new();
    for file in &args.files {
        reports.push((file.display().to_string(), Report::read(file)?));
    }
    let verdicts = judge(args, &reports)?;
    let code = if verdicts.iter().all(Verdict::is_held) { HELD } else { BROKEN };
    let run = html.is_some() || args.markdown;
    let run = run.then(|| run_of(&reports, &verdicts)).transpose()?;
    let written = match (html, &run) {
        (Some(file), Some(run)) => {
            Some(file.write(page::html("niclab report", std::slice::from_ref(run)).as_bytes()))
        }
        _ => None,
    };
    let text = match (reports.as_slice(), &run) {
        (_, Some(run)) if args.markdown => page::markdown(std::slice::from_ref(run)),
        ([(_, report)], _) if args.json => report.to_json(),
        ([(_, report)], _) => report_text(report),
        _ => {
            let comparison = Comparison::new(&reports, args.per_node);
            if args.json {
                serde_json::to_string_pretty(&Judged { comparison: &comparison, verdicts: &verdicts })?
            } else if args.fail_if.is_empty() {
                comparison.text()
            } else {
                judged_text(comparison, &verdicts)
            }
        }
    };
    terminal::print(&text)?;
    check::code_with(code, written.transpose().map(drop))
}

/// Writes the page of a run that has no baseline.
///
/// # Errors
/// When the file cannot be written.
pub fn write_page(file: OutputFile, report: &Report) -> Result<(), OutputError> {
    let run = Run::new(&report.cluster, vec![(report.cluster.clone(), report.clone())]);
    file.write(page::html("niclab report", &[run]).as_bytes())
}

/// Refuses limits on changes that cannot be judged.
fn refuse_limits(args: &ReportArgs) -> Result<()> {
    if !args.fail_if.is_empty() && args.files.len() != 2 {
        bail!(
            "--fail-if compares two reports, and {} were given\n  fix: give the baseline, then the new report",
            args.files.len()
        );
    }
    if let Some(limit) = args.fail_if.iter().find(|limit| limit.is_wall() && !args.allow_wall) {
        bail!(
            "--fail-if '{limit}' limits a wall time, which depends on the machine and on its load\n  fix: limit a \
             count or a model time, or add --allow-wall if both runs had a quiet machine of their own"
        );
    }
    Ok(())
}

/// The verdicts on the changes from the first report to the second.
fn judge(args: &ReportArgs, reports: &[(String, Report)]) -> Result<Vec<Verdict>> {
    let [(_, base), (_, new)] = reports else { return Ok(Vec::new()) };
    for limit in &args.fail_if {
        for (file, report) in reports {
            let nodes: Vec<&str> = report.nodes.iter().map(|node| node.name.as_str()).collect();
            limit.check_node(file, &nodes)?;
        }
    }
    Ok(change::verdicts(&args.fail_if, base, new))
}

/// The run that a page shows.
fn run_of(reports: &[(String, Report)], verdicts: &[Verdict]) -> Result<Run> {
    let name = match reports {
        [(_, report)] => report.cluster.clone(),
        [(base, _), (new, report)] => format!("{}: {new} against {base}", report.cluster),
        _ => bail!(
            "a page shows one report, or one and its baseline, and {} were given\n  fix: give the baseline, then the \
             new report",
            reports.len()
        ),
    };
    let mut run = Run::new(&name, reports.to_vec());
    run.verdicts.splice(0..0, verdicts.iter().cloned());
    Ok(run)
}

/// The verdicts, and if one is broken, all counts and model times that have changed.
fn judged_text(comparison: Comparison, verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for verdict in verdicts {
        let word = if verdict.is_held() { "held" } else { "BROKEN" };
        text +=
            &format!("{}: {word}: expected {}, found {}\n", verdict.what, verdict.expected, verdict.found);
        for cause in &verdict.causes {
            text += &format!("  {cause}\n");
        }
    }
    if verdicts.iter().any(|verdict| !verdict.is_held()) {
        text += &format!("\nwhat has changed:\n{}", comparison.changes().text());
    }
    text
}
