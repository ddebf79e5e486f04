//! `niclab conform`: tests a driver with adversarial and faulty devices, and with events that drivers must survive.

use std::{env, fmt::Write as _};

use anyhow::Result;
use niclab_cluster::{
    boot::prepare,
    conform::{
        self, Commands, FAILED, NOT_EXERCISED, NOT_RUN, PASSED, Request, WRONG_USE,
        case::{Case, CaseKind, Choice},
        traffic::Traffic,
        verdict::{Conformance, Verdict},
    },
    host::exit_code,
    output::table,
};
use niclab_spec::explain;

use super::terminal;
use crate::arguments::ConformArgs;

mod progress;

use progress::Progress;

/// Maximum number of lines of a guest's output in the text; JSON has all.
const SAID_LINES: usize = 8;

/// Options that select cases and the output format, each with whether it has a value. `repeat` removes them.
const OF_THE_RUN: [(&str, bool); 5] =
    [("--seeds", true), ("--from", true), ("--case", true), ("--fail-fast", false), ("--json", false)];

/// Tests the driver; returns the code of the result.
///
/// # Errors
/// When the table cannot be printed.
pub fn run(args: &ConformArgs) -> Result<u8> {
    if let Some(kind) = args.case.filter(|kind| args.one_boot && *kind != CaseKind::Adversarial) {
        let why = format!(
            "--one-boot works only for seeds of `adversarial`; each seed of `{}` needs a boot of its own: omit \
             --one-boot",
            kind.name()
        );
        return Ok(refused(&why, WRONG_USE));
    }
    let cluster = match prepare::cluster(&args.cluster) {
        Ok(cluster) => cluster,
        Err(error) => return Ok(refused(&explain(error.as_ref()), WRONG_USE)),
    };
    let commands = if args.command.is_empty() {
        match conform::own_workload(&cluster) {
            Ok(commands) => commands,
            Err(why) => return Ok(refused(&why, WRONG_USE)),
        }
    } else {
        Commands::same(args.command.clone())
    };
    let words: Vec<String> = env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let has_debug_kernel = conform::has_debug_kernel(&cluster);
    let request = Request {
        args: &args.cluster,
        cluster,
        commands,
        cases: Choice {
            only: args.case,
            from: args.from,
            seeds: args.seeds,
            with_debug_kernel: has_debug_kernel,
        }
        .cases(),
        limit: args.timeout,
        fail_fast: args.fail_fast,
        is_one_boot: args.one_boot,
        repeat: &|case, seeds| repeat(&words, *case, seeds),
    };
    let mut progress = Progress::new(request.cases.len(), args.one_boot);
    let mut on_verdict =
        |verdict: &Verdict| progress.add(verdict).into_iter().for_each(|line| eprintln!("niclab: {line}"));
    let conformance = conform::conform(&request, &mut on_verdict);
    progress.rest().into_iter().for_each(|line| eprintln!("niclab: {line}"));
    let conformance = match conformance {
        Ok(conformance) => conformance,
        Err(error) => return Ok(refused(&explain(error.as_ref()), NOT_RUN)),
    };
    let shown = if args.json { serde_json::to_string_pretty(&conformance)? } else { text(&conformance) };
    terminal::print(&shown)?;
    Ok(code(&conformance))
}

/// Prints why no case could be run.
fn refused(why: &str, code: u8) -> u8 {
    eprintln!("niclab: {why}");
    code
}

fn code(conformance: &Conformance) -> u8 {
    match (conformance.ended_by_signal, conformance.failed(), conformance.not_run()) {
        (Some(signal), ..) => u8::try_from(exit_code::of_signal(signal)).unwrap_or(exit_code::OWN_FAILURE),
        (None, _, 1..) => NOT_RUN,
        (None, 1.., 0) => FAILED,
        (None, 0, 0) if conformance.not_exercised() > 0 => NOT_EXERCISED,
        (None, 0, 0) => PASSED,
    }
}

/// The result of a case, for the line that is printed when the case ends.
fn outcome(verdict: &Verdict) -> String {
    let word = word(verdict);
    match verdict.named.first() {
        Some(named) => format!("{word}, {}{}", believed(verdict), first_line(&named.to_string())),
        None if verdict.passed => format!("{word} ({})", verdict.traffic),
        None => word.to_owned(),
    }
}

