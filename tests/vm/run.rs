//! `niclab run`: programs on every node.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use niclab_harness::Niclab;

#[test]
fn every_node_runs_the_command_with_its_rank_and_name() {
    let niclab = Niclab::new();
    let script = r#"echo "$NICLAB_RANK of $NICLAB_SIZE is $NICLAB_NODE at $(hostname), peers $NICLAB_PEERS""#;
    let outcome = niclab.run(["run", "--nodes", "3", "--", "sh", "-c", script]).success();
    for rank in 0..3 {
        let line = format!("node{rank} | {rank} of 3 is node{rank} at node{rank}, peers ");
        assert!(outcome.stdout.contains(&line), "the line {line:?} is missing\n{outcome}");
    }
}

#[test]
fn run_exits_with_the_first_nonzero_exit_code() {
    let niclab = Niclab::new();
    let outcome = niclab.run(["run", "--", "sh", "-c", "exit $((NICLAB_RANK * 7))"]);
    assert_eq!(outcome.code(), 7, "{outcome}");
}

#[test]
fn programs_in_the_current_folder_run_on_every_node() {
    let niclab = Niclab::new();
    let program = niclab.folder().join("my-program");
    fs::write(&program, "#!/bin/sh\necho \"arguments: $*\"\necho written > from-$NICLAB_NODE\n")
        .expect("a program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("an executable program");
    let outcome = niclab.run(["run", "--", "./my-program", "one", "two words"]).success();
    assert!(outcome.stdout.contains("node1 | arguments: one two words\n"), "{outcome}");
    for node in ["node0", "node1"] {
        let written = fs::read_to_string(niclab.folder().join(format!("from-{node}")));
        assert_eq!(
            written.ok().as_deref(),
            Some("written\n"),
            "{node} wrote to the current folder\n{outcome}"
        );
    }
}

#[test]
fn a_program_linked_against_the_hosts_libraries_runs() {
    let niclab = Niclab::new();
    fs::write(
        niclab.folder().join("hello.c"),
        "#include <stdio.h>\nint main(void) { return puts(\"hello\") < 0; }\n",
    )
    .expect("a source");
    let compiled = std::process::Command::new("cc")
        .args(["-o", "hello", "hello.c"])
        .current_dir(niclab.folder())
        .status()
        .expect("cc starts");
    assert!(compiled.success());
    let outcome = niclab.run(["run", "--", "./hello"]).success();
    assert!(
        outcome.stdout.contains("node0 | hello\n") && outcome.stdout.contains("node1 | hello\n"),
        "{outcome}"
    );
}

#[test]
fn all_pairs_reach_each_other_over_ip() {
    let niclab = Niclab::new();
    let script =
        "for peer in $(echo $NICLAB_PEERS | tr , ' '); do ping -q -c 2 -i 0.2 -W 5 $peer || exit 1; done";
    let outcome = niclab.run(["run", "--nodes", "3", "--", "sh", "-c", script]).success();
    assert!(outcome.stdout.matches(" 0% packet loss").count() >= 6, "{outcome}");
}

#[test]
fn run_and_down_leave_no_processes_or_files() {
    let niclab = Niclab::new();
    niclab.run(["run", "--", "true"]).success();
    let left = niclab.processes();
    assert!(left.is_empty(), "processes: {left:#?}");
    assert!(niclab.runtime().is_dir(), "the cluster used another runtime folder");
    let files: Vec<_> = walk(&niclab.runtime());
    assert!(files.is_empty(), "files: {files:#?}");
}

/// Files (not folders) under `folder`.
fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files.extend(walk(&entry.path()));
        } else {
            files.push(entry.path());
        }
    }
    files
}
