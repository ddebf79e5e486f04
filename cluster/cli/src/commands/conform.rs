//! `niclab conform`: a driver over everything that the manual allows a device, and that happens to drivers.

use std::{env, fmt::Write as _};

use anyhow::Result;
use niclab_cluster::{
    boot::prepare,
    conform::{
        self, FAILED, NOT_RUN, PASSED, Request, WRONG_USE,
        case::{self, Case},
        verdict::{Conformance, Verdict},
    },
    host::exit_code,
    output::table,
};

use super::terminal;
use crate::arguments::ConformArgs;

/// Lines of what guests said that a table shows; JSON has all.
const SAID_LINES: usize = 8;

/// Options that say which cases run and how they are shown: not part of a line that repeats one. Those with a value say so.
const OF_THE_RUN: [(&str, bool); 5] =
    [("--seeds", true), ("--from", true), ("--case", true), ("--fail-fast", false), ("--json", false)];

/// Puts the driver to the test; the code says how that went.
///
/// # Errors
/// When the table cannot be printed.
pub fn run(args: &ConformArgs) -> Result<u8> {
    let cluster = match prepare::cluster(&args.cluster) {
        Ok(cluster) => cluster,
        Err(error) => return Ok(refused(&format!("{error:#}"), WRONG_USE)),
    };
    let command = if args.command.is_empty() {
        match conform::own_workload(&cluster) {
            Ok(command) => command,
            Err(why) => return Ok(refused(&why, WRONG_USE)),
        }
    } else {
        args.command.clone()
    };
    let words: Vec<String> = env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let request = Request {
        args: &args.cluster,
        cluster,
        command,
        cases: case::cases(args.case, args.from, args.seeds),
        limit: args.timeout,
        fail_fast: args.fail_fast,
        repeat: &|case| repeat(&words, *case),
    };
    let (mut number, all) = (0, request.cases.len());
    let mut on_verdict = |verdict: &Verdict| {
        number += 1;
        let (case, seed, what) = (verdict.case.name(), verdict.seed, outcome(verdict));
        eprintln!("niclab: {number} of {all}: {case}, seed {seed}: {what}, {:.1} s", verdict.wall_s);
    };
    let conformance = match conform::conform(&request, &mut on_verdict) {
        Ok(conformance) => conformance,
        Err(error) => return Ok(refused(&format!("{error:#}"), NOT_RUN)),
    };
    let shown = if args.json { serde_json::to_string_pretty(&conformance)? } else { text(&conformance) };
    terminal::print(&shown)?;
    Ok(code(&conformance))
}

/// Says why there is nothing to show.
fn refused(why: &str, code: u8) -> u8 {
    eprintln!("niclab: {why}");
    code
}

fn code(conformance: &Conformance) -> u8 {
    match (conformance.ended_by_signal, conformance.failed(), conformance.not_run()) {
        (Some(signal), ..) => u8::try_from(exit_code::of_signal(signal)).unwrap_or(exit_code::OWN_FAILURE),
        (None, _, 1..) => NOT_RUN,
        (None, 1.., 0) => FAILED,
        (None, 0, 0) => PASSED,
    }
}

