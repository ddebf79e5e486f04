//! Errors of cluster files and profiles.
//!
//! A [`Problem`] has the location, the key, what is wrong and how to fix it. The check continues after the first
//! problem, so that a user can fix all in one pass.

use std::{fmt, path::PathBuf};

use thiserror::Error;

/// A cluster file or profile cannot be used.
#[derive(Debug, Error)]
pub enum SpecError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// Values of the file are invalid or unknown.
    #[error("{}", ProblemList(.0))]
    Invalid(Vec<Problem>),
}

/// A location in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLocation {
    /// The file, as the user named it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl fmt::Display for FileLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// One error of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its location; `None` for a value that comes from no file.
    pub location: Option<FileLocation>,
    /// The key (as in `node[1].memory_mib`) or the command-line option that set it. Empty if the file cannot be parsed.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// How to fix it.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(f, "{location}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "`{}`: ", self.key)?;
        }
        write!(f, "{}\n  fix: {}", self.what, self.remedy)
    }
}

struct ProblemList<'a>(&'a [Problem]);

impl fmt::Display for ProblemList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}
