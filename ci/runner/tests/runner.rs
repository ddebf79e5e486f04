//! The runner on tests that hang, die and leave processes. The tests are fixtures in this file, which other runs
//! ignore.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Where a fixture notes the processes that it started.
const NOTES: &str = "NICLAB_RUNNER_NOTES";

/// Long, because a busy machine is slow. Only a test that hangs takes this long.
const LIMIT: Duration = Duration::from_secs(120);

fn runner(arguments: &[&str], notes: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_niclab-runner"));
    command.args(arguments).env(NOTES, notes).env_remove("RUST_TEST_THREADS").stdin(Stdio::null());
    command
}

/// The arguments that run fixtures of this file under limits.
fn fixtures<'a>(limits: &[&'a str], names: &[&'a str], own: &'a str) -> Vec<&'a str> {
    [&["tests"], limits, &["--", own, "--ignored", "--exact", "--quiet", "--test-threads=2"], names].concat()
}

fn own() -> String {
    std::env::current_exe().unwrap().to_str().unwrap().to_owned()
}

fn run(limits: &[&str], names: &[&str]) -> (Option<i32>, String, Vec<Pid>) {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let own = own();
    let Output { status, stdout, stderr } =
        runner(&fixtures(limits, names, &own), notes.path()).output().unwrap();
    let said = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    (status.code(), said, noted(notes.path()))
}

fn noted(notes: &Path) -> Vec<Pid> {
    let notes = fs::read_to_string(notes).unwrap();
    notes.lines().map(|line| Pid::from_raw(line.parse().unwrap()).unwrap()).collect()
}

/// Whether the process exists and is no zombie.
fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    test_kill_process(pid).is_ok() && !stat.contains(") Z ")
}

/// Short, but long enough for a fixture's start.
const BLOCKED: &[&str] = &["--blocked", "8"];

#[test]
fn a_hung_test_is_named_with_its_stack_and_ended() {
    let names = ["fixture_passes", "fixture_that_waits_forever", "fixture_fails"];
    let (code, said, children) = run(BLOCKED, &names);
    assert_eq!(code, Some(124), "{said}");
    assert!(said.contains("hangs: blocked for"), "{said}");
    assert!(said.contains("\ntest fixture_that_waits_forever ... HANGS\n"), "{said}");
    assert!(said.contains("test fixture_fails ... FAILED") && !said.contains("fixture_passes ..."), "{said}");
    assert!(said.contains("\ntest result: FAILED. 1 passed; 2 failed; 0 ignored;"), "{said}");
    // The kernel's report needs no gdb.
    assert!(said.contains("`fixture_that_wa`: sleeping"), "{said}");
    // Some containers refuse gdb, which the runner then reports.
    let is_gdb_there = Command::new("gdb").arg("--version").output().is_ok();
    let parts: &[&str] =
        if is_gdb_there { &["wait_forever ()", "no calls of process"] } else { &["package gdb"] };
    assert!(parts.iter().any(|part| said.contains(part)), "{said}");
    assert_eq!(children.len(), 2, "one of them in its own session");
    assert!(!children.iter().any(|child| is_alive(*child)), "{said}");
}

#[test]
fn a_looping_test_is_named_also_without_gdb() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let own = own();
    let line = fixtures(&["--processor", "4"], &["fixture_that_loops_forever"], &own);
    let output = runner(&line, notes.path()).env("PATH", "/nowhere").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(124), "{said}");
    assert!(said.contains("hangs: busy for") && said.contains("loops_forever ... HANGS"), "{said}");
    assert!(said.contains("`fixture_that_lo`: running") && said.contains("package gdb"), "{said}");
}

#[test]
fn a_test_that_dies_is_counted_and_named() {
    let (code, said, _) = run(BLOCKED, &["fixture_passes", "fixture_that_aborts"]);
    assert_eq!(code, Some(134), "{said}");
    assert!(said.contains("ended with code 134 before all of its tests had"), "{said}");
    assert!(said.contains("test fixture_that_aborts ... DIED"), "{said}");
    assert!(said.contains(" 1 failed; 0 ignored;"), "{said}");
}

