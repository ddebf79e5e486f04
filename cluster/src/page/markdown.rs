//! The short form of a page, for a comment on a merge request.

use std::fmt::Write as _;

use niclab_spec::Report;

use super::{
    Run,
    difference::Difference,
    figures::{key_figures, shown},
    word,
};
use crate::check::budget::Outcome;

/// Maximum number of changed numbers; servers refuse long comments.
const MAX_ROWS: usize = 100;

/// Maximum number of verdicts that held; all others are always there.
const MAX_HELD: usize = 20;

/// Markdown about these runs: the verdicts, the summary, and what changed.
#[must_use]
pub fn markdown(runs: &[Run]) -> String {
    runs.iter().map(of_run).collect::<Vec<_>>().join("\n")
}

fn of_run(run: &Run) -> String {
    let mut text = format!("### {}: {}\n", escaped(&run.name), run.result().0);
    if let Some(error) = &run.error {
        text += &format!("\n{}\n", escaped(error));
    }
    text += &verdicts(run);
    let reports: Vec<&Report> = run.reports.iter().map(|(_, report)| report).collect();
    if let Some(report) = run.report() {
        for node in &report.nodes {
            if let Some(error) = &node.error {
                text += &format!("\n**{}**: {}\n", escaped(&node.name), escaped(error));
            }
        }
        text += "\n";
        let is_pair = reports.len() == 2;
        text += if is_pair {
            "| figure | baseline | this run | change |\n| --- | ---: | ---: | ---: |\n"
        } else {
            "| figure | this run |\n| --- | ---: |\n"
        };
        for figure in key_figures(&reports) {
            let mut cells = vec![figure.name.to_owned()];
            cells.extend(figure.values.iter().map(|value| shown(*value)));
            if is_pair {
                cells.push(if figure.is_changed() {
                    format!("**{}**", figure.change())
                } else {
                    figure.change()
                });
            }
            text += &row(&cells);
        }
    }
    text + &changes(run)
}

/// All verdicts that did not hold, and some that held.
fn verdicts(run: &Run) -> String {
    if run.verdicts.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n| verdict | what | expected | found |\n| --- | --- | --- | --- |\n");
    let (held, other): (Vec<_>, Vec<_>) = run.verdicts.iter().partition(|verdict| verdict.is_held());
    for verdict in other.iter().chain(held.iter().take(MAX_HELD)) {
        let name = word(verdict.outcome);
        let name = if verdict.outcome == Outcome::Broken { format!("**{name}**") } else { name.to_owned() };
        let found = [std::slice::from_ref(&verdict.found), &verdict.causes].concat().join("; ");
        text += &row(&[name, escaped(&verdict.what), escaped(&verdict.expected), escaped(&found)]);
    }
    if let Some(left) = held.len().checked_sub(MAX_HELD).filter(|left| *left > 0) {
        let _ = writeln!(text, "\n{left} more held.");
    }
    text
}

/// The counts and model times that differ from the baseline, folded.
fn changes(run: &Run) -> String {
    let Some(difference) = Difference::of(run) else { return String::new() };
    let changed: Vec<_> = difference.changed().collect();
    if changed.is_empty() {
        return "\nNo count and no model time differs from the baseline.\n".to_owned();
    }
    let mut text = format!(
        "\n<details><summary>{} counts and model times differ</summary>\n\n\
         | what | unit | baseline | this run | difference | % |\n| --- | --- | ---: | ---: | ---: | ---: |\n",
        changed.len()
    );
    for number in changed.iter().take(MAX_ROWS) {
        let value =
            |value: &Option<u64>| value.map_or_else(|| "-".to_owned(), |value| number.unit.show(value));
        let mut cells = vec![escaped(&number.name), number.unit.name().to_owned()];
        cells.extend(number.values.iter().map(value));
        cells.extend([number.shown_difference(), number.percent()]);
        text += &row(&cells);
    }
    if let Some(left) = changed.len().checked_sub(MAX_ROWS).filter(|left| *left > 0) {
        let _ = writeln!(text, "\n{left} more; `niclab report` lists all.");
    }
    text + "\n</details>\n"
}

/// A row of a table. The cells are escaped.
fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// A user's text as plain text of one line: no HTML, no markup, no end of a table's cell.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            // Neither a user nor an issue is mentioned.
            '@' => escaped.push_str("&#64;"),
            '#' => escaped.push_str("&#35;"),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '~' => escaped.extend(['\\', character]),
            character if character.is_control() => escaped.push(' '),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::sample;

    fn pair() -> Run {
        let mut new = sample();
        new.nodes[0].doorbells = 12;
        Run::new("c", vec![("a".to_owned(), sample()), ("b".to_owned(), new)])
    }

    #[test]
    fn verdicts_summary_and_changes_are_tables() {
        let text = markdown(&[pair()]);
        for line in [
            "### c: 2 of 2 broken",
            "| **BROKEN** | nothing-lost | the check holds | message 3 of node0 |",
            "| doorbells per message | 2.2 | 2.4 | **+9.09 %** |",
            "| messages received | 5 | 5 | none |",
            "<details><summary>1 counts and model times differ</summary>",
            "| doorbells |  | 11 | 12 | +1 | +9.09 |",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn script_and_markup_in_names_are_escaped() {
        let mut run = pair();
        run.name = "<script>\n| @user [x](y) `".to_owned();
        assert!(markdown(&[run]).starts_with("### &lt;script&gt; \\| &#64;user \\[x\\](y) \\`: "));
    }

    #[test]
    fn equal_reports_have_no_changes() {
        let run = Run::new("c", vec![("a".to_owned(), sample()), ("b".to_owned(), sample())]);
        assert!(markdown(&[run]).ends_with("No count and no model time differs from the baseline.\n"));
        assert!(!markdown(&[Run::new("c", vec![("a".to_owned(), sample())])]).contains("differ"));
    }
}
