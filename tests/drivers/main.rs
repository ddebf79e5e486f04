//! Runs each driver with a bug (`table.rs`) through the cases of `niclab conform`'s default run, one by one, until a
//! case names the bug. Drivers without a bug run through all cases. A table shows which case found each bug.
//!
//! The tests take an hour in guests. Run `niclab kernel build` first, and then this:
//!
//! `cargo test -p niclab-tests --features drivers --test drivers -- --nocapture`
//!
//! `NICLAB_DRIVERS` selects the drivers whose names contain one of its comma-separated words.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod table;

use std::{
    env, fs,
    time::{Duration, Instant},
};

use niclab_harness::{Niclab, compile};
use serde_json::Value;
use table::{Driver, Finder, VARIANTS, Variant};

/// The maximum number of bugs that no case names: two that no case is expected to name, and one that depends on a poll
/// between two stores.
const MAX_UNNAMED: usize = 3;

/// The maximum message length of the example drivers.
fn most_bytes(driver: Driver) -> &'static str {
    if matches!(driver, Driver::Gamma | Driver::Match) { "1024" } else { "64" }
}

/// The cases of a default run, each with the options that select it alone, and the first seeds of those that have
/// several. The order seldom reaches the slow cases.
const CASES: [&[&str]; 18] = [
    &["--case", "plain"],
    &["--case", "rebind"],
    &["--case", "adversarial", "--seeds", "4"],
    &["--case", "kill"],
    &["--case", "plain", "--kernel", "debug"],
    &["--case", "rebind", "--kernel", "debug"],
    &["--case", "bad-status", "--kernel", "debug"],
    &["--case", "combined", "--kernel", "debug"],
    &["--case", "kill", "--kernel", "debug"],
    &["--case", "adversarial", "--kernel", "debug"],
    &["--case", "reload", "--kernel", "debug"],
    &["--case", "adversarial", "--seeds", "4", "--from", "5"],
    &["--case", "delay"],
    &["--case", "stale"],
    &["--case", "invalid-value"],
    &["--case", "invalid-value", "--kernel", "debug"],
    &["--case", "combined"],
    &["--case", "reload"],
];

/// The command line of a run with these options.
fn conform(driver: Driver, folder: &str, options: &[&str]) -> Vec<String> {
    let mut words =
        ["conform", "--json", "--nic", driver.nic(), "--driver", folder].map(str::to_owned).to_vec();
    words.extend(options.iter().map(|&word| word.to_owned()));
    if driver != Driver::Ours {
        words.extend(["--", "./messages", "/dev/example", most_bytes(driver)].map(str::to_owned));
    }
    words
}

fn put_messages(niclab: &Niclab) {
    let source = table::project().join("tests/drivers/messages.c");
    compile(niclab, "messages", &fs::read_to_string(source).unwrap());
}

/// The first finding that names a bug, and its case.
struct Found {
    by: String,
    case: String,
    wall: Duration,
}

/// The first verdict that names a bug: a broken rule, a finding of the debug kernel, or a failing seed of an
/// adversarial device, if a normal device passed.
fn named(cases: &[Value], is_plain_fine: bool) -> Option<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    cases.iter().find_map(|case| {
        let label = format!("{} {}", text(&case["case"]), case["seed"]);
        let names = case["named"].as_array()?;
        let of = |by: &str| names.iter().find(|named| named["by"] == by);
        if let Some(rule) = of("rule") {
            return Some((format!("rule {}", text(&rule["rule"])), label));
        }
        if let Some(finding) = of("kernel") {
            return Some((format!("kernel: {}", text(&finding["kind"])), label));
        }
        if case["believed_device"] == true {
            return Some((format!("trusted the device: {}", text(&names.first()?["by"])), label));
        }
        (case["case"] == "adversarial" && is_plain_fine && !names.is_empty())
            .then(|| ("seed of an adversarial device".to_owned(), label))
    })
}

/// Runs a driver with a bug through the cases until one names the bug.
fn find(variant: &Variant) -> Option<Found> {
    let niclab = Niclab::new();
    put_messages(&niclab);
    let folder = niclab.folder().join("driver");
    fs::create_dir(&folder).unwrap();
    variant.plant(&folder).unwrap();
    let begin = Instant::now();
    let mut is_plain_fine = false;
    let mut cases = CASES;
    // The kernel that is expected to find the bug comes first.
    let on_debug_kernel = |options: &[&str]| options.contains(&"debug");
    let is_kernels = matches!(variant.finder, Finder::Kernel(_) | Finder::RuleOnDebugKernel(_));
    cases.sort_by_key(|options| on_debug_kernel(options) != is_kernels);
    for options in cases {
        let outcome = niclab.run(conform(variant.driver, &folder.display().to_string(), options));
        let conformance = outcome.json();
        let cases = conformance["cases"].as_array().unwrap();
        is_plain_fine |= cases.iter().any(|case| case["case"] == "plain" && case["passed"] == true);
        if let Some((by, case)) = named(cases, is_plain_fine) {
            let case = if on_debug_kernel(options) { format!("{case}, debug kernel") } else { case };
            return Some(Found { by, case, wall: begin.elapsed() });
        }
    }
    None
}

fn expected(finder: Finder) -> String {
    match finder {
        Finder::Rule(rule) => format!("rule {rule}"),
        Finder::RuleOnDebugKernel(rule) => format!("rule {rule}, debug kernel"),
        Finder::Kernel(what) => format!("kernel: {what}"),
        Finder::Believed(by) => format!("trusted the device: {by}"),
        Finder::NotFound(why) => format!("none: {why}"),
    }
}

#[test]
fn drivers_without_a_bug_pass_all_cases() {
    for driver in [Driver::Ultra, Driver::Gamma, Driver::Match, Driver::Ours] {
        let niclab = Niclab::new();
        put_messages(&niclab);
        let folder = driver.folder().canonicalize().unwrap();
        let outcome = niclab.run(conform(driver, &folder.display().to_string(), &[]));
        assert_eq!(outcome.code(), 0, "{driver:?}: {outcome}");
    }
}

#[test]
fn bugs_of_drivers_are_named() {
    let only = env::var("NICLAB_DRIVERS").unwrap_or_default();
    let is_asked = |variant: &&Variant| only.split(',').any(|word| variant.name.contains(word));
    let mut unnamed = Vec::new();
    println!("| bug | after | expected | named by | case | wall s |\n|---|---|---|---|---|---|");
    for variant in VARIANTS.iter().filter(is_asked) {
        let found = find(variant);
        let (by, case, wall) = found.map_or_else(
            || ("none".to_owned(), String::new(), String::new()),
            |found| (found.by, found.case, format!("{:.0}", found.wall.as_secs_f64())),
        );
        println!(
            "| {} | {} | {} | {by} | {case} | {wall} |",
            variant.name,
            variant.class,
            expected(variant.finder)
        );
        if by == "none" {
            unnamed.push(variant.name);
        }
    }
    assert!(unnamed.len() <= MAX_UNNAMED, "no case names these bugs: {unnamed:#?}");
}
