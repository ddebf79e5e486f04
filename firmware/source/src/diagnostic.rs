//! Diagnostics: faults of a source with place, excerpt and fix.

use std::fmt::Write as _;

use thiserror::Error;

/// Max diagnostics of one source that are kept and shown, errors before warnings; the others are only counted. Even a
/// source of nothing but errors gives readable output.
pub const MAX_DIAGNOSTICS: usize = 50;

/// Max characters of a line that are shown around a place.
const MAX_EXCERPT: usize = 120;

/// Max characters of a message, which may repeat a name or a list of any length.
const MAX_MESSAGE: usize = 240;

/// A range of characters in one line of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line, from 1 on.
    pub line: usize,
    /// First character, from 1 on.
    pub column: usize,
    /// Number of characters.
    pub width: usize,
}

impl Place {
    /// The range from this place to the end of `last`, within one line.
    #[must_use]
    pub fn to(self, last: Self) -> Self {
        if last.line != self.line {
            return self;
        }
        Self { width: (last.column + last.width).saturating_sub(self.column).max(self.width), ..self }
    }
}

/// An error, or a warning about a likely mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its place.
    pub place: Place,
    /// The name of a warning; none for an error.
    pub warning: Option<&'static str>,
    /// The fault.
    pub what: String,
    /// The fix.
    pub remedy: String,
}

impl Diagnostic {
    /// An error.
    #[must_use]
    pub fn error(place: Place, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { place, warning: None, what: shortened(what.into()), remedy: shortened(remedy.into()) }
    }

    /// The message for a user: `file`, line and column, the line itself with carets, and the fix.
    #[must_use]
    pub fn render(&self, file: &str, source: &str) -> String {
        let Place { line, column, width } = self.place;
        let kind = match self.warning {
            Some(warning) => format!("warning[{warning}]"),
            None => "error".to_owned(),
        };
        let mut text = format!("{file}:{line}:{column}: {kind}: {}\n", self.what);
        if let Some(excerpt) = line.checked_sub(1).and_then(|index| source.lines().nth(index)) {
            let number = line.to_string();
            let (shown, indent) = around(excerpt, column.saturating_sub(1));
            let most = shown.chars().count().saturating_sub(indent).max(1);
            let carets = "^".repeat(width.clamp(1, most));
            let gutter = number.len();
            let _ = writeln!(text, "  {number} | {shown}\n  {:gutter$} | {:indent$}{carets}", "", "");
        }
        let _ = writeln!(text, "  fix: {}", self.remedy);
        text
    }
}

/// The part of a line that is shown for a place, and the place's column in that part.
fn around(line: &str, at: usize) -> (String, usize) {
    // A fault at the end of a line is placed after its last character.
    let characters = line.chars().count().max(at + 1);
    let first = match characters <= MAX_EXCERPT {
        true => 0,
        false => at.saturating_sub(MAX_EXCERPT / 2).min(characters - MAX_EXCERPT),
    };
    let is_cut = first + MAX_EXCERPT < characters;
    let part = line.chars().skip(first).take(MAX_EXCERPT);
    let part: String = part.map(|character| if character == '\t' { ' ' } else { character }).collect();
    let before = if first > 0 { CUT } else { "" };
    let behind = if is_cut { CUT } else { "" };
    (format!("{before}{part}{behind}"), before.len() + at - first)
}

/// Replaces omitted text.
const CUT: &str = "...";

/// A message of at most 240 characters and three dots. The middle is omitted, because messages end with the fault.
#[must_use]
pub fn shortened(text: String) -> String {
    const END: usize = MAX_MESSAGE / 3;
    let Some((from, _)) = text.char_indices().nth(MAX_MESSAGE) else { return text };
    let (until, _) = text.char_indices().nth(MAX_MESSAGE - END).unwrap_or((from, ' '));
    let (last, _) = text.char_indices().rev().nth(END - 1).unwrap_or((from, ' '));
    [text.get(..until).unwrap_or_default(), CUT, text.get(last..).unwrap_or_default()].concat()
}

/// The faults of a source: the first ones, and their number.
#[derive(Default)]
pub struct Report {
    kept: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
}

