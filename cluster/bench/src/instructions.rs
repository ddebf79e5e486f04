//! Instructions that niclab's own programs take for a unit of work, counted by valgrind's callgrind: a figure that
//! depends on the compiler, and neither on how fast the machine is nor on who else uses it.
//!
//! Each work is done twice, once twice as long. The difference is free of what starting and ending a program takes.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};
use niclab_cluster::host::process::die_with_owner;
use niclab_cluster::programs::{self, Programs, SIMULATOR, Tool};
use niclab_images::Terminal;
use thiserror::Error;

use super::{
    Measured, Options,
    figure::{Clock, Figure},
};

/// Why instructions could not be counted.
#[derive(Debug, Error)]
pub enum CountError {
    /// The named valgrind is not there.
    #[error("--valgrind: there is no {}; install the package valgrind, or leave the option out", .0.display())]
    NoValgrind(PathBuf),
    /// It ran, and failed.
    #[error("valgrind --tool=callgrind {work} failed ({how}): {stderr}")]
    Failed {
        /// What it was to run.
        work: String,
        /// How it ended.
        how: String,
        /// What it said.
        stderr: String,
    },
    /// It said nothing that can be used.
    #[error(
        "valgrind --tool=callgrind {work} gave no {what}; is it a valgrind, and were niclab's programs built together?"
    )]
    Unreadable {
        /// What it was to run.
        work: String,
        /// What is missing.
        what: &'static str,
    },
}

/// Whose work is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    /// The daemon, in process.
    Device,
    /// A tool.
    Tool(Tool),
}

/// A work, and how much of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// How its figure's name ends.
    pub name: &'static str,
    /// One unit, in words.
    pub unit: &'static str,
    /// Whose it is.
    pub program: Program,
    /// What the program is told behind `work`, before the number of units.
    pub arguments: &'static [&'static str],
    /// The smaller of the two numbers of units.
    pub units: u64,
}

/// What is of no model.
const WORKS: &[Work] = &[
    Work {
        name: "ethernet",
        unit: "a frame of 64 bytes of the Ethernet function, both ends",
        program: Program::Device,
        arguments: &["ethernet"],
        units: 10_000,
    },
    Work {
        name: "simulated_event",
        unit: "an event of the simulator, 16 nodes",
        program: Program::Tool(SIMULATOR),
        arguments: &["16"],
        units: 20,
    },
];

/// Counts the instructions of all works.
///
/// # Errors
/// [`CountError`], or when a program cannot be found or built.
pub(crate) fn measure(options: &Options, of_models: impl Iterator<Item = &'static Work>) -> Result<Measured> {
    let path = env::var_os("PATH").unwrap_or_default();
    let Some(valgrind) = valgrind(options.valgrind.as_deref(), &path)? else {
        let why = "instructions: there is no valgrind in PATH; install the package valgrind, or name one with --valgrind";
        return Ok(Measured { left_out: vec![why.to_owned()], ..Measured::default() });
    };
    let device = Programs::locate(options.cluster.offline, &Terminal::new())?.device;
    let figures = of_models.chain(WORKS).map(|work| {
        let program = match work.program {
            Program::Device => device.clone(),
            Program::Tool(tool) => programs::locate(tool, options.cluster.offline, &Terminal::new())?,
        };
        let (what, name) = (work.unit.to_owned(), format!("instructions_{}", work.name));
        let per_unit = work.per_unit(&valgrind, &program)?;
        Ok(Figure::new(&name, &what, Clock::None, "instructions", vec![per_unit]))
    });
    Ok(Measured { figures: figures.collect::<Result<_>>()?, ..Measured::default() })
}

/// The valgrind that is used: the one that is named, which must be there, else the one in `PATH`, if there is any.
fn valgrind(named: Option<&Path>, path: &OsStr) -> Result<Option<PathBuf>, CountError> {
    match named {
        Some(named) if named.is_file() => Ok(Some(named.to_owned())),
        Some(named) => Err(CountError::NoValgrind(named.to_owned())),
        None => Ok(env::split_paths(path).map(|folder| folder.join("valgrind")).find(|file| file.is_file())),
    }
}

