//! Conducts benchmarks in guests: lets all begin together, and reads every counter while nothing but the benchmark's own
//! messages lies in between.
//!
//! A conducted `niclab-perf` stops at each cue, a line on its standard error, until a line comes on its standard input. Its
//! cues are those of `guest-driver/tools/src/cue.rs`.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::Sender},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use niclab_agent::{Exec, ToGuest, ToHost};
use thiserror::Error;

use crate::{
    agent_client::{AgentClient, AgentError, CommandHandle, CommandSender},
    running::{Event, Failure, RunningCluster},
};

/// How the line of a cue begins.
const PREFIX: &str = "niclab-perf: cue ";

/// What answers a cue.
const GO: &[u8] = b"go\n";

/// The most that is kept of what a benchmark prints: more than any prints.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// The longest line on standard error that is kept whole.
const MAX_LINE_BYTES: usize = 4096;

/// Benchmarks did not perform together.
#[derive(Debug, Error)]
pub enum ConductError {
    /// Two nodes are at different places.
    #[error("{} stopped at the cue `{}`, and {} at `{}`: they run different benchmarks", .one.0, .one.1, .other.0, .other.1)]
    OutOfStep {
        /// A node and its cue.
        one: (String, String),
        /// Another.
        other: (String, String),
    },
    /// A node could not be told to go on.
    #[error("cannot answer the cue of {node}: {error}")]
    Answer {
        /// The node.
        node: String,
        /// Why.
        #[source]
        error: AgentError,
    },
}

/// How a node's benchmark ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit code, or why it has none.
    pub code: Result<u8, String>,
    /// What it printed on standard output.
    pub stdout: Vec<u8>,
}

/// Where a node's benchmark is.
enum State {
    Performing,
    AtCue(String, CommandSender),
    Over(Ended),
}

type Shared = Arc<Mutex<State>>;

/// Runs the same benchmark on every node. `at_cue` is called when all that perform stopped at the same cue.
///
/// # Errors
/// [`Failure`] when the cluster ends or `limit` passes, [`ConductError`], or what `at_cue` says.
pub fn conduct(
    running: &mut RunningCluster,
    argv: &[String],
    limit: Duration,
    at_cue: &mut dyn FnMut(&mut RunningCluster, &str) -> Result<()>,
) -> Result<Vec<Ended>> {
    let deadline = Instant::now() + limit;
    let players = start(running, argv);
    loop {
        if let Some(ended) = all_over(&players) {
            return Ok(ended);
        }
        if let Some(cue) = common_cue(running, &players)? {
            at_cue(running, &cue)?;
            go_on(running, &players)?;
            // Whatever happened meanwhile may have taken its event along.
            continue;
        }
        // Any event may be the one that somebody stopped or ended.
        if running.next_event(deadline)?.is_none() {
            return Err(Failure::TimedOut(limit).into());
        }
    }
}

fn start(running: &RunningCluster, argv: &[String]) -> Vec<Shared> {
    let nodes = running.plan().nodes.iter().zip(running.agents());
    nodes
        .map(|(node, agent)| {
            let state = Arc::new(Mutex::new(State::Performing));
            let exec = Exec { argv: argv.to_vec(), env: node.env.clone(), ..Exec::default() };
            let player = Player {
                node: node.name.clone(),
                state: Arc::clone(&state),
                sender: running.sender(),
                stdout: Vec::new(),
                line: Vec::new(),
            };
            let agent = Arc::clone(agent);
            thread::spawn(move || player.follow(&agent, exec));
            state
        })
        .collect()
}

fn lock(state: &Shared) -> MutexGuard<'_, State> {
    // Nothing panics while it holds the lock; if it did, the state would still be whole.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How all ended, once all did. A benchmark that failed ends the others: they would wait for it.
fn all_over(players: &[Shared]) -> Option<Vec<Ended>> {
    let mut ended = Vec::new();
    let mut is_any_performing = false;
    for player in players {
        match &*lock(player) {
            State::Over(over) => ended.push(over.clone()),
            State::Performing | State::AtCue(..) => {
                is_any_performing = true;
                ended.push(Ended {
                    code: Err("another node's benchmark failed".to_owned()),
                    stdout: Vec::new(),
                });
            }
        }
    }
    let has_failed = |player: &Shared| matches!(&*lock(player), State::Over(over) if over.code != Ok(0));
    (!is_any_performing || players.iter().any(has_failed)).then_some(ended)
}

