//! docs/VERSIONS.md has the version of each format, as the source has it.

use std::collections::BTreeSet;
use std::fs;

use niclab_checks::modules::{attributes, is_test};
use niclab_checks::{repository, sources};
use syn::visit::{self, Visit};

const PAGE: &str = "docs/VERSIONS.md";
const TEMPLATE: &str = "docs/examples/ci/niclab-release.yml";

/// Constants that are no version of a format, and why.
const EXCEPTIONS: [(&str, &str, &str); 5] = [
    ("device/abi/src/firmware.rs", "STATUS_FIRMWARE_VERSION", "the code of an error"),
    ("device/model/src/models/matching/wire.rs", "VERSION", "packets between cards of one daemon"),
    ("device/model/src/models/ultra/wire.rs", "VERSION", "packets between cards of one daemon"),
    ("images/src/vmlinux.rs", "VERSION", "a position in the kernel's boot header"),
    ("device/vhost-user/src/relay.rs", "VERSION", "of the vhost-user protocol"),
];

/// A version that the page gives.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    file: String,
    name: String,
    value: String,
}

/// The versions in the tables of a page: rows with a value in the second cell, and "`NAME` in `FILE`" in the third.
fn versions(page: &str) -> Vec<Version> {
    let rows = page.lines().filter(|line| line.starts_with('|') && line.contains("` in `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (name, file) = cells[3].split_once("` in `").unwrap_or_else(|| panic!("{PAGE}: {row}"));
        Version {
            file: file.trim_end_matches('`').to_owned(),
            name: name.trim_start_matches('`').to_owned(),
            value: cells[2].to_owned(),
        }
    })
    .collect()
}

/// Integer constants whose name is `VERSION`, or ends so, outside of tests.
#[derive(Default)]
struct Constants {
    found: Vec<(String, String)>,
}

impl<'ast> Visit<'ast> for Constants {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        let name = item.ident.to_string();
        if let syn::Expr::Lit(literal) = &*item.expr
            && let syn::Lit::Int(number) = &literal.lit
            && (name == "VERSION" || name.ends_with("_VERSION"))
        {
            self.found.push((name, number.base10_digits().to_owned()));
        }
    }
}

fn constants(text: &str) -> Vec<(String, String)> {
    let mut constants = Constants::default();
    constants.visit_file(&syn::parse_file(text).unwrap_or_else(|error| panic!("{error}")));
    constants.found
}

/// The values of `NAME = "VALUE"` in the workspace's `Cargo.toml`.
fn of_workspace(text: &str, name: &str) -> String {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
    value.unwrap_or_else(|| panic!("Cargo.toml has no {name}")).trim_matches('"').to_owned()
}

#[test]
fn versions_on_the_page_equal_the_source() {
    let read = |file: &str| {
        fs::read_to_string(repository().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    };
    let manifest = read("Cargo.toml");
    let mut expected = BTreeSet::new();
    for name in ["version", "rust-version"] {
        let value = of_workspace(&manifest, name);
        expected.insert(Version { file: "Cargo.toml".to_owned(), name: name.to_owned(), value });
    }
    let mut exceptions = BTreeSet::new();
    for file in sources().iter().filter(|file| file.extension().is_some_and(|end| end == "rs")) {
        let file = file.display().to_string();
        for (name, value) in constants(&read(&file)) {
            match EXCEPTIONS.iter().position(|(at, known, _)| *at == file && *known == name) {
                Some(exception) => exceptions.insert(exception),
                None => expected.insert(Version { file: file.clone(), name, value }),
            };
        }
    }
    let page: BTreeSet<Version> = versions(&read(PAGE)).into_iter().collect();
    let missing: Vec<_> = expected.difference(&page).collect();
    let stale: Vec<_> = page.difference(&expected).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "{PAGE}: the source has {missing:#?}, the page has {stale:#?}; correct the page, and say in CHANGELOG.md what \
         changed"
    );
    assert_eq!(exceptions.len(), EXCEPTIONS.len(), "an exception is not needed");
    // A template that users copy.
    let release = format!("NICLAB_RELEASE: v{}\n", of_workspace(&manifest, "version"));
    assert!(read(TEMPLATE).contains(&release), "{TEMPLATE} does not say {release}");
    let heading = format!("\n## [{}]", of_workspace(&manifest, "version"));
    assert!(read("CHANGELOG.md").contains(&heading), "CHANGELOG.md has no section{heading}");
}

#[test]
fn versions_are_found() {
    let page =
        "| a | version | where in the source |\n|---|---|---|\n| `b` | 2 | `C_VERSION` in `d/e.rs` | f |\n";
    let version = Version { file: "d/e.rs".into(), name: "C_VERSION".into(), value: "2".into() };
    assert_eq!(versions(page), [version]);
    let source = "pub const A_VERSION: u32 = 2;\nconst VERSION: u8 = 3;\nconst OTHER: u32 = 4;\n\
        const NAME_VERSION: &str = \"5\";\n#[cfg(test)]\nmod tests { const VERSION: u32 = 6; }\n";
    assert_eq!(constants(source), [("A_VERSION", "2"), ("VERSION", "3")].map(|(a, b)| (a.into(), b.into())));
    assert_eq!(of_workspace("[a]\nversion.workspace = true\nversion = \"0.1.0\"\n", "version"), "0.1.0");
}
