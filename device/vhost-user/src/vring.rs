//! A virtqueue as the front end sets it up: where its rings lie, how far it has got, by which events it is called.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use thiserror::Error;

use crate::notification::{Call, Kick};

/// A queue that cannot be.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum QueueError {
    /// Split virtqueues have a power of two descriptors (Virtio 1.2, 2.7).
    #[error("a queue of {size} descriptors; give a power of two up to {most}")]
    Size {
        /// What was asked for.
        size: u32,
        /// Most descriptors.
        most: u16,
    },
    /// Table, available ring and used ring are multiples of 16, 2 and 4 bytes (Virtio 1.2, 2.7).
    #[error("a ring at guest address {address:#x}, which is not a multiple of {alignment}")]
    Alignment {
        /// Guest-physical address.
        address: u64,
        /// What it must be a multiple of.
        alignment: u64,
    },
}

/// The state of one queue.
#[derive(Debug)]
pub struct QueueState {
    /// Descriptors.
    pub size: u16,
    /// The front end has started it.
    pub is_ready: bool,
    /// The front end has enabled it.
    pub is_enabled: bool,
    /// Whether both sides say by an index when they want to be called.
    pub has_event_idx: bool,
    /// Guest-physical address of the descriptor table.
    pub table: u64,
    /// Guest-physical address of the available ring.
    pub available: u64,
    /// Guest-physical address of the used ring.
    pub used: u64,
    /// The next entry of the available ring that is looked at.
    pub next_available: u16,
    /// The next entry of the used ring that is written.
    pub next_used: u16,
    /// By which the guest calls.
    pub kick: Option<Kick>,
    /// By which it is called.
    pub call: Option<Call>,
}

/// A queue that the thread of its connection shares with those of other nodes; every clone is the same queue.
#[derive(Clone, Debug)]
pub struct Vring {
    state: Arc<Mutex<QueueState>>,
    kicks: Arc<AtomicU64>,
    most: u16,
}

impl Vring {
    /// A queue of at most `most` descriptors, a power of two, that nobody has set up.
    pub fn new(most: u16) -> Self {
        let state = QueueState {
            size: most,
            is_ready: false,
            is_enabled: false,
            has_event_idx: false,
            table: 0,
            available: 0,
            used: 0,
            next_available: 0,
            next_used: 0,
            kick: None,
            call: None,
        };
        Self { state: Arc::new(Mutex::new(state)), kicks: Arc::default(), most }
    }

    /// The queue, for as long as the guard lives.
    pub fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }

    /// Whether the front end has started it.
    pub fn is_ready(&self) -> bool {
        self.lock().is_ready
    }

    /// How many times the guest rang since the connection was made.
    pub fn kicks(&self) -> u64 {
        self.kicks.load(Ordering::Relaxed)
    }

    /// Takes the guest's calls, and counts them.
    pub fn take_kicks(&self) {
        let taken = self.lock().kick.as_ref().map_or(0, Kick::take);
        self.kicks.fetch_add(taken, Ordering::Relaxed);
    }

    /// Sets the number of descriptors.
    ///
    /// # Errors
    /// [`QueueError::Size`].
    pub fn set_size(&self, size: u32) -> Result<(), QueueError> {
        let wrong = QueueError::Size { size, most: self.most };
        let size = u16::try_from(size).map_err(|_| wrong)?;
        if !size.is_power_of_two() || size > self.most {
            return Err(wrong);
        }
        self.lock().size = size;
        Ok(())
    }

    /// Sets where table, available ring and used ring lie, guest-physical. Whether that is memory is seen with each use.
    ///
    /// # Errors
    /// [`QueueError::Alignment`].
    pub fn set_addresses(&self, table: u64, available: u64, used: u64) -> Result<(), QueueError> {
        for (address, alignment) in [(table, 16), (available, 2), (used, 4)] {
            if address % alignment != 0 {
                return Err(QueueError::Alignment { address, alignment });
            }
        }
        let mut state = self.lock();
        (state.table, state.available, state.used) = (table, available, used);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_that_cannot_be_are_refused() {
        let vring = Vring::new(256);
        for size in [0, 3, 512, 65_536, u32::MAX] {
            assert_eq!(vring.set_size(size), Err(QueueError::Size { size, most: 256 }));
        }
        vring.set_size(128).unwrap();
        vring.set_addresses(0x10, 0x22, 0x24).unwrap();
        for (table, available, used) in [(0x18, 0, 0), (0, 1, 0), (0, 0, 2)] {
            assert!(vring.set_addresses(table, available, used).is_err());
        }
        let state = vring.lock();
        assert_eq!((state.size, state.table, state.available, state.used), (128, 0x10, 0x22, 0x24));
    }
}
