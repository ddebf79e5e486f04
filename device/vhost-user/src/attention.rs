//! By which the library's thread that serves one connection's queues is called: by itself, by other nodes' threads, by
//! the thread that ends the connection, and by the handler of a vanished page.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// What one connection's thread is called for.
#[derive(Debug)]
pub struct Attention {
    event: EventFd,
    is_ending: AtomicBool,
    has_lost_memory: AtomicBool,
}

impl Attention {
    /// # Errors
    /// When the operating system gives no event.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            event: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?,
            is_ending: AtomicBool::new(false),
            has_lost_memory: AtomicBool::new(false),
        })
    }

    /// Asks for one more turn, after the other queues had theirs.
    pub fn wake(&self) {
        let one = 1_u64.to_ne_bytes();
        // Fails only when the counter is full, and then the call is under way already.
        // SAFETY: the descriptor is open as long as `self`, and `one` is eight readable bytes.
        unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Says that the connection ends.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether the connection ends, so that nobody goes on polling.
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Says that a page of the guest's memory is gone. Called in a signal handler: nothing but an atomic store and one
    /// system call that is safe there.
    pub fn lose_memory(&self) {
        self.has_lost_memory.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether a page of the guest's memory is gone.
    pub fn has_lost_memory(&self) -> bool {
        self.has_lost_memory.load(Ordering::Acquire)
    }

    /// Takes the calls so far. What they were for is looked at behind this: a call that comes between the two is seen
    /// now, and once more.
    pub fn consume(&self) {
        // Fails when there was none.
        let _ = self.event.read();
    }
}

impl AsRawFd for Attention {
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}
