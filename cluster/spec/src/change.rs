//! A limit on the change of a figure between two reports: `interrupts>+0%`, `node1:interrupts>+2.5%`.
//!
//! The limit is an integer number of millionths, and figures are integers, so the comparison has no rounding error.

use std::{fmt, str::FromStr};

use thiserror::Error;

use crate::{
    budget::{CROSSINGS, QUANTITIES, is_of_cluster},
    source::nearest,
};

/// Figures of a report that have no budgets: name and meaning.
const MORE: &[(&str, &str)] = &[("model_time_ps", "duration of the run, model time")];

/// Figures of wall time: name and meaning. They depend on the machine and on its load.
const WALL: &[(&str, &str)] = &[
    ("wall_boot_ns", "wall time until all nodes were healthy"),
    ("wall_commands_ns", "wall time of the commands"),
    ("wall_guests_busy_ns", "processor time of all guests that was not idle"),
];

/// Millionths of the whole in one percent.
const PERCENT: i64 = 10_000;

/// Maximum number of decimals of a percentage.
const DECIMALS: usize = 4;

/// A change that fails a comparison of two reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeLimit {
    /// The figure.
    pub what: String,
    /// The node to count on. Without it: the whole cluster.
    pub node: Option<String>,
    /// Which side of the limit fails.
    pub fails: Side,
    /// The limit, relative to the first report's value.
    pub limit: Change,
}

/// A side of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Values above it.
    Above,
    /// Values below it.
    Below,
}

/// A change of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// In the figure's own unit.
    Absolute(i64),
    /// In millionths of the first value.
    Millionths(i64),
}

/// A text is no change that fails a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChangeLimitError {
    /// It has neither `>` nor `<`.
    #[error(
        "it has no `>` or `<`; write a figure, the side that fails, and the change, as in `interrupts>+0%`"
    )]
    NoSide,
    /// No figure has this name.
    #[error("there is no figure `{what}`; {}", fix(near.as_deref()))]
    NoFigure {
        /// The name.
        what: String,
        /// A name that it probably means.
        near: Option<&'static str>,
    },
    /// The change has no sign.
    #[error("`{0}` has no sign; a limit is a change from the first report, as in `+{0}` or `-{0}`")]
    NoSign(String),
    /// The change is no number.
    #[error(
        "`{0}` is no change; write a whole number such as `+10`, or a percentage of at most 1000000 with at most \
         {DECIMALS} decimals, such as `+2.5%`"
    )]
    NoNumber(String),
    /// The figure exists only for the whole cluster.
    #[error("`{0}` exists only for the whole cluster; remove the node and its colon")]
    WholeCluster(String),
    /// The reports have no such node.
    #[error("{file} has no node `{node}`; {fix}")]
    NoNode {
        /// The report.
        file: String,
        /// The node.
        node: String,
        /// The fix.
        fix: String,
    },
}

fn fix(near: Option<&str>) -> String {
    match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("use one of {}", names().collect::<Vec<_>>().join(", ")),
    }
}

/// All names of figures.
fn names() -> impl Iterator<Item = &'static str> {
    let described = [QUANTITIES, MORE, WALL].into_iter().flatten().map(|(name, _)| *name);
    let mut seen: Vec<&str> = Vec::new();
    described.chain(CROSSINGS.iter().copied()).filter(move |name| {
        let is_new = !seen.contains(name);
        seen.push(name);
        is_new
    })
}

impl ChangeLimit {
    /// Whether the figure is a wall time.
    #[must_use]
    pub fn is_wall(&self) -> bool {
        WALL.iter().any(|(name, _)| *name == self.what)
    }

    /// Whether a change from `base` to `new` fails. The comparison is exact.
    #[must_use]
    pub fn is_broken(&self, base: u64, new: u64) -> bool {
        let (base, new) = (i128::from(base), i128::from(new));
        // Values have 64 bits and changes are bounded, so no product reaches 2^127.
        let (limit, value) = match self.limit {
            Change::Absolute(by) => (base + i128::from(by), new),
            Change::Millionths(by) => {
                (base * i128::from(100 * PERCENT + by), new * i128::from(100 * PERCENT))
            }
        };
        match self.fails {
            Side::Above => value > limit,
            Side::Below => value < limit,
        }
    }