/// The prefix for the failure of a driver that trusted a value of the device.
const fn believed(verdict: &Verdict) -> &'static str {
    if verdict.believed_device { "driver believed the device: " } else { "" }
}

/// The result of a case in a word.
const fn word(verdict: &Verdict) -> &'static str {
    match (verdict.passed, &verdict.not_run, &verdict.not_exercised) {
        (true, ..) => "passed",
        (false, Some(_), _) => "NOT RUN",
        (false, None, Some(_)) => "NOT EXERCISED",
        (false, None, None) => "FAILED",
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// A table of all cases. After the table, each case that did not pass has its messages and the command that repeats it.
fn text(conformance: &Conformance) -> String {
    let mut rows =
        vec![["case", "seed", "outcome", "detected by", "traffic", "wall s"].map(str::to_owned).to_vec()];
    let mut left = &conformance.cases[..];
    while let Some((verdict, others)) = left.split_first() {
        let more = others.iter().take_while(|other| is_as(other, verdict)).count();
        let (same, behind) = others.split_at_checked(more).unwrap_or((others, &[]));
        rows.push(row(verdict, same));
        left = behind;
    }
    let mut text = table(&rows);
    for verdict in conformance.cases.iter().filter(|verdict| !verdict.passed) {
        let _ =
            writeln!(text, "\n{}, seed {}; repeat with: {}", verdict.label(), verdict.seed, verdict.repeat);
        if let Some(boot) = &verdict.repeat_boot {
            let _ = writeln!(
                text,
                "  together with the earlier seeds of the same boot, if the failure needs them: {boot}"
            );
        }
        for named in &verdict.named {
            let _ = writeln!(text, "  {named}");
            for line in named.shown(SAID_LINES) {
                let _ = writeln!(text, "    {line}");
            }
        }
        if let Some(folder) = &verdict.consoles {
            let _ = writeln!(text, "  consoles of all nodes: {}", folder.display());
        }
        for why in [&verdict.not_run, &verdict.not_exercised].into_iter().flatten() {
            let _ = writeln!(text, "  {why}");
        }
    }
    for verdict in conformance.cases.iter().filter(|verdict| !verdict.moments.is_empty()) {
        let moments: Vec<String> = verdict.moments.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "\n{}, seed {}: {}", verdict.label(), verdict.seed, moments.join("; "));
    }
    for verdict in &conformance.cases {
        if let Some(note) = &verdict.note {
            let _ = writeln!(text, "\n{}, seed {}: {note}", verdict.label(), verdict.seed);
        }
    }
    let (failed, not_run) = (conformance.failed(), conformance.not_run());
    let passed = conformance.cases.iter().filter(|case| case.passed).count();
    let not_exercised = conformance.not_exercised();
    let _ = writeln!(
        text,
        "\n{} over {}: {passed} passed, {failed} failed, {not_exercised} not exercised, {not_run} not run",
        conformance.driver, conformance.nic
    );
    text
}

/// Whether a case passed in the same boot as the case before it. The table shows such cases in one row.
fn is_as(other: &Verdict, before: &Verdict) -> bool {
    let passed = |verdict: &Verdict| verdict.passed && verdict.note.is_none();
    let boot = before.booted_with.unwrap_or(before.seed);
    passed(other) && passed(before) && other.booted_with == Some(boot) && other.label() == before.label()
}

/// A row of the table: a case, and the cases after it that share the row.
fn row(verdict: &Verdict, same: &[Verdict]) -> Vec<String> {
    let named: Vec<String> = verdict.named.iter().map(|named| first_line(&named.to_string())).collect();
    let seeds = same
        .last()
        .map_or_else(|| verdict.seed.to_string(), |last| format!("{} to {}", verdict.seed, last.seed));
    let wall_s: f64 = verdict.wall_s + same.iter().map(|verdict| verdict.wall_s).sum::<f64>();
    let traffic: Traffic = same.iter().map(|verdict| verdict.traffic).sum::<Traffic>() + verdict.traffic;
    let outcome = word(verdict).to_owned();
    let named = format!("{}{}", believed(verdict), named.join("; "));
    vec![verdict.label(), seeds, outcome, named, traffic.to_string(), format!("{wall_s:.1}")]
}

