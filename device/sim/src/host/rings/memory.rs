//! The memory of a host whose card processes descriptor rings. The card's writes to descriptors become visible at
//! instants of model time. Its writes to buffers take effect at once, because no program reads them earlier.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use niclab_model::nic::HostRange;
use niclab_model::time::Time;
use niclab_port::gamma::rings::{RingMemory, STRIDE_WORDS};

/// Bytes of a buffer, and of each slot of a ring's memory.
pub const BUFFER_BYTES: u32 = 2_048;
/// Number of descriptors in the transmit ring.
pub const TRANSMIT_DESCRIPTORS: u32 = 128;
/// Maximum number of bytes of a head before a message's part.
pub const HEAD_BYTES: u32 = 64;

const TRANSMIT_RING: u64 = 0x10_0000;
const RECEIVE_RING: u64 = 0x20_0000;
const HEADS: u64 = 0x40_0000;
const DATA: u64 = 0x80_0000;
const RECEIVE_BUFFERS: u64 = 0x1000_0000;
/// Destinations of messages that the card stores directly: one area for each other node, longer than the longest
/// message and a frame.
const DESTINATIONS: u64 = 0x1_0000_0000;
const DESTINATION_BYTES: u64 = 1 << 21;

/// A ring of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Frames to send.
    Transmit,
    /// Buffers for received frames.
    Receive,
}

impl Which {
    /// Address of the first descriptor.
    pub const fn address(self) -> u64 {
        match self {
            Self::Transmit => TRANSMIT_RING,
            Self::Receive => RECEIVE_RING,
        }
    }
}

/// The words of both rings, and the buffers in use.
#[derive(Debug, Default)]
pub struct HostRings {
    transmit: Vec<u64>,
    receive: Vec<u64>,
    /// The card's writes to descriptors that are not visible yet, in the order of their times.
    coming: VecDeque<(Time, Which, usize, u64)>,
    /// Buffers by address. A buffer without any store has no entry.
    buffers: HashMap<u64, Box<[u8]>>,
    receive_buffers: u32,
    /// The memory that the driver has given for a part of a message.
    expected: Option<HostRange>,
}

/// The driver's view of the words of one ring.
pub struct Words<'a>(&'a mut Vec<u64>);

impl RingMemory for Words<'_> {
    fn load(&self, word: usize) -> u64 {
        self.0.get(word).copied().unwrap_or(0)
    }

    fn store(&mut self, word: usize, value: u64) {
        self.0.get_mut(word).into_iter().for_each(|place| *place = value);
    }
}

impl HostRings {
    /// Rings with this number of receive descriptors.
    pub fn new(receive_buffers: u32) -> Self {
        Self {
            transmit: vec![0; TRANSMIT_DESCRIPTORS as usize * STRIDE_WORDS],
            receive: vec![0; receive_buffers as usize * STRIDE_WORDS],
            receive_buffers,
            ..Self::default()
        }
    }

