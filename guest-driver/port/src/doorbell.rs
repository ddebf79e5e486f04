//! The doorbell word: when a driver rings, and how a device that is about to sleep asks for that.
//!
//! [`niclab_abi::bar::InfoPage::doorbell`] has the protocol. It is that of virtio's notification suppression (Virtio
//! 1.3, section 2.7.10): each side stores, executes a full barrier, and only then loads what the other side stores. So
//! a device that has not seen a post is notified of it. Without the barriers, the processor may load first on both
//! sides.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use niclab_abi::bar::DOORBELL_SPARED;

/// A word that driver and device share, or that threads of a driver share: an atomic word of the core library, or that
/// of a tool that tries all orders of the accesses.
pub trait Word {
    /// Loads the word.
    fn load(&self, order: Ordering) -> u64;

    /// Stores the word.
    fn store(&self, value: u64, order: Ordering);

    /// A full barrier, which also drains write-combining buffers.
    fn full_barrier();
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
    }

    #[inline]
    fn full_barrier() {
        fence(Ordering::SeqCst);
    }
}

/// The driver's side: rings the doorbell after a store, if the device needs it; always, if there is no doorbell word.
/// `rung_for` has the number of the device's sleep for which a doorbell was rung last. Returns whether it rang.
///
/// Threads may share `rung_for`: it is stored after the doorbell, so a thread that finds its number there need not
/// ring.
#[inline]
pub fn ring_if_needed<W: Word>(doorbell_word: Option<&W>, rung_for: &W, ring: impl FnOnce()) -> bool {
    W::full_barrier();
    let Some(word) = doorbell_word else {
        ring();
        return true;
    };
    let number = u64::from_le(word.load(Ordering::Relaxed));
    if number == DOORBELL_SPARED || number == rung_for.load(Ordering::Acquire) {
        return false;
    }
    ring();
    rung_for.store(number, Ordering::Release);
    true
}

/// The device's side: stores [`DOORBELL_SPARED`] or the number of a new sleep. The device polls afterwards: it then
/// sees what drivers stored before they could load the new value.
#[inline]
pub fn announce<W: Word>(doorbell_word: Option<&W>, value: u64) {
    if let Some(word) = doorbell_word {
        word.store(value.to_le(), Ordering::Relaxed);
    }
    W::full_barrier();
}
