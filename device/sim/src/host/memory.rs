//! The memory of one host that its NIC may write: a status line and a receive queue for each port.

use std::collections::VecDeque;

use niclab_abi::receive::{SLICE_BYTES, SLICE_STATUS_WORD, SLICE_TAG_WORD, SLICE_WORDS, SliceStatus};
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

/// A status line that is not visible yet.
#[derive(Debug)]
struct Line {
    at: Time,
    port: usize,
    words: [u64; STATUS_WORDS],
    count: usize,
}

/// Status line and receive queue of one port.
#[derive(Debug)]
struct PortMemory {
    status: [u64; STATUS_WORDS],
    /// Where the words of each slice are in the pool; [`NOWHERE`] for one that was not written since it was read.
    slices: Vec<u32>,
}

/// No block of the pool.
const NOWHERE: u32 = u32::MAX;

/// The memory of one host. Of thousands of hosts with long queues, only what was written and not read takes room.
///
/// A program may look at its status lines at any time, and sees them as they are by then. At a slice it looks when the
/// slice is visible and not before, so that slices are stored at once.
#[derive(Debug, Default)]
pub struct Memory {
    ports: Vec<Option<PortMemory>>,
    /// In the order in which they become visible.
    pending: VecDeque<Line>,
    /// Slices, and which of them are free.
    pool: Vec<[u64; SLICE_WORDS]>,
    free: Vec<u32>,
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
        let slices = vec![NOWHERE; slices as usize];
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

    /// Takes a write that is visible at `at`, within one place: [`Memory::place_of`] said which.
    pub fn write(&mut self, at: Time, port: usize, place: Place, words: &[u64]) {
        match place {
            Place::Status => {
                let mut line = Line { at, port, words: [0; STATUS_WORDS], count: words.len() };
                line.words.iter_mut().zip(words).for_each(|(place, word)| *place = *word);
                let earlier = self.pending.iter().rposition(|earlier| earlier.at <= at);
                self.pending.insert(earlier.map_or(0, |last| last + 1), line);
            }
            Place::Slice { index, word, .. } => {
                let Some(slice) = self.slice_mut(port, index as usize) else { return };
                slice.iter_mut().skip(word).zip(words).for_each(|(place, word)| *place = *word);
            }
        }
    }

    /// The words of a slice, which takes room from now on.
    fn slice_mut(&mut self, port: usize, index: usize) -> Option<&mut [u64; SLICE_WORDS]> {
        let memory = self.ports.get_mut(port)?.as_mut()?;
        let place = memory.slices.get_mut(index)?;
        if *place == NOWHERE {
            *place = self.free.pop().unwrap_or(self.pool.len() as u32);
            // What another slice left there is not to be taken for this one's.
            match self.pool.get_mut(*place as usize) {
                Some(used) => *used = [0; SLICE_WORDS],
                None => self.pool.push([0; SLICE_WORDS]),
            }
        }
        self.pool.get_mut(*place as usize)
    }

    /// Makes visible what is by now.
    pub fn advance(&mut self, now: Time) {
        while self.pending.front().is_some_and(|line| line.at <= now) {
            let Some(line) = self.pending.pop_front() else { break };
            let Some(memory) = self.ports.get_mut(line.port).and_then(Option::as_mut) else { continue };
            let words = memory.status.iter_mut().zip(line.words).take(line.count);
            words.for_each(|(place, word)| *place = word);
        }
    }

    /// When the next status line becomes visible.
    #[must_use]
    pub fn next_visible(&self) -> Option<Time> {
        self.pending.front().map(|line| line.at)
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
        let slice = self.pool.get(*memory.slices.get(index_of(memory, number)?)? as usize)?;
        let status = SliceStatus::decode(slice[SLICE_STATUS_WORD]).filter(|s| s.number == number as u32)?;
        let payload = slice.get(SLICE_TAG_WORD - usize::from(status.words)..SLICE_TAG_WORD)?;
        Some(Slice { status, payload, tag: [slice[SLICE_TAG_WORD], slice[SLICE_TAG_WORD + 1]] })
    }

    /// The program has read the slice with this number and will not look at it again.
    pub fn forget(&mut self, port: usize, number: u64) {
        let Some(memory) = self.ports.get_mut(port).and_then(Option::as_mut) else { return };
        let Some(slice) = index_of(memory, number).and_then(|index| memory.slices.get_mut(index)) else {
            return;
        };
        let block = std::mem::replace(slice, NOWHERE);
        if block != NOWHERE {
            self.free.push(block);
        }
    }
}

/// The place of a slice in its queue.
fn index_of(memory: &PortMemory, number: u64) -> Option<usize> {
    number.wrapping_sub(1).checked_rem(memory.slices.len() as u64).map(|index| index as usize)
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
    fn a_status_line_is_seen_from_its_instant_on() {
        let mut memory = memory();
        let at = |ps| Time::from_ps(ps);
        memory.write(at(20), 2, Place::Status, &[2]);
        memory.write(at(10), 2, Place::Status, &[1]);
        for (now, seen) in [(9, 0), (10, 1), (19, 1), (20, 2)] {
            memory.advance(at(now));
            assert_eq!(memory.status_word(2, 0), seen);
        }
        assert_eq!(memory.next_visible(), None);
    }

    fn end_of_slice(memory: &mut Memory, payload: &[u64], number: u32) {
        let status = SliceStatus {
            words: payload.len() as u8,
            interrupt: false,
            acknowledge: false,
            source_port: 0,
            source_node: 0,
            number,
        };
        let words = [payload, &[7, 8, status.encode()]].concat();
        let word = SLICE_WORDS - words.len();
        let index = u64::from(number - 1) % 8;
        memory.write(Time::ZERO, 2, Place::Slice { index, word, ends_with_status: true }, &words);
    }

    #[test]
    fn slices_are_read_in_any_order_and_take_room_until_they_are() {
        let mut memory = memory();
        for round in 0..3 {
            (1..=8).for_each(|slice| end_of_slice(&mut memory, &[slice, 9], 8 * round + slice as u32));
            for slice in [5, 1, 8, 2, 3, 4, 6, 7] {
                let number = u64::from(8 * round) + slice;
                assert_eq!(memory.slice(2, number).map(|slice| slice.payload), Some([slice, 9].as_slice()));
                memory.forget(2, number);
                assert!(memory.slice(2, number).is_none());
            }
        }
        assert_eq!((memory.pool.len(), memory.free.len()), (8, 8));
    }

    #[test]
    fn a_slice_without_its_status_is_not_there_whatever_was_in_its_room() {
        let mut memory = memory();
        memory.open(3, 8);
        end_of_slice(&mut memory, &[1], 5);
        memory.forget(2, 5);
        memory.write(Time::ZERO, 3, Place::Slice { index: 4, word: 7, ends_with_status: false }, &[1, 7, 8]);
        assert!(memory.slice(3, 5).is_none());
    }

    #[test]
    fn a_slice_that_is_written_again_holds_the_later_one() {
        let mut memory = memory();
        end_of_slice(&mut memory, &[1, 2, 3], 4);
        end_of_slice(&mut memory, &[5], 4);
        assert_eq!(memory.slice(2, 4).unwrap().payload, [5]);
        end_of_slice(&mut memory, &[], 12);
        let status = memory.slice(2, 12).unwrap().status;
        assert_eq!((status.number, memory.slice(2, 4).is_none()), (12, true));
        assert_eq!((memory.pool.len(), memory.free.len()), (1, 0));
    }
}
