//! The memory of one host that its NIC may write: a status line and a receive queue for each port.

use std::collections::VecDeque;

use niclab_abi::receive::{SLICE_BYTES, SLICE_STATUS_WORD, SLICE_TAG_WORD, SLICE_WORDS, SliceStatus};
use niclab_model::nic::DmaWords;
use niclab_model::time::Time;

/// Words of a status line.
pub const STATUS_WORDS: usize = 8;
/// Bytes of a status line.
const STATUS_BYTES: u64 = STATUS_WORDS as u64 * 8;
/// Address bits of one port's memory.
const PORT_SHIFT: u32 = 32;

/// A place in the memory of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The status line, from its first word.
    Status,
    /// Some words of a slice, and whether its status word is among them.
    Slice {
        /// Which, within the queue.
        index: u64,
        /// The first word within the slice.
        word: usize,
        /// Whether the status word is written.
        ends_with_status: bool,
    },
}

/// A write that is not visible yet.
#[derive(Debug)]
struct Write {
    at: Time,
    port: usize,
    place: Place,
    words: DmaWords,
}

/// Status line and receive queue of one port.
#[derive(Debug)]
struct PortMemory {
    status: [u64; STATUS_WORDS],
    slices: Vec<[u64; SLICE_WORDS]>,
}

/// The memory of one host.
#[derive(Debug, Default)]
pub struct Memory {
    ports: Vec<Option<PortMemory>>,
    /// In the order in which they become visible.
    pending: VecDeque<Write>,
}

/// A received slice.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    /// Its status word.
    pub status: SliceStatus,
    /// Its payload.
    pub payload: &'a [u64],
    /// Its tag.
    pub tag: [u64; 2],
}

impl Memory {
    /// Sets memory aside for a port.
    pub fn open(&mut self, port: usize, slices: u32) {
        if self.ports.len() <= port {
            self.ports.resize_with(port + 1, || None);
        }
        let slices = vec![[0; SLICE_WORDS]; slices as usize];
        self.ports[port] = Some(PortMemory { status: [0; STATUS_WORDS], slices });
    }

    /// The address of a port's status line.
    #[must_use]
    pub const fn status_address(port: usize) -> u64 {
        (port as u64 + 1) << PORT_SHIFT
    }

    /// The address of a port's first slice.
    #[must_use]
    pub const fn slices_address(port: usize) -> u64 {
        Self::status_address(port) + STATUS_BYTES
    }

    /// What lies at `address` if all of `words` words from there are within one status line or one slice.
    #[must_use]
    pub fn place_of(&self, address: u64, words: usize) -> Option<(usize, Place)> {
        let port = usize::try_from((address >> PORT_SHIFT).checked_sub(1)?).ok()?;
        let memory = self.ports.get(port)?.as_ref()?;
        if address == Self::status_address(port) {
            return (words <= STATUS_WORDS).then_some((port, Place::Status));
        }
        let offset = address.checked_sub(Self::slices_address(port))?;
        let (index, within) = (offset / SLICE_BYTES, offset % SLICE_BYTES);
        let word = (within / 8) as usize;
        let is_inside = offset.is_multiple_of(8)
            && usize::try_from(index).is_ok_and(|index| index < memory.slices.len())
            && word + words <= SLICE_WORDS;
        let ends_with_status = word + words == SLICE_WORDS;
        is_inside.then_some((port, Place::Slice { index, word, ends_with_status }))
    }

    /// Keeps a write until it is visible.
    pub fn write(&mut self, at: Time, port: usize, place: Place, words: DmaWords) {
        let write = Write { at, port, place, words };
        let after = self.pending.iter().rposition(|earlier| earlier.at <= at).map_or(0, |last| last + 1);
        self.pending.insert(after, write);
    }

    /// Makes visible what is by now.
    pub fn advance(&mut self, now: Time) {
        while self.pending.front().is_some_and(|write| write.at <= now) {
            let Some(write) = self.pending.pop_front() else { break };
            let Some(memory) = self.ports.get_mut(write.port).and_then(Option::as_mut) else { continue };
            let target = match write.place {
                Place::Status => Some(memory.status.as_mut_slice()),
                Place::Slice { index, word, .. } => {
                    memory.slices.get_mut(index as usize).and_then(|slice| slice.get_mut(word..))
                }
            };
            let words = target.into_iter().flatten().zip(&write.words);
            words.for_each(|(place, word)| *place = *word);
        }
    }

    /// When the next write becomes visible.
    #[must_use]
    pub fn next_visible(&self) -> Option<Time> {
        self.pending.front().map(|write| write.at)
    }

    /// Word `word` of a port's status line.
    #[must_use]
    pub fn status_word(&self, port: usize, word: usize) -> u64 {
        let memory = self.ports.get(port).and_then(Option::as_ref);
        memory.and_then(|memory| memory.status.get(word)).copied().unwrap_or(0)
    }

    /// The slice with this number, if it is there.
    #[must_use]
    pub fn slice(&self, port: usize, number: u64) -> Option<Slice<'_>> {
        let memory = self.ports.get(port)?.as_ref()?;
        let index = number.wrapping_sub(1) % memory.slices.len() as u64;
        let slice = memory.slices.get(index as usize)?;
        let status = SliceStatus::decode(slice[SLICE_STATUS_WORD]).filter(|s| s.number == number as u32)?;
        let payload = slice.get(SLICE_TAG_WORD - usize::from(status.words)..SLICE_TAG_WORD)?;
        Some(Slice { status, payload, tag: [slice[SLICE_TAG_WORD], slice[SLICE_TAG_WORD + 1]] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Memory {
        let mut memory = Memory::default();
        memory.open(2, 8);
        memory
    }

    #[test]
    fn addresses_outside_of_what_was_given_are_no_place() {
        let memory = memory();
        let (status, slices) = (Memory::status_address(2), Memory::slices_address(2));
        assert_eq!(memory.place_of(status, 8), Some((2, Place::Status)));
        let last = slices + 7 * SLICE_BYTES;
        let place = Place::Slice { index: 7, word: 8, ends_with_status: true };
        assert_eq!(memory.place_of(last + 64, 3), Some((2, place)));
        for (address, words) in
            [(status, 9), (status + 8, 1), (last + 64, 4), (last + SLICE_BYTES, 1), (slices + 4, 1), (0, 1)]
        {
            assert_eq!(memory.place_of(address, words), None, "{address:#x}");
        }
        assert_eq!(memory.place_of(Memory::status_address(1), 1), None, "a port that is not open");
    }

    #[test]
    fn a_write_is_seen_from_its_instant_on() {
        let mut memory = memory();
        let at = |ps| Time::from_ps(ps);
        memory.write(at(20), 2, Place::Status, DmaWords::from_slice(&[2]));
        memory.write(at(10), 2, Place::Status, DmaWords::from_slice(&[1]));
        for (now, seen) in [(9, 0), (10, 1), (19, 1), (20, 2)] {
            memory.advance(at(now));
            assert_eq!(memory.status_word(2, 0), seen);
        }
        assert_eq!(memory.next_visible(), None);
    }
}
