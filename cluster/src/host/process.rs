//! Child processes that never outlive their owner, and process ids that never refer to another process.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{CWD, Mode, StatVfsMountFlags, statvfs},
    io::{Errno, FdFlags},
    process::{Pid, PidfdFlags, Signal},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::own;
use crate::host::deadline::Deadline;

/// A program could not be started.
#[derive(Debug, Error)]
pub enum SpawnError {
    /// The program cannot be started.
    #[error("cannot start {}: {error}{}", program.display(), denied(program, error))]
    Program {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// Its log file cannot be written.
    #[error("cannot write the log {}: {error}", log.display())]
    Log {
        /// The log.
        log: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
}

/// Why an existing, executable program is still denied.
fn denied(program: &Path, error: &io::Error) -> &'static str {
    let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
    let is_noexec = || statvfs(program).is_ok_and(|about| about.f_flag.contains(StatVfsMountFlags::NOEXEC));
    if is_denied && is_noexec() {
        "; its file system is mounted noexec; set NICLAB_CACHE to a folder on another file system"
    } else {
        ""
    }
}

/// A process to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessPlan {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables that are added to the environment.
    pub env: BTreeMap<String, String>,
    /// The file for its messages.
    pub log: PathBuf,
}

/// A process. Its start time distinguishes it from a later one with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// The pid.
    pub pid: u32,
    /// Clock ticks between boot and its start: field 22 of `/proc/PID/stat`.
    pub start_time: u64,
}

impl ProcessId {
    /// The process that has this pid now.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the program's name in parentheses, and may itself contain spaces and parentheses.
        let (_, rest) = stat.rsplit_once(')')?;
        Some(Self { pid, start_time: rest.split_whitespace().nth(19)?.parse().ok()? })
    }

    /// Kills the process if it is still the same one.
    pub fn kill(self) {
        self.signal(Signal::KILL);
    }

    /// Sends the process a signal if it is still the same one.
    pub fn signal(self, signal: Signal) {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return };
        // The descriptor is opened first: from then on it means one process, even if another one gets the pid.
        let Ok(fd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return };
        if Self::of(self.pid) == Some(self) {
            // An error means that the process ended at this moment.
            let _ = rustix::process::pidfd_send_signal(&fd, signal);
        }
    }
}

/// Waits for the end of one process, even if another one gets its pid later.
#[derive(Debug)]
pub struct ExitWaiter(OwnedFd);

impl ExitWaiter {
    /// Opens a descriptor of the process, if it is still the same one.
    #[must_use]
    pub fn new(process: ProcessId) -> Option<Self> {
        let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw)?;
        let fd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
        (ProcessId::of(process.pid) == Some(process)).then_some(Self(fd))
    }

    /// Waits until it has ended, for this time at most; returns whether it has.
    #[must_use]
    pub fn has_ended_within(&self, within: Duration) -> bool {
        wait_readable(&self.0, Deadline::after(within))
    }
}

/// A child's standard input and output. Its standard error always goes to its log.
#[derive(Debug)]
pub enum Streams {
    /// No input; output into the log.
    Log,
    /// Pipes, for [`Process::take_pipes`].
    Pipes,
    /// A file as its descriptor 0; output into the log.
    Input(OwnedFd),
}

/// A child process that is killed when this is dropped, and by the kernel when the owner dies.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pidfd: OwnedFd,
    /// Its purpose, such as `node0` or `daemon`.
    pub name: String,
}

