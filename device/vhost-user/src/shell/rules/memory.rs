//! Checks the memory that a driver gave to a port: the guest must not store there while the port is open.

use std::sync::atomic::{AtomicU64, Ordering};

use niclab_abi::FromBytes;
use niclab_abi::control::PortOpen;
use niclab_abi::receive::{MAX_SLICES, SLICE_BYTES, SLICE_STATUS_WORD, SLICE_WORDS, StatusLine};

use crate::memory::DmaMemory;
use crate::memory::access::Words;

/// Words of guest memory, with their values when the port was opened or the device last stored there.
#[derive(Debug)]
struct Area {
    address: u64,
    words: Vec<u64>,
}

/// A word that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its address.
    pub address: u64,
    /// Its value before.
    pub was: u64,
    /// Its value now.
    pub is: u64,
}

impl Area {
    /// The current words. None outside guest memory: the device then refuses the request.
    fn new(memory: &DmaMemory, address: u64, words: usize) -> Option<Self> {
        let current = memory.words::<AtomicU64>(address, words).ok()?;
        Some(Self { address, words: (0..words).filter_map(|index| load(current, index)).collect() })
    }

    const fn bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    /// The words of this area that these bytes touch: the index of the first, and their number.
    fn part(&self, address: u64, bytes: u64) -> Option<(usize, usize)> {
        let begin = address.max(self.address);
        let end = address.saturating_add(bytes).min(self.address.saturating_add(self.bytes()));
        if begin >= end {
            return None;
        }
        let first = (begin - self.address) / 8;
        let last = (end - self.address).div_ceil(8);
        Some((first as usize, (last - first) as usize))
    }

    fn overlaps(&self, address: u64, bytes: u64) -> bool {
        self.part(address, bytes).is_some()
    }

    /// The first of these words that has changed since the last call or store.
    fn take_changed(&mut self, memory: &DmaMemory, (first, count): (usize, usize)) -> Option<Changed> {
        let address = self.address + 8 * first as u64;
        let current = memory.words::<AtomicU64>(address, count).ok()?;
        let words = self.words.get_mut(first..first + count)?;
        let mut changed = None;
        for ((index, word), address) in words.iter_mut().enumerate().zip((address..).step_by(8)) {
            let is = load(current, index)?;
            if is != *word && changed.is_none() {
                changed = Some(Changed { address, was: *word, is });
            }
            *word = is;
        }
        changed
    }

    /// The device stores these words at `address`.
    fn store(&mut self, address: u64, words: &[u64]) {
        let before = self.address.saturating_sub(address).div_ceil(8);
        let first = address.saturating_sub(self.address) / 8;
        let kept = self.words.iter_mut().skip(first as usize);
        kept.zip(words.iter().skip(before as usize)).for_each(|(kept, word)| *kept = *word);
    }
}

fn load(words: Words<'_, AtomicU64>, index: usize) -> Option<u64> {
    words.load(index, Ordering::Acquire)
}

/// The memory of a port.
#[derive(Debug)]
pub struct PortMemory {
    slices: Area,
    status: Area,
}

/// What the device stores into a port's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Slices.
    Slices {
        /// Number of slices that are complete now.
        count: u64,
        /// The status word of the last of them.
        last_status: Option<u64>,
    },
    /// The status line.
    Status(StatusLine),
}

impl PortMemory {
    /// The memory that a driver names to open a port, with its current words. None if it is outside guest memory, or
    /// longer than a port's memory may be.
    pub fn new(memory: &DmaMemory, open: &PortOpen) -> Option<Self> {
        if open.slices > MAX_SLICES {
            return None;
        }
        let slices = Area::new(memory, open.slices_address, open.slices as usize * SLICE_WORDS)?;
        let status = Area::new(memory, open.status_address, StatusLine::BYTES / 8)?;
        Some(Self { slices, status })
    }

    fn areas(&mut self) -> [&mut Area; 2] {
        [&mut self.slices, &mut self.status]
    }

    /// Whether it includes any of these bytes.
    pub fn overlaps(&self, address: u64, bytes: u64) -> bool {
        [&self.slices, &self.status].into_iter().any(|area| area.overlaps(address, bytes))
    }

    /// Whether it shares bytes with another port's.
    pub fn meets(&self, other: &Self) -> bool {
        [&other.slices, &other.status].into_iter().any(|area| self.overlaps(area.address, area.bytes()))
    }

    /// Whether slices and status line overlap.
    pub fn is_twice(&self) -> bool {
        self.slices.overlaps(self.status.address, self.status.bytes())
    }

    /// The first of all its words that has changed.
    pub fn changed(&mut self, memory: &DmaMemory) -> Option<Changed> {
        let changed = self.areas().map(|area| {
            let all = (0, area.words.len());
            area.take_changed(memory, all)
        });
        changed.into_iter().flatten().next()
    }

