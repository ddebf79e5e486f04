//! The connections of the monitor, and the choice of the one to close when too many clients connect.

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::{Condvar, Mutex};

/// Maximum connections at a time, each with its own thread. If another client connects, the daemon closes the
/// connection that was silent for longest. (The attack: clients connect, send nothing, and keep others out.)
///
/// The bound holds also for threads: the new connection waits until the thread of the closed one has ended. Otherwise
/// a client could send a slow request on each of many connections, and have a thread for each.
pub const MAX_CONNECTIONS: usize = 16;

/// How long a new connection waits for a thread before it is refused. A thread that waits for the lock on all nodes
/// gives up within [`niclab_spec::monitor::LOCK_TIMEOUT`].
const THREAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum connections that observe. The daemon never closes them to admit others, so some slots stay free for
/// requests.
pub const MAX_WATCHES: usize = 8;

/// All connections.
#[derive(Debug, Default)]
pub struct Connections {
    open: Mutex<Vec<Slot>>,
    /// Threads of connections, closed ones included.
    threads: Mutex<usize>,
    thread_ended: Condvar,
    /// Counts the requests of all connections.
    heard: AtomicU64,
}

#[derive(Debug)]
struct Slot {
    stream: Arc<UnixStream>,
    /// The count at its last complete request, or at its begin.
    last_heard: u64,
    is_watching: bool,
}

/// The slot of one connection, until this value is dropped or another connection needs the slot.
#[derive(Debug)]
pub struct ConnectionSlot {
    connections: Arc<Connections>,
    stream: Arc<UnixStream>,
}

impl Connections {
    /// Gets a slot for a connection. If no slot is free, takes that of the connection that was silent for longest.
    pub fn admit(self: &Arc<Self>, stream: UnixStream) -> Option<ConnectionSlot> {
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
        let slot = Slot { stream: Arc::clone(&stream), last_heard: self.count(), is_watching: false };
        self.open.lock().push(slot);
        Some(ConnectionSlot { connections: Arc::clone(self), stream })
    }

    /// Closes the connection that was silent for longest. False if all connections observe.
    pub fn hang_up_on_silent(&self) -> bool {
        let mut open = self.open.lock();
        let silent = open.iter().enumerate().filter(|(_, slot)| !slot.is_watching);
        let Some((number, _)) = silent.min_by_key(|(_, slot)| slot.last_heard) else { return false };
        // The connection's thread ends by itself now. This fails only if the other end has hung up already.
        let _ = open.swap_remove(number).stream.shutdown(Shutdown::Both);
        true
    }

    fn count(&self) -> u64 {
        self.heard.fetch_add(1, Ordering::Relaxed)
    }
}

impl ConnectionSlot {
    /// The connection.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Whether either end has closed the connection. A client that shuts down only its sending half still waits for
    /// the answer.
    pub fn is_over(&self) -> bool {
        let mut socket = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
        poll(&mut socket, PollTimeout::ZERO).is_ok()
            && socket
                .iter()
                .any(|socket| socket.revents().is_some_and(|events| events.contains(PollFlags::POLLHUP)))
    }

    /// Notes a complete request.
    pub fn on_request(&self) {
        let count = self.connections.count();
        let mut open = self.connections.open.lock();
        if let Some(slot) = open.iter_mut().find(|slot| Arc::ptr_eq(&slot.stream, &self.stream)) {
            slot.last_heard = count;
        }
    }

    /// Marks the connection as observing: the daemon does not close it from now on. False if [`MAX_WATCHES`] observe
    /// already, or if the connection has lost its slot.
    pub fn watch(&self) -> bool {
        let mut open = self.connections.open.lock();
        if open.iter().filter(|slot| slot.is_watching).count() >= MAX_WATCHES {
            return false;
        }
        let own = open.iter_mut().find(|slot| Arc::ptr_eq(&slot.stream, &self.stream));
        own.map(|slot| slot.is_watching = true).is_some()
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.open.lock().retain(|slot| !Arc::ptr_eq(&slot.stream, &self.stream));
        *self.connections.threads.lock() -= 1;
        self.connections.thread_ended.notify_all();
    }
}
