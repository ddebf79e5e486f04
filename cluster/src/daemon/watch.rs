//! Watches a running cluster: a timeline, a capture or a recording, from the daemon into a file.
//!
//! The daemon writes no file and knows no path; the bytes come over its monitor's socket, which is in a folder of the
//! user's own. They are written beside the file under another name, so that the file is there when it is whole, or not at
//! all.

use std::{
    fs::{self, Permissions},
    io::{self, BufReader},
    net::Shutdown,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    thread,
};

use niclab_spec::{
    monitor::{Answer, Request},
    watch::{ChunkReader, WatchRequest, WatchSubject, WatchSummary},
};
use tempfile::NamedTempFile;
use thiserror::Error;

use crate::daemon::monitor::{self, MonitorError};

/// Nothing can be watched, or the file not be written.
#[derive(Debug, Error)]
pub enum WatchError {
    /// Something else than a file has the name.
    #[error("{} is no file; name one that can be made or replaced", .0.display())]
    NotAFile(PathBuf),
    /// The file cannot be written.
    #[error("cannot write {}: {error}; is its folder there, writable, and has room?", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The daemon does not do it.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// The connection broke.
    #[error(
        "the daemon was gone before {} was whole ({error}), so it was not written; its log says why", path.display()
    )]
    Broken {
        /// The file.
        path: PathBuf,
        /// How it broke.
        #[source]
        error: io::Error,
    },
}

/// A file that is there under its name when it is whole. Whatever stood there before stays until then.
struct WholeFile {
    path: PathBuf,
    file: NamedTempFile,
}

impl WholeFile {
    fn create(path: &Path) -> Result<Self, WatchError> {
        let failed = |error| WatchError::Write { path: path.to_owned(), error };
        // A link is not followed: it is replaced, as a file is.
        if fs::symlink_metadata(path).is_ok_and(|about| !(about.is_file() || about.is_symlink())) {
            return Err(WatchError::NotAFile(path.to_owned()));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // As any other file; the user's mask takes away what it takes away.
        let usual = Permissions::from_mode(0o666);
        let file = tempfile::Builder::new().prefix(".niclab-").permissions(usual).tempfile_in(folder);
        Ok(Self { path: path.to_owned(), file: file.map_err(failed)? })
    }

    fn keep(self) -> Result<(), WatchError> {
        let Self { path, file } = self;
        file.persist(&path).map(drop).map_err(|error| WatchError::Write { path, error: error.error })
    }
}

/// Somebody watches. Dropping it ends the watch and leaves no file.
pub struct Watching {
    stream: UnixStream,
    copying: Option<thread::JoinHandle<Result<(WholeFile, WatchSummary), WatchError>>>,
    path: PathBuf,
    subject: WatchSubject,
}

impl Watching {
    /// Asks the daemon behind `socket`; the bytes go to `path`. `on_end` is called when no more come, whoever ended it.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn begin(
        socket: &Path,
        request: &WatchRequest,
        path: &Path,
        on_end: impl FnOnce() + Send + 'static,
    ) -> Result<Self, WatchError> {
        let file = WholeFile::create(path)?;
        let (reader, answer) = monitor::connect(socket, &Request::Watch(request.clone()))?;
        if answer != Answer::Watching {
            return Err(MonitorError::Unexpected.into());
        }
        let stream = reader.get_ref().try_clone().map_err(MonitorError::from)?;
        // Nothing may happen for long.
        stream.set_read_timeout(None).map_err(MonitorError::from)?;
        let copying = thread::spawn(move || {
            let result = copy(reader, file);
            on_end();
            result
        });
        Ok(Self { stream, copying: Some(copying), path: path.to_owned(), subject: request.subject })
    }

    /// Ends the watch, where the daemon has not. The file is there afterwards.
    ///
    /// # Errors
    /// [`WatchError`]; then the file is not there, or as it was.
    pub fn end(mut self) -> Result<Watched, WatchError> {
        let copied = self.join();
        let broken = || WatchError::Broken { path: self.path.clone(), error: io::ErrorKind::Other.into() };
        let (file, summary) = copied.ok_or_else(broken)??;
        file.keep()?;
        Ok(Watched { path: self.path.clone(), subject: self.subject, summary })
    }

    fn join(&mut self) -> Option<Result<(WholeFile, WatchSummary), WatchError>> {
        // Fails only when the daemon has hung up already.
        let _ = self.stream.shutdown(Shutdown::Write);
        self.copying.take()?.join().ok()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if self.copying.is_some() {
            // Nobody wants the rest.
            let _ = self.stream.shutdown(Shutdown::Both);
            let _ = self.join();
        }
    }
}

/// Copies what comes into the file, to its end.
fn copy(reader: BufReader<UnixStream>, mut file: WholeFile) -> Result<(WholeFile, WatchSummary), WatchError> {
    let mut chunks = ChunkReader::new(reader);
    let mut buffer = vec![0; niclab_spec::watch::MAX_CHUNK_BYTES];
    loop {
        let read = io::Read::read(&mut chunks, &mut buffer);
        let read = read.map_err(|error| WatchError::Broken { path: file.path.clone(), error })?;
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        let written = io::Write::write_all(&mut file.file, bytes);
        written.map_err(|error| WatchError::Write { path: file.path.clone(), error })?;
    }
    match monitor::read_answer(&mut chunks.into_inner())? {
        Answer::Watched(summary) => Ok((file, summary)),
        _ => Err(MonitorError::Unexpected.into()),
    }
}

/// A file that is whole, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The file.
    pub path: PathBuf,
    /// What was watched.
    pub subject: WatchSubject,
    /// How much.
    pub summary: WatchSummary,
}

