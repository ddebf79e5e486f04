//! Code that ports of all models share: [`niclab_port`] on mapped memory, and the waiting, which that crate does not
//! have.

mod open;
mod parts;
mod queue;
mod requester;

use std::sync::atomic::{AtomicU64, Ordering};

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

/// The batches of a half of a port, and whether its doorbell is deferred. Each half has its own: a half in another
/// thread must not ring for posts that it cannot see.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    open: u32,
    is_deferred: bool,
}

impl Batches {
    pub(crate) fn begin(&mut self) {
        self.open += 1;
    }

    pub(crate) fn end(&mut self, link: &Link) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0 {
            self.ring_deferred(link);
        }
    }

    /// Notifies the device of a post or a release, at once or, in a batch, later.
    #[inline]
    pub(crate) fn announce(&mut self, link: &Link) {
        if self.open == 0 {
            link.announce();
        } else {
            self.is_deferred = true;
        }
    }

    /// Notifies the device of what was deferred.
    #[inline]
    pub(crate) fn ring_deferred(&mut self, link: &Link) {
        if std::mem::take(&mut self.is_deferred) {
            link.announce();
        }
    }

    /// Rings from now on for what the other half of the port, in the same thread, has deferred.
    pub(crate) fn take_over_deferred(&mut self, other: &mut Self) {
        self.is_deferred |= std::mem::take(&mut other.is_deferred);
    }

    /// Notifies the device of a store and of what was deferred.
    pub(crate) fn announce_now(&mut self, link: &Link) {
        self.is_deferred = false;
        link.announce();
    }

    /// What a wait does next: [`Wait::next`]. The device must know of all posts before the caller polls again. A caller
    /// that sleeps rings itself, so that one doorbell serves its posts and the request for an interrupt.
    #[inline]
    pub(crate) fn next_in(&mut self, link: &Link, wait: &mut Wait, quiet: &mut Quiet) -> Result<Next, Error> {
        let next = wait.next(quiet, &*link.backing);
        if !matches!(next, Ok(Next::Sleep(_))) {
            self.ring_deferred(link);
        }
        next
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
    pub(crate) backing: Box<dyn Backing>,
}

impl Link {
    /// Notifies the device of stores to a page of the port, unless it polls or was notified and has not polled since.
    #[inline]
    pub(crate) fn announce(&self) {
        const DOORBELL_WORD: usize = (niclab_abi::bar::INFO_DOORBELL_OFFSET / 8) as usize;
        let word = self.info.words().get(DOORBELL_WORD);
        if ring_if_needed(word, &self.rung_for, || self.backing.ring()) {
            self.rung.fetch_add(1, Ordering::Relaxed);
        }
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
