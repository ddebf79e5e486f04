//! `niclab-match run`: its output and its exit codes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::{folder, on_files, text};
use niclab_matching::firmware::Firmware;
use niclab_matching::input::{read_headers, read_list};
use niclab_matching::machine::{Machine, Setup};
use niclab_model::models::matching::list_manager::Use;
use serde_json::{Value, json};

fn json_of(folder: &Path, options: &[&str], code: i32) -> Value {
    let options = [&["--json"], options].concat();
    let output = on_files(folder, "run", &options, "");
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn each_header_has_its_item_by_index_in_the_file() {
    let folder = folder();
    let results = json_of(folder.path(), &[], 0);
    // The third item keeps its index, even if it is the last one. It matches two messages and truncates the second.
    //
    // The second item fails one word later than by its match bits, so a header takes 28 + 3 * 8 + 1 cycles. The first
    // header takes three more: the program's initialization, of which one cycle passes before the first word arrives.
    // The second header takes one more for the links around the item that it uses up.
    let expected = json!([
        {"index": 2, "offset": 0, "length": 64, "cycles": 56, "traversed": 3},
        {"index": 2, "offset": 64, "length": 36, "cycles": 54, "traversed": 3},
        {"index": null, "offset": null, "length": null, "cycles": 42, "traversed": 2},
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
fn a_queue_program_has_the_same_outcomes_in_more_cycles() {
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
    // 17 cycles, plus 50 for each item, belong to no header. One more cycle shows the last outcome.
    assert_eq!((&hardware["append_cycles"], &program["append_cycles"]), (&json!(0), &json!(167)));
    let headers: u64 =
        program["headers"].as_array().unwrap().iter().filter_map(|header| header["cycles"].as_u64()).sum();
    assert_eq!(program["cycles"], json!(167 + headers + 1), "{program}");
    let table = text(&on_files(folder.path(), "run", &["--queue-program"], "").stdout);
    assert!(table.contains("167 cycles before the first header"), "{table}");
    // The matching program cannot keep a list.
    let wrong = concat!(env!("CARGO_MANIFEST_DIR"), "/../../firmware/matching/programs/portals.nma");
    let stopped = json_of(folder.path(), &["--queue-program", wrong], 1);
    assert_eq!(
        (&stopped["error"]["header"], stopped["headers"].as_array().map(Vec::len)),
        (&json!(0), Some(0))
    );
    let message = stopped["error"]["message"].as_str().unwrap();
    assert!(message.contains("header 0: the queue's program: "), "{message}");
    // This program matches nothing.
    fs::write(folder.path().join("end.nma"), "in\n").unwrap();
    let stopped = json_of(folder.path(), &["--queue-program", "--program", "end.nma"], 1);
    let message = stopped["error"]["message"].as_str().unwrap();
    assert!(message.contains("header 0: the matching program: the program ran past its end"), "{message}");
}

#[test]
fn a_list_longer_than_the_queue_programs_slots_is_refused() {
    let folder = folder();
    let list = |items: usize| {
        let items = vec![r#"{"match_bits": 6, "length": 8}"#; items];
        fs::write(folder.path().join("list.json"), format!("[{}]", items.join(","))).unwrap();
    };
    fs::write(folder.path().join("headers.json"), "[]").unwrap();
    list(65_536);
    let output = on_files(folder.path(), "run", &["--queue-program"], "");
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    for part in ["65536 items", "65535 slots", "fix: ", "--queue-program"] {
        assert!(complaint.contains(part), "no {part}: {complaint}");
    }
    assert_eq!(json_of(folder.path(), &[], 0)["items"], 65_536, "hardware accepts the list");
    // All slots can be used.
    list(65_535);
    assert_eq!(json_of(folder.path(), &["--queue-program"], 0)["append_cycles"], 17 + 50 * 65_535);
}

#[test]
fn a_waveform_replaces_only_regular_files_and_no_input() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../firmware/matching/programs/portals.nma");
    fs::copy(program, path("portals.nma")).unwrap();
    symlink("list.json", path("soft.vcd")).unwrap();
    fs::hard_link(path("headers.json"), path("hard.vcd")).unwrap();
    symlink("/dev/null", path("null.vcd")).unwrap();
    let names = |folder: &Path| {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        names.collect::<BTreeSet<_>>()
    };
    let before = names(folder.path());
    for (trace, part) in [
        ("./list.json", "the same file"),
        ("soft.vcd", "the same file"),
        ("hard.vcd", "the same file"),
        ("portals.nma", "the same file"),
        ("-", "standard output"),
        (".", "neither a regular file"),
    ] {
        for command in ["run", "debug"] {
            let output = on_files(
                folder.path(),
                command,
                &["--program", "portals.nma", "--trace", trace],
                "continue\n",
            );
            let complaint = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{trace}: {complaint}");
            assert!(complaint.contains(part) && complaint.contains("fix: "), "{trace}: {complaint}");
        }
    }
    assert_eq!(names(folder.path()), before);
    assert_eq!(fs::read_to_string(path("list.json")).unwrap(), crate::support::LIST);
    assert_eq!(fs::read_to_string(path("headers.json")).unwrap(), crate::support::HEADERS);
    // Another regular file is replaced.
    fs::write(path("run.vcd"), "old").unwrap();
    assert_eq!(on_files(folder.path(), "run", &["--trace", "run.vcd"], "").status.code(), Some(0));
    assert!(fs::read_to_string(path("run.vcd")).unwrap().contains("$timescale"));
    // A device is written, not replaced.
    assert_eq!(on_files(folder.path(), "run", &["--trace", "null.vcd"], "").status.code(), Some(0));
    assert_eq!(fs::read_link(path("null.vcd")).unwrap(), Path::new("/dev/null"));
}

#[test]
fn warnings_of_the_assembler_are_printed() {
    let folder = folder();
    fs::write(folder.path().join("end.nma"), "in\n").unwrap();
    for option in ["--program", "--queue-program"] {
        for command in ["run", "debug"] {
            let complaint = text(&on_files(folder.path(), command, &[option, "end.nma"], "").stderr);
            assert!(complaint.contains("end.nma:1:1: warning[falls_through]"), "{option}: {complaint}");
        }
    }
    assert_eq!(
        text(&on_files(folder.path(), "run", &["--queue-program"], "").stderr),
        "",
        "the built-in programs have no warnings"
    );
}

/// A program that sends these words in order and then loops.
fn says(words: &[u32]) -> String {
    let word = |word: &u32| format!("r1 = add r0, {word}\nout = copy r1\n");
    words.iter().map(word).collect::<String>() + "stop: br stop\nnop\nnop\n"
}

/// A program that takes a header and an item, and sends these words as its answer.
fn answers(words: &[u32]) -> String {
    "in\n".repeat(16) + &says(words)
}

/// A program that takes a header and this number of items, and answers that each fails.
fn fails(items: usize) -> String {
    "in\n".repeat(8) + &("in\n".repeat(7) + "in | out = copy r0\n").repeat(items)
}

#[test]
fn an_unexpected_answer_is_reported_with_the_expected_one() {
    let folder = folder();
    for (source, parts) in [
        (answers(&[3]), ["answered 0x3 where a verdict was due, 0 or 1", "What travels"]),
        (answers(&[1, 0, 8, 3]), ["answered 0x3 where 2 was due", "offset and length"]),
        (answers(&[1, 0, 8, 1]), ["answered 0x1 where 2 was due", "fix: "]),
        (
            "r1 = add r0, 1\nout = copy r1\nin\nin\nin\nin\nin\n".to_owned(),
            ["answered 0x1 before the item", "judges next"],
        ),
        // Three items and the end of the list.
        (fails(3) + &"in\n".repeat(8) + &says(&[1]), ["answered 0x1 for the end of the list", "0 is due"]),
        (fails(4) + &says(&[0]), ["answered 0x0 while no header was being matched", "fix: "]),
    ] {
        fs::write(folder.path().join("wrong.nma"), &source).unwrap();
        let headers = r#"[{"match_bits": 5, "node": 1, "process": 9, "length": 64}]"#;
        fs::write(folder.path().join("headers.json"), headers).unwrap();
        // The run ends with the last header's outcome, so a late answer needs a second header.
        if parts[0].contains("no header") {
            fs::write(
                folder.path().join("headers.json"),
                format!("[{0}, {0}]", &headers[1..headers.len() - 1]),
            )
            .unwrap();
        }
        let results = json_of(folder.path(), &["--program", "wrong.nma"], 1);
        let message = results["error"]["message"].as_str().unwrap();
        for part in parts {
            assert!(message.contains(part), "no {part}: {message}");
        }
    }
}

#[test]
fn offset_and_length_are_checked_if_items_are_used_up() {
    let folder = folder();
    // The first item has ten bytes, and the message 64.
    for (offset, length, is_refused) in
        [(0, 10, false), (3, 8, true), (0, 65, true), (11, 0, true), (10, 0, false)]
    {
        fs::write(folder.path().join("headers.json"), r#"[{"match_bits": 5, "length": 64}]"#).unwrap();
        fs::write(folder.path().join("own.nma"), answers(&[1, offset, length, 2])).unwrap();
        let own = ["--program", "own.nma"];
        let code = |options: &[&str]| {
            let output = on_files(folder.path(), "run", &[&own, options].concat(), "");
            (output.status.code(), text(&output.stderr))
        };
        assert_eq!(code(&["--keep"]).0, Some(0), "{offset}, {length}");
        for queue in [&[][..], &["--queue-program"]] {
            let (code, complaint) = code(queue);
            assert_eq!(code, Some(i32::from(is_refused)), "{offset}, {length}: {complaint}");
            assert_eq!(
                complaint.contains(&format!("{length} bytes at offset {offset}, which exceeds")),
                is_refused,
                "{complaint}"
            );
        }
    }
}

#[test]
fn the_gap_between_headers_is_as_the_manual_says() {
    let folder = folder();
    let setup = Setup {
        firmware: Firmware::load(None).unwrap(),
        queue: None,
        items: read_list(&folder.path().join("list.json")).unwrap(),
        headers: read_headers(&folder.path().join("headers.json")).unwrap(),
        uses: Use::Consume,
        watchdog: 10_000,
        files: Vec::new(),
    };
    let mut machine = Machine::new(&setup).unwrap();
    let (mut heard, mut waits) = (None, Vec::new());
    while !machine.is_done() {
        let cycle = machine.tick().unwrap();
        let (ended, began) = (cycle.ended.map(|_| cycle.number), cycle.began.map(|_| cycle.number));
        if let (Some(heard), Some(began)) = (heard, began) {
            waits.push(began - heard);
        }
        heard = ended.or(heard);
    }
    assert_eq!(waits, [2, 3]);
    let manual = include_str!("../../../../docs/use/match/INSIDE.md").replace('\n', " ");
    assert!(manual.contains(
        "the next header begins two cycles after the last answer was seen, three where it uses up its item"
    ));
}

#[test]
fn item_indices_stay_those_of_the_file() {
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
        assert_eq!(results["headers"][1]["cycles"], 28 + 8 * items);
        assert_eq!(results["headers"][1]["traversed"], items);
    }
}

#[test]
fn the_default_output_is_a_table() {
    let folder = folder();
    let output = on_files(folder.path(), "run", &[], "");
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    for part in ["program built-in, 44 words", "traversed", "  2 ", "  none ", "ns of model time"] {
        assert!(table.contains(part), "no {part}: {table}");
    }
}

#[test]
fn outcomes_before_a_programs_fault_are_printed() {
    let folder = folder();
    // A program that takes a header, fails all three items and the end of the list, and then sends an invalid verdict.
    let header = "in\n".repeat(8);
    let fails = "in\n".repeat(7) + "in | out = copy r0\n";
    let source =
        format!("{header}{}r1 = add r0, 7\nout = copy r1\nstop: br stop\nnop\nnop\n", fails.repeat(4));
    fs::write(folder.path().join("bad.nma"), source).unwrap();
    let results = json_of(folder.path(), &["--program", "bad.nma"], 1);
    assert_eq!(results["headers"].as_array().unwrap().len(), 1);
    assert_eq!(results["error"]["header"], 1);
    let message = results["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("answered 0x7") && message.contains("fix: "), "{message}");

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
        results["error"]["message"].as_str().unwrap().contains("ran past its end, at word 1"),
        "{results}"
    );
}

#[test]
fn invalid_setups_are_refused() {
    let folder = folder();
    for (options, file, content, parts) in [
        (&["--watchdog", "0"][..], "list.json", crate::support::LIST, &["--watchdog"][..]),
        (
            &["--program", "none.nmi"],
            "list.json",
            crate::support::LIST,
            &["cannot read the program none.nmi"],
        ),
        (&["--program", "list.json"], "list.json", crate::support::LIST, &["list.json:1:1: error"]),
        (&[], "list.json", "[{}]", &["list.json: [0]", "match_bits", "fix: "]),
        (&["--trace", "/none/a.vcd"], "list.json", crate::support::LIST, &["/none/a.vcd", "fix: "]),
        (&[], "headers.json", "[", &["headers.json", "fix: "]),
    ] {
        fs::write(folder.path().join(file), content).unwrap();
        let output = on_files(folder.path(), "run", options, "");
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let complaint = text(&output.stderr);
        assert!(output.stdout.is_empty());
        for part in parts {
            assert!(complaint.contains(part), "no {part}: {complaint}");
        }
        assert!(!complaint.contains("panicked"), "{complaint}");
    }
}

#[test]
fn the_manuals_example_is_the_output() {
    let manual = include_str!("../../../../docs/use/match/RUNNING.md");
    let example = |name: &str| {
        let (_, rest) = manual.split_once(&format!("```json {name}\n")).unwrap();
        rest.split_once("```").unwrap().0
    };
    let folder = folder();
    fs::write(folder.path().join("list.json"), example("list")).unwrap();
    fs::write(folder.path().join("headers.json"), example("headers")).unwrap();
    let output = on_files(folder.path(), "run", &["--json"], "");
    assert_eq!(text(&output.stdout), example("results"), "{}", text(&output.stderr));
}

#[test]
fn the_manual_has_the_keys_of_the_schemas() {
    let manual = include_str!("../../../../docs/use/match/RUNNING.md");
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
