//! Observes a running cluster: writes a timeline, a capture or a recording from the daemon to a file.
//!
//! The daemon writes no file and knows no path. The bytes come over its monitor socket, which is in a folder of the
//! user's own, and go into an [`OutputFile`]. A regular file appears when it is complete, or not at all. A FIFO, a
//! device or standard output gets each entry as it comes.

use std::{
    io::{self, BufReader, Read as _, Write as _},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    thread,
};

use niclab_output::{OutputError, OutputFile};
use niclab_spec::{
    monitor::{Answer, Request},
    watch::{ChunkReader, WatchRequest, WatchSubject, WatchSummary},
};
use thiserror::Error;

use crate::daemon::monitor::{self, MonitorError};

/// The observation cannot begin, or the file cannot be written.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] OutputError),
    /// The daemon refuses or fails.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// The connection broke.
    #[error(
        "the daemon ended before {} was complete ({error}), so the file was not written; its log says why",
        path.display()
    )]
    Broken {
        /// The file.
        path: PathBuf,
        /// How it broke.
        #[source]
        error: io::Error,
    },
}

/// An observation in progress. Dropping it ends the observation and leaves no file.
pub struct Watching {
    stream: UnixStream,
    copying: Option<thread::JoinHandle<Result<Copied, WatchError>>>,
    path: PathBuf,
    subject: WatchSubject,
}

/// The result of the copy.
enum Copied {
    /// All of them are in the file.
    Whole(OutputFile, WatchSummary),
    /// The reader of the stream closed it.
    Unread,
}

impl Watching {
    /// Begins an observation at the daemon behind `socket`. The bytes go to `file`, at once if that is a stream. Calls
    /// `on_end` when no more come, whether the daemon or this process ended it.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn begin(
        socket: &Path,
        mut request: WatchRequest,
        file: OutputFile,
        on_end: impl FnOnce() + Send + 'static,
    ) -> Result<Self, WatchError> {
        request.live = file.is_stream();
        let (path, subject) = (file.path().to_owned(), request.subject);
        let (reader, answer) = monitor::connect(socket, &Request::Watch(request))?;
        if answer != Answer::Watching {
            return Err(MonitorError::Unexpected.into());
        }
        let stream = reader.get_ref().try_clone().map_err(MonitorError::from)?;
        // Long silence is normal.
        stream.set_read_timeout(None).map_err(MonitorError::from)?;
        if file.is_stream() {
            end_when_unread(&file, &stream)?;
        }
        let copying = thread::spawn(move || {
            let result = copy(reader, file);
            on_end();
            result
        });
        Ok(Self { stream, copying: Some(copying), path, subject })
    }

    /// Ends the observation, unless the daemon has. The file exists afterwards.
    ///
    /// # Errors
    /// [`WatchError`]; the file then does not exist, or has its old contents.
    pub fn end(mut self) -> Result<Watched, WatchError> {
        let copied = self.join();
        let broken = || WatchError::Broken { path: self.path.clone(), error: io::ErrorKind::Other.into() };
        let summary = match copied.ok_or_else(broken)?? {
            Copied::Whole(file, summary) => {
                file.finish()?;
                Some(summary)
            }
            Copied::Unread => None,
        };
        Ok(Watched { path: self.path.clone(), subject: self.subject, summary })
    }

    fn join(&mut self) -> Option<Result<Copied, WatchError>> {
        // Fails only if the daemon has closed the connection already.
        let _ = self.stream.shutdown(Shutdown::Write);
        self.copying.take()?.join().ok()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if self.copying.is_some() {
            // The rest is not needed.
            let _ = self.stream.shutdown(Shutdown::Both);
            let _ = self.join();
        }
    }
}

