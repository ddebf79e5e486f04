//! `niclab check`: compares scenarios with their budgets.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Result;
use niclab_cluster::{
    check::{self, BROKEN, Checked, HELD, budget::Outcome, junit},
    page::{self, Run},
    programs::simulator::Simulator,
};
use niclab_output::{OutputError, Stdout, create_all};
use niclab_spec::{GuestKernel, explain};

use super::terminal;
use crate::arguments::CheckArgs;

/// Checks the scenarios; returns the largest code of all.
///
/// # Errors
/// When a signal ends the check, the simulator is missing, or a file cannot be written. The files are opened before
/// anything runs.
pub fn run(args: &CheckArgs) -> Result<u8> {
    let scenarios: Vec<&Path> = args.scenarios.iter().map(PathBuf::as_path).collect();
    let paths = [args.junit.as_deref(), args.page.html.as_deref()];
    let [junit, html] = create_all(paths, &scenarios, Stdout::Taken)?;
    let simulator = Simulator::locate(args.offline)?;
    let mut simulate = |config: &_| simulator.run(config);
    let kernel = args.kernel.as_ref().map(|_| GuestKernel::Debug);
    let mut checked: Vec<Checked> = (args.scenarios.iter())
        .map(|file| {
            check::check(file, kernel.as_ref(), args.adversarial, args.offline, args.rules, &mut simulate)
        })
        .collect::<Result<_>>()?;
    if args.fail_on_undecided {
        checked.iter_mut().for_each(Checked::demand_decisions);
    }
    if args.ignore_wall_ratios {
        checked.iter_mut().for_each(Checked::excuse_wall_time);
    }
    // The file's error is reported after the verdicts, so that a full disk does not hide them.
    let written = junit.map(|file| file.write(junit::document(&checked).as_bytes())).transpose();
    let runs = || checked.iter().map(Run::of_check).collect::<Vec<_>>();
    let page = html.map(|file| file.write(page::html("niclab check", &runs()).as_bytes())).transpose();
    let written = written.and(page);
    terminal::print(&if args.json { serde_json::to_string_pretty(&checked)? } else { text(&checked) })?;
    let code = checked.iter().map(|checked| checked.code).max().unwrap_or(HELD);
    code_with(code, written.map(drop))
}

/// The code, given the result of writing the JUnit file. A verdict other than [`HELD`] takes precedence over the error.
pub(super) fn code_with(code: u8, written: Result<(), OutputError>) -> Result<u8> {
    match written {
        Err(error) if code != HELD => {
            eprintln!("niclab: {}", explain(&error));
            Ok(code)
        }
        written => Ok(written.map(|()| code)?),
    }
}

fn text(checked: &[Checked]) -> String {
    let mut text = String::new();
    for one in checked {
        let (held, undecided) = (one.count(Outcome::Held), one.count(Outcome::Undecided));
        let word = match one.code {
            HELD if undecided > 0 => "undecided",
            HELD => "held",
            BROKEN => "BROKEN",
            _ => "NOT RUN",
        };
        let (all, wall_s) = (one.verdicts.len(), one.wall_s);
        let open = if undecided > 0 { format!(", {undecided} undecided") } else { String::new() };
        let _ = writeln!(text, "{}: {word}, {held} of {all} held{open}, {wall_s:.1} s wall", one.scenario);
        for warning in &one.warnings {
            let _ = writeln!(text, "  warning: {}", warning.replace('\n', "\n  "));
        }
        if let Some(error) = &one.error {
            let _ = writeln!(text, "  {error}");
        }
        for verdict in one.verdicts.iter().filter(|verdict| !verdict.is_held()) {
            let open = if verdict.outcome == Outcome::Undecided { "undecided: " } else { "" };
            let _ = writeln!(text, "  {open}{verdict}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use niclab_cluster::check::budget::Verdict;

    #[test]
    fn broken_budget_keeps_its_code_when_the_file_fails() {
        let failed = || Err(OutputError::Special("x.xml".into()));
        assert_eq!(code_with(BROKEN, failed()).unwrap(), BROKEN);
        assert!(code_with(HELD, failed()).unwrap_err().to_string().contains("x.xml"));
        assert_eq!(code_with(BROKEN, Ok(())).unwrap(), BROKEN);
    }

    #[test]
    fn undecided_and_broken_verdicts_are_shown_differently() {
        let verdict = |what: &str, outcome| Verdict {
            what: what.into(),
            outcome,
            expected: "e".into(),
            found: "f".into(),
            causes: Vec::new(),
        };
        let mut checked = Checked {
            scenario: "s.toml".into(),
            verdicts: vec![verdict("a", Outcome::Held), verdict("b", Outcome::Undecided)],
            warnings: Vec::new(),
            error: None,
            reports: Vec::new(),
            wall_s: 1.0,
            code: HELD,
        };
        let all = text(std::slice::from_ref(&checked));
        assert_eq!(
            all,
            "s.toml: undecided, 1 of 2 held, 1 undecided, 1.0 s wall\n  undecided: b: expected e, found f\n"
        );
        checked.warnings.push("w".into());
        checked.verdicts.push(verdict("c", Outcome::Broken));
        checked.code = BROKEN;
        let all = text(&[checked]);
        assert!(all.starts_with("s.toml: BROKEN, 1 of 3 held, 1 undecided, "), "{all}");
        assert!(all.contains(" s wall\n  warning: w\n  undecided: "), "{all}");
        assert!(all.ends_with("  undecided: b: expected e, found f\n  c: expected e, found f\n"), "{all}");
    }
}
