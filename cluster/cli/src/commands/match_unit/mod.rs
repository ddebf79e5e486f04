//! `niclab asm`, `disasm` and `match`: assemble and disassemble programs of the match unit. `niclab-match`, a program
//! of the device packages, runs and debugs them.

mod asm;
mod disasm;

use std::{os::unix::process::ExitStatusExt as _, process::Command};

use anyhow::{Context, Result};
use niclab_cluster::host::exit_code::OWN_FAILURE;
use niclab_cluster::{host::process::die_with_owner, programs};
use niclab_images::Terminal;

use crate::match_unit::{MatchArgs, Tool};

/// The program that runs the match unit.
const MATCH_UNIT: programs::Tool = programs::Tool { program: "niclab-match", what: "the match unit" };

/// Runs the tool.
///
/// # Errors
/// With a message for the user.
pub fn run(tool: &Tool) -> Result<u8> {
    match tool {
        Tool::Asm(args) => asm::run(args),
        Tool::Disasm(args) => disasm::run(args),
        Tool::Match(args) => run_program(args),
    }
}

/// Runs `niclab-match` with the user's arguments, input and output; returns its code.
fn run_program(args: &MatchArgs) -> Result<u8> {
    let program = programs::locate(MATCH_UNIT, args.offline, &Terminal::new())?;
    let mut command = Command::new(&program);
    command.args(&args.arguments);
    die_with_owner(&mut command);
    let status = command.status().with_context(|| format!("cannot start {}", program.display()))?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(OWN_FAILURE))
}
