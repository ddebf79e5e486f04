//! `niclab match`: runs and debugs a program that `niclab asm` assembled.

use std::{
    fs::{self, File},
    path::Path,
};

use niclab_harness::Outcome;

use crate::support::niclab;

#[test]
fn an_image_is_run_on_files() {
    let niclab = niclab();
    let folder = niclab.folder();
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
    let assembled = niclab.run(["asm", source.to_str().unwrap(), "-o", "portals.nmi"]);
    assert_eq!(assembled.code(), 0, "{}", assembled.stderr);

    let files = ["--program", "portals.nmi", "--list", "list.json", "--headers", "headers.json"];
    let output = niclab.run([&["match", "run"], &files[..], &["--json"]].concat());
    assert_eq!(output.code(), 0, "{}", output.stderr);
    let results = output.json();
    let header = &results["headers"][0];
    assert_eq!((header["index"].as_u64(), header["traversed"].as_u64()), (Some(1), Some(2)), "{results}");
    assert!(results["headers"][1]["index"].is_null(), "{results}");

    fs::write(folder.join("headers.json"), r#"[{"match_bits": 2}]"#).unwrap();
    let output = niclab.run([&["match", "run"], &files[..]].concat());
    assert_eq!(output.code(), 2, "the code of niclab-match");
    assert!(output.stderr.contains("headers.json: [0]: missing field `length`"), "{}", output.stderr);
}

#[test]
fn a_script_debugs_a_program() {
    let niclab = niclab();
    let folder = niclab.folder();
    fs::write(folder.join("list.json"), r#"[{"match_bits": 1, "length": 8}]"#).unwrap();
    fs::write(folder.join("headers.json"), r#"[{"match_bits": 1, "length": 8}]"#).unwrap();
    fs::write(folder.join("loop.nma"), "again: in\n br again\nnop\nnop\n").unwrap();
    let files = ["--program", "loop.nma", "--list", "list.json", "--headers", "headers.json"];
    let options = ["--watchdog", "200", "--trace", "loop.vcd"];
    let arguments = [&["match", "debug", "--command", "break again"], &files[..], &options[..]].concat();
    fs::write(folder.join("script"), "continue\nquit\n").unwrap();
    let script = File::open(folder.join("script")).unwrap();
    let output = Outcome::of(niclab.command(&arguments).stdin(script));
    assert_eq!(output.code(), 0, "{}", output.stderr);
    let said = output.stdout;
    assert!(
        said.contains("breakpoint 1: word 0 again") && said.contains("breakpoint 1, before cycle 5"),
        "{said}"
    );
    assert!(fs::read_to_string(folder.join("loop.vcd")).unwrap().contains("$timescale 1 ns $end"));

    let output = niclab.run([&["match", "run"], &files[..], &options[..2]].concat());
    assert_eq!(output.code(), 1, "the code of niclab-match");
    assert!(output.stderr.contains("within 200 cycles"), "{}", output.stderr);
}

#[test]
fn match_help_is_that_of_niclab_match() {
    let niclab = niclab();
    let help = niclab.run(["match", "run", "--help"]);
    assert!(help.stdout.contains("Usage: niclab match run"), "{}", help.stdout);
    let help = niclab.run(["match", "--help"]);
    assert!(help.stdout.contains("Usage: niclab match <COMMAND>"), "{}", help.stdout);
}
