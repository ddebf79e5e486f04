//! Wakes the library's thread that serves the queues of one connection. Callers are that thread itself, threads of
//! other nodes, the thread that ends the connection, and the signal handler of a vanished page.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// The wake-up of one connection's thread, with its reasons.
#[derive(Debug)]
pub struct Attention {
    event: EventFd,
    is_ending: AtomicBool,
    has_lost_memory: AtomicBool,
}

impl Attention {
    /// # Errors
    /// If the operating system gives no event.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            event: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?,
            is_ending: AtomicBool::new(false),
            has_lost_memory: AtomicBool::new(false),
        })
    }

    /// Has the thread run once more, after it has served the other queues.
    pub fn wake(&self) {
        let one = 1_u64.to_ne_bytes();
        // Fails only if the counter is full, and then the thread is already woken.
        // SAFETY: the descriptor is open as long as `self`, and `one` is eight readable bytes.
        unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Reports that the connection ends.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether the connection ends: its thread must stop polling.
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Reports that a page of the guest's memory is gone. A signal handler calls this, so it does only an atomic store
    /// and one async-signal-safe system call.
    pub fn lose_memory(&self) {
        self.has_lost_memory.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether a page of the guest's memory is gone.
    pub fn has_lost_memory(&self) -> bool {
        self.has_lost_memory.load(Ordering::Acquire)
    }

    /// Consumes the wake-ups so far. The caller checks the reasons after this. If a wake-up arrives in between, the
    /// caller sees its reason now, and once more later.
    pub fn consume(&self) {
        // Fails if there was no wake-up.
        let _ = self.event.read();
    }
}

impl AsRawFd for Attention {
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}