impl Watched {
    /// What the user is told.
    #[must_use]
    pub fn text(&self) -> String {
        let WatchSummary { messages, written, lost } = self.summary;
        let path = self.path.display();
        let (what, next) = match self.subject {
            WatchSubject::Trace => ("stages", "open it at https://ui.perfetto.dev"),
            WatchSubject::Capture => {
                ("frames", "open it with wireshark -X lua_script:tools/wireshark/niclab.lua")
            }
            WatchSubject::Recording => ("messages", "replay it by niclab sim (docs/SIMULATOR.md)"),
        };
        let of = if self.subject == WatchSubject::Recording {
            String::new()
        } else {
            format!(" of {messages} messages")
        };
        if lost == 0 {
            return format!("{path}: {written} {what}{of}; {next}");
        }
        let consequence = match self.subject {
            WatchSubject::Recording => "it cannot be replayed",
            _ => "the file says so too",
        };
        format!(
            "{path}: {written} {what}{of}; {lost} more are missing, because they came faster than they could be written: \
             {consequence}"
        )
    }

    /// Whether the file is of use: a recording with holes is not.
    #[must_use]
    pub const fn is_useful(&self) -> bool {
        !(matches!(self.subject, WatchSubject::Recording) && self.summary.lost > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, Read, Write},
        os::unix::net::UnixListener,
    };

    use niclab_spec::watch::ChunkWriter;

    use super::*;

    const SUMMARY: WatchSummary = WatchSummary { messages: 2, written: 3, lost: 0 };

    fn request() -> WatchRequest {
        WatchRequest { subject: WatchSubject::Trace, links: Vec::new(), messages: None }
    }

    /// A daemon that answers one connection as `serve` does, once it has the request.
    fn daemon(
        folder: &Path,
        serve: impl FnOnce(&mut UnixStream) + Send + 'static,
    ) -> (PathBuf, thread::JoinHandle<()>) {
        let path = folder.join("m");
        let listener = UnixListener::bind(&path).unwrap();
        let daemon = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut String::new()).unwrap();
            serve(&mut stream);
        });
        (path, daemon)
    }

    fn answer(stream: &mut UnixStream, answer: &Answer) {
        stream.write_all((serde_json::to_string(answer).unwrap() + "\n").as_bytes()).unwrap();
    }

    fn files(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn a_file_is_there_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, daemon) = daemon(folder.path(), |stream| {
            answer(stream, &Answer::Watching);
            // Until it is asked to end.
            stream.read_to_end(&mut Vec::new()).unwrap();
            let mut chunks = ChunkWriter::new(&mut *stream);
            chunks.write_all(b"new").unwrap();
            chunks.end().unwrap();
            answer(stream, &Answer::Watched(SUMMARY));
        });
        let path = folder.path().join("t.json");
        fs::write(&path, "old and longer").unwrap();
        let watching = Watching::begin(&socket, &request(), &path, || ()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old and longer");
        let watched = watching.end().unwrap();
        daemon.join().unwrap();
        assert_eq!((watched.summary, fs::read(&path).unwrap().as_slice()), (SUMMARY, &b"new"[..]));
        assert!(watched.text().contains("t.json: 3 stages of 2 messages; open it at"), "{}", watched.text());
        assert_eq!(files(folder.path()), 2, "the socket and the file");
        let own = folder.path().join("own");
        fs::write(&own, "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&own), "as any file of the user's");
    }

    #[test]
    fn a_daemon_that_dies_or_refuses_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let (socket, dying) = daemon(folder.path(), |stream| {
            answer(stream, &Answer::Watching);
            stream.write_all(&[200, 0, 0, 0, 1, 2, 3]).unwrap();
        });
        let (ended, end) = std::sync::mpsc::channel();
        let watching = Watching::begin(&socket, &request(), &path, move || ended.send(()).unwrap()).unwrap();
        end.recv().unwrap();
        let error = watching.end().unwrap_err();
        dying.join().unwrap();
        assert!(matches!(error, WatchError::Broken { .. }), "{error}");
        fs::remove_file(&socket).unwrap();

        let (socket, refusing) = daemon(folder.path(), |stream| {
            answer(stream, &Answer::Error { message: "no link is called `x`".to_owned() });
        });
        let error = Watching::begin(&socket, &request(), &path, || ()).err().unwrap();
        refusing.join().unwrap();
        assert!(error.to_string().contains("no link is called"), "{error}");
        assert_eq!(files(folder.path()), 1, "the socket");
    }

    #[test]
    fn whoever_loses_interest_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, daemon) = daemon(folder.path(), |stream| {
            answer(stream, &Answer::Watching);
            stream.read_to_end(&mut Vec::new()).unwrap();
        });
        drop(Watching::begin(&socket, &request(), &folder.path().join("t.json"), || ()).unwrap());
        daemon.join().unwrap();
        assert_eq!(files(folder.path()), 1);
    }

    #[test]
    fn a_place_that_cannot_hold_the_file_is_named_before_anything_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let begin =
            |path: &Path| Watching::begin(Path::new("/no/such"), &request(), path, || ()).err().unwrap();
        let error = begin(folder.path());
        assert!(matches!(error, WatchError::NotAFile(_)), "{error}");
        let error = begin(&folder.path().join("none/t.json")).to_string();
        assert!(error.contains("none/t.json") && error.contains("is its folder there"), "{error}");
    }

    #[test]
    fn what_is_missing_is_said() {
        let watched = |subject| Watched {
            path: "f".into(),
            subject,
            summary: WatchSummary { messages: 9, written: 5, lost: 4 },
        };
        let (trace, recording) = (watched(WatchSubject::Trace), watched(WatchSubject::Recording));
        assert!(trace.text().contains("4 more are missing") && trace.is_useful(), "{}", trace.text());
        assert!(recording.text().contains("cannot be replayed") && !recording.is_useful());
    }
}
