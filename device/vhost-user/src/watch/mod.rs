//! Watching the cluster while it runs: a timeline of every stage, a capture of links, a recording of what was sent.
//!
//! * [`Watch`]: a bounded queue from the threads that serve doorbells to the one that writes. They never wait for it:
//!   what does not fit is counted and said in the file;
//! * [`taps`]: what the shell shows to those who watch;
//! * [`write`](mod@write): from the queue to the bytes of a file;
//! * [`watchers`]: the connections over which somebody watches.
//!
//! The shell begins and ends watches (`shell/watching.rs`), and the monitor serves their bytes (`monitor/watch.rs`).
//!
//! While nobody watches, all of this is a look at an empty list for each doorbell and each frame.

pub mod taps;
pub mod watchers;
pub mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use niclab_model::nic::frame::SharedFrame;
use niclab_model::platform::ledger::StageRecord;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::Time;
use niclab_observe::recording::{Beginnings, Recorded};
use niclab_observe::timeline::Owner;
use niclab_observe::{Fate, Heading};
use parking_lot::{Condvar, Mutex};
use thiserror::Error;

/// Most memory between the doorbells' threads and the writers of all who watch, each of whom has an equal share of it.
/// One who came when there were fewer may still hold what was its share then, so that 8 of them, none of whom reads,
/// hold at most 1 + 1/2 + ... + 1/8 times as much.
pub const MAX_WAITING_BYTES: usize = 16 * 1024 * 1024;
/// What an entry takes beside long frames: a list of them grows by doubling.
const ENTRY_BYTES: usize = 2 * size_of::<Entry>();
/// Entries for which a list that was written keeps its memory.
const KEPT_ENTRIES: usize = 1024;

/// Nothing can be watched in this way.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum WatchError {
    /// A link that is not there.
    #[error("no link is called `{link}`; links are named after their nodes: {known}")]
    UnknownLink {
        /// Its name.
        link: String,
        /// The names that there are.
        known: String,
    },
    /// Links were named for what is not of links.
    #[error("only a capture is of chosen links; leave them out")]
    NotOfLinks,
    /// Nobody gives the world's lock back.
    #[error(
        "the daemon is stuck: its guests are not served, so there is nothing to watch; end the cluster by `niclab down`"
    )]
    Stuck,
    /// It would be over at once.
    #[error("0 messages are nothing to watch; give 1 or more")]
    NoMessages,
}

/// What is watched.
#[derive(Debug)]
pub(crate) enum Subject {
    /// Every stage.
    Trace,
    /// Frames of links.
    Capture {
        /// The interface of each node's link, by rank; none for a link that is not captured.
        interfaces: Vec<Option<u32>>,
        /// Names of the interfaces.
        names: Vec<String>,
    },
    /// Messages of cluster NICs.
    Recording {
        /// Model time from which the messages are timed.
        begin: Time,
    },
}

/// Something seen.
#[derive(Debug)]
enum Entry {
    Stage(Owner, StageRecord),
    Frame(CapturedFrame),
    Message(Recorded),
}

/// A frame on one direction of a captured link.
#[derive(Debug)]
struct CapturedFrame {
    interface: u32,
    heading: Heading,
    at: Time,
    frame: SharedFrame,
    fate: Fate,
}

impl Entry {
    /// Bytes of memory that it takes while it waits.
    fn bytes(&self) -> usize {
        let Self::Frame(CapturedFrame { frame, .. }) = self else { return ENTRY_BYTES };
        ENTRY_BYTES + frame.heap_bytes()
    }
}

/// What was seen and not written yet, and what there was in all.
#[derive(Debug, Default)]
struct State {
    entries: Vec<Entry>,
    /// What they take.
    waiting_bytes: usize,
    /// What those take that the writer has taken and not written yet.
    taken_bytes: usize,
    messages: u64,
    beginnings: Beginnings,
    /// What did not fit: by interface of a capture, else in the first place.
    lost: Vec<u64>,
    is_over: bool,
}

impl State {
    fn lose(&mut self, interface: u32, count: u64) {
        let place = interface as usize;
        if self.lost.len() <= place {
            self.lost.resize(place + 1, 0);
        }
        if let Some(lost) = self.lost.get_mut(place) {
            *lost += count;
        }
    }
}

