//! The state of processes: what the kernel reports of each thread, and the calls of each thread if gdb is installed.

use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::tree::Process;

/// Limits gdb, so that a hung process does not hang the runner.
const GDB_LIMIT: Duration = Duration::from_secs(120);

/// The maximum number of processes whose calls are shown. A step may start hundreds.
const MAX_PROCESSES: usize = 12;

/// The maximum number of calls that are shown for a thread.
const MAX_CALLS: &str = "60";

/// The state of each process and thread, as text.
#[must_use]
pub fn told(tree: &[Process]) -> String {
    let mut text = String::new();
    for process in tree {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "process {}, child of {}, {:.1} s of processor time: {}",
            process.id,
            process.parent,
            process.processor.as_secs_f64(),
            process.command_line()
        );
        for thread in process.threads() {
            let place = fs::read_to_string(format!("/proc/{}/task/{}/wchan", process.id, thread.id));
            let place = place
                .ok()
                .filter(|place| place != "0")
                .map_or_else(String::new, |place| format!(" in {place}"));
            let _ = writeln!(text, "  thread {} `{}`: {}{place}", thread.id, thread.name, word(thread.state));
        }
    }
    text += &calls(tree);
    text
}

/// The calls of each thread, or the reason why they are missing.
fn calls(tree: &[Process]) -> String {
    let mut text = String::new();
    for process in tree.iter().take(MAX_PROCESSES) {
        let mut gdb = Command::new("gdb");
        let id = process.id.to_string();
        gdb.args(["--nx", "--batch", "-ex", "set pagination off", "-ex", "set debuginfod enabled off"]);
        gdb.args(["-ex", &format!("thread apply all backtrace {MAX_CALLS}"), "--pid", &id]);
        match output(&mut gdb, GDB_LIMIT) {
            Ok(stacks) if stacks.contains("\n#0") => {
                let _ = writeln!(text, "\ncalls of process {id}, {}:", process.name);
                for line in stacks.lines().filter(|line| is_of_a_stack(line)) {
                    let _ = writeln!(text, "  {line}");
                }
            }
            Ok(refusal) => {
                let _ = writeln!(
                    text,
                    "no calls of process {id}: {}",
                    refusal.lines().last().unwrap_or_default()
                );
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return text + "no calls: gdb is not installed (package gdb)\n";
            }
            Err(error) => {
                let _ = writeln!(text, "no calls of process {id}: gdb: {error}");
            }
        }
    }
    if tree.len() > MAX_PROCESSES {
        let _ = writeln!(text, "and {} more processes", tree.len() - MAX_PROCESSES);
    }
    text
}

fn is_of_a_stack(line: &str) -> bool {
    line.starts_with(['#', ' ']) || line.starts_with("Thread ")
}

const fn word(state: char) -> &'static str {
    match state {
        'R' => "running",
        'S' => "sleeping",
        'D' => "waiting for a device",
        'T' | 't' => "stopped",
        'Z' | 'X' => "ended",
        _ => "idle",
    }
}

/// The output of a command, both streams, if it ends within the limit.
///
/// If the command does not start, or takes too long. Then it is killed.
pub fn output(command: &mut Command, limit: Duration) -> std::io::Result<String> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let readers = [child.stdout.take().map(collect), child.stderr.take().map(collect)];
    let begin = Instant::now();
    while child.try_wait()?.is_none() {
        if begin.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Err(std::io::Error::other(format!("no answer in {} s", limit.as_secs())));
        }
        thread::sleep(Duration::from_millis(20));
    }
    let read = readers.into_iter().flatten().map(|reader| reader.join().unwrap_or_default());
    Ok(read.collect())
}

fn collect(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // After an error, the text read before it is still shown.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_takes_too_long_is_killed() {
        let error =
            output(Command::new("sleep").arg("1000"), Duration::from_millis(50)).expect_err("too long");
        assert!(error.to_string().contains("no answer"), "{error}");
        let said = output(Command::new("sh").args(["-c", "echo a; echo b >&2"]), GDB_LIMIT).expect("quick");
        assert_eq!(said, "a\nb\n");
    }
}