impl Process {
    /// Starts a program in a process group of its own, with its standard error in its log file. It inherits the
    /// descriptors `kept` under the same numbers.
    ///
    /// The kernel ties the child to the calling *thread*. So the caller must be a thread that lives as long as the
    /// child, such as the main thread.
    ///
    /// # Errors
    /// [`SpawnError`].
    pub fn spawn(
        name: &str,
        plan: &ProcessPlan,
        streams: Streams,
        kept: &[BorrowedFd<'_>],
    ) -> Result<Self, SpawnError> {
        let log_error = |error| SpawnError::Log { log: plan.log.clone(), error };
        let program_error = |error| SpawnError::Program { program: plan.program.clone(), error };
        let log = own::create_file(&CWD, &plan.log).map_err(log_error)?;
        let mut command = Command::new(&plan.program);
        command.args(&plan.args).envs(&plan.env).process_group(0);
        command.stderr(log.try_clone().map_err(log_error)?);
        match streams {
            Streams::Log => command.stdin(Stdio::null()).stdout(log),
            Streams::Pipes => command.stdin(Stdio::piped()).stdout(Stdio::piped()),
            Streams::Input(file) => command.stdin(file).stdout(log),
        };
        die_with_owner(&mut command);
        keep_open(&mut command, kept);
        keep_private(&mut command);
        let mut child = command.spawn().map_err(program_error)?;
        match rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Self { child, pidfd, name: name.to_owned() }),
            Err(error) => {
                // Without the descriptor the child could not be monitored. Neither call can fail for our own child.
                let _ = child.kill();
                let _ = child.wait();
                Err(program_error(error.into()))
            }
        }
    }

    /// The pid and start time.
    #[must_use]
    pub fn id(&self) -> ProcessId {
        // Until it is reaped, the process is in /proc.
        ProcessId::of(self.child.id()).unwrap_or(ProcessId { pid: self.child.id(), start_time: 0 })
    }

    /// Its standard input and output, once, if it was started with pipes.
    pub fn take_pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        self.child.stdin.take().zip(self.child.stdout.take())
    }

    /// A descriptor that becomes readable when the process ends, for another thread.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn exit_descriptor(&self) -> io::Result<OwnedFd> {
        self.pidfd.try_clone()
    }

    /// Its exit status, if it has ended.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal, unless it has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.exit_status().is_none() {
            // An error means that the process ended at this moment.
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, signal);
        }
    }

    /// Waits for its end until the deadline.
    pub fn wait_until(&mut self, deadline: Deadline) -> Option<ExitStatus> {
        wait_readable(&self.pidfd, deadline);
        self.exit_status()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        // Cannot fail for our own child.
        let _ = self.child.wait();
    }
}

/// Waits until a descriptor is readable, or the deadline. Returns `false` if it is not.
pub fn wait_readable(fd: &OwnedFd, deadline: Deadline) -> bool {
    loop {
        let left = Timespec::try_from(deadline.left()).ok();
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], left.as_ref()) {
            Err(Errno::INTR) => {}
            Ok(0) if !deadline.is_over() => {}
            result => return result.is_ok_and(|ready| ready > 0),
        }
    }
}

