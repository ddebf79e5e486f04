//! `niclab report`: shows one report as tables, or compares several.

use anyhow::Result;
use niclab_cluster::report::{compare::Comparison, text::report_text};
use niclab_spec::Report;

use super::terminal;
use crate::arguments::ReportArgs;

/// Prints the report or the comparison.
///
/// # Errors
/// When a file is no report of this version; the message names the file, the line and the fix.
pub fn run(args: &ReportArgs) -> Result<u8> {
    let mut reports = Vec::new();
    for file in &args.files {
        reports.push((file.display().to_string(), Report::read(file)?));
    }
    let text = match reports.as_slice() {
        [(_, report)] if args.json => report.to_json(),
        [(_, report)] => report_text(report),
        _ => {
            let comparison = Comparison::new(&reports, args.per_node);
            if args.json { serde_json::to_string_pretty(&comparison)? } else { comparison.text() }
        }
    };
    terminal::print(&text)?;
    Ok(0)
}