    /// The driver's view of a ring.
    pub const fn ring(&mut self, which: Which) -> Words<'_> {
        match which {
            Which::Transmit => Words(&mut self.transmit),
            Which::Receive => Words(&mut self.receive),
        }
    }

    /// Addresses of the frame head and of the message part for this slot of the transmit ring.
    pub const fn outgoing(place: u32) -> (u64, u64) {
        (HEADS + (place * HEAD_BYTES) as u64, DATA + (place * BUFFER_BYTES) as u64)
    }

    /// Address of the buffer of this slot of the receive ring.
    pub const fn incoming(place: u32) -> u64 {
        RECEIVE_BUFFERS + (place * BUFFER_BYTES) as u64
    }

    /// The ring and the index of the word at this address.
    pub fn word_at(&self, address: u64) -> Option<(Which, usize)> {
        [(Which::Transmit, &self.transmit), (Which::Receive, &self.receive)].into_iter().find_map(
            |(which, ring)| {
                let word = address.checked_sub(which.address())? / 8;
                let word = usize::try_from(word).ok().filter(|word| *word < ring.len())?;
                address.is_multiple_of(8).then_some((which, word))
            },
        )
    }

    /// The card writes a word of a descriptor, visible at `at`. Returns false if the driver owns the descriptor.
    pub fn write_back(&mut self, at: Time, which: Which, word: usize, value: u64) -> bool {
        let after = self.coming.iter().rposition(|(earlier, ..)| *earlier <= at);
        self.coming.insert(after.map_or(0, |last| last + 1), (at, which, word, value));
        let own = self.ring(which).load(word);
        word.is_multiple_of(STRIDE_WORDS) && own & niclab_abi::rings::RING_OWN != 0
    }

    /// Makes all writes visible that are due by `now`.
    pub fn advance(&mut self, now: Time) {
        while let Some(&(_, which, word, value)) = self.coming.front().filter(|(at, ..)| *at <= now) {
            self.coming.pop_front();
            self.ring(which).store(word, value);
        }
    }

    /// The time at which the next write becomes visible.
    pub fn next_visible(&self) -> Option<Time> {
        self.coming.front().map(|(at, ..)| *at)
    }

    /// The program stores into one of its buffers.
    pub fn fill(&mut self, address: u64, bytes: &[u8]) {
        let offset = (address % u64::from(BUFFER_BYTES)) as usize;
        let buffer = self.buffer(address);
        if let Some(place) = buffer.get_mut(offset..offset + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn buffer(&mut self, address: u64) -> &mut [u8] {
        let base = address - address % u64::from(BUFFER_BYTES);
        self.buffers.entry(base).or_insert_with(|| vec![0; BUFFER_BYTES as usize].into())
    }

    /// Destination of a node's messages that are not copied.
    pub const fn destination(node: u16) -> u64 {
        DESTINATIONS + node as u64 * DESTINATION_BYTES
    }

    /// The driver expects the card to store this number of bytes there.
    pub fn expect(&mut self, address: u64, bytes: u64) {
        self.expected = (bytes > 0).then_some(HostRange { address, bytes });
    }

    /// Copies the bytes that the card stored there.
    pub fn taken(&self, address: u64, bytes: u32) -> Vec<u8> {
        let byte = |at: u64| {
            let offset = at % u64::from(BUFFER_BYTES);
            self.buffers.get(&(at - offset)).map_or(0, |buffer| buffer[offset as usize])
        };
        (address..address + u64::from(bytes)).map(byte).collect()
    }

    /// The card stores data. Returns false if the card does not own the buffer.
    pub fn store(&mut self, range: &HostRange, bytes: &[u8]) -> bool {
        if range.address >= DESTINATIONS {
            let mut at = range.address;
            let mut rest = bytes;
            while !rest.is_empty() {
                let room = u64::from(BUFFER_BYTES) - at % u64::from(BUFFER_BYTES);
                let (part, remaining) = rest.split_at(rest.len().min(room as usize));
                self.fill(at, part);
                (at, rest) = (at + part.len() as u64, remaining);
            }
            return self.expected.take() == Some(*range);
        }
        let Some(place) = self.place_of(range) else { return false };
        let word = place as usize * STRIDE_WORDS;
        let is_cards = self.ring(Which::Receive).load(word) & niclab_abi::rings::RING_OWN != 0;
        self.fill(range.address, bytes);
        is_cards
    }

    /// The slot of the receive ring whose buffer contains this range.
    fn place_of(&self, range: &HostRange) -> Option<u32> {
        let at = range.address.checked_sub(RECEIVE_BUFFERS)?;
        let (place, offset) = (at / u64::from(BUFFER_BYTES), at % u64::from(BUFFER_BYTES));
        let is_inside = offset + range.bytes <= u64::from(BUFFER_BYTES);
        u32::try_from(place).ok().filter(|place| is_inside && *place < self.receive_buffers)
    }

    /// Reads words of a ring or bytes of a buffer. None if the address is in neither.
    pub fn load(&self, range: &HostRange) -> Option<Vec<u8>> {
        if let Some((which, word)) = self.word_at(range.address) {
            let ring = if which == Which::Transmit { &self.transmit } else { &self.receive };
            let words = ring.get(word..word + range.bytes as usize / 8)?;
            return Some(words.iter().flat_map(|word| word.to_le_bytes()).collect());
        }
        let offset = (range.address % u64::from(BUFFER_BYTES)) as usize;
        let buffer = self.buffers.get(&(range.address - offset as u64))?;
        buffer.get(offset..offset + range.bytes as usize).map(<[u8]>::to_vec)
    }

    /// The first bytes of the buffer of this receive slot.
    pub fn received(&self, place: u32, bytes: u32) -> &[u8] {
        let buffer = self.buffers.get(&Self::incoming(place)).map(|buffer| &**buffer);
        buffer.and_then(|buffer| buffer.get(..bytes as usize)).unwrap_or_default()
    }
}

/// Whether a range belongs to a ring, and not to a buffer.
pub const fn is_ring(range: &Range<u64>) -> bool {
    range.start < HEADS
}
