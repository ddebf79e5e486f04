//! `niclab conform`: good drivers pass, and drivers with a bug do not.

use std::fs;

use niclab_harness::{Niclab, compile};
use serde_json::Value;

#[allow(dead_code, reason = "each test uses a part of it")]
#[path = "../drivers/table.rs"]
mod table;

use table::{Driver, VARIANTS};

/// Builds the program that sends messages over the example drivers in the folder that guests see.
fn put_messages(niclab: &Niclab) {
    let source = table::project().join("tests/drivers/messages.c");
    compile(niclab, "messages", &fs::read_to_string(source).expect("the program's source"));
}

#[test]
fn a_good_driver_passes_and_an_unused_one_is_not_exercised() {
    let niclab = Niclab::new();
    put_messages(&niclab);
    let good = Driver::Ultra.folder().canonicalize().expect("the example").display().to_string();
    for case in ["kill", "rebind", "reload", "invalid-value", "combined"] {
        let conform =
            ["conform", "--driver", &good, "--case", case, "--", "./messages", "/dev/example", "64"];
        let outcome = niclab.run(conform).success();
        assert!(
            !outcome.stdout.contains(" after 0 sent, 0 received, 0 events"),
            "a fault came before any activity: {outcome}"
        );
        assert!(outcome.stdout.contains("1 passed, 0 failed, 0 not exercised, 0 not run"), "{outcome}");
    }
    let nothing = niclab.run(["conform", "--driver", &good, "--case", "rebind", "--json", "--", "true"]);
    assert_eq!(nothing.code(), 4, "a command that uses no driver exercises nothing: {nothing}");
    assert!(nothing.json()["cases"][0]["not_exercised"].is_string(), "{nothing}");
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
}

/// The exit code and the cases of a run.
fn cases(niclab: &Niclab, conform: &[&str]) -> (i32, Vec<Value>) {
    let outcome =
        niclab.run([&["conform", "--case", "adversarial", "--one-boot", "--json"], conform].concat());
    let cases = outcome.json()["cases"].as_array().cloned().unwrap_or_else(|| panic!("no cases: {outcome}"));
    (outcome.code(), cases)
}

#[test]
fn several_seeds_share_a_boot_and_a_failing_seed_is_named() {
    let niclab = Niclab::new();
    let (code, sound) = cases(&niclab, &["--seeds", "4"]);
    assert_eq!(code, 0, "{sound:#?}");
    let seeds: Vec<u64> = sound.iter().filter_map(|case| case["seed"].as_u64()).collect();
    assert_eq!(seeds, [1, 2, 3, 4], "{sound:#?}");
    assert!(sound[1..].iter().all(|case| case["booted_with"] == 1), "{sound:#?}");
    // A card that gets seed 1 during a run answers one of its driver's first requests just before the limit, as a card
    // that starts with seed 1 does.
    let (_, again) = cases(&niclab, &["--from", "0", "--seeds", "2"]);
    let at_limit = |case: &Value| case["adversarial"]["reply_at_limit"].as_u64();
    assert!(at_limit(&sound[0]).is_some() && at_limit(&again[1]).is_some(), "{sound:#?} {again:#?}");
    assert!(sound[1..].iter().any(|case| at_limit(case).is_none()), "all seeds behave alike: {sound:#?}");

    put_messages(&niclab);
    let variant =
        VARIANTS.iter().find(|variant| variant.name == "completion-taken-twice").expect("a bug of the table");
    let folder = niclab.folder().join("driver");
    fs::create_dir(&folder).expect("a folder");
    variant.plant(&folder).expect("a driver with a bug");
    let driver = folder.display().to_string();
    let conform = [
        "--from",
        "0",
        "--seeds",
        "8",
        "--fail-fast",
        "--driver",
        &driver,
        "--",
        "./messages",
        "/dev/example",
        "64",
    ];
    let (code, cases) = cases(&niclab, &conform);
    let last = cases.last().expect("a case");
    assert_eq!((code, &last["passed"]), (1, &Value::Bool(false)), "{cases:#?}");
    let again = format!("--case adversarial --from {} --one-boot", last["seed"]);
    assert!(last["repeat"].as_str().is_some_and(|line| line.contains(&again)), "{last:#}");
    assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
}