/// Closes the connection when the file's reader leaves, also while no data comes. The thread ends with the connection.
fn end_when_unread(file: &OutputFile, stream: &UnixStream) -> Result<(), WatchError> {
    let writer = file.writer()?;
    let stream = stream.try_clone().map_err(MonitorError::from)?;
    thread::spawn(move || {
        if matches!(writer.wait_until_unread(&stream), Ok(true)) {
            // Fails if the daemon has closed the connection already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    Ok(())
}

/// Copies the incoming data into the file, to its end.
fn copy(reader: BufReader<UnixStream>, file: OutputFile) -> Result<Copied, WatchError> {
    let mut chunks = ChunkReader::new(reader);
    let mut writer = file.writer()?;
    let mut buffer = vec![0; niclab_spec::watch::MAX_CHUNK_BYTES];
    let mut copy_all = || -> Result<(), WatchError> {
        loop {
            let read = chunks.read(&mut buffer);
            let read = read.map_err(|error| WatchError::Broken { path: file.path().to_owned(), error })?;
            let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else { break Ok(()) };
            writer.write_all(bytes).map_err(|error| file.fail(error))?;
        }
    };
    let copied = copy_all();
    if file.reader_is_gone() {
        return Ok(Copied::Unread);
    }
    copied?;
    match monitor::read_answer(&mut chunks.into_inner())? {
        Answer::Watched(summary) => Ok(Copied::Whole(file, summary)),
        _ => Err(MonitorError::Unexpected.into()),
    }
}

/// A complete file, and what it contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The file.
    pub path: PathBuf,
    /// What was observed.
    pub subject: WatchSubject,
    /// The counts; `None` if the reader of a stream left before the end.
    pub summary: Option<WatchSummary>,
}

impl Watched {
    /// The message for the user.
    #[must_use]
    pub fn text(&self) -> String {
        let path = self.path.display();
        let Some(WatchSummary { messages, written, lost }) = self.summary else {
            return format!("{path}: its reader closed it before the end");
        };
        let (what, next) = match self.subject {
            WatchSubject::Trace => ("stages", "open it at https://ui.perfetto.dev"),
            WatchSubject::Capture => {
                ("frames", "open it with wireshark -X lua_script:tools/wireshark/niclab.lua")
            }
            WatchSubject::Recording => ("messages", "replay it by niclab sim (docs/use/SIMULATOR.md)"),
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
            _ => "the file notes this, too",
        };
        format!(
            "{path}: {written} {what}{of}; {lost} more are missing, because they came faster than they could be \
             written: {consequence}"
        )
    }

    /// Whether the file is useful: a recording with gaps is not.
    #[must_use]
    pub const fn is_useful(&self) -> bool {
        !matches!(
            (self.subject, self.summary),
            (WatchSubject::Recording, Some(WatchSummary { lost: 1.., .. }))
        )
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::BufRead,
        os::unix::{fs::PermissionsExt, net::UnixListener},
    };

    use niclab_spec::watch::ChunkWriter;

    use super::*;

    const SUMMARY: WatchSummary = WatchSummary { messages: 2, written: 3, lost: 0 };

    fn request() -> WatchRequest {
        WatchRequest { subject: WatchSubject::Trace, links: Vec::new(), messages: None, live: false }
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

    fn file(path: &Path) -> OutputFile {
        OutputFile::create(path, &[]).unwrap()
    }

    fn files(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn file_appears_when_it_is_complete() {
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
        let watching = Watching::begin(&socket, request(), file(&path), || ()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old and longer");
        let watched = watching.end().unwrap();
        daemon.join().unwrap();
        assert_eq!((watched.summary.unwrap(), fs::read(&path).unwrap().as_slice()), (SUMMARY, &b"new"[..]));
        assert!(watched.text().contains("t.json: 3 stages of 2 messages; open it at"), "{}", watched.text());
        assert_eq!(files(folder.path()), 2, "the socket and the file");
        let own = folder.path().join("own");
        fs::write(&own, "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&own), "as any file of the user's");
    }

    #[test]
    fn daemon_that_dies_or_refuses_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let (socket, dying) = daemon(folder.path(), |stream| {
            answer(stream, &Answer::Watching);
            stream.write_all(&[200, 0, 0, 0, 1, 2, 3]).unwrap();
        });
        let (ended, end) = std::sync::mpsc::channel();
        let watching =
            Watching::begin(&socket, request(), file(&path), move || ended.send(()).unwrap()).unwrap();
        end.recv().unwrap();
        let error = watching.end().unwrap_err();
        dying.join().unwrap();
        assert!(matches!(error, WatchError::Broken { .. }), "{error}");
        fs::remove_file(&socket).unwrap();

        let (socket, refusing) = daemon(folder.path(), |stream| {
            answer(stream, &Answer::Error { message: "no link is called `x`".to_owned() });
        });
        let error = Watching::begin(&socket, request(), file(&path), || ()).err().unwrap();
        refusing.join().unwrap();
        assert!(error.to_string().contains("no link is called"), "{error}");
        assert_eq!(files(folder.path()), 1, "the socket");
    }

    #[test]
    fn dropped_watch_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, daemon) = daemon(folder.path(), |stream| {
            answer(stream, &Answer::Watching);
            stream.read_to_end(&mut Vec::new()).unwrap();
        });
        drop(Watching::begin(&socket, request(), file(&folder.path().join("t.json")), || ()).unwrap());
        daemon.join().unwrap();
        assert_eq!(files(folder.path()), 1);
    }

    #[test]
    fn reader_that_leaves_a_stream_ends_the_watch_quietly() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, daemon) = daemon(folder.path(), |stream| {
            answer(stream, &Answer::Watching);
            // One entry, and then nothing more happens.
            let mut chunks = ChunkWriter::new(&mut *stream);
            chunks.write_all(b"frame").unwrap();
            chunks.flush().unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap();
        });
        let path = folder.path().join("fifo");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let reader = {
            let path = path.clone();
            thread::spawn(move || {
                let mut frame = [0; 5];
                fs::File::open(path).unwrap().read_exact(&mut frame).unwrap();
                frame
            })
        };
        let (ended, end) = std::sync::mpsc::channel();
        let on_end = move || ended.send(()).unwrap();
        let watching = Watching::begin(&socket, request(), file(&path), on_end).unwrap();
        assert_eq!(&reader.join().unwrap(), b"frame");
        end.recv().unwrap();
        assert_eq!(watching.end().unwrap().summary, None);
        daemon.join().unwrap();
    }

    #[test]
    fn missing_entries_are_reported() {
        let watched = |subject| Watched {
            path: "f".into(),
            subject,
            summary: Some(WatchSummary { messages: 9, written: 5, lost: 4 }),
        };
        let (trace, recording) = (watched(WatchSubject::Trace), watched(WatchSubject::Recording));
        assert!(trace.text().contains("4 more are missing") && trace.is_useful(), "{}", trace.text());
        assert!(recording.text().contains("cannot be replayed") && !recording.is_useful());
    }
}
