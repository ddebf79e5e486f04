//! Synchronises benchmarks in guests. At every cue all benchmarks wait for each other, and the launcher reads the
//! counters there. So two readings enclose only the benchmark's own messages.
//!
//! A coordinated `niclab-perf` writes each cue as a line to its standard error. It then waits for a line on its
//! standard input. `guest-driver/tools/src/cue.rs` defines the cues.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc::Sender},
    thread,
    time::Duration,
};

use anyhow::Result;
use niclab_agent::{Exec, ExitStatus, ToGuest, message::DATA_BYTES};
use thiserror::Error;

use crate::host::deadline::Deadline;
use crate::{
    boot::running::{Event, RunningCluster},
    guests::{
        agent::{AgentClient, AgentError, CommandSender, Output},
        program::{ConsoleMark, LastLines, ProgramFailure},
    },
};

/// The prefix of a cue's line.
const PREFIX: &str = "niclab-perf: cue ";

/// The answer to a cue.
const GO: &[u8] = b"go\n";

/// Maximum number of bytes that are kept of a benchmark's output; no benchmark prints more.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// Maximum length of a line on standard error; longer lines are split.
const MAX_LINE_BYTES: usize = 4096;

/// The benchmarks of the nodes got out of step.
#[derive(Debug, Error)]
pub enum ConductError {
    /// Two nodes stopped at different cues.
    #[error(
        "{} stopped at the cue `{}`, and {} at `{}`: they run different benchmarks",
        .one.0, .one.1, .other.0, .other.1
    )]
    OutOfStep {
        /// A node and its cue.
        one: (String, String),
        /// Another.
        other: (String, String),
    },
    /// The answer could not be sent to a node.
    #[error("cannot answer the cue of {node}: {error}")]
    Answer {
        /// The node.
        node: String,
        /// Why.
        #[source]
        error: AgentError,
    },
    /// The benchmarks took too long.
    #[error("niclab-perf had not ended after {} s on {nodes}", limit.as_secs())]
    TimedOut {
        /// The time limit.
        limit: Duration,
        /// The nodes on which it still ran.
        nodes: String,
    },
}

/// How a node's benchmark ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit code, or why it has none.
    pub code: Result<u8, String>,
    /// What it printed on standard output.
    pub stdout: Vec<u8>,
    /// How it failed, if it did.
    pub failure: Option<ProgramFailure>,
    /// The last lines that it wrote to standard error, if it failed.
    pub output: Vec<String>,
}

/// The state of a node's benchmark.
enum State {
    Running,
    AtCue(String),
    Over(Ended),
}

/// One node's benchmark, shared by its thread and the coordinator.
struct Participant {
    node: String,
    state: Mutex<State>,
    /// The command's input, once it has started.
    sender: OnceLock<CommandSender>,
}

/// Runs the same benchmark on every node. `stdin` goes to its standard input before the answers to its cues, and must
/// fit into a [window](niclab_agent::message::WINDOW_BYTES). Calls `at_cue` when all running benchmarks stopped at the
/// same cue.
///
/// # Errors
/// [`crate::boot::running::Failure`] if the cluster ends, [`ConductError`], or an error of `at_cue`.
pub fn conduct(
    running: &mut RunningCluster,
    argv: &[String],
    stdin: &[u8],
    limit: Duration,
    at_cue: &mut dyn FnMut(&mut RunningCluster, &str) -> Result<()>,
) -> Result<Vec<Ended>> {
    let deadline = Deadline::after(limit);
    let participants = start(running, argv, stdin);
    loop {
        if let Some(ended) = all_over(&participants) {
            running.check_guests()?;
            return Ok(ended);
        }
        if let Some(cue) = common_cue(&participants)? {
            at_cue(running, &cue)?;
            participants.iter().try_for_each(|participant| participant.resume())?;
            // `at_cue` may have consumed the event of a change, so check again.
            continue;
        }
        // Any event may mean that a benchmark stopped or ended.
        if running.next_event(deadline)?.is_none() {
            return Err(ConductError::TimedOut { limit, nodes: unfinished(&participants) }.into());
        }
    }
}

