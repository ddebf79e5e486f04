//! Runs a program on every node at the same time, relays its output to the user, and reports how it ended on each.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc::Sender},
    thread,
    time::Duration,
};

use anyhow::Result;
use niclab_agent::{Exec, ExitStatus, Refusal, ToGuest};
use niclab_output::reader_is_gone;

use crate::{
    boot::running::{Event, RunningCluster},
    guests::{
        agent::{AgentClient, CommandSender, Output},
        program::{ConsoleMark, LastLines, ProgramFailure},
    },
    host::{deadline::Deadline, exit_code::OWN_FAILURE},
    output::Prefixer,
    report::live::CommandOutcome,
};

/// The limit if the user gives none. A deadline at the largest `Duration` would overflow, so this is ten years.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Time limit for killed programs to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum bytes of standard output that niclab keeps for the report; `niclab-perf` prints less. niclab prints all
/// other output.
const MAX_KEPT_BYTES: usize = 4 * 1024 * 1024;

/// A program to run on every node.
#[derive(Clone, Debug)]
pub struct Program {
    /// Arguments, environment, and working folder.
    pub exec: Exec,
    /// What happens to its standard output. Standard error always goes to the user's.
    pub stdout: StdoutUse,
    /// Its time limit; none without one.
    pub limit: Option<TimeLimit>,
}

/// What happens to a program's standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdoutUse {
    /// It goes to niclab's standard output.
    Stdout,
    /// It goes to niclab's standard error, because niclab's standard output has another text.
    Stderr,
    /// niclab keeps it for the report. What exceeds the maximum goes to standard output.
    Keep,
    /// As [`Self::Keep`], but what exceeds the maximum goes to standard error.
    KeepElseStderr,
}

impl StdoutUse {
    const fn is_kept(self) -> bool {
        matches!(self, Self::Keep | Self::KeepElseStderr)
    }

    const fn is_stderr(self) -> bool {
        matches!(self, Self::Stderr | Self::KeepElseStderr)
    }
}

/// A program's time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimit {
    /// Wall time.
    pub limit: Duration,
    /// The option or key that sets it, for messages.
    pub set_by: &'static str,
}

/// How the program ended on the nodes.
#[derive(Clone, Debug, Default)]
pub struct ProgramEnds {
    /// The ends, by rank.
    pub outcomes: Vec<CommandOutcome>,
    /// The first exit code that is not 0; [`OWN_FAILURE`] if the program had no exit code.
    pub exit_code: u8,
    /// If the program had not ended in time on all nodes: a message that names these nodes.
    pub timed_out: Option<String>,
}

/// Runs the program until it has ended on every node, or until its time limit. At the limit, kills it where it still
/// runs.
///
/// # Errors
/// [`crate::boot::running::Failure`] if the cluster ends.
pub fn run(running: &mut RunningCluster, program: &Program) -> Result<ProgramEnds> {
    let marks: Vec<ConsoleMark> =
        running.plan().nodes.iter().map(|node| ConsoleMark::now(&node.console)).collect();
    let started = start_all(running, program);
    let deadline = Deadline::after(program.limit.map_or(FOREVER, |limit| limit.limit));
    let mut is_over = vec![false; started.len()];
    let exit_code = wait(running, &started, &mut is_over, deadline)?;
    let late: Vec<bool> = is_over.iter().map(|is_over| !is_over).collect();
    let timed_out = program.limit.filter(|_| late.contains(&true)).map(|limit| {
        let nodes = running.plan().nodes.iter().zip(&late).filter(|(_, is_late)| **is_late);
        let nodes: Vec<&str> = nodes.map(|(node, _)| node.name.as_str()).collect();
        let (seconds, set_by) = (limit.limit.as_secs(), limit.set_by);
        format!("the command had not ended after {seconds} s ({set_by}) on {}", nodes.join(", "))
    });
    if timed_out.is_some() {
        started.iter().for_each(StartedProgram::kill);
        wait(running, &started, &mut is_over, Deadline::after(KILL_TIMEOUT))?;
    }
    let failures: Vec<Option<ProgramFailure>> = (started.iter().zip(&marks).zip(&late))
        .map(|((node, mark), is_late)| match program.limit {
            Some(limit) if *is_late => {
                let (seconds, set_by) = (limit.limit.as_secs(), limit.set_by);
                Some(mark.failed(format!("had not ended after {seconds} s ({set_by})")))
            }
            _ => node.failure(mark),
        })
        .collect();
    print_failures(running, &failures);
    let nodes = running.plan().nodes.iter().zip(&started).zip(failures);
    let outcomes = nodes.zip(late).map(|(((node, started), failure), is_late)| {
        let end = started.end().take().unwrap_or_default();
        // A killed program's code says nothing about the program.
        let code = end.code.filter(|_| !is_late);
        let output = if failure.is_some() { end.last.lines() } else { Vec::new() };
        CommandOutcome { output, ..CommandOutcome::new(&node.name, code, &end.kept).failed(failure) }
    });
    let outcomes = outcomes.collect();
    let exit_code = if exit_code == 0 && timed_out.is_some() { OWN_FAILURE } else { exit_code };
    Ok(ProgramEnds { outcomes, exit_code, timed_out })
}

