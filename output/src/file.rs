//! Files that commands write: images, reports, captures.

use std::error::Error;
use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, access, fcntl_getfl, fcntl_setfl, linkat, openat};
use rustix::io::Errno;
use tempfile::NamedTempFile;
use thiserror::Error;

/// The prefix of a file that is not complete yet.
const PREFIX: &str = ".niclab-";

/// The path that means standard output.
const DASH: &str = "-";

/// A file cannot or must not be written.
#[derive(Debug, Error)]
pub enum OutputError {
    /// The path names a folder, a block device or a socket.
    #[error(
        "{} is neither a regular file nor a character device nor a FIFO, so niclab did not change it\n  fix: choose \
         another file",
        .0.display()
    )]
    Special(PathBuf),
    /// The path leads to a file that the command reads: another form of its name, or a link.
    #[error(
        "{} and {} are the same file, which is an input, so niclab did not change it\n  fix: choose another file to \
         write", output.display(),
        input.display()
    )]
    Input {
        /// The file to write.
        output: PathBuf,
        /// The file that is read.
        input: PathBuf,
    },
    /// Two outputs of one command lead to the same file.
    #[error("{} is named for two outputs of this command\n  fix: give each its own file", .0.display())]
    Twice(PathBuf),
    /// The path means standard output, which has the command's own text.
    #[error(
        "{} is standard output, which has this command's own text\n  fix: give a file or a FIFO; for a file with the \
         name `-`, write `./-`",
        .0.display()
    )]
    Stdout(PathBuf),
    /// The reader of a FIFO or of standard output has closed it.
    #[error("the reader of {} has closed it", .0.display())]
    ReaderGone(PathBuf),
    /// The system reports an error.
    #[error("cannot write {}: {error}\n  fix: check that its folder exists and is writable, and that the disk is not \
             full", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
}

/// All files of a command that cannot be written.
#[derive(Debug, Error)]
pub struct OutputErrors(pub Vec<OutputError>);

impl fmt::Display for OutputErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join("\n"))
    }
}

/// The standard streams, which a process uses without naming them.
const STREAMS: [&str; 3] = ["/dev/stdin", "/dev/stdout", "/dev/stderr"];

/// Whether an output may be standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdout {
    /// `-` and `/dev/stdout` mean standard output.
    Allowed,
    /// The command prints its own text there, so an output must not use it.
    Taken,
}

/// An output of a command, opened before the command's work begins. It is never a file that the command reads,
/// under any name or link.
///
/// A regular file is written as a file without a name in the same folder, which replaces the path atomically when it is
/// complete ([`Self::finish`]). If dropped before that, the output changes nothing. A character device, a FIFO and
/// standard output are written in place, at once.
#[derive(Debug)]
pub struct OutputFile {
    /// The path as the user named it.
    path: PathBuf,
    inputs: Vec<PathBuf>,
    target: Target,
    is_reader_gone: Arc<AtomicBool>,
}

#[derive(Debug)]
enum Target {
    /// A regular file, by its path without links.
    Regular {
        place: PathBuf,
        content: Content,
    },
    Stream(File),
}

/// The content of a regular file.
#[derive(Debug)]
enum Content {
    /// A file without a name, which vanishes with the process, even if it is killed.
    Unnamed(File),
    /// For file systems that have no files without a name.
    Named(NamedTempFile),
}

/// The kind of file at a path.
enum Found {
    Nothing,
    Regular(PathBuf, Metadata),
    Stream,
    Stdout,
}

