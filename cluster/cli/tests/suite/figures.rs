//! The committed figures are what `niclab figures` makes: model time is exact, so they are equal to the last byte.

use std::{fs, path::Path, process::Command};

/// Makes the figures of `paper`, and holds them to the drawing and the `table` in docs/figures.
fn assert_committed(paper: &str, table_file: &str) {
    let folder = tempfile::tempdir().unwrap();
    let drawing = folder.path().join("figures.svg");
    let output = Command::new(env!("CARGO_BIN_EXE_niclab"))
        .args(["figures", paper, "--svg"])
        .arg(&drawing)
        .output()
        .unwrap();
    let (table, complaints) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(output.status.success(), "a claim of the paper does not hold: {table}{complaints}");
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/figures");
    let remedy = format!(
        "renew them: niclab figures {paper} --svg docs/figures/{paper}.svg >docs/figures/{table_file}"
    );
    let expected = fs::read_to_string(committed.join(table_file)).unwrap();
    assert_eq!(expected, table, "{remedy}");
    let expected = fs::read_to_string(committed.join(paper).with_extension("svg")).unwrap();
    assert!(expected == fs::read_to_string(drawing).unwrap(), "{remedy}");
}

#[test]
fn the_committed_figures_of_ultra_are_what_the_command_makes() {
    assert_committed("ultra", "ultra.txt");
}

#[test]
fn the_committed_figures_of_the_match_unit_are_what_the_command_makes() {
    assert_committed("match", "match.md");
}

#[test]
fn the_committed_figures_of_inic_are_what_the_command_makes() {
    assert_committed("inic", "inic.txt");
}

#[test]
fn the_committed_figures_of_grim_are_what_the_command_makes() {
    assert_committed("grim", "grim.txt");
}

#[test]
fn the_committed_figures_of_gamma_are_what_the_command_makes() {
    assert_committed("gamma", "gamma.txt");
}

#[test]
fn a_drawing_that_cannot_be_written_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_niclab"))
        .args(["figures", "ultra", "--svg", "/does/not/exist/ultra.svg"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("cannot write the drawing /does/not/exist/ultra.svg"), "{complaint}");
}
