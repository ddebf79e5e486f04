//! Runs a command until the command ends or hangs, or until a signal asks the runner to end. The runner then ends all
//! processes that the command left.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{PTracer, Pid, Signal, WaitStatus, getpid, getppid};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::libtest::{self, Output};
use crate::limits::{Detector, Hang, Limits, Sample};
use crate::{stacks, tree};

/// The time between two samples.
const TICK: Duration = Duration::from_secs(2);

/// The time between SIGTERM and SIGKILL. It is long enough for a command to shut its cluster down.
const GRACE: Duration = Duration::from_secs(15);

/// The time that remaining processes have to end by themselves after the command has ended.
const REMAINING_GRACE: Duration = Duration::from_secs(5);

/// The maximum time that a test binary takes to list its tests.
const LIST_LIMIT: Duration = Duration::from_secs(60);

/// The exit code for a command that hung, as in timeout(1).
pub const HUNG: i32 = 124;

/// A command to run.
#[derive(Clone, Debug)]
pub enum What {
    /// A command with a name.
    Step {
        /// The step's name.
        name: String,
        /// Program and arguments.
        command: Vec<String>,
    },
    /// A test binary, or another program that cargo starts through the runner.
    Tests {
        /// The binary.
        binary: PathBuf,
        /// Its arguments. With `--quiet`, the runner does not show tests that pass.
        arguments: Vec<String>,
    },
}

/// Why the runner could not run the command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused to install signal handlers, or to make the runner the parent of orphaned processes.
    #[error("cannot prepare to supervise the command: {0}")]
    Prepare(#[source] io::Error),
    /// The command cannot be started.
    #[error("cannot run `{command}`: {source}; check that the file exists and is executable")]
    Start {
        /// The program of the command.
        command: String,
        /// The cause.
        source: io::Error,
    },
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The command ended with this exit code, or hung ([`HUNG`]).
    Code(i32),
    /// This signal asked the runner to end, and the runner has ended all processes of the command.
    Signal(i32),
}

/// Runs the command. The command's output and the runner's messages go to standard output.
///
/// # Errors
/// [`Error`], if the runner cannot prepare for the command, or cannot start it.
pub fn run(what: &What, limits: Limits) -> Result<End, Error> {
    // Before all else: once the owner (the runner's parent) is killed, `getppid` returns another process.
    let owner = getppid();
    tree::adopt().map_err(Error::Prepare)?;
    // Before the child exists, so that the runner does not miss the child's SIGCHLD.
    let mut signals = Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGTERM]).map_err(Error::Prepare)?;
    let (sender, received) = channel();
    thread::spawn(move || signals.forever().try_for_each(|signal| sender.send(signal)));
    let mut run = Run::start(what)?;
    let end = run.watch(&received, limits, owner);
    Ok(run.close(end))
}

/// Why [`Run::watch`] returned.
enum Watched {
    Ended(WaitStatus),
    Hung(Hang),
    Signalled(i32),
}

struct Run<'a> {
    what: &'a What,
    child: i32,
    /// The parsed output, if the command is a test binary.
    output: Option<Arc<Mutex<Output>>>,
    reader: Option<JoinHandle<()>>,
}

impl<'a> Run<'a> {
    fn start(what: &'a What) -> Result<Self, Error> {
        let mut command = what.command();
        die_with_owner(&mut command);
        let spawned = command.spawn();
        let mut child = spawned.map_err(|source| Error::Start {
            command: command.get_program().to_string_lossy().into_owned(),
            source,
        })?;
        let (mut output, mut reader) = (None, None);
        if let Some(stdout) = child.stdout.take() {
            let read = Arc::new(Mutex::new(Output::new(what.is_condensed())));
            reader = Some(thread::spawn({
                let read = Arc::clone(&read);
                move || pass_on(stdout, &read)
            }));
            output = Some(read);
        }
        // Only the id is kept. `tree::reap` waits for every child, this one included; `Child::wait` would then fail.
        Ok(Self { what, child: child.id().cast_signed(), output, reader })
    }

