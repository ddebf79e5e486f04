//! The host memory that a NIC may write. Each port has a page with status line and counters, a receive queue, and a
//! region. The pages of a region are not adjacent, as those of a program seldom are.

use std::collections::VecDeque;
use std::ops::Range;

use niclab_abi::PAGE_BYTES;
use niclab_abi::bar::{PAYLOAD_WORDS, TAG_WORDS};
use niclab_abi::matching::{COUNTERS, COUNTERS_OFFSET};
use niclab_abi::receive::{SLICE_BYTES, SLICE_WORDS};
use niclab_abi::region::Extent;
use niclab_model::nic::{self, HostRange, PageStore};
use niclab_model::time::Time;
use niclab_port::{Page, Records, Register, Reports};
use smallvec::SmallVec;

/// Number of words in a status line.
pub const STATUS_WORDS: usize = 8;
/// Number of words in a counter.
pub const COUNTER_WORDS: usize = 2;
/// First word of the counters in the status page.
const COUNTERS_WORD: usize = (COUNTERS_OFFSET / 8) as usize;
/// Address bits of one port's memory.
const PORT_SHIFT: u32 = 36;
/// Offset of the receive queue in it.
const RECORDS_OFFSET: u64 = PAGE_BYTES;
/// Offset of the region in it.
const REGION_OFFSET: u64 = 1 << 24;
/// Distance between two pages of the region.
const PAGE_STRIDE: u64 = 2 * PAGE_BYTES;

/// A location in the memory of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLocation {
    /// The status line, from its first word.
    Status,
    /// A counter.
    Counter(usize),
    /// Words of a record.
    Record {
        /// Index of the record in the queue.
        index: u64,
        /// Index of the first word in the record.
        word: usize,
        /// Whether the status word is among them.
        ends_with_status: bool,
    },
}

/// Words of the status page that are not visible yet.
#[derive(Debug)]
struct News {
    at: Time,
    port: usize,
    /// Index of the first word.
    first: usize,
    words: [u64; STATUS_WORDS],
    count: usize,
}

/// Memory of one port.
#[derive(Debug)]
struct PortMemory {
    status: [u64; STATUS_WORDS],
    /// Failures and successes of each counter; empty until the card writes the first counter.
    counters: Vec<u64>,
    /// Index of each record's words in the pool; [`NOWHERE`] for a record that was not written since it was last read.
    records: Vec<u32>,
    region: Vec<u8>,
    /// Bytes that the program pushed into the card, up to the highest offset.
    pushed: Vec<u8>,
}

/// The record has no block in the pool.
const NOWHERE: u32 = u32::MAX;

/// The memory of one host. Only data that was written and not read takes room, because thousands of hosts may have long
/// queues.
///
/// A program may read its status lines and counters at any time, and sees their values at that time. It reads a record
/// only when the record is visible, so the memory stores records at once.
#[derive(Debug, Default)]
pub struct HostMemory {
    ports: Vec<PortMemory>,
    /// In the order in which they become visible.
    pending: VecDeque<News>,
    /// Records, and the indices of free ones.
    pool: Vec<[u64; SLICE_WORDS]>,
    free: Vec<u32>,
}

impl HostMemory {
    /// Allocates memory for the next port.
    pub fn open(&mut self, records: u32, region_bytes: u64) {
        self.ports.push(PortMemory {
            status: [0; STATUS_WORDS],
            counters: Vec::new(),
            records: vec![NOWHERE; records as usize],
            region: vec![0; region_bytes as usize],
            pushed: Vec::new(),
        });
    }

    /// The index of the port to whose memory an address belongs.
    fn port_of(address: u64) -> Option<usize> {
        usize::try_from((address >> PORT_SHIFT).checked_sub(1)?).ok()
    }

    /// The address of a port's status line.
    #[must_use]
    pub const fn status_address(port: usize) -> u64 {
        (port as u64 + 1) << PORT_SHIFT
    }

    /// The address of a port's receive queue.
    #[must_use]
    pub const fn records_address(port: usize) -> u64 {
        Self::status_address(port) + RECORDS_OFFSET
    }

