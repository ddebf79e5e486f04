//! Words that a device and this program both read and write: in the BAR, which is RAM on both sides, and in receive
//! memory.
//!
//! Atomic words suit both: they are never torn, never merged across fences, and valid whether the other side is a
//! daemon behind QEMU or a thread of this process.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use niclab_abi::bar::{SLOT_LAUNCH_WORD, SLOT_RECEIVED_WORD, SLOT_WORDS};
use niclab_abi::receive::SLICE_WORDS;

use crate::{Page, Record, Records, Register, Reports};

/// Loads one little-endian word; an acquire fence must follow before the data that the word guards is read.
#[inline]
pub fn load(word: &AtomicU64) -> u64 {
    u64::from_le(word.load(Ordering::Relaxed))
}

/// Stores one little-endian word, without ordering.
#[inline]
pub fn store(word: &AtomicU64, value: u64) {
    word.store(value.to_le(), Ordering::Relaxed);
}

/// Makes the stores before it visible before the stores after it, write-combining memory included.
///
/// A release fence alone does not order write-combining buffers, which hold stores to a requester page.
#[inline]
pub fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SFENCE is part of SSE, which every x86-64 processor has; it touches no memory.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    fence(if cfg!(target_arch = "x86_64") { Ordering::Release } else { Ordering::SeqCst });
}

/// A requester page, and the page that begins with the status line.
#[derive(Clone, Copy, Debug)]
pub struct AtomicPage<'a> {
    /// All words of the requester page.
    pub requester: &'a [AtomicU64],
    /// All words of the page with the status line, which the device writes.
    pub status: &'a [AtomicU64],
}

impl Page for AtomicPage<'_> {
    /// The page may be write-combining. So the words are stored in ascending order, then a store fence follows, then
    /// the launch word alone.
    #[inline]
    fn launch(
        &mut self,
        slot: u32,
        begin: usize,
        words: impl Iterator<Item = u64>,
        received: u64,
        launch_word: u64,
    ) {
        let (slots, _) = self.requester.as_chunks::<SLOT_WORDS>();
        let Some(slot) = slots.get(slot as usize) else { return };
        let mut places = slot[begin.min(SLOT_RECEIVED_WORD)..SLOT_RECEIVED_WORD].iter();
        // `words` chains payload and tag; `try_for_each` runs a simple loop over each of them.
        let mut words = words;
        let _ = words.try_for_each(|value| places.next().map(|place| store(place, value)));
        store(&slot[SLOT_RECEIVED_WORD], received);
        store_fence();
        store(&slot[SLOT_LAUNCH_WORD], launch_word);
    }
}

impl Reports for AtomicPage<'_> {
    #[inline]
    fn status_word(&self, index: usize) -> u64 {
        self.status.get(index).map_or(0, load)
    }

    #[inline]
    fn acquire(&self) {
        fence(Ordering::Acquire);
    }
}

/// A receive queue, and the completer page.
#[derive(Clone, Copy, Debug)]
pub struct AtomicRecords<'a> {
    /// All words of the queue.
    pub records: &'a [AtomicU64],
    /// All words of the completer page.
    pub completer: &'a [AtomicU64],
}

impl Records for AtomicRecords<'_> {
    type Record<'a>
        = AtomicRecord<'a>
    where
        Self: 'a;

    #[inline]
    fn record(&self, index: u32) -> Option<AtomicRecord<'_>> {
        let (records, _) = self.records.as_chunks::<SLICE_WORDS>();
        records.get(index as usize).map(AtomicRecord)
    }

    #[inline]
    fn store(&mut self, register: Register, value: u64) {
        fence(Ordering::Release);
        if let Some(word) = self.completer.get((register.offset() / 8) as usize) {
            store(word, value);
        }
    }

    #[inline]
    fn acquire(&self) {
        fence(Ordering::Acquire);
    }
}

/// The words of a record.
#[derive(Clone, Copy, Debug)]
pub struct AtomicRecord<'a>(&'a [AtomicU64; SLICE_WORDS]);

impl Record for AtomicRecord<'_> {
    #[inline]
    fn word(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, load)
    }
}
