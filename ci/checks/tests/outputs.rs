//! Commands write with `niclab-output` only. A path from a user may be a device, a FIFO or a link, and standard output
//! and standard error may have lost their readers.

use std::fs;
use std::path::Path;

use niclab_checks::modules::{attributes, is_test};
use niclab_checks::{repository, sources};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Files and folders that may write files directly, and why.
const FILE_WRITERS: [(&str, &str); 7] = [
    ("output/src/", "defines the type for output files"),
    ("images/src/", "fills the cache, whose paths users do not choose"),
    ("guest-driver/agent/src/", "writes the guest's own /etc, /proc and /sys"),
    ("device/abi/header/src/main.rs", "regenerates headers and tables of the source tree"),
    ("cluster/src/host/", "writes the cluster's runtime folder"),
    ("cluster/src/boot/", "writes the cluster's runtime folder and the cache"),
    ("ci/", "runs the tests"),
];
/// Files and folders that may print directly, and why.
const PRINTERS: [(&str, &str); 5] = [
    ("output/src/", "defines the functions that print"),
    ("guest-driver/agent/src/", "has the guest's console, which is never closed"),
    (
        "cluster/src/supervisor/mod.rs",
        "answers the niclab command that started it, and continues when that command has ended",
    ),
    ("device/vhost-user/src/main.rs", "reports that it is ready to its owner, which reads that"),
    ("ci/", "runs the tests"),
];

/// Functions that create or replace a file.
const FILE_FUNCTIONS: [(&str, &str); 7] = [
    ("fs", "rename"),
    ("fs", "write"),
    ("fs", "copy"),
    ("fs", "renameat"),
    ("File", "create"),
    ("File", "create_new"),
    ("", "rename"),
];
const FILE_METHODS: [&str; 4] = ["persist", "persist_noclobber", "create_new", "create"];
const PRINT_MACROS: [&str; 2] = ["println", "print"];

/// The calls in a file that write files or print directly.
#[derive(Default)]
struct Found {
    files: Vec<(usize, String)>,
    prints: Vec<(usize, String)>,
}

impl<'ast> Visit<'ast> for Found {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }
    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let names: Vec<String> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let (line, text) = (path.span().start().line, names.join("::"));
        if let Some((last, before)) = names.split_last() {
            let module = before.last().map_or("", String::as_str);
            if FILE_FUNCTIONS.contains(&(module, last)) {
                self.files.push((line, text));
            } else if (module, last.as_str()) == ("io", "stdout") {
                self.prints.push((line, text));
            }
        }
        visit::visit_expr_path(self, path);
    }
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let name = call.method.to_string();
        // `OutputFile` has no method with these names. A builder of folders has no `true` argument.
        let is_open_options = call.args.len() == 1;
        if FILE_METHODS.contains(&name.as_str()) && is_open_options {
            self.files.push((call.method.span().start().line, format!(".{name}()")));
        }
        visit::visit_expr_method_call(self, call);
    }
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if let Some(name) = call.path.get_ident().map(ToString::to_string)
            && PRINT_MACROS.contains(&name.as_str())
        {
            self.prints.push((call.span().start().line, format!("{name}!")));
        }
        visit::visit_macro(self, call);
    }
}

/// Whether a file is part of a program, and not of its tests, build script or examples.
fn is_of_a_program(file: &Path) -> bool {
    let text = file.to_string_lossy();
    let is_test = text.starts_with("tests/") || text.contains("/tests/") || text.ends_with("/tests.rs");
    file.extension().is_some_and(|extension| extension == "rs")
        && !(is_test || text.ends_with("build.rs") || text.contains("/examples/"))
}

fn found(file: &Path) -> Found {
    let text = fs::read_to_string(repository().join(file)).expect("a source");
    // Most files contain none of these words, and need no parser.
    let words = FILE_FUNCTIONS.iter().map(|(_, name)| *name).chain(FILE_METHODS).chain(PRINT_MACROS);
    if !words.chain(["stdout"]).any(|word| text.contains(word)) {
        return Found::default();
    }
    let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut found = Found::default();
    found.visit_file(&parsed);
    found
}

/// Lists the calls that `of` finds in files without an exception, and the exceptions that no file needs.
fn violations(exceptions: &[(&str, &str)], of: impl Fn(Found) -> Vec<(usize, String)>) -> Vec<String> {
    let mut unused: Vec<&str> = exceptions.iter().map(|(path, _)| *path).collect();
    let mut violations = Vec::new();
    for file in sources().iter().filter(|file| is_of_a_program(file)) {
        for (line, what) in of(found(file)) {
            match exceptions.iter().find(|(path, _)| file.to_string_lossy().starts_with(path)) {
                Some((path, _)) => unused.retain(|other| other != path),
                None => violations.push(format!("{}:{line}: {what}", file.display())),
            }
        }
    }
    violations.extend(unused.iter().map(|path| format!("{path}: no call there needs the exception")));
    violations
}

#[test]
fn commands_write_files_only_with_output_file() {
    let violations = violations(&FILE_WRITERS, |found| found.files);
    assert!(violations.is_empty(), "use niclab_output::OutputFile:\n  {}", violations.join("\n  "));
}

#[test]
fn commands_print_only_with_niclab_output() {
    let violations = violations(&PRINTERS, |found| found.prints);
    assert!(
        violations.is_empty(),
        "use niclab_output::print or niclab_output::stdout:\n  {}",
        violations.join("\n  ")
    );
}

#[test]
fn each_forbidden_call_is_found() {
    let source = "fn f() { fs::rename(a, b); std::fs::write(p, t); File::create(p); x.persist(p); io::stdout(); \
                  println!(\"x\"); }\n#[cfg(test)] mod tests { fn g() { fs::rename(a, b); } }";
    let mut found = Found::default();
    found.visit_file(&syn::parse_file(source).expect("Rust"));
    assert_eq!((found.files.len(), found.prints.len()), (4, 2), "{:?} {:?}", found.files, found.prints);
}
