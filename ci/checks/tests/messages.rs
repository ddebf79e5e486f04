//! Texts that users read have no stray spaces. If two lines of source are joined by mistake, the second one's
//! indentation ends up in the middle of a message.

use std::fs;
use std::path::Path;

use niclab_checks::{repository, sources};
use proc_macro2::{TokenStream, TokenTree};
use syn::{Lit, LitStr};

/// The length of a run of spaces within a line that counts as a mistake.
const STRAY: usize = 3;

/// Whether a line of a text has a run of spaces between two words.
fn has_stray_spaces(line: &str) -> bool {
    let Some((before, after)) = line.trim().split_once(&" ".repeat(STRAY)) else { return false };
    let is_prose = |c: char| c.is_ascii_lowercase() || ",.;:)".contains(c);
    let continues = after.trim_start().starts_with(|c: char| c.is_ascii_lowercase());
    before.ends_with(is_prose) && continues
}

/// Whether a text has stray spaces. Runs of spaces in several lines are columns.
fn is_stray(text: &str) -> bool {
    let has_run = |line: &&str| line.trim().contains(&" ".repeat(STRAY));
    text.lines().filter(has_run).count() == 1 && text.lines().any(has_stray_spaces)
}

/// The string literals of these tokens with their lines, also in macros and attributes. Documentation does not count:
/// it may contain tables.
fn literals(tokens: TokenStream, found: &mut Vec<(usize, String)>) {
    let mut is_doc = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => literals(group.stream(), found),
            TokenTree::Literal(literal) => {
                let line = literal.span().start().line;
                if let Lit::Str(text) = Lit::new(literal)
                    && !is_doc
                {
                    found.push((line, LitStr::value(&text)));
                }
            }
            TokenTree::Ident(name) => is_doc = name == "doc",
            TokenTree::Punct(_) => {}
        }
    }
}

/// Whether a file's texts are messages. Texts of tests are pieces of source, tables and pages.
fn holds_messages(file: &Path) -> bool {
    let text = file.to_string_lossy();
    let is_test = text.starts_with("tests/") || text.contains("/tests/") || text.ends_with("/tests.rs");
    let is_source =
        file.extension().is_some_and(|extension| ["rs", "c", "h"].iter().any(|end| extension == *end));
    is_source && !is_test && !text.starts_with("ci/")
}

fn stray_in(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(repository().join(file)).expect("a source");
    let mut found = Vec::new();
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("rs") => {
            let tokens = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            literals(tokens, &mut found);
        }
        // A literal of C is on one line.
        Some("c" | "h") => {
            let of_line = |(number, line): (usize, &str)| {
                line.split('"')
                    .skip(1)
                    .step_by(2)
                    .map(move |text| (number, text.to_owned()))
                    .collect::<Vec<_>>()
            };
            found.extend((1..).zip(text.lines()).flat_map(of_line));
        }
        _ => {}
    }
    let stray = found.into_iter().filter(|(_, text)| is_stray(text));
    stray.map(|(line, text)| format!("{}:{line}: {text:?}", file.display())).collect()
}

#[test]
fn messages_have_no_stray_spaces() {
    let stray: Vec<String> =
        sources().iter().filter(|file| holds_messages(file)).flat_map(|file| stray_in(file)).collect();
    assert!(stray.is_empty(), "runs of spaces within a text:\n  {}", stray.join("\n  "));
}

#[test]
fn stray_spaces_are_distinguished_from_columns() {
    assert!(has_stray_spaces("those are gone,          later ones can be received"));
    for fine in ["    indented as a list", "NAME      a column", "  1   2   3", "name: {}", "a  b"] {
        assert!(!has_stray_spaces(fine), "{fine}");
    }
    assert!(is_stray("one line\nthe next,    with a run") && !is_stray("name    count\na           seven"));
    let mut found = Vec::new();
    let source = "/// a column   of words\n#[error(\"one, \\\n     two   three\")] struct E; fn f() { \
        g!(\"four    five\"); }";
    literals(source.parse().expect("Rust"), &mut found);
    let stray: Vec<bool> = found.iter().map(|(_, text)| has_stray_spaces(text)).collect();
    assert_eq!(stray, [true, true], "{found:?}");
}
