//! The hidden `niclab manuals`: writes a manual page for each command, and completions for shells, into a folder.

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::arguments::Cli;

/// The shells that get completions.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Fish, Shell::Zsh];

/// Writes all files.
///
/// # Errors
/// If a file cannot be written.
pub fn run(folder: &Path) -> Result<u8> {
    let failed = || format!("cannot write manuals into {}", folder.display());
    clap_mangen::generate_to(Cli::command(), folder).with_context(failed)?;
    for shell in SHELLS {
        clap_complete::generate_to(shell, &mut Cli::command(), "niclab", folder).with_context(failed)?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_command_has_a_page_and_each_shell_completions() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path()).unwrap();
        for name in ["niclab.bash", "_niclab", "niclab.fish"] {
            assert!(fs::read_to_string(folder.path().join(name)).unwrap().contains("doctor"), "{name}");
        }
        for page in ["niclab", "niclab-run", "niclab-driver-build"] {
            assert!(folder.path().join(format!("{page}.1")).is_file(), "{page}");
        }
        assert!(!folder.path().join("niclab-supervise.1").exists());
    }
}
