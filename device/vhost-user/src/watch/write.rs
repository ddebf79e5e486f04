//! Writes the entries of a watch as a file.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

use niclab_model::time::Time;
use niclab_observe::{Capture, Recorder, Timeline};
use niclab_spec::watch::WatchSummary;

use super::{CapturedFrame, Entry, Subject, Watch};

/// Maximum frames that a capture delays to write them in the order of model time. The shell shows a frame's arrival
/// when it is sent. The clocks of nodes without common traffic are independent, so their frames may be further apart.
const HELD_FRAMES: usize = 1024;

/// Maximum bytes of the delayed frames.
const HELD_BYTES: usize = 2 * 1024 * 1024;

/// Writes the entries of `watch` until it is over; `nodes` are the nodes' names. Returns the flushed writer.
///
/// # Errors
/// The errors of `out`.
pub fn write<W: Write>(watch: &Watch, nodes: &[String], out: W) -> io::Result<(W, WatchSummary)> {
    match &watch.subject {
        Subject::Trace => write_trace(watch, nodes, out),
        Subject::Capture { names, .. } => write_capture(watch, names, out),
        Subject::Recording { .. } => write_recording(watch, nodes.len() as u32, out),
    }
}

/// Calls `each` with every entry until the watch is over; returns messages and losses by interface. A live watch
/// calls `flush` at its begin, and after each set of entries that it takes together.
fn each_entry<S>(
    watch: &Watch,
    sink: &mut S,
    mut each: impl FnMut(&mut S, Entry) -> io::Result<()>,
    flush: impl Fn(&mut S) -> io::Result<()>,
) -> io::Result<(u64, Vec<u64>)> {
    let flush_if_live = |sink: &mut S| if watch.live { flush(sink) } else { Ok(()) };
    let mut entries = Vec::new();
    flush_if_live(sink)?;
    while watch.take(&mut entries) {
        entries.drain(..).try_for_each(|entry| each(sink, entry))?;
        flush_if_live(sink)?;
    }
    Ok(watch.counts())
}

fn write_trace<W: Write>(watch: &Watch, nodes: &[String], out: W) -> io::Result<(W, WatchSummary)> {
    let mut timeline = Timeline::new(out, nodes)?;
    let mut written = 0;
    let add = |timeline: &mut Timeline<W>, entry| {
        let Entry::Stage(owner, stage) = entry else { return Ok(()) };
        written += 1;
        timeline.add(owner, &stage)
    };
    let (messages, lost) = each_entry(watch, &mut timeline, add, Timeline::flush)?;
    let lost = lost.iter().sum();
    timeline.add_lost(lost);
    Ok((timeline.finish()?, WatchSummary { messages, written, lost }))
}

fn write_capture<W: Write>(watch: &Watch, links: &[String], out: W) -> io::Result<(W, WatchSummary)> {
    let capture = Capture::new(out, links)?;
    let mut sorted = Sorted { capture, held: BinaryHeap::new(), held_bytes: 0, frames: 0 };
    let add = |sorted: &mut Sorted<W>, entry| match entry {
        Entry::Frame(frame) => sorted.add(frame),
        Entry::Stage(..) | Entry::Message(_) => Ok(()),
    };
    let (messages, lost) = each_entry(watch, &mut sorted, add, |sorted| {
        sorted.write_all_held()?;
        sorted.capture.flush()
    })?;
    sorted.write_all_held()?;
    let Sorted { mut capture, frames, .. } = sorted;
    for (link, lost) in (0..).zip(&lost) {
        capture.add_lost(link, *lost);
    }
    let summary = WatchSummary { messages, written: frames, lost: lost.iter().sum() };
    Ok((capture.finish()?, summary))
}

/// A capture that delays a bounded number of frames, to write them in the order of model time.
struct Sorted<W: Write> {
    capture: Capture<W>,
    held: BinaryHeap<Reverse<Held>>,
    held_bytes: usize,
    /// All frames so far.
    frames: u64,
}

impl<W: Write> Sorted<W> {
    fn add(&mut self, frame: CapturedFrame) -> io::Result<()> {
        self.frames += 1;
        self.held_bytes += frame.frame.len();
        self.held.push(Reverse(Held { order: self.frames, frame }));
        while self.held.len() > HELD_FRAMES || self.held_bytes > HELD_BYTES {
            self.write_first()?;
        }
        Ok(())
    }

    fn write_all_held(&mut self) -> io::Result<()> {
        while !self.held.is_empty() {
            self.write_first()?;
        }
        Ok(())
    }

    fn write_first(&mut self) -> io::Result<()> {
        let Some(Reverse(first)) = self.held.pop() else { return Ok(()) };
        let CapturedFrame { interface, heading, at, frame, fate } = &first.frame;
        self.held_bytes -= frame.len();
        self.capture.frame(*interface, *heading, *at, frame, *fate)
    }
}

/// A frame in the order of model time. At the same time the frame that was seen first comes first.
struct Held {
    order: u64,
    frame: CapturedFrame,
}

impl Held {
    const fn key(&self) -> (Time, u64) {
        (self.frame.at, self.order)
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

fn write_recording<W: Write>(watch: &Watch, nodes: u32, out: W) -> io::Result<(W, WatchSummary)> {
    let mut recorder = Recorder::new(out, nodes)?;
    let mut written = 0;
    let add = |recorder: &mut Recorder<W>, entry| {
        let Entry::Message(recorded) = entry else { return Ok(()) };
        written += 1;
        recorder.add(&recorded)
    };
    let (messages, lost) = each_entry(watch, &mut recorder, add, Recorder::flush)?;
    let lost = lost.iter().sum();
    recorder.add_lost(lost);
    Ok((recorder.finish()?, WatchSummary { messages, written, lost }))
}
