//! `niclab exec`: runs a command on a node of a running cluster.

use std::env;

use anyhow::Result;
use niclab_agent::Exec;
use niclab_cluster::supervisor::control::RemoteCommand;

use super::{folder_of, terminal};
use crate::arguments::ExecArgs;

/// Runs the command and returns its code.
///
/// # Errors
/// When there is no such cluster or node.
pub fn run(args: ExecArgs) -> Result<u8> {
    let folder = folder_of(&args.name.name)?;
    let mut exec = Exec { argv: args.command, ..Exec::default() };
    if args.tty {
        exec.terminal = Some(terminal::window_size());
        exec.env.extend(env::var("TERM").ok().map(|term| ("TERM".to_owned(), term)));
    }
    terminal::attach(RemoteCommand::start(&folder, &args.node, exec)?, args.tty)
}
