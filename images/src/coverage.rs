//! Which lines of a driver were carried out, and how often: what the guests' kernel counted, read by the compiler's own
//! tool.

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

/// The compiler's tool, of the compiler that built the module.
const GCOV: &str = "usr/bin/x86_64-linux-gnu-gcov-14";

/// Where coverage cannot be told.
#[derive(Debug, Error)]
pub enum CoverageError {
    /// The module was not built for it.
    #[error(
        "there is no coverage of {0}: it was not built by niclab for a kernel with gcov; `niclab kernel build --with gcov` makes one, \
         and a driver must be given as the folder of its source"
    )]
    NotCounted(String),
    /// The tool fails.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// What it says is not understood.
    #[error("gcov says of {file} what niclab does not understand: {error}")]
    Gcov {
        /// Of which counts.
        file: String,
        /// Why.
        error: serde_json::Error,
    },
    /// A file in between.
    #[error("the counts of {file} cannot be kept: {error}")]
    Keep {
        /// Of which.
        file: String,
        /// Why.
        error: io::Error,
    },
}

/// Counts of one object file, as a guest's kernel gives them: where, below its folder of counts, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Such as `/driver-build/ring.gcda`.
    pub path: String,
    /// The file.
    pub bytes: Vec<u8>,
}

/// What is known of a source file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileCoverage {
    /// Functions: the line of their beginning, and how often each was called.
    pub functions: BTreeMap<String, (u64, u64)>,
    /// Lines that are code, and how often each was carried out.
    pub lines: BTreeMap<u64, u64>,
}

/// Reads counts of a module and adds them, by source file with the user's path. The kernel's own headers are left out.
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
        // Of another module.
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

/// Where a file of counts was in the build. What a guest says is no path to be trusted: only names, one below another.
fn within(path: &str) -> Option<PathBuf> {
    let built = [driver::BUILD, module::BUILD];
    let within =
        built.iter().find_map(|built| path.strip_prefix('/')?.strip_prefix(*built)?.strip_prefix('/'))?;
    let within = Path::new(within);
    within.components().all(|part| matches!(part, Component::Normal(_))).then(|| within.to_owned())
}

/// gcov's JSON, format version 2: what is read of it.
#[derive(Deserialize)]
struct Gcov {
    /// In which the compiler was, to which relative paths belong.
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
            // The kernel's headers are nobody's here.
            if within(&path).is_none() {
                continue;
            }
            let known = into.entry(users_path(&path, users)).or_default();
            for function in &file.functions {
                let (line, count) = known.functions.entry(function.name.clone()).or_default();
                *line = function.start_line;
                *count = count.saturating_add(function.execution_count);
            }
            // A line that is in several functions, as one that is compiled into others, is there several times.
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
    fn a_guest_names_no_file_outside_of_the_build() {
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
    fn counts_are_added_by_the_users_path_and_headers_of_the_kernel_left_out() {
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
