//! Shared code names no NIC model; it uses the registry. A model's own files are in folders, or have names, that begin
//! with the model's name. Tests may name the models that they test: files below a `tests` folder, and code after
//! `#[cfg(test)]`.
//!
//! A card's interface to its host is a module with the model's name, in the ABI and in the library. A path into such a
//! module, its declaration and its import do not count: the simulator's hosts and the rules use these interfaces.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use niclab_checks::{repository, sources};

/// The beginnings of the names of models' own files and folders.
const OWN: &[&str] = &["ultra", "match", "mailbox", "inic", "grim", "gamma"];

/// Lists with a line for each model, besides declarations of modules.
const LISTS: &[(&str, &str)] =
    &[("device/abi/header/build.rs", "the modules of the ABI, in the order of its header")];

/// Shared files that name a model, and why. The list must not grow.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("guest-driver/lib/include/niclab.h", "generated; the names of C calls are promised to programs"),
    ("guest-driver/lib/src/capi.rs", "the names of C calls are promised to programs"),
    ("guest-driver/tools/src/cli.rs", "the values of --transport, which scripts and reports use"),
];

/// The words in an identifier or a text: `MatchPort` has `Match` and `Port`, `MATCH_PORTS` has `MATCH` and `PORTS`.
fn words(line: &str) -> Vec<&str> {
    let bytes = line.as_bytes();
    let mut words = Vec::new();
    let mut begin = 0;
    for place in 0..=bytes.len() {
        let is_end = bytes.get(place).is_none_or(|byte| !byte.is_ascii_alphabetic());
        let is_hump = place > begin
            && bytes.get(place).is_some_and(u8::is_ascii_uppercase)
            && bytes[place - 1].is_ascii_lowercase();
        if is_end || is_hump {
            words.extend(line.get(begin..place).filter(|word| !word.is_empty()));
            begin = if is_end { place + 1 } else { place };
        }
    }
    words
}

/// Whether a line names a model. "match" is also a keyword and a verb. As a model's name it has a capital letter, is
/// followed by an underscore, or is in quotes.
fn names_a_model(line: &str) -> bool {
    let is_name = |word: &&str| OWN.iter().any(|own| *own != "match" && word.eq_ignore_ascii_case(own));
    let of_match = [
        "Match NIC",
        "Match card",
        "(Match)",
        "Match:",
        "MATCH_",
        "niclab_match",
        "matching::",
        "\"match\"",
        "`match`",
    ];
    let is_variant = |rest: &str| !rest.starts_with(|next: char| next.is_ascii_lowercase());
    let is_type = |pair: &[&str]| pair[0] == "Match" && line.contains(&pair.concat());
    words(line).iter().any(is_name)
        || of_match.iter().any(|name| line.contains(name))
        || line.split("::Match").skip(1).any(is_variant)
        || words(line).windows(2).any(is_type)
}

fn is_shared(file: &Path) -> bool {
    let is_code =
        file.extension().is_some_and(|kind| ["rs", "c", "h", "lua", "sh"].iter().any(|code| kind == *code));
    let mut parts = file.iter().map(|part| part.to_string_lossy().to_lowercase());
    let is_apart =
        |part: String| part == "tests" || part == "vm" || OWN.iter().any(|own| part.starts_with(own));
    is_code && !file.starts_with("ci/checks") && !parts.any(is_apart)
}

/// The line without paths into interface modules, their declarations and their imports. A path into the models
/// themselves stays.
fn without_paths(line: &str) -> String {
    if line.contains("models::") {
        return line.to_owned();
    }
    let begins = |words: [&str; 4]| words.iter().any(|word| line.trim_start().starts_with(word));
    if begins(["use ", "pub use ", "mod ", "pub mod "]) {
        return String::new();
    }
    let modules = OWN.iter().map(|own| if *own == "match" { "matching" } else { own });
    modules.fold(line.to_owned(), |line, module| {
        line.replace(&format!("{module}::"), "").replace(&format!("[`{module}`]"), "")
    })
}

/// The first line of a shared file that names a model.
fn naming(file: &Path) -> Option<String> {
    let text = fs::read_to_string(repository().join(file)).ok()?;
    let shared = text.lines().take_while(|line| line.trim() != "#[cfg(test)]").zip(1..);
    let mut found = shared.filter(|(line, _)| names_a_model(&without_paths(line)));
    found.next().map(|(line, number)| format!("{}:{number}: {}", file.display(), line.trim()))
}

#[test]
fn shared_code_names_no_model() {
    let known: BTreeSet<&str> = LISTS.iter().chain(EXCEPTIONS).map(|(file, _)| *file).collect();
    let mut wrong = Vec::new();
    let mut needed = BTreeSet::new();
    for file in sources().iter().filter(|file| is_shared(file)) {
        let Some(line) = naming(file) else { continue };
        let name = file.to_string_lossy().into_owned();
        if !known.contains(name.as_str()) {
            wrong.push(format!("{line}\n    look up the model in the registry, or query a feature"));
        }
        needed.insert(name);
    }
    for file in known.iter().filter(|file| !needed.contains(**file)) {
        wrong.push(format!("{file} names no model: delete its line in EXCEPTIONS"));
    }
    assert!(known.len() <= 5, "at most five shared files name a model");
    assert!(wrong.is_empty(), "models named in shared code:\n  {}", wrong.join("\n  "));
}

#[test]
fn model_names_are_found_in_any_case_but_not_the_verb() {
    for line in [
        "use ultra::x;",
        "// ULTRA's ports",
        "UltraPort",
        "MAILBOX_BYTES",
        "MatchPort::new",
        "MATCH_PORTS",
        "the Match NIC",
        "a region (Match)",
        "Transport::Match",
        "// INIC's bus",
        "grim::channel",
        "GammaPort",
        "matching::wire",
        "model = \"match\"",
    ] {
        assert!(names_a_model(line), "{line}");
    }
    for line in [
        "match self {",
        "what matches",
        "matching entries",
        "// Match what arrives",
        "Failure::Matching",
        "ultraviolet",
        "grimly, in the initial gammas",
        "does not match",
    ] {
        assert!(!names_a_model(line), "{line}");
    }
}

#[test]
fn paths_into_interfaces_are_no_names_but_paths_into_models_are() {
    let counts = |line: &str| names_a_model(&without_paths(line));
    for line in
        ["use niclab_abi::inic::OP;", "pub mod grim;", "let at = gamma::place();", "//! [`inic`], one more"]
    {
        assert!(!counts(line), "{line}");
    }
    for line in ["use niclab_model::models::ultra::wire;", "GammaPort", "// GRIM's", "models::inic::Card"] {
        assert!(counts(line), "{line}");
    }
}