impl OutputFile {
    /// Opens the output `path`, which must be none of `inputs`, and not standard output. For a FIFO, waits until a
    /// program opens it for reading.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn create(path: &Path, inputs: &[&Path]) -> Result<Self, OutputError> {
        Self::create_with(path, inputs, Stdout::Taken)
    }

    /// As [`Self::create`]; `stdout` says whether the output may be standard output.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn create_with(path: &Path, inputs: &[&Path], stdout: Stdout) -> Result<Self, OutputError> {
        let inputs: Vec<PathBuf> = inputs.iter().map(|input| input.to_path_buf()).collect();
        let fail = |error| OutputError::Write { file: path.to_owned(), error };
        let target = match examine(path, &inputs, stdout)? {
            Found::Nothing => Target::Regular { place: path.to_owned(), content: Content::new(path, None)? },
            Found::Regular(place, there) => {
                let content = Content::new(&place, Some(&there))?;
                Target::Regular { place, content }
            }
            Found::Stream => Target::Stream(open_stream(path)?),
            Found::Stdout => {
                Target::Stream(io::stdout().as_fd().try_clone_to_owned().map(File::from).map_err(fail)?)
            }
        };
        Ok(Self { path: path.to_owned(), inputs, target, is_reader_gone: Arc::default() })
    }

    /// Whether the content is written in place, at once.
    #[must_use]
    pub const fn is_stream(&self) -> bool {
        matches!(self.target, Target::Stream(_))
    }

    /// The path as the user named it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A writer for the content, unbuffered. All writers of a file share a position.
    ///
    /// # Errors
    /// [`OutputError::Write`].
    pub fn writer(&self) -> Result<OutputWriter, OutputError> {
        let file = match &self.target {
            Target::Regular { content: Content::Unnamed(file), .. } | Target::Stream(file) => file,
            Target::Regular { content: Content::Named(file), .. } => file.as_file(),
        };
        let file = file.try_clone().map_err(|error| self.fail(error))?;
        Ok(OutputWriter { file, is_reader_gone: Arc::clone(&self.is_reader_gone) })
    }

    /// Completes the content: a regular file now appears, and replaces the file at its path.
    ///
    /// # Errors
    /// [`OutputError`]; the file at the path then stays.
    pub fn finish(self) -> Result<(), OutputError> {
        let Target::Regular { place, content } = self.target else { return Ok(()) };
        // Much time may have passed, so the path is checked again.
        if !matches!(examine(&self.path, &self.inputs, Stdout::Taken)?, Found::Nothing | Found::Regular(..)) {
            return Err(OutputError::Special(self.path));
        }
        content.appear_as(&place).map_err(|error| OutputError::Write { file: self.path, error })
    }

    /// Writes the complete content and finishes.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn write(self, content: &[u8]) -> Result<(), OutputError> {
        self.writer()?.write_all(content).map_err(|error| self.fail(error))?;
        self.finish()
    }

    /// Whether a write failed because the reader has closed the stream.
    #[must_use]
    pub fn reader_is_gone(&self) -> bool {
        self.is_reader_gone.load(Ordering::Relaxed)
    }

    /// The error of writing the content.
    #[must_use]
    pub fn fail(&self, error: io::Error) -> OutputError {
        if self.reader_is_gone() {
            return OutputError::ReaderGone(self.path.clone());
        }
        OutputError::Write { file: self.path.clone(), error }
    }
}

/// Whether an error is [`OutputError::ReaderGone`] or has it as a cause; then no message is needed.
#[must_use]
pub fn is_unread(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if matches!(error.downcast_ref(), Some(OutputError::ReaderGone(_))) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Checks whether all of a command's outputs can be written, and returns paths that lead another program to the same
/// files. Opens nothing that would block.
///
/// # Errors
/// All outputs that cannot be written, that are one of `inputs`, or that are named twice.
pub fn probe_all<const N: usize>(
    paths: [Option<&Path>; N],
    inputs: &[&Path],
    stdout: Stdout,
) -> Result<[Option<PathBuf>; N], OutputErrors> {
    let inputs: Vec<PathBuf> = inputs.iter().map(|input| input.to_path_buf()).collect();
    let mut errors = Vec::new();
    let mut places: Vec<PathBuf> = Vec::new();
    for path in paths.into_iter().flatten() {
        let place = place_of(path);
        // Several outputs may share a device; regular files would replace each other.
        let is_device = fs::metadata(path).is_ok_and(|there| there.file_type().is_char_device());
        if !is_device && places.contains(&place) {
            errors.push(OutputError::Twice(path.to_owned()));
        }
        places.push(place);
        errors.extend(probe(path, &inputs, stdout).err());
    }
    if !errors.is_empty() {
        return Err(OutputErrors(errors));
    }
    // A link such as /dev/stdout leads to another file in another process.
    Ok(paths.map(|path| path.map(|path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()))))
}

