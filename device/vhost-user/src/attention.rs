//! By which the thread of one connection's queues is called: by the thread that answers the front end, by other nodes'
//! threads, by itself, and by the handler of a vanished page.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// The bit by which the thread calls itself back; those below name queues.
const WAKE: u64 = 1 << 63;

/// What one connection's thread is called for.
#[derive(Debug)]
pub struct Attention {
    event: EventFd,
    pending: AtomicU64,
    is_ending: AtomicBool,
    has_lost_memory: AtomicBool,
}

/// What there is to do after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls(u64);

impl Calls {
    /// The thread called itself back, after its other queues had their turn.
    pub const fn is_woken(self) -> bool {
        self.0 & WAKE != 0
    }

    /// Queues that were started just now: each wants one look, whether it was rung or not.
    pub fn queues(self) -> impl Iterator<Item = usize> {
        (0..63).filter(move |queue| self.0 & 1 << queue != 0)
    }
}

impl Attention {
    /// # Errors
    /// When the operating system gives no event.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            event: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?,
            pending: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
            has_lost_memory: AtomicBool::new(false),
        })
    }

    /// Asks for one more turn.
    pub fn wake(&self) {
        self.post(WAKE);
    }

    /// Asks for a look at `queue`.
    pub fn look_at(&self, queue: usize) {
        if queue < 63 {
            self.post(1 << queue);
        }
    }

    /// Says that the connection ends.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.call();
    }

    /// Whether the connection ends, so that nobody goes on polling.
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Says that a page of the guest's memory is gone. Called in a signal handler: nothing but atomic stores and one
    /// system call that is safe there.
    pub fn lose_memory(&self) {
        self.has_lost_memory.store(true, Ordering::Release);
        self.call();
    }

    /// Whether a page of the guest's memory is gone.
    pub fn has_lost_memory(&self) -> bool {
        self.has_lost_memory.load(Ordering::Acquire)
    }

    /// Takes what was called for since the last time.
    pub fn take(&self) -> Calls {
        // Fails when there was no call. Emptied first: a call that comes between the two is seen now, and once more.
        let _ = self.event.read();
        Calls(self.pending.swap(0, Ordering::AcqRel))
    }

    fn post(&self, bits: u64) {
        self.pending.fetch_or(bits, Ordering::AcqRel);
        self.call();
    }

    fn call(&self) {
        let one = 1_u64.to_ne_bytes();
        // Fails only when the counter is full, and then the call is under way already.
        // SAFETY: the descriptor is open as long as `self`, and `one` is eight readable bytes.
        unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

impl AsFd for Attention {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as `self`, from which the result borrows.
        unsafe { BorrowedFd::borrow_raw(self.event.as_raw_fd()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_taken_once() {
        let attention = Attention::new().unwrap();
        attention.wake();
        attention.look_at(3);
        attention.look_at(0);
        let calls = attention.take();
        assert!(calls.is_woken());
        assert_eq!(calls.queues().collect::<Vec<_>>(), [0, 3]);
        let none = attention.take();
        assert!(!none.is_woken() && none.queues().next().is_none());
        assert!(!attention.is_ending() && !attention.has_lost_memory());
    }
}
