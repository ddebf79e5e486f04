//! Files that a command writes in the place of what stood there before: an image, a waveform.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use thiserror::Error;

/// A file cannot be written, or must not be.
#[derive(Debug, Error)]
pub enum OutputError {
    /// The path names a device, a folder, a pipe or a socket.
    #[error(
        "{} is no regular file, and was left alone\n  mend: name a file that may be replaced, or one that is not there yet",
        .0.display()
    )]
    Special(PathBuf),
    /// The path leads to what is read: its name in another form, or a link.
    #[error(
        "{} and {} are one file, and it was left alone\n  mend: name another file to write", output.display(),
        input.display()
    )]
    Input {
        /// The file to write.
        output: PathBuf,
        /// The file that is read.
        input: PathBuf,
    },
    /// The system refuses.
    #[error("cannot write {}: {error}\n  mend: is its folder there, may it be written, and is there room?", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
}

/// What a command reads or prints to without naming it.
const STREAMS: [&str; 3] = ["/dev/stdin", "/dev/stdout", "/dev/stderr"];

/// An output file that may be replaced: a regular file, or none yet, and not one of the files that the command reads, by
/// whatever name or link. Its content is written beside it, and takes its place at once when it is whole ([`Self::replace`]).
/// Dropped before that, it leaves everything as it was.
#[derive(Debug)]
pub struct OutputFile {
    /// As the user named it.
    path: PathBuf,
    /// The same without links.
    place: PathBuf,
    inputs: Vec<PathBuf>,
    beside: NamedTempFile,
}

impl OutputFile {
    /// Begins to write `path`, which must be none of `inputs`, nor what a standard stream of this process leads to.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn create(path: &Path, inputs: &[&Path]) -> Result<Self, OutputError> {
        let mut inputs: Vec<PathBuf> = inputs.iter().map(|input| input.to_path_buf()).collect();
        inputs.extend(STREAMS.map(PathBuf::from));
        let fail = |error| OutputError::Write { file: path.to_owned(), error };
        let (place, there) = look(path, &inputs)?;
        let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // A new file's permissions follow the umask, as every program's do; one that is replaced keeps its own.
        let mode = there.as_ref().map_or(0o666, |there| there.permissions().mode() & 0o777);
        let permissions = fs::Permissions::from_mode(mode);
        let mut builder = tempfile::Builder::new();
        let beside = builder.prefix(".niclab-").permissions(permissions.clone()).tempfile_in(folder);
        let beside = beside.map_err(fail)?;
        if there.is_some() {
            beside.as_file().set_permissions(permissions).map_err(fail)?;
        }
        Ok(Self { path: path.to_owned(), place, inputs, beside })
    }

    /// Where its content is written.
    ///
    /// # Errors
    /// [`OutputError::Write`].
    pub fn writer(&self) -> Result<File, OutputError> {
        self.beside.reopen().map_err(|error| self.fail(error))
    }

    /// The content is whole: the file appears, in the place of what stood there.
    ///
    /// # Errors
    /// [`OutputError`]; what stood there stays.
    pub fn replace(self) -> Result<(), OutputError> {
        // Much time may have passed: it is looked at anew.
        look(&self.path, &self.inputs)?;
        let Self { path, place, beside, .. } = self;
        match beside.persist(&place) {
            Ok(_) => Ok(()),
            Err(error) => Err(OutputError::Write { file: path, error: error.error }),
        }
    }

    /// What went wrong while its content was written.
    #[must_use]
    pub fn fail(&self, error: io::Error) -> OutputError {
        OutputError::Write { file: self.path.clone(), error }
    }
}

/// Where the file stands, and what is there, if anything is and it may be replaced.
fn look(path: &Path, inputs: &[PathBuf]) -> Result<(PathBuf, Option<Metadata>), OutputError> {
    let fail = |error| OutputError::Write { file: path.to_owned(), error };
    let there = match fs::metadata(path) {
        Ok(there) => there,
        // A link that leads nowhere is something that stands there, too.
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
            return Ok((path.to_owned(), None));
        }
        Err(error) => return Err(fail(error)),
    };
    if !there.is_file() {
        return Err(OutputError::Special(path.to_owned()));
    }
    for input in inputs {
        if fs::metadata(input).is_ok_and(|input| (input.dev(), input.ino()) == (there.dev(), there.ino())) {
            return Err(OutputError::Input { output: path.to_owned(), input: input.clone() });
        }
    }
    // What its owner has made read-only is not to be replaced, although a folder's owner could.
    OpenOptions::new().write(true).open(path).map_err(fail)?;
    Ok((fs::canonicalize(path).map_err(fail)?, Some(there)))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn write(path: &Path, inputs: &[&Path], content: &str) -> Result<(), OutputError> {
        let output = OutputFile::create(path, inputs)?;
        output.writer()?.write_all(content.as_bytes()).map_err(|error| output.fail(error))?;
        output.replace()
    }

    #[test]
    fn a_regular_file_is_replaced_at_once_and_keeps_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.nmi");
        write(&path, &[], "one").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        write(&path, &[], "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        // What a link leads to is replaced, and not the link.
        let link = folder.path().join("link.nmi");
        symlink("a.nmi", &link).unwrap();
        write(&link, &[], "three").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        // What was begun and not ended changes nothing, and leaves nothing.
        drop(OutputFile::create(&path, &[]).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn an_input_is_not_written_by_any_of_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("s.nma");
        fs::write(&source, "nop").unwrap();
        let (soft, hard) = (folder.path().join("soft"), folder.path().join("hard"));
        symlink("s.nma", &soft).unwrap();
        fs::hard_link(&source, &hard).unwrap();
        let dotted = folder.path().join("./s.nma");
        for name in [&source, &dotted, &soft, &hard] {
            let error = write(name, &[Path::new("/none"), &source], "gone").unwrap_err();
            assert!(matches!(error, OutputError::Input { .. }), "{error}");
            assert!(error.to_string().contains("s.nma are one file"), "{error}");
        }
        assert_eq!(fs::read_to_string(&source).unwrap(), "nop");
    }

    #[test]
    fn what_is_no_regular_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let link = folder.path().join("null");
        symlink("/dev/null", &link).unwrap();
        for path in [&socket, &link, Path::new("/dev/null"), folder.path()] {
            let error = write(path, &[], "gone").unwrap_err();
            assert!(matches!(error, OutputError::Special(_)), "{error}");
        }
        let dangling = folder.path().join("dangling");
        symlink("nowhere", &dangling).unwrap();
        for path in [&dangling, &folder.path().join("no/folder"), &socket.join("below")] {
            let error = write(path, &[], "gone").unwrap_err();
            assert!(matches!(error, OutputError::Write { .. }), "{error}");
        }
        // It became an input's other name while it was written.
        let (late, source) = (folder.path().join("late"), folder.path().join("source"));
        fs::write(&source, "nop").unwrap();
        let output = OutputFile::create(&late, &[&source]).unwrap();
        fs::hard_link(&source, &late).unwrap();
        assert!(matches!(output.replace(), Err(OutputError::Input { .. })));
        assert_eq!(fs::read_to_string(&source).unwrap(), "nop");
    }
}
