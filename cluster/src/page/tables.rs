//! The tables of a page.

use std::collections::BTreeMap;

use maud::{Markup, html};
use niclab_spec::{
    Report,
    report::{Histogram, LedgerEntry, NodeFigures, WallResult},
};

use super::{
    Run,
    figures::{interrupts, key_figures, messages, millions_per_second, per_message, shown},
    topology::bytes_of,
    word,
};
use crate::{
    check::budget::Outcome,
    report::text::{decimal, microseconds},
};

/// A table whose first column has names and whose other columns have numbers.
fn numbers(heading: &[&str], rows: &[Vec<String>]) -> Markup {
    html! {
        div.wide {
            table.numbers {
                thead { tr { @for name in heading { th { (name) } } } }
                tbody { @for row in rows { tr { @for cell in row { td { (cell) } } } } }
            }
        }
    }
}

/// The class of an outcome in the page's style.
pub const fn class(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Held => "held",
        Outcome::Broken => "broken",
        Outcome::Undecided => "undecided",
    }
}

/// The verdicts, broken ones first.
pub fn verdicts(run: &Run) -> Markup {
    let rank = |outcome| match outcome {
        Outcome::Broken => 0,
        Outcome::Undecided => 1,
        Outcome::Held => 2,
    };
    let mut verdicts: Vec<_> = run.verdicts.iter().collect();
    verdicts.sort_by_key(|verdict| rank(verdict.outcome));
    html! {
        @if let Some(error) = &run.error { pre.error { (error) } }
        @for warning in &run.warnings { pre.undecided { (warning) } }
        @if !verdicts.is_empty() {
            div.wide {
                table {
                    thead { tr { th { "verdict" } th { "what" } th { "expected" } th { "found" } } }
                    tbody {
                        @for verdict in verdicts {
                            tr {
                                td { span class=(class(verdict.outcome)) { (word(verdict.outcome)) } }
                                td { (verdict.what) }
                                td { (verdict.expected) }
                                td {
                                    (verdict.found)
                                    @for cause in &verdict.causes { div.cause { (cause) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// How commands failed, with the last lines of their consoles.
pub fn failures(report: &Report) -> Markup {
    html! {
        @for node in &report.nodes {
            @if let Some(error) = &node.error {
                p.error { b { (node.name) } ": " (error) }
                @if !node.console.is_empty() {
                    details open { summary { "console of " (node.name) } pre { (node.console.join("\n")) } }
                }
            }
        }
    }
}

/// The summary, with the change to the baseline.
pub fn summary(run: &Run) -> Markup {
    let reports: Vec<&Report> = run.reports.iter().map(|(_, report)| report).collect();
    let is_pair = reports.len() == 2;
    html! {
        div.wide {
            table {
                thead {
                    tr {
                        th { "figure" }
                        @if is_pair { th.number { "baseline" } }
                        th.number { "this run" }
                        @if is_pair { th.number { "change" } }
                    }
                }
                tbody {
                    @for figure in key_figures(&reports) {
                        tr class=[figure.is_changed().then_some("changed")] {
                            td { (figure.name) }
                            @for value in &figure.values { td.number { (shown(*value)) } }
                            @if is_pair { td.number { (figure.change()) } }
                        }
                    }
                }
            }
        }
    }
}

/// What each node did.
pub fn nodes(nodes: &[NodeFigures]) -> Markup {
    let heading = [
        "node",
        "exit code",
        "messages sent",
        "received",
        "doorbells",
        "per sent",
        "interrupts",
        "per received",
        "guest's",
        "suppressed",
        "DMA operations",
        "per received",
        "violations",
    ];
    let sum = |counts: &BTreeMap<String, u64>| counts.values().fold(0_u64, |sum, n| sum.wrapping_add(*n));
    let dash = || "-".to_owned();
    let rows = nodes.iter().map(|node| {
        let dma = crate::check::budget::in_ledger("dma_operations", &node.ledger);
        vec![
            node.name.clone(),
            node.exit_code.map_or_else(dash, |code| code.to_string()),
            node.messages_sent.to_string(),
            node.messages_received.to_string(),
            node.doorbells.to_string(),
            per_message(node.doorbells, node.messages_sent),
            interrupts(node).to_string(),
            per_message(interrupts(node), node.messages_received),
            node.guest_interrupts.as_ref().map_or_else(dash, |counts| sum(counts).to_string()),
            node.suppressed_interrupts.to_string(),
            dma.to_string(),
            per_message(dma, node.messages_received),
            sum(&node.violations).to_string(),
        ]
    });
    numbers(&heading, &rows.collect::<Vec<_>>())
}

/// What each link carried, and what happened to its frames.
pub fn links(nodes: &[NodeFigures], time_ps: u64) -> Markup {
    let heading = [
        "link of",
        "frames sent",
        "received",
        "dropped",
        "MB/s sent",
        "received",
        "link events",
        "device faults",
    ];
    let texts = |counts: &BTreeMap<String, u64>| {
        let counts = counts.iter().filter(|(_, count)| **count > 0);
        let counts: Vec<String> = counts.map(|(name, count)| format!("{name} {count}")).collect();
        if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
    };
    let rows = nodes.iter().map(|node| {
        let (cluster, ethernet) = (&node.cluster, &node.ethernet);
        let sent_bytes = cluster.sent_bytes.wrapping_add(ethernet.sent_bytes);
        vec![
            node.name.clone(),
            cluster.sent_frames.wrapping_add(ethernet.sent_frames).to_string(),
            cluster.received_frames.wrapping_add(ethernet.received_frames).to_string(),
            cluster.dropped_frames.wrapping_add(ethernet.dropped_frames).to_string(),
            millions_per_second(sent_bytes, time_ps),
            millions_per_second(bytes_of(node).wrapping_sub(sent_bytes), time_ps),
            texts(&node.link_events),
            texts(&node.device_faults),
        ]
    });
    numbers(&heading, &rows.collect::<Vec<_>>())
}

/// The latency of the messages that each node received.
pub fn latencies(nodes: &[NodeFigures], all: &Histogram) -> Markup {
    let row = |name: &str, latency: &Histogram| {
        let Histogram { count, min_ps, p50_ps, p90_ps, p99_ps, p999_ps, max_ps, .. } = *latency;
        let times = [min_ps, p50_ps, p90_ps, p99_ps, p999_ps, max_ps];
        [name.to_owned(), count.to_string()]
            .into_iter()
            .chain(times.map(|ps| decimal(ps, 1_000_000, 3)))
            .collect::<Vec<_>>()
    };
    let of_nodes = nodes.iter().flat_map(|node| {
        [
            (node.name.clone(), &node.model_latency),
            (format!("{} Ethernet", node.name), &node.ethernet_model_latency),
        ]
    });
    let mut rows: Vec<Vec<String>> = of_nodes
        .filter(|(_, latency)| latency.count > 0)
        .map(|(name, latency)| row(&name, latency))
        .collect();
    rows.push(row("all", all));
    numbers(&["receiver", "messages", "min", "p50", "p90", "p99", "p99.9", "max"], &rows)
}

/// All transactions of the cluster, by kind.
pub fn ledger(report: &Report) -> Markup {
    let messages = messages(report);
    let entries = report.total.iter().filter(|entry| entry.count > 0);
    let rows = entries.map(|entry| {
        let LedgerEntry { transaction, count, bytes, model_price_ps, model_waited_ps } = entry;
        vec![
            transaction.clone(),
            count.to_string(),
            per_message(*count, messages),
            bytes.to_string(),
            microseconds(*model_price_ps),
            microseconds(*model_waited_ps),
        ]
    });
    let heading = ["transaction", "count", "per message", "bytes", "price, model us", "waited, model us"];
    numbers(&heading, &rows.collect::<Vec<_>>())
}

/// What `niclab-perf` measured in the guests.
pub fn wall_results(results: &[WallResult]) -> Markup {
    let rows = results.iter().map(|result| {
        let trip = |ns: u64| decimal(ns, 1000, 2);
        let trips = result.round_trip.map_or_else(
            || ["-".to_owned(), "-".to_owned()],
            |latency| [trip(latency.p50_ns), trip(latency.p99_ns)],
        );
        let name = format!("{}: {} over {}", result.node, result.benchmark, result.transport);
        [
            name,
            result.payload_bytes.to_string(),
            result.messages.to_string(),
            result.messages_per_s.to_string(),
            decimal(result.payload_bytes_per_s, 1_000_000, 2),
        ]
        .into_iter()
        .chain(trips)
        .collect()
    });
    let heading = ["benchmark", "payload", "messages", "messages/s", "MB/s", "round trip: p50 us", "p99 us"];
    numbers(&heading, &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{check::budget::Verdict, report::samples::sample};

    #[test]
    fn broken_verdicts_come_first_with_their_causes() {
        let verdict = |what: &str, outcome| Verdict {
            what: what.to_owned(),
            outcome,
            expected: "e".to_owned(),
            found: "f".to_owned(),
            causes: vec![format!("cause of {what}")],
        };
        let of = vec![verdict("good", Outcome::Held), verdict("bad", Outcome::Broken)];
        let warnings = vec!["no <budget>".to_owned()];
        let page = verdicts(&Run { verdicts: of, warnings, ..Run::default() }).into_string();
        assert!(page.contains("no &lt;budget&gt;"), "{page}");
        assert!(page.find("cause of bad").unwrap() < page.find("cause of good").unwrap(), "{page}");
        assert!(page.contains("<span class=\"broken\">BROKEN</span>"), "{page}");
    }

    #[test]
    fn nodes_and_links_show_counts_per_message() {
        let mut report = sample();
        report.nodes[0].link_events.insert("lost".to_owned(), 4);
        report.nodes[0].cluster.sent_bytes = 16;
        let page = nodes(&report.nodes).into_string();
        assert!(page.contains("<td>11</td><td>2.200</td>"), "{page}");
        let page = links(&report.nodes, 1_600_000).into_string();
        assert!(page.contains("<td>10.00</td>") && page.contains("lost 4"), "{page}");
    }

    #[test]
    fn ledger_and_latency_keep_their_digits() {
        let report = sample();
        assert!(ledger(&report).into_string().contains("1.500000"), "{}", ledger(&report).into_string());
        let page = latencies(&report.nodes, &report.model.latency).into_string();
        assert!(page.contains("<td>node0</td>") && page.contains("0.800"), "{page}");
        let wall = report.wall.unwrap();
        assert!(wall_results(&wall.results).into_string().contains("node0: pingpong over ultra"));
    }
}