/// Opens all of a command's outputs before the command does anything. Waits for the reader of a FIFO only if no other
/// output fails.
///
/// # Errors
/// As [`probe_all`].
pub fn create_all<const N: usize>(
    paths: [Option<&Path>; N],
    inputs: &[&Path],
    stdout: Stdout,
) -> Result<[Option<OutputFile>; N], OutputErrors> {
    probe_all(paths, inputs, stdout)?;
    let mut errors = Vec::new();
    let create = |path: &Path| OutputFile::create_with(path, inputs, stdout);
    let files = paths.map(|path| path.and_then(|path| create(path).map_err(|error| errors.push(error)).ok()));
    if errors.is_empty() { Ok(files) } else { Err(OutputErrors(errors)) }
}

/// Checks whether `path` can be written, without opening files that would block.
fn probe(path: &Path, inputs: &[PathBuf], stdout: Stdout) -> Result<(), OutputError> {
    match examine(path, inputs, stdout)? {
        Found::Nothing => Content::new(path, None).map(drop),
        Found::Regular(place, there) => Content::new(&place, Some(&there)).map(drop),
        Found::Stream => access(path, Access::WRITE_OK)
            .map_err(|error| OutputError::Write { file: path.to_owned(), error: error.into() }),
        Found::Stdout => Ok(()),
    }
}

/// The path without links; the file may not exist yet.
fn place_of(path: &Path) -> PathBuf {
    let in_folder = || Some(fs::canonicalize(folder_of(path)).ok()?.join(path.file_name()?));
    fs::canonicalize(path).ok().or_else(in_folder).unwrap_or_else(|| path.to_owned())
}

/// The writer of an [`OutputFile`].
#[derive(Debug)]
pub struct OutputWriter {
    file: File,
    is_reader_gone: Arc<AtomicBool>,
}

impl OutputWriter {
    /// Waits until the reader closes the stream, or until `other` hangs up. Returns true in the first case.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn wait_until_unread(&self, other: impl AsFd) -> io::Result<bool> {
        let other = other.as_fd();
        loop {
            // Without requested events, poll still reports errors and hang-ups.
            let mut fds =
                [PollFd::new(&self.file, PollFlags::empty()), PollFd::new(&other, PollFlags::empty())];
            match poll(&mut fds, None) {
                Err(Errno::INTR) => continue,
                result => result?,
            };
            let is_gone = !fds[0].revents().is_empty();
            if is_gone {
                self.is_reader_gone.store(true, Ordering::Relaxed);
            }
            return Ok(is_gone);
        }
    }
}

impl Write for OutputWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.file.write(bytes);
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            self.is_reader_gone.store(true, Ordering::Relaxed);
        }
        result
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl AsFd for OutputWriter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Content {
    /// Begins the content of the file at `place`, which replaces the file `there`.
    fn new(place: &Path, there: Option<&Metadata>) -> Result<Self, OutputError> {
        let fail = |error| OutputError::Write { file: place.to_owned(), error };
        // A new file's permissions follow the umask; a replaced file keeps its permissions.
        let mode = there.map_or(0o666, |there| there.permissions().mode() & 0o777);
        let permissions = fs::Permissions::from_mode(mode);
        let folder = folder_of(place);
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let content = match openat(CWD, folder, flags, Mode::from_raw_mode(mode)) {
            Ok(file) if Path::new("/proc/self/fd").is_dir() => Self::Unnamed(file.into()),
            // The file system has no files without a name, or there is no /proc to name them.
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let mut builder = tempfile::Builder::new();
                let builder = builder.prefix(PREFIX).permissions(permissions.clone());
                Self::Named(builder.tempfile_in(folder).map_err(fail)?)
            }
            Err(error) => return Err(fail(error.into())),
        };
        if there.is_some() {
            let file = match &content {
                Self::Unnamed(file) => file,
                Self::Named(file) => file.as_file(),
            };
            file.set_permissions(permissions).map_err(fail)?;
        }
        Ok(content)
    }

    fn appear_as(self, place: &Path) -> io::Result<()> {
        match self {
            Self::Named(file) => file.persist(place).map(drop).map_err(|error| error.error),
            Self::Unnamed(file) => {
                let own = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
                let link = |name: &Path| Ok(linkat(CWD, &own, CWD, name, AtFlags::SYMLINK_FOLLOW)?);
                let named = tempfile::Builder::new().prefix(PREFIX).make_in(folder_of(place), link)?;
                named.persist(place).map(drop).map_err(|error| error.error)
            }
        }
    }
}

