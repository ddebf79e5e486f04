//! The executed lines of a driver with their counts. The guests' kernel counts them, and the compiler's own tool reads
//! the counts.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use crate::command::{output, tree_command};
use crate::driver::{self, DriverModule};
use crate::error::ImageError;
use crate::module::{self, NOTES};
use crate::symbols::users_path;

/// gcov of the compiler that built the module.
const GCOV: &str = "usr/bin/x86_64-linux-gnu-gcov-14";

/// Why there is no coverage.
#[derive(Debug, Error)]
pub enum CoverageError {
    /// The module was not built for coverage.
    #[error(
        "there is no coverage of {0}: niclab did not build it for a kernel with gcov; build such a kernel with \
         `niclab kernel build --with gcov`, and give the driver as the folder of its source"
    )]
    NotCounted(String),
    /// gcov fails.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// gcov's output is invalid.
    #[error("niclab cannot read gcov's output for {file}: {error}")]
    Gcov {
        /// The file with counts.
        file: String,
        /// Why.
        error: serde_json::Error,
    },
    /// A temporary file cannot be written.
    #[error("cannot store the counts of {file}: {error}")]
    Keep {
        /// The file with counts.
        file: String,
        /// Why.
        error: io::Error,
    },
}

/// Counts of one object file, as a guest's kernel provides them: its path in the kernel's folder of counts, and its
/// content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Such as `/driver-build/ring.gcda`.
    pub path: String,
    /// The content.
    pub bytes: Vec<u8>,
}

/// The coverage of a source file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileCoverage {
    /// Functions, each with its first line and its number of calls.
    pub functions: BTreeMap<String, (u64, u64)>,
    /// Lines with code, each with its number of executions.
    pub lines: BTreeMap<u64, u64>,
}

/// Reads a module's counts and adds them, by source file with the user's path. The kernel's own headers are omitted.
///
/// # Errors
/// [`CoverageError`].
pub fn coverage(
    kernel: &Path,
    module: &DriverModule,
    counts: &[Counted],
    into: &mut BTreeMap<String, FileCoverage>,
) -> Result<(), CoverageError> {
    let notes = module.file.parent().map(|folder| folder.join(NOTES)).filter(|notes| notes.is_dir());
    let Some(notes) = notes else { return Err(CoverageError::NotCounted(module.name.clone())) };
    let work =
        tempfile::tempdir().map_err(|error| CoverageError::Keep { file: module.name.clone(), error })?;
    for counted in counts {
        let Some(within) = within(&counted.path) else { continue };
        let note = notes.join(&within).with_extension("gcno");
        // Counts of another module.
        if !note.is_file() {
            continue;
        }
        let keep = |error| CoverageError::Keep { file: counted.path.clone(), error };
        let data = work.path().join("counted.gcda");
        fs::write(&data, &counted.bytes).map_err(keep)?;
        fs::copy(&note, data.with_extension("gcno")).map_err(keep)?;
        let mut gcov = tree_command(kernel, GCOV);
        gcov.args(["--json-format", "--stdout"]).arg(&data).current_dir(work.path());
        let said = output(&mut gcov, "reading the driver's coverage")?;
        let said: Gcov = serde_json::from_slice(&said)
            .map_err(|error| CoverageError::Gcov { file: counted.path.clone(), error })?;
        said.add(module.source.as_deref(), into);
    }
    Ok(())
}

/// The path of a file with counts within the build. A guest's path is not trusted: only plain components are accepted.
fn within(path: &str) -> Option<PathBuf> {
    let built = [driver::BUILD, module::BUILD];
    let within =
        built.iter().find_map(|built| path.strip_prefix('/')?.strip_prefix(*built)?.strip_prefix('/'))?;
    let within = Path::new(within);
    within.components().all(|part| matches!(part, Component::Normal(_))).then(|| within.to_owned())
}

/// The fields of gcov's JSON (format version 2) that are used.
#[derive(Deserialize)]
struct Gcov {
    /// The compiler's working folder, for relative paths.
    current_working_directory: PathBuf,
    files: Vec<GcovFile>,
}

#[derive(Deserialize)]
struct GcovFile {
    file: String,
    functions: Vec<GcovFunction>,
    lines: Vec<GcovLine>,
}

#[derive(Deserialize)]
struct GcovFunction {
    name: String,
    start_line: u64,
    execution_count: u64,
}

#[derive(Deserialize)]
struct GcovLine {
    line_number: u64,
    count: u64,
}

impl Gcov {
    fn add(&self, users: Option<&Path>, into: &mut BTreeMap<String, FileCoverage>) {
        for file in &self.files {
            let path = self.current_working_directory.join(&file.file).to_string_lossy().into_owned();
            // Skip the kernel's headers.
            if within(&path).is_none() {
                continue;
            }
            let known = into.entry(users_path(&path, users)).or_default();
            for function in &file.functions {
                let (line, count) = known.functions.entry(function.name.clone()).or_default();
                *line = function.start_line;
                *count = count.saturating_add(function.execution_count);
            }
            // A line occurs once for each function that contains it, for example after inlining.
            for line in &file.lines {
                let count = known.lines.entry(line.line_number).or_default();
                *count = count.saturating_add(line.count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_outside_of_the_build_are_rejected() {
        assert_eq!(within("/driver-build/sub/a.gcda"), Some("sub/a.gcda".into()));
        assert_eq!(within("/build/niclab_net.gcda"), Some("niclab_net.gcda".into()));
        for path in [
            "/driver-build/../../etc/passwd",
            "/driver-build//etc/x",
            "/driver-buildx/a",
            "/usr/src/x.gcda",
            "a",
        ] {
            assert_eq!(within(path), None, "{path}");
        }
    }

    #[test]
    fn counts_are_added_by_path_without_kernel_headers() {
        let text = r#"{"format_version": "2", "current_working_directory": "/usr/src/k", "files": [
            {"file": "/driver-build/a.c", "functions": [{"name": "f", "start_line": 3, "execution_count": 2}],
             "lines": [{"line_number": 4, "count": 2}, {"line_number": 4, "count": 1}, {"line_number": 5, "count": 0}]},
            {"file": "./include/linux/list.h", "functions": [], "lines": [{"line_number": 1, "count": 9}]},
            {"file": "/usr/src/x.h", "functions": [], "lines": [{"line_number": 1, "count": 9}]}]}"#;
        let said: Gcov = serde_json::from_str(text).unwrap();
        let mut found = BTreeMap::new();
        said.add(Some(Path::new("/home/me")), &mut found);
        said.add(Some(Path::new("/home/me")), &mut found);
        let file = &found["/home/me/a.c"];
        assert_eq!((&file.functions["f"], &file.lines[&4], &file.lines[&5]), (&(3, 4), &6, &0));
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
