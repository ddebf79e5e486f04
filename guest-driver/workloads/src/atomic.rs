//! //! The memory that a port shares with a device in another thread or process.

use core::sync::atomic::{AtomicU64, Ordering};

use niclab_port::atomic::{AtomicPage, AtomicRecord, AtomicRecords};
use niclab_port::{Page, Records, Register, Reports};

use crate::Memory;

/// Pages, receive queue and region of a port.
#[derive(Clone, Copy, Debug)]
pub struct AtomicMemory<'a> {
    /// The requester page, and the page of the status line.
    pub page: AtomicPage<'a>,
    /// The receive queue, and the completer page.
    pub records: AtomicRecords<'a>,
    /// The region; empty if the port has none.
    pub region: &'a [AtomicU64],
    /// The payload region of the outbound queue; empty if the card has none.
    pub payload: &'a [AtomicU64],
}

impl Reports for AtomicMemory<'_> {
    #[inline]
    fn status_word(&self, index: usize) -> u64 {
        self.page.status_word(index)
    }

    #[inline]
    fn acquire(&self) {
        Reports::acquire(&self.page);
    }
}

impl Page for AtomicMemory<'_> {
    #[inline]
    fn launch(
        &mut self,
        slot: u32,
        begin: usize,
        words: impl Iterator<Item = u64>,
        received: u64,
        launch_word: u64,
    ) {
        self.page.launch(slot, begin, words, received, launch_word);
    }
}

impl Records for AtomicMemory<'_> {
    type Record<'a>
        = AtomicRecord<'a>
    where
        Self: 'a;

    #[inline]
    fn record(&self, index: u32) -> Option<AtomicRecord<'_>> {
        self.records.record(index)
    }

    #[inline]
    fn store(&mut self, register: Register, value: u64) {
        self.records.store(register, value);
    }

    #[inline]
    fn acquire(&self) {
        Records::acquire(&self.records);
    }
}

/// Bytes lie in the words as in the memory of a little-endian machine, which every guest is.
impl Memory for AtomicMemory<'_> {
    #[inline]
    fn load(&self, offset: u64, bytes: u64) -> u64 {
        let (word, shift) = ((offset / 8) as usize, 8 * (offset % 8) as u32);
        let at = |word: usize| self.region.get(word).map_or(0, |word| word.load(Ordering::Relaxed));
        let high = if shift == 0 { 0 } else { at(word + 1) << (64 - shift) };
        (at(word) >> shift | high) & mask(bytes)
    }

    #[inline]
    fn store_word(&mut self, offset: u64, bytes: u64, value: u64) {
        let (word, shift) = ((offset / 8) as usize, 8 * (offset % 8) as u32);
        merge(self.region.get(word), mask(bytes) << shift, (value & mask(bytes)) << shift);
        if shift != 0 {
            let rest = 64 - shift;
            merge(self.region.get(word + 1), mask(bytes) >> rest, (value & mask(bytes)) >> rest);
        }
    }

    /// The launch word that the port stores next makes it visible.
    #[inline]
    fn push(&mut self, offset: u64, words: impl Iterator<Item = u64>) {
        let places = self.payload.get((offset / 8) as usize..).unwrap_or_default();
        places.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
    }
}

const fn mask(bytes: u64) -> u64 {
    if bytes >= 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 }
}

/// Replaces some bits of a word. A device may write the other bits at the same time; they are not lost.
fn merge(word: Option<&AtomicU64>, mask: u64, value: u64) {
    let Some(word) = word.filter(|_| mask != 0) else { return };
    // The closure always returns a new value, so this cannot fail.
    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some(old & !mask | value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unaligned_stores_change_only_their_own_bytes() {
        for offset in 0..16 {
            for bytes in 0..=8 {
                let region: [AtomicU64; 3] = core::array::from_fn(|_| AtomicU64::new(u64::MAX));
                let page = AtomicPage { requester: &[], status: &[] };
                let records = AtomicRecords { records: &[], completer: &[] };
                let mut memory = AtomicMemory { page, records, region: &region, payload: &[] };
                memory.store_word(offset, bytes, 0x8877_6655_4433_2211);
                assert_eq!(memory.load(offset, bytes), 0x8877_6655_4433_2211 & mask(bytes));
                assert_eq!(memory.load(offset + bytes, 8 - bytes), mask(8 - bytes));
                let zeros: u32 = region.iter().map(|word| word.load(Ordering::Relaxed).count_zeros()).sum();
                assert_eq!(zeros, (!0x8877_6655_4433_2211_u64 & mask(bytes)).count_ones());
            }
        }
    }
}
