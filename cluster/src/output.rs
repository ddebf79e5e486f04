//! The output of commands, line by line, each with its node's name.

use std::io::{self, Write};

/// A longer line is printed in pieces, so that a program that never ends its line uses no memory here.
const MAX_LINE_BYTES: usize = 8 * 1024;

/// Puts a prefix before each line of a stream.
#[derive(Debug)]
pub struct Prefixer {
    prefix: String,
    line: Vec<u8>,
}

impl Prefixer {
    /// A stream whose lines begin with `node0 | `, the name padded to `width` characters.
    #[must_use]
    pub fn new(node: &str, width: usize) -> Self {
        Self { prefix: format!("{node:width$} | "), line: Vec::new() }
    }

    /// Adds bytes, and prints the complete lines.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn push(&mut self, bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            for part in piece.chunks(MAX_LINE_BYTES) {
                self.line.extend_from_slice(part);
                if self.line.ends_with(b"\n") || self.line.len() >= MAX_LINE_BYTES {
                    self.flush(out)?;
                }
            }
        }
        Ok(())
    }

    /// Prints the rest as a line.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn flush(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.line.is_empty() {
            return Ok(());
        }
        let mut complete = self.prefix.clone().into_bytes();
        complete.append(&mut self.line);
        if !complete.ends_with(b"\n") {
            complete.push(b'\n');
        }
        // One write: lines of several nodes must not mix.
        out.write_all(&complete)?;
        out.flush()
    }
}

/// Formats rows as text columns. The first row is the heading; numbers are right-aligned.
#[must_use]
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width_of =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width_of(column).unwrap_or(0)).collect();
    let is_number =
        |cell: &str| !cell.is_empty() && cell.chars().all(|c| c.is_ascii_digit() || "+.-%".contains(c));
    let rights: Vec<bool> = (0..columns)
        .map(|column| rows.iter().skip(1).filter_map(|row| row.get(column)).all(|cell| is_number(cell)))
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if rights[column] { format!("{cell:>width$}") } else { format!("{cell:width$}") }
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefixed(pieces: &[&[u8]]) -> String {
        let mut prefixer = Prefixer::new("n0", 3);
        let mut out = Vec::new();
        for piece in pieces {
            prefixer.push(piece, &mut out).unwrap();
        }
        prefixer.flush(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_get_a_prefix_in_any_split() {
        assert_eq!(prefixed(&[b"a\nb", b"c\n\nd"]), "n0  | a\nn0  | bc\nn0  | \nn0  | d\n");
        assert_eq!(prefixed(&[]), "");
    }

    #[test]
    fn endless_line_is_printed_in_pieces() {
        let long = vec![b'x'; 3 * MAX_LINE_BYTES];
        assert_eq!(prefixed(&[&long]).lines().count(), 3);
    }

    proptest! {
        #[test]
        fn no_byte_is_lost(pieces in prop::collection::vec("[a-z\n]{0,20}", 0..10)) {
            let bytes: Vec<&[u8]> = pieces.iter().map(|p| p.as_bytes()).collect();
            let complete = pieces.concat();
            let stripped: Vec<String> = prefixed(&bytes).lines().map(|l| l["n0  | ".len()..].to_owned()).collect();
            prop_assert_eq!(stripped, complete.lines().map(str::to_owned).collect::<Vec<_>>());
        }
    }

    #[test]
    fn numbers_are_right_aligned() {
        let row = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
        assert_eq!(
            table(&[row("name", "count"), row("a", "7"), row("bcdef", "123456")]),
            "name    count\na           7\nbcdef  123456\n"
        );
    }
}
