//! Makes a template: boots one guest without a card, and saves it.

use std::{
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use niclab_agent::{Exec, ExitStatus, ToGuest, ToHost};
use niclab_images::{ImageError, Progress};
use thiserror::Error;

use super::{
    Recipe,
    memory::GuestMemory,
    saved::{CONSOLE, Saved},
};
use crate::host::deadline::Deadline;
use crate::{
    guests::{
        agent::{AgentClient, AgentError},
        qmp::{Qmp, QmpError},
    },
    host::process::{Process, SpawnError, Streams, tail},
    plan::{
        PlanError,
        qemu::{Arguments, MemorySource},
        recipe::STATE,
    },
};

/// Time limit for a guest's boot until its agent answers. It boots alone; the slowest machine that we measured took 20
/// s.
const BOOT_TIMEOUT: Duration = Duration::from_secs(180);

/// Time limit for clearing free memory, and for each MiB of it. An emulated guest on a busy machine clears 12 MiB per
/// second.
const CLEAR_TIMEOUT: Duration = Duration::from_secs(60);
const CLEAR_TIMEOUT_PER_MIB: Duration = Duration::from_millis(100);

/// Time limit for QEMU to save its state, which is less than a megabyte.
const SAVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Lines of the console and of QEMU's messages that an error shows.
const TAIL_LINES: usize = 8;

/// The command that clears the guest's free memory, so that the template does not contain it.
const CLEAR: [&str; 2] = ["niclab-agent", "--release-memory"];

/// QEMU's messages, next to the template while it is made.
const LOG: &str = "qemu.log";

/// A template cannot be made.
#[derive(Debug, Error)]
pub enum TemplateError {
    /// The cache cannot be used.
    #[error(transparent)]
    Cache(#[from] ImageError),
    /// QEMU does not start.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// A path cannot be passed to QEMU.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The guest does not come up.
    #[error("its guest did not come up: {error}; the end of its console and of QEMU's log:\n{words}")]
    Guest {
        /// The error of the agent's connection.
        #[source]
        error: AgentError,
        /// The end of its console and of QEMU's messages.
        words: String,
    },
    /// The command in the guest failed.
    #[error("its guest cannot clear its free memory: {0}")]
    Clear(String),
    /// QEMU does not save.
    #[error("QEMU cannot save its state: {0}")]
    Save(#[from] QmpError),
    /// A file cannot be written.
    #[error("it cannot be written to the cache: {0}")]
    Store(#[source] io::Error),
}

/// Makes a template in `folder`, which is empty. The caller removes it on failure.
pub fn build(recipe: &Recipe, folder: &Path, progress: &dyn Progress) -> Result<(), TemplateError> {
    let name = "template of a booted guest";
    progress.started(name);
    let begin = Instant::now();
    let made = Guest::boot(recipe, folder).and_then(|guest| {
        progress.detail(name, "saving");
        guest.save(folder)
    });
    made?;
    progress.done(name, begin.elapsed());
    Ok(())
}

/// The guest that is to be saved.
struct Guest {
    qemu: Process,
    control: UnixStream,
    agent: Arc<AgentClient>,
    memory: GuestMemory,
    memory_mib: u32,
    /// Factor on all time limits.
    timeout_factor: u32,
}

impl Guest {
    fn boot(recipe: &Recipe, folder: &Path) -> Result<Self, TemplateError> {
        let memory = GuestMemory::zeroed(recipe.memory_bytes()).map_err(TemplateError::Store)?;
        // Connected sockets have no names, so neither a long path nor another niclab interferes.
        let (agent, agents_end) = UnixStream::pair().map_err(TemplateError::Store)?;
        let (control, controls_end) = UnixStream::pair().map_err(TemplateError::Store)?;
        let mut args = Arguments::default();
        args.memory(recipe.memory_mib, MemorySource::StandardInput);
        args.console(&folder.join(CONSOLE))?;
        args.agent_over(&agents_end);
        args.control_over(&controls_end);
        if recipe.has_share {
            // Any folder: the guest mounts nothing before it becomes a node.
            args.share(folder)?;
        }
        let mut plan = recipe.qemu.clone();
        plan.log = folder.join(LOG);
        plan.args.extend(args.0);
        let input = Streams::Input(memory.descriptor().map_err(TemplateError::Store)?);
        let qemu = Process::spawn("template", &plan, input, &[agents_end.as_fd(), controls_end.as_fd()])?;
        // Only QEMU holds these ends from now on, so that its end closes the connections.
        drop((agents_end, controls_end));
        let deadline = Deadline::after(BOOT_TIMEOUT * recipe.timeout_factor);
        let agent = AgentClient::over(agent, deadline).map_err(|error| {
            let words = [CONSOLE, LOG].map(|file| tail(&folder.join(file), TAIL_LINES)).join("\n");
            TemplateError::Guest { error, words }
        })?;
        let memory_mib = recipe.memory_mib;
        Ok(Self { qemu, control, agent, memory, memory_mib, timeout_factor: recipe.timeout_factor })
    }

    fn save(self, folder: &Path) -> Result<(), TemplateError> {
        let limit = CLEAR_TIMEOUT + CLEAR_TIMEOUT_PER_MIB * self.memory_mib;
        clear_free_memory(&self.agent, limit * self.timeout_factor)?;
        let mut control = Qmp::over(self.control, SAVE_TIMEOUT)?;
        control.save(&folder.join(STATE), SAVE_TIMEOUT)?;
        // The guest is stopped, so its memory no longer changes.
        drop(self.qemu);
        Saved::write(folder, &self.memory).map_err(TemplateError::Store)
    }
}

fn clear_free_memory(agent: &Arc<AgentClient>, limit: Duration) -> Result<(), TemplateError> {
    let deadline = Deadline::after(limit);
    let exec = Exec { argv: CLEAR.map(str::to_owned).to_vec(), ..Exec::default() };
    let failed = |error: AgentError| TemplateError::Clear(error.to_string());
    let command = agent.exec(exec).map_err(failed)?;
    let mut said = Vec::new();
    loop {
        match command.next_until(deadline).map_err(failed)? {
            ToHost::Exit(ExitStatus::Code(0)) => return Ok(()),
            ToHost::Exit(status) => {
                let said = String::from_utf8_lossy(&said);
                return Err(TemplateError::Clear(format!("exit code {}: {said}", status.shell_code())));
            }
            ToHost::Refused(refusal) => return Err(TemplateError::Clear(refusal.message)),
            ToHost::Stdout(bytes) | ToHost::Stderr(bytes) => {
                let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                // The command may have ended; its exit comes next.
                let _ = command.sender().send(ToGuest::Credit(length));
                said = bytes;
            }
            _ => {}
        }
    }
}
