//! `niclab down`: takes a cluster down, and cleans up after one whose niclab died.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
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

/// How often to look whether the owner has ended.
const END_INTERVAL: Duration = Duration::from_millis(20);

/// How long a killed owner may take to be gone; the kernel ends its children with it. While the host's disk stands
/// still, a process that reads from it cannot be killed.
const KILLED_TIMEOUT: Duration = Duration::from_secs(60);

/// Takes it down.
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
            // The others are taken down all the same.
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
        Condition::Dead if root.clean(name)? => " (it had ended before; its leftovers are gone)",
        // Of this moment: somebody booted it anew.
        Condition::Dead | Condition::Alive => end(root, name, within)?,
    };
    eprintln!("niclab: {name} is down{remark}");
    Ok(())
}

/// Ends a cluster whose owner lives: asks it, then tells it, then kills it.
fn end(root: &RuntimeRoot, name: &ClusterName, within: Duration) -> Result<&'static str> {
    let deadline = Instant::now() + within;
    let folder = root.folder(name);
    let owner = root.owner(name);
    if let Some(owner) = owner.filter(|owner| !is_supervisor(*owner)) {
        bail!("a `niclab run` (process {}) of the name `{name}` is at work; end that one", owner.pid);
    }
    let awaited = owner.and_then(ExitWaiter::new);
    match control::ask_within(&folder, &Request::Down, within) {
        Ok(_) => {}
        Err(ControlError::Refused(message)) => bail!("{message}"),
        // It boots still, or hangs, or its socket is gone.
        Err(error) => match owner {
            Some(owner) => owner.signal(Signal::TERM),
            None if root.is_alive(name) => {
                bail!("{error}, and the process that keeps the cluster `{name}` cannot be found in /proc")
            }
            None => {}
        },
    }
    // Whatever it answered, it is down when its owner has let go of the folder; and nothing of it is left once it has
    // ended, which is the next that it does.
    if is_cleaned(root, name, deadline)? {
        let has_ended = awaited.is_none_or(|owner| owner.has_ended_within(KILLED_TIMEOUT));
        return Ok(if has_ended { "" } else { " (its niclab has still to end)" });
    }
    if let Some(owner) = root.owner(name) {
        owner.signal(Signal::KILL);
    }
    if is_cleaned(root, name, Instant::now() + KILLED_TIMEOUT)? {
        return Ok(" (its niclab did not end it in time, and was killed)");
    }
    bail!("the cluster `{name}` does not end, though its niclab was killed")
}

/// Whether the process is the one by which `niclab up` keeps a cluster.
fn is_supervisor(process: ProcessId) -> bool {
    let arguments = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
    arguments.split(|&byte| byte == 0).nth(1) == Some(SUPERVISE.as_bytes())
}

fn is_cleaned(root: &RuntimeRoot, name: &ClusterName, deadline: Instant) -> Result<bool> {
    loop {
        if root.clean(name)? {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        thread::sleep(END_INTERVAL);
    }
}
