//! The descendants of this process, read from `/proc`.
//!
//! This process adopts orphans ([`adopt`]), so every process started below it stays its descendant, in any session or
//! process group.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};

/// The time between two checks whether processes have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// For how long processes are killed again. A process that remains after this time is stuck in the kernel.
const KILL_LIMIT: Duration = Duration::from_secs(20);

/// A process, or one of its threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub id: i32,
    /// Its parent's number.
    pub parent: i32,
    /// Its name, cut by the kernel to 15 bytes.
    pub name: String,
    /// Running, sleeping and so on, as in proc_pid_stat(5).
    pub state: char,
    /// Processor time of the process, and of children whose status it took.
    pub processor: Duration,
    /// The children's share of `processor`.
    children: Duration,
}

impl Process {
    /// Whether it has ended and its parent has not taken its status.
    #[must_use]
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// The command line, or the name if there is none.
    #[must_use]
    pub fn command_line(&self) -> String {
        let words = fs::read(format!("/proc/{}/cmdline", self.id)).unwrap_or_default();
        let words: Vec<_> = words.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let line = words.join(" ").trim().to_owned();
        if line.is_empty() { self.name.clone() } else { line }
    }

    /// Its threads.
    #[must_use]
    pub fn threads(&self) -> Vec<Self> {
        numbers(&format!("/proc/{}/task", self.id))
            .filter_map(|thread| read(&format!("/proc/{}/task/{thread}/stat", self.id)))
            .collect()
    }
}

/// Makes this process the parent of every orphan below it.
///
/// If the kernel refuses.
pub fn adopt() -> std::io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// The descendants of a process by number, without zombies.
#[must_use]
pub fn below(root: i32) -> Vec<Process> {
    let all: Vec<Process> = numbers("/proc").filter_map(|id| read(&format!("/proc/{id}/stat"))).collect();
    descendants(root, all)
}

fn descendants(root: i32, all: Vec<Process>) -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    // A process has one parent, so the loop takes each once, and ends.
    let (mut found, mut next) = (Vec::new(), vec![root]);
    while let Some(parent) = next.pop() {
        for process in children.remove(&parent).unwrap_or_default() {
            next.push(process.id);
            found.push(process);
        }
    }
    found.retain(|process| !process.is_zombie());
    found.sort_by_key(|process| process.id);
    found
}

/// Processor time of these processes and of all whose status this process took. It never decreases.
#[must_use]
pub fn processor(tree: &[Process]) -> Duration {
    let waited_for = read("/proc/self/stat").map(|own| own.children).unwrap_or_default();
    waited_for + tree.iter().map(|process| process.processor).sum::<Duration>()
}

/// Whether a thread of these processes runs, or waits for a processor or a disk.
#[must_use]
pub fn is_runnable(tree: &[Process]) -> bool {
    let is_awake = |process: &Process| matches!(process.state, 'R' | 'D');
    tree.iter().any(|process| is_awake(process) || process.threads().iter().any(is_awake))
}

/// Takes the status of each child that ended, also of orphans. Returns the status of `child` if it is among them.
pub fn reap(child: i32) -> Option<WaitStatus> {
    let mut status = None;
    while let Ok(Some((ended, how))) = wait(WaitOptions::NOHANG) {
        if ended.as_raw_pid() == child {
            status = Some(how);
        }
    }
    status
}

/// Ends all descendants of this process: asks first, and kills those that remain after `grace`. Returns those that
/// cannot be killed.
pub fn end_all(grace: Duration) -> Vec<Process> {
    let own = rustix::process::getpid().as_raw_pid();
    signal(&below(own), Signal::TERM);
    if wait_until_gone(own, grace).is_empty() {
        return Vec::new();
    }
    let begin = Instant::now();
    loop {
        // Repeatedly: a process that was forking has a child now.
        signal(&below(own), Signal::KILL);
        let left = wait_until_gone(own, 5 * POLL_INTERVAL);
        if left.is_empty() || begin.elapsed() > KILL_LIMIT {
            return left;
        }
    }
}

/// Waits until this process has no descendants, or the limit has passed. Returns the remaining ones.
pub fn wait_until_gone(own: i32, limit: Duration) -> Vec<Process> {
    let begin = Instant::now();
    loop {
        let _ = reap(own);
        let left = below(own);
        if left.is_empty() || begin.elapsed() >= limit {
            return left;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn signal(tree: &[Process], signal: Signal) {
    for pid in tree.iter().filter_map(|process| Pid::from_raw(process.id)) {
        // The process may have ended by itself.
        let _ = kill_process(pid, signal);
    }
}

fn numbers(folder: &str) -> impl Iterator<Item = i32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// `None` if the process has ended meanwhile.
fn read(path: &str) -> Option<Process> {
    parse(&String::from_utf8_lossy(&fs::read(path).ok()?))
}

/// Parses a line of proc_pid_stat(5).
fn parse(line: &str) -> Option<Process> {
    // The name may contain parentheses and spaces.
    let (head, rest) = line.rsplit_once(") ")?;
    let (id, name) = head.split_once(" (")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let ticks = |field: usize| -> Option<Duration> {
        let ticks: u64 = fields.get(field - 3)?.parse().ok()?;
        Some(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second().max(1)))
    };
    let children = ticks(16)? + ticks(17)?;
    Some(Process {
        id: id.parse().ok()?,
        name: name.to_owned(),
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        processor: ticks(14)? + ticks(15)? + children,
        children,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(id: i32, parent: i32, state: char) -> Process {
        let hz = rustix::param::clock_ticks_per_second();
        let line =
            format!("{id} (a (b) c) {state} {parent} 1 1 0 -1 0 0 0 0 0 {} {hz} {hz} 0 20 0 1", 2 * hz);
        parse(&line).expect("a line")
    }

    #[test]
    fn lines_with_parentheses_in_the_name_are_parsed() {
        let process = process(7, 3, 'S');
        assert_eq!((process.id, process.parent, process.state), (7, 3, 'S'));
        assert_eq!(process.name, "a (b) c");
        assert_eq!(process.processor, Duration::from_secs(4));
        assert_eq!(process.children, Duration::from_secs(1));
        assert_eq!(parse("7 (short) S 1"), None);
    }

    #[test]
    fn descendants_are_found_at_every_depth_and_no_others() {
        let all = vec![
            process(2, 1, 'S'),
            process(9, 5, 'R'),
            process(5, 2, 'S'),
            process(6, 1, 'S'),
            process(7, 2, 'Z'),
            process(8, 7, 'S'),
        ];
        let found: Vec<i32> = descendants(2, all).iter().map(|process| process.id).collect();
        assert_eq!(found, [5, 8, 9]);
    }

    #[test]
    fn this_test_is_a_thread_that_runs() {
        let own = read("/proc/self/stat").expect("this process");
        assert_eq!(own.id, std::process::id().cast_signed());
        assert!(own.threads().len() > 1 && is_runnable(std::slice::from_ref(&own)));
        assert!(own.command_line().contains(&own.name));
    }
}