    /// The pages of a port's region, in order.
    pub fn extents(&self, port: usize) -> impl Iterator<Item = Extent> + use<> {
        let bytes = self.ports.get(port).map_or(0, |memory| memory.region.len() as u64);
        let begin = Self::status_address(port) + REGION_OFFSET;
        let page = move |number: u64| Extent {
            address: begin + number * PAGE_STRIDE,
            bytes: PAGE_BYTES.min(bytes - number * PAGE_BYTES),
        };
        (0..bytes.div_ceil(PAGE_BYTES)).map(page)
    }

    /// The location of `words` words at `address`, if all of them are in one status line, counter or record.
    #[must_use]
    pub fn location_of(&self, address: u64, words: usize) -> Option<(usize, MemoryLocation)> {
        let port = Self::port_of(address)?;
        let memory = self.ports.get(port)?;
        let offset = address - Self::status_address(port);
        if offset == 0 {
            return (words <= STATUS_WORDS).then_some((port, MemoryLocation::Status));
        }
        let Some(offset) = offset.checked_sub(RECORDS_OFFSET) else {
            let counter = offset.checked_sub(COUNTERS_OFFSET)?;
            let bytes = 8 * COUNTER_WORDS as u64;
            let is_one = counter.is_multiple_of(bytes) && words <= COUNTER_WORDS;
            let number = counter / bytes;
            return (is_one && number < COUNTERS.into())
                .then_some((port, MemoryLocation::Counter(number as usize)));
        };
        let (index, within) = (offset / SLICE_BYTES, offset % SLICE_BYTES);
        let word = (within / 8) as usize;
        let is_inside = offset.is_multiple_of(8)
            && usize::try_from(index).is_ok_and(|index| index < memory.records.len())
            && word + words <= SLICE_WORDS;
        let ends_with_status = word + words == SLICE_WORDS;
        is_inside.then_some((port, MemoryLocation::Record { index, word, ends_with_status }))
    }

    /// Stores a write that becomes visible at `at`, at a location from [`HostMemory::location_of`].
    pub fn write(&mut self, at: Time, port: usize, location: MemoryLocation, words: &[u64]) {
        let first = match location {
            MemoryLocation::Status => 0,
            MemoryLocation::Counter(number) => COUNTERS_WORD + number * COUNTER_WORDS,
            MemoryLocation::Record { index, word, .. } => {
                let Some(record) = self.record_mut(port, index as usize) else { return };
                record.iter_mut().skip(word).zip(words).for_each(|(place, word)| *place = *word);
                return;
            }
        };
        let mut news = News { at, port, first, words: [0; STATUS_WORDS], count: words.len() };
        news.words.iter_mut().zip(words).for_each(|(place, word)| *place = *word);
        let earlier = self.pending.iter().rposition(|earlier| earlier.at <= at);
        self.pending.insert(earlier.map_or(0, |last| last + 1), news);
    }

    /// The words of a record, with a block in the pool.
    fn record_mut(&mut self, port: usize, index: usize) -> Option<&mut [u64; SLICE_WORDS]> {
        let place = self.ports.get_mut(port)?.records.get_mut(index)?;
        if *place == NOWHERE {
            *place = self.free.pop().unwrap_or(self.pool.len() as u32);
            // The block may contain another record's words.
            match self.pool.get_mut(*place as usize) {
                Some(used) => *used = [0; SLICE_WORDS],
                None => self.pool.push([0; SLICE_WORDS]),
            }
        }
        self.pool.get_mut(*place as usize)
    }

    /// Makes all writes visible that are due by `now`.
    pub fn advance(&mut self, now: Time) {
        while self.pending.front().is_some_and(|news| news.at <= now) {
            let Some(news) = self.pending.pop_front() else { break };
            let Some(memory) = self.ports.get_mut(news.port) else { continue };
            let words = news.words.iter().take(news.count);
            match news.first.checked_sub(COUNTERS_WORD) {
                None => memory.status.iter_mut().zip(words).for_each(|(place, word)| *place = *word),
                Some(first) => {
                    memory.counters.resize(COUNTERS as usize * COUNTER_WORDS, 0);
                    let counter = memory.counters.iter_mut().skip(first);
                    counter.zip(words).for_each(|(place, word)| *place = *word);
                }
            }
        }
    }

    /// The time at which the next status line or counter becomes visible.
    #[must_use]
    pub fn next_visible(&self) -> Option<Time> {
        self.pending.front().map(|news| news.at)
    }

