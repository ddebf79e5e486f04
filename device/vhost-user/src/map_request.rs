//! The request to map the BAR. The `vhost` crate waits for its answer without limit, so the request has its own
//! thread. Meanwhile the node's queues are served, and a front end that never answers delays no other.
//!
//! A node has at most one such thread, also for all its earlier connections. (The attack: front ends keep the channel
//! open and do not answer. They occupy one thread and its three descriptors.)

use std::fs::File;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use vhost::vhost_user::message::VhostUserMMap;
use vhost::vhost_user::{Backend, VhostUserFrontendReqHandler};

use crate::attention::Attention;

/// How long a front end may take to map the BAR before the daemon reports it. The daemon serves its queues meanwhile.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// Why the front end is not asked to map the BAR.
#[derive(Debug, Error)]
pub enum MapError {
    /// The front end has not set up the channel for requests of the device.
    #[error("the front end has set up no channel for requests, so it cannot be asked to map the BAR")]
    NoChannel,
    /// The request needs a file descriptor.
    #[error("cannot share the BAR's file with the front end: {0}; is the limit of open files reached?")]
    File(#[source] io::Error),
    /// The request needs two threads.
    #[error("cannot start a thread that asks to map the BAR: {0}; is the limit of processes reached?")]
    Thread(#[from] io::Error),
}

/// Whether a request to the front end of a node is in flight, and the connection that waits for its end.
#[derive(Debug, Default)]
pub struct MapRequestSlot(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    is_taken: bool,
    waiting: Weak<Attention>,
}

impl MapRequestSlot {
    /// Takes the slot. False if it is taken; `attention` is then woken once it is free.
    fn take(&self, attention: &Arc<Attention>) -> bool {
        let mut taken = self.0.lock();
        if taken.is_taken {
            taken.waiting = Arc::downgrade(attention);
        }
        !std::mem::replace(&mut taken.is_taken, true)
    }

    fn give_back(&self) {
        let Taken { waiting, .. } = std::mem::take(&mut *self.0.lock());
        if let Some(attention) = waiting.upgrade() {
            attention.wake();
        }
    }
}

/// The result of a request.
#[derive(Debug)]
pub enum News {
    /// An answer, or the end of the channel.
    Answer(io::Result<u64>),
    /// No answer for [`TIMEOUT`]. It may still come.
    Late,
}

/// Where a request's threads post results. They then wake the connection's thread.
#[derive(Debug)]
struct Inbox {
    news: Mutex<Vec<(u64, News)>>,
    attention: Arc<Attention>,
}

impl Inbox {
    fn post(inbox: &Weak<Self>, number: u64, news: News) {
        // The connection may have ended.
        if let Some(inbox) = inbox.upgrade() {
            inbox.news.lock().push((number, news));
            inbox.attention.wake();
        }
    }
}

/// The state of the mapping, which each start of the device needs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mapping {
    Wanted,
    /// The request of this number asks for it.
    Asked(u64),
    /// The front end has answered, or cannot be asked.
    Done,
}

struct State {
    backend: Option<Backend>,
    mapping: Mapping,
    requests: u64,
}

/// The requests of one connection.
pub struct MapRequests {
    slot: Arc<MapRequestSlot>,
    inbox: Arc<Inbox>,
    state: Mutex<State>,
}

impl MapRequests {
    /// For a connection of the node that `slot` belongs to; `attention` wakes the connection's thread.
    pub fn new(slot: &Arc<MapRequestSlot>, attention: &Arc<Attention>) -> Self {
        Self {
            slot: Arc::clone(slot),
            inbox: Arc::new(Inbox { news: Mutex::default(), attention: Arc::clone(attention) }),
            state: Mutex::new(State { backend: None, mapping: Mapping::Wanted, requests: 0 }),
        }
    }

    /// Sets the channel on which the front end takes requests of the device.
    pub fn set_backend(&self, backend: Backend) {
        let old = self.state.lock().backend.replace(backend);
        drop(old);
    }

    /// The device starts again, and needs a mapping.
    pub fn want(&self) {
        self.state.lock().mapping = Mapping::Wanted;
    }

    /// Whether a request is due.
    pub fn is_due(&self) -> bool {
        self.state.lock().mapping == Mapping::Wanted
    }

    /// Asks for `file` to be mapped. If an earlier request of the node has no answer yet, this one stays due, and the
    /// connection's thread is woken after that answer.
    ///
    /// # Errors
    /// [`MapError`]. The request is then no longer due.
    pub fn ask(&self, request: VhostUserMMap, file: io::Result<File>) -> Result<(), MapError> {
        let mut state = self.state.lock();
        state.mapping = Mapping::Done;
        let Some(backend) = state.backend.clone() else { return Err(MapError::NoChannel) };
        let file = file.map_err(MapError::File)?;
        if !self.slot.take(&self.inbox.attention) {
            state.mapping = Mapping::Wanted;
            return Ok(());
        }
        state.requests += 1;
        let number = state.requests;
        let started = self.start(number, backend, request, file);
        match started {
            Ok(()) => state.mapping = Mapping::Asked(number),
            Err(_) => self.slot.give_back(),
        }
        Ok(started?)
    }

