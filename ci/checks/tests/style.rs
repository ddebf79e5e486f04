//! The limits of CONTRIBUTING.md that a program can check.

use std::fs;
use std::path::Path;

use niclab_checks::{repository, sources};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Lines of a file before its tests. A longer one holds a second idea that wants its own room.
const FILE_LINES: usize = 800;
/// Lines of a function, from its signature to its closing brace: a screen, and a little grace for formatting.
const FUNCTION_LINES: usize = 80;

fn with_extension<'a>(files: &'a [std::path::PathBuf], extension: &'a str) -> impl Iterator<Item = &'a Path> {
    files
        .iter()
        .map(std::path::PathBuf::as_path)
        .filter(move |file| file.extension().is_some_and(|found| found == extension))
}

fn read(file: &Path) -> String {
    fs::read_to_string(repository().join(file)).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn files_stay_short() {
    let files = sources();
    let mut long = Vec::new();
    for file in with_extension(&files, "rs").chain(with_extension(&files, "c")) {
        let text = read(file);
        let lines =
            text.lines().position(|line| line == "#[cfg(test)]").unwrap_or_else(|| text.lines().count());
        if lines > FILE_LINES {
            long.push(format!("{}: {lines} lines before its tests, at most {FILE_LINES}", file.display()));
        }
    }
    assert!(long.is_empty(), "long files:\n  {}", long.join("\n  "));
}

struct Functions {
    long: Vec<(String, usize, usize)>,
}

impl Functions {
    fn note(&mut self, name: &syn::Ident, first: usize, last: usize) {
        let lines = last + 1 - first;
        if lines > FUNCTION_LINES {
            self.long.push((name.to_string(), first, lines));
        }
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.note(&function.sig.ident, function.sig.span().start().line, function.block.span().end().line);
        visit::visit_item_fn(self, function);
    }
    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.note(&function.sig.ident, function.sig.span().start().line, function.block.span().end().line);
        visit::visit_impl_item_fn(self, function);
    }
}

#[test]
fn functions_fit_a_screen() {
    let files = sources();
    let mut long = Vec::new();
    for file in with_extension(&files, "rs") {
        let parsed =
            syn::parse_file(&read(file)).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut functions = Functions { long: Vec::new() };
        functions.visit_file(&parsed);
        long.extend(
            functions
                .long
                .iter()
                .map(|(name, line, lines)| format!("{}:{line}: {name} has {lines} lines", file.display())),
        );
    }
    assert!(long.is_empty(), "functions over {FUNCTION_LINES} lines:\n  {}", long.join("\n  "));
}

#[test]
fn nothing_is_left_unfinished() {
    // Spelled in halves, so that this file does not accuse itself.
    let marks =
        [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("FIX", "ME"), concat!("TO", "DO")];
    let files = sources();
    let mut found = Vec::new();
    for extension in ["rs", "c", "h", "toml", "sh", "md"] {
        for file in with_extension(&files, extension) {
            for (number, line) in read(file).lines().enumerate() {
                if marks.iter().any(|mark| line.contains(mark)) {
                    found.push(format!("{}:{}: {}", file.display(), number + 1, line.trim()));
                }
            }
        }
    }
    assert!(found.is_empty(), "unfinished:\n  {}", found.join("\n  "));
}

#[test]
fn no_registry_is_named() {
    // The mirror comes from the host's own configuration; a name in the source would bypass it.
    let hosts =
        [concat!("deb.", "debian.org"), concat!("security.", "debian.org"), concat!("crates", ".io/")];
    let mut found = Vec::new();
    for file in sources().iter().filter(|file| !file.ends_with("Cargo.lock")) {
        let Ok(text) = fs::read_to_string(repository().join(file)) else { continue };
        for host in hosts.iter().filter(|host| text.contains(*host)) {
            found.push(format!("{} names {host}", file.display()));
        }
    }
    assert!(found.is_empty(), "package registries named:\n  {}", found.join("\n  "));
}
