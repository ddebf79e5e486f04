//! `ci/test` itself, with a shell script in place of cargo.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};
use tempfile::TempDir;

/// `ci/test quick`, in its own process group. Its cargo is this shell script.
fn gate(cargo: &str) -> (TempDir, Command) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("target/debug")).unwrap();
    symlink(env!("CARGO_BIN_EXE_niclab-runner"), at("target/debug/niclab-runner")).unwrap();
    fs::create_dir(at("bin")).unwrap();
    let script = format!("#!/bin/sh\ncase \"$*\" in *niclab-runner) exit 0 ;; esac\n{cargo}\n");
    // Another process writes the script. A test's child may still hold a file of this process open for writing, and the
    // kernel refuses to run such a file.
    let write = "printf '%s' \"$1\" >\"$2\" && chmod 755 \"$2\"";
    let status = Command::new("sh").args(["-c", write, "sh", &script]).arg(at("bin/cargo")).status().unwrap();
    assert!(status.success());
    let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../test"));
    command.arg("quick").env("PATH", path).env("CARGO_TARGET_DIR", at("target")).env("NOTES", at("notes"));
    // Files that a killed script leaves are removed with the folder.
    command.env("TMPDIR", folder.path()).process_group(0).stdin(Stdio::null());
    (folder, command)
}

/// The closing line of a test harness.
fn closing(passed: u32, failed: u32) -> String {
    format!(
        "echo 'test result: ok. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out'\n"
    )
}

#[test]
fn a_step_without_a_harness_counts_as_one_test() {
    let two = closing(3, 0) + &closing(4, 0);
    for (cargo, end, code) in [
        (format!("case \"$*\" in *\" test \"*) {two} ;; esac"), "11 passed, 0 failed", 0),
        (format!("case \"$*\" in *\" test \"*) {two} exit 1 ;; esac"), "11 passed, 1 failed", 1),
        (
            format!("case \"$*\" in *\" test \"*) {two} {} exit 1 ;; clippy*) exit 1 ;; esac", closing(1, 2)),
            "11 passed, 3 failed",
            1,
        ),
    ] {
        let (_folder, mut gate) = gate(&cargo);
        let output = gate.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.lines().last(), Some(end), "{cargo}\n{said}");
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_eq!(said.contains("\nfailed: lint\n"), end.contains("3 failed"), "{said}");
    }
}

/// Each test binary runs under the runner: cargo's options name it.
#[test]
fn tests_are_watched() {
    let (_folder, mut gate) = gate("echo \"cargo: $*\"");
    let said = String::from_utf8(gate.output().unwrap().stdout).unwrap();
    let line = said.lines().find(|line| line.contains(" test --workspace")).unwrap();
    assert!(
        line.contains("--config target.'cfg(all())'.runner = ['/")
            && line.contains("/debug/niclab-runner', 'tests', '--']"),
        "{line}"
    );
}

#[test]
fn no_step_runs_after_an_interrupt() {
    let whole = |pid| kill_process_group(pid, Signal::INT);
    let shell = |pid| kill_process(pid, Signal::TERM);
    let killed = |pid| kill_process(pid, Signal::KILL);
    let ways: [(&dyn Fn(Pid) -> rustix::io::Result<()>, _); 3] =
        [(&whole, Signal::INT), (&shell, Signal::TERM), (&killed, Signal::KILL)];
    for (end, signal) in ways {
        let (folder, mut gate) = gate("echo $$ >>\"$NOTES\"; exec sleep 1000");
        let mut gate = gate.stdout(Stdio::null()).spawn().unwrap();
        let notes = folder.path().join("notes");
        let began = std::time::Instant::now();
        while fs::read_to_string(&notes).unwrap_or_default().is_empty() {
            assert!(began.elapsed().as_secs() < 120, "its first step never began");
            std::thread::yield_now();
        }
        end(Pid::from_child(&gate)).unwrap();
        let status = gate.wait().unwrap();
        // A shell that is interrupted while it waits dies of the signal. If its child died first, it exits with the
        // signal's code.
        let signal = signal.as_raw();
        assert!(
            status.signal() == Some(signal) || status.code() == Some(128 + signal),
            "{status} after signal {signal}"
        );
        let notes = fs::read_to_string(&notes).unwrap();
        let step = Pid::from_raw(notes.trim().parse().expect("one step, and no other")).unwrap();
        while test_kill_process(step).is_ok() {
            assert!(began.elapsed().as_secs() < 120, "the step still runs");
            std::thread::yield_now();
        }
    }
}
