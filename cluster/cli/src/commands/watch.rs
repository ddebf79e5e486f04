//! `niclab trace`, `niclab capture` and `niclab record`: write files about a running cluster.

use std::{path::Path, sync::mpsc, time::Duration};

use anyhow::Result;
use niclab_cluster::{
    daemon::watch::{WatchError, Watched, Watching},
    host::signals,
};
use niclab_output::{OutputFile, Stdout};
use niclab_spec::watch::{WatchRequest, WatchSubject};

use super::plan_of;
use crate::arguments::{CaptureArgs, WatchArgs};

/// Writes a timeline.
///
/// # Errors
/// When there is no such cluster, or the file cannot be written.
pub fn trace(args: &WatchArgs) -> Result<u8> {
    watch(args, WatchSubject::Trace, &[], "trace.json")
}

/// Writes a capture.
///
/// # Errors
/// When there is no such cluster or link, or the file cannot be written.
pub fn capture(args: &CaptureArgs) -> Result<u8> {
    watch(&args.watch, WatchSubject::Capture, &args.links, "capture.pcapng")
}

/// Writes a recording.
///
/// # Errors
/// When there is no such cluster, or the file cannot be written.
pub fn record(args: &WatchArgs) -> Result<u8> {
    watch(args, WatchSubject::Recording, &[], "recording.jsonl")
}

fn watch(args: &WatchArgs, subject: WatchSubject, links: &[String], usual: &str) -> Result<u8> {
    let socket = plan_of(&args.name.name)?.monitor_socket;
    let path = args.output.as_deref().unwrap_or(Path::new(usual));
    let file = OutputFile::create_with(path, &[], Stdout::Allowed)?;
    let until = Until { messages: args.messages, duration: args.duration };
    eprintln!("niclab: watching {}; Ctrl-C ends it", args.name.name);
    let watched = watch_into(&socket, file, subject, links, &until)?;
    // There is no summary if the stream's reader closed it; then a message would only disturb.
    if watched.summary.is_some() {
        eprintln!("niclab: {}", watched.text());
    }
    Ok(u8::from(!watched.is_useful()))
}

/// When a watch ends. A signal may end it earlier.
#[derive(Debug, Default)]
pub struct Until {
    /// After this many messages.
    pub messages: Option<u64>,
    /// After this wall time.
    pub duration: Option<Duration>,
}

/// Watches until the requested end, a signal, the end of the cluster, or the end of a stream's reader.
///
/// # Errors
/// [`WatchError`].
pub fn watch_into(
    socket: &Path,
    file: OutputFile,
    subject: WatchSubject,
    links: &[String],
    until: &Until,
) -> Result<Watched> {
    let (over, end) = mpsc::channel();
    let signal = over.clone();
    signals::tell(move |_| wake(&signal));
    let request = WatchRequest { subject, links: links.to_vec(), messages: until.messages, live: false };
    let watching = Watching::begin(socket, request, file, move || wake(&over))?;
    match until.duration {
        // The time has passed, or a signal or the daemon ended the watch before.
        Some(duration) => end.recv_timeout(duration).unwrap_or(()),
        None => end.recv()?,
    }
    // From now on a signal ends niclab, in case the daemon does not answer.
    signals::release();
    Ok(watching.end()?)
}

fn wake(waiting: &mpsc::Sender<()>) {
    // The receiver is gone if the watch is over already.
    let _ = waiting.send(());
}

/// The watches of a `niclab run`.
pub struct RunWatches(Vec<Watching>);

impl RunWatches {
    /// Begins the watches that have a file.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn begin(files: [(WatchSubject, Option<OutputFile>); 3], socket: &Path) -> Result<Self, WatchError> {
        let wanted = files.into_iter().filter_map(|(subject, file)| Some((subject, file?)));
        let begin = |(subject, file)| {
            let request = WatchRequest { subject, links: Vec::new(), messages: None, live: false };
            Watching::begin(socket, request, file, || ())
        };
        Ok(Self(wanted.map(begin).collect::<Result<_, _>>()?))
    }

    /// Ends all watches. A failure of one file does not affect the others.
    ///
    /// # Errors
    /// The first [`WatchError`].
    pub fn end(self) -> Result<Vec<Watched>, WatchError> {
        let ended: Vec<_> = self.0.into_iter().map(Watching::end).collect();
        ended.into_iter().collect()
    }
}