/// The command line that repeats this case alone, or `seeds` seeds from the case's own.
fn repeat(words: &[String], case: Case, seeds: u64) -> String {
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
            line.extend((seeds > 1).then(|| ["--seeds".to_owned(), seeds.to_string()]).into_iter().flatten());
            line.extend(
                case.on_debug_kernel
                    .then_some(["--kernel".to_owned(), "debug".to_owned()])
                    .into_iter()
                    .flatten(),
            );
        }
    }
    line.extend(words.map(|word| quoted(word)));
    line.join(" ")
}

/// Quotes a word for a shell.
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
    use std::collections::BTreeMap;

    use niclab_cluster::conform::{case::CaseKind, traffic::Moment, verdict::Named};

    use super::*;

    fn verdict(named: Vec<Named>, not_run: Option<String>) -> Verdict {
        Verdict {
            case: CaseKind::Rebind,
            seed: 3,
            debug_kernel: false,
            passed: named.is_empty() && not_run.is_none(),
            believed_device: false,
            named,
            note: None,
            not_run,
            consoles: None,
            not_exercised: None,
            traffic: Traffic::default(),
            moments: Vec::new(),
            wall_s: 1.25,
            adversarial: BTreeMap::new(),
            booted_with: None,
            repeat: "niclab conform --case rebind --from 3".into(),
            repeat_boot: None,
        }
    }

    fn of(cases: Vec<Verdict>) -> Conformance {
        Conformance { version: 1, nic: "ultra".into(), driver: "d".into(), cases, ended_by_signal: None }
    }

    #[test]
    fn repeat_line_selects_one_case_and_keeps_the_other_options() {
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
        let line = repeat(&words, Case { kind: CaseKind::Fault(2), seed: 11, on_debug_kernel: false }, 1);
        assert_eq!(
            line,
            "niclab conform --case bad-status --from 11 --driver 'my driver' -- sh -c 'a '\\''b'\\''' --case"
        );
    }

    #[test]
    fn repeat_lines_for_one_seed_and_for_all_seeds_of_its_boot() {
        let words =
            ["niclab", "conform", "--case", "adversarial", "--seeds=40", "--one-boot", "--nic", "grim"];
        let words = words.map(str::to_owned);
        let case = Case { kind: CaseKind::Adversarial, seed: 7, on_debug_kernel: false };
        assert_eq!(
            [repeat(&words, case, 1), repeat(&words, case, 12)],
            [
                "niclab conform --case adversarial --from 7 --one-boot --nic grim",
                "niclab conform --case adversarial --from 7 --seeds 12 --one-boot --nic grim"
            ]
        );
    }

    #[test]
    fn passed_seeds_share_a_row_and_a_failure_shows_its_boot() {
        let seed = |seed, booted_with, named| Verdict {
            case: CaseKind::Adversarial,
            seed,
            booted_with,
            ..verdict(named, None)
        };
        let hang = vec![Named::Hang { what: "x".into() }];
        let repeat_boot = Some("niclab conform --case adversarial --from 1 --seeds 4".to_owned());
        let failed = Verdict { repeat_boot, ..seed(4, Some(1), hang) };
        let noted = Verdict { note: Some("n".into()), ..seed(6, Some(5), Vec::new()) };
        let cases = vec![
            seed(1, None, Vec::new()),
            seed(2, Some(1), Vec::new()),
            seed(3, Some(1), Vec::new()),
            failed,
            seed(5, None, Vec::new()),
            noted,
        ];
        let text = text(&of(cases));
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let lines: Vec<Vec<String>> = text.lines().take(5).map(words).collect();
        assert_eq!(lines[1][..5], ["adversarial", "1", "to", "3", "passed"], "{text}");
        assert_eq!(lines[1].last().map(String::as_str), Some("3.8"), "{text}");
        assert_eq!(
            (&lines[2][1], &lines[3][1], &lines[4][1]),
            (&"4".into(), &"5".into(), &"6".into()),
            "{text}"
        );
        assert!(
            text.contains("failure needs them: niclab conform --case adversarial --from 1 --seeds 4\n"),
            "{text}"
        );
        assert!(text.ends_with("5 passed, 1 failed, 0 not exercised, 0 not run\n"), "{text}");
    }

    #[test]
    fn codes_are_those_of_the_worst_case() {
        let hang = || vec![Named::Hang { what: "x".into() }];
        assert_eq!(code(&of(vec![verdict(Vec::new(), None)])), PASSED);
        assert_eq!(code(&of(vec![verdict(Vec::new(), None), verdict(hang(), None)])), FAILED);
        assert_eq!(code(&of(vec![verdict(hang(), None), verdict(Vec::new(), Some("y".into()))])), NOT_RUN);
        assert_eq!(code(&Conformance { ended_by_signal: Some(2), ..of(Vec::new()) }), 130);
        assert_eq!(code(&of(vec![verdict(Vec::new(), None), idle()])), NOT_EXERCISED);
        assert_eq!(code(&of(vec![idle(), verdict(hang(), None)])), FAILED);
    }

    /// A case whose events had no traffic before them.
    fn idle() -> Verdict {
        let moments =
            vec![Moment { what: "unbind", node: Some("node1".into()), traffic: Traffic::default() }];
        let not_exercised = Some("nothing came before any unbind".to_owned());
        Verdict { passed: false, not_exercised, moments, ..verdict(Vec::new(), None) }
    }

    #[test]
    fn failure_of_a_trusting_driver_shows_believed_the_device() {
        let (node, rule) = ("node1".to_owned(), "slot-free".to_owned());
        let named = vec![Named::Rule { node, rule, count: 1, said: String::new() }];
        let verdict = Verdict { believed_device: true, ..verdict(named, None) };
        assert_eq!(outcome(&verdict), "FAILED, driver believed the device: rule slot-free on node1, 1 times");
        assert!(text(&of(vec![verdict])).contains("driver believed the device: rule slot-free on node1"));
    }

    #[test]
    fn case_without_traffic_is_not_exercised_and_shows_its_events() {
        let text = text(&of(vec![idle()]));
        assert!(text.lines().nth(1).is_some_and(|line| line.contains("NOT EXERCISED")), "{text}");
        assert!(text.contains("  nothing came before any unbind\n"), "{text}");
        assert!(
            text.contains("rebind, seed 3: unbind of node1 after 0 sent, 0 received, 0 events\n"),
            "{text}"
        );
        assert!(text.ends_with("0 passed, 0 failed, 1 not exercised, 0 not run\n"), "{text}");
    }

    #[test]
    fn panic_is_shown_with_its_reason_and_source_lines() {
        let panic = |places: &[&str]| Named::Panic {
            node: "node0".into(),
            reason: "BUG: kernel NULL pointer dereference; Oops: 0002 [#1]".into(),
            places: places.iter().map(|&place| place.to_owned()).collect(),
            said: (0..60).fold("BUG: first line".to_owned(), |text, line| format!("{text}\nline {line}")),
        };
        let mut case = verdict(vec![panic(&["f+0x1: f at /me/a.c:7"]), panic(&[])], None);
        case.consoles = Some("/run/me/.failed/c".into());
        let text = text(&of(vec![case]));
        assert!(
            text.contains("  panic on node0: BUG: kernel NULL pointer dereference; Oops: 0002 [#1]\n"),
            "{text}"
        );
        assert!(
            text.contains("    f+0x1: f at /me/a.c:7\n") && text.contains("    BUG: first line\n"),
            "{text}"
        );
        assert!(
            !text.contains("line 59") && text.contains("consoles of all nodes: /run/me/.failed/c\n"),
            "{text}"
        );
    }

    #[test]
    fn failure_shows_its_output_and_the_command_that_repeats_it() {
        let named = Named::Exit { node: "node1".into(), code: 7, said: "expected 3\nreceived 2".into() };
        let text = text(&of(vec![verdict(Vec::new(), None), verdict(vec![named], None)]));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("rebind") && lines[1].contains("passed"), "{text}");
        assert!(lines[2].contains("FAILED") && lines[2].contains("exit code 7 on node1"), "{text}");
        assert!(text.contains("repeat with: niclab conform --case rebind --from 3"), "{text}");
        assert!(
            text.contains("    received 2\n")
                && text.ends_with("1 passed, 1 failed, 0 not exercised, 0 not run\n"),
            "{text}"
        );
    }
}
