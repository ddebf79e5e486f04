//! The state that the threads of one connection share: the epoll of its queues, the guest's memory, and the reason for
//! its end.
//!
//! The vhost-user library drives connection and queues on two threads of its own. It lets the daemon refuse few of a
//! front end's messages. So the thread that finds a fault notes it here, and the library then closes the connection.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use nix::sys::epoll::Epoll;
use parking_lot::Mutex;
use thiserror::Error;
use vhost_user_backend::ShutdownHandle;

use crate::attention::Attention;
use crate::memory::DmaMemory;
use crate::notification::EventError;

/// Maximum consecutive wake-ups without a ring, of all queues of a connection together. A front end that shares one
/// event between queues causes a few of them with each ring. (The attack: an event that is always signalled and cannot
/// be emptied would keep a core busy.)
pub const MAX_IDLE_CALLS: u32 = 10_000;

/// Why the daemon closes a connection that the library would keep.
#[derive(Debug, Error)]
pub enum Fault {
    /// A descriptor is not an event.
    #[error("queue {queue}: {error}")]
    Event {
        /// The queue.
        queue: usize,
        /// Why.
        #[source]
        error: EventError,
    },
    /// The thread cannot wait for a kick.
    #[error("queue {queue}: epoll cannot wait for its kick descriptor: {error}")]
    Watch {
        /// The queue.
        queue: usize,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The thread is woken again and again without a ring.
    #[error(
        "its kick descriptors were signalled {MAX_IDLE_CALLS} times in a row without a ring; does one always stay \
         readable?"
    )]
    Idle,
    /// The front end truncated the file, or its filesystem has no page left.
    #[error(
        "a page of the guest's memory is gone: its QEMU has truncated the memory file, or the file's filesystem is full"
    )]
    MemoryVanished,
}

impl Fault {
    /// The name of the counter of this fault, if there is one.
    pub const fn violation(&self) -> Option<&'static str> {
        match self {
            Self::Event { .. } | Self::Watch { .. } => None,
            Self::Idle => Some("kicks_idle"),
            Self::MemoryVanished => Some("memory_vanished"),
        }
    }
}

#[derive(Default)]
struct Ending {
    fault: Option<Fault>,
    shutdown: Option<ShutdownHandle>,
}

/// The shared state of one connection.
pub struct Link {
    attention: Arc<Attention>,
    epoll: OnceLock<Epoll>,
    memory: Mutex<Arc<DmaMemory>>,
    ending: Mutex<Ending>,
    idle_calls: AtomicU32,
}

impl Link {
    /// # Errors
    /// If the operating system gives no event.
    pub fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            attention: Arc::new(Attention::new()?),
            epoll: OnceLock::new(),
            memory: Mutex::default(),
            ending: Mutex::default(),
            idle_calls: AtomicU32::new(0),
        }))
    }

    /// The wake-up of the thread of the queues.
    pub const fn attention(&self) -> &Arc<Attention> {
        &self.attention
    }

    /// Remembers the epoll at which the library waits for kicks.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn wait_at(&self, epoll: &impl AsRawFd) -> io::Result<()> {
        // SAFETY: the descriptor stays open as long as its owner, `epoll`.
        let borrowed = unsafe { BorrowedFd::borrow_raw(epoll.as_raw_fd()) };
        // The epoll of a connection is set once, when the connection has just been made.
        let _ = self.epoll.set(Epoll(borrowed.try_clone_to_owned()?));
        Ok(())
    }

    /// The epoll at which the library waits for kicks, once it is known.
    pub fn epoll(&self) -> Option<&Epoll> {
        self.epoll.get()
    }

    /// The guest's memory, with checks and guards.
    pub fn memory(&self) -> Arc<DmaMemory> {
        Arc::clone(&self.memory.lock())
    }

    /// Replaces the table of the guest's memory.
    pub fn set_memory(&self, memory: Arc<DmaMemory>) {
        let old = std::mem::replace(&mut *self.memory.lock(), memory);
        // Outside of the lock, because unmapping a large mapping takes milliseconds.
        drop(old);
    }

    /// Closes the connection because of `fault`. Only the first fault is reported.
    pub fn fail(&self, fault: Fault) {
        let mut ending = self.ending.lock();
        ending.fault.get_or_insert(fault);
        if let Some(shutdown) = &ending.shutdown {
            shutdown.shutdown();
        }
    }

    /// Sets the handle that closes the connection, and uses it at once if there is a fault already.
    pub fn hang_up_by(&self, shutdown: ShutdownHandle) {
        let mut ending = self.ending.lock();
        if ending.fault.is_some() {
            shutdown.shutdown();
        }
        ending.shutdown = Some(shutdown);
    }

    /// Takes the fault, if one closed the connection.
    pub fn close(&self) -> Option<Fault> {
        let Ending { fault, .. } = std::mem::take(&mut *self.ending.lock());
        // A fault that a thread noted comes first.
        fault.or_else(|| self.attention.has_lost_memory().then_some(Fault::MemoryVanished))
    }

    /// Counts a wake-up of a queue's thread, which found `rings` rings of the guest.
    pub fn took_rings(&self, rings: u64) {
        if rings > 0 {
            self.idle_calls.store(0, Ordering::Relaxed);
        } else if self.idle_calls.fetch_add(1, Ordering::Relaxed) >= MAX_IDLE_CALLS {
            self.fail(Fault::Idle);
        }
    }

    /// The first step of the thread of the queues after each wake-up; `is_call` if the wake-up came from the
    /// attention.
    ///
    /// # Errors
    /// If the connection is over: the library then ends the thread.
    pub fn begin_turn(&self, is_call: bool) -> io::Result<()> {
        if is_call {
            self.attention.consume();
        }
        if self.attention.has_lost_memory() {
            self.fail(Fault::MemoryVanished);
        }
        if self.attention.is_ending() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection is over"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_ups_without_a_ring_are_bounded() {
        let link = Link::new().unwrap();
        for _ in 0..3 {
            (0..MAX_IDLE_CALLS).for_each(|_| link.took_rings(0));
            link.took_rings(1);
        }
        assert!(link.close().is_none());
        (0..=MAX_IDLE_CALLS).for_each(|_| link.took_rings(0));
        assert!(matches!(link.close(), Some(Fault::Idle)));
    }

    #[test]
    fn a_turn_ends_with_the_connection() {
        let link = Link::new().unwrap();
        link.attention().wake();
        assert!(link.begin_turn(true).is_ok() && link.close().is_none());
        link.attention().lose_memory();
        assert!(link.begin_turn(false).is_ok(), "the thread ends only when it is asked to");
        assert!(matches!(link.close(), Some(Fault::MemoryVanished)));
        link.attention().end();
        assert!(link.begin_turn(true).is_err());
    }
}
