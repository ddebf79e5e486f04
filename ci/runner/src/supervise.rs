//! Runs a command until it ends, hangs, or a signal asks the runner to end. No process of the command outlives it.

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

/// The time between the request to end and the kill. Clusters are taken down in it.
const GRACE: Duration = Duration::from_secs(15);

/// The time for processes that remain when the command has ended: they may be ending, too.
const LEFT_GRACE: Duration = Duration::from_secs(5);

/// The time for a test binary to list its tests.
const LIST_LIMIT: Duration = Duration::from_secs(60);

/// The exit code of a command that hung, as in timeout(1).
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
    /// A test binary, or another program that cargo runs in its place.
    Tests {
        /// The binary.
        binary: PathBuf,
        /// Its arguments. With `--quiet`, tests that pass are not shown.
        arguments: Vec<String>,
    },
}

/// Why the runner could not run the command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refuses signal handlers or the adoption of orphans.
    #[error("cannot prepare to supervise the command: {0}")]
    Prepare(#[source] io::Error),
    /// The command does not start.
    #[error("cannot run `{command}`: {source}; check that the file exists and is executable")]
    Start {
        /// Its program.
        command: String,
        /// Why.
        source: io::Error,
    },
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this exit code.
    Code(i32),
    /// A signal asked this process to end, and it has ended all others.
    Signal(i32),
}

/// Runs the command. Its output and the runner's messages go to standard output.
///
/// If the command cannot be started.
pub fn run(what: &What, limits: Limits) -> Result<End, Error> {
    // First of all, so that the runner notices an owner that is killed while the command starts.
    let owner = getppid();
    tree::adopt().map_err(Error::Prepare)?;
    // Before the child exists, so that its end is not missed.
    let mut signals = Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGTERM]).map_err(Error::Prepare)?;
    let (sender, received) = channel();
    thread::spawn(move || signals.forever().try_for_each(|signal| sender.send(signal)));
    let mut run = Run::start(what)?;
    let end = run.watch(&received, limits, owner);
    Ok(run.close(end))
}

/// Why the watch ended.
enum Watched {
    Ended(WaitStatus),
    Hung(Hang),
    Asked(i32),
}

struct Run<'a> {
    what: &'a What,
    child: i32,
    /// The parsed output, for test binaries.
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
        // `reap` waits for all children and takes this one's status, so the handle must not wait.
        Ok(Self { what, child: child.id().cast_signed(), output, reader })
    }

    /// Waits until the command ends or hangs, or a signal asks to end.
    fn watch(&mut self, signals: &Receiver<i32>, limits: Limits, owner: Option<Pid>) -> Watched {
        let mut detector = Detector::new(limits);
        let tick = TICK.min(limits.blocked / 4).min(limits.wall / 4);
        let (mut at, mut last) = (Duration::ZERO, Instant::now());
        loop {
            match signals.recv_timeout(tick) {
                Ok(SIGCHLD) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
                Ok(signal) => return Watched::Asked(signal),
            }
            if let Some(status) = tree::reap(self.child) {
                return Watched::Ended(status);
            }
            if getppid() != owner {
                // The owner was killed, and cannot send a signal any more.
                return Watched::Asked(SIGTERM);
            }
            if last.elapsed() < tick {
                continue;
            }
            // A suspended machine, or a stopped virtual one, had no time to make progress.
            at += last.elapsed().min(2 * tick);
            last = Instant::now();
            if let Some(hang) = detector.look(self.sample(at)) {
                return Watched::Hung(hang);
            }
        }
    }

    fn sample(&self, at: Duration) -> Sample {
        let tree = tree::below(getpid().as_raw_pid());
        Sample {
            at,
            processor: tree::processor(&tree),
            is_runnable: tree::is_runnable(&tree),
            progress: self.output.as_ref().map_or(0, |output| locked(output).progress()),
        }
    }

    /// Prints the messages, and ends all remaining processes.
    fn close(mut self, watched: Watched) -> End {
        let mut said = String::new();
        let mut is_failed = false;
        if let Watched::Hung(hang) = watched {
            said += &format!("\n{} hangs: {hang}\n", self.what.name());
            let running = self.running();
            running.iter().for_each(|name| said += &format!("test {name} ... HANGS\n"));
            said += &stacks::told(&tree::below(getpid().as_raw_pid()));
            said += &self.closing_line(running.len());
            is_failed = true;
        }
        for process in self.end_tree(&watched) {
            let line = process.command_line();
            said += &format!("niclab-runner: process {} cannot be killed: {line}\n", process.id);
        }
        let end = match watched {
            Watched::Asked(signal) => End::Signal(signal),
            Watched::Hung(_) => End::Code(HUNG),
            Watched::Ended(status) => End::Code(code(status)),
        };
        if let (End::Code(code), false, true) = (end, is_failed, self.is_open()) {
            said +=
                &format!("\n{} ended with code {code} before all of its tests had ended\n", self.what.name());
            let running = self.running();
            running
                .iter()
                .for_each(|name| said += &format!("test {name} ... DIED, or one that ran with it\n"));
            said += &self.closing_line(1);
        }
        show(said.as_bytes());
        end
    }

    /// Ends all remaining processes. Returns those that cannot be ended.
    fn end_tree(&mut self, watched: &Watched) -> Vec<tree::Process> {
        let own = getpid().as_raw_pid();
        if let Watched::Ended(_) = watched {
            for process in tree::wait_until_gone(own, LEFT_GRACE) {
                let (name, line) = (self.what.name(), process.command_line());
                show(
                    format!("niclab-runner: {name} left process {} behind: {line}\n", process.id).as_bytes(),
                );
            }
        }
        let stuck = tree::end_all(GRACE);
        // Only processes that cannot be killed still hold the pipe.
        if let Some(reader) = self.reader.take().filter(|_| stuck.is_empty()) {
            let _ = reader.join();
        }
        stuck
    }

    /// The tests that run.
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

    fn is_open(&self) -> bool {
        self.output.as_ref().is_some_and(|output| locked(output).is_open())
    }

    /// The closing line that the harness would have written, so that tests without a result count as failed.
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

    /// Whether tests that pass are not shown.
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
                // The harness's own short form names no tests.
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
        // Fails without Yama, which then restricts nothing.
        let _ = rustix::process::set_ptracer(PTracer::ProcessID(owner));
        // The owner may have died before the first line.
        if getppid() == Some(owner) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: between fork and exec the closure makes only system calls; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// Passes on the output, until no process holds the pipe.
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

/// Prints the text. Ignores a standard output without a reader.
fn show(text: &[u8]) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text).and_then(|()| out.flush());
}

fn locked(output: &Mutex<Output>) -> MutexGuard<'_, Output> {
    // No holder of the lock panics. After a panic, the bytes read so far would still be valid.
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The exit code, as a shell has it.
fn code(status: WaitStatus) -> i32 {
    status.exit_status().or_else(|| Some(128 + status.terminating_signal()?)).unwrap_or(1)
}
