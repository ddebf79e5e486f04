//! `niclab check`: scenarios against their budgets.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::terminal;
use crate::{
    check::{self, BROKEN, Checked, HELD, junit},
    cli::CheckArgs,
    simulator::Simulator,
};

/// Checks them; the code is the largest that any of them calls for.
///
/// # Errors
/// Where a signal ends it, when the simulator is missing, or the JUnit file cannot be written.
pub fn run(args: &CheckArgs) -> Result<u8> {
    let simulator = Simulator::locate(args.offline)?;
    let mut simulate = |config: &_| simulator.run(config);
    let checked: Vec<Checked> = (args.scenarios.iter())
        .map(|file| check::check(file, args.offline, &mut simulate))
        .collect::<Result<_>>()?;
    if let Some(path) = &args.junit {
        std::fs::write(path, junit::document(&checked))
            .with_context(|| format!("cannot write {}; is its folder there?", path.display()))?;
    }
    terminal::print(&if args.json { serde_json::to_string_pretty(&checked)? } else { text(&checked) })?;
    Ok(checked.iter().map(|checked| checked.code).max().unwrap_or(HELD))
}

fn text(checked: &[Checked]) -> String {
    let mut text = String::new();
    // Writing into a string does not fail.
    for one in checked {
        let word = match one.code {
            HELD => "held",
            BROKEN => "BROKEN",
            _ => "NOT RUN",
        };
        let held = one.verdicts.iter().filter(|verdict| verdict.held).count();
        let (all, wall_s) = (one.verdicts.len(), one.wall_s);
        let _ = writeln!(text, "{}: {word}, {held} of {all} held, {wall_s:.1} s wall", one.scenario);
        if let Some(error) = &one.error {
            let _ = writeln!(text, "  {error}");
        }
        for verdict in one.verdicts.iter().filter(|verdict| !verdict.held) {
            let _ =
                writeln!(text, "  {}: expected {}, found {}", verdict.what, verdict.expected, verdict.found);
            for cause in &verdict.causes {
                let _ = writeln!(text, "    {cause}");
            }
        }
    }
    text
}
