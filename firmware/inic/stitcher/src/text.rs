//! Places in a source, and TOML's syntax errors.

use std::ops::Range;

use niclab_source::{Diagnostic, Place};
use toml::de::Error;

/// The place of a range of bytes; of several lines, the part on the first one.
pub(crate) fn place(source: &str, span: &Range<usize>) -> Place {
    let before = source.get(..span.start).unwrap_or(source);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let within = source.get(span.clone()).unwrap_or_default();
    Place {
        line: before.matches('\n').count() + 1,
        column: before.get(line_start..).map_or(0, |line| line.chars().count()) + 1,
        width: within.lines().next().map_or(1, |line| line.chars().count().max(1)),
    }
}

/// The diagnostic of a syntax error.
pub(crate) fn syntax(source: &str, error: &Error) -> Diagnostic {
    let place = place(source, &error.span().unwrap_or(0..0));
    Diagnostic::error(place, error.message().trim(), "write TOML; docs/use/ASSEMBLIES.md shows an assembly")
}
