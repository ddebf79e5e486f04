//! Descriptors in rings or chains in the host's memory, which the card walks.
//!
//! One word of a descriptor holds its ownership. The host fills the others and then gives the descriptor to the card
//! by that word. The card returns it by the same word, with a status, and does not touch it afterwards. So the card
//! loads that word **first**: the words that it loads afterwards contain the host's earlier stores. The card loads a
//! descriptor once and uses its copy, so a host that changes a descriptor that it does not own changes nothing.
//!
//! Sans-IO. A model asks for the address to read ([`DescriptorRing::look`]), reads it
//! ([`Effects::fetch_descriptor`](crate::parts::effects::Effects::fetch_descriptor)), and passes the data on
//! ([`DescriptorRing::on_data`]). It writes completed descriptors back ([`DescriptorRing::write_back`]). A card that
//! finds a descriptor of the host's has reached the end, and reads again when the host demands it
//! ([`DescriptorRing::demand`]).
//!
//! Each [`Layout`] defines a format of descriptors, such as [`dec2114x`].

pub mod dec2114x;

use alloc::vec::Vec;
use core::mem;

use thiserror::Error;

use crate::nic::{HostRange, HostRanges};
use crate::parts::obligation::Obligation;
use crate::platform::profile::WORD_BYTES;

/// Max words of a descriptor. Ours: a bound.
pub const MAX_WORDS: usize = 8;

/// The format of descriptors in memory, in words of 64 bits.
pub trait Layout {
    /// Words of a descriptor that the card reads, at most [`MAX_WORDS`].
    const WORDS: usize;
    /// Bytes of them that are priced on the bus. Real hardware would not read the others.
    const FETCHED_BYTES: u64 = Self::WORDS as u64 * WORD_BYTES;
    /// Index of the ownership word.
    const OWNERSHIP: usize;
    /// The bits of that word that describe content and result.
    const STATUS: u64;

    /// Whether the card owns the descriptor with this word.
    fn is_cards(&self, ownership: u64) -> bool;

    /// The location of the next descriptor, according to this one.
    fn next(&self, words: &[u64]) -> Next;
}

/// The location of the next descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This many bytes after the start of this one.
    Behind(u64),
    /// The start of the ring.
    First,
    /// This address.
    At(u64),
}

/// A fault of a ring. The card stops walking it until the host restarts it.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RingFault {
    /// A descriptor is not aligned to words.
    #[error("the descriptor at {address:#x} does not begin at a multiple of eight bytes")]
    Unaligned {
        /// Its address.
        address: u64,
    },
    /// A descriptor is not completely in the guest's memory.
    #[error("the descriptor at {address:#x} is not in the guest's memory")]
    OutsideMemory {
        /// Its address.
        address: u64,
    },
    /// The host moved the ring while the card walks it.
    #[error("the ring was moved to {address:#x} while the card walks it; stop the ring first")]
    Moved {
        /// Its new address.
        address: u64,
    },
}

impl RingFault {
    /// The fault's name in counters.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unaligned { .. } => "descriptor_unaligned",
            Self::OutsideMemory { .. } => "descriptor_outside",
            Self::Moved { .. } => "descriptor_moved",
        }
    }
}

/// A descriptor that the card owns and must return.
#[derive(Debug)]
#[must_use = "a descriptor that was taken is written back, or void"]
pub struct Taken {
    address: u64,
    words: [u64; MAX_WORDS],
    /// The ring's generation when the descriptor was taken.
    generation: u64,
    obligation: Obligation,
}

impl Taken {
    /// Its words when it was taken, followed by zeros.
    pub const fn words(&self) -> &[u64; MAX_WORDS] {
        &self.words
    }

    /// Its address, for messages about it.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Cancels it: the host is gone.
    pub fn void(self) {
        self.obligation.void();
    }
}

