//! Finds niclab's own programs: the daemon and tools for the host, the agent and the benchmark for the guests.
//!
//! [`Origin`] lists the places, and says which one is used. In a source tree, niclab builds them with cargo if needed.

pub mod simulator;
mod source_tree;

use std::{
    env, io,
    path::{Path, PathBuf},
};

use niclab_images::Progress;
use thiserror::Error;

pub use source_tree::SourceTree;

/// The daemon.
const DEVICE: &str = "niclab-device";
/// The guests' programs.
const GUEST_PROGRAMS: [&str; 2] = ["niclab-agent", "niclab-perf"];
/// The variable that names a folder of all programs.
const VARIABLE: &str = "NICLAB_PROGRAMS";
/// The folder into which the Debian package `niclab` puts the programs.
const PACKAGED: &str = "/usr/lib/niclab";

/// A host program that runs without guests and without the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// The name of its file, and of the binary that cargo builds.
    pub program: &'static str,
    /// Its name in progress messages and errors.
    pub what: &'static str,
}

/// The simulator.
pub const SIMULATOR: Tool = Tool { program: "niclab-sim", what: "the simulator" };

/// One of niclab's programs is not available.
#[derive(Debug, Error)]
pub enum ToolError {
    /// There is neither a source tree nor an installation.
    #[error(
        "cannot find {program}: it is not in {}, and niclab does not build it, because {why}; use the niclab of a \
         source tree or of an unpacked release, or set NICLAB_PROGRAMS to a folder that contains {program}",
        folder.display()
    )]
    Missing {
        /// The program.
        program: &'static str,
        /// The folder that does not contain it.
        folder: PathBuf,
        /// Why niclab does not build it.
        why: String,
    },
    /// Cargo cannot be started.
    #[error("cannot start cargo: {0}; install the Rust toolchain, or add it to PATH")]
    Cargo(#[source] io::Error),
    /// Cargo failed.
    #[error("cargo cannot build {what}:\n{output}")]
    Build {
        /// Name of the program or programs in messages.
        what: &'static str,
        /// Cargo's output.
        output: String,
    },
}

/// The paths of niclab's programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// The daemon.
    pub device: PathBuf,
    /// The guests' programs.
    pub guest: Vec<PathBuf>,
}

/// Where this niclab takes its programs from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The folder that `NICLAB_PROGRAMS` names. niclab builds nothing.
    Variable(PathBuf),
    /// The source tree that this niclab was built from.
    SourceTree(SourceTree),
    /// The folder of this niclab in an unpacked release.
    Release(PathBuf),
    /// The folder of the installed Debian package.
    Package(PathBuf),
    /// Nowhere: this niclab's folder has no other program, and there is no source tree.
    Nowhere {
        /// This niclab's folder.
        folder: PathBuf,
        /// Why there is no source tree.
        why: String,
    },
}

impl Origin {
    /// Finds the origin of this process's programs.
    #[must_use]
    pub fn find() -> Self {
        let variable = env::var_os(VARIABLE).filter(|folder| !folder.is_empty());
        // The kernel has resolved all links on the way to the executable. Without /proc there is no answer.
        let own = env::current_exe().unwrap_or_default();
        variable.map_or_else(|| Self::of(&own), |folder| Self::Variable(folder.into()))
    }

    /// The origin of the programs of the executable `own`.
    fn of(own: &Path) -> Self {
        let folder = own.parent().unwrap_or(Path::new("/"));
        match SourceTree::find(own) {
            Ok(tree) if tree.is_own => Self::SourceTree(tree),
            _ if folder == Path::new(PACKAGED) => Self::Package(folder.to_owned()),
            _ if folder.join(DEVICE).is_file() => Self::Release(folder.to_owned()),
            Ok(tree) => Self::SourceTree(tree),
            Err(why) => Self::Nowhere { folder: folder.to_owned(), why },
        }
    }

    /// The folder of the host's programs and the folder of the guests' programs. A program may be missing there.
    fn folders(&self) -> [PathBuf; 2] {
        match self {
            Self::SourceTree(tree) => [tree.host_folder(), tree.guest_folder()],
            Self::Variable(folder)
            | Self::Release(folder)
            | Self::Package(folder)
            | Self::Nowhere { folder, .. } => [folder.clone(), folder.clone()],
        }
    }

