//! The limits of CONTRIBUTING.md that a program can check.

use std::fs;
use std::path::Path;

use niclab_checks::modules::{attributes, is_test};
use niclab_checks::{repository, sources};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The maximum number of lines of a file without its tests, and of its tests. A longer file usually has a second
/// purpose, which needs its own file.
const FILE_LINES: usize = 800;
/// The maximum number of lines of a function, from its signature to its closing brace: a screen, and a few lines for
/// formatting.
const FUNCTION_LINES: usize = 80;

fn has_extension(file: &Path, extensions: &[&str]) -> bool {
    file.extension().is_some_and(|found| extensions.iter().any(|extension| found == *extension))
}

fn parsed(file: &Path, text: &str) -> syn::File {
    syn::parse_file(text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn read(file: &Path) -> String {
    fs::read_to_string(repository().join(file)).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The number of lines in a file's tests, from their attributes to their closing braces.
#[derive(Default)]
struct Tests {
    lines: usize,
}

impl<'ast> Visit<'ast> for Tests {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_test(attributes(item)) {
            self.lines += item.span().end().line + 1 - item.span().start().line;
        } else {
            visit::visit_item(self, item);
        }
    }
}

#[test]
fn files_stay_short() {
    let files = sources();
    let mut long = Vec::new();
    for file in files.iter().filter(|file| has_extension(file, &["rs", "c", "h"])) {
        let text = read(file);
        // Generated files are exempt.
        if text.lines().take(3).any(|line| line.contains("Generated from")) {
            continue;
        }
        let all = text.lines().count();
        let mut tests = Tests::default();
        if has_extension(file, &["rs"]) {
            tests.visit_file(&parsed(file, &text));
        }
        for (lines, what) in [(all - tests.lines, "without its tests"), (tests.lines, "of tests")] {
            if lines > FILE_LINES {
                long.push(format!("{}: {lines} lines {what}, at most {FILE_LINES}", file.display()));
            }
        }
    }
    assert!(long.is_empty(), "long files:\n  {}", long.join("\n  "));
}

/// A function's name, first line, and number of lines.
type Function = (String, usize, usize);

/// The functions of Rust code, also in tests and in the arguments of macros.
#[derive(Default)]
struct Functions {
    found: Vec<Function>,
}

impl Functions {
    fn note(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let (first, last) = (signature.span().start().line, body.span().end().line);
        self.found.push((signature.ident.to_string(), first, last + 1 - first));
    }

    /// Macros such as `proptest!` contain functions that need not parse. Every `fn name ... { ... }` counts as one.
    fn scan(&mut self, tokens: TokenStream) {
        let (mut after_fn, mut open) = (false, None);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if after_fn => {
                    open = Some((ident.to_string(), ident.span().start().line));
                    after_fn = false;
                }
                TokenTree::Ident(ident) => after_fn = ident == "fn",
                TokenTree::Group(group) => {
                    if group.delimiter() == Delimiter::Brace
                        && let Some((name, first)) = open.take()
                    {
                        self.found.push((name, first, group.span_close().end().line + 1 - first));
                    }
                    self.scan(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => after_fn = false,
            }
        }
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.note(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }
    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.note(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }
    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.note(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.scan(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

fn functions_of_rust(parsed: &syn::File) -> Vec<Function> {
    let mut functions = Functions::default();
    functions.visit_file(parsed);
    functions.found
}

/// The functions of C in the kernel's style. The braces of a body are alone in the first column. The signature begins
/// after the end of the item before it.
fn functions_of_c(text: &str) -> Vec<Function> {
    let (mut found, mut first, mut body) = (Vec::new(), 0, None);
    for (index, line) in text.lines().enumerate() {
        let ends =
            line.is_empty() || line.ends_with([';', '}']) || line.starts_with('#') || line.ends_with("*/");
        match line {
            "{" => body = Some(first),
            "}" => {
                if let Some(first) = body.take() {
                    let signature = text.lines().nth(first).unwrap_or_default();
                    let name = signature.split('(').next().unwrap_or_default();
                    found.push((name.to_owned(), first + 1, index + 1 - first));
                }
            }
            _ => {}
        }
        if body.is_none() && ends {
            first = index + 1;
        }
    }
    found
}

#[test]
fn functions_fit_a_screen() {
    let files = sources();
    let mut long = Vec::new();
    for file in files.iter().filter(|file| has_extension(file, &["rs", "c", "h"])) {
        let text = read(file);
        let functions = if has_extension(file, &["rs"]) {
            functions_of_rust(&parsed(file, &text))
        } else {
            functions_of_c(&text)
        };
        let long_ones = functions.iter().filter(|(_, _, lines)| *lines > FUNCTION_LINES);
        long.extend(
            long_ones
                .map(|(name, line, lines)| format!("{}:{line}: {name} has {lines} lines", file.display())),
        );
    }
    assert!(long.is_empty(), "functions over {FUNCTION_LINES} lines:\n  {}", long.join("\n  "));
}

#[test]
fn functions_are_measured_in_tests_macros_and_traits() {
    let rust = "#[cfg(test)]\nmod tests { fn a() {\n\n} }\nproptest! { #[test] fn b(x in 0..3) {\n}\n}\ntrait T \
        { fn c() {\n} }\n";
    let parsed = syn::parse_file(rust).expect("it is Rust");
    let found: Vec<_> =
        functions_of_rust(&parsed).into_iter().map(|(name, _, lines)| (name, lines)).collect();
    assert_eq!(found, [("a".to_owned(), 3), ("b".to_owned(), 2), ("c".to_owned(), 2)]);
    let c = "#include <x.h>\n\nstruct s {\n\tint a;\n};\n\n/* One. */\nstatic int one(int a,\n\t\tint b)\n\
        {\n\tif (a) {\n\t}\n}\n\nint two(void)\n{\n}\n";
    assert_eq!(functions_of_c(c), [("static int one".to_owned(), 8, 6), ("int two".to_owned(), 15, 3)]);
    let mut tests = Tests::default();
    tests.visit_file(&parsed);
    assert_eq!(tests.lines, 4, "tests before other code count as tests");
}

#[test]
fn sources_have_no_marks_of_unfinished_work() {
    // Written in halves, so that this file does not match.
    let marks =
        [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("FIX", "ME"), concat!("TO", "DO")];
    let files = sources();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| has_extension(file, &["rs", "c", "h", "toml", "sh", "md"])) {
        for (number, line) in read(file).lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                found.push(format!("{}:{}: {}", file.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "unfinished:\n  {}", found.join("\n  "));
}

#[test]
fn no_registry_is_named() {
    // The mirror comes from the host's own configuration. A name in the source would bypass it.
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
