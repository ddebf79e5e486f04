//! The difference of a run to its baseline, number by number.

use maud::{Markup, html};

use super::Run;
use crate::report::compare::{Comparison, Row, Section};

/// Maximum number of changed numbers of single nodes that a page lists.
const MAX_NODE_ROWS: usize = 400;

/// The numbers of a run and of its baseline.
pub struct Difference {
    /// Names of the baseline and of the run.
    pub names: [String; 2],
    /// The sums over the cluster, and whether each differs.
    pub rows: Vec<Row>,
    /// The numbers of single nodes that differ.
    pub nodes: Vec<Row>,
}

impl Difference {
    /// The difference, if the run has a baseline.
    pub fn of(run: &Run) -> Option<Self> {
        let [base, new] = run.reports.as_slice() else { return None };
        let rows = Comparison::new(&run.reports, false).rows;
        let all = Comparison::new(&run.reports, true).rows;
        let is_of_node =
            |row: &Row| !rows.iter().any(|sum| (sum.section, &sum.name) == (row.section, &row.name));
        let nodes = all.into_iter().filter(|row| row.is_changed() && is_of_node(row)).collect();
        Some(Self { names: [base.0.clone(), new.0.clone()], rows, nodes })
    }

    /// The numbers that differ and do not depend on this host: counts and model time.
    pub fn changed(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.is_changed() && row.section != Section::WallTime)
    }
}

/// The section of a page; nothing without a baseline.
pub fn section(run: &Run) -> Option<Markup> {
    let difference = Difference::of(run)?;
    let (changed, same): (Vec<&Row>, Vec<&Row>) = difference.rows.iter().partition(|row| row.is_changed());
    let names = &difference.names;
    let (shown, left) = difference.nodes.split_at(difference.nodes.len().min(MAX_NODE_ROWS));
    Some(html! {
        h3 { "Difference to the baseline" }
        @if changed.is_empty() {
            p { "No number of the whole cluster differs from " b { (names[0]) } "." }
        } @else {
            (table(names, &changed))
        }
        @if !shown.is_empty() {
            details {
                summary { (difference.nodes.len()) " numbers of single nodes and of the network differ" }
                (table(names, &shown.iter().collect::<Vec<_>>()))
                @if !left.is_empty() { p { "and " (left.len()) " more; `niclab report --per-node` lists all" } }
            }
        }
        @if !same.is_empty() {
            details { summary { (same.len()) " numbers are the same" } (table(names, &same)) }
        }
    })
}

fn table(names: &[String; 2], rows: &[&Row]) -> Markup {
    let shown = |row: &Row, file: usize| {
        row.values.get(file).copied().flatten().map_or_else(|| "-".to_owned(), |value| row.unit.show(value))
    };
    html! {
        div.wide {
            table {
                thead {
                    tr {
                        th { "kind" } th { "what" } th { "unit" }
                        @for name in names { th.number { (name) } }
                        th.number { "difference" } th.number { "%" }
                    }
                }
                tbody {
                    @for row in rows {
                        tr class=[row.is_changed().then_some("changed")] {
                            td { (row.section.name()) } td { (row.name) } td { (row.unit.name()) }
                            td.number { (shown(row, 0)) } td.number { (shown(row, 1)) }
                            td.number { (row.shown_difference()) } td.number { (row.percent()) }
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

    fn pair() -> Run {
        let mut new = sample();
        new.nodes[0].doorbells = 12;
        new.nodes[0].interrupts.insert("never".to_owned(), 0);
        new.wall = None;
        Run::new("c", vec![("base.json".to_owned(), sample()), ("new.json".to_owned(), new)])
    }

    #[test]
    fn only_changed_numbers_are_highlighted() {
        let difference = Difference::of(&pair()).unwrap();
        let changed: Vec<&str> = difference.changed().map(|row| row.name.as_str()).collect();
        assert_eq!(changed, ["doorbells"], "a count of 0 is no change, and wall time is not compared");
        let nodes: Vec<&str> = difference.nodes.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(nodes, ["node0 doorbells"]);
        let page = section(&pair()).unwrap().into_string();
        let row = "<td>doorbells</td><td></td><td class=\"number\">11</td><td class=\"number\">12</td>";
        assert!(page.contains(&format!("<tr class=\"changed\"><td>count</td>{row}")), "{page}");
    }

    #[test]
    fn run_without_baseline_has_no_difference() {
        assert!(section(&Run::new("c", vec![("r".to_owned(), sample())])).is_none());
    }

    #[test]
    fn same_reports_have_no_changed_number() {
        let run = Run::new("c", vec![("a".to_owned(), sample()), ("b".to_owned(), sample())]);
        let page = section(&run).unwrap().into_string();
        assert!(page.contains("No number of the whole cluster differs from <b>a</b>"), "{page}");
        assert!(!page.contains("class=\"changed\""));
    }
}
