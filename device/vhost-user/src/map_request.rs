//! The request that has the BAR mapped. The `vhost` crate waits for its answer without bound, so a thread of its own
//! asks: the node's queues go on meanwhile, and a front end that never answers keeps nobody else waiting.
//!
//! There is at most one such thread for a node, connections that came and went included: a front end that keeps the
//! channel open and does not answer keeps one thread and the three descriptors that it holds, and no more of them.

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

/// How long a front end may take to map the BAR before that is reported. Its queues go on meanwhile.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// Why the BAR is not asked for.
#[derive(Debug, Error)]
pub enum MapError {
    /// It may take requests of the device or not.
    #[error("the front end gave no channel to ask for the BAR's mapping")]
    NoChannel,
    /// The file is shared by a descriptor of its own.
    #[error("no file descriptor left to share the BAR: {0}")]
    File(#[source] io::Error),
    /// Two threads are needed.
    #[error("no thread to ask for the BAR's mapping: {0}")]
    Thread(#[from] io::Error),
}

/// Whether anybody asks the front end of a node, and who wants to next.
#[derive(Debug, Default)]
pub struct Seat(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    is_taken: bool,
    waiting: Weak<Attention>,
}

impl Seat {
    /// False when it is taken; `attention` is called once it is free then.
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

/// What came of a request.
#[derive(Debug)]
pub enum News {
    /// An answer, or the end of the channel.
    Answer(io::Result<u64>),
    /// No answer for [`TIMEOUT`]. It may still come.
    Late,
}

/// Where a request's threads leave what came of it, and whom they call then.
#[derive(Debug)]
struct Inbox {
    news: Mutex<Vec<(u64, News)>>,
    attention: Arc<Attention>,
}

impl Inbox {
    fn post(inbox: &Weak<Self>, number: u64, news: News) {
        // The connection may be over.
        if let Some(inbox) = inbox.upgrade() {
            inbox.news.lock().push((number, news));
            inbox.attention.wake();
        }
    }
}

/// How far the mapping has got, which each start of the device needs anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mapping {
    Wanted,
    /// By this request.
    Asked(u64),
    /// It stands, or cannot.
    Settled,
}

struct State {
    backend: Option<Backend>,
    mapping: Mapping,
    requests: u64,
}

/// The requests of one connection.
pub struct MapRequests {
    seat: Arc<Seat>,
    inbox: Arc<Inbox>,
    state: Mutex<State>,
}

impl MapRequests {
    /// Of a connection of the node that `seat` belongs to, whose thread is called by `attention`.
    pub fn new(seat: &Arc<Seat>, attention: &Arc<Attention>) -> Self {
        Self {
            seat: Arc::clone(seat),
            inbox: Arc::new(Inbox { news: Mutex::default(), attention: Arc::clone(attention) }),
            state: Mutex::new(State { backend: None, mapping: Mapping::Wanted, requests: 0 }),
        }
    }

    /// The front end takes requests of the device here from now on.
    pub fn set_backend(&self, backend: Backend) {
        let old = self.state.lock().backend.replace(backend);
        drop(old);
    }

    /// The device starts anew.
    pub fn want(&self) {
        self.state.lock().mapping = Mapping::Wanted;
    }

    /// Whether a request is due.
    pub fn is_due(&self) -> bool {
        self.state.lock().mapping == Mapping::Wanted
    }

    /// Asks for `file` to be mapped. Where an earlier request of the node has no answer yet it stays due, and the
    /// connection's thread is called once there is one.
    ///
    /// # Errors
    /// [`MapError`]. Then nothing more is due.
    pub fn ask(&self, request: VhostUserMMap, file: io::Result<File>) -> Result<(), MapError> {
        let mut state = self.state.lock();
        state.mapping = Mapping::Settled;
        let Some(backend) = state.backend.clone() else { return Err(MapError::NoChannel) };
        let file = file.map_err(MapError::File)?;
        if !self.seat.take(&self.inbox.attention) {
            state.mapping = Mapping::Wanted;
            return Ok(());
        }
        state.requests += 1;
        let number = state.requests;
        let started = self.start(number, backend, request, file);
        match started {
            Ok(()) => state.mapping = Mapping::Asked(number),
            Err(_) => self.seat.give_back(),
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
        let (inbox, seat) = (Arc::downgrade(&self.inbox), Arc::clone(&self.seat));
        let ask = move || {
            let answer = backend.shmem_map(&request, &file);
            drop((backend, file, is_over));
            // Free before the news are told: whoever hears them may ask again.
            seat.give_back();
            Inbox::post(&inbox, number, News::Answer(answer));
        };
        std::thread::Builder::new().name("map-request".to_owned()).spawn(ask).map(drop)
    }

    /// What came of the request that counts. What came of earlier ones, which a reset of the device has overtaken, does
    /// not.
    pub fn take_news(&self) -> Vec<News> {
        let news = std::mem::take(&mut *self.inbox.news.lock());
        let mut state = self.state.lock();
        let mut ours = Vec::new();
        for (number, news) in news {
            if state.mapping == Mapping::Asked(number) {
                if matches!(news, News::Answer(_)) {
                    state.mapping = Mapping::Settled;
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

    fn requests(seat: &Arc<Seat>) -> (MapRequests, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let requests = MapRequests::new(seat, &Arc::new(Attention::new().unwrap()));
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
    fn the_answer_to_the_latest_request_counts() {
        let seat = Arc::default();
        let (requests, mut theirs) = requests(&seat);
        ask(&requests);
        take_request(&mut theirs);
        // The device starts anew: the answer is to a question of before.
        requests.want();
        ask(&requests);
        assert!(requests.is_due(), "one at a time");
        answer(&mut theirs, 17);
        until("the first answer", || !seat.0.lock().is_taken);
        until("its news", || !requests.inbox.news.lock().is_empty());
        assert!(requests.take_news().is_empty() && requests.is_due());
        ask(&requests);
        assert!(!requests.is_due());
        take_request(&mut theirs);
        answer(&mut theirs, 0);
        until("the news", || matches!(requests.take_news()[..], [News::Answer(Ok(0))]));
        assert!(!requests.is_due() && !seat.0.lock().is_taken);
    }

    #[test]
    fn a_request_that_a_dead_connection_left_holds_up_one_thread_and_no_more() {
        let seat = Arc::default();
        let (before, mut kept) = requests(&seat);
        ask(&before);
        take_request(&mut kept);
        drop(before);
        let (after, mut theirs) = requests(&seat);
        ask(&after);
        assert!(after.is_due(), "the earlier one has no answer yet");
        drop(kept);
        until("the earlier one's end", || !seat.0.lock().is_taken);
        ask(&after);
        assert!(!after.is_due());
        take_request(&mut theirs);
        drop(theirs);
        until("the news", || matches!(after.take_news()[..], [News::Answer(Err(_))]));
    }

    #[test]
    fn a_front_end_that_takes_no_requests_is_not_asked() {
        let requests = MapRequests::new(&Arc::default(), &Arc::new(Attention::new().unwrap()));
        let refused = requests.ask(VhostUserMMap::default(), tempfile::tempfile());
        assert!(matches!(refused, Err(MapError::NoChannel)) && !requests.is_due());
    }
}
