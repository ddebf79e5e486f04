//! The file a report is to be written to, opened before the run so that a wrong path is not found out after it.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use niclab_spec::Report;
use thiserror::Error;

/// The report cannot be written.
#[derive(Debug, Error)]
#[error("the report cannot be written to {}: {error}; name another file (--report-file)", path.display())]
pub struct ReportFileError {
    path: PathBuf,
    #[source]
    error: io::Error,
}

/// An open file. A run that fails leaves what stood there before: no file, or an earlier report.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
    file: File,
    /// Nothing stood there before, and nothing was written yet.
    is_litter: bool,
}

impl ReportFile {
    /// Opens it, and leaves its content alone.
    ///
    /// # Errors
    /// [`ReportFileError`].
    pub fn open(path: &Path) -> Result<Self, ReportFileError> {
        let failed = |error| ReportFileError { path: path.to_owned(), error };
        // In one step: what is there at the next one may be another's, and a link that leads nowhere is there, too.
        let (file, is_litter) = match OpenOptions::new().write(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                (OpenOptions::new().write(true).create(true).truncate(false).open(path), false)
            }
            made => (made, true),
        };
        Ok(Self { path: path.to_owned(), file: file.map_err(failed)?, is_litter })
    }

    /// Writes the report in place of what stood there.
    ///
    /// # Errors
    /// [`ReportFileError`].
    pub fn write(mut self, report: &Report) -> Result<(), ReportFileError> {
        let result = self.replace(report);
        self.is_litter &= result.is_err();
        result.map_err(|error| ReportFileError { path: self.path.clone(), error })
    }

    fn replace(&mut self, report: &Report) -> io::Result<()> {
        // A pipe or a terminal has no length, and is none to be cut.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(report.to_json().as_bytes())?;
        self.file.flush()
    }
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        let same = |there: Metadata, own: Metadata| (there.dev(), there.ino()) == (own.dev(), own.ino());
        let there = fs::symlink_metadata(&self.path).ok().zip(self.file.metadata().ok());
        // Somebody may have put another file there meanwhile.
        if self.is_litter && there.is_some_and(|(there, own)| same(there, own)) {
            // Whoever removed it at this moment did the same.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::sample;

    #[test]
    fn a_report_replaces_what_stood_there_and_a_failed_run_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        drop(ReportFile::open(&path).unwrap());
        assert!(!path.exists(), "a run that failed leaves no empty file");
        fs::write(&path, "x".repeat(1 << 20)).unwrap();
        drop(ReportFile::open(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20, "nor does it take the earlier report away");
        ReportFile::open(&path).unwrap().write(&sample()).unwrap();
        assert_eq!(Report::read(&path).unwrap(), sample());
    }

    #[test]
    fn a_run_that_failed_removes_nothing_but_what_it_made() {
        let folder = tempfile::tempdir().unwrap();
        let (link, path) = (folder.path().join("link"), folder.path().join("r.json"));
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        drop(ReportFile::open(&link).unwrap());
        assert!(fs::symlink_metadata(&link).is_ok(), "the link was there before");
        let file = ReportFile::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another's").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"another's");
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named_with_the_mend() {
        let error = ReportFile::open(Path::new("/no/such/r.json")).unwrap_err().to_string();
        assert!(error.contains("/no/such/r.json") && error.contains("--report-file"), "{error}");
    }
}
