//! The HTML file.

use std::fmt::Write as _;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use niclab_spec::Report;

use super::{Run, charts, difference, tables, topology};
use crate::report::{compare::Comparison, text::shown};

/// The style of the page, without the colours of its drawings.
const STYLE: &str = include_str!("style.css");

/// The page forbids itself everything but its own style, so that no text in it can load or run anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// One self-contained HTML file about these runs. The same runs give the same bytes.
#[must_use]
pub fn html(title: &str, runs: &[Run]) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(dark_drawings())) }
            }
            body {
                h1 { (title) }
                @if runs.len() > 1 { (contents(runs)) }
                @for (number, run) in runs.iter().enumerate() { (section(number, run)) }
                footer {
                    p {
                        "Counts are exact. Model time is what the modelled hardware would have taken; wall time is \
                         what this host took. Made by niclab " (env!("CARGO_PKG_VERSION")) "."
                    }
                }
            }
        }
    };
    page.into_string()
}

/// The drawings have their colours as attributes, which a style replaces.
fn dark_drawings() -> String {
    let mut style = String::from("@media(prefers-color-scheme:dark){");
    for colour in charts::colours() {
        let (light, dark) = (colour.hex(), colour.dark);
        // Writing into a string does not fail.
        let _ = write!(style, "[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}");
    }
    style.push('}');
    style
}

/// The results of all runs, each with a link to its section.
fn contents(runs: &[Run]) -> Markup {
    html! {
        ul {
            @for (number, run) in runs.iter().enumerate() {
                @let (result, outcome) = run.result();
                li {
                    a href=(format!("#run{number}")) { (run.name) } ": "
                    span class=(tables::class(outcome)) { (result) }
                }
            }
        }
    }
}

fn section(number: usize, run: &Run) -> Markup {
    let (result, outcome) = run.result();
    html! {
        section id=(format!("run{number}")) {
            h2 { (run.name) " " span class=(tables::class(outcome)) { (result) } }
            (tables::verdicts(run))
            @if let Some(report) = run.report() { (of_report(run, report)) }
        }
    }
}

fn of_report(run: &Run, report: &Report) -> Markup {
    let nodes = shown(&report.nodes);
    let time_ps = report.model.time_ps;
    html! {
        (tables::failures(report))
        h3 { "Summary" }
        div.grid { (tables::summary(run)) (properties(run)) }
        @if let Some(why) = &report.model.why_estimate {
            p.note { "The model time of this run is an estimate: " (why) }
        }
        @if let Some(section) = difference::section(run) { (section) }
        h3 { "Network and model time" }
        div.grid {
            @if let Some(drawing) = topology::topology(&nodes, time_ps) { (drawing) }
            @if let Some(drawing) = charts::latency(run) { (drawing) }
            @if let Some(drawing) = charts::model_time(run) { (drawing) }
        }
        h3 { "Nodes" }
        @if nodes.len() < report.nodes.len() {
            p.note { "The tables of this page show the sum of more than 64 nodes; the report itself has each node." }
        }
        (tables::nodes(&nodes))
        h3 { "Links" }
        (tables::links(&nodes, time_ps))
        h3 { "Latency, microseconds of model time" }
        (tables::latencies(&nodes, &report.model.latency))
        h3 { "Transactions" }
        (tables::ledger(report))
        @if let Some(wall) = report.wall.as_ref().filter(|wall| !wall.results.is_empty()) {
            h3 { "Wall time of this host" }
            (tables::wall_results(&wall.results))
        }
    }
}

