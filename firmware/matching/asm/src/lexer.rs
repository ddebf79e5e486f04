//! Splits a source's lines into tokens with their places.

use niclab_source::{Diagnostic, Place, Report};

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub kind: Kind,
    pub place: Place,
}

/// Kind of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Name(String),
    Number(u64),
    /// One of [`SYMBOLS`].
    Symbol(&'static str),
    /// The text between brackets, as written: lanes or bytes.
    List(String),
}

/// Longer symbols precede those that they begin with.
const SYMBOLS: &[&str] = &["&=", "|=", "<<", "..", "=", "|", ",", ":", ".", "(", ")", "+", "-", "*", "!"];

/// Separator of the slots of a word.
pub(crate) const SEPARATOR: Kind = Kind::Symbol("|");

/// The tokens of line `number`, without its comment. Errors go to `report`, and their text is skipped.
pub(crate) fn tokens(line: &str, number: usize, report: &mut Report) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = line;
    let mut column = 1;
    while let Some(first) = rest.chars().next() {
        if first == '#' {
            break;
        }
        let (bytes, kind) = if first.is_whitespace() {
            (first.len_utf8(), None)
        } else {
            match token(rest) {
                Ok((bytes, kind)) => (bytes, Some(kind)),
                Err((bytes, what, remedy)) => {
                    let place = Place { line: number, column, width: 1 };
                    report.push(Diagnostic::error(place, what, remedy));
                    (bytes, None)
                }
            }
        };
        let (taken, left) = rest.split_at(bytes);
        let width = taken.chars().count();
        if let Some(kind) = kind {
            tokens.push(Token { kind, place: Place { line: number, column, width } });
        }
        rest = left;
        column += width;
    }
    tokens
}

type LexerError = (usize, String, &'static str);

/// The token at the start of `text`, which must not be empty, and its length in bytes.
fn token(text: &str) -> Result<(usize, Kind), LexerError> {
    let first = text.chars().next().unwrap_or(' ');
    if first.is_ascii_digit() {
        let word = word_of(text);
        let number = number(word).ok_or_else(|| {
            (
                word.len(),
                format!("`{word}` is not a 64-bit number"),
                "write 42, 0x2a, 0b101010 or 'A'; _ may separate digits",
            )
        })?;
        return Ok((word.len(), Kind::Number(number)));
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let word = word_of(text);
        return Ok((word.len(), Kind::Name(word.to_owned())));
    }
    if first == '\'' {
        return character(text);
    }
    if first == '[' {
        let end = text.find(['#', ']']).filter(|end| text.as_bytes().get(*end) == Some(&b']'));
        let (end, inside) = end.and_then(|end| Some((end, text.get(1..end)?))).ok_or((
            text.len(),
            "the list has no end".to_owned(),
            "close it with ] on the same line",
        ))?;
        return Ok((end + 1, Kind::List(inside.to_owned())));
    }
    let symbol = SYMBOLS.iter().find(|symbol| text.starts_with(**symbol));
    let symbol = symbol.ok_or_else(|| {
        (first.len_utf8(), format!("unexpected character `{first}`"), "remove it; a comment begins with #")
    })?;
    Ok((symbol.len(), Kind::Symbol(symbol)))
}

/// Letters, digits and underscores at the start of a text.
fn word_of(text: &str) -> &str {
    let end = text.find(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    text.get(..end.unwrap_or(text.len())).unwrap_or(text)
}

fn number(word: &str) -> Option<u64> {
    let digits = word.replace('_', "");
    if let Some(digits) = digits.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    if let Some(digits) = digits.strip_prefix("0b") {
        return u64::from_str_radix(digits, 2).ok();
    }
    digits.parse().ok()
}

fn character(text: &str) -> Result<(usize, Kind), LexerError> {
    let mut characters = text.chars().skip(1);
    match (characters.next(), characters.next()) {
        (Some(character), Some('\'')) if character != '\'' => {
            Ok((2 + character.len_utf8(), Kind::Number(u32::from(character).into())))
        }
        _ => Err((1, "a quote without one character and a second quote".to_owned(), "write 'A'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(line: &str) -> Vec<Kind> {
        let mut report = Report::default();
        let tokens = tokens(line, 1, &mut report);
        assert!(report.is_empty());
        tokens.into_iter().map(|token| token.kind).collect()
    }

    #[test]
    fn numbers_have_four_notations() {
        let numbers = [42, 42, 42, 65].map(Kind::Number);
        assert_eq!(kinds("42 0x2_a 0b10_1010 'A' # 7 'B"), numbers);
    }

    #[test]
    fn combining_sign_is_not_a_separator() {
        assert_eq!(kinds("|= |"), [Kind::Symbol("|="), SEPARATOR]);
    }

    #[test]
    fn columns_count_characters() {
        let mut report = Report::default();
        let found = tokens("'ä' x § [3 2", 4, &mut report);
        assert_eq!(found[1].place, Place { line: 4, column: 5, width: 1 });
        let diagnostics = report.finish().unwrap_err().diagnostics;
        let columns: Vec<_> = diagnostics.iter().map(|diagnostic| diagnostic.place.column).collect();
        assert_eq!(columns, [7, 9]);
    }
}