    /// Word `index` of a port's status page.
    #[must_use]
    pub fn status_word(&self, port: usize, index: usize) -> u64 {
        let Some(memory) = self.ports.get(port) else { return 0 };
        let word = match index.checked_sub(COUNTERS_WORD) {
            None => memory.status.get(index),
            Some(counter) => memory.counters.get(counter),
        };
        word.copied().unwrap_or(0)
    }

    /// The words of the record at this index, if the card wrote any since the program last read the record.
    #[must_use]
    fn record(&self, port: usize, index: u32) -> Option<&[u64; SLICE_WORDS]> {
        let place = *self.ports.get(port)?.records.get(index as usize)?;
        self.pool.get(place as usize)
    }

    /// The program has read the record with this number and does not read it again.
    pub fn forget(&mut self, port: usize, number: u64) {
        let Some(memory) = self.ports.get_mut(port) else { return };
        let index = number.wrapping_sub(1).checked_rem(memory.records.len() as u64);
        let Some(record) = index.and_then(|index| memory.records.get_mut(index as usize)) else { return };
        let block = std::mem::replace(record, NOWHERE);
        if block != NOWHERE {
            self.free.push(block);
        }
    }

    /// The port and offset of a range in a region, if the whole range is in one page.
    fn offset_of(&self, range: &HostRange) -> Option<(usize, usize)> {
        let port = Self::port_of(range.address)?;
        let offset = (range.address - Self::status_address(port)).checked_sub(REGION_OFFSET)?;
        let (page, within) = (offset / PAGE_STRIDE, offset % PAGE_STRIDE);
        let begin = page.checked_mul(PAGE_BYTES)?.checked_add(within)?;
        let end = begin.checked_add(range.bytes)?;
        let is_inside =
            within + range.bytes <= PAGE_BYTES && end <= self.ports.get(port)?.region.len() as u64;
        is_inside.then_some((port, begin as usize))
    }

    /// The bytes of a region in this range, or none if the range is not in one page of a region.
    #[must_use]
    pub fn load(&self, range: &HostRange) -> Option<&[u8]> {
        let (port, begin) = self.offset_of(range)?;
        self.ports.get(port)?.region.get(begin..begin + range.bytes as usize)
    }

    /// Stores bytes into a region. Returns the port and the offset, or none if the range is not in one page of a
    /// region.
    pub fn store(&mut self, range: &HostRange, bytes: &[u8]) -> Option<(usize, u64)> {
        let (port, begin) = self.offset_of(range)?;
        let place = self.ports.get_mut(port)?.region.get_mut(begin..begin + range.bytes as usize)?;
        let count = place.len().min(bytes.len());
        place.get_mut(..count)?.copy_from_slice(bytes.get(..count)?);
        (place.len() == bytes.len()).then_some((port, begin as u64))
    }

    /// A range of the bytes that a port's program pushed into the card.
    #[must_use]
    pub fn pushed(&self, port: usize, bytes: &Range<u64>) -> Option<&[u8]> {
        self.ports.get(port)?.pushed.get(bytes.start as usize..bytes.end as usize)
    }

    /// A program's access to the memory and pages of its port.
    pub fn view(&mut self, port: usize, number: u32) -> View<'_> {
        View { memory: self, port, number, launched: None, pushed_bytes: 0, registers: SmallVec::new() }
    }
}

/// A post: the contents of a slot.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// The store that the card gets.
    pub store: PageStore,
    /// Bytes of the burst.
    pub bytes: u64,
}

/// The memory of one port, and the stores of its program into the port's pages.
pub struct View<'a> {
    memory: &'a mut HostMemory,
    port: usize,
    number: u32,
    /// The slot that was posted.
    pub launched: Option<Launch>,
    /// Bytes that the program pushed into the card since the last post.
    pushed_bytes: u64,
    /// The registers that the program stored to, in order.
    pub registers: SmallVec<[nic::Register; 2]>,
}

impl Page for View<'_> {
    fn launch(&mut self, _: u32, begin: usize, words: impl Iterator<Item = u64>, _: u64, launch_word: u64) {
        const WORDS: usize = PAYLOAD_WORDS + TAG_WORDS;
        let mut store = PageStore { port: self.number, code: launch_word as u32, words: [0; WORDS] };
        store.words.iter_mut().skip(begin).zip(words).for_each(|(place, word)| *place = word);
        let bytes = 8 * WORDS.saturating_sub(begin) as u64 + core::mem::take(&mut self.pushed_bytes);
        self.launched = Some(Launch { store, bytes });
    }
}

