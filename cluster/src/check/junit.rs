//! Verdicts as JUnit XML, for CI servers.

use std::fmt::Write as _;

use super::{Checked, budget::Outcome};

/// The document: one test suite for each scenario, one test case for each verdict. Undecided verdicts count as skipped.
#[must_use]
pub fn document(checked: &[Checked]) -> String {
    let failures = |checked: &Checked| checked.count(Outcome::Broken);
    let errors = |checked: &Checked| usize::from(checked.error.is_some());
    let tests = |checked: &Checked| checked.verdicts.len() + errors(checked);
    let sum = |count: &dyn Fn(&Checked) -> usize| checked.iter().map(count).sum::<usize>();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites tests=\"{}\" failures=\"{}\" errors=\"{}\">\n",
        sum(&tests),
        sum(&failures),
        sum(&errors)
    );
    for suite in checked {
        // Writing into a string does not fail.
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3}\">",
            escaped(&suite.scenario),
            tests(suite),
            failures(suite),
            errors(suite),
            suite.count(Outcome::Undecided),
            suite.wall_s
        );
        for verdict in &suite.verdicts {
            let name = escaped(&format!("{}: {}", verdict.what, verdict.expected));
            let class = escaped(&suite.scenario);
            let case = format!("testcase classname=\"{class}\" name=\"{name}\"");
            let message = escaped(&format!("expected {}, found {}", verdict.expected, verdict.found));
            let _ = match verdict.outcome {
                Outcome::Held => writeln!(xml, "    <{case}/>"),
                Outcome::Broken => writeln!(
                    xml,
                    "    <{case}><failure message=\"{message}\">{}</failure></testcase>",
                    escaped(&verdict.causes.join("\n"))
                ),
                Outcome::Undecided => {
                    writeln!(xml, "    <{case}><skipped message=\"undecided: {message}\"/></testcase>")
                }
            };
        }
        if let Some(error) = &suite.error {
            let _ = writeln!(
                xml,
                "    <testcase classname=\"{0}\" name=\"run\"><error message=\"{1}\"/></testcase>",
                escaped(&suite.scenario),
                escaped(error)
            );
        }
        xml += "  </testsuite>\n";
    }
    xml + "</testsuites>\n"
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
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::budget::Verdict;

    #[test]
    fn every_verdict_is_a_case_and_text_is_escaped() {
        let verdict = |outcome: Outcome| Verdict {
            what: "interrupts of <node0>".into(),
            outcome,
            expected: "exactly 3".into(),
            found: "4".into(),
            causes: match outcome {
                Outcome::Broken => vec!["node0, cause \"message\": 4".into()],
                Outcome::Held | Outcome::Undecided => Vec::new(),
            },
        };
        let checked = Checked {
            scenario: "a&b.toml".into(),
            verdicts: vec![verdict(Outcome::Held), verdict(Outcome::Broken), verdict(Outcome::Undecided)],
            error: Some("no boot\u{1b}".into()),
            reports: Vec::new(),
            wall_s: 1.5,
            code: 3,
        };
        let xml = document(&[checked]);
        assert!(xml.contains("<testsuites tests=\"4\" failures=\"1\" errors=\"1\">"), "{xml}");
        assert!(
            xml.contains("name=\"a&amp;b.toml\" tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\""),
            "{xml}"
        );
        assert!(xml.contains("interrupts of &lt;node0&gt;: exactly 3"), "{xml}");
        assert!(
            xml.contains("message=\"expected exactly 3, found 4\">node0, cause &quot;message&quot;: 4<"),
            "{xml}"
        );
        assert!(
            xml.contains("<skipped message=\"undecided: expected exactly 3, found 4\"/></testcase>"),
            "{xml}"
        );
        assert!(xml.contains("no boot?"), "{xml}");
    }
}
