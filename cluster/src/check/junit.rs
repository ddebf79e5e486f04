//! Verdicts as JUnit XML, for CI servers.

use std::{collections::HashMap, fmt::Write as _};

use super::{
    Checked,
    budget::{Outcome, Verdict},
};

/// The document: one test suite for each scenario, one test case for each verdict. Undecided verdicts count as skipped.
///
/// The name of a test case contains neither limit nor value, so that a CI server recognises the case when they change.
/// Both are properties of the case.
#[must_use]
pub fn document(checked: &[Checked]) -> String {
    let sum = |count: &dyn Fn(&Checked) -> usize| checked.iter().map(count).sum::<usize>();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites tests=\"{}\" failures=\"{}\" errors=\"{}\">\n",
        sum(&tests),
        sum(&|suite| suite.count(Outcome::Broken)),
        sum(&errors)
    );
    for suite in checked {
        xml += &suite_text(suite);
    }
    xml + "</testsuites>\n"
}

fn errors(suite: &Checked) -> usize {
    usize::from(suite.error.is_some())
}

fn tests(suite: &Checked) -> usize {
    suite.verdicts.len() + errors(suite)
}

fn suite_text(suite: &Checked) -> String {
    let class = attribute(&suite.scenario);
    let mut xml = format!(
        "  <testsuite name=\"{class}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3}\">\n",
        tests(suite),
        suite.count(Outcome::Broken),
        errors(suite),
        suite.count(Outcome::Undecided),
        suite.wall_s
    );
    let mut seen: HashMap<&str, u32> = HashMap::new();
    for verdict in &suite.verdicts {
        let count = seen.entry(verdict.what.as_str()).or_default();
        *count += 1;
        // Two limits on the same quantity.
        let name = if *count > 1 { format!("{} ({count})", verdict.what) } else { verdict.what.clone() };
        // Writing into a string does not fail.
        let _ = write!(
            xml,
            "    <testcase classname=\"{class}\" name=\"{}\">\n{}    </testcase>\n",
            attribute(&name),
            verdict_text(verdict)
        );
    }
    if let Some(error) = &suite.error {
        let first = error.lines().next().unwrap_or_default();
        let _ = writeln!(
            xml,
            "    <testcase classname=\"{class}\" name=\"run\"><error message=\"{}\">{}</error></testcase>",
            attribute(first),
            escaped(error)
        );
    }
    if !suite.warnings.is_empty() {
        let _ = writeln!(xml, "    <system-err>{}</system-err>", escaped(&suite.warnings.join("\n")));
    }
    xml + "  </testsuite>\n"
}

/// Limit and value, and the failure if there is one.
fn verdict_text(verdict: &Verdict) -> String {
    let mut xml = "      <properties>\n".to_owned();
    for (name, value) in [("limit", &verdict.expected), ("value", &verdict.found)] {
        let _ = writeln!(xml, "        <property name=\"{name}\" value=\"{}\"/>", attribute(value));
    }
    xml += "      </properties>\n";
    let message = attribute(&format!("expected {}, found {}", verdict.expected, verdict.found));
    let _ = match verdict.outcome {
        Outcome::Held => Ok(()),
        Outcome::Broken => writeln!(
            xml,
            "      <failure message=\"{message}\">{}</failure>",
            escaped(&verdict.causes.join("\n"))
        ),
        Outcome::Undecided => writeln!(xml, "      <skipped message=\"undecided: {message}\"/>"),
    };
    xml
}

/// Text of an attribute. A reader replaces newlines in attributes by spaces, unless they are character references.
fn attribute(text: &str) -> String {
    escaped(text).replace('\n', "&#10;").replace('\t', "&#9;")
}

/// Text as XML allows it: the five reserved characters as entities, control characters as question marks.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&apos;",
            '\n' | '\t' => out.push(c),
            // XML excludes these two, which are no control characters.
            '\u{fffe}' | '\u{ffff}' => out.push('?'),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(what: &str, outcome: Outcome) -> Verdict {
        Verdict {
            what: what.into(),
            outcome,
            expected: "exactly 3".into(),
            found: "4".into(),
            causes: match outcome {
                Outcome::Broken => vec!["node0, cause \"message\": 4".into(), "second line".into()],
                Outcome::Held | Outcome::Undecided => Vec::new(),
            },
        }
    }

    fn checked() -> Checked {
        use Outcome::{Broken, Held, Undecided};
        let what = "interrupts of <node0>";
        Checked {
            scenario: "a&b.toml".into(),
            verdicts: [Held, Broken, Undecided].map(|outcome| verdict(what, outcome)).to_vec(),
            warnings: vec!["no budget\n  fix: <one>".into()],
            error: Some("no boot\u{1b}\nconsole of node1".into()),
            reports: Vec::new(),
            wall_s: 1.5,
            code: 3,
        }
    }

    #[test]
    fn every_verdict_is_a_case_and_text_is_escaped() {
        let xml = document(&[checked()]);
        for part in [
            "<testsuites tests=\"4\" failures=\"1\" errors=\"1\">",
            "name=\"a&amp;b.toml\" tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\"",
            "message=\"expected exactly 3, found 4\">node0, cause &quot;message&quot;: 4\nsecond line</failure>",
            "<skipped message=\"undecided: expected exactly 3, found 4\"/>",
            "<error message=\"no boot?\">no boot?\nconsole of node1</error>",
            "<system-err>no budget\n  fix: &lt;one&gt;</system-err>",
        ] {
            assert!(xml.contains(part), "{part}\n{xml}");
        }
    }

    #[test]
    fn names_are_stable_and_unique_and_values_are_properties() {
        let names = |checked: &Checked| -> Vec<String> {
            let xml = document(std::slice::from_ref(checked));
            let cases = xml.lines().filter(|line| line.contains("<testcase"));
            cases.map(str::to_owned).collect()
        };
        let mut one = checked();
        let before = names(&one);
        assert!(before[1].contains("name=\"interrupts of &lt;node0&gt; (2)\""), "{before:?}");
        for verdict in &mut one.verdicts {
            (verdict.expected, verdict.found) = ("at most 5".into(), "several\nlines".into());
        }
        assert_eq!(names(&one), before, "another limit and value");
        let xml = document(&[one]);
        assert_eq!(xml.matches("<property name=\"limit\" value=\"at most 5\"/>").count(), 3, "{xml}");
        assert_eq!(xml.matches("<property name=\"value\" value=\"several&#10;lines\"/>").count(), 3, "{xml}");
    }
}
