//! `niclab rules`: lists the rules for drivers, and explains each.

use std::fmt::Write as _;

use anyhow::{Result, anyhow};
use niclab_cluster::output::table;
use niclab_spec::rules::{self, Check, Rule};

use super::terminal;
use crate::arguments::RulesArgs;

/// Lists the rules, or explains one.
///
/// # Errors
/// When there is no such rule.
pub fn run(args: &RulesArgs) -> Result<u8> {
    let text = match &args.rule {
        None => list(),
        Some(name) => explain(rules::rule(name).ok_or_else(|| unknown(name))?),
    };
    terminal::print(&text)?;
    Ok(0)
}

fn unknown(name: &str) -> anyhow::Error {
    let near = rules::nearest_rule(name).map(|near| format!(" (did you mean `{near}`?)")).unwrap_or_default();
    anyhow!("there is no rule `{name}`{near}; `niclab rules` lists all")
}

fn list() -> String {
    let mut rows = vec![["rule", "chapter of DEVICE.md", "checked"].map(str::to_owned).to_vec()];
    for rule in rules::all() {
        let chapter = format!("{}. {}", rule.section, rules::section_title(rule.section));
        let checked = if rule.is_checked() { "yes" } else { "no" };
        rows.push(vec![rule.name.to_owned(), chapter, checked.to_owned()]);
    }
    let mut text = table(&rows);
    text += "\n`niclab rules NAME` explains a rule and its fix; `niclab run --rules report` checks drivers against \
             those marked `yes`.\n";
    text
}

fn explain(rule: &Rule) -> String {
    let mut text = String::new();
    let title = rules::section_title(rule.section);
    let check = match rule.check {
        Check::Live(proof) => format!("yes, if {proof}"),
        Check::No(why) => format!("no, {why}"),
    };
    let _ = writeln!(text, "{} (docs/driver/DEVICE.md, chapter {}: {title})\n", rule.name, rule.section);
    let _ = writeln!(text, "{}\n", rule.must);
    let _ = writeln!(text, "why:     {}", rule.why);
    let _ = writeln!(text, "fix:    {}", rule.fix);
    let _ = writeln!(text, "checked: {check}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_listed_and_each_is_explained() {
        let listed = list();
        for rule in rules::all() {
            assert!(
                listed.lines().any(|line| line.split_whitespace().next() == Some(rule.name)),
                "{}",
                rule.name
            );
            let text = explain(rule);
            assert!(text.contains(rule.must) && text.contains(rule.fix), "{text}");
        }
    }

    #[test]
    fn misspelled_rule_gets_a_suggestion() {
        assert!(unknown("launch-dorbell").to_string().contains("`launch-doorbell`"));
        assert!(!unknown("xyzzy").to_string().contains("did you mean"));
    }
}
