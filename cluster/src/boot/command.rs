//! Runs commands on nodes and returns their output.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::Result;
use niclab_agent::{Exec, ExitStatus, ToGuest};
use thiserror::Error;

use crate::host::deadline::Deadline;
use crate::{
    boot::running::{Event, RunningCluster},
    guests::agent::{AgentClient, AgentError, Output},
    plan::NodePlan,
};

/// Maximum number of bytes that the launcher keeps of a command's output; no benchmark prints more.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// The numbers of commands in [`Event::CommandOver`], unique to each run. After a failure, the launcher does not wait
/// for the other commands, so they may end during the next run. `niclab run` numbers its commands by rank, below these.
static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(1 << 20);

/// A command returned no result.
#[derive(Debug, Error)]
pub enum CommandError {
    /// It exited with an error.
    #[error("`{command}` failed on {node} with code {code}: {stderr}")]
    Failed {
        /// The command line.
        command: String,
        /// The node.
        node: String,
        /// Its exit code.
        code: u8,
        /// Its standard error.
        stderr: String,
    },
    /// It cannot be run.
    #[error("`{command}` cannot be run on {node}: {error}")]
    Agent {
        /// The command line.
        command: String,
        /// The node.
        node: String,
        /// Why.
        error: String,
    },
    /// It ran longer than allowed.
    #[error("`{command}` had not ended after {} s", limit.as_secs())]
    TimedOut {
        /// The command line of the first command.
        command: String,
        /// The time limit.
        limit: Duration,
    },
}

/// One command on one node.
#[derive(Clone, Debug)]
pub struct NodeCommand {
    /// The node.
    pub rank: usize,
    /// Program and arguments.
    pub argv: Vec<String>,
}

impl NodeCommand {
    /// A line for the node's shell, which finds `arguments` as `$1`, `$2` and so on.
    #[must_use]
    pub fn shell(rank: usize, script: &str, arguments: &[String]) -> Self {
        let fixed = ["sh", "-c", script, "sh"].map(str::to_owned);
        Self { rank, argv: fixed.into_iter().chain(arguments.iter().cloned()).collect() }
    }
}

#[derive(Debug, Default)]
struct KeptOutput {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Runs the commands at the same time, waits for all of them, and returns the standard output of each.
///
/// # Errors
/// [`CommandError`] of the first that fails, or [`crate::boot::running::Failure`] if the cluster ends.
pub fn run(running: &mut RunningCluster, commands: &[NodeCommand], limit: Duration) -> Result<Vec<String>> {
    let deadline = Deadline::after(limit);
    let agents: Vec<Arc<AgentClient>> = running.agents().cloned().collect();
    let mut threads = Vec::new();
    let first = NEXT_NUMBER.fetch_add(commands.len(), Ordering::Relaxed);
    for (index, command) in commands.iter().enumerate() {
        let exec = Exec { argv: command.argv.clone(), ..Exec::default() };
        let (agent, sender) = (agents.get(command.rank).cloned(), running.sender());
        threads.push(thread::spawn(move || {
            let mut output = KeptOutput::default();
            let gone = || AgentError::Gone("there is no such node".to_owned());
            let code = agent.ok_or_else(gone).and_then(|agent| run_on(&agent, exec, &mut output));
            // If the receiver is gone, the cluster is being taken down.
            let _ = sender.send(Event::CommandOver(first + index, code.map_err(|error| error.to_string())));
            output
        }));
    }
    let mut codes = vec![None; commands.len()];
    while codes.iter().any(Option::is_none) {
        match running.next_event(deadline)? {
            Some(Event::CommandOver(number, result)) => {
                let failed = result != Ok(0);
                let slot = number.checked_sub(first).and_then(|index| codes.get_mut(index));
                let Some(slot) = slot else { continue };
                *slot = Some(result);
                if failed {
                    // The others may depend on the failed command, so the launcher does not wait for them.
                    break;
                }
            }
            Some(_) => {}
            None => {
                let command = commands.first().map(line).unwrap_or_default();
                return Err(CommandError::TimedOut { command, limit }.into());
            }
        }
    }
    outputs(running, commands, codes, threads)
}

/// As [`run`], the same command on every node that has not ended. Returns the output by rank, `None` for a node that
/// has ended.
///
/// # Errors
/// As [`run`].
pub fn run_on_all(
    running: &mut RunningCluster,
    command: impl Fn(usize, &NodePlan) -> NodeCommand,
    limit: Duration,
) -> Result<Vec<Option<String>>> {
    let nodes = running.plan().nodes.iter().enumerate();
    let nodes = nodes.filter(|(rank, _)| !running.ended_nodes().contains_key(rank));
    let commands: Vec<NodeCommand> = nodes.map(|(rank, node)| command(rank, node)).collect();
    let mut texts = vec![None; running.plan().nodes.len()];
    for (command, text) in commands.iter().zip(run(running, &commands, limit)?) {
        if let Some(slot) = texts.get_mut(command.rank) {
            *slot = Some(text);
        }
    }
    Ok(texts)
}

fn outputs(
    running: &RunningCluster,
    commands: &[NodeCommand],
    codes: Vec<Option<Result<u8, String>>>,
    threads: Vec<thread::JoinHandle<KeptOutput>>,
) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for ((command, code), thread) in commands.iter().zip(codes).zip(threads) {
        // A command has no code if another one failed before it ended.
        let Some(code) = code else { continue };
        let output = thread.join().unwrap_or_default();
        let node = running.plan().nodes.get(command.rank).map(|node| node.name.clone()).unwrap_or_default();
        let line = line(command);
        match code {
            Ok(0) => texts.push(String::from_utf8_lossy(&output.stdout).into_owned()),
            Ok(code) => {
                let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(CommandError::Failed { command: line, node, code, stderr }.into());
            }
            Err(error) => return Err(CommandError::Agent { command: line, node, error }.into()),
        }
    }
    Ok(texts)
}

fn line(command: &NodeCommand) -> String {
    command.argv.join(" ")
}

fn run_on(agent: &Arc<AgentClient>, exec: Exec, kept: &mut KeptOutput) -> Result<u8, AgentError> {
    let command = agent.exec(exec)?;
    command.sender().send(ToGuest::StdinEnd)?;
    let ended = command.follow(|output| {
        let (bytes, kept) = match output {
            Output::Stdout(bytes) => (bytes, &mut kept.stdout),
            Output::Stderr(bytes) => (bytes, &mut kept.stderr),
        };
        let room = MAX_OUTPUT_BYTES.saturating_sub(kept.len());
        kept.extend(bytes.iter().take(room));
        Ok::<_, AgentError>(())
    })?;
    Ok(ended.map(ExitStatus::shell_code).unwrap_or_else(|refusal| {
        kept.stderr.extend(refusal.message.bytes());
        refusal.code
    }))
}
