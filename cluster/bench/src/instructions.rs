//! Instructions of niclab's programs per unit of work, counted by valgrind's callgrind. The counts depend on the
//! compiler, but not on the speed or load of the machine.
//!
//! Each work is done twice, the second time with twice the units. The difference excludes the start and end of the
//! program.

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
    /// The valgrind that the user named does not exist.
    #[error("--valgrind: there is no {}; install the package valgrind, or omit the option", .0.display())]
    NoValgrind(PathBuf),
    /// valgrind failed.
    #[error("valgrind --tool=callgrind {work} failed ({how}): {stderr}")]
    Failed {
        /// The work.
        work: String,
        /// How it ended.
        how: String,
        /// Its standard error.
        stderr: String,
    },
    /// valgrind's output lacks something.
    #[error(
        "valgrind --tool=callgrind {work} printed no {what}; check that this is valgrind, and build niclab's programs \
         together"
    )]
    Unreadable {
        /// The work.
        work: String,
        /// What is missing.
        what: &'static str,
    },
}

/// The program whose instructions are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    /// The daemon, in process.
    Device,
    /// A tool.
    Tool(Tool),
}

/// A kind of work, and its amount.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// The end of its figure's name.
    pub name: &'static str,
    /// One unit, in words.
    pub unit: &'static str,
    /// The program that does the work.
    pub program: Program,
    /// The program's arguments after `work`, before the number of units.
    pub arguments: &'static [&'static str],
    /// The smaller of the two numbers of units.
    pub units: u64,
}

/// The works that belong to no model.
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
        let why = "instructions: valgrind was not found in PATH; install the package valgrind, or give one with \
                   --valgrind";
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

/// The valgrind to use: the one that the user names, which must exist, or else the one in `PATH`, if any.
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

    /// Runs the work with `times` times its units.
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

/// The result of one run.
struct Count {
    instructions: u64,
    units: u64,
}

/// The instructions of the whole process in a profile of callgrind: its closing line, or else its header.
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

    /// A fake valgrind that counts 1,000 instructions for the start and 7 per unit, or runs `script`.
    fn fake(script: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("valgrind");
        std::fs::write(&path, format!("#!/bin/sh\nout=${{3#--callgrind-out-file=}}\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        (folder, path)
    }

    #[test]
    fn start_of_the_program_is_not_counted() {
        let (_folder, valgrind) =
            fake("echo \"events: Ir\nfn=(1)\n1 2\ntotals: $((1000 + 7 * $7))\" >\"$out\"; echo \"$7\"");
        assert_eq!(WORK.per_unit(&valgrind, Path::new("/p")).unwrap(), 7.0);
    }

    #[test]
    fn failed_count_names_the_work_and_the_reason() {
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
    fn given_valgrind_must_exist() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("valgrind");
        let refused = valgrind(Some(&path), OsStr::new("")).unwrap_err().to_string();
        assert!(refused.contains("install the package valgrind"), "{refused}");
        assert_eq!(valgrind(None, folder.path().as_os_str()).unwrap(), None);
        std::fs::write(&path, "").unwrap();
        assert_eq!(valgrind(None, folder.path().as_os_str()).unwrap(), Some(path));
    }
}