impl Work {
    fn per_unit(&self, valgrind: &Path, program: &Path) -> Result<f64> {
        let (short, long) = (self.count(valgrind, program, 1)?, self.count(valgrind, program, 2)?);
        let units = long.units.saturating_sub(short.units).max(1);
        Ok(long.instructions.saturating_sub(short.instructions) as f64 / units as f64)
    }

    /// Has the work done so many `times` over.
    fn count(&self, valgrind: &Path, program: &Path, times: u64) -> Result<Count> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let profile = folder.path().join("profile");
        let units = (self.units * times).to_string();
        let work = || format!("{} work {} {units}", program.display(), self.arguments.join(" "));
        let mut command = Command::new(valgrind);
        command
            .args(["--tool=callgrind", "--quiet"])
            .arg(format!("--callgrind-out-file={}", profile.display()))
            .arg(program)
            .arg("work")
            .args(self.arguments)
            .arg(&units)
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        die_with_owner(&mut command);
        let output = command.output().with_context(|| format!("cannot start {}", valgrind.display()))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(CountError::Failed { work: work(), how: output.status.to_string(), stderr }.into());
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        let unreadable = |what| CountError::Unreadable { work: work(), what };
        let units = printed.trim().parse().map_err(|_| unreadable("number of units"))?;
        let profile = std::fs::read_to_string(&profile).map_err(|_| unreadable("profile"))?;
        let instructions = instructions(&profile).ok_or_else(|| unreadable("count of instructions"))?;
        Ok(Count { instructions, units })
    }
}

/// One run.
struct Count {
    instructions: u64,
    units: u64,
}

/// What a profile of callgrind's says that the whole process took: its closing line, or its header where there is no
/// such line.
fn instructions(profile: &str) -> Option<u64> {
    let value = |key: &str| profile.lines().find_map(|line| line.strip_prefix(key));
    value("totals:").or_else(|| value("summary:"))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const WORK: Work =
        Work { name: "w", unit: "a unit", program: Program::Device, arguments: &["slices"], units: 100 };

    /// A valgrind that takes 1,000 instructions to start, and 7 for each unit; or does what `script` says.
    fn fake(script: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("valgrind");
        std::fs::write(&path, format!("#!/bin/sh\nout=${{3#--callgrind-out-file=}}\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        (folder, path)
    }

    #[test]
    fn what_starting_takes_is_not_counted() {
        let (_folder, valgrind) =
            fake("echo \"events: Ir\nfn=(1)\n1 2\ntotals: $((1000 + 7 * $7))\" >\"$out\"; echo \"$7\"");
        assert_eq!(WORK.per_unit(&valgrind, Path::new("/p")).unwrap(), 7.0);
    }

    #[test]
    fn a_count_that_cannot_be_made_says_of_what_and_why() {
        let said = |script: &str| {
            let (_folder, valgrind) = fake(script);
            WORK.per_unit(&valgrind, Path::new("/p/device")).unwrap_err().to_string()
        };
        let failed = said("echo \"no room\" >&2; exit 3");
        assert!(failed.contains("/p/device work slices 100") && failed.contains("no room"), "{failed}");
        assert!(said("echo 100").contains("no profile"));
        assert!(said("echo x; echo >\"$out\"").contains("no number of units"));
        assert!(said("echo 100; echo events: Ir >\"$out\"").contains("no count of instructions"));
    }

    #[test]
    fn a_valgrind_that_is_named_must_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("valgrind");
        let refused = valgrind(Some(&path), OsStr::new("")).unwrap_err().to_string();
        assert!(refused.contains("install the package valgrind"), "{refused}");
        assert_eq!(valgrind(None, folder.path().as_os_str()).unwrap(), None);
        std::fs::write(&path, "").unwrap();
        assert_eq!(valgrind(None, folder.path().as_os_str()).unwrap(), Some(path));
    }
}
