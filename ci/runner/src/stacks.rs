//! Where processes stand: what the kernel says of each thread, and the calls of each, if there is a gdb.

use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::tree::Process;

/// A hung process must not hang those who look at it.
const LOOK_LIMIT: Duration = Duration::from_secs(120);

/// Processes whose calls are shown; a step may have started hundreds.
const MAX_PROCESSES: usize = 12;

/// Calls of a thread that are shown.
const MAX_CALLS: &str = "60";

/// What all of these do.
#[must_use]
pub fn told(tree: &[Process]) -> String {
    let mut text = String::new();
    for process in tree {
        // Writing into a string does not fail.
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

/// The calls of each thread, or why they are not there.
fn calls(tree: &[Process]) -> String {
    let mut text = String::new();
    for process in tree.iter().take(MAX_PROCESSES) {
        let mut gdb = Command::new("gdb");
        let id = process.id.to_string();
        gdb.args(["--nx", "--batch", "-ex", "set pagination off", "-ex", "set debuginfod enabled off"]);
        gdb.args(["-ex", &format!("thread apply all backtrace {MAX_CALLS}"), "--pid", &id]);
        match output(&mut gdb, LOOK_LIMIT) {
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
                return text + "no calls: they need gdb, which is not installed (package gdb)\n";
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

/// What a command prints, both streams, if it ends within the time.
///
/// # Errors
/// When it cannot be started or takes too long; then it was killed.
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
        // What was read before an error is shown.
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
        let said = output(Command::new("sh").args(["-c", "echo a; echo b >&2"]), LOOK_LIMIT).expect("quick");
        assert_eq!(said, "a\nb\n");
    }
}