    /// Finds a program of the host or of the guests, and builds none.
    fn existing(&self, program: &'static str) -> Result<PathBuf, ToolError> {
        let [host, guest] = self.folders();
        let folder = if GUEST_PROGRAMS.contains(&program) { guest } else { host };
        let path = folder.join(program);
        let why = || match self {
            Self::Variable(_) => format!("{VARIABLE} is set to this folder"),
            Self::SourceTree(_) => "it was only asked for those that were built already".to_owned(),
            Self::Release(_) => "this niclab belongs to a release".to_owned(),
            Self::Package(_) => "this niclab belongs to the package niclab".to_owned(),
            Self::Nowhere { why, .. } => why.clone(),
        };
        if path.is_file() { Ok(path) } else { Err(ToolError::Missing { program, folder, why: why() }) }
    }

    /// The programs of a cluster, and whether each one exists.
    #[must_use]
    pub fn cluster_programs(&self) -> Vec<(&'static str, bool)> {
        let programs = [DEVICE].into_iter().chain(GUEST_PROGRAMS).chain([SIMULATOR.program]);
        programs.map(|program| (program, self.existing(program).is_ok())).collect()
    }
}

impl Programs {
    /// Finds the programs, or builds them.
    ///
    /// # Errors
    /// [`ToolError`].
    pub fn locate(offline: bool, progress: &dyn Progress) -> Result<Self, ToolError> {
        match Origin::find() {
            Origin::SourceTree(tree) => tree.build(offline, progress),
            origin => Self::existing(&origin),
        }
    }

    /// Finds all programs, and builds none.
    fn existing(origin: &Origin) -> Result<Self, ToolError> {
        let guest = GUEST_PROGRAMS.into_iter().map(|program| origin.existing(program));
        Ok(Self { guest: guest.collect::<Result<_, _>>()?, device: origin.existing(DEVICE)? })
    }
}

/// Finds a tool, or builds it.
///
/// # Errors
/// [`ToolError`].
pub fn locate(tool: Tool, offline: bool, progress: &dyn Progress) -> Result<PathBuf, ToolError> {
    match Origin::find() {
        Origin::SourceTree(tree) => tree.build_tool(tool, offline, progress),
        origin => origin.existing(tool.program),
    }
}

/// Finds the daemon if it was already built. This function builds nothing.
#[must_use]
pub fn built_device() -> Option<PathBuf> {
    Origin::find().existing(DEVICE).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn error_names_the_missing_program_the_reason_and_the_fix() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("niclab-agent"), "").unwrap();
        let error = Programs::existing(&Origin::Variable(folder.path().to_owned())).unwrap_err().to_string();
        assert!(error.contains("niclab-perf") && error.contains("NICLAB_PROGRAMS is set"), "{error}");
        let nowhere = Origin::Nowhere { folder: "/nowhere".into(), why: "reason".to_owned() };
        let error = nowhere.existing(SIMULATOR.program).unwrap_err().to_string();
        assert!(["niclab-sim", "/nowhere", "reason"].iter().all(|word| error.contains(word)), "{error}");
    }

    #[test]
    fn programs_next_to_niclab_come_before_the_source_tree() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("niclab");
        // The command alone, as `cargo install` leaves it.
        assert!(matches!(Origin::of(&own), Origin::SourceTree(tree) if !tree.is_own));
        for program in [DEVICE, GUEST_PROGRAMS[0], GUEST_PROGRAMS[1]] {
            fs::write(folder.path().join(program), "").unwrap();
        }
        let origin = Origin::of(&own);
        assert_eq!(origin, Origin::Release(folder.path().to_owned()));
        let programs = Programs::existing(&origin).unwrap();
        assert!(programs.guest.iter().chain([&programs.device]).all(|path| path.starts_with(folder.path())));
        let missing: Vec<_> =
            origin.cluster_programs().into_iter().filter(|(_, is_there)| !is_there).collect();
        assert_eq!(missing, [("niclab-sim", false)]);
    }

    #[test]
    fn niclab_in_the_packages_folder_belongs_to_the_package() {
        assert_eq!(Origin::of(Path::new("/usr/lib/niclab/niclab")), Origin::Package(PACKAGED.into()));
    }

    #[test]
    fn niclab_of_a_target_folder_belongs_to_a_source_tree() {
        assert!(matches!(Origin::of(&env::current_exe().unwrap()), Origin::SourceTree(tree) if tree.is_own));
    }
}
