//! Converts byte ranges of an assembly's source into lines and columns, and TOML's syntax errors into diagnostics.

use std::ops::Range;

use niclab_source::{Diagnostic, Place};
use toml::de::Error;

/// Line and column of a byte range. If the range has several lines, the width covers only its part of the first line.
pub(crate) fn place(source: &str, span: &Range<usize>) -> Place {
    let before = source.get(..span.start).unwrap_or(source);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let text = source.get(span.clone()).unwrap_or_default();
    Place {
        line: before.matches('\n').count() + 1,
        column: before.get(line_start..).map_or(0, |line| line.chars().count()) + 1,
        width: text.lines().next().map_or(1, |line| line.chars().count().max(1)),
    }
}

/// Converts a syntax error of the TOML parser into a diagnostic.
pub(crate) fn syntax(source: &str, error: &Error) -> Diagnostic {
    let place = place(source, &error.span().unwrap_or(0..0));
    Diagnostic::error(
        place,
        error.message().trim(),
        "correct the TOML syntax; docs/use/ASSEMBLIES.md has an example",
    )
}