fn start(running: &RunningCluster, argv: &[String], stdin: &[u8]) -> Vec<Arc<Participant>> {
    let nodes = running.plan().nodes.iter().zip(running.agents());
    nodes
        .map(|(node, agent)| {
            let participant = Arc::new(Participant::new(&node.name));
            let exec = Exec { argv: argv.to_vec(), ..Exec::default() };
            let follower = Follower {
                participant: Arc::clone(&participant),
                events: running.sender(),
                mark: ConsoleMark::now(&node.console),
                stdout: Vec::new(),
                line: Vec::new(),
                last: LastLines::default(),
                status: None,
            };
            let (agent, stdin) = (Arc::clone(agent), stdin.to_vec());
            thread::spawn(move || follower.follow(&agent, exec, &stdin));
            participant
        })
        .collect()
}

/// The ends of all benchmarks. If one fails, this does not wait for the others: they would wait for it.
fn all_over(participants: &[Arc<Participant>]) -> Option<Vec<Ended>> {
    let mut ended = Vec::new();
    let (mut is_any_running, mut has_any_failed) = (false, false);
    for participant in participants {
        if let State::Over(over) = &*participant.state() {
            has_any_failed |= over.code != Ok(0);
            ended.push(over.clone());
        } else {
            is_any_running = true;
            ended.push(Ended::without_code("another node's benchmark failed"));
        }
    }
    (!is_any_running || has_any_failed).then_some(ended)
}

/// The names of the nodes whose benchmark has not ended.
fn unfinished(participants: &[Arc<Participant>]) -> String {
    let running = participants.iter().filter(|one| !matches!(&*one.state(), State::Over(_)));
    running.map(|one| one.node.as_str()).collect::<Vec<_>>().join(", ")
}

/// The cue at which all running benchmarks stopped; `None` if one has not stopped, or none is left.
fn common_cue(participants: &[Arc<Participant>]) -> Result<Option<String>, ConductError> {
    let mut common: Option<(String, String)> = None;
    for participant in participants {
        match (&*participant.state(), &common) {
            (State::Running, _) => return Ok(None),
            (State::AtCue(cue), None) => common = Some((participant.node.clone(), cue.clone())),
            (State::AtCue(cue), Some(one)) if one.1 != *cue => {
                let other = (participant.node.clone(), cue.clone());
                return Err(ConductError::OutOfStep { one: one.clone(), other });
            }
            (State::AtCue(_), Some(_)) | (State::Over(_), _) => {}
        }
    }
    Ok(common.map(|(_, cue)| cue))
}

impl Ended {
    fn without_code(why: &str) -> Self {
        Self { code: Err(why.to_owned()), stdout: Vec::new(), failure: None, output: Vec::new() }
    }
}

