//! The memory of one port's host side: a page with status line and counters, the event queue, and a region whose pages do
//! not touch, as those of a program seldom do.

use std::collections::VecDeque;

use niclab_abi::matching::{COUNTERS, COUNTERS_OFFSET, Extent};
use niclab_abi::receive::{SLICE_BYTES, SLICE_NUMBER_SHIFT, SLICE_WORDS};
use niclab_model::nic::HostRange;
use niclab_model::time::Time;

/// Words of a status line.
pub const STATUS_WORDS: usize = 8;
/// Bytes of a page of the region.
pub const PAGE: u64 = 4096;
/// Address bits of one port's memory.
const PORT_SHIFT: u32 = 36;
/// Where in it the events are.
const EVENTS_OFFSET: u64 = PAGE;
/// Where in it the region is.
const REGION_OFFSET: u64 = 1 << 24;
/// From one page of the region to the next.
const PAGE_STRIDE: u64 = 2 * PAGE;

/// What a card has written into a port's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The status line.
    Status,
    /// A counter.
    Counter(usize),
    /// An event.
    Event(usize),
}

/// An event, in its words.
pub type Event = [u64; SLICE_WORDS];

/// What a program sees from an instant on.
#[derive(Clone, Copy, Debug)]
enum News {
    /// Launches that the card has taken.
    Launched(u64),
    /// Successes of a counter.
    Counted(usize, u64),
}

/// Memory of one port.
#[derive(Debug)]
pub struct Memory {
    base: u64,
    /// Launches that the card has taken, for all that the program can see.
    launched: u64,
    successes: [u64; COUNTERS as usize],
    /// In the order in which it becomes visible.
    pending: VecDeque<(Time, News)>,
    events: Vec<Event>,
    region: Vec<u8>,
}

impl Memory {
    /// Memory of the port that was opened as number `port` of its host, with a region of so many bytes.
    #[must_use]
    pub fn new(port: usize, events: u32, region_bytes: u64) -> Self {
        Self {
            base: (port as u64 + 1) << PORT_SHIFT,
            launched: 0,
            successes: [0; COUNTERS as usize],
            pending: VecDeque::new(),
            events: vec![[0; SLICE_WORDS]; events as usize],
            region: vec![0; region_bytes as usize],
        }
    }

    /// The place of the port at whose memory an address points.
    #[must_use]
    pub fn port_of(address: u64) -> Option<usize> {
        usize::try_from((address >> PORT_SHIFT).checked_sub(1)?).ok()
    }

    /// The address of the status line.
    #[must_use]
    pub const fn status_address(&self) -> u64 {
        self.base
    }

    /// The address of the event queue.
    #[must_use]
    pub const fn events_address(&self) -> u64 {
        self.base + EVENTS_OFFSET
    }