/// Waits until the program has ended on every node, or for the deadline. Sets `is_over` of the nodes where it ended,
/// and returns the first exit code that is not 0.
fn wait(
    running: &mut RunningCluster,
    started: &[StartedProgram],
    is_over: &mut [bool],
    deadline: Deadline,
) -> Result<u8> {
    let mut first_error_code = 0;
    while is_over.contains(&false) {
        let Some(event) = running.next_event(deadline)? else { break };
        // Commands that read guests' counters before may end only now. Their numbers are larger than all ranks. A
        // program of an earlier run that did not end in time may end now, too.
        if let Event::CommandOver(rank, result) = event
            && started.get(rank).is_some_and(|node| node.end().is_some())
        {
            is_over[rank] = true;
            if first_error_code == 0 {
                first_error_code = *result.as_ref().unwrap_or(&OWN_FAILURE);
            }
            if let Err(error) = &result
                && !running.ended_nodes().contains_key(&rank)
                && !reader_is_gone()
            {
                eprintln!("niclab: {}: {error}", running.plan().nodes[rank].name);
            }
        }
    }
    Ok(first_error_code)
}

/// Prints how the program failed on each node, and the folder in which niclab keeps the consoles.
fn print_failures(running: &mut RunningCluster, failures: &[Option<ProgramFailure>]) {
    let nodes = running.plan().nodes.iter().zip(failures);
    for (node, failure) in nodes.filter_map(|(node, failure)| Some((&node.name, failure.as_ref()?))) {
        eprintln!("niclab: {node}: the command failed: {}", failure.how);
        failure.console.iter().for_each(|line| eprintln!("niclab: {node}: console: {line}"));
    }
    let has_failed = failures.iter().any(Option::is_some) || !running.ended_nodes().is_empty();
    if has_failed && let Some(folder) = running.keep_consoles() {
        eprintln!("niclab: the consoles of all nodes are kept in {}", folder.display());
    }
}

/// How the program ended on one node.
#[derive(Debug, Default)]
struct ProgramEnd {
    /// The exit code of a shell, or why there is none.
    code: Option<Result<u8, String>>,
    /// The exit status, if the program started.
    status: Option<ExitStatus>,
    /// Why the guest did not start the program.
    refusal: Option<Refusal>,
    /// Its standard output, if niclab keeps it.
    kept: Vec<u8>,
    /// The end of its output.
    last: LastLines,
}

/// The program on one node, shared with the thread that relays its output.
#[derive(Clone, Default)]
struct StartedProgram {
    end: Arc<Mutex<Option<ProgramEnd>>>,
    /// The program's input, once it has started.
    sender: Arc<OnceLock<CommandSender>>,
}

impl StartedProgram {
    /// The end; `None` while the program runs.
    fn end(&self) -> MutexGuard<'_, Option<ProgramEnd>> {
        // No thread panics while it holds the lock; if one did, the end would still be valid.
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kill(&self) {
        if self.end().is_none()
            && let Some(sender) = self.sender.get()
        {
            // SIGKILL. If the agent is gone, so is the program.
            let _ = sender.send(ToGuest::Signal(9));
        }
    }

