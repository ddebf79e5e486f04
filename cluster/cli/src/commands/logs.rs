//! `niclab logs`: what a node wrote to its console, or the messages of its QEMU or of the daemon.

use std::{
    fs::File,
    io::{self, Write},
    path::PathBuf,
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use niclab_cluster::host::runtime::{Condition, RuntimeRoot};

use crate::arguments::LogsArgs;

/// How often `--follow` checks for new messages.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// Prints the messages. Works also for a cluster that ended by itself.
///
/// # Errors
/// When there is no such cluster or node.
pub fn run(args: &LogsArgs) -> Result<u8> {
    let root = RuntimeRoot::locate()?;
    let name = &args.name.name;
    let path = log_of(&root, args)?;
    let mut file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    loop {
        let mut stdout = niclab_output::stdout();
        io::copy(&mut file, &mut stdout)?;
        stdout.flush()?;
        if !args.follow || !root.is_alive(name) {
            return Ok(0);
        }
        drop(stdout);
        thread::sleep(FOLLOW_INTERVAL);
    }
}

fn log_of(root: &RuntimeRoot, args: &LogsArgs) -> Result<PathBuf> {
    let name = &args.name.name;
    // A cluster that ended still has its logs. For any other state, `folder_of` has the error.
    let folder = match root.condition(name)? {
        Condition::Dead => root.folder(name),
        _ => super::folder_of(name)?,
    };
    let plan = super::read_plan(&folder)?;
    if args.node == "daemon" {
        return Ok(plan.daemon.log);
    }
    let node = plan.node(&args.node).with_context(|| {
        let names: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
        format!("there is no node `{}`; there are {}, and `daemon`", args.node, names.join(", "))
    })?;
    Ok(if args.qemu { node.qemu.log.clone() } else { node.console.clone() })
}