    /// Waits until the command ends or hangs, or a signal asks the runner to end.
    fn watch(&mut self, signals: &Receiver<i32>, limits: Limits, owner: Option<Pid>) -> Watched {
        let mut detector = Detector::new(limits);
        let tick = TICK.min(limits.blocked / 4).min(limits.wall / 4);
        let (mut elapsed, mut last) = (Duration::ZERO, Instant::now());
        loop {
            match signals.recv_timeout(tick) {
                Ok(SIGCHLD) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
                Ok(signal) => return Watched::Signalled(signal),
            }
            if let Some(status) = tree::reap(self.child) {
                return Watched::Ended(status);
            }
            if getppid() != owner {
                // The owner was killed before it could send the runner a signal.
                return Watched::Signalled(SIGTERM);
            }
            if last.elapsed() < tick {
                continue;
            }
            // At most two ticks: a command makes no progress while its machine is suspended or its VM is stopped.
            elapsed += last.elapsed().min(2 * tick);
            last = Instant::now();
            if let Some(hang) = detector.look(self.sample(elapsed)) {
                return Watched::Hung(hang);
            }
        }
    }

    fn sample(&self, elapsed: Duration) -> Sample {
        let tree = tree::below(getpid().as_raw_pid());
        Sample {
            at: elapsed,
            processor: tree::processor(&tree),
            is_runnable: tree::is_runnable(&tree),
            progress: self.output.as_ref().map_or(0, |output| locked(output).progress()),
        }
    }

    /// Ends all remaining processes, and prints the runner's messages about the run.
    fn close(mut self, watched: Watched) -> End {
        let mut report = String::new();
        let mut is_failed = false;
        if let Watched::Hung(hang) = watched {
            report += &format!("\n{} hangs: {hang}\n", self.what.name());
            let running = self.running();
            running.iter().for_each(|name| report += &format!("test {name} ... HANGS\n"));
            report += &stacks::told(&tree::below(getpid().as_raw_pid()));
            report += &self.closing_line(running.len());
            is_failed = true;
        }
        for process in self.end_tree(&watched) {
            let line = process.command_line();
            report += &format!("niclab-runner: process {} cannot be killed: {line}\n", process.id);
        }
        let end = match watched {
            Watched::Signalled(signal) => End::Signal(signal),
            Watched::Hung(_) => End::Code(HUNG),
            Watched::Ended(status) => End::Code(code(status)),
        };
        if let (End::Code(code), false, true) = (end, is_failed, self.is_open()) {
            report +=
                &format!("\n{} ended with code {code} before all of its tests had ended\n", self.what.name());
            let running = self.running();
            running
                .iter()
                .for_each(|name| report += &format!("test {name} ... DIED (or another running test did)\n"));
            report += &self.closing_line(1);
        }
        show(report.as_bytes());
        end
    }

    /// Ends all remaining processes. Returns those that cannot be killed.
    fn end_tree(&mut self, watched: &Watched) -> Vec<tree::Process> {
        let own = getpid().as_raw_pid();
        if let Watched::Ended(_) = watched {
            for process in tree::wait_until_gone(own, REMAINING_GRACE) {
                let (name, line) = (self.what.name(), process.command_line());
                show(
                    format!("niclab-runner: {name} left process {} behind: {line}\n", process.id).as_bytes(),
                );
            }
        }
        let stuck = tree::end_all(GRACE);
        // The reader ends when no process holds the pipe. A process that cannot be killed may hold it for ever.
        if let Some(reader) = self.reader.take().filter(|_| stuck.is_empty()) {
            let _ = reader.join();
        }
        stuck
    }

