//! The imports that packages of the project may have. They go in one direction, without exceptions;
//! docs/ARCHITECTURE.md shows the same table.

use std::collections::{BTreeMap, BTreeSet};

use niclab_checks::packages;

/// A package, and the project's packages that it may depend on, also in tests and build scripts.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("niclab-abi", &[]),
    ("niclab-abi-header", &["niclab-abi"]),
    ("niclab-isa", &[]),
    // The output of programs; any program may use it.
    ("niclab-output", &[]),
    ("niclab-source", &[]),
    ("niclab-asm", &["niclab-isa", "niclab-source"]),
    ("niclab-stitcher", &["niclab-components", "niclab-source"]),
    ("niclab-components", &[]),
    ("niclab-random", &[]),
    // Figure 1 in C; only the model's tests use it.
    ("niclab-figure1", &[]),
    ("niclab-model", &["niclab-abi", "niclab-components", "niclab-figure1", "niclab-isa", "niclab-random"]),
    // For the registry of models (names, parameters and limits), the form of recordings, and the workloads of guests.
    ("niclab-spec", &["niclab-abi", "niclab-model", "niclab-observe", "niclab-workloads"]),
    ("niclab-observe", &["niclab-abi", "niclab-model"]),
    // Processors that it compares with the match unit; they are no part of a NIC.
    ("niclab-processors", &["niclab-harness", "niclab-isa", "niclab-model", "niclab-output"]),
    // Runs programs of the match unit; prints them with the assembler.
    (
        "niclab-matching",
        &["niclab-asm", "niclab-harness", "niclab-isa", "niclab-model", "niclab-output", "niclab-source"],
    ),
    ("niclab-assembly", &["niclab-abi", "niclab-model", "niclab-spec"]),
    // The simulated hosts run the same code as guests.
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
    // The host's half of a port, in guests and in simulated hosts.
    ("niclab-port", &["niclab-abi"]),
    // The workloads of programs over a port, in guests and in the simulator.
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
    // Runs the command as a user does; only for tests.
    ("niclab-harness", &[]),
    // The tests may import all layers.
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
            violations.push(format!(
                "{} has no line in MAY_IMPORT: decide which packages it may import",
                package.name
            ));
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