fn folder_of(place: &Path) -> &Path {
    place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Examines the file at `path`, and whether a command may write it.
fn examine(path: &Path, inputs: &[PathBuf], stdout: Stdout) -> Result<Found, OutputError> {
    let fail = |error| OutputError::Write { file: path.to_owned(), error };
    let as_stdout = || match stdout {
        Stdout::Allowed => Ok(Found::Stdout),
        Stdout::Taken => Err(OutputError::Stdout(path.to_owned())),
    };
    if path == Path::new(DASH) {
        return as_stdout();
    }
    let there = match fs::metadata(path) {
        Ok(there) => there,
        // A dangling link counts as an existing file.
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
            return Ok(Found::Nothing);
        }
        Err(error) => return Err(fail(error)),
    };
    let kind = there.file_type();
    if kind.is_char_device() {
        return Ok(Found::Stream);
    }
    if !(kind.is_file() || kind.is_fifo()) {
        return Err(OutputError::Special(path.to_owned()));
    }
    let is_there = |other: &Path| {
        fs::metadata(other).is_ok_and(|other| (other.dev(), other.ino()) == (there.dev(), there.ino()))
    };
    let is_name_of_stdout = || {
        fs::read_link(path).is_ok_and(|to| to.starts_with("/proc/self/fd"))
            || path.starts_with("/proc/self/fd")
    };
    if is_there(Path::new("/dev/stdout")) && (kind.is_fifo() || is_name_of_stdout()) {
        return as_stdout();
    }
    for input in inputs.iter().map(PathBuf::as_path).chain(STREAMS.map(Path::new)) {
        if is_there(input) {
            return Err(OutputError::Input { output: path.to_owned(), input: input.to_owned() });
        }
    }
    if kind.is_fifo() {
        return Ok(Found::Stream);
    }
    // A file that its owner made read-only must not be replaced, although the folder's owner could do that.
    OpenOptions::new().write(true).open(path).map_err(fail)?;
    Ok(Found::Regular(fs::canonicalize(path).map_err(fail)?, there))
}

/// Opens a device or a FIFO. If no program reads a FIFO, this waits for one and tells the user.
fn open_stream(path: &Path) -> Result<File, OutputError> {
    let fail = |error: io::Error| OutputError::Write { file: path.to_owned(), error };
    let open = |flags: OFlags| {
        // A terminal must not become this process's controlling terminal.
        let flags = (flags | OFlags::NOCTTY).bits().cast_signed();
        OpenOptions::new().write(true).custom_flags(flags).open(path)
    };
    let file = match open(OFlags::NONBLOCK) {
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
            crate::eprintln!("niclab: waiting for a program that reads {}", path.display());
            open(OFlags::empty())
        }
        opened => opened,
    };
    let file = file.map_err(fail)?;
    let kind = file.metadata().map_err(fail)?.file_type();
    if !(kind.is_char_device() || kind.is_fifo()) {
        return Err(OutputError::Special(path.to_owned()));
    }
    let flags = fcntl_getfl(&file).map_err(|error| fail(error.into()))?;
    fcntl_setfl(&file, flags - OFlags::NONBLOCK).map_err(|error| fail(error.into()))?;
    Ok(file)
}

#[cfg(test)]
mod tests;
