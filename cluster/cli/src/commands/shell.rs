//! `niclab shell`: a login shell on a node.

use std::env;

use anyhow::Result;
use niclab_agent::Exec;
use niclab_cluster::supervisor::control::RemoteCommand;

use super::{folder_of, terminal};
use crate::arguments::ShellArgs;

/// Starts bash if the image has it, else sh.
const LOGIN: &str = "command -v bash >/dev/null && exec bash -l; exec sh -l";

/// Logs in; returns the shell's code.
///
/// # Errors
/// When there is no such cluster or node.
pub fn run(args: &ShellArgs) -> Result<u8> {
    let folder = folder_of(&args.name.name)?;
    let term = env::var("TERM").unwrap_or_else(|_| "linux".to_owned());
    let exec = Exec {
        argv: ["sh", "-c", LOGIN].map(str::to_owned).to_vec(),
        env: [("TERM".to_owned(), term), ("PS1".to_owned(), format!("{}:\\w\\$ ", args.node))].into(),
        cwd: None,
        terminal: Some(terminal::window_size()),
    };
    terminal::attach(RemoteCommand::start(&folder, &args.node, exec)?, true)
}
