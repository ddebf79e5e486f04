//! `niclab match`: a program assembled by niclab is run and debugged by niclab.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Output, Stdio},
};

/// Runs niclab in `folder`, with this on standard input.
fn niclab(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_niclab"))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_image_is_run_on_files() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(
        folder.join("list.json"),
        r#"[{"match_bits": 1, "length": 8}, {"match_bits": 2, "length": 8}]"#,
    )
    .unwrap();
    fs::write(
        folder.join("headers.json"),
        r#"[{"match_bits": 2, "length": 8}, {"match_bits": 3, "length": 0}]"#,
    )
    .unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../firmware/matching/programs/portals.nma");
    let assembled = niclab(folder, &["asm", source.to_str().unwrap(), "-o", "portals.nmi"], "");
    assert_eq!(assembled.status.code(), Some(0), "{}", text(&assembled.stderr));

    let files = ["--program", "portals.nmi", "--list", "list.json", "--headers", "headers.json"];
    let output = niclab(folder, &[&["match", "run"], &files[..], &["--json"]].concat(), "");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let header = &results["headers"][0];
    assert_eq!((header["index"].as_u64(), header["traversed"].as_u64()), (Some(1), Some(2)), "{results}");
    assert!(results["headers"][1]["index"].is_null(), "{results}");

    fs::write(folder.join("headers.json"), r#"[{"match_bits": 2}]"#).unwrap();
    let output = niclab(folder, &[&["match", "run"], &files[..]].concat(), "");
    assert_eq!(output.status.code(), Some(2), "the program's own code");
    assert!(
        text(&output.stderr).contains("headers.json: [0]: missing field `length`"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_script_debugs_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("list.json"), r#"[{"match_bits": 1, "length": 8}]"#).unwrap();
    fs::write(folder.join("headers.json"), r#"[{"match_bits": 1, "length": 8}]"#).unwrap();
    fs::write(folder.join("loop.nma"), "again: in\n br again\nnop\nnop\n").unwrap();
    let files = ["--program", "loop.nma", "--list", "list.json", "--headers", "headers.json"];
    let options = ["--watchdog", "200", "--trace", "loop.vcd"];
    let arguments = [&["match", "debug", "--command", "break again"], &files[..], &options[..]].concat();
    let output = niclab(folder, &arguments, "continue\nquit\n");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(
        said.contains("breakpoint 1: word 0 again") && said.contains("breakpoint 1, before cycle 5"),
        "{said}"
    );
    assert!(fs::read_to_string(folder.join("loop.vcd")).unwrap().contains("$timescale 1 ns $end"));

    let output = niclab(folder, &[&["match", "run"], &files[..], &options[..2]].concat(), "");
    assert_eq!(output.status.code(), Some(1), "the program's own code");
    assert!(text(&output.stderr).contains("within 200 cycles"), "{}", text(&output.stderr));
}

#[test]
fn help_is_the_programs_own() {
    let folder = tempfile::tempdir().unwrap();
    let help = niclab(folder.path(), &["match", "run", "--help"], "");
    assert!(text(&help.stdout).contains("Usage: niclab match run"), "{}", text(&help.stdout));
    let help = niclab(folder.path(), &["match", "--help"], "");
    assert!(text(&help.stdout).contains("Usage: niclab match <COMMAND>"), "{}", text(&help.stdout));
}
