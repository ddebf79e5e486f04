//! `niclab match`: programs of the match unit, run and debugged by a program of the device's side.

use std::{os::unix::process::ExitStatusExt as _, process::Command};

use anyhow::{Context, Result};
use niclab_cluster::host::exit_code::OWN_FAILURE;
use niclab_cluster::{
    host::process::die_with_owner,
    programs::{self, MATCH_UNIT},
};
use niclab_images::Terminal;

use crate::arguments::MatchArgs;

/// Passes everything on: arguments, input and output, and the code.
///
/// # Errors
/// When the program is missing or does not start.
pub fn run(args: &MatchArgs) -> Result<u8> {
    let program = programs::locate(MATCH_UNIT, args.offline, &Terminal::new())?;
    let mut command = Command::new(&program);
    command.args(&args.arguments);
    die_with_owner(&mut command);
    let status = command.status().with_context(|| format!("cannot start {}", program.display()))?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(OWN_FAILURE))
}
