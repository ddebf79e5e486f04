//! Each driver with a bug (`table.rs`) is put to the test by one default run of `niclab conform`, as are those without: a table says
//! who named which bug. Half an hour, in guests: `niclab kernel build`, then
//! `cargo test -p niclab-tests --features drivers --test drivers -- --nocapture`; with `NICLAB_DRIVERS` only those whose names contain it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod table;

use std::{
    env, fs,
    time::{Duration, Instant},
};

use niclab_tests::{Niclab, compile};
use serde_json::Value;
use table::{Driver, Finder, VARIANTS, Variant};

/// So many bugs may be named by nobody.
const MOST_UNNAMED: usize = 2;

/// Longest messages of the example drivers.
fn most_bytes(driver: Driver) -> &'static str {
    if driver == Driver::Gamma { "1024" } else { "64" }
}

/// The command line of a default run.
fn conform(driver: Driver, folder: &str) -> Vec<String> {
    let mut words =
        ["conform", "--json", "--nic", driver.nic(), "--driver", folder].map(str::to_owned).to_vec();
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

/// The first verdict by which a bug is named: by a rule, a kernel that watches, or by a seed of an unkind device where a kind one was
/// fine.
fn named(cases: &[Value]) -> Option<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let is_plain_fine = cases.iter().any(|case| case["case"] == "plain" && case["passed"] == true);
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
        (case["case"] == "unkind" && is_plain_fine && !names.is_empty())
            .then(|| ("seed of an unkind device".to_owned(), label))
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
    let outcome = niclab.run(conform(variant.driver, &folder.display().to_string()));
    let conformance = outcome.json();
    let (by, case) = named(conformance["cases"].as_array().unwrap())?;
    Some(Found { by, case, wall: begin.elapsed() })
}

fn expected(finder: Finder) -> String {
    match finder {
        Finder::Rule(rule) => format!("rule {rule}"),
        Finder::Kernel(what) => format!("kernel: {what}"),
        Finder::Nobody(why) => format!("nobody: {why}"),
    }
}

#[test]
fn drivers_without_a_bug_pass_everything() {
    for driver in [Driver::Ultra, Driver::Gamma, Driver::Ours] {
        let niclab = Niclab::new();
        put_messages(&niclab);
        let folder = driver.folder().canonicalize().unwrap();
        let outcome = niclab.run(conform(driver, &folder.display().to_string()));
        assert_eq!(outcome.code(), 0, "{driver:?}: {outcome}");
    }
}

#[test]
fn drivers_with_a_bug_are_told_which() {
    let only = env::var("NICLAB_DRIVERS").unwrap_or_default();
    let mut unnamed = Vec::new();
    println!("| bug | after | expected | named by | case | wall s |\n|---|---|---|---|---|---|");
    for variant in VARIANTS.iter().filter(|variant| variant.name.contains(&only)) {
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