    fn start(&self, number: u64, backend: Backend, request: VhostUserMMap, file: File) -> io::Result<()> {
        let (is_over, over) = sync_channel::<()>(0);
        let inbox = Arc::downgrade(&self.inbox);
        std::thread::Builder::new().name("map-watch".to_owned()).spawn(move || {
            if over.recv_timeout(TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                Inbox::post(&inbox, number, News::Late);
            }
        })?;
        let (inbox, slot) = (Arc::downgrade(&self.inbox), Arc::clone(&self.slot));
        let ask = move || {
            let answer = backend.shmem_map(&request, &file);
            drop((backend, file, is_over));
            // The slot is free before the result is posted, because its receiver may ask again.
            slot.give_back();
            Inbox::post(&inbox, number, News::Answer(answer));
        };
        std::thread::Builder::new().name("map-request".to_owned()).spawn(ask).map(drop)
    }

    /// The results of the latest request. Results of earlier requests, from before a reset of the device, are
    /// dropped.
    pub fn take_news(&self) -> Vec<News> {
        let news = std::mem::take(&mut *self.inbox.news.lock());
        let mut state = self.state.lock();
        let mut ours = Vec::new();
        for (number, news) in news {
            if state.mapping == Mapping::Asked(number) {
                if matches!(news, News::Answer(_)) {
                    state.mapping = Mapping::Done;
                }
                ours.push(news);
            }
        }
        ours
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::*;

    fn requests(slot: &Arc<MapRequestSlot>) -> (MapRequests, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let requests = MapRequests::new(slot, &Arc::new(Attention::new().unwrap()));
        let backend = Backend::from_stream(ours);
        backend.set_shmem_flag(true);
        backend.set_reply_ack_flag(true);
        requests.set_backend(backend);
        (requests, theirs)
    }

    fn ask(requests: &MapRequests) {
        assert!(requests.is_due());
        requests.ask(VhostUserMMap::default(), tempfile::tempfile()).unwrap();
    }

    fn take_request(theirs: &mut UnixStream) {
        let mut request = [0; 52];
        theirs.read_exact(&mut request).unwrap();
        assert_eq!(request[..4], 9_u32.to_ne_bytes(), "SHMEM_MAP");
    }

    fn answer(theirs: &mut UnixStream, value: u32) {
        theirs.write_all(&[9_u32, 1 | 4, 8, value, 0].map(u32::to_ne_bytes).concat()).unwrap();
    }

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn answer_to_an_earlier_request_is_dropped() {
        let slot = Arc::default();
        let (requests, mut theirs) = requests(&slot);
        ask(&requests);
        take_request(&mut theirs);
        // The device starts again, so the pending answer belongs to an earlier request.
        requests.want();
        ask(&requests);
        assert!(requests.is_due(), "only one request is in flight");
        answer(&mut theirs, 17);
        until("the first answer", || !slot.0.lock().is_taken);
        until("its news", || !requests.inbox.news.lock().is_empty());
        assert!(requests.take_news().is_empty() && requests.is_due());
        ask(&requests);
        assert!(!requests.is_due());
        take_request(&mut theirs);
        answer(&mut theirs, 0);
        until("the news", || matches!(requests.take_news()[..], [News::Answer(Ok(0))]));
        assert!(!requests.is_due() && !slot.0.lock().is_taken);
    }

    #[test]
    fn request_of_a_dead_connection_delays_the_next_one() {
        let slot = Arc::default();
        let (before, mut kept) = requests(&slot);
        ask(&before);
        take_request(&mut kept);
        drop(before);
        let (after, mut theirs) = requests(&slot);
        ask(&after);
        assert!(after.is_due(), "the earlier one has no answer yet");
        drop(kept);
        until("the earlier one's end", || !slot.0.lock().is_taken);
        ask(&after);
        assert!(!after.is_due());
        take_request(&mut theirs);
        drop(theirs);
        until("the news", || matches!(after.take_news()[..], [News::Answer(Err(_))]));
    }

    #[test]
    fn front_end_without_a_request_channel_is_not_asked() {
        let requests = MapRequests::new(&Arc::default(), &Arc::new(Attention::new().unwrap()));
        let refused = requests.ask(VhostUserMMap::default(), tempfile::tempfile());
        assert!(matches!(refused, Err(MapError::NoChannel)) && !requests.is_due());
    }
}
