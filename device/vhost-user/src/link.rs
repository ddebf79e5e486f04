//! What the threads of one connection tell one another: where its queues are waited for, what memory it has, that it
//! ends, and why.
//!
//! The vhost-user library drives connection and queues, on two threads of its own. It asks for no opinion on most of
//! what a front end does; so whoever finds that something is wrong notes it here, and the connection is hung up on.

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

/// Most calls in a row, of all queues of a connection, that nobody made: somebody who shares one event between queues
/// has a few of them for each ring. An event that is signalled for ever and cannot be emptied would keep a core busy.
pub const MAX_IDLE_CALLS: u32 = 10_000;

/// Why a front end is hung up on, where the library would not do so.
#[derive(Debug, Error)]
pub enum Fault {
    /// A descriptor that is no event.
    #[error("queue {queue}: {error}")]
    Event {
        /// The queue.
        queue: usize,
        /// Why.
        #[source]
        error: EventError,
    },
    /// A kick that cannot be waited for.
    #[error("queue {queue}: its kick cannot be watched: {error}")]
    Watch {
        /// The queue.
        queue: usize,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The thread is called, and nobody called it.
    #[error("its queues were called {MAX_IDLE_CALLS} times in a row, and nobody had rung")]
    Idle,
    /// The file was cut, or there is no page left.
    #[error(
        "a page of the guest's memory is gone, as if its QEMU had cut the file short or memory had run out"
    )]
    MemoryVanished,
}

impl Fault {
    /// The name under which it is counted, if it is.
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

/// What belongs to one connection.
pub struct Link {
    attention: Arc<Attention>,
    epoll: OnceLock<Epoll>,
    memory: Mutex<Arc<DmaMemory>>,
    ending: Mutex<Ending>,
    idle_calls: AtomicU32,
}

impl Link {
    /// # Errors
    /// When the operating system gives no event.
    pub fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            attention: Arc::new(Attention::new()?),
            epoll: OnceLock::new(),
            memory: Mutex::default(),
            ending: Mutex::default(),
            idle_calls: AtomicU32::new(0),
        }))
    }

    /// By which the thread of its queues is called.
    pub const fn attention(&self) -> &Arc<Attention> {
        &self.attention
    }

    /// Remembers where the library waits for kicks.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn wait_at(&self, epoll: &impl AsRawFd) -> io::Result<()> {
        // SAFETY: the descriptor is open as long as what it is borrowed from.
        let borrowed = unsafe { BorrowedFd::borrow_raw(epoll.as_raw_fd()) };
        // Set once, for a connection that has just been made.
        let _ = self.epoll.set(Epoll(borrowed.try_clone_to_owned()?));
        Ok(())
    }

    /// Where the library waits for kicks, once there is such a place.
    pub fn epoll(&self) -> Option<&Epoll> {
        self.epoll.get()
    }

    /// The guest's memory, checked and guarded.
    pub fn memory(&self) -> Arc<DmaMemory> {
        Arc::clone(&self.memory.lock())
    }

    /// Another table of the guest's memory.
    pub fn set_memory(&self, memory: Arc<DmaMemory>) {
        let old = std::mem::replace(&mut *self.memory.lock(), memory);
        // Outside of the lock: taking a large mapping apart takes milliseconds.
        drop(old);
    }

    /// Hangs up because of `fault`; the first one is the one that is told.
    pub fn fail(&self, fault: Fault) {
        let mut ending = self.ending.lock();
        ending.fault.get_or_insert(fault);
        if let Some(shutdown) = &ending.shutdown {
            shutdown.shutdown();
        }
    }

    /// By `shutdown` the connection is hung up on from now on, and at once where there is a reason already.
    pub fn hang_up_by(&self, shutdown: ShutdownHandle) {
        let mut ending = self.ending.lock();
        if ending.fault.is_some() {
            shutdown.shutdown();
        }
        ending.shutdown = Some(shutdown);
    }

    /// The connection is over: why, if it was hung up on.
    pub fn close(&self) -> Option<Fault> {
        let Ending { fault, .. } = std::mem::take(&mut *self.ending.lock());
        // Whoever noticed first.
        fault.or_else(|| self.attention.has_lost_memory().then_some(Fault::MemoryVanished))
    }

    /// A queue's thread was called, and found that the guest had rung so often.
    pub fn took_rings(&self, rings: u64) {
        if rings > 0 {
            self.idle_calls.store(0, Ordering::Relaxed);
        } else if self.idle_calls.fetch_add(1, Ordering::Relaxed) >= MAX_IDLE_CALLS {
            self.fail(Fault::Idle);
        }
    }

    /// What the thread of the queues does first whenever it is called; `is_call` when it was by the attention.
    ///
    /// # Errors
    /// When the connection is over: the library ends the thread then.
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
    fn calls_that_nobody_made_are_bounded() {
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
        assert!(link.begin_turn(false).is_ok(), "until it is told to end");
        assert!(matches!(link.close(), Some(Fault::MemoryVanished)));
        link.attention().end();
        assert!(link.begin_turn(true).is_err());
    }
}
