//! Who may import whom inside the project. One direction, no exceptions: docs/ARCHITECTURE.md draws the same picture.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde::Deserialize;

/// Package, and the project's packages that it may depend on. Tests and build scripts count as well.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("niclab-abi", &[]),
    ("niclab-abi-header", &["niclab-abi"]),
    ("niclab-isa", &[]),
    ("niclab-asm", &["niclab-isa"]),
    ("niclab-model", &["niclab-abi", "niclab-isa"]),
    ("niclab-spec", &[]),
    ("niclab-observe", &["niclab-model"]),
    // The machines of a comparison, no part of any NIC, and the match unit beside them.
    ("niclab-processors", &["niclab-isa", "niclab-model"]),
    // Runs programs of the match unit; what it prints of them the assembler knows.
    ("niclab-matching", &["niclab-asm", "niclab-isa", "niclab-model"]),
    ("niclab-assembly", &["niclab-abi", "niclab-model", "niclab-spec"]),
    ("niclab-sim", &["niclab-abi", "niclab-assembly", "niclab-model", "niclab-observe", "niclab-spec"]),
    (
        "niclab-device",
        &["niclab-abi", "niclab-assembly", "niclab-model", "niclab-observe", "niclab-spec", "niclab-user"],
    ),
    ("niclab-user", &["niclab-abi"]),
    ("niclab-tools", &["niclab-abi", "niclab-user"]),
    ("niclab-agent", &[]),
    ("niclab-images", &[]),
    ("niclab-cluster", &["niclab-spec", "niclab-images", "niclab-agent", "niclab-asm", "niclab-isa"]),
    ("niclab-checks", &[]),
    ("niclab-runner", &[]),
    // The tests sit on top of everything.
    (
        "niclab-tests",
        &[
            "niclab-abi",
            "niclab-model",
            "niclab-observe",
            "niclab-device",
            "niclab-sim",
            "niclab-spec",
            "niclab-user",
            "niclab-agent",
            "niclab-images",
            "niclab-cluster",
        ],
    ),
    (
        "niclab-fuzz",
        &["niclab-abi", "niclab-model", "niclab-device", "niclab-spec", "niclab-user", "niclab-agent"],
    ),
];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    path: Option<String>,
}

fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(niclab_checks::repository())
        .output()
        .expect("cargo metadata starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice::<Metadata>(&output.stdout).expect("cargo's metadata").packages
}

#[test]
fn imports_go_one_way() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        MAY_IMPORT.iter().map(|(name, imports)| (*name, imports.iter().copied().collect())).collect();
    let mut violations = Vec::new();
    for package in packages() {
        let Some(may) = allowed.get(package.name.as_str()) else {
            violations.push(format!("{} has no line in MAY_IMPORT: decide where it stands", package.name));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|dependency| dependency.path.is_some()) {
            if !may.contains(dependency.name.as_str()) {
                violations.push(format!("{} must not import {}", package.name, dependency.name));
            }
        }
    }
    assert!(violations.is_empty(), "layering:\n  {}", violations.join("\n  "));
}

#[test]
fn the_contract_and_the_agent_protocol_stay_light() {
    for package in packages() {
        if package.name == "niclab-abi" {
            assert!(package.dependencies.is_empty(), "niclab-abi depends on nothing at all");
        }
    }
}
