//! The summary of a run on a terminal, for people who see a report for the first time.

use niclab_spec::{
    Report,
    report::{Histogram, ModelFigures, WallFigures, WallResult},
};

use super::{
    Run,
    figures::{messages, per_message},
};
use crate::{
    check::budget::{self, Outcome},
    report::text::decimal,
};

/// Maximum number of verdicts that did not hold. With all other lines, a summary has at most 15.
const MAX_BROKEN: usize = 3;

/// Maximum number of measurements.
const MAX_RESULTS: usize = 4;

/// Maximum characters of a line, so that a terminal shows it as one. Texts from users are shortened.
const MAX_COLUMNS: usize = 150;

/// At most 15 lines about the run: what failed, what this machine took, what the modelled hardware would have taken.
#[must_use]
pub fn summary(report: &Report) -> String {
    let run = Run::new(&report.cluster, vec![(String::new(), report.clone())]);
    let broken: Vec<_> = run.verdicts.iter().filter(|verdict| verdict.outcome != Outcome::Held).collect();
    let result = match (broken.len(), run.verdicts.len()) {
        (0, all) => format!("all {all} commands and checks passed"),
        (failed, all) => format!("{failed} of {all} commands and checks FAILED"),
    };
    let (nodes, nic) = (report.nodes.len(), report.nic.join(", "));
    let mut lines = vec![format!("{}: {nodes} nodes, NIC {nic}: {result}", report.cluster)];
    lines.extend(broken.iter().take(MAX_BROKEN).map(|verdict| {
        format!("  {}: expected {}, found {}", verdict.what, verdict.expected, verdict.found)
    }));
    if let Some(left) = broken.len().checked_sub(MAX_BROKEN).filter(|left| *left > 0) {
        lines.push(format!("  and {left} more"));
    }
    lines.extend(report.wall.as_ref().map(wall).into_iter().flatten());
    lines.extend(model(report));
    lines.push(
        "All tables: --report text. A page for a browser: --html FILE. For programs: --report-file FILE."
            .to_owned(),
    );
    lines.iter().map(|line| one_line(line) + "\n").collect()
}

/// The text as a line of a terminal.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .take(MAX_COLUMNS)
        .collect()
}

/// What this machine took.
fn wall(wall: &WallFigures) -> Vec<String> {
    let seconds = |ns| decimal(ns, 1_000_000_000, 1);
    let mut lines = vec![format!(
        "wall time, what this machine took: {} s to boot, {} s for the commands",
        seconds(wall.boot_ns),
        seconds(wall.commands_ns)
    )];
    let is_too_long = wall.results.len() > MAX_RESULTS;
    let shown = if is_too_long { MAX_RESULTS - 1 } else { MAX_RESULTS };
    lines.extend(ordered(&wall.results).into_iter().take(shown).map(measured));
    if is_too_long {
        lines.push(format!("  and {} more measurements", wall.results.len() - shown));
    }
    lines
}

/// The measurements, the first one of each benchmark and transport before all others.
fn ordered(results: &[WallResult]) -> Vec<&WallResult> {
    let is_first = |(index, result): &(usize, &WallResult)| {
        let is_alike = |earlier: &WallResult| {
            (&earlier.benchmark, &earlier.transport) == (&result.benchmark, &result.transport)
        };
        !results[..*index].iter().any(is_alike)
    };
    let (first, others): (Vec<_>, Vec<_>) = results.iter().enumerate().partition(is_first);
    first.into_iter().chain(others).map(|(_, result)| result).collect()
}

/// One measurement of `niclab-perf`.
fn measured(result: &WallResult) -> String {
    let WallResult { node, benchmark, transport, payload_bytes, messages_per_s, payload_bytes_per_s, .. } =
        result;
    let rate = match result.round_trip {
        Some(trip) => format!(
            "round trip {} us (median), {} us (99 %)",
            decimal(trip.p50_ns, 1000, 1),
            decimal(trip.p99_ns, 1000, 1)
        ),
        None => format!("{} MB/s", decimal(*payload_bytes_per_s, 1_000_000, 2)),
    };
    format!(
        "  {node}: {benchmark} over {transport}, {payload_bytes} bytes: {messages_per_s} messages/s, {rate}"
    )
}

/// What the modelled hardware would have taken.
fn model(report: &Report) -> Vec<String> {
    let ModelFigures { time_ps, is_exact, latency, .. } = &report.model;
    let microseconds = |ps| decimal(ps, 1_000_000, 3);
    let exactness = if *is_exact { "exact" } else { "an estimate" };
    let mut lines = vec![format!(
        "model time, what the modelled hardware would have taken: {} us ({exactness})",
        microseconds(*time_ps)
    )];
    let Histogram { count, p50_ps, p99_ps, max_ps, .. } = *latency;
    if count > 0 {
        lines.push(format!(
            "  latency of {count} messages: {} us (median), {} us (99 %), {} us (longest)",
            microseconds(p50_ps),
            microseconds(p99_ps),
            microseconds(max_ps)
        ));
    }
    let messages = messages(report);
    if messages > 0 {
        let share = |what| per_message(budget::value(what, None, report).unwrap_or(0), messages);
        lines.push(format!(
            "  per message: {} interrupts, {} doorbells, {} DMA operations, {} bus transactions",
            share("interrupts"),
            share("doorbells"),
            share("dma_operations"),
            share("crossings")
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::sample;

    #[test]
    fn summary_of_a_run_names_failures_and_both_clocks() {
        let text = summary(&sample());
        let expected = "c: 1 nodes, NIC ultra: 2 of 2 commands and checks FAILED\n";
        assert!(text.starts_with(expected), "{text}");
        for line in [
            "  nothing-lost: expected the check holds, found message 3 of node0",
            "wall time, what this machine took: 4.1 s to boot, 2.0 s for the commands",
            "  node0: pingpong over ultra, 16 bytes: 40000 messages/s, round trip 12.3 us (median), 0.0 us (99 %)",
            "model time, what the modelled hardware would have taken: 1.600 us (an estimate)",
            "  latency of 5 messages: 0.600 us (median), 0.800 us (99 %), 0.800 us (longest)",
            "  per message: 0.400 interrupts, 2.200 doorbells, 0.200 DMA operations, 1.000 bus transactions",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.lines().last().unwrap().contains("--report text"), "{text}");
    }

    #[test]
    fn summary_of_a_good_run_has_no_failures() {
        let mut report = sample();
        report.checks[0].held = true;
        (report.nodes[0].exit_code, report.nodes[0].error) = (Some(0), None);
        let text = summary(&report);
        assert!(
            text.starts_with("c: 1 nodes, NIC ultra: all 2 commands and checks passed\nwall time, "),
            "{text}"
        );
    }

    #[test]
    fn summary_has_at_most_15_lines_of_bounded_length() {
        let mut report = sample();
        report.nodes = vec![report.nodes[0].clone(); 64];
        report.nodes.iter_mut().for_each(|node| node.error = Some("bad\n".repeat(100)));
        let wall = report.wall.as_mut().unwrap();
        wall.results = vec![wall.results[0].clone(); 50];
        report.add_up();
        let text = summary(&report);
        assert!(text.lines().count() <= 15, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= MAX_COLUMNS), "{text}");
        assert!(text.contains("  and 62 more\n") && text.contains("  and 47 more measurements\n"), "{text}");
    }
}