/// Makes the kernel kill the command when the calling thread ends.
pub fn die_with_owner(command: &mut Command) {
    let owner = rustix::process::getpid();
    let prepare = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The owner may have died before the line above.
        if rustix::process::getppid() == Some(owner) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: between fork and exec the closure makes two system calls; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// Lets the command inherit these descriptors.
fn keep_open(command: &mut Command, kept: &[BorrowedFd<'_>]) {
    let kept: Vec<RawFd> = kept.iter().map(AsRawFd::as_raw_fd).collect();
    let prepare = move || {
        for &fd in &kept {
            // SAFETY: the caller of `spawn`, in which this runs, holds the descriptor until it returns.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            rustix::io::fcntl_setfd(fd, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// Makes sockets and files of the command private to their owner, for any umask of the user. A folder that QEMU shares
/// with its guest is not affected: QEMU sets the modes of the guest's files itself.
fn keep_private(command: &mut Command) {
    let prepare = || {
        rustix::process::umask(Mode::RWXG | Mode::RWXO);
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes one system call; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// Kills all descendants of this process.
///
/// New processes may appear during a scan, so it scans until it finds none.
pub fn kill_descendants() {
    /// The scan gives up on a process tree that grows faster than it can be read.
    const MAX_ROUNDS: usize = 100;
    for _ in 0..MAX_ROUNDS {
        let found = descendants(std::process::id());
        if found.is_empty() {
            return;
        }
        found.into_iter().for_each(ProcessId::kill);
    }
}

fn descendants(ancestor: u32) -> Vec<ProcessId> {
    let processes: Vec<(ProcessId, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((ProcessId::of(pid)?, living_parent_of(pid)?)))
        .collect();
    let mut family = vec![ancestor];
    let mut found = Vec::new();
    while let Some(parent) = family.pop() {
        for (id, _) in processes.iter().filter(|(_, of)| *of == parent) {
            family.push(id.pid);
            found.push(*id);
        }
    }
    found
}

/// The parent of a process that still runs.
fn living_parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if state == "Z" { None } else { fields.next()?.parse().ok() }
}

/// The last lines of a log, for a message; empty if there is none.
#[must_use]
pub fn tail(path: &Path, lines: usize) -> String {
    /// Enough for the longest tail; a guest that floods its console must not use memory here.
    const MAX_TAIL_BYTES: u64 = 64 * 1024;
    let read = || {
        use io::{Read, Seek, SeekFrom};
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(MAX_TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(MAX_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok::<_, io::Error>(bytes)
    };
    let text = String::from_utf8_lossy(&read().unwrap_or_default()).replace('\r', "");
    let all: Vec<&str> = text.trim_end().lines().collect();
    let clean = |line: &&str| line.chars().filter(|c| !c.is_control() || *c == '\t').collect::<String>();
    all[all.len().saturating_sub(lines)..].iter().map(clean).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(folder: &Path, script: &str) -> ProcessPlan {
        ProcessPlan {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: Default::default(),
            log: folder.join("log"),
        }
    }

    #[test]
    fn process_is_distinguished_from_a_later_one_with_its_pid() {
        let own = ProcessId::of(std::process::id()).unwrap();
        // This would end the test if only the pid counted.
        ProcessId { start_time: own.start_time + 1, ..own }.kill();
        assert_eq!(ProcessId::of(std::process::id()), Some(own));
    }

    #[test]
    fn output_goes_to_the_log_and_the_exit_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(folder.path(), "echo one; echo two >&2; exit 3");
        let mut process = Process::spawn("x", &plan, Streams::Log, &[]).unwrap();
        let status = process.wait_until(Deadline::after(Duration::from_secs(30))).unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(tail(&plan.log, 10), "one\ntwo");
        assert_eq!(tail(&plan.log, 1), "two");
    }

    #[test]
    fn dropped_process_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let process =
            Process::spawn("x", &plan(folder.path(), "exec sleep 1000"), Streams::Log, &[]).unwrap();
        let id = process.id();
        drop(process);
        assert_eq!(ProcessId::of(id.pid), None);
    }

    #[test]
    fn descendants_are_found_over_generations() {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(folder.path(), "sh -c 'sleep 1000 & echo $!; wait' & wait");
        let process = Process::spawn("x", &plan, Streams::Log, &[]).unwrap();
        let deadline = Deadline::after(Duration::from_secs(30));
        let grandchild = loop {
            if let Ok(pid) = tail(&plan.log, 1).parse::<u32>() {
                break pid;
            }
            assert!(!deadline.is_over());
            std::thread::yield_now();
        };
        let found: Vec<u32> = descendants(process.id().pid).iter().map(|id| id.pid).collect();
        assert!(found.contains(&grandchild), "{found:?}");
        descendants(process.id().pid).into_iter().for_each(ProcessId::kill);
    }

    #[test]
    fn missing_program_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let plan = ProcessPlan { program: "/no/such".into(), ..plan(folder.path(), "") };
        let error = Process::spawn("x", &plan, Streams::Log, &[]).unwrap_err();
        assert!(error.to_string().contains("/no/such"), "{error}");
    }

    #[test]
    fn tail_is_bounded_and_clean() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("console");
        let mut text = vec![b'x'; 1 << 20];
        text.extend(b"\nplain \x1b[31mred\x07\r\n\n");
        fs::write(&path, text).unwrap();
        assert_eq!(tail(&path, 1), "plain [31mred");
        assert!(tail(&path, 100).len() <= 64 * 1024);
        assert_eq!(tail(&folder.path().join("none"), 5), "");
    }
}
