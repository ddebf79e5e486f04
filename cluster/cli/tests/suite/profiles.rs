//! `niclab profile` from the command line.

use std::{fs, path::Path};

use crate::support::niclab;

#[test]
fn profile_given_by_path_is_used_or_refused_with_line_and_fix() {
    let niclab = niclab();
    let path = |name: &str| niclab.folder().join(name).display().to_string();
    let (good, bad) = (path("good.toml"), path("bad.toml"));
    let bundled = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/pcie4-100g.toml");
    let valid = fs::read_to_string(bundled).unwrap().replacen("pcie4-100g", "mine", 1);
    fs::write(&good, &valid).unwrap();
    fs::write(&bad, valid.replacen("clock_ps = { value = 4000", "clock_ps = { value = -4000", 1)).unwrap();

    let accepted = niclab.run(["profile", "check", &good, "htx-200mhz", "ultra-200mhz-htx"]);
    assert!(accepted.status.success(), "{}", accepted.stderr);
    let numbers = valid.matches("{ value = ").count();
    assert!(accepted.stdout.contains(&format!("`mine`, {numbers} numbers")), "{}", accepted.stdout);

    let refused = niclab.run(["profile", "check", &bad, &good]);
    assert_eq!(refused.code(), 1);
    assert!(refused.stdout.contains("`mine`"), "the valid profile is checked, too");
    let line = valid.lines().position(|line| line.starts_with("clock_ps")).unwrap() + 1;
    let message = refused.stderr;
    assert!(message.contains(&format!("bad.toml:{line}:")) && message.contains("fix: "), "{message}");

    let shown = niclab.run(["profile", "show", &good, "--json"]);
    let json = shown.json();
    assert_eq!(json["ni"]["clock_ps"]["value"], 4000);

    let cluster = path("c.toml");
    fs::write(&cluster, "profile = \"bad.toml\"\n").unwrap();
    let plan = niclab.run(["plan", "--offline", "--cluster", &cluster]);
    assert!(!plan.status.success());
    assert!(plan.stderr.contains(&format!("bad.toml:{line}:")), "{}", plan.stderr);
}

#[test]
fn list_counts_fitted_and_assumed_values() {
    let listed = niclab().run(["profile", "list", "--json"]);
    let json = listed.json();
    let names: Vec<_> =
        json.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    let expected = [
        "fast-ethernet-p133",
        "fast-ethernet-pii350",
        "htx-200mhz",
        "i960-32-33",
        "lanai4-pci",
        "match-500mhz",
        "pci-32-33",
        "pci-64-66",
        "pcie4-100g",
        "fast-ethernet-3c595-p133",
        "fast-ethernet-3c595-pii350",
        "fast-ethernet-3c905-pii300",
        "htx-200mhz-fitted",
        "htx-asic-600mhz",
        "htx-asic-1ghz",
        "match-150mhz",
        "match-750mhz",
    ];
    assert_eq!(names, expected);
    let count = |entry: &serde_json::Value, key: &str| entry[key].as_u64().unwrap();
    for entry in json.as_array().unwrap() {
        let unsourced = count(entry, "fitted") + count(entry, "assumed");
        assert!(count(entry, "numbers") > unsourced && unsourced > 0, "{entry}");
        // These profiles have no published numbers that a value could be fitted to.
        let has_fitted_values = !["match-500mhz", "match-150mhz", "match-750mhz", "pcie4-100g"]
            .contains(&entry["name"].as_str().unwrap());
        assert_eq!(count(entry, "fitted") > 0, has_fitted_values, "{entry}");
    }
}