    fn failure(&self, mark: &ConsoleMark) -> Option<ProgramFailure> {
        let end = self.end();
        let end = end.as_ref()?;
        match &end.refusal {
            Some(refusal) => {
                Some(ProgramFailure { how: format!("not started: {}", refusal.message), console: Vec::new() })
            }
            None => mark.failure(end.status?),
        }
    }
}

/// Starts the program on every node, each with a thread that relays its output.
fn start_all(running: &RunningCluster, program: &Program) -> Vec<StartedProgram> {
    let width = running.plan().nodes.iter().map(|node| node.name.len()).max().unwrap_or(0);
    let nodes = running.plan().nodes.iter().zip(running.agents()).enumerate();
    nodes
        .map(|(rank, (node, agent))| {
            let started = StartedProgram::default();
            let relay = Relay {
                stdout: Prefixer::new(&node.name, width),
                stderr: Prefixer::new(&node.name, width),
                use_of_stdout: program.stdout,
                end: ProgramEnd::default(),
            };
            let (agent, exec, sender) = (Arc::clone(agent), program.exec.clone(), running.sender());
            let shared = started.clone();
            thread::spawn(move || relay.run(rank, &agent, exec, &shared, &sender));
            started
        })
        .collect()
}

/// Relays the output of the program on one node to the user.
struct Relay {
    stdout: Prefixer,
    stderr: Prefixer,
    use_of_stdout: StdoutUse,
    end: ProgramEnd,
}

impl Relay {
    fn run(
        mut self,
        rank: usize,
        agent: &Arc<AgentClient>,
        exec: Exec,
        started: &StartedProgram,
        sender: &Sender<Event>,
    ) {
        let code = self.relay(agent, exec, started).map_err(|error| error.to_string());
        self.end.code = Some(code.clone());
        *started.end() = Some(self.end);
        // Sending fails only while the cluster shuts down.
        let _ = sender.send(Event::CommandOver(rank, code));
    }

    fn relay(&mut self, agent: &Arc<AgentClient>, exec: Exec, started: &StartedProgram) -> Result<u8> {
        let command = agent.exec(exec)?;
        let _ = started.sender.set(command.sender().clone());
        command.sender().send(ToGuest::StdinEnd)?;
        match command.follow(|output| self.print(output).map_err(cannot_print))? {
            Ok(status) => {
                self.flush().map_err(cannot_print)?;
                self.end.status = Some(status);
                Ok(status.shell_code())
            }
            Err(refusal) => {
                let code = refusal.code;
                self.end.refusal = Some(refusal);
                Ok(code)
            }
        }
    }

    fn print(&mut self, output: Output<'_>) -> io::Result<()> {
        let (Output::Stdout(bytes) | Output::Stderr(bytes)) = output;
        let kept = &mut self.end.kept;
        if matches!(output, Output::Stdout(_))
            && self.use_of_stdout.is_kept()
            && kept.len() + bytes.len() <= MAX_KEPT_BYTES
        {
            kept.extend(bytes);
            return Ok(());
        }
        self.end.last.push(bytes);
        match output {
            Output::Stdout(bytes) if !self.use_of_stdout.is_stderr() => {
                self.stdout.push(bytes, &mut niclab_output::stdout())
            }
            Output::Stdout(bytes) => self.stdout.push(bytes, &mut io::stderr().lock()),
            Output::Stderr(bytes) => self.stderr.push(bytes, &mut io::stderr().lock()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.use_of_stdout.is_stderr() {
            self.stdout.flush(&mut io::stderr().lock())?;
        } else {
            self.stdout.flush(&mut niclab_output::stdout())?;
        }
        self.stderr.flush(&mut io::stderr().lock())
    }
}

fn cannot_print(error: io::Error) -> anyhow::Error {
    anyhow::anyhow!("niclab ended the command because its output cannot be printed: {error}")
}
