//! A budget in one line, as on a command line: `interrupts<=16`, `node0:doorbells/sent<=0.1`.
//!
//! ```text
//! [NODE:]QUANTITY[/UNIT](<=|>=|==)NUMBER
//! ```
//!
//! Units are those of [`Per`], without `run`.

use std::{fmt, ops::Range, str::FromStr};

use thiserror::Error;

use crate::{
    Budget, Cluster,
    budget::{BudgetProblem, Per},
    source::nearest,
};

/// A budget with the text that it comes from, so that an error names the position.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetText {
    text: String,
    budget: Budget,
    parts: Parts,
}

/// The positions of a budget's parts in its text, in bytes. A missing part has that of the quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    node: Range<usize>,
    quantity: Range<usize>,
    unit: Range<usize>,
    limit: Range<usize>,
}

/// A budget's text is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("budget `{text}`, character {position}: {problem}\n  fix: {}", problem.remedy())]
pub struct BudgetTextError {
    /// The whole text.
    pub text: String,
    /// Position of the invalid part in characters, from 1.
    pub position: usize,
    /// What is wrong there.
    pub problem: BudgetTextProblem,
}

/// What is wrong with a budget's text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BudgetTextProblem {
    /// There is no comparison.
    #[error("there is no `<=`, `>=` or `==`")]
    NoComparison,
    /// A sign that compares nothing, or that excludes the limit.
    #[error("`{0}` alone is not a comparison of budgets, which include their limit")]
    Comparison(char),
    /// The limit is no number.
    #[error("`{0}` is not a number")]
    Number(String),
    /// The unit is unknown.
    #[error("there is no unit `{0}`")]
    Unit(String),
    /// A value of the budget is invalid.
    #[error("{what}")]
    Invalid {
        /// What is wrong.
        what: String,
        /// How to fix it.
        remedy: String,
    },
}

impl BudgetTextProblem {
    /// How to fix it.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::NoComparison => "write a quantity and its limit, as in 'interrupts<=16'".to_owned(),
            Self::Comparison(sign) => format!("write `{sign}=`"),
            Self::Number(_) => "write a number, such as 16, 0.5 or 4e8".to_owned(),
            Self::Unit(wrong) => {
                let units = Per::ALL.map(Per::name).into_iter().filter(|name| *name != Per::Run.name());
                let units: Vec<&str> = units.collect();
                match nearest(wrong, &units) {
                    Some(near) => format!("did you mean `/{near}`?"),
                    None => format!("use one of /{}, or omit it", units.join(", /")),
                }
            }
            Self::Invalid { remedy, .. } => remedy.clone(),
        }
    }
}

impl BudgetText {
    /// The budget. Its values are valid if [`Self::check`] has no error.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Checks all values of the budget for a live run of this cluster.
    ///
    /// # Errors
    /// [`BudgetTextError`], such as for a node that the cluster does not have.
    pub fn check(&self, cluster: &Cluster) -> Result<(), BudgetTextError> {
        let nodes: Vec<&str> = cluster.nodes.iter().map(|node| node.name.as_str()).collect();
        self.check_names(&nodes)
    }

    fn check_names(&self, nodes: &[&str]) -> Result<(), BudgetTextError> {
        let Some(BudgetProblem { key, what, remedy }) = self.budget.problem(nodes, true) else {
            return Ok(());
        };
        let (part, remedy) = match key {
            "node" => (&self.parts.node, remedy.replace("omit `node`", "omit the node and its colon")),
            "per" => (&self.parts.unit, remedy.replace("omit `per`", "omit the slash and the unit")),
            "what" => (&self.parts.quantity, remedy),
            _ => (&self.parts.limit, remedy),
        };
        Err(wrong(&self.text, part.start, BudgetTextProblem::Invalid { what, remedy }))
    }
}

impl fmt::Display for BudgetText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for BudgetText {
    type Err = BudgetTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let comparison = text
            .find(['<', '>', '='])
            .ok_or_else(|| wrong(text, text.len(), BudgetTextProblem::NoComparison))?;
        let (subject, rest) = text.split_at(comparison);
        let sign = rest.get(..2).unwrap_or(rest);
        let number = rest.strip_prefix(sign).unwrap_or_default();
        let limit = trimmed(text, text.len() - number.len()..text.len());
        let set = |budget: Budget, value: f64| match sign {
            "<=" => Some(Budget { at_most: Some(value), ..budget }),
            ">=" => Some(Budget { at_least: Some(value), ..budget }),
            "==" => Some(Budget { exact: Some(value), ..budget }),
            _ => None,
        };
        if set(Budget::default(), 0.0).is_none() {
            let sign = rest.chars().next().unwrap_or('=');
            return Err(wrong(text, comparison, BudgetTextProblem::Comparison(sign)));
        }
        let number = &text[limit.clone()];
        let value: f64 = number
            .parse()
            .map_err(|_| wrong(text, limit.start, BudgetTextProblem::Number(number.to_owned())))?;
        let (budget, parts) = subject_of(text, subject)?;
        let budget = set(budget, value).unwrap_or_default();
        Ok(Self { text: text.to_owned(), budget, parts: Parts { limit, ..parts } })
    }
}