    /// The tests that are running, according to the output so far.
    fn running(&self) -> Vec<String> {
        let (What::Tests { binary, arguments }, Some(output)) = (self.what, &self.output) else {
            return Vec::new();
        };
        let mut list = Command::new(binary);
        list.args(arguments.iter().filter(|argument| !is_quiet(argument)))
            .args(["--list", "--format", "terse"]);
        let listed = stacks::output(&mut list, LIST_LIMIT).unwrap_or_default();
        let environment = std::env::var("RUST_TEST_THREADS").ok();
        let threads = libtest::threads(arguments, environment.as_deref())
            .or_else(|| thread::available_parallelism().ok().map(std::num::NonZero::get));
        locked(output).running(&libtest::listed(&listed), threads.unwrap_or(1))
    }

    /// Whether a test harness has begun and has not printed its closing line.
    fn is_open(&self) -> bool {
        self.output.as_ref().is_some_and(|output| locked(output).is_open())
    }

    /// A closing line in place of the harness's, in which tests without a result count as failed.
    fn closing_line(&self, hung: usize) -> String {
        let line = self
            .output
            .as_ref()
            .map_or_else(|| Output::default().closing_line(hung), |output| locked(output).closing_line(hung));
        format!("\n{line}\n")
    }
}

impl What {
    fn name(&self) -> String {
        match self {
            Self::Step { name, .. } => format!("step \"{name}\""),
            Self::Tests { binary, .. } => binary.display().to_string(),
        }
    }

    /// Whether the runner shows only tests that fail.
    fn is_condensed(&self) -> bool {
        let Self::Tests { arguments, .. } = self else { return false };
        let is_raw = |argument: &String| argument == "--nocapture" || argument == "--no-capture";
        arguments.iter().any(is_quiet) && !arguments.iter().any(is_raw)
    }

    fn command(&self) -> Command {
        match self {
            Self::Step { command, .. } => {
                let mut words = command.iter();
                let mut command = Command::new(words.next().map_or("", String::as_str));
                command.args(words);
                command
            }
            Self::Tests { binary, arguments } => {
                let mut command = Command::new(binary);
                // With `--quiet` the harness prints dots, but the runner needs the tests' names.
                command.args(arguments.iter().filter(|argument| !is_quiet(argument))).stdout(Stdio::piped());
                command
            }
        }
    }
}

fn is_quiet(argument: &String) -> bool {
    argument == "--quiet" || argument == "-q"
}

/// Makes the kernel kill the command when this thread ends. Also lets gdb, which this process starts, attach to the
/// command: with the Yama security module, gdb could otherwise attach to its own descendants only.
fn die_with_owner(command: &mut Command) {
    let owner = getpid();
    let prepare = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // Without Yama this call fails, but then nothing restricts gdb.
        let _ = rustix::process::set_ptracer(PTracer::ProcessID(owner));
        // If the owner died before the first call, the kernel will not kill this process.
        if getppid() == Some(owner) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: between fork and exec the closure makes only system calls; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// Parses the command's output and prints it, until no process holds the pipe.
fn pass_on(mut from: ChildStdout, output: &Mutex<Output>) {
    let mut bytes = [0; 8192];
    loop {
        let read = match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let mut text = Vec::new();
        locked(output).feed(bytes.get(..read).unwrap_or_default(), &mut text);
        show(&text);
    }
    let mut text = Vec::new();
    locked(output).finish(&mut text);
    show(&text);
}

/// Prints the text. Ignores errors: the reader of standard output may be gone.
fn show(text: &[u8]) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text).and_then(|()| out.flush());
}

fn locked(output: &Mutex<Output>) -> MutexGuard<'_, Output> {
    // No holder of the lock panics. After a panic, the output parsed so far would still be valid.
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The exit code as a shell reports it: 128 plus the number of the signal that ended the process.
fn code(status: WaitStatus) -> i32 {
    status.exit_status().or_else(|| Some(128 + status.terminating_signal()?)).unwrap_or(1)
}
