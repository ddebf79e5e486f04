//! The memory of a host whose card walks rings of descriptors: rings and buffers, in which what the card stores into
//! descriptors is visible at an instant of model time. What it stores into buffers nobody looks at before that.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use niclab_model::nic::HostRange;
use niclab_model::time::Time;
use niclab_port::active_ports::rings::{RingMemory, STRIDE_WORDS};

/// Bytes of a buffer, and of what lies in one place of a ring's memory.
pub const BUFFER_BYTES: u32 = 2_048;
/// Descriptors of the transmit ring.
pub const TRANSMIT_DESCRIPTORS: u32 = 128;
/// Most of a head in front of a message's part.
pub const HEAD_BYTES: u32 = 64;

const TRANSMIT_RING: u64 = 0x10_0000;
const RECEIVE_RING: u64 = 0x20_0000;
const HEADS: u64 = 0x40_0000;
const DATA: u64 = 0x80_0000;
const RECEIVE_BUFFERS: u64 = 0x1000_0000;
/// Where messages go that the card stores where they belong: one place for each other node, longer than any message and
/// a frame.
const DESTINATIONS: u64 = 0x1_0000_0000;
const DESTINATION_BYTES: u64 = 1 << 21;

/// A ring of the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// What is to be sent.
    Transmit,
    /// Room for what comes.
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

/// The words of both rings, and buffers as they are used.
#[derive(Debug, Default)]
pub struct Memory {
    transmit: Vec<u64>,
    receive: Vec<u64>,
    /// What the card has written into descriptors and the host does not see yet, the earliest first.
    coming: VecDeque<(Time, Which, usize, u64)>,
    /// Buffers by their addresses; those that nothing was stored into are not there.
    buffers: HashMap<u64, Box<[u8]>>,
    receive_buffers: u32,
    /// The part of a message that the driver has named a place for.
    expected: Option<HostRange>,
}

/// The words of one ring, as the driver sees them.
pub struct Words<'a>(&'a mut Vec<u64>);

impl RingMemory for Words<'_> {
    fn load(&self, word: usize) -> u64 {
        self.0.get(word).copied().unwrap_or(0)
    }

    fn store(&mut self, word: usize, value: u64) {
        self.0.get_mut(word).into_iter().for_each(|place| *place = value);
    }
}

impl Memory {
    /// Rings with so many descriptors for what comes.
    pub fn new(receive_buffers: u32) -> Self {
        Self {
            transmit: vec![0; TRANSMIT_DESCRIPTORS as usize * STRIDE_WORDS],
            receive: vec![0; receive_buffers as usize * STRIDE_WORDS],
            receive_buffers,
            ..Self::default()
        }
    }

    /// A ring, for the driver.
    pub const fn ring(&mut self, which: Which) -> Words<'_> {
        match which {
            Which::Transmit => Words(&mut self.transmit),
            Which::Receive => Words(&mut self.receive),
        }
    }

    /// Where the head of the frame in this place of the transmit ring is, and where its part of a message.
    pub const fn outgoing(place: u32) -> (u64, u64) {
        (HEADS + (place * HEAD_BYTES) as u64, DATA + (place * BUFFER_BYTES) as u64)
    }

    /// Where the buffer of this place of the receive ring is.
    pub const fn incoming(place: u32) -> u64 {
        RECEIVE_BUFFERS + (place * BUFFER_BYTES) as u64
    }

    /// The ring and the word in it at this address.
    pub fn word_at(&self, address: u64) -> Option<(Which, usize)> {
        [(Which::Transmit, &self.transmit), (Which::Receive, &self.receive)].into_iter().find_map(
            |(which, ring)| {
                let word = address.checked_sub(which.address())? / 8;
                let word = usize::try_from(word).ok().filter(|word| *word < ring.len())?;
                address.is_multiple_of(8).then_some((which, word))
            },
        )
    }

    /// The card writes a word of a descriptor, visible at `at`. False if it is the driver's.
    pub fn write_back(&mut self, at: Time, which: Which, word: usize, value: u64) -> bool {
        let after = self.coming.iter().rposition(|(earlier, ..)| *earlier <= at);
        self.coming.insert(after.map_or(0, |last| last + 1), (at, which, word, value));
        let own = self.ring(which).load(word);
        word.is_multiple_of(STRIDE_WORDS) && own & niclab_abi::rings::RING_OWN != 0
    }

    /// What is visible at `now` is seen from now on.
    pub fn advance(&mut self, now: Time) {
        while let Some(&(_, which, word, value)) = self.coming.front().filter(|(at, ..)| *at <= now) {
            self.coming.pop_front();
            self.ring(which).store(word, value);
        }
    }

    /// When the next thing is visible.
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

    /// Where the messages of a node go that are not copied.
    pub const fn destination(node: u16) -> u64 {
        DESTINATIONS + node as u64 * DESTINATION_BYTES
    }

    /// The card is to store so many bytes there.
    pub fn expect(&mut self, address: u64, bytes: u64) {
        self.expected = (bytes > 0).then_some(HostRange { address, bytes });
    }

    /// Takes out what was stored there.
    pub fn taken(&self, address: u64, bytes: u32) -> Vec<u8> {
        let byte = |at: u64| {
            let offset = at % u64::from(BUFFER_BYTES);
            self.buffers.get(&(at - offset)).map_or(0, |buffer| buffer[offset as usize])
        };
        (address..address + u64::from(bytes)).map(byte).collect()
    }

    /// The card stores data. False if it is not into a buffer that the card has.
    pub fn store(&mut self, range: &HostRange, bytes: &[u8]) -> bool {
        if range.address >= DESTINATIONS {
            let mut at = range.address;
            let mut rest = bytes;
            while !rest.is_empty() {
                let room = u64::from(BUFFER_BYTES) - at % u64::from(BUFFER_BYTES);
                let (part, behind) = rest.split_at(rest.len().min(room as usize));
                self.fill(at, part);
                (at, rest) = (at + part.len() as u64, behind);
            }
            return self.expected.take() == Some(*range);
        }
        let Some(place) = self.place_of(range) else { return false };
        let word = place as usize * STRIDE_WORDS;
        let is_cards = self.ring(Which::Receive).load(word) & niclab_abi::rings::RING_OWN != 0;
        self.fill(range.address, bytes);
        is_cards
    }

    /// The place of the receive ring whose buffer holds this range.
    fn place_of(&self, range: &HostRange) -> Option<u32> {
        let at = range.address.checked_sub(RECEIVE_BUFFERS)?;
        let (place, offset) = (at / u64::from(BUFFER_BYTES), at % u64::from(BUFFER_BYTES));
        let is_inside = offset + range.bytes <= u64::from(BUFFER_BYTES);
        u32::try_from(place).ok().filter(|place| is_inside && *place < self.receive_buffers)
    }

    /// Reads memory of the host's, as words of a ring or bytes of a buffer. None where nothing is.
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

    /// The first bytes of the buffer of a place of the receive ring.
    pub fn received(&self, place: u32, bytes: u32) -> &[u8] {
        let buffer = self.buffers.get(&Self::incoming(place)).map(|buffer| &**buffer);
        buffer.and_then(|buffer| buffer.get(..bytes as usize)).unwrap_or_default()
    }
}

/// The range of a head or a part, for descriptors.
pub const fn is_ring(range: &Range<u64>) -> bool {
    range.start < HEADS
}