/// The result of a read.
#[derive(Debug)]
pub enum Found {
    /// A descriptor that the card owns now.
    Taken(Taken),
    /// A descriptor of the host's: the card waits for a demand, unless one has just arrived.
    Nothing,
    /// The ring is broken, and the card has stopped.
    Broken(RingFault),
    /// No read with this token is pending; the ring may have been stopped meanwhile.
    Stale,
}

/// The ownership word with which a descriptor returns to the host, and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBack {
    /// Its address.
    pub address: u64,
    /// The word.
    pub word: u64,
    /// The bits of it that describe content and result.
    pub status: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Stopped,
    /// More descriptors may be ready.
    Running,
    /// Waits for the read with this token.
    Looking {
        token: u64,
        /// The host has sent a demand meanwhile: the data of the read may be older.
        is_demanded: bool,
    },
    /// Has reached a descriptor of the host's, or the read limit of one demand.
    Suspended,
}

/// A walk along one ring or chain.
#[derive(Debug)]
pub struct DescriptorRing<L> {
    layout: L,
    state: State,
    first: u64,
    next: u64,
    /// Reads until the host must send the next demand.
    allowance: u32,
    demand_looks: u32,
    /// Addresses of the descriptors that the card owns.
    taken: Vec<u64>,
    max_taken: usize,
    generation: u64,
}

impl<L: Layout> DescriptorRing<L> {
    /// A walk that has not begun. The card owns at most `max_taken` descriptors at a time, because each read is
    /// compared with all of them.
    ///
    /// It reads at most `demand_looks` descriptors for one demand of the host; give at least the size of the largest
    /// ring. A driver sends a demand after it has given descriptors to the card, so one demand never needs more reads.
    /// (Attack: another processor of the guest gives every descriptor back to the card at once. Without a bound the
    /// card would never reach the end, and would block the shell's thread, which other guests share.)
    pub fn new(layout: L, max_taken: usize, demand_looks: u32) -> Self {
        const { assert!(L::WORDS <= MAX_WORDS && L::OWNERSHIP < L::WORDS) };
        Self {
            layout,
            state: State::Stopped,
            first: 0,
            next: 0,
            allowance: 0,
            demand_looks,
            taken: Vec::new(),
            max_taken,
            generation: 0,
        }
    }

    /// The host sets the start of the ring, and demands a read.
    ///
    /// # Errors
    /// [`RingFault::Moved`] while the card walks the ring, which continues; [`RingFault::Unaligned`].
    pub fn start(&mut self, first: u64) -> Result<(), RingFault> {
        if self.state != State::Stopped {
            return Err(RingFault::Moved { address: first });
        }
        if !first.is_multiple_of(WORD_BYTES) {
            return Err(RingFault::Unaligned { address: first });
        }
        (self.first, self.next, self.state) = (first, first, State::Suspended);
        self.demand();
        Ok(())
    }

    /// Stops: the card no longer writes back descriptors that it owns, and ignores a pending read.
    pub fn stop(&mut self) {
        self.state = State::Stopped;
        self.generation += 1;
        self.taken.clear();
    }

    /// Reads again at the end of the ring: the host demands it, or the card needs a descriptor, for example for a
    /// received frame.
    pub fn demand(&mut self) {
        self.allowance = self.demand_looks;
        match &mut self.state {
            State::Suspended => self.state = State::Running,
            State::Looking { is_demanded, .. } => *is_demanded = true,
            State::Stopped | State::Running => {}
        }
    }

    /// Whether the host has started the ring and it has no fault.
    pub fn is_started(&self) -> bool {
        self.state != State::Stopped
    }

    /// Whether the card finds no more descriptors until it has returned one: it owns the maximum, or all descriptors
    /// of the ring. A card that needs another descriptor to complete its work would then wait for ever. (Attacks:
    /// descriptors that never end a frame, and a chain that leads back into itself.)
    pub fn is_exhausted(&self) -> bool {
        self.taken.len() >= self.max_taken || self.taken.contains(&self.next)
    }

