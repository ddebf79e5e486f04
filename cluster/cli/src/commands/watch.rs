//! `niclab trace`, `niclab capture` and `niclab record`: files about a cluster that is up.

use std::{
    path::{Path, PathBuf},
    sync::mpsc,
};

use anyhow::Result;
use niclab_cluster::{
    daemon::watch::{WatchError, Watched, Watching},
    host::signals,
};
use niclab_spec::watch::{WatchRequest, WatchSubject};

use super::plan_of;
use crate::arguments::{CaptureArgs, RunWatchArgs, WatchArgs};

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
    let (over, end) = mpsc::channel();
    let signal = over.clone();
    signals::tell(move |_| wake(&signal));
    let request = WatchRequest { subject, links: links.to_vec(), messages: args.messages };
    let watching = Watching::begin(&socket, &request, path, move || wake(&over))?;
    eprintln!("niclab: watching {}; Ctrl-C ends it", args.name.name);
    match args.duration {
        // The time is over, or a signal or the daemon came before.
        Some(duration) => end.recv_timeout(duration).unwrap_or(()),
        None => end.recv()?,
    }
    // Another signal ends a niclab whose daemon does not.
    signals::release();
    let watched = watching.end()?;
    eprintln!("niclab: {}", watched.text());
    Ok(u8::from(!watched.is_useful()))
}

fn wake(waiting: &mpsc::Sender<()>) {
    // Nobody waits any more when it is over already.
    let _ = waiting.send(());
}

/// The files that `niclab run` shall write.
pub struct RunWatches(Vec<Watching>);

impl RunWatches {
    /// Begins those that are wanted.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn begin(args: &RunWatchArgs, socket: &Path) -> Result<Self, WatchError> {
        let wanted = [
            (WatchSubject::Trace, &args.trace),
            (WatchSubject::Capture, &args.capture),
            (WatchSubject::Recording, &args.record),
        ];
        let begin = |(subject, path): (WatchSubject, &Option<PathBuf>)| {
            let request = WatchRequest { subject, links: Vec::new(), messages: None };
            path.as_deref().map(|path| Watching::begin(socket, &request, path, || ()))
        };
        Ok(Self(wanted.into_iter().filter_map(begin).collect::<Result<_, _>>()?))
    }

    /// Ends all of them. The files that can be whole are, whatever becomes of the others.
    ///
    /// # Errors
    /// The first [`WatchError`].
    pub fn end(self) -> Result<Vec<Watched>, WatchError> {
        let ended: Vec<_> = self.0.into_iter().map(Watching::end).collect();
        ended.into_iter().collect()
    }
}