    /// The device is about to store these words. Returns the first of the old words that has changed, and what the
    /// device stores. None if the words are outside this memory.
    pub fn on_write(
        &mut self,
        memory: &DmaMemory,
        address: u64,
        words: &[u64],
    ) -> Option<(Option<Changed>, Stored)> {
        let bytes = 8 * words.len() as u64;
        if let Some(part) = self.slices.part(address, bytes) {
            let changed = self.slices.take_changed(memory, part);
            self.slices.store(address, words);
            let (first, count) = part;
            let of_slice = |words: usize| (words + SLICE_WORDS - 1 - SLICE_STATUS_WORD) / SLICE_WORDS;
            let (before, after) = (of_slice(first), of_slice(first + count));
            let last = after.checked_sub(1).filter(|_| after > before).map(|slice| slice * SLICE_WORDS);
            let last_status =
                last.and_then(|slice| self.slices.words.get(slice + SLICE_STATUS_WORD).copied());
            return Some((changed, Stored::Slices { count: (after - before) as u64, last_status }));
        }
        let part = self.status.part(address, bytes)?;
        let changed = self.status.take_changed(memory, part);
        self.status.store(address, words);
        Some((changed, Stored::Status(niclab_abi::from_words(&self.status.words).unwrap_or_default())))
    }

    /// The device has stored bytes of a frame at `address`.
    pub fn on_bytes(&mut self, memory: &DmaMemory, address: u64, bytes: u64) {
        for area in self.areas() {
            if let Some(part) = area.part(address, bytes) {
                area.take_changed(memory, part);
            }
        }
    }
}

const _: () = assert!(SLICE_WORDS as u64 * 8 == SLICE_BYTES && SLICE_STATUS_WORD == SLICE_WORDS - 1);

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

    use super::*;

    fn memory() -> (GuestMemoryMmap, DmaMemory) {
        let table = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x4000)]).unwrap();
        let memory = DmaMemory::new(&table, None);
        (table, memory)
    }

    fn port(memory: &DmaMemory, slices_address: u64, status_address: u64) -> PortMemory {
        PortMemory::new(
            memory,
            &PortOpen { slices: 8, slices_address, status_address, ..PortOpen::default() },
        )
        .unwrap()
    }

    const fn slices(count: u64, last_status: Option<u64>) -> Stored {
        Stored::Slices { count, last_status }
    }

    #[test]
    fn slices_and_status_lines_are_distinguished_and_counted() {
        let (_table, memory) = memory();
        let mut port = port(&memory, 0x1000, 0x2000);
        let mut write = |address, words: &[u64]| {
            let found = port.on_write(&memory, address, words);
            memory.store_words(address, words).unwrap();
            found
        };
        assert_eq!(write(0x1000, &[1; SLICE_WORDS]), Some((None, slices(1, Some(1)))));
        assert_eq!(write(0x1000 + 88 + 8 * 7, &[1; 4]), Some((None, slices(1, Some(1)))));
        assert_eq!(write(0x1000, &[2; SLICE_WORDS - 1]), Some((None, slices(0, None))));
        assert_eq!(write(0x1000 + 8 * 10, &[3; 12]), Some((None, slices(2, Some(3)))));
        let status = Stored::Status(StatusLine { launched: 9, notified: 4, ..StatusLine::default() });
        assert_eq!(write(0x2000, &[9, 4]), Some((None, status)));
        assert_eq!(write(0x3000, &[9, 4]), None);
        assert_eq!(port.changed(&memory), None);
    }

    #[test]
    fn change_by_the_guest_is_reported_once() {
        let (table, memory) = memory();
        let mut port = port(&memory, 0x1000, 0x2000);
        table.write_obj(7_u64, GuestAddress(0x1008)).unwrap();
        let changed = Changed { address: 0x1008, was: 0, is: 7 };
        assert_eq!(port.on_write(&memory, 0x1000, &[1; 11]), Some((Some(changed), slices(1, Some(1)))));
        memory.store_words(0x1000, &[1; 11]).unwrap();
        assert_eq!(port.changed(&memory), None);
        table.write_obj(5_u64, GuestAddress(0x2038)).unwrap();
        assert_eq!(port.changed(&memory), Some(Changed { address: 0x2038, was: 0, is: 5 }));
        assert_eq!(port.changed(&memory), None);
        table.write_obj(9_u64, GuestAddress(0x1010)).unwrap();
        port.on_bytes(&memory, 0x100c, 8);
        assert_eq!(port.changed(&memory), None, "the device's own bytes");
    }

    #[test]
    fn overlapping_port_memory_is_detected() {
        let (_table, memory) = memory();
        let port_at = |slices, status| port(&memory, slices, status);
        let one = port_at(0x1000, 0x2000);
        assert!(one.meets(&port_at(0x12b8, 0x3000)) && !one.meets(&port_at(0x12c0, 0x3000)));
        assert!(one.meets(&port_at(0x3000, 0x2000)) && !one.is_twice());
        assert!(port_at(0x1000, 0x1040).is_twice());
        assert!(one.overlaps(0x2038, 1) && !one.overlaps(0x2040, 100) && !one.overlaps(0x1fff, 1));
        let outside = PortOpen { slices: 8, slices_address: 0x3ff8, ..PortOpen::default() };
        assert!(PortMemory::new(&memory, &outside).is_none());
    }
}