/// The cue at which all stopped that are not over; none while one performs or when none is left.
fn common_cue(running: &RunningCluster, players: &[Shared]) -> Result<Option<String>, ConductError> {
    let mut common: Option<(String, String)> = None;
    for (player, node) in players.iter().zip(&running.plan().nodes) {
        match (&*lock(player), &common) {
            (State::Performing, _) => return Ok(None),
            (State::Over(_), _) => {}
            (State::AtCue(cue, _), None) => common = Some((node.name.clone(), cue.clone())),
            (State::AtCue(cue, _), Some(one)) if one.1 != *cue => {
                let other = (node.name.clone(), cue.clone());
                return Err(ConductError::OutOfStep { one: one.clone(), other });
            }
            (State::AtCue(..), Some(_)) => {}
        }
    }
    Ok(common.map(|(_, cue)| cue))
}

fn go_on(running: &RunningCluster, players: &[Shared]) -> Result<(), ConductError> {
    for (player, node) in players.iter().zip(&running.plan().nodes) {
        let mut state = lock(player);
        let sender = match &*state {
            State::AtCue(_, sender) => sender.clone(),
            State::Performing | State::Over(_) => continue,
        };
        // Before it can stop again.
        *state = State::Performing;
        drop(state);
        let sent = sender.send(ToGuest::Stdin(GO.to_vec()));
        sent.map_err(|error| ConductError::Answer { node: node.name.clone(), error })?;
    }
    Ok(())
}

/// Follows one node's benchmark, on a thread of its own.
struct Player {
    node: String,
    state: Shared,
    sender: Sender<Event>,
    stdout: Vec<u8>,
    line: Vec<u8>,
}

impl Player {
    fn follow(mut self, agent: &Arc<AgentClient>, exec: Exec) {
        let code = self.carry(agent, exec).map_err(|error| error.to_string());
        let stdout = std::mem::take(&mut self.stdout);
        self.turn_into(State::Over(Ended { code, stdout }));
    }

    fn turn_into(&self, state: State) {
        *lock(&self.state) = state;
        // If nobody listens any more, the cluster is being taken down.
        let _ = self.sender.send(Event::Performance);
    }

    fn carry(&mut self, agent: &Arc<AgentClient>, exec: Exec) -> Result<u8, AgentError> {
        let command = agent.exec(exec)?;
        loop {
            let bytes = match command.next()? {
                ToHost::Stdout(bytes) => {
                    let room = MAX_OUTPUT_BYTES.saturating_sub(self.stdout.len());
                    self.stdout.extend(bytes.iter().take(room));
                    bytes
                }
                ToHost::Stderr(bytes) => {
                    bytes.iter().for_each(|byte| self.on_stderr(*byte, &command));
                    bytes
                }
                ToHost::Exit(status) => {
                    self.end_line(&command);
                    return Ok(status.shell_code());
                }
                ToHost::Refused(refusal) => {
                    eprintln!("niclab: {}: {}", self.node, refusal.message);
                    return Ok(refusal.code);
                }
                _ => continue,
            };
            // The command may have ended meanwhile; its exit comes next.
            let _ = command.sender().send(ToGuest::Credit(u32::try_from(bytes.len()).unwrap_or(u32::MAX)));
        }
    }

    fn on_stderr(&mut self, byte: u8, command: &CommandHandle) {
        if byte == b'\n' || self.line.len() == MAX_LINE_BYTES {
            self.end_line(command);
        }
        if byte != b'\n' {
            self.line.push(byte);
        }
    }

    /// A line is whole: a cue, or something for the user.
    fn end_line(&mut self, command: &CommandHandle) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        match line.strip_prefix(PREFIX) {
            Some(cue) => self.turn_into(State::AtCue(cue.to_owned(), command.sender().clone())),
            None if line.is_empty() => {}
            None => eprintln!("{}: {line}", self.node),
        }
    }
}
