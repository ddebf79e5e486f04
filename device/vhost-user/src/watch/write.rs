//! From what was seen to the bytes of a file.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

use niclab_model::time::Time;
use niclab_observe::{Capture, Recorder, Timeline};
use niclab_spec::watch::WatchSummary;

use super::{CapturedFrame, Entry, Subject, Watch};

/// Frames that are held back so that a capture is in the order of model time as far as that is known: the arrival of a
/// frame is seen when it is sent. Nodes that do not hear from each other have clocks of their own, whose frames may stand
/// further apart.
const HELD_FRAMES: usize = 1024;

/// Most bytes of them.
const HELD_BYTES: usize = 2 * 1024 * 1024;

/// Writes what `watch` sees, of nodes with these names, until it is over. Gives back the flushed writer.
///
/// # Errors
/// What `out` says.
pub fn write<W: Write>(watch: &Watch, nodes: &[String], out: W) -> io::Result<(W, WatchSummary)> {
    match &watch.subject {
        Subject::Trace => write_trace(watch, nodes, out),
        Subject::Capture { names, .. } => write_capture(watch, names, out),
        Subject::Recording { .. } => write_recording(watch, nodes.len() as u32, out),
    }
}

/// Calls `each` with every entry until the watch is over; returns messages and losses by interface.
fn each_entry(watch: &Watch, mut each: impl FnMut(Entry) -> io::Result<()>) -> io::Result<(u64, Vec<u64>)> {
    let mut entries = Vec::new();
    while watch.take(&mut entries) {
        entries.drain(..).try_for_each(&mut each)?;
    }
    Ok(watch.counts())
}

fn write_trace<W: Write>(watch: &Watch, nodes: &[String], out: W) -> io::Result<(W, WatchSummary)> {
    let mut timeline = Timeline::new(out, nodes)?;
    let mut written = 0;
    let (messages, lost) = each_entry(watch, |entry| {
        let Entry::Stage(owner, stage) = entry else { return Ok(()) };
        written += 1;
        timeline.add(owner, &stage)
    })?;
    let lost = lost.iter().sum();
    timeline.add_lost(lost);
    Ok((timeline.finish()?, WatchSummary { messages, written, lost }))
}

fn write_capture<W: Write>(watch: &Watch, links: &[String], out: W) -> io::Result<(W, WatchSummary)> {
    let mut capture = Capture::new(out, links)?;
    let mut held = BinaryHeap::with_capacity(HELD_FRAMES + 1);
    let (mut order, mut held_bytes) = (0_u64, 0);
    let (messages, lost) = each_entry(watch, |entry| {
        let Entry::Frame(frame) = entry else { return Ok(()) };
        order += 1;
        held_bytes += frame.frame.len();
        held.push(Reverse(Held { order, frame }));
        while held.len() > HELD_FRAMES || held_bytes > HELD_BYTES {
            let Some(Reverse(first)) = held.pop() else { break };
            held_bytes -= first.frame.frame.len();
            put(&mut capture, &first)?;
        }
        Ok(())
    })?;
    while let Some(Reverse(first)) = held.pop() {
        put(&mut capture, &first)?;
    }
    for (link, lost) in (0..).zip(&lost) {
        capture.add_lost(link, *lost);
    }
    let summary = WatchSummary { messages, written: order, lost: lost.iter().sum() };
    Ok((capture.finish()?, summary))
}

fn put<W: Write>(capture: &mut Capture<W>, held: &Held) -> io::Result<()> {
    let CapturedFrame { interface, heading, at, frame, fate } = &held.frame;
    capture.frame(*interface, *heading, *at, frame, *fate)
}

/// A frame in the order of model time; of two at one instant the one that was seen first goes first.
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
    let (messages, lost) = each_entry(watch, |entry| {
        let Entry::Message(recorded) = entry else { return Ok(()) };
        written += 1;
        recorder.add(&recorded)
    })?;
    let lost = lost.iter().sum();
    recorder.add_lost(lost);
    Ok((recorder.finish()?, WatchSummary { messages, written, lost }))
}