impl Participant {
    fn new(node: &str) -> Self {
        Self { node: node.to_owned(), state: Mutex::new(State::Running), sender: OnceLock::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No thread panics while it holds the lock; if one did, the state would still be valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers the cue, if the benchmark stopped at one.
    fn resume(&self) -> Result<(), ConductError> {
        let mut state = self.state();
        let (State::AtCue(_), Some(sender)) = (&*state, self.sender.get()) else { return Ok(()) };
        // Before the answer: the benchmark may stop again at once.
        *state = State::Running;
        drop(state);
        let sent = sender.send(ToGuest::Stdin(GO.to_vec()));
        sent.map_err(|error| ConductError::Answer { node: self.node.clone(), error })
    }
}

/// Receives the output of one node's benchmark, on a thread of its own.
struct Follower {
    participant: Arc<Participant>,
    events: Sender<Event>,
    /// The end of the guest's console when the benchmark began.
    mark: ConsoleMark,
    stdout: Vec<u8>,
    line: Vec<u8>,
    /// The end of its standard error, without cues.
    last: LastLines,
    status: Option<ExitStatus>,
}

impl Follower {
    fn follow(mut self, agent: &Arc<AgentClient>, exec: Exec, stdin: &[u8]) {
        let code = self.run(agent, exec, stdin).map_err(|error| error.to_string());
        let stdout = std::mem::take(&mut self.stdout);
        let failure = self.status.and_then(|status| self.mark.failure(status));
        let output = if failure.is_some() { self.last.lines() } else { Vec::new() };
        self.enter(State::Over(Ended { code, stdout, failure, output }));
    }

    fn enter(&self, state: State) {
        *self.participant.state() = state;
        // If the receiver is gone, the cluster is being taken down.
        let _ = self.events.send(Event::Performance);
    }

    fn run(&mut self, agent: &Arc<AgentClient>, exec: Exec, stdin: &[u8]) -> Result<u8, AgentError> {
        let command = agent.exec(exec)?;
        for piece in stdin.chunks(DATA_BYTES) {
            command.sender().send(ToGuest::Stdin(piece.to_vec()))?;
        }
        let _ = self.participant.sender.set(command.sender().clone());
        let ended = command.follow(|output| {
            match output {
                Output::Stdout(bytes) => {
                    let room = MAX_OUTPUT_BYTES.saturating_sub(self.stdout.len());
                    self.stdout.extend(bytes.iter().take(room));
                }
                Output::Stderr(bytes) => bytes.iter().for_each(|byte| self.on_stderr(*byte)),
            }
            Ok::<_, AgentError>(())
        })?;
        match ended {
            Ok(status) => {
                self.end_line();
                self.status = Some(status);
                Ok(status.shell_code())
            }
            Err(refusal) => {
                eprintln!("niclab: {}: {}", self.participant.node, refusal.message);
                Ok(refusal.code)
            }
        }
    }

    fn on_stderr(&mut self, byte: u8) {
        if byte == b'\n' || self.line.len() == MAX_LINE_BYTES {
            self.end_line();
        }
        if byte != b'\n' {
            self.line.push(byte);
        }
    }

    /// Handles a complete line: a cue, or a message to the user.
    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        match line.strip_prefix(PREFIX) {
            Some(cue) => self.enter(State::AtCue(cue.to_owned())),
            None if line.is_empty() => {}
            None => {
                self.last.push(format!("{line}\n").as_bytes());
                eprintln!("{}: {line}", self.participant.node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn participants(states: Vec<State>) -> Vec<Arc<Participant>> {
        let participant = |(rank, state)| {
            let participant = Participant::new(&format!("node{rank}"));
            *participant.state() = state;
            Arc::new(participant)
        };
        states.into_iter().enumerate().map(participant).collect()
    }

    fn at(cue: &str) -> State {
        State::AtCue(cue.to_owned())
    }

    fn over(code: u8) -> State {
        State::Over(Ended { code: Ok(code), stdout: Vec::new(), failure: None, output: Vec::new() })
    }

    #[test]
    fn cue_is_common_when_no_benchmark_runs() {
        let cue = |states| common_cue(&participants(states)).unwrap();
        assert_eq!(cue(vec![at("warm"), State::Running]), None);
        assert_eq!(cue(vec![at("warm"), at("warm"), over(0)]).as_deref(), Some("warm"));
        assert_eq!(cue(vec![over(0), over(0)]), None);
    }

    #[test]
    fn nodes_at_different_cues_are_named() {
        let error = common_cue(&participants(vec![at("warm"), at("measured")])).unwrap_err().to_string();
        assert!(error.contains("node0 stopped at the cue `warm`, and node1 at `measured`"), "{error}");
    }

    #[test]
    fn nodes_that_did_not_end_in_time_are_named() {
        assert_eq!(unfinished(&participants(vec![over(0), State::Running, at("warm")])), "node1, node2");
    }

    #[test]
    fn failed_benchmark_ends_all() {
        assert!(all_over(&participants(vec![over(0), State::Running])).is_none());
        let ended = all_over(&participants(vec![over(3), at("warm")])).unwrap();
        assert_eq!(ended[0].code, Ok(3));
        assert!(ended[1].code.is_err());
        assert!(all_over(&participants(vec![over(0), over(0)])).is_some());
    }

    #[test]
    fn only_a_cue_line_stops_its_benchmark() {
        let (events, happened) = mpsc::channel();
        let participant = Arc::new(Participant::new("node0"));
        let mut follower = Follower {
            participant: Arc::clone(&participant),
            events,
            mark: ConsoleMark::now(std::path::Path::new("")),
            stdout: Vec::new(),
            line: Vec::new(),
            last: LastLines::default(),
            status: None,
        };
        let mut say = |text: &str| text.bytes().for_each(|byte| follower.on_stderr(byte));
        say("a word of niclab-perf: cue warm\nniclab-perf: cue wa");
        assert!(happened.try_recv().is_err() && matches!(*participant.state(), State::Running));
        say("rm\n");
        assert!(happened.try_recv().is_ok());
        assert!(matches!(&*participant.state(), State::AtCue(cue) if cue == "warm"));
        assert_eq!(follower.last.lines(), ["a word of niclab-perf: cue warm"], "a cue is no message");
    }
}
