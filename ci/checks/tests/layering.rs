//! Who may import whom inside the project. One direction, no exceptions: docs/ARCHITECTURE.md draws the same picture.

use std::collections::{BTreeMap, BTreeSet};

use niclab_checks::packages;

/// Package, and the project's packages that it may depend on. Tests and build scripts count as well.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("niclab-abi", &[]),
    ("niclab-abi-header", &["niclab-abi"]),
    ("niclab-isa", &[]),
    // Where programs write; any program may.
    ("niclab-output", &[]),
    ("niclab-source", &[]),
    ("niclab-asm", &["niclab-isa", "niclab-source"]),
    ("niclab-stitcher", &["niclab-components", "niclab-source"]),
    ("niclab-components", &[]),
    ("niclab-random", &[]),
    // Figure 1 in C, for the model's tests alone.
    ("niclab-figure1", &[]),
    ("niclab-model", &["niclab-abi", "niclab-components", "niclab-figure1", "niclab-isa", "niclab-random"]),
    // For the registry of models: their names, parameters and limits; the form of recordings; what programs are told.
    ("niclab-spec", &["niclab-abi", "niclab-model", "niclab-observe", "niclab-workloads"]),
    ("niclab-observe", &["niclab-abi", "niclab-model"]),
    // The machines of a comparison, no part of any NIC, and the match unit beside them.
    ("niclab-processors", &["niclab-harness", "niclab-isa", "niclab-model", "niclab-output"]),
    // Runs programs of the match unit; what it prints of them the assembler knows.
    (
        "niclab-matching",
        &["niclab-asm", "niclab-harness", "niclab-isa", "niclab-model", "niclab-output", "niclab-source"],
    ),
    ("niclab-assembly", &["niclab-abi", "niclab-model", "niclab-spec"]),
    // Its hosts run the code that guests run.
    (
        "niclab-sim",
        &[
            "niclab-abi",
            "niclab-assembly",
            "niclab-harness",
            "niclab-model",
            "niclab-observe",
            "niclab-output",
            "niclab-port",
            "niclab-spec",
            "niclab-workloads",
        ],
    ),
    (
        "niclab-device",
        &[
            "niclab-abi",
            "niclab-assembly",
            "niclab-harness",
            "niclab-model",
            "niclab-observe",
            "niclab-output",
            "niclab-port",
            "niclab-spec",
            "niclab-workloads",
        ],
    ),
    // The host's half of a port, wherever that host is.
    ("niclab-port", &["niclab-abi"]),
    // What programs do, over that, in guests and in the simulator.
    ("niclab-workloads", &["niclab-abi", "niclab-port", "niclab-random"]),
    ("niclab-user", &["niclab-abi", "niclab-port"]),
    ("niclab-tools", &["niclab-abi", "niclab-harness", "niclab-output", "niclab-user", "niclab-workloads"]),
    ("niclab-agent", &[]),
    ("niclab-images", &[]),
    ("niclab-cluster", &["niclab-agent", "niclab-images", "niclab-output", "niclab-random", "niclab-spec"]),
    (
        "niclab-bench",
        &["niclab-cluster", "niclab-components", "niclab-images", "niclab-output", "niclab-spec"],
    ),
    (
        "niclab-cli",
        &[
            "niclab-agent",
            "niclab-asm",
            "niclab-bench",
            "niclab-cluster",
            "niclab-harness",
            "niclab-images",
            "niclab-isa",
            "niclab-output",
            "niclab-source",
            "niclab-spec",
            "niclab-stitcher",
        ],
    ),
    ("niclab-checks", &[]),
    ("niclab-runner", &[]),
    // Runs the command and knows nothing of what is inside: for tests alone.
    ("niclab-harness", &[]),
    // The tests sit on top of everything.
    (
        "niclab-tests",
        &[
            "niclab-abi",
            "niclab-harness",
            "niclab-model",
            "niclab-observe",
            "niclab-device",
            "niclab-port",
            "niclab-sim",
            "niclab-workloads",
            "niclab-spec",
            "niclab-tools",
            "niclab-user",
            "niclab-agent",
            "niclab-images",
        ],
    ),
    (
        "niclab-fuzz",
        &[
            "niclab-abi",
            "niclab-components",
            "niclab-model",
            "niclab-device",
            "niclab-spec",
            "niclab-user",
            "niclab-agent",
        ],
    ),
];

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
