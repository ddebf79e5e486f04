//! The committed figures equal those of `niclab validation`, byte for byte, because model time is exact.

use std::{fs, path::Path};

use crate::support::niclab;

#[test]
fn committed_figures_and_validation_page_are_current() {
    let niclab = niclab();
    let folder = niclab.folder();
    let output = niclab.run(["validation", "--into", "."]);
    assert!(output.status.success(), "a number is not as declared: {output}");
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let mut different = Vec::new();
    let mut compare = |path: &Path| {
        let [made, kept] = [folder, &committed].map(|docs| fs::read_to_string(docs.join(path)));
        if made.unwrap() != kept.unwrap_or_default() {
            different.push(path.to_owned());
        }
    };
    compare(Path::new("VALIDATION.md"));
    let made = fs::read_dir(folder.join("figures")).unwrap();
    let names: Vec<_> = made.map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.len() >= 10, "tables and drawings of five papers: {names:?}");
    for name in names {
        compare(&Path::new("figures").join(name));
    }
    assert!(different.is_empty(), "regenerate {different:?}: niclab validation --into docs/reference");
    assert_eq!(output.stdout, fs::read_to_string(folder.join("VALIDATION.md")).unwrap());
}

#[test]
fn figures_of_one_paper_are_printed_and_drawn_alone() {
    let niclab = niclab();
    let output = niclab.run(["figures", "match", "--svg", "figures.svg"]).success();
    let drawing = niclab.folder().join("figures.svg");
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/figures");
    for (made, kept) in [(output.stdout, "match.md"), (fs::read_to_string(drawing).unwrap(), "match.svg")] {
        assert!(
            made == fs::read_to_string(committed.join(kept)).unwrap(),
            "{kept}: regenerate it: niclab validation --into docs/reference"
        );
    }
}

#[test]
fn unwritable_drawing_is_named() {
    let output = niclab().run(["figures", "ultra", "--svg", "/does/not/exist/ultra.svg"]);
    assert!(!output.status.success());
    let complaint = output.stderr;
    assert!(complaint.contains("cannot write /does/not/exist/ultra.svg"), "{complaint}");
}
