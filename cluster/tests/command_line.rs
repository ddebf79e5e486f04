//! What the command says without any cluster: help, schema, and errors that name the place and the mend.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking, helpers included")]

use std::{
    fs,
    process::{Command, Output},
};

fn niclab(arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_niclab"))
        .args(arguments)
        .env("NICLAB_RUNTIME_DIR", folder.path().join("r"))
        .env("NICLAB_CACHE", folder.path().join("c"))
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What `niclab run` says about a cluster file.
fn complaint(file: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.toml");
    fs::write(&path, file).unwrap();
    let output = niclab(&["run", "--cluster", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty());
    text(&output.stderr)
}

#[test]
fn help_lists_every_subcommand_and_shows_examples() {
    let help = text(&niclab(&["--help"]).stdout);
    for word in [
        "run",
        "up",
        "inspect",
        "exec",
        "shell",
        "logs",
        "down",
        "plan",
        "doctor",
        "bench",
        "report",
        "schema",
        "Examples:",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert!(!help.contains("supervise"));
    assert!(text(&niclab(&["run", "--help"]).stdout).contains("NICLAB_RANK"));
}

#[test]
fn a_wrong_flag_is_a_usage_error() {
    let output = niclab(&["run", "--node", "2"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--nodes"));
}

#[test]
fn the_schema_is_json_and_refuses_unknown_keys() {
    let schema: serde_json::Value = serde_json::from_slice(&niclab(&["schema"]).stdout).unwrap();
    assert_eq!(schema["additionalProperties"], false);
    assert!(schema["properties"]["nodes"]["maximum"] == 64);
    assert!(schema["properties"]["memory_mib"]["description"].is_string());
}

#[test]
fn a_bad_cluster_file_is_refused_with_file_line_key_and_mend() {
    let unknown = complaint("nodes = 2\n\nmemory = 512\n");
    assert!(unknown.contains("c.toml:3:1: `memory`") && unknown.contains("`memory_mib`?"), "{unknown}");
    let impossible = complaint("[[node]]\nmemory_mib = 8\n");
    assert!(
        impossible.contains("c.toml:2:1: `node[0].memory_mib`") && impossible.contains("mend:"),
        "{impossible}"
    );
    assert!(complaint("nodes = = 2").contains("c.toml:1:9"));
}

#[test]
fn a_missing_cluster_file_is_named() {
    let output = niclab(&["run", "--cluster", "/no/such.toml"]);
    assert!(text(&output.stderr).contains("/no/such.toml"));
}

#[test]
fn a_value_of_a_flag_is_refused_by_the_flags_name() {
    assert!(text(&niclab(&["run", "--nodes", "65"]).stderr).contains("`--nodes`"));
}

#[test]
fn without_a_cluster_the_way_to_one_is_shown() {
    for arguments in
        [&["inspect"][..], &["exec", "node0", "--", "true"], &["logs", "node0"], &["down"], &["shell", "x"]]
    {
        let output = niclab(arguments);
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        assert!(text(&output.stderr).contains("`niclab up`"), "{}", text(&output.stderr));
    }
}

#[test]
fn doctor_speaks_json() {
    let json: serde_json::Value = serde_json::from_slice(&niclab(&["doctor", "--json"]).stdout).unwrap();
    assert_eq!(json["version"], 1);
    let checks = json["checks"].as_array().unwrap();
    let found = |what: &str| checks.iter().find(|check| check["what"] == what).unwrap();
    assert_eq!(found("QEMU")["state"], "will-be-built", "the cache is empty");
    assert!(found("accelerator")["found"].as_str().unwrap().contains(": "), "it says why");
}