impl Reports for View<'_> {
    fn status_word(&self, index: usize) -> u64 {
        self.memory.status_word(self.port, index)
    }
}

impl Records for View<'_> {
    type Record<'a>
        = &'a [u64; SLICE_WORDS]
    where
        Self: 'a;

    fn record(&self, index: u32) -> Option<&[u64; SLICE_WORDS]> {
        self.memory.record(self.port, index)
    }

    fn store(&mut self, register: Register, value: u64) {
        self.registers.push(match register {
            Register::Released => nic::Register::Released(value),
            Register::Armed => nic::Register::Armed(value),
            Register::ReleaseInterval => nic::Register::ReleaseInterval(value),
        });
    }
}

impl niclab_workloads::Memory for View<'_> {
    fn load(&self, offset: u64, bytes: u64) -> u64 {
        let region = self.memory.ports.get(self.port).map(|memory| memory.region.as_slice());
        let place = region.and_then(|region| region.get(offset as usize..(offset + bytes) as usize));
        // Usually the access is a whole word.
        if let Some(Ok(word)) = place.map(<[u8; 8]>::try_from) {
            return u64::from_le_bytes(word);
        }
        let mut word = [0; 8];
        word.iter_mut().zip(place.unwrap_or_default()).for_each(|(place, byte)| *place = *byte);
        u64::from_le_bytes(word)
    }

    fn store_word(&mut self, offset: u64, bytes: u64, word: u64) {
        let region = self.memory.ports.get_mut(self.port).map(|memory| memory.region.as_mut_slice());
        let place = region.and_then(|region| region.get_mut(offset as usize..(offset + bytes) as usize));
        let place = place.unwrap_or_default();
        match <&mut [u8; 8]>::try_from(&mut *place) {
            Ok(whole) => *whole = word.to_le_bytes(),
            Err(_) => place.iter_mut().zip(word.to_le_bytes()).for_each(|(place, byte)| *place = byte),
        }
    }

    fn words(&self, offset: u64, bytes: u64) -> impl Iterator<Item = u64> {
        let region = self.memory.ports.get(self.port).map(|memory| memory.region.as_slice());
        let place = region.and_then(|region| region.get(offset as usize..(offset + bytes) as usize));
        let (words, rest) = place.unwrap_or_default().as_chunks::<8>();
        let last = (!rest.is_empty()).then(|| {
            let mut word = [0; 8];
            word.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
            word
        });
        words.iter().copied().chain(last).map(u64::from_le_bytes)
    }

    fn store_words(&mut self, offset: u64, bytes: u64, mut words: impl Iterator<Item = u64>) {
        let region = self.memory.ports.get_mut(self.port).map(|memory| memory.region.as_mut_slice());
        let place = region.and_then(|region| region.get_mut(offset as usize..(offset + bytes) as usize));
        let (places, rest) = place.unwrap_or_default().as_chunks_mut::<8>();
        places.iter_mut().zip(&mut words).for_each(|(place, word)| *place = word.to_le_bytes());
        if let Some(word) = words.next() {
            rest.iter_mut().zip(word.to_le_bytes()).for_each(|(place, byte)| *place = byte);
        }
    }

    fn push(&mut self, offset: u64, words: impl Iterator<Item = u64>) {
        let Some(memory) = self.memory.ports.get_mut(self.port) else { return };
        let mut end = offset as usize;
        for word in words {
            let begin = end;
            end += 8;
            if memory.pushed.len() < end {
                memory.pushed.resize(end, 0);
            }
            memory
                .pushed
                .iter_mut()
                .skip(begin)
                .zip(word.to_le_bytes())
                .for_each(|(place, byte)| *place = byte);
            self.pushed_bytes += 8;
        }
    }
}

/// A program's read access to its status words.
pub struct Glance<'a> {
    /// The host's memory.
    pub memory: &'a HostMemory,
    /// Index of the port.
    pub port: usize,
}