    /// The figure in words: `interrupts of node1`.
    #[must_use]
    pub fn subject(&self) -> String {
        let node = self.node.as_ref().map_or_else(String::new, |node| format!(" of {node}"));
        format!("{}{node}", self.what)
    }

    /// The limit in words, for this first value: `at most +5% of 200`.
    #[must_use]
    pub fn allowed(&self, base: u64) -> String {
        let word = match self.fails {
            Side::Above => "at most",
            Side::Below => "at least",
        };
        match self.limit {
            Change::Absolute(by) => format!("{word} {base} {by:+}"),
            Change::Millionths(_) => format!("{word} {base} {}", self.limit),
        }
    }

    /// Checks that the report `file` has the node.
    ///
    /// # Errors
    /// [`ChangeLimitError::NoNode`].
    pub fn check_node(&self, file: &str, nodes: &[&str]) -> Result<(), ChangeLimitError> {
        let Some(node) = self.node.as_deref().filter(|node| !nodes.contains(node)) else { return Ok(()) };
        let fix = match nearest(node, nodes) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "use the name of a node of both reports".to_owned(),
        };
        Err(ChangeLimitError::NoNode { file: file.to_owned(), node: node.to_owned(), fix })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absolute(by) => write!(f, "{by:+}"),
            Self::Millionths(by) => {
                let sign = if *by < 0 { '-' } else { '+' };
                let (whole, rest) = (by.abs() / PERCENT, by.abs() % PERCENT);
                let decimals = format!("{rest:0DECIMALS$}");
                let decimals = decimals.trim_end_matches('0');
                let point = if decimals.is_empty() { "" } else { "." };
                write!(f, "{sign}{whole}{point}{decimals}%")
            }
        }
    }
}

impl fmt::Display for ChangeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.fails {
            Side::Above => '>',
            Side::Below => '<',
        };
        let node = self.node.as_ref().map_or_else(String::new, |node| format!("{node}:"));
        write!(f, "{node}{}{side}{}", self.what, self.limit)
    }
}

impl FromStr for ChangeLimit {
    type Err = ChangeLimitError;

    fn from_str(text: &str) -> Result<Self, ChangeLimitError> {
        let at = text.find(['>', '<']).ok_or(ChangeLimitError::NoSide)?;
        let (figure, rest) = text.split_at(at);
        let fails = if rest.starts_with('>') { Side::Above } else { Side::Below };
        let (what, node) = match figure.split_once(':') {
            Some((node, what)) => (what.trim(), Some(node.trim().to_owned())),
            None => (figure.trim(), None),
        };
        let known: Vec<&'static str> = names().collect();
        if !known.contains(&what) {
            return Err(ChangeLimitError::NoFigure { what: what.to_owned(), near: nearest(what, &known) });
        }
        let is_more = [MORE, WALL].into_iter().flatten().any(|(name, _)| *name == what);
        if node.is_some() && (is_more || is_of_cluster(what)) {
            return Err(ChangeLimitError::WholeCluster(what.to_owned()));
        }
        Ok(Self { what: what.to_owned(), node, fails, limit: change(rest[1..].trim())? })
    }
}

