//! Descriptor rings, from the driver's side ([`niclab_abi::rings`]).

use niclab_abi::rings::{
    RING_END, RING_FIRST, RING_LAST, RING_LENGTH_SHIFT, RING_MESSAGE_WORD, RING_OWN, RING_RECEIVED_SHIFT,
    RING_SECOND_SIZE_SHIFT, RING_SIZE_SHIFT, RING_STATUS_LAST,
};

/// Bytes that this driver leaves free between two descriptors: a word for reports, and a word so that every second
/// descriptor begins a 64-byte line.
pub const SKIP_BYTES: u32 = 16;
/// Words from one descriptor to the next.
pub const STRIDE_WORDS: usize = 2 + SKIP_BYTES as usize / 8;

/// The words of a ring, which the card reads and writes as well.
pub trait RingMemory {
    /// Loads a word. Later loads see all stores that precede the store of this word.
    fn load(&self, word: usize) -> u64;

    /// Stores a word, after all that was stored before.
    fn store(&mut self, word: usize, value: u64);
}

/// A memory range in a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// Physical address.
    pub address: u32,
    /// Length, at most [`niclab_abi::rings::RING_MAX_BUFFER_BYTES`].
    pub bytes: u32,
}

/// Additional data in a frame's first descriptor, for reports ([`RING_MESSAGE_WORD`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Bytes of the message that begins in this frame.
    pub message_bytes: u32,
    /// Frames that the driver had taken out of its receive ring ([`Ring::taken`]).
    pub received: u32,
}

/// A ring of descriptors, given to the card and taken back in order.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    descriptors: u32,
    /// Descriptors given to the card, and taken back: counts that only grow.
    given: u64,
    taken: u64,
}

impl Ring {
    /// A ring whose descriptors all belong to the driver.
    #[must_use]
    pub const fn new(descriptors: u32) -> Self {
        Self { descriptors, given: 0, taken: 0 }
    }

    /// Number of descriptors that belong to the driver.
    #[must_use]
    pub const fn free(&self) -> u32 {
        self.descriptors - (self.given - self.taken) as u32
    }

    /// Descriptors taken back, modulo 2^32. In a receive ring whose buffers hold whole frames, this is the number of
    /// frames.
    #[must_use]
    pub const fn taken(&self) -> u32 {
        self.taken as u32
    }

    /// Index of the next descriptor to give to the card.
    #[must_use]
    pub const fn next(&self) -> u32 {
        self.place(self.given)
    }

    const fn place(&self, number: u64) -> u32 {
        (number % self.descriptors as u64) as u32
    }

    /// Gives the next descriptor, which must be [free](Self::free), to the card, with these buffers. For a send ring,
    /// also contains whether a frame begins and ends in it, and the additional data.
    pub fn give(
        &mut self,
        memory: &mut impl RingMemory,
        [first, second]: [Buffer; 2],
        (is_first, is_last): (bool, bool),
        told: Told,
    ) {
        let place = self.next();
        let word = place as usize * STRIDE_WORDS;
        memory.store(word + 1, u64::from(second.address) << 32 | u64::from(first.address));
        let message = u64::from(told.received) << RING_RECEIVED_SHIFT | u64::from(told.message_bytes);
        memory.store(word + RING_MESSAGE_WORD, message);
        let flag = |is: bool, flag: u64| if is { flag } else { 0 };
        let control = u64::from(first.bytes) << RING_SIZE_SHIFT
            | u64::from(second.bytes) << RING_SECOND_SIZE_SHIFT
            | flag(is_first, RING_FIRST)
            | flag(is_last, RING_LAST)
            | flag(place + 1 == self.descriptors, RING_END);
        memory.store(word, control | RING_OWN);
        self.given += 1;
    }

    /// Takes back the card's oldest descriptor, if the card has returned it. Returns its index and its status.
    pub fn take(&mut self, memory: &impl RingMemory) -> Option<(u32, u32)> {
        let (place, status) = self.look(memory)?;
        self.taken += 1;
        Some((place, status))
    }

    /// Like [`Self::take`], without taking it.
    #[must_use]
    pub fn look(&self, memory: &impl RingMemory) -> Option<(u32, u32)> {
        if self.given == self.taken {
            return None;
        }
        let place = self.place(self.taken);
        let word = memory.load(place as usize * STRIDE_WORDS);
        (word & RING_OWN == 0).then_some((place, word as u32))
    }
}

/// Bytes of a frame that ends in a descriptor with this status; `None` if no frame ends in it.
#[must_use]
pub const fn length_of(status: u32) -> Option<u32> {
    if status & RING_STATUS_LAST == 0 {
        return None;
    }
    Some(status >> RING_LENGTH_SHIFT & 0x3fff)
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    struct Words(Vec<u64>);

    impl RingMemory for Words {
        fn load(&self, word: usize) -> u64 {
            self.0[word]
        }

        fn store(&mut self, word: usize, value: u64) {
            self.0[word] = value;
        }
    }

    #[test]
    fn descriptors_are_used_in_ring_order() {
        let mut memory = Words(vec![0; 3 * STRIDE_WORDS]);
        let mut ring = Ring::new(3);
        let buffer = Buffer { address: 0x1000, bytes: 60 };
        for round in 0..7_u32 {
            assert_eq!((ring.free(), ring.next(), ring.taken()), (3, round % 3, round));
            let told = Told { message_bytes: 60, received: round };
            ring.give(&mut memory, [buffer, Buffer::default()], (true, true), told);
            let word = (round % 3) as usize * STRIDE_WORDS;
            let descriptor = memory.0[word];
            assert_eq!((descriptor & RING_END != 0, descriptor & RING_OWN != 0), (round % 3 == 2, true));
            assert_eq!((memory.0[word + 1], memory.0[word + 2]), (0x1000, u64::from(round) << 32 | 60));
            assert_eq!(ring.take(&memory), None, "it belongs to the card");
            memory.0[word] = descriptor & !RING_OWN & !0x7fff_ffff | 0x003c_0300;
            assert_eq!(ring.take(&memory), Some((round % 3, 0x003c_0300)));
            assert_eq!(ring.take(&memory), None);
            assert_eq!(length_of(0x003c_0300), Some(60));
        }
    }
}
