//! Code that ports of all models share: [`niclab_port`] on mapped memory, and the waiting, which that crate does not
//! have.

mod open;
mod parts;
mod queue;
mod requester;

use std::sync::atomic::{AtomicU64, Ordering};

use niclab_port::{Fault, atomic};

pub(crate) use niclab_port::Kind;
pub use niclab_port::{Refusal, Status};
pub use open::PortOptions;
pub(crate) use open::open;
pub use parts::Parts;
pub(crate) use queue::Queue;
pub(crate) use requester::Requester;

use crate::{Address, Backing, Error, SharedMemory};

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
        if atomic::ring_if_needed(word, &self.rung_for, || self.backing.ring()) {
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
