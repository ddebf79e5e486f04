//! Observation of the running cluster: a timeline of every stage, a capture of links, a recording of sent messages.
//!
//! * [`Watch`]: a bounded queue from the threads that serve doorbells to the thread that writes. The former never
//!   wait for it: they count the entries that do not fit, and the file has the counts.
//! * [`observers`]: passes entries from the shell to the watches.
//! * [`write`](mod@write): writes the queue's entries as a file.
//! * [`watchers`]: the connections that observe.
//!
//! The shell begins and ends watches (`shell/observers.rs`), and the monitor sends their files (`monitor/watch.rs`).
//!
//! Without a watch, each doorbell and each frame costs only a check of an empty list.

pub mod observers;
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

/// Maximum memory of all queues, in bytes. Each watch has an equal share. A watch that began when there were fewer
/// may still fill its larger share, so 8 watches whose clients do not read use at most 1 + 1/2 + ... + 1/8 times as
/// much.
pub const MAX_WAITING_BYTES: usize = 16 * 1024 * 1024;
/// Memory of an entry without its long frame: a list of entries grows by doubling.
const ENTRY_BYTES: usize = 2 * size_of::<Entry>();
/// Entries for which an emptied list keeps its memory.
const KEPT_ENTRIES: usize = 1024;

/// The request cannot be observed.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum WatchError {
    /// The link does not exist.
    #[error("there is no link `{link}`; links have the names of their nodes: {known}")]
    UnknownLink {
        /// Its name.
        link: String,
        /// The existing names.
        known: String,
    },
    /// The request names links, but is not a capture.
    #[error("only a capture takes names of links; leave them out")]
    NotOfLinks,
    /// A thread never unlocks the nodes.
    #[error(
        "the daemon is stuck: another thread holds its lock on all nodes, so it serves no guest and observes nothing; \
         `niclab down` ends the cluster"
    )]
    Stuck,
    /// The watch would end at once.
    #[error("a watch of 0 messages sees nothing; give 1 or more")]
    NoMessages,
}

/// The subject of a watch.
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

/// One observed event.
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
    /// Bytes of memory that it needs in the queue.
    fn bytes(&self) -> usize {
        let Self::Frame(CapturedFrame { frame, .. }) = self else { return ENTRY_BYTES };
        ENTRY_BYTES + frame.heap_bytes()
    }
}

/// The entries that are not yet written, and the totals.
#[derive(Debug, Default)]
struct State {
    entries: Vec<Entry>,
    /// Bytes of `entries`.
    waiting_bytes: usize,
    /// Bytes of the entries that the writer has taken, but not yet written.
    taken_bytes: usize,
    messages: u64,
    beginnings: Beginnings,
    /// Number of entries that did not fit: by interface for a capture, otherwise at index 0.
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

/// One watch: a queue that the shell fills and a writer empties.
#[derive(Debug)]
pub struct Watch {
    subject: Subject,
    max_messages: u64,
    /// The writer flushes after each set of entries that it takes.
    live: bool,
    share: Share,
    state: Mutex<State>,
    wake: Condvar,
}

/// A watch's share of [`MAX_WAITING_BYTES`]. It ends when the watch and its queue are dropped.
#[derive(Debug)]
pub(crate) struct Share(Arc<AtomicUsize>);

impl Share {
    /// A share equal to all others of the same count.
    fn of(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }

    /// The current size of the share.
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

    /// Adds entries, and counts those that do not fit. Never waits for the writer, which takes all entries at once.
    fn push(&self, entries: impl IntoIterator<Item = Entry>) {
        let mut state = self.state.lock();
        if state.is_over {
            return;
        }
        let was_empty = state.entries.is_empty();
        let max_bytes = self.share.bytes();
        for entry in entries {
            let bytes = entry.bytes();
            if state.waiting_bytes + state.taken_bytes + bytes <= max_bytes {
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

    /// Notes that a frame of a message was sent. Counts messages that begin, up to the maximum, and adds them to a
    /// recording. A recording has no messages of the Ethernet function.
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

    /// Ends the watch if its maximum of messages was sent. All effects so far stay in it.
    fn end_if_full(&self) {
        let mut state = self.state.lock();
        if state.messages >= self.max_messages {
            state.is_over = true;
            self.wake.notify_one();
        }
    }

    /// Adds no more entries from now on. The writer ends when it has written those in the queue.
    pub(crate) fn end(&self) {
        self.state.lock().is_over = true;
        self.wake.notify_one();
    }

    /// Waits for entries, and swaps them with the cleared list `taken`. False if there are no more.
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

    /// Messages so far, and lost entries by interface.
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

    /// Adds frames until one is lost.
    fn fill(watch: &Watch, bytes: usize) -> usize {
        while watch.counts().1.is_empty() {
            watch.push([frame(bytes)]);
        }
        held(watch)
    }

    /// Bytes that a watch counts as its own, which the memory of its list does not exceed.
    fn held(watch: &Watch) -> usize {
        let state = watch.state.lock();
        let frames: usize = state.entries.iter().map(|entry| entry.bytes() - ENTRY_BYTES).sum();
        let memory = frames + state.entries.capacity() * size_of::<Entry>();
        assert!(memory <= state.waiting_bytes + KEPT_ENTRIES * size_of::<Entry>(), "{memory}");
        state.waiting_bytes + state.taken_bytes
    }

    #[test]
    fn entries_that_do_not_fit_are_counted_and_dropped() {
        let watch = Watch::new(Subject::Trace, None, false, Share::of(&shares()));
        let room = MAX_WAITING_BYTES / ENTRY_BYTES;
        watch.push((0..room as u64 + 5).map(message));
        let mut taken = Vec::new();
        assert!(watch.take(&mut taken));
        assert_eq!((taken.len(), watch.counts().1), (room, vec![5]));
        watch.push([message(7)]);
        assert_eq!(watch.counts().1, [6], "there is no room until the writer takes entries again");
        watch.end();
        assert!(!watch.take(&mut taken), "all entries are taken");
        assert!(taken.capacity() <= KEPT_ENTRIES, "and their memory is freed");
    }

    #[test]
    fn entries_after_the_end_are_dropped_and_earlier_ones_are_kept() {
        let watch = Watch::new(Subject::Trace, None, false, Share::of(&shares()));
        watch.push([message(7)]);
        watch.end();
        watch.push([message(8)]);
        let mut taken = Vec::new();
        assert!(watch.take(&mut taken) && taken.len() == 1);
        assert!(!watch.take(&mut taken));
    }

    #[test]
    fn unread_queues_of_all_watches_are_bounded_together() {
        for bytes in [64, 9_000] {
            let shares = shares();
            let watches: Vec<_> = (0..8).map(|_| watch(&shares)).collect();
            let total: usize = watches.iter().map(|watch| fill(watch, bytes)).sum();
            assert!(total <= MAX_WAITING_BYTES && total > MAX_WAITING_BYTES / 2, "{total}");
            drop(watches);
            assert_eq!(shares.load(Ordering::Relaxed), 0, "the shares have ended");
        }
    }

    #[test]
    fn each_watch_holds_at_most_its_share_at_its_begin() {
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
    fn watch_ends_at_its_maximum_of_messages() {
        let watch = Watch::new(Subject::Trace, Some(2), false, Share::of(&shares()));
        // Each frame of the Ethernet function is a message.
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
