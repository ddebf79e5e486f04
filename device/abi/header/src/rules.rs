//! The page of rules, to which the manual links wherever it says what a driver must do.

use std::fmt::Write as _;

use niclab_abi::rules::{self, Check, SECTIONS};

/// The committed page, relative to this package.
pub const PAGE: &str = "../../../docs/reference/RULES.md";

const HEAD: &str = "\
# Rules for drivers

Generated from the `niclab-abi` crate (`rules.rs`) by `cargo run -p niclab-abi-header`; do not edit. Every \"must\" of
[DEVICE.md](../driver/DEVICE.md) has a name here. `niclab rules NAME` prints an entry.

`--rules report` (key `rules` of a cluster file) has the cards check the rules while guests run. With `fail`, a broken
rule makes the run's exit code 1. With `stop`, it stops the guest that broke the rule, for a debugger. Without `rules`
the cards do not check, and a run has no cost. A check costs some 400 instructions for each short message, and messages
that would be processed as a batch are processed one by one ([BENCHMARKS.md](../design/BENCHMARKS.md)). A report names
rule, chapter, port, model and wall time, and the operations before it (`broken_rules`, `broken_rule_log`;
[REPORT-KEYS.md](REPORT-KEYS.md)).

A card reports a rule only if what it sees proves that the rule was broken, however long a guest's processor or the host
delayed anything. Some broken rules leave no trace. Their \"checked: no\" says why, and what finds them instead.
";

/// The complete page.
pub fn page() -> String {
    let mut out = String::from(HEAD);
    let checked = rules::all().filter(|rule| rule.is_checked()).count();
    let _ = writeln!(out, "\n{checked} of {} rules are checked.", rules::all().count());
    for (section, title) in SECTIONS {
        let _ = writeln!(out, "\n## {section}. {title}");
        for rule in rules::all().filter(|rule| rule.section == *section) {
            let check = match rule.check {
                Check::Live(proof) => format!("Checked: a card reports it if {proof}."),
                Check::No(why) => format!("Checked: no, {why}."),
            };
            let _ = write!(
                out,
                "\n### {}\n\n{} {}\n\n* Fix: {}\n* {check}\n",
                rule.name, rule.must, rule.why, rule.fix
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;

    fn read(path: &str) -> String {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("the committed copy")
    }

    #[test]
    fn committed_page_is_current() {
        assert!(read(PAGE) == page(), "stale: cargo run -p niclab-abi-header");
    }

    /// The manual's chapters by number, each with its title and text.
    fn chapters() -> BTreeMap<u8, (String, String)> {
        let manual = read("../../../docs/driver/DEVICE.md");
        let chapter = |text: &str| {
            let (heading, body) = text.split_once('\n')?;
            let (number, title) = heading.split_once(". ")?;
            Some((number.parse().ok()?, (title.to_owned(), body.to_owned())))
        };
        format!("\n{manual}").split("\n## ").filter_map(chapter).collect()
    }

    /// The names of rules in a text, from its links to this page.
    fn names(text: &str) -> Vec<&str> {
        text.split("(../reference/RULES.md#").skip(1).filter_map(|rest| rest.split(')').next()).collect()
    }

    #[test]
    fn each_rule_is_in_its_chapter_and_each_link_leads_to_a_rule() {
        let chapters = chapters();
        for (section, title) in SECTIONS {
            assert_eq!(
                chapters.get(section).map(|(title, _)| title.as_str()),
                Some(*title),
                "chapter {section}"
            );
        }
        for rule in rules::all() {
            let (_, text) = &chapters[&rule.section];
            assert!(
                names(text).contains(&rule.name),
                "DEVICE.md, chapter {}, does not name {}",
                rule.section,
                rule.name
            );
        }
        for (section, (_, text)) in &chapters {
            for name in names(text) {
                let found = rules::rule(name);
                assert!(
                    found.is_some_and(|rule| rule.section == *section),
                    "chapter {section}: no rule {name}"
                );
            }
        }
    }

    /// Paragraphs, list items and table rows.
    fn blocks(text: &str) -> Vec<String> {
        let mut blocks = vec![String::new()];
        for line in text.lines() {
            let begin = line.trim_start();
            let is_item = begin.starts_with("* ")
                || begin.starts_with('|')
                || begin.split_once(". ").is_some_and(|(number, _)| {
                    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
                });
            if begin.is_empty() || is_item {
                blocks.push(String::new());
            }
            if let Some(block) = blocks.last_mut() {
                block.push_str(line);
                block.push('\n');
            }
        }
        blocks
    }

    #[test]
    fn every_must_of_the_manual_links_to_a_rule() {
        for (section, (_, text)) in chapters() {
            for block in blocks(&text) {
                let musts =
                    block.split(|letter: char| !letter.is_ascii_alphabetic()).filter(|word| *word == "must");
                let (musts, names) = (musts.count(), names(&block).len());
                assert!(musts == 0 || names > 0, "chapter {section}: a must without a rule:\n{block}");
            }
        }
    }
}