/// Somebody who watches: a queue that the shell fills and a writer empties.
#[derive(Debug)]
pub struct Watch {
    subject: Subject,
    max_messages: u64,
    /// The writer sends each entry as it comes.
    live: bool,
    share: Share,
    state: Mutex<State>,
    wake: Condvar,
}

/// One part of what all who watch may let wait. It is given back when the watch, what waits in it included, is gone.
#[derive(Debug)]
pub(crate) struct Share(Arc<AtomicUsize>);

impl Share {
    /// A part beside those of all others that were made of the same count.
    fn of(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }

    /// How much it is at present.
    fn bytes(&self) -> usize {
        MAX_WAITING_BYTES / self.0.load(Ordering::Relaxed).max(1)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Watch {
    pub(crate) fn new(subject: Subject, max_messages: Option<u64>, live: bool, share: Share) -> Arc<Self> {
        Arc::new(Self {
            subject,
            max_messages: max_messages.unwrap_or(u64::MAX),
            live,
            share,
            state: Mutex::default(),
            wake: Condvar::new(),
        })
    }

    const fn is_trace(&self) -> bool {
        matches!(self.subject, Subject::Trace)
    }

    /// Adds entries; what does not fit is counted. Never waits for the writer, which takes all of them at once.
    fn push(&self, entries: impl IntoIterator<Item = Entry>) {
        let mut state = self.state.lock();
        if state.is_over {
            return;
        }
        let was_empty = state.entries.is_empty();
        let most = self.share.bytes();
        for entry in entries {
            let bytes = entry.bytes();
            if state.waiting_bytes + state.taken_bytes + bytes <= most {
                state.waiting_bytes += bytes;
                state.entries.push(entry);
            } else {
                let interface = if let Entry::Frame(frame) = &entry { frame.interface } else { 0 };
                state.lose(interface, 1);
            }
        }
        if was_empty && !state.entries.is_empty() {
            self.wake.notify_one();
        }
    }

    /// A frame of a message was sent. Counts those that begin, up to those that are watched, and adds them to a
    /// recording, which has none of the Ethernet function's.
    fn on_message(&self, message: &TraceTag, frame: &SharedFrame) {
        let begin = if let Subject::Recording { begin } = self.subject { Some(begin) } else { None };
        let mut state = self.state.lock();
        if state.is_over || state.messages >= self.max_messages {
            return;
        }
        if message.is_ethernet() {
            state.messages += u64::from(begin.is_none());
            return;
        }
        let Some(begun) = state.beginnings.see(message, frame) else { return };
        state.messages += 1;
        drop(state);
        self.push(begin.map(|begin| Entry::Message(Recorded::new(begin, message, &begun))));
    }

    /// Ends the watch where as many messages were sent as are watched, with all that they caused so far.
    fn end_if_full(&self) {
        let mut state = self.state.lock();
        if state.messages >= self.max_messages {
            state.is_over = true;
            self.wake.notify_one();
        }
    }

    /// Nothing more is added. The writer ends when it has written what there is.
    pub(crate) fn end(&self) {
        self.state.lock().is_over = true;
        self.wake.notify_one();
    }

    /// Waits for entries and swaps them against `taken`, which is emptied. False when there are no more.
    fn take(&self, taken: &mut Vec<Entry>) -> bool {
        taken.clear();
        taken.shrink_to(KEPT_ENTRIES);
        let mut state = self.state.lock();
        state.taken_bytes = 0;
        while state.entries.is_empty() && !state.is_over {
            self.wake.wait(&mut state);
        }
        std::mem::swap(&mut state.entries, taken);
        state.taken_bytes = std::mem::take(&mut state.waiting_bytes);
        !taken.is_empty()
    }

    /// Messages so far, and what did not fit, by interface.
    fn counts(&self) -> (u64, Vec<u64>) {
        let state = self.state.lock();
        (state.messages, state.lost.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: u64) -> Entry {
        Entry::Message(Recorded {
            model_time_ps: number,
            node: 0,
            port: 0,
            to: 1,
            to_port: 0,
            bytes: 8,
            interrupt: false,
        })
    }

    const INTERFACE: u32 = 0;

    fn frame(bytes: usize) -> Entry {
        let frame = SharedFrame::from(&*vec![0; bytes]);
        let heading = Heading::ToNode;
        Entry::Frame(CapturedFrame {
            interface: INTERFACE,
            heading,
            at: Time::ZERO,
            frame,
            fate: Fate::Passed,
        })
    }

    fn shares() -> Arc<AtomicUsize> {
        Arc::new(AtomicUsize::new(0))
    }

    fn watch(shares: &Arc<AtomicUsize>) -> Arc<Watch> {
        let subject = Subject::Capture { interfaces: vec![Some(INTERFACE)], names: vec!["node0".to_owned()] };
        Watch::new(subject, None, false, Share::of(shares))
    }

    /// Shows frames until one is lost.
    fn fill(watch: &Watch, bytes: usize) -> usize {
        while watch.counts().1.is_empty() {
            watch.push([frame(bytes)]);
        }
        held(watch)
    }

    /// What a watch holds, which is not less than the memory that its list takes.
    fn held(watch: &Watch) -> usize {
        let state = watch.state.lock();
        let frames: usize = state.entries.iter().map(|entry| entry.bytes() - ENTRY_BYTES).sum();
        let memory = frames + state.entries.capacity() * size_of::<Entry>();
        assert!(memory <= state.waiting_bytes + KEPT_ENTRIES * size_of::<Entry>(), "{memory}");
        state.waiting_bytes + state.taken_bytes
    }

    #[test]
    fn what_does_not_fit_is_counted_and_the_rest_is_kept() {
        let watch = Watch::new(Subject::Trace, None, false, Share::of(&shares()));
        let room = MAX_WAITING_BYTES / ENTRY_BYTES;
        watch.push((0..room as u64 + 5).map(message));
        let mut taken = Vec::new();
        assert!(watch.take(&mut taken));
        assert_eq!((taken.len(), watch.counts().1), (room, vec![5]));
        watch.push([message(7)]);
        assert_eq!(watch.counts().1, [6], "there is no room until the writer comes again");
        watch.end();
        assert!(!watch.take(&mut taken), "all was taken");
        assert!(taken.capacity() <= KEPT_ENTRIES, "and its memory given back");
    }

    #[test]
    fn what_there_was_before_the_end_is_taken_and_nothing_that_came_after() {
        let watch = Watch::new(Subject::Trace, None, false, Share::of(&shares()));
        watch.push([message(7)]);
        watch.end();
        watch.push([message(8)]);
        let mut taken = Vec::new();
        assert!(watch.take(&mut taken) && taken.len() == 1);
        assert!(!watch.take(&mut taken));
    }

    #[test]
    fn what_waits_for_all_who_watch_and_do_not_read_is_bounded() {
        for bytes in [64, 9_000] {
            let shares = shares();
            let watches: Vec<_> = (0..8).map(|_| watch(&shares)).collect();
            let total: usize = watches.iter().map(|watch| fill(watch, bytes)).sum();
            assert!(total <= MAX_WAITING_BYTES && total > MAX_WAITING_BYTES / 2, "{total}");
            drop(watches);
            assert_eq!(shares.load(Ordering::Relaxed), 0, "the shares are given back");
        }
    }

    #[test]
    fn one_after_the_other_they_hold_no_more_than_was_their_share_when_they_came() {
        let shares = shares();
        let mut watches = Vec::new();
        let mut total = 0;
        for number in 1..=8 {
            watches.push(watch(&shares));
            let held = watches.last().map_or(0, |watch| fill(watch, 1_000));
            assert!(held <= MAX_WAITING_BYTES / number, "{number}: {held}");
            total += held;
        }
        assert!(total < 3 * MAX_WAITING_BYTES, "{total}");
    }

    #[test]
    fn so_many_messages_are_watched_and_no_more() {
        let watch = Watch::new(Subject::Trace, Some(2), false, Share::of(&shares()));
        // The Ethernet function's, each a message by itself.
        let port = TraceTag::ETHERNET;
        for number in 1..=3 {
            let message = TraceTag { node: 0, port, number, launched: Time::ZERO, bytes: 8 };
            watch.on_message(&message, &SharedFrame::default());
        }
        watch.end_if_full();
        assert!(!watch.take(&mut Vec::new()));
        assert_eq!(watch.counts().0, 2);
    }
}
