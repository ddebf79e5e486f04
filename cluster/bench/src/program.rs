//! Runs benchmarks of niclab's other programs, which print JSON.

use std::{
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use niclab_cluster::host::process::die_with_owner;
use serde_json::Value;
use thiserror::Error;

/// Another program's benchmark failed.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// The program does not start.
    #[error("cannot start {}: {error}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The program failed.
    #[error("{} {command} failed ({how}): {stderr}", program.display())]
    Failed {
        /// The program.
        program: PathBuf,
        /// Its arguments.
        command: String,
        /// How it ended.
        how: String,
        /// Its standard error.
        stderr: String,
    },
    /// The program's output lacks something.
    #[error("{} {command} printed no JSON with {key}; build niclab's programs together", program.display())]
    Unreadable {
        /// The program.
        program: PathBuf,
        /// Its arguments.
        command: String,
        /// What is missing.
        key: &'static str,
    },
}

/// Runs `program` with `arguments`, and reads the JSON that it prints.
///
/// # Errors
/// [`ProgramError`].
pub fn json(program: &Path, arguments: &[&str]) -> Result<Value, ProgramError> {
    let command = || arguments.join(" ");
    let mut process = Command::new(program);
    process.args(arguments).stdin(Stdio::null()).stderr(Stdio::piped());
    die_with_owner(&mut process);
    let output =
        process.output().map_err(|error| ProgramError::Start { program: program.to_owned(), error })?;
    if !output.status.success() {
        return Err(ProgramError::Failed {
            program: program.to_owned(),
            command: command(),
            how: output.status.to_string(),
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    serde_json::from_slice(&output.stdout).map_err(|_| unreadable(program, arguments, "a version"))
}

/// The error if a program's output lacks `key`.
pub fn unreadable(program: &Path, arguments: &[&str], key: &'static str) -> ProgramError {
    ProgramError::Unreadable { program: program.to_owned(), command: arguments.join(" "), key }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_benchmark_is_reported_with_its_output() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("device");
        std::fs::write(&program, "#!/bin/sh\necho \"no room for $*\" >&2\nexit 3\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let error = json(&program, &["bench", "--json", "--testpmd", "/t/testpmd"]).unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(error.contains("no room for bench --json --testpmd /t/testpmd"), "{error}");
        assert!(json(Path::new("/no/such/device"), &[]).unwrap_err().to_string().contains("/no/such/device"));
    }
}
