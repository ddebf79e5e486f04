//! `niclab down`: shuts a cluster down, and cleans up after a cluster whose niclab died.

use std::{thread, time::Duration};

use anyhow::{Result, bail};
use niclab_cluster::host::deadline::Deadline;
use niclab_cluster::{
    host::{
        process::{ExitWaiter, ProcessId},
        runtime::{Condition, RuntimeError, RuntimeRoot},
    },
    supervisor::control::{self, ControlError, Request, SUPERVISE},
};
use niclab_spec::ClusterName;
use rustix::process::Signal;

use super::no_cluster;
use crate::arguments::DownArgs;

/// How often to check whether the owner has ended.
const END_INTERVAL: Duration = Duration::from_millis(20);

/// How long a killed owner may take to exit; the kernel then ends its children. A process that reads from a stalled
/// disk cannot be killed until the disk answers.
const KILLED_TIMEOUT: Duration = Duration::from_secs(60);

/// Shuts one cluster down, or all.
///
/// # Errors
/// When there is no such cluster, or it does not end.
pub fn run(args: &DownArgs) -> Result<u8> {
    let root = RuntimeRoot::locate()?;
    let within = Duration::from_secs(args.within);
    if !args.all {
        down(&root, &args.name.name, within)?;
        return Ok(0);
    }
    root.sweep();
    let mut first_error = None;
    for name in root.names()? {
        if let Err(error) = down(&root, &name, within) {
            // Still shut the other clusters down.
            eprintln!("niclab: {name}: {}", niclab_spec::explain(error.as_ref()));
            first_error = first_error.or(Some(error));
        }
    }
    first_error.map_or(Ok(0), Err)
}

fn down(root: &RuntimeRoot, name: &ClusterName, within: Duration) -> Result<()> {
    let remark = match root.condition(name)? {
        Condition::Absent => return Err(no_cluster(root, name)?),
        Condition::Foreign(why) => {
            return Err(RuntimeError::NotACluster { path: root.folder(name), why }.into());
        }
        Condition::Dead if root.clean(name)? => " (it had ended before; niclab removed its files)",
        // A new cluster of this name may have been booted in this moment.
        Condition::Dead | Condition::Alive => end(root, name, within)?,
    };
    eprintln!("niclab: {name} is down{remark}");
    Ok(())
}

/// Ends a cluster whose owner lives: by a request, then by SIGTERM, then by SIGKILL.
fn end(root: &RuntimeRoot, name: &ClusterName, within: Duration) -> Result<&'static str> {
    let deadline = Deadline::after(within);
    let folder = root.folder(name);
    let owner = root.owner(name);
    if let Some(owner) = owner.filter(|owner| !is_supervisor(*owner)) {
        bail!("a `niclab run` (process {}) owns the cluster `{name}`; end that process instead", owner.pid);
    }
    let awaited = owner.and_then(ExitWaiter::new);
    match control::ask_within(&folder, &Request::Down, within) {
        Ok(_) => {}
        Err(ControlError::Refused(message)) => bail!("{message}"),
        // The cluster still boots, or hangs, or its socket is gone.
        Err(error) => match owner {
            Some(owner) => owner.signal(Signal::TERM),
            None if root.is_alive(name) => {
                bail!("{error}, and /proc does not have the process that owns the cluster `{name}`")
            }
            None => {}
        },
    }
    // The cluster is down when its owner has released the folder. The owner exits directly after that; then nothing is
    // left.
    if is_cleaned(root, name, deadline)? {
        let has_ended = awaited.is_none_or(|owner| owner.has_ended_within(KILLED_TIMEOUT));
        return Ok(if has_ended { "" } else { " (its niclab process has not ended yet)" });
    }
    if let Some(owner) = root.owner(name) {
        owner.signal(Signal::KILL);
    }
    if is_cleaned(root, name, Deadline::after(KILLED_TIMEOUT))? {
        return Ok(" (its niclab did not end it in time and was killed)");
    }
    bail!("the cluster `{name}` does not end, although its niclab process was killed")
}

/// Whether the process is a supervisor, which owns a cluster of `niclab up`.
fn is_supervisor(process: ProcessId) -> bool {
    let arguments = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
    arguments.split(|&byte| byte == 0).nth(1) == Some(SUPERVISE.as_bytes())
}

fn is_cleaned(root: &RuntimeRoot, name: &ClusterName, deadline: Deadline) -> Result<bool> {
    loop {
        if root.clean(name)? {
            return Ok(true);
        }
        if deadline.is_over() {
            return Ok(false);
        }
        thread::sleep(END_INTERVAL);
    }
}
