//! Cargo runs the examples in the documentation of Rust code. For a package without examples the search is disabled: it
//! costs seconds for each package.

use std::fs;
use std::path::Path;

use niclab_checks::{packages, repository, sources};

/// The text after the fence, if a line opens or closes a code block. The text decides whether cargo runs the block.
fn fence(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let documentation = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    documentation.trim_start().strip_prefix("```").map(str::trim)
}

/// Whether the documentation in a source has an example.
fn has_example(text: &str) -> bool {
    let is_run = |kind: &str| {
        kind.split(',').all(|word| {
            matches!(word, "" | "rust" | "no_run" | "should_panic" | "compile_fail")
                || word.starts_with("edition")
        })
    };
    // Every second fence closes a block.
    text.lines().filter_map(fence).step_by(2).any(is_run)
}

#[test]
fn examples_are_distinguished_from_other_blocks() {
    assert!(has_example("/// ```\n/// f();\n/// ```"));
    assert!(has_example("//! ```text\n//! f\n//! ```\n    //! ```no_run\n//! f();\n//! ```"));
    assert!(!has_example("/// ```text\n/// f\n/// ```\n// ```\n"));
    assert!(!has_example("/// ```json\n/// {}\n/// ```"));
}

#[test]
fn packages_with_examples_have_doctests_enabled() {
    let files = sources();
    let root = fs::canonicalize(repository()).expect("the repository is there");
    let mut libraries = 0;
    for package in packages() {
        for target in
            package.targets.iter().filter(|target| target.kind.iter().any(|kind| kind.ends_with("lib")))
        {
            let folder = target.src_path.parent().and_then(|folder| folder.strip_prefix(&root).ok());
            let folder = folder.unwrap_or_else(|| panic!("{}: not here", target.src_path.display()));
            let has = |file: &&std::path::PathBuf| {
                let text = fs::read_to_string(repository().join(file));
                file.starts_with(folder) && has_example(&text.unwrap_or_default())
            };
            let is_rust = |file: &&std::path::PathBuf| Path::extension(file).is_some_and(|end| end == "rs");
            let example = files.iter().filter(is_rust).find(has);
            let fix = if example.is_some() {
                "take `doctest = false` out of"
            } else {
                "write `doctest = false` into"
            };
            assert_eq!(target.doctest, example.is_some(), "{}: {fix} [lib]; {example:?}", package.name);
            libraries += 1;
        }
    }
    assert!(libraries > 20, "only {libraries} libraries");
}
