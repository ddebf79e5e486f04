//! Code that ports of all models share: [`niclab_port`] on mapped memory, and the waiting, which that crate does not
//! have.

mod open;
mod parts;
mod queue;
mod requester;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use niclab_port::Fault;
use niclab_port::doorbell::ring_if_needed;

pub(crate) use niclab_port::Kind;
pub use niclab_port::{Refusal, Status};
pub use open::PortOptions;
pub(crate) use open::open;
pub use parts::Parts;
pub(crate) use queue::Queue;
pub(crate) use requester::Requester;

use crate::wait::{Next, Quiet, Wait};
use crate::{Address, Backing, Error, SharedMemory};

/// Number of open batches of a half of a port.
#[derive(Debug, Default)]
pub(crate) struct Batches(u32);

impl Batches {
    fn begin(&mut self) {
        self.0 += 1;
    }

    fn end(&mut self, link: &Link) {
        self.0 = self.0.saturating_sub(1);
        if self.0 == 0 {
            link.announce_deferred();
        }
    }
}

/// State that both halves of a port share: the connection to the device.
pub struct Link {
    pub(crate) address: Address,
    info: SharedMemory,
    /// Slices consumed since the port was opened; a post reports this number to the device.
    received: AtomicU64,
    /// Doorbells rung.
    pub(crate) rung: AtomicU64,
    /// The number of the device's sleep for which the last one was rung.
    pub(crate) rung_for: AtomicU64,
    /// A half of the port has deferred a doorbell.
    is_deferred: AtomicBool,
    pub(crate) backing: Box<dyn Backing>,
}

impl Link {
    /// Notifies the device of stores to a page of the port, unless it polls or was notified and has not polled since.
    #[inline]
    pub(crate) fn announce(&self) {
        // One doorbell also serves what was deferred. With `swap`, a post that another thread defers meanwhile is
        // either announced here or stays deferred.
        if self.is_deferred.load(Ordering::Relaxed) {
            self.is_deferred.swap(false, Ordering::AcqRel);
        }
        const DOORBELL_WORD: usize = (niclab_abi::bar::INFO_DOORBELL_OFFSET / 8) as usize;
        let word = self.info.words().get(DOORBELL_WORD);
        if ring_if_needed(word, &self.rung_for, || self.backing.ring()) {
            self.rung.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// As [`Link::announce`]; in a batch, defers the doorbell.
    #[inline]
    pub(crate) fn announce_in(&self, batches: &Batches) {
        if batches.0 == 0 {
            self.announce();
        } else {
            self.is_deferred.store(true, Ordering::Release);
        }
    }

    /// Rings the doorbell if a half of the port has deferred it.
    #[inline]
    pub(crate) fn announce_deferred(&self) {
        if self.is_deferred.load(Ordering::Relaxed) {
            self.announce();
        }
    }

    /// What a wait does next: [`Wait::next`]. The device must know of all posts before the caller polls again. A caller
    /// that sleeps rings itself, so that one doorbell serves its posts and the request for an interrupt.
    #[inline]
    pub(crate) fn next_in(&self, wait: &mut Wait, quiet: &mut Quiet) -> Result<Next, Error> {
        let next = wait.next(quiet, &*self.backing);
        if !matches!(next, Ok(Next::Sleep(_))) {
            self.announce_deferred();
        }
        next
    }

    /// Returns the interrupts for the port since the last call. Sleeps up to `limit` for the first one.
    pub(crate) fn wait_interrupts(&self, limit: Duration) -> Result<u64, Error> {
        self.announce_deferred();
        self.backing.wait_interrupts(limit)
    }

    /// The device's name, for an error.
    pub(crate) fn name(&self) -> String {
        self.backing.name().into()
    }

    /// The error for a fault of the device.
    #[cold]
    fn error(&self, fault: Fault) -> Error {
        let (device, port) = (self.name(), self.address.port);
        match fault {
            Fault::Taken { .. } => Error::Inconsistent { device, what: format!("port {port}: {fault}") },
            Fault::Refused { count, refusal } => Error::Launch { device, port, count, refusal },
            Fault::Lost { number, count, loss } => {
                Error::SlicesLost { device, port, number, count, what: loss.to_string() }
            }
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Link").field("device", &self.backing.name()).finish_non_exhaustive()
    }
}