impl Report {
    /// Adds a diagnostic. At twice the maximum, the report drops half of them, so that errors cost time but no memory.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        *(if diagnostic.warning.is_none() { &mut self.errors } else { &mut self.warnings }) += 1;
        self.kept.push(diagnostic);
        if self.kept.len() == 2 * MAX_DIAGNOSTICS {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.kept.sort_by_key(|diagnostic| (diagnostic.warning.is_some(), diagnostic.place));
        self.kept.truncate(MAX_DIAGNOSTICS);
    }

    /// Whether it has no faults.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.errors + self.warnings == 0
    }

    /// The warnings, by place, and the number of further ones.
    ///
    /// # Errors
    /// [`Rejected`], if there are errors.
    pub fn finish(self) -> Result<(Vec<Diagnostic>, usize), Rejected> {
        let rejected = self.reject();
        if rejected.errors > 0 { Err(rejected) } else { Ok((rejected.diagnostics, rejected.more)) }
    }

    /// The rejection with these faults.
    #[must_use]
    pub fn reject(mut self) -> Rejected {
        self.cut();
        self.kept.sort_by_key(|diagnostic| diagnostic.place);
        let Self { kept: diagnostics, errors, warnings } = self;
        let more = errors + warnings - diagnostics.len();
        Rejected { diagnostics, errors, more }
    }
}

/// The messages for a user, each as in [`Diagnostic::render`], and the number `more` of those not shown.
#[must_use]
pub fn render(diagnostics: &[Diagnostic], more: usize, file: &str, source: &str) -> String {
    let mut text: String = diagnostics.iter().map(|diagnostic| diagnostic.render(file, source)).collect();
    if more > 0 {
        let _ = writeln!(
            text,
            "{file}: and {more} more, which are not shown\n  fix: begin with the first one above"
        );
    }
    text
}

/// A rejected source, with its faults by place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the source has {} and was refused", count(*.errors))]
pub struct Rejected {
    /// Errors and, if there is room, warnings: at most [`MAX_DIAGNOSTICS`], and at least one error.
    pub diagnostics: Vec<Diagnostic>,
    /// Number of errors, shown or not.
    pub errors: usize,
    /// Number of further errors and warnings.
    pub more: usize,
}

fn count(errors: usize) -> String {
    if errors == 1 { "an error".to_owned() } else { format!("{errors} errors") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_line_is_shown_around_the_place() {
        let source = format!("{}here{}", "<".repeat(5_000), ">".repeat(5_000));
        for (column, width) in [(1, 9_999), (5_001, 4), (10_004, 1), (10_005, 1)] {
            let place = Place { line: 1, column, width };
            let text = Diagnostic::error(place, "wrong", "fix").render("x", &source);
            assert!(text.len() < 500, "{text}");
            let lines: Vec<&str> = text.lines().collect();
            let (indent, carets) = (lines[2].find('^').unwrap(), lines[2].matches('^').count());
            let marked = &lines[1][indent.min(lines[1].len())..(indent + carets).min(lines[1].len())];
            match column {
                1 => assert!(marked.starts_with("<<<") && marked.ends_with("..."), "{text}"),
                5_001 => assert_eq!(marked, "here", "{text}"),
                10_004 => assert_eq!(marked, ">", "{text}"),
                _ => assert_eq!(marked, "", "{text}"),
            }
        }
    }

    #[test]
    fn long_name_is_cut_in_the_middle() {
        let name = "ä".repeat(100_000);
        let text = Diagnostic::error(Place::default(), format!("`{name}` is nothing"), name).render("x", "");
        assert!(
            text.contains("...") && text.contains("ä` is nothing") && text.chars().count() < 600,
            "{text}"
        );
    }

    #[test]
    fn errors_are_kept_before_warnings_and_shown_by_place() {
        let mut report = Report::default();
        for line in 1..=1_000 {
            let place = Place { line, column: 1, width: 1 };
            let warning = (line % 20 != 0).then_some("unreachable");
            report.push(Diagnostic { warning, ..Diagnostic::error(place, "", "") });
        }
        let rejected = report.finish().unwrap_err();
        assert_eq!((rejected.errors, rejected.more), (50, 950));
        let lines: Vec<usize> = rejected.diagnostics.iter().map(|diagnostic| diagnostic.place.line).collect();
        assert_eq!(lines, (1..=50).map(|error| 20 * error).collect::<Vec<_>>());
    }
}