impl Reports for Glance<'_> {
    fn status_word(&self, index: usize) -> u64 {
        self.memory.status_word(self.port, index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three ports, each with eight records and a region of more than a page.
    fn memory() -> HostMemory {
        let mut memory = HostMemory::default();
        (0..3).for_each(|_| memory.open(8, 5000));
        memory
    }

    #[test]
    fn addresses_outside_the_memory_have_no_location() {
        let memory = memory();
        let (status, records) = (HostMemory::status_address(2), HostMemory::records_address(2));
        assert_eq!(memory.location_of(status, 8), Some((2, MemoryLocation::Status)));
        assert_eq!(
            memory.location_of(status + COUNTERS_OFFSET + 16, 2),
            Some((2, MemoryLocation::Counter(1)))
        );
        let last = records + 7 * SLICE_BYTES;
        let location = MemoryLocation::Record { index: 7, word: 8, ends_with_status: true };
        assert_eq!(memory.location_of(last + 64, 3), Some((2, location)));
        for (address, words) in [
            (status, 9),
            (status + 8, 1),
            (status + COUNTERS_OFFSET + 8, 2),
            (status + COUNTERS_OFFSET, 3),
            (last + 64, 4),
            (last + SLICE_BYTES, 1),
            (records + 4, 1),
            (0, 1),
        ] {
            assert_eq!(memory.location_of(address, words), None, "{address:#x}");
        }
        assert_eq!(memory.location_of(HostMemory::status_address(3), 1), None, "the port is not open");
    }

    #[test]
    fn region_consists_of_its_pages_without_the_gaps() {
        let mut memory = memory();
        let extents: Vec<_> = memory.extents(1).collect();
        assert_eq!((extents.len(), extents[0].bytes, extents[1].bytes), (2, 4096, 904));
        let second = HostRange { address: extents[1].address + 900, bytes: 4 };
        assert_eq!(memory.store(&second, &[1, 2, 3, 4]), Some((1, 4996)));
        assert_eq!(niclab_workloads::Memory::load(&memory.view(1, 0), 4996, 3), 0x03_0201);
        assert_eq!(memory.load(&second), Some(&[1, 2, 3, 4][..]));
        for (address, bytes) in [(extents[1].address + 901, 4), (extents[0].address + 4095, 2), (0, 1)] {
            assert_eq!(memory.load(&HostRange { address, bytes }), None, "{address:#x}");
        }
    }

    #[test]
    fn status_lines_and_counters_become_visible_at_their_times() {
        let mut memory = memory();
        let at = |ps| Time::from_ps(ps);
        memory.write(at(20), 2, MemoryLocation::Status, &[2]);
        memory.write(at(10), 2, MemoryLocation::Status, &[1]);
        memory.write(at(15), 2, MemoryLocation::Counter(3), &[4, 7]);
        for (now, seen) in [(9, (0, 0)), (10, (1, 0)), (15, (1, 7)), (19, (1, 7)), (20, (2, 7))] {
            memory.advance(at(now));
            let counter = niclab_port::matching::Count::read(&Glance { memory: &memory, port: 2 }, 3);
            assert_eq!((memory.status_word(2, 0), counter.successes), seen);
        }
        assert_eq!((memory.next_visible(), memory.status_word(1, 0)), (None, 0));
    }

    /// Writes the end of a record with this payload and number.
    fn write(memory: &mut HostMemory, payload: &[u64], number: u64) {
        let words = [payload, &[7, 8, number << 32 | 1 << 7]].concat();
        let word = SLICE_WORDS - words.len();
        let index = (number - 1) % 8;
        memory.write(Time::ZERO, 2, MemoryLocation::Record { index, word, ends_with_status: true }, &words);
    }

    #[test]
    fn records_are_read_in_any_order_and_then_freed() {
        let mut memory = memory();
        for round in 0..3 {
            (1..=8).for_each(|record| write(&mut memory, &[record, 9], 8 * round + record));
            for record in [5, 1, 8, 2, 3, 4, 6, 7] {
                assert_eq!(memory.record(2, record as u32 - 1).unwrap()[6..8], [record, 9]);
                memory.forget(2, 8 * round + record);
                assert!(memory.record(2, record as u32 - 1).is_none());
            }
        }
        assert_eq!((memory.pool.len(), memory.free.len()), (8, 8));
    }

    #[test]
    fn partly_written_record_shows_no_words_of_an_old_one() {
        let mut memory = memory();
        write(&mut memory, &[1], 5);
        memory.forget(2, 5);
        memory.write(
            Time::ZERO,
            1,
            MemoryLocation::Record { index: 4, word: 7, ends_with_status: false },
            &[1, 7, 8],
        );
        assert_eq!(memory.record(1, 4).unwrap(), &[0, 0, 0, 0, 0, 0, 0, 1, 7, 8, 0]);
    }
}