#[test]
fn wrong_use_and_build_errors_have_their_own_exit_codes() {
    let niclab = Niclab::new();
    let good = Driver::Ultra.folder().display().to_string();
    let without = niclab.run(["conform", "--driver", &good]);
    assert_eq!(without.code(), 2, "{without}");
    assert!(without.stderr.contains("-- COMMAND"), "{without}");
    let unknown = niclab.run(["conform", "--case", "no-such"]);
    assert_eq!(unknown.code(), 2, "{unknown}");
    assert!(unknown.stderr.contains("rebind"), "{unknown}");
    let none = niclab.run(["conform", "--case", "adversarial", "--seeds", "0"]);
    assert_eq!(none.code(), 2, "a run that exercises nothing does not pass: {none}");
    let other = niclab.run(["conform", "--case", "plain", "--one-boot"]);
    assert_eq!(other.code(), 2, "{other}");
    assert!(other.stderr.contains("omit --one-boot"), "{other}");
    let nothing = niclab.folder().display().to_string();
    let unbuilt = niclab.run(["conform", "--driver", &nothing, "--", "true"]);
    assert_eq!(unbuilt.code(), 3, "{unbuilt}");
    assert!(unbuilt.stderr.contains("Makefile"), "{unbuilt}");
}

#[test]
fn drivers_that_trust_the_device_are_found_on_any_kernel() {
    for name in ["count-believed", "port-believed"] {
        let variant = VARIANTS.iter().find(|variant| variant.name == name).expect("a bug of the table");
        let niclab = Niclab::new();
        put_messages(&niclab);
        let folder = niclab.folder().join("driver");
        fs::create_dir(&folder).expect("a folder");
        variant.plant(&folder).expect("a driver with a bug");
        let driver = folder.display().to_string();
        // The card selects the invalid values at random.
        let seeds = ["--case", "invalid-value", "--from", "1", "--seeds", "4", "--fail-fast"];
        let conform = ["conform", "--driver", &driver, "--json"];
        let command = ["--", "./messages", "/dev/example", "64"];
        let outcome = niclab.run(conform.iter().chain(&seeds).chain(&command));
        assert_eq!(outcome.code(), 1, "{name}: {outcome}");
        let cases = outcome.json()["cases"].clone();
        let found = cases.as_array().and_then(|cases| cases.last()).expect("a case");
        assert_eq!(found["believed_device"], Value::Bool(true), "{name}: {outcome}");
    }
}

#[test]
fn a_bug_is_reported_with_the_broken_rule() {
    for name in ["slot-reused-while-busy", "receive-memory-cleared", "event-buffers-kept"] {
        let variant = VARIANTS.iter().find(|variant| variant.name == name).expect("a bug of the table");
        let table::Finder::Rule(rule) = variant.finder else { panic!("{name} breaks no rule") };
        let niclab = Niclab::new();
        put_messages(&niclab);
        let folder = niclab.folder().join("driver");
        fs::create_dir(&folder).expect("a folder");
        variant.plant(&folder).expect("a driver with a bug");
        let driver = folder.display().to_string();
        let conform = ["conform", "--driver", &driver, "--case", "plain", "--json", "--"];
        let outcome = niclab.run(conform.iter().chain(&["./messages", "/dev/example", "64"]));
        assert_eq!(outcome.code(), 1, "{outcome}");
        let named = outcome.json()["cases"][0]["named"].clone();
        assert!(
            named.as_array().is_some_and(|named| named.iter().any(|named| named["rule"] == rule)),
            "{outcome}"
        );
        assert!(niclab.processes().is_empty(), "{:#?}", niclab.processes());
    }
}
