//! `niclab down`: takes a cluster down, and cleans up after one whose niclab died.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

use crate::{
    cli::DownArgs,
    control::{self, ControlError, Request},
    runtime::RuntimeRoot,
};

/// Longer than a cluster takes to end, guests that hang included.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// How often to look whether the supervisor has ended.
const END_INTERVAL: Duration = Duration::from_millis(20);

/// Takes it down.
///
/// # Errors
/// When there is no such cluster, or it does not end.
pub fn run(args: &DownArgs) -> Result<u8> {
    let root = RuntimeRoot::locate()?;
    if args.all {
        for name in root.names()? {
            down(&root, &name)?;
        }
        return Ok(0);
    }
    let name = &args.name.name;
    if !root.folder(name).exists() {
        super::folder_of(name)?;
    }
    down(&root, name)?;
    Ok(0)
}

fn down(root: &RuntimeRoot, name: &str) -> Result<()> {
    let was_alive = root.is_alive(name);
    if was_alive && let Err(ControlError::Refused(message)) = control::ask(&root.folder(name), &Request::Down)
    {
        bail!("{message}");
    }
    // Whatever it answered, it is down when its supervisor has let go of the folder.
    let deadline = Instant::now() + END_TIMEOUT;
    while !root.clean(name)? {
        if Instant::now() >= deadline {
            bail!(
                "the cluster `{name}` does not end, or a `niclab run` of that name is at work; end that one first"
            );
        }
        thread::sleep(END_INTERVAL);
    }
    eprintln!(
        "niclab: {name} is down{}",
        if was_alive { "" } else { " (it had ended before; its leftovers are gone)" }
    );
    Ok(())
}