#[test]
fn processes_left_by_a_test_are_reported_and_ended() {
    let (code, said, children) = run(BLOCKED, &["fixture_that_leaves_a_child"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("left process") && said.contains("sleep 1000"), "{said}");
    assert!(said.contains("\ntest result: ok. 1 passed; 0 failed;"), "{said}");
    assert_eq!(said.matches("test result:").count(), 1, "{said}");
    assert!(children.len() == 1 && !is_alive(children[0]), "{said}");
}

#[test]
fn other_programs_run_unchanged() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let output = runner(&["tests", "--", "sh", "-c", "echo out; exit 7"], notes.path()).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(7), &b"out\n"[..]));
    let output = runner(&["tests", "--", "/nowhere/at/all"], notes.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere/at/all"));
}

#[test]
fn a_step_that_hangs_is_named_and_counted() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let line = ["step", "lint", "--blocked", "8", "--", "sh", "-c", "echo begun; sleep 1000"];
    let output = runner(&line, notes.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(124), "{said}");
    assert!(said.starts_with("begun\n") && said.contains("step \"lint\" hangs: blocked"), "{said}");
    assert!(said.contains("child of") && said.contains("sleep 1000"), "{said}");
    assert!(said.contains("\ntest result: FAILED. 0 passed; 1 failed;"), "{said}");
}

/// Starts a runner with a fixture that sleeps. Returns the runner and the fixture's children.
fn sleeping(notes: &Path) -> (Child, Vec<Pid>) {
    let own = own();
    let line = fixtures(&[], &["fixture_that_waits_forever"], &own);
    let mut command = runner(&line, notes);
    let mut child = command.stdout(Stdio::piped()).process_group(0).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("running")), "it begins");
    until("the fixture has its children", || noted(notes).len() == 2);
    (child, noted(notes))
}

/// Waits for the condition, and fails the test after `LIMIT`.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "never: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn an_interrupt_leaves_no_process() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let notes = tempfile::NamedTempFile::new().unwrap();
        let (mut runner, children) = sleeping(notes.path());
        kill_process(Pid::from_child(&runner), signal).unwrap();
        let status = runner.wait().unwrap();
        let ended_by = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(ended_by, Some(signal.as_raw()), "{status}");
        assert!(!children.iter().any(|child| is_alive(*child)));
    }
}

#[test]
fn a_runner_whose_owner_is_killed_ends_its_processes() {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let own = own();
    let line = fixtures(&[], &["fixture_that_waits_forever"], &own);
    let mut shell = Command::new("sh");
    // `; true` makes the shell wait for the runner instead of replacing itself with it.
    shell
        .args(["-c", "\"$@\"; true", "sh", env!("CARGO_BIN_EXE_niclab-runner")])
        .args(line)
        .env(NOTES, notes.path());
    let mut shell = shell.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = shell.stdout.take().unwrap();
    until("the fixture has its children", || noted(notes.path()).len() == 2);
    shell.kill().unwrap();
    shell.wait().unwrap();
    // Ends when no process holds the pipe.
    let mut said = String::new();
    stdout.read_to_string(&mut said).unwrap();
    let children = noted(notes.path());
    until("its children are gone", || !children.iter().any(|child| is_alive(*child)));
}

#[test]
#[ignore = "a fixture"]
fn fixture_passes() {}

#[test]
#[ignore = "a fixture"]
fn fixture_fails() {
    panic!("as it should");
}

#[test]
#[ignore = "a fixture"]
fn fixture_that_waits_forever() {
    note(&[start("sleep", false), start("sleep", true)]);
    wait_forever();
}

/// A function that the test finds in the stack.
#[inline(never)]
fn wait_forever() {
    let (mutex, never) = (Mutex::new(()), Condvar::new());
    drop(never.wait_while(mutex.lock().unwrap(), |()| true).unwrap());
}

#[test]
#[ignore = "a fixture"]
fn fixture_that_loops_forever() {
    loop {
        std::hint::spin_loop();
    }
}

#[test]
#[ignore = "a fixture"]
fn fixture_that_aborts() {
    std::process::abort();
}

#[test]
#[ignore = "a fixture"]
fn fixture_that_leaves_a_child() {
    note(&[start("sleep", true)]);
}

/// Starts a process that sleeps for much longer than the test; with `is_apart`, in its own session.
fn start(program: &str, is_apart: bool) -> Child {
    let mut command = if is_apart { Command::new("setsid") } else { Command::new(program) };
    if is_apart {
        command.arg(program);
    }
    command.arg("1000").stdin(Stdio::null()).spawn().unwrap()
}

fn note(children: &[Child]) {
    if let Some(path) = std::env::var_os(NOTES) {
        let lines: Vec<String> = children.iter().map(|child| format!("{}\n", child.id())).collect();
        fs::write(path, lines.concat()).unwrap();
    }
}
