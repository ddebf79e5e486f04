//! What the ports of all models have in common: a requester page to launch from, a queue of records in memory to read, and
//! the way to the device behind them.

mod open;
mod parts;
mod queue;
mod requester;

use std::sync::atomic::AtomicU64;

pub use open::PortOptions;
pub(crate) use open::open;
pub use parts::{Parts, Progress};
pub(crate) use queue::{Queue, Record};
pub(crate) use requester::Requester;
pub use requester::{Refusal, Status};

use crate::memory::{full_fence, load};
use crate::{Address, Backing, Memory};

/// What both halves of a port share: the way to the device.
pub struct Link {
    pub(crate) address: Address,
    info: Memory,
    /// Slices consumed since the port was opened: what a launch says of the other half.
    received: AtomicU64,
    pub(crate) backing: Box<dyn Backing>,
}

impl Link {
    /// Tells the device of stores to a page of the port, unless it polls them. `niclab_abi::bar::InfoPage::doorbell` has
    /// the protocol: store, full barrier, only then look whether it sleeps.
    #[inline]
    fn announce(&self) {
        const DOORBELL_WORD: usize = (niclab_abi::bar::INFO_DOORBELL_OFFSET / 8) as usize;
        full_fence();
        let wanted = self
            .info
            .words()
            .get(DOORBELL_WORD)
            .is_none_or(|word| load(word) != niclab_abi::bar::DOORBELL_SPARED);
        if wanted {
            self.backing.ring();
        }
    }

    /// The device's name, for an error.
    pub(crate) fn name(&self) -> String {
        self.backing.name().into()
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Link").field("device", &self.backing.name()).finish_non_exhaustive()
    }
}