/// The properties of the run and of its baseline.
fn properties(run: &Run) -> Markup {
    let comparison = Comparison::new(&run.reports, false);
    html! {
        div.wide {
            table {
                thead { tr { th { "run" } @for file in &comparison.files { th { (file) } } } }
                tbody {
                    @for property in &comparison.properties {
                        @let is_changed = property.values.windows(2).any(|pair| pair[0] != pair[1]);
                        tr class=[is_changed.then_some("changed")] {
                            td { (property.name) }
                            @for value in &property.values { td { (value) } }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::sample;

    const HOSTILE: &str = "</title><script>alert(1)</script><img src=x onerror='x'>\"&";

    fn page(reports: Vec<Report>) -> String {
        let reports = reports.into_iter().map(|report| ("r.json".to_owned(), report)).collect();
        html("niclab", &[Run::new("c", reports)])
    }

    /// A report with a hostile text wherever a user's text may be.
    fn hostile() -> Report {
        let text = || HOSTILE.to_owned();
        let mut report = sample();
        (report.cluster, report.profile, report.nic) = (text(), text(), vec![text()]);
        report.qemu_version = Some(text());
        report.model.why_estimate = Some(text());
        report.checks[0].detail = text();
        let node = &mut report.nodes[0];
        (node.name, node.error, node.console) = (text(), Some(text()), vec![text()]);
        node.link_events.insert(text(), 1);
        node.ledger[0].transaction = text();
        report.wall.as_mut().unwrap().results[0].node = text();
        report.add_up();
        report
    }

    #[test]
    fn script_in_names_and_consoles_is_escaped() {
        let run = Run::new(HOSTILE, vec![(HOSTILE.to_owned(), sample()), (HOSTILE.to_owned(), hostile())]);
        let page = html(HOSTILE, &[run.clone(), run]);
        for tag in ["<script", "<img", "</title></"] {
            assert!(!page.to_lowercase().contains(tag), "{tag}");
        }
        assert!(page.matches("&lt;script&gt;").count() > 10);
    }

    #[test]
    fn page_needs_no_network_and_runs_no_script() {
        let page = page(vec![sample(), hostile()]);
        assert!(page.contains("default-src 'none'"));
        for (reference, _) in page.match_indices("http") {
            let rest = &page[reference..];
            let is_name = rest.starts_with("http://www.w3.org/2000/svg") || rest.starts_with("http-equiv");
            assert!(is_name, "{}", &rest[..60]);
        }
        for word in ["src=x", "url(", "@import", "<link", "<iframe"] {
            assert!(!page.replace("&lt;img src=x", "").contains(word), "{word}");
        }
    }

    #[test]
    fn verdicts_come_before_all_else() {
        let page = page(vec![sample()]);
        let place = |word: &str| page.find(word).unwrap_or_else(|| panic!("no {word}"));
        assert!(place("message 3 of node0") < place("Summary") && place("Summary") < place("<h3>Nodes"));
    }

    #[test]
    fn page_of_64_nodes_is_under_2_mb() {
        let mut report = sample();
        let node = report.nodes[0].clone();
        let kinds = niclab_spec::budget::CROSSINGS;
        report.nodes = (0..64_u64)
            .map(|rank| {
                let mut node = node.clone();
                node.name = format!("a-long-name-of-node{rank}");
                node.console = vec!["x".repeat(200); 10];
                node.ledger = kinds
                    .iter()
                    .map(|kind| niclab_spec::report::LedgerEntry {
                        transaction: (*kind).to_owned(),
                        count: u64::MAX / 1000 + rank,
                        bytes: u64::MAX / 1000,
                        model_price_ps: u64::MAX / 1000,
                        model_waited_ps: u64::MAX / 1000,
                    })
                    .collect();
                node
            })
            .collect();
        report.add_up();
        let mut base = report.clone();
        for node in &mut base.nodes {
            node.doorbells += 1;
            node.ledger.iter_mut().for_each(|entry| entry.count += 1);
        }
        base.add_up();
        let bytes = page(vec![base, report]).len();
        assert!((100_000..2_000_000).contains(&bytes), "{bytes} bytes");
    }

    #[test]
    fn many_nodes_are_shown_as_their_sum() {
        let mut report = sample();
        report.nodes = vec![report.nodes[0].clone(); 4096];
        report.nodes.iter_mut().for_each(|node| node.error = None);
        report.add_up();
        let page = page(vec![report]);
        assert!(page.contains("<td>all 4096 nodes</td>"));
    }

    #[test]
    fn drawings_have_colours_for_the_dark() {
        let page = page(vec![sample(), sample()]);
        let style = dark_drawings();
        for (at, _) in page.match_indices("fill=\"#") {
            let colour = &page[at..at + "fill=\"#000000\"".len()];
            assert!(style.contains(&format!("[{colour}]")), "{colour} has no dark form");
        }
    }
}
