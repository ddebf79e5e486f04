//! What is wrong with a source, said with its place, an excerpt and the mend.

use std::fmt::Write as _;

use thiserror::Error;

/// A stretch of one line of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line, from 1 on.
    pub line: usize,
    /// First character, from 1 on.
    pub column: usize,
    /// Characters.
    pub width: usize,
}

impl Place {
    /// From this place to the end of `last`, as far as both stand on one line.
    #[must_use]
    pub fn to(self, last: Self) -> Self {
        if last.line != self.line {
            return self;
        }
        Self { width: (last.column + last.width).saturating_sub(self.column).max(self.width), ..self }
    }
}

/// What is warned of; a source allows one for its next word by `.allow NAME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Warning {
    /// A branch can stand in a delay slot of another one, and is not taken there if that one is.
    BranchInDelaySlot,
    /// A predicate is read in the word that computes it.
    StalePredicate,
    /// Execution can run past the last word.
    FallsThrough,
    /// No path leads here.
    Unreachable,
}

impl Warning {
    /// All of them.
    pub const ALL: &[Self] =
        &[Self::BranchInDelaySlot, Self::StalePredicate, Self::FallsThrough, Self::Unreachable];

    /// As `.allow` names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BranchInDelaySlot => "branch_in_delay_slot",
            Self::StalePredicate => "stale_predicate",
            Self::FallsThrough => "falls_through",
            Self::Unreachable => "unreachable",
        }
    }
}

/// One thing that is wrong, or, with a [`Warning`], suspicious.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where.
    pub place: Place,
    /// The kind of a warning; none for an error.
    pub warning: Option<Warning>,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub mend: String,
}

impl Diagnostic {
    pub(crate) fn error(place: Place, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { place, warning: None, what: what.into(), mend: mend.into() }
    }

    /// The message for a user: `file`, line and column, the line itself with carets, and the mend.
    #[must_use]
    pub fn render(&self, file: &str, source: &str) -> String {
        let Place { line, column, width } = self.place;
        let kind = match self.warning {
            Some(warning) => format!("warning[{}]", warning.name()),
            None => "error".to_owned(),
        };
        let mut text = format!("{file}:{line}:{column}: {kind}: {}\n", self.what);
        if let Some(excerpt) = line.checked_sub(1).and_then(|index| source.lines().nth(index)) {
            let number = line.to_string();
            let carets = "^".repeat(width.max(1));
            let (gutter, indent) = (number.len(), column.saturating_sub(1));
            let shown = excerpt.replace('\t', " ");
            let _ = writeln!(text, "  {number} | {shown}\n  {:gutter$} | {:indent$}{carets}", "", "");
        }
        let _ = writeln!(text, "  mend: {}", self.mend);
        text
    }
}

/// A source that was refused: everything that is wrong with it, by place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the source has {} and was not assembled", count(.diagnostics))]
pub struct Rejected {
    /// Errors and warnings. There is at least one error.
    pub diagnostics: Vec<Diagnostic>,
}

fn count(diagnostics: &[Diagnostic]) -> String {
    match diagnostics.iter().filter(|diagnostic| diagnostic.warning.is_none()).count() {
        1 => "an error".to_owned(),
        errors => format!("{errors} errors"),
    }
}