/// The budget before its limit.
fn subject_of(text: &str, subject: &str) -> Result<(Budget, Parts), BudgetTextError> {
    let colon = subject.find(':');
    let begin = colon.map_or(0, |colon| colon + 1);
    let slash = subject[begin..].find('/').map(|slash| begin + slash);
    let quantity = trimmed(text, begin..slash.unwrap_or(subject.len()));
    let node = colon.map_or(quantity.clone(), |colon| trimmed(text, 0..colon));
    let unit = slash.map_or(quantity.clone(), |slash| trimmed(text, slash + 1..subject.len()));
    let per = match slash {
        None => Per::Run,
        Some(_) => {
            let name = &text[unit.clone()];
            let is_named = |per: &Per| *per != Per::Run && per.name() == name;
            let unknown = || wrong(text, unit.start, BudgetTextProblem::Unit(name.to_owned()));
            Per::ALL.into_iter().find(is_named).ok_or_else(unknown)?
        }
    };
    let node_name = colon.map(|_| text[node.clone()].to_owned());
    let budget =
        Budget { what: text[quantity.clone()].to_owned(), node: node_name, per, ..Budget::default() };
    Ok((budget, Parts { node, limit: quantity.clone(), quantity, unit }))
}

/// The range without spaces at its ends.
fn trimmed(text: &str, range: Range<usize>) -> Range<usize> {
    let part = &text[range.clone()];
    let begin = range.start + (part.len() - part.trim_start().len());
    begin..begin + part.trim().len()
}

fn wrong(text: &str, offset: usize, problem: BudgetTextProblem) -> BudgetTextError {
    let position = text.get(..offset).unwrap_or(text).chars().count() + 1;
    BudgetTextError { text: text.to_owned(), position, problem }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Budget {
        text.parse::<BudgetText>().unwrap().budget().clone()
    }

    fn refused(text: &str) -> String {
        let checked = text.parse::<BudgetText>().and_then(|budget| budget.check_names(&["node0", "node1"]));
        checked.unwrap_err().to_string()
    }

    #[test]
    fn text_has_node_quantity_unit_and_limit() {
        let all = parsed("node0:doorbells/sent<=0.1");
        let expected = Budget {
            what: "doorbells".into(),
            node: Some("node0".into()),
            per: Per::Sent,
            at_most: Some(0.1),
            ..Budget::default()
        };
        assert_eq!(all, expected);
        assert_eq!(parsed(" node0 : doorbells / sent <= 0.1 "), expected);
        let rate = parsed("model_messages_per_s>=4e8");
        assert_eq!((rate.what.as_str(), rate.at_least), ("model_messages_per_s", Some(4e8)));
        assert_eq!(parsed("interrupts==16").exact, Some(16.0));
        for (unit, per) in
            [("message", Per::Message), ("received", Per::Received), ("megabyte", Per::Megabyte)]
        {
            assert_eq!(parsed(&format!("interrupts/{unit}<=1")).per, per);
        }
    }

    #[test]
    fn invalid_text_is_refused_with_position_and_fix() {
        for (text, position, parts) in [
            ("interupts<=16", 1, &["no quantity `interupts`", "did you mean `interrupts`?"][..]),
            ("interrupts", 11, &["no `<=`", "'interrupts<=16'"]),
            ("", 1, &["no `<=`"]),
            ("interrupts<16", 11, &["`<` alone is not a comparison", "write `<=`"]),
            ("interrupts=16", 11, &["`=` alone", "write `==`"]),
            ("interrupts<=many", 13, &["`many` is not a number", "4e8"]),
            ("interrupts<=", 13, &["`` is not a number"]),
            ("interrupts<=nan", 13, &["NaN is not valid"]),
            ("interrupts>=0", 13, &["can never fail"]),
            ("interrupts/mesage<=1", 12, &["no unit `mesage`", "did you mean `/message`?"]),
            ("interrupts/<=1", 12, &["no unit ``", "/sent, /received"]),
            ("<=1", 1, &["no quantity ``", "use one of messages"]),
            ("interrupts/run<=1", 12, &["no unit `run`"]),
            ("nod0:interrupts<=1", 1, &["no node `nod0`", "did you mean `node0`?"]),
            ("node0:interupts<=1", 7, &["did you mean `interrupts`?"]),
            ("node0:lost_messages==0", 1, &["whole cluster", "omit the node"]),
            ("model_latency_p50_ps/sent<=1", 22, &["not a sum", "omit the slash"]),
            ("größe<=1", 1, &["no quantity `größe`"]),
            ("interrupts≤16", 14, &["no `<=`"]),
        ] {
            let message = refused(text);
            assert!(message.starts_with(&format!("budget `{text}`, character {position}: ")), "{message}");
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,20}(<|>|=|<=|:|/)?\\PC{0,10}") {
            let _ = text.parse::<BudgetText>();
        }
    }
}