/// A change with its sign: `+10`, `-2.5%`.
fn change(text: &str) -> Result<Change, ChangeLimitError> {
    let wrong = || ChangeLimitError::NoNumber(text.to_owned());
    let (sign, size) = match text.as_bytes() {
        [b'+', ..] => (1, &text[1..]),
        [b'-', ..] => (-1, &text[1..]),
        [b'0'..=b'9', ..] => return Err(ChangeLimitError::NoSign(text.to_owned())),
        _ => return Err(wrong()),
    };
    let digits = |digits: &str| -> Option<i64> {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok()).flatten()
    };
    let Some(percent) = size.strip_suffix('%') else {
        return digits(size).map(|by| Change::Absolute(sign * by)).ok_or_else(wrong);
    };
    let (whole, decimals) = percent.trim_end().split_once('.').unwrap_or((percent.trim_end(), "0"));
    let is_in_range = |whole: &i64| *whole <= 1_000_000;
    let whole = digits(whole).filter(is_in_range).ok_or_else(wrong)?;
    if decimals.len() > DECIMALS {
        return Err(wrong());
    }
    let decimals = digits(&format!("{decimals:0<DECIMALS$}")).ok_or_else(wrong)?;
    Ok(Change::Millionths(sign * (whole * PERCENT + decimals)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limit(text: &str) -> ChangeLimit {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn complaint(text: &str) -> String {
        match text.parse::<ChangeLimit>() {
            Ok(limit) => panic!("{limit:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn text_is_parsed_into_figure_side_and_change() {
        let parsed = limit("node1: interrupts > +2.5%");
        assert_eq!((parsed.what.as_str(), parsed.node.as_deref()), ("interrupts", Some("node1")));
        assert_eq!((parsed.fails, parsed.limit), (Side::Above, Change::Millionths(25_000)));
        assert_eq!(limit("pio_write<-10").limit, Change::Absolute(-10));
        for text in ["interrupts>+0%", "model_latency_p99_ps>+5%", "dma_bytes<-0.0125%", "a:doorbells>+7"] {
            assert_eq!(limit(text).to_string(), text);
        }
    }

    #[test]
    fn counts_are_compared_exactly() {
        let none = limit("interrupts>+0%");
        assert!(!none.is_broken(16, 16) && none.is_broken(16, 17) && !none.is_broken(16, 3));
        assert!(none.is_broken(0, 1) && none.is_broken(u64::MAX - 1, u64::MAX));
        let five = limit("interrupts>+5%");
        assert!(!five.is_broken(200, 210) && five.is_broken(200, 211));
        let less = limit("messages<-10%");
        assert!(!less.is_broken(100, 90) && less.is_broken(100, 89));
        let by = limit("interrupts>+3");
        assert!(!by.is_broken(0, 3) && by.is_broken(0, 4));
        assert!(limit("interrupts>-10%").is_broken(100, 91), "an improvement can be demanded");
    }

    #[test]
    fn errors_name_the_fix() {
        for (text, part) in [
            ("interrupts", "write a figure, the side that fails"),
            ("interupts>+0%", "there is no figure `interupts`; did you mean `interrupts`?"),
            ("zebra>+0%", "use one of messages, "),
            ("interrupts>10", "has no sign; a limit is a change from the first report, as in `+10`"),
            ("interrupts>5%", "as in `+5%` or `-5%`"),
            ("interrupts>+x", "`+x` is no change"),
            ("interrupts>+0.12345%", "at most 4 decimals"),
            ("interrupts>=+1", "`=+1` is no change"),
            ("interrupts>+1000001%", "is no change"),
            ("interrupts>", "`` is no change"),
            ("node0:lost_messages>+0%", "exists only for the whole cluster"),
            ("node0:model_time_ps>+1%", "exists only for the whole cluster; remove the node and its colon"),
        ] {
            assert!(complaint(text).contains(part), "{text}: {}", complaint(text));
        }
        let error = limit("nod1:interrupts>+0%").check_node("new.json", &["node0", "node1"]).unwrap_err();
        assert_eq!(error.to_string(), "new.json has no node `nod1`; did you mean `node1`?");
        assert_eq!(limit("b:interrupts>+0%").check_node("x", &["a", "b"]), Ok(()));
    }

    #[test]
    fn wall_times_are_told_apart() {
        assert!(limit("wall_commands_ns>+5%").is_wall() && !limit("model_time_ps>+5%").is_wall());
        assert!(complaint("wall_commands>+5%").contains("did you mean `wall_commands_ns`?"));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "([a-z0-9]{0,4}:)?[a-z_]{0,12}[<>]?[-+]?[0-9.]{0,20}%?") {
            if let Ok(limit) = text.parse::<ChangeLimit>() {
                prop_assert_eq!(limit.to_string().parse::<ChangeLimit>(), Ok(limit.clone()));
                let _ = limit.is_broken(u64::MAX, u64::MAX);
            }
        }

        #[test]
        fn unchanged_figure_keeps_every_limit_that_allows_none(value: u64, percent in 0_u32..1000) {
            for text in [format!("interrupts>+{percent}%"), format!("interrupts<-{percent}%")] {
                prop_assert!(!limit(&text).is_broken(value, value));
            }
        }
    }
}