    /// The region's pages, in their order.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        let bytes = self.region.len() as u64;
        let page = move |number: u64| Extent {
            address: self.base + REGION_OFFSET + number * PAGE_STRIDE,
            bytes: PAGE.min(bytes - number * PAGE),
        };
        (0..bytes.div_ceil(PAGE)).map(page)
    }

    /// Where words go, if they are all of what stands there.
    #[must_use]
    pub fn place_of(&self, address: u64, words: usize) -> Option<Place> {
        let offset = address.checked_sub(self.base)?;
        if offset == 0 {
            return (words == STATUS_WORDS).then_some(Place::Status);
        }
        if let Some(event) = offset.checked_sub(EVENTS_OFFSET) {
            let index = usize::try_from(event / SLICE_BYTES).ok()?;
            let is_whole = event.is_multiple_of(SLICE_BYTES) && words == SLICE_WORDS;
            return (is_whole && index < self.events.len()).then_some(Place::Event(index));
        }
        let counter = offset.checked_sub(COUNTERS_OFFSET)?;
        let is_whole = counter.is_multiple_of(16) && words == 2 && counter / 16 < COUNTERS.into();
        is_whole.then_some(Place::Counter((counter / 16) as usize))
    }

    /// Takes a write that is visible at `at`.
    pub fn write(&mut self, at: Time, place: Place, words: &[u64]) {
        let news = match (place, words) {
            (Place::Status, [launched, ..]) => News::Launched(*launched),
            (Place::Counter(number), [_, success]) => News::Counted(number, *success),
            (Place::Event(index), words) => {
                if let (Some(event), Ok(words)) = (self.events.get_mut(index), words.try_into()) {
                    *event = words;
                }
                return;
            }
            _ => return,
        };
        let earlier = self.pending.iter().rposition(|(earlier, _)| *earlier <= at);
        self.pending.insert(earlier.map_or(0, |last| last + 1), (at, news));
    }

    /// Makes visible what is by now.
    pub fn advance(&mut self, now: Time) {
        while let Some(&(_, news)) = self.pending.front().filter(|(at, _)| *at <= now) {
            self.pending.pop_front();
            match news {
                News::Launched(launched) => self.launched = self.launched.max(launched),
                News::Counted(number, success) => {
                    self.successes.iter_mut().skip(number).take(1).for_each(|s| *s = success.max(*s));
                }
            }
        }
    }

    /// When the next of these becomes visible.
    #[must_use]
    pub fn next_visible(&self) -> Option<Time> {
        self.pending.front().map(|(at, _)| *at)
    }

    /// Launches that the card has taken, for all that the program can see.
    #[must_use]
    pub const fn launched(&self) -> u64 {
        self.launched
    }

    /// Successes of a counter, for all that the program can see.
    #[must_use]
    pub fn successes(&self, counter: usize) -> u64 {
        self.successes.get(counter).copied().unwrap_or(0)
    }

    /// The event with this number, if it is there.
    #[must_use]
    pub fn event(&self, number: u64) -> Option<&Event> {
        let index = number.wrapping_sub(1).checked_rem(self.events.len() as u64)?;
        let event = self.events.get(index as usize)?;
        let found = event.last().map(|status| status >> SLICE_NUMBER_SHIFT);
        (found == Some(number & u64::from(u32::MAX))).then_some(event)
    }

    /// The stretch of the region at an address, if all of it is inside one page.
    fn offset_of(&self, range: &HostRange) -> Option<usize> {
        let offset = range.address.checked_sub(self.base + REGION_OFFSET)?;
        let (page, within) = (offset / PAGE_STRIDE, offset % PAGE_STRIDE);
        let begin = page.checked_mul(PAGE)?.checked_add(within)?;
        let end = begin.checked_add(range.bytes)?;
        let is_inside = within + range.bytes <= PAGE && end <= self.region.len() as u64;
        is_inside.then_some(begin as usize)
    }

    /// The region's bytes at these ranges, or none if not all of them are the region's.
    #[must_use]
    pub fn load(&self, range: &HostRange) -> Option<&[u8]> {
        let begin = self.offset_of(range)?;
        self.region.get(begin..begin + range.bytes as usize)
    }

    /// Stores bytes into the region. Where they begin in it, or none if not all of the range is the region's.
    pub fn store(&mut self, range: &HostRange, bytes: &[u8]) -> Option<usize> {
        let begin = self.offset_of(range)?;
        let place = self.region.get_mut(begin..begin + range.bytes as usize)?;
        place.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
        (place.len() == bytes.len()).then_some(begin)
    }

    /// A part of the region, as the program sees it.
    #[must_use]
    pub fn part(&self, offset: u64, bytes: u64) -> &[u8] {
        let begin = offset as usize;
        self.region.get(begin..begin.saturating_add(bytes as usize)).unwrap_or_default()
    }

    /// A part of the region, to write it.
    pub fn part_mut(&mut self, offset: u64, bytes: u64) -> &mut [u8] {
        let begin = offset as usize;
        self.region.get_mut(begin..begin.saturating_add(bytes as usize)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_outside_of_what_was_given_are_no_place() {
        let memory = Memory::new(1, 8, 5000);
        let base = memory.status_address();
        assert_eq!(Memory::port_of(base + 5), Some(1));
        assert_eq!(memory.place_of(base, 8), Some(Place::Status));
        assert_eq!(memory.place_of(base + COUNTERS_OFFSET + 16, 2), Some(Place::Counter(1)));
        assert_eq!(memory.place_of(memory.events_address() + 7 * 88, 11), Some(Place::Event(7)));
        for (address, words) in [
            (base, 7),
            (base + 8, 8),
            (base + COUNTERS_OFFSET + 8, 2),
            (memory.events_address() + 8 * 88, 11),
            (memory.events_address() + 8, 11),
            (memory.events_address(), 3),
        ] {
            assert_eq!(memory.place_of(address, words), None, "{address:#x}");
        }
    }

    #[test]
    fn the_region_is_its_pages_and_not_what_lies_between() {
        let mut memory = Memory::new(0, 8, 5000);
        let extents: Vec<_> = memory.extents().collect();
        assert_eq!((extents.len(), extents[0].bytes, extents[1].bytes), (2, 4096, 904));
        let second = HostRange { address: extents[1].address + 900, bytes: 4 };
        assert_eq!(memory.store(&second, &[1, 2, 3, 4]), Some(4996));
        assert_eq!(memory.part(4996, 4), [1, 2, 3, 4]);
        assert_eq!(memory.load(&second), Some(&[1, 2, 3, 4][..]));
        for (address, bytes) in [(extents[1].address + 901, 4), (extents[0].address + 4095, 2), (0, 1)] {
            assert_eq!(memory.load(&HostRange { address, bytes }), None, "{address:#x}");
        }
    }

    #[test]
    fn news_is_seen_from_its_instant_on() {
        let mut memory = Memory::new(0, 8, 0);
        memory.write(Time::from_ps(20), Place::Status, &[2, 0, 0, 0, 0, 0, 0, 0]);
        memory.write(Time::from_ps(10), Place::Counter(3), &[0, 7]);
        memory.advance(Time::from_ps(10));
        assert_eq!((memory.launched(), memory.successes(3)), (0, 7));
        assert_eq!(memory.next_visible(), Some(Time::from_ps(20)));
    }
}