/// What became of a case, in a few words.
fn outcome(verdict: &Verdict) -> String {
    match (verdict.named.first(), &verdict.not_run) {
        (Some(named), _) => format!("FAILED, {}", first_line(&named.to_string())),
        (None, Some(_)) => "NOT RUN".to_owned(),
        (None, None) => "passed".to_owned(),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// One table, and behind it, of what did not pass, what was said and how to have it again.
fn text(conformance: &Conformance) -> String {
    let mut rows = vec![["case", "seed", "outcome", "named by", "wall s"].map(str::to_owned).to_vec()];
    for verdict in &conformance.cases {
        let word = match (verdict.passed, &verdict.not_run) {
            (true, _) => "passed",
            (false, None) => "FAILED",
            (false, Some(_)) => "NOT RUN",
        };
        let named: Vec<String> = verdict.named.iter().map(|named| first_line(&named.to_string())).collect();
        let seed = verdict.seed.to_string();
        let wall = format!("{:.1}", verdict.wall_s);
        rows.push(vec![verdict.case.name(), seed, word.to_owned(), named.join("; "), wall]);
    }
    let mut text = table(&rows);
    // Writing into a string does not fail.
    for verdict in conformance.cases.iter().filter(|verdict| !verdict.passed) {
        let _ = writeln!(text, "\n{}, seed {}; again: {}", verdict.case.name(), verdict.seed, verdict.repeat);
        for named in &verdict.named {
            let _ = writeln!(text, "  {named}");
            let lines: Vec<&str> = named.said().lines().collect();
            for line in &lines[lines.len().saturating_sub(SAID_LINES)..] {
                let _ = writeln!(text, "    {line}");
            }
        }
        if let Some(why) = &verdict.not_run {
            let _ = writeln!(text, "  {why}");
        }
    }
    for verdict in &conformance.cases {
        if let Some(note) = &verdict.note {
            let _ = writeln!(text, "\n{}, seed {}: {note}", verdict.case.name(), verdict.seed);
        }
    }
    let (failed, not_run) = (conformance.failed(), conformance.not_run());
    let passed = conformance.cases.len() - failed - not_run;
    let _ = writeln!(
        text,
        "\n{} over {}: {passed} passed, {failed} failed, {not_run} not run",
        conformance.driver, conformance.nic
    );
    text
}

/// The command line, with this case alone.
fn repeat(words: &[String], case: Case) -> String {
    let mut line = vec!["niclab".to_owned()];
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        if word == "--" {
            line.push(word.clone());
            break;
        }
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        match OF_THE_RUN.iter().find(|(option, _)| *option == name) {
            Some((_, true)) if name == word => drop(words.next()),
            Some(_) => {}
            None => line.push(quoted(word)),
        }
        if word == "conform" {
            line.extend(["--case".to_owned(), case.kind.name(), "--from".to_owned(), case.seed.to_string()]);
        }
    }
    line.extend(words.map(|word| quoted(word)));
    line.join(" ")
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use niclab_cluster::conform::{case::Kind, verdict::Named};

    use super::*;

    fn verdict(named: Vec<Named>, not_run: Option<String>) -> Verdict {
        Verdict {
            case: Kind::Rebind,
            seed: 3,
            passed: named.is_empty() && not_run.is_none(),
            named,
            note: None,
            not_run,
            wall_s: 1.25,
            repeat: "niclab conform --case rebind --from 3".into(),
        }
    }

    fn of(cases: Vec<Verdict>) -> Conformance {
        Conformance { version: 1, nic: "ultra".into(), driver: "d".into(), cases, ended_by_signal: None }
    }

    #[test]
    fn a_case_is_repeated_by_the_same_line_with_it_alone() {
        let words = [
            "/x/niclab",
            "conform",
            "--driver",
            "my driver",
            "--seeds",
            "4",
            "--from=9",
            "--json",
            "--",
            "sh",
            "-c",
            "a 'b'",
            "--case",
        ];
        let words = words.map(str::to_owned);
        let line = repeat(&words, Case { kind: Kind::Fault(2), seed: 11 });
        assert_eq!(
            line,
            "niclab conform --case bad-status --from 11 --driver 'my driver' -- sh -c 'a '\\''b'\\''' --case"
        );
    }

    #[test]
    fn codes_are_those_of_the_worst_case() {
        let hang = || vec![Named::Hang { what: "x".into() }];
        assert_eq!(code(&of(vec![verdict(Vec::new(), None)])), PASSED);
        assert_eq!(code(&of(vec![verdict(Vec::new(), None), verdict(hang(), None)])), FAILED);
        assert_eq!(code(&of(vec![verdict(hang(), None), verdict(Vec::new(), Some("y".into()))])), NOT_RUN);
        assert_eq!(code(&Conformance { ended_by_signal: Some(2), ..of(Vec::new()) }), 130);
    }

    #[test]
    fn a_table_has_a_line_for_each_case_and_says_how_to_have_a_failure_again() {
        let named = Named::Exit { node: "node1".into(), code: 7, said: "expected 3\nreceived 2".into() };
        let text = text(&of(vec![verdict(Vec::new(), None), verdict(vec![named], None)]));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("rebind") && lines[1].contains("passed"), "{text}");
        assert!(lines[2].contains("FAILED") && lines[2].contains("exit code 7 on node1"), "{text}");
        assert!(text.contains("again: niclab conform --case rebind --from 3"), "{text}");
        assert!(
            text.contains("    received 2\n") && text.ends_with("1 passed, 1 failed, 0 not run\n"),
            "{text}"
        );
    }
}