    /// The ranges to read for the next descriptor, in this order; [`Self::on_data`] takes the bytes, with this token.
    /// None while the card waits for a read or a demand, or [has all](Self::is_exhausted).
    pub fn look(&mut self, token: u64) -> Option<HostRanges> {
        if self.state != State::Running || self.is_exhausted() {
            return None;
        }
        let Some(left) = self.allowance.checked_sub(1) else {
            self.state = State::Suspended;
            return None;
        };
        self.allowance = left;
        self.state = State::Looking { token, is_demanded: false };
        let range = |first: usize, words: usize| HostRange {
            address: self.next.wrapping_add(first as u64 * WORD_BYTES),
            bytes: words as u64 * WORD_BYTES,
        };
        let ownership = range(L::OWNERSHIP, 1);
        let (before, after) = (range(0, L::OWNERSHIP), range(L::OWNERSHIP + 1, L::WORDS - L::OWNERSHIP - 1));
        Some([ownership, before, after].into_iter().filter(|range| range.bytes > 0).collect())
    }

    /// Takes the data of the read with this token: the bytes, if all of them are the guest's memory.
    pub fn on_data(&mut self, token: u64, bytes: &[u8], is_whole: bool) -> Found {
        let is_demanded = match self.state {
            State::Looking { token: asked, is_demanded } if asked == token => is_demanded,
            _ => return Found::Stale,
        };
        let address = self.next;
        let Some(words) = words_of::<L>(bytes).filter(|_| is_whole) else {
            return self.broken(RingFault::OutsideMemory { address });
        };
        if !self.layout.is_cards(words[L::OWNERSHIP]) {
            self.state = if is_demanded { State::Running } else { State::Suspended };
            return Found::Nothing;
        }
        let next = match self.layout.next(&words[..L::WORDS]) {
            // An address beyond the address space is not the guest's memory; the next read reports that.
            Next::Behind(bytes) => address.saturating_add(bytes) & !(WORD_BYTES - 1),
            Next::First => self.first,
            Next::At(address) => address,
        };
        if !next.is_multiple_of(WORD_BYTES) {
            return self.broken(RingFault::Unaligned { address: next });
        }
        self.next = next;
        self.state = State::Running;
        self.taken.push(address);
        let obligation = Obligation::new("a descriptor that was taken");
        Found::Taken(Taken { address, words, generation: self.generation, obligation })
    }

    fn broken(&mut self, fault: RingFault) -> Found {
        self.stop();
        Found::Broken(fault)
    }

    /// Returns a completed descriptor. The caller must write the result by [`Effects::write_back`], after all its
    /// data. None if the ring was stopped meanwhile: the memory may have another use.
    ///
    /// [`Effects::write_back`]: crate::parts::effects::Effects::write_back
    pub fn write_back(&mut self, taken: Taken, ownership: u64) -> Option<WriteBack> {
        debug_assert!(!self.layout.is_cards(ownership), "a descriptor that is written back is the host's");
        let Taken { address, generation, obligation, .. } = taken;
        obligation.fulfil();
        if generation != self.generation {
            return None;
        }
        let place = self.taken.iter().position(|taken| *taken == address)?;
        self.taken.swap_remove(place);
        let address = address + L::OWNERSHIP as u64 * WORD_BYTES;
        Some(WriteBack { address, word: ownership, status: L::STATUS })
    }
}

/// The words of a descriptor that was read in the order of [`DescriptorRing::look`].
fn words_of<L: Layout>(bytes: &[u8]) -> Option<[u64; MAX_WORDS]> {
    let (chunks, rest) = bytes.as_chunks::<{ mem::size_of::<u64>() }>();
    if chunks.len() != L::WORDS || !rest.is_empty() {
        return None;
    }
    let mut words = [0; MAX_WORDS];
    for (place, chunk) in words.iter_mut().zip(chunks) {
        *place = u64::from_le_bytes(*chunk);
    }
    // The ownership word was read first.
    words[..=L::OWNERSHIP].rotate_left(1);
    Some(words)
}
