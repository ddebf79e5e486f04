//! `niclab match`: programs of the match unit, run and debugged by a program of the device's side.

use std::{os::unix::process::ExitStatusExt as _, process::Command};

use anyhow::{Context, Result};
use niclab_images::Terminal;

use crate::{
    cli::MatchArgs,
    process::die_with_owner,
    tools::{self, MATCH_UNIT},
};

/// Passes everything on: arguments, input and output, and the code.
///
/// # Errors
/// When the program is missing or does not start.
pub fn run(args: &MatchArgs) -> Result<u8> {
    let program = tools::locate(MATCH_UNIT, args.offline, &Terminal::new())?;
    let mut command = Command::new(&program);
    command.args(&args.arguments);
    die_with_owner(&mut command);
    let status = command.status().with_context(|| format!("cannot start {}", program.display()))?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(super::OWN_FAILURE))
}
