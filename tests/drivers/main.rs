//! Each driver with a bug (`table.rs`) is put to the test by the cases of a default run of `niclab conform`, one after
//! the other, until it is named; those without a bug by all of them. A table says who named which bug. An hour, in
//! guests: `niclab kernel build`, then `cargo test -p niclab-tests --features drivers --test drivers -- --nocapture`;
//! with `NICLAB_DRIVERS` only those whose names contain one of its words, which are separated by commas.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod table;

use std::{
    env, fs,
    time::{Duration, Instant},
};

use niclab_harness::{Niclab, compile};
use serde_json::Value;
use table::{Driver, Finder, VARIANTS, Variant};

/// So many bugs may be named by nobody: two that nobody is expected to name, and one that takes a look between two
/// stores.
const MOST_UNNAMED: usize = 3;

/// Longest messages of the example drivers.
fn most_bytes(driver: Driver) -> &'static str {
    if matches!(driver, Driver::Gamma | Driver::Match) { "1024" } else { "64" }
}

/// The cases of a default run with the options that give them alone, in an order that has seldom to go on to the slow
/// ones; the first seeds of those that have several.
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

/// What a run found first, that names a bug: what named it, and in which case.
struct Found {
    by: String,
    case: String,
    wall: Duration,
}

/// The first verdict by which a bug is named: by a rule, a debug kernel, or by a seed of an adversarial device where
/// a kind one was fine.
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
            return Some((format!("the device was believed: {}", text(&names.first()?["by"])), label));
        }
        (case["case"] == "adversarial" && is_plain_fine && !names.is_empty())
            .then(|| ("seed of an adversarial device".to_owned(), label))
    })
}

/// Puts a driver with a bug to the test, until it is named.
fn find(variant: &Variant) -> Option<Found> {
    let niclab = Niclab::new();
    put_messages(&niclab);
    let folder = niclab.folder().join("driver");
    fs::create_dir(&folder).unwrap();
    variant.plant(&folder).unwrap();
    let begin = Instant::now();
    let mut is_plain_fine = false;
    let mut cases = CASES;
    // Whoever is expected to name it is asked first.
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
        Finder::Believed(by) => format!("the device was believed: {by}"),
        Finder::Nobody(why) => format!("nobody: {why}"),
    }
}

#[test]
fn drivers_without_a_bug_pass_everything() {
    for driver in [Driver::Ultra, Driver::Gamma, Driver::Match, Driver::Ours] {
        let niclab = Niclab::new();
        put_messages(&niclab);
        let folder = driver.folder().canonicalize().unwrap();
        let outcome = niclab.run(conform(driver, &folder.display().to_string(), &[]));
        assert_eq!(outcome.code(), 0, "{driver:?}: {outcome}");
    }
}

#[test]
fn drivers_with_a_bug_are_told_which() {
    let only = env::var("NICLAB_DRIVERS").unwrap_or_default();
    let is_asked = |variant: &&Variant| only.split(',').any(|word| variant.name.contains(word));
    let mut unnamed = Vec::new();
    println!("| bug | after | expected | named by | case | wall s |\n|---|---|---|---|---|---|");
    for variant in VARIANTS.iter().filter(is_asked) {
        let found = find(variant);
        let (by, case, wall) = found.map_or_else(
            || ("nobody".to_owned(), String::new(), String::new()),
            |found| (found.by, found.case, format!("{:.0}", found.wall.as_secs_f64())),
        );
        println!(
            "| {} | {} | {} | {by} | {case} | {wall} |",
            variant.name,
            variant.class,
            expected(variant.finder)
        );
        if by == "nobody" {
            unnamed.push(variant.name);
        }
    }
    assert!(unnamed.len() <= MOST_UNNAMED, "named by nobody: {unnamed:#?}");
}
