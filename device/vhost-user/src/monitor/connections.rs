//! Who is connected to the monitor, and who is hung up on when another wants in.

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::{Condvar, Mutex};

/// Most connections at a time, each with a thread of its own. When one more comes, the one that was silent for longest
/// is hung up on: whoever connects and says nothing keeps nobody out.
///
/// The bound holds for threads, too: the new connection waits until the thread of the other one has ended. A client
/// that asked for what takes long on one connection after another would otherwise have a thread for each.
pub const MAX_CONNECTIONS: usize = 16;

/// How long a new connection waits for a thread before it is refused. A thread that waits for the world's lock gives up
/// within [`niclab_spec::monitor::LOCK_TIMEOUT`].
const THREAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Most of them that watch. They are never hung up on for another's sake, so some places are kept for questions.
pub const MAX_WATCHES: usize = 8;

/// All connections.
#[derive(Debug, Default)]
pub struct Connections {
    open: Mutex<Vec<Place>>,
    /// Threads of connections, also of those that were hung up on.
    threads: Mutex<usize>,
    thread_ended: Condvar,
    /// Counts what was heard, of anybody.
    heard: AtomicU64,
}

#[derive(Debug)]
struct Place {
    stream: Arc<UnixStream>,
    /// The count when the last whole request was heard of it, or when it came.
    last_heard: u64,
    is_watching: bool,
}

/// One connection's place, until this is dropped or another needs it.
#[derive(Debug)]
pub struct Seat {
    connections: Arc<Connections>,
    stream: Arc<UnixStream>,
}

impl Connections {
    /// A place for a connection; if there is none left, that of the one that was silent for longest.
    pub fn admit(self: &Arc<Self>, stream: UnixStream) -> Option<Seat> {
        if self.open.lock().len() >= MAX_CONNECTIONS && !self.hang_up_on_silent() {
            return None;
        }
        let mut threads = self.threads.lock();
        self.thread_ended.wait_while_for(&mut threads, |threads| *threads >= MAX_CONNECTIONS, THREAD_TIMEOUT);
        if *threads >= MAX_CONNECTIONS {
            return None;
        }
        *threads += 1;
        drop(threads);
        let stream = Arc::new(stream);
        let place = Place { stream: Arc::clone(&stream), last_heard: self.count(), is_watching: false };
        self.open.lock().push(place);
        Some(Seat { connections: Arc::clone(self), stream })
    }

    /// Hangs up on the one that was silent for longest. False if all watch.
    pub fn hang_up_on_silent(&self) -> bool {
        let mut open = self.open.lock();
        let silent = open.iter().enumerate().filter(|(_, place)| !place.is_watching);
        let Some((number, _)) = silent.min_by_key(|(_, place)| place.last_heard) else { return false };
        // Its thread ends by itself now. Fails only when the other end has hung up first.
        let _ = open.swap_remove(number).stream.shutdown(Shutdown::Both);
        true
    }

    fn count(&self) -> u64 {
        self.heard.fetch_add(1, Ordering::Relaxed)
    }
}

impl Seat {
    /// The connection.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Whether the connection is over: either end has hung up. A client that only ends its own half still waits for the
    /// answer.
    pub fn is_over(&self) -> bool {
        let mut socket = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
        poll(&mut socket, PollTimeout::ZERO).is_ok()
            && socket
                .iter()
                .any(|socket| socket.revents().is_some_and(|events| events.contains(PollFlags::POLLHUP)))
    }

    /// A whole request was heard.
    pub fn on_request(&self) {
        let count = self.connections.count();
        let mut open = self.connections.open.lock();
        if let Some(place) = open.iter_mut().find(|place| Arc::ptr_eq(&place.stream, &self.stream)) {
            place.last_heard = count;
        }
    }

    /// From now on it is not hung up on, as somebody watches over it. False if as many watch as can, or it lost its
    /// place.
    pub fn watch(&self) -> bool {
        let mut open = self.connections.open.lock();
        if open.iter().filter(|place| place.is_watching).count() >= MAX_WATCHES {
            return false;
        }
        let own = open.iter_mut().find(|place| Arc::ptr_eq(&place.stream, &self.stream));
        own.map(|place| place.is_watching = true).is_some()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.connections.open.lock().retain(|place| !Arc::ptr_eq(&place.stream, &self.stream));
        *self.connections.threads.lock() -= 1;
        self.connections.thread_ended.notify_all();
    }
}
