//! Runs `niclab-processors`, which compares the match unit with processors.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use niclab_cluster::{host::process::die_with_owner, programs};
use niclab_images::Terminal;

/// The program.
pub const COMPARISON: programs::Tool =
    programs::Tool { program: "niclab-processors", what: "the processors to compare with" };

/// The program's output with these arguments.
///
/// # Errors
/// When the program cannot be found or built, or fails.
pub fn output(arguments: &[&str], offline: bool) -> Result<Vec<u8>> {
    let program = programs::locate(COMPARISON, offline, &Terminal::new())?;
    let name = program.display();
    let mut command = Command::new(&program);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::piped());
    die_with_owner(&mut command);
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{name} {} failed ({}): {}", arguments.join(" "), output.status, stderr.trim());
    }
    Ok(output.stdout)
}
