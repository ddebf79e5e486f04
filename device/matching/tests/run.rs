//! `niclab-match run`: what it prints, its exit codes, and that what is printed is what the rule says.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking, helpers included")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use support::{folder, on_files, text};

fn json_of(folder: &Path, options: &[&str], code: i32) -> Value {
    let options = [&["--json"], options].concat();
    let output = on_files(folder, "run", &options, "");
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn each_header_gets_its_item_by_its_place_in_the_file() {
    let folder = folder();
    let results = json_of(folder.path(), &[], 0);
    // The third item is the third also when it is the last; it takes two messages, of which the second is cut. The second
    // item fails a word later than by its match bits, so that a header takes 30 + 3 * 8 + 1 cycles; three more of the first's are
    // the program's initialization, of which one passes before the first word is there.
    let expected = json!([
        {"index": 2, "offset": 0, "length": 64, "cycles": 58, "traversed": 3},
        {"index": 2, "offset": 64, "length": 36, "cycles": 55, "traversed": 3},
        {"index": null, "offset": null, "length": null, "cycles": 44, "traversed": 2},
    ]);
    assert_eq!(results["headers"], expected, "{results}");
    for (key, value) in [
        ("version", json!(1)),
        ("program", json!("built-in")),
        ("words", json!(44)),
        ("queue", json!("hardware")),
        ("items", json!(3)),
        ("keep", json!(false)),
        ("clock_hz", json!(500_000_000)),
        ("error", Value::Null),
    ] {
        assert_eq!(results[key], value, "{key}");
    }
}

#[test]
fn a_program_that_keeps_the_list_finds_the_same_in_more_cycles() {
    let folder = folder();
    let (hardware, program) =
        (json_of(folder.path(), &[], 0), json_of(folder.path(), &["--queue-program"], 0));
    assert_eq!((&hardware["queue"], &program["queue"]), (&json!("hardware"), &json!("built-in")));
    for (by_hardware, by_program) in
        hardware["headers"].as_array().unwrap().iter().zip(program["headers"].as_array().unwrap())
    {
        for key in ["index", "offset", "length", "traversed"] {
            assert_eq!(by_hardware[key], by_program[key], "{key}: {program}");
        }
        assert!(by_program["cycles"].as_u64() > by_hardware["cycles"].as_u64(), "{program}");
    }
    // The program that matches is none that keeps a list.
    let wrong = concat!(env!("CARGO_MANIFEST_DIR"), "/../../firmware/programs/portals.nma");
    let stopped = json_of(folder.path(), &["--queue-program", wrong], 1);
    assert_eq!(
        (&stopped["error"]["header"], stopped["headers"].as_array().map(Vec::len)),
        (&json!(0), Some(0))
    );
}

#[test]
fn places_stay_those_of_the_file_when_items_before_them_are_used_up() {
    let folder = folder();
    let item = r#"{"match_bits": 1, "length": 8, "threshold": 1}"#;
    fs::write(folder.path().join("list.json"), format!("[{item}, {item}, {item}]")).unwrap();
    let header = r#"{"match_bits": 1, "length": 1}"#;
    fs::write(folder.path().join("headers.json"), format!("[{header}, {header}, {header}, {header}]"))
        .unwrap();
    let places = |options: &[&str]| {
        let results = json_of(folder.path(), options, 0);
        let headers = results["headers"].as_array().unwrap().clone();
        headers.iter().map(|header| header["index"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(places(&[]), [Some(0), Some(1), Some(2), None]);
    assert_eq!(places(&["--keep"]), [Some(0); 4]);
}

#[test]
fn the_papers_cycles_are_printed() {
    let folder = folder();
    for items in [1_u64, 10, 30] {
        let miss = r#"{"match_bits": 1, "length": 8},"#.repeat(items as usize - 1);
        let list = format!(r#"[{miss} {{"match_bits": 5, "length": 64}}]"#);
        fs::write(folder.path().join("list.json"), list).unwrap();
        let results = json_of(folder.path(), &["--keep"], 0);
        assert_eq!(results["headers"][1]["cycles"], 30 + 8 * items);
        assert_eq!(results["headers"][1]["traversed"], items);
    }
}

#[test]
fn people_get_a_table() {
    let folder = folder();
    let output = on_files(folder.path(), "run", &[], "");
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    for part in ["program built-in, 44 words", "traversed", "  2 ", "  none ", "ns of model time"] {
        assert!(table.contains(part), "no {part}: {table}");
    }
}

#[test]
fn what_was_found_before_a_program_misbehaved_is_printed() {
    let folder = folder();
    // Takes a header, fails all three items and the end of the list, and then says what no verdict is.
    let header = "in\n".repeat(8);
    let fails = "in\n".repeat(7) + "in | out = copy r0\n";
    let source =
        format!("{header}{}r1 = add r0, 7\nout = copy r1\nstop: br stop\nnop\nnop\n", fails.repeat(4));
    fs::write(folder.path().join("bad.nma"), source).unwrap();
    let results = json_of(folder.path(), &["--program", "bad.nma"], 1);
    assert_eq!(results["headers"].as_array().unwrap().len(), 1);
    assert_eq!(results["error"]["header"], 1);
    let message = results["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("answered 0x7") && message.contains("mend: "), "{message}");

    fs::write(folder.path().join("loop.nma"), "again: br again\nnop\nnop\n").unwrap();
    let output = on_files(folder.path(), "run", &["--program", "loop.nma", "--watchdog", "500"], "");
    assert_eq!(output.status.code(), Some(1));
    let complaint = text(&output.stderr);
    assert!(complaint.contains("header 0: ") && complaint.contains("within 500 cycles"), "{complaint}");
    assert!(text(&output.stdout).contains("program loop.nma"));
    let results = json_of(folder.path(), &["--program", "loop.nma"], 1);
    assert!(results["error"]["message"].as_str().unwrap().contains("within 4864 cycles"), "{results}");

    fs::write(folder.path().join("end.nma"), "in\n").unwrap();
    let results = json_of(folder.path(), &["--program", "end.nma"], 1);
    assert!(
        results["error"]["message"].as_str().unwrap().contains("ran out of its end, at word 1"),
        "{results}"
    );
}

#[test]
fn what_cannot_be_run_is_refused() {
    let folder = folder();
    for (options, file, content, parts) in [
        (&["--watchdog", "0"][..], "list.json", support::LIST, &["--watchdog"][..]),
        (&["--program", "none.nmi"], "list.json", support::LIST, &["cannot read the program none.nmi"]),
        (&["--program", "list.json"], "list.json", support::LIST, &["list.json:1:1: error"]),
        (&[], "list.json", "[{}]", &["list.json: [0]", "match_bits", "mend: "]),
        (&["--trace", "/none/a.vcd"], "list.json", support::LIST, &["/none/a.vcd", "mend: "]),
        (&[], "headers.json", "[", &["headers.json", "mend: "]),
    ] {
        fs::write(folder.path().join(file), content).unwrap();
        let output = on_files(folder.path(), "run", options, "");
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let complaint = text(&output.stderr);
        assert!(output.stdout.is_empty());
        for part in parts {
            assert!(complaint.contains(part), "no {part}: {complaint}");
        }
        // Not a waveform of nothing, either.
        assert!(!complaint.contains("panicked"), "{complaint}");
    }
}

#[test]
fn the_manuals_example_is_what_is_printed() {
    let manual = include_str!("../../../docs/MATCH.md");
    let example = |name: &str| {
        let (_, behind) = manual.split_once(&format!("```json {name}\n")).unwrap();
        behind.split_once("```").unwrap().0
    };
    let folder = folder();
    fs::write(folder.path().join("list.json"), example("list")).unwrap();
    fs::write(folder.path().join("headers.json"), example("headers")).unwrap();
    let output = on_files(folder.path(), "run", &["--json"], "");
    assert_eq!(text(&output.stdout), example("results"), "{}", text(&output.stderr));
}

#[test]
fn the_manual_has_the_keys_of_the_schemas() {
    let manual = include_str!("../../../docs/MATCH.md");
    for (what, definition) in [("list", "item"), ("headers", "header")] {
        let (_, table) = manual
            .split_once(&format!("| key of an {definition} |"))
            .unwrap_or_else(|| manual.split_once(&format!("| key of a {definition} |")).unwrap());
        let table = table.split_once("\n\n").unwrap().0;
        let listed: BTreeSet<&str> = table.lines().skip(2).filter_map(|row| row.split('`').nth(1)).collect();
        let output =
            Command::new(env!("CARGO_BIN_EXE_niclab-match")).args(["schema", what]).output().unwrap();
        let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(schema["title"], what);
        let properties = schema["$defs"][definition]["properties"].as_object().unwrap();
        assert_eq!(listed, properties.keys().map(String::as_str).collect::<BTreeSet<_>>());
        for (key, property) in properties {
            let default = property.get("default").map_or("refused".to_owned(), Value::to_string);
            let row = table.lines().find(|row| row.starts_with(&format!("| `{key}` |"))).unwrap();
            let shown = row.replace(['`', ' ', '"'], "");
            assert!(
                shown.contains(&format!("|{}|", default.replace('"', ""))),
                "{key}: {default} is not in {row}"
            );
        }
    }
}
