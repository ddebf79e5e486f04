//! Descriptors in rings or chains that lie in the host's memory, where the card walks them.
//!
//! One word of a descriptor says whose it is. The host fills the others and then gives the descriptor to the card by
//! that word; the card gives it back by the same word, with a status, and touches it no more. So the card loads that
//! word **first**, and what it loads behind it is what the host had stored before it gave the descriptor away. It loads
//! a descriptor once and goes by its copy: what a host changes in a descriptor that is not its own changes nothing.
//!
//! Sans-IO. A model asks where to look ([`DescriptorRing::look`]), has that read
//! ([`Effects::fetch_descriptor`](crate::parts::effects::Effects::fetch_descriptor)), tells what was there
//! ([`DescriptorRing::on_data`]), and has a descriptor that is done with written back ([`DescriptorRing::write_back`]).
//! A card that finds a descriptor which is not its own has come to the end, and looks again when the host demands it
//! ([`DescriptorRing::demand`]).
//!
//! How a descriptor looks is its [`Layout`]'s to say: [`dec2114x`] is one.

pub mod dec2114x;

use alloc::vec::Vec;
use core::mem;

use thiserror::Error;

use crate::nic::{HostRange, HostRanges};
use crate::parts::obligation::Obligation;
use crate::platform::profile::WORD_BYTES;

/// Most words of a descriptor. Ours: a bound.
pub const MAX_WORDS: usize = 8;

/// How descriptors lie in memory, in words of 64 bits.
pub trait Layout {
    /// Words of a descriptor that the card reads, at most [`MAX_WORDS`].
    const WORDS: usize;
    /// Bytes of them that cross the bus: what is read beside them no hardware would read.
    const FETCHED_BYTES: u64 = Self::WORDS as u64 * WORD_BYTES;
    /// Which of them says whose the descriptor is.
    const OWNERSHIP: usize;
    /// The bits of that word by which the card says what came and how it went.
    const STATUS: u64;

    /// Whether the descriptor with this word is the card's.
    fn is_cards(&self, ownership: u64) -> bool;

    /// Where the next descriptor is, as this one says.
    fn next(&self, words: &[u64]) -> Next;
}

/// Where the next descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// So many bytes from where this one begins.
    Behind(u64),
    /// Where the ring begins.
    First,
    /// There.
    At(u64),
}

/// What is wrong with a ring. The card has stopped walking it, until the host starts it anew.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RingFault {
    /// A descriptor that cannot be loaded in words.
    #[error("the descriptor at {address:#x} does not begin at a multiple of eight bytes")]
    Unaligned {
        /// Where.
        address: u64,
    },
    /// A descriptor that is not, or not all, in the guest's memory.
    #[error("the descriptor at {address:#x} is not in the guest's memory")]
    OutsideMemory {
        /// Where.
        address: u64,
    },
    /// The host moved the ring under the card.
    #[error("the ring was moved to {address:#x} while the card walks it; it must be stopped before")]
    Moved {
        /// Where to.
        address: u64,
    },
}

impl RingFault {
    /// By which a fault is counted.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unaligned { .. } => "descriptor_unaligned",
            Self::OutsideMemory { .. } => "descriptor_outside",
            Self::Moved { .. } => "descriptor_moved",
        }
    }
}

/// A descriptor that the card has and must give back.
#[derive(Debug)]
#[must_use = "a descriptor that was taken is written back, or void"]
pub struct Taken {
    address: u64,
    words: [u64; MAX_WORDS],
    /// Of the ring, when it was taken.
    generation: u64,
    obligation: Obligation,
}

impl Taken {
    /// Its words, as they were when it was taken, and zeros.
    pub const fn words(&self) -> &[u64; MAX_WORDS] {
        &self.words
    }

    /// Where it is, for those who say what is wrong with it.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// The host is gone.
    pub fn void(self) {
        self.obligation.void();
    }
}

/// What was there where the card looked.
#[derive(Debug)]
pub enum Found {
    /// A descriptor of the card's.
    Taken(Taken),
    /// One of the host's: there is nothing more to do until the host demands it, unless it just did.
    Nothing,
    /// The ring is broken, and the card has stopped.
    Broken(RingFault),
    /// Nobody asked, or no more: the ring was stopped meanwhile.
    Stale,
}

/// The ownership word of a descriptor that goes back to the host, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBack {
    /// Where.
    pub address: u64,
    /// What.
    pub word: u64,
    /// The bits of it that say what came and how it went.
    pub status: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Stopped,
    /// There may be more.
    Running,
    /// Waits for what the read with this token finds.
    Looking {
        token: u64,
        /// The host has demanded a look meanwhile: what is found may be older.
        is_demanded: bool,
    },
    /// Came to a descriptor of the host's, or to the end of what one demand allows.
    Suspended,
}

/// A walk along one ring or chain.
#[derive(Debug)]
pub struct DescriptorRing<L> {
    layout: L,
    state: State,
    first: u64,
    next: u64,
    /// Looks until the host must demand more.
    allowance: u32,
    demand_looks: u32,
    /// Where the descriptors are that the card has.
    taken: Vec<u64>,
    max_taken: usize,
    generation: u64,
}

impl<L: Layout> DescriptorRing<L> {
    /// A walk that has not begun. The card has at most `max_taken` descriptors at a time: as many as it works at, since
    /// each look is compared with all of them.
    ///
    /// It looks at `demand_looks` descriptors for one demand of the host, at least as many as a ring can have: a driver
    /// demands after it has given descriptors away, so that one demand never has to do for more. (The attack: another
    /// processor of the guest gives every descriptor back to the card as soon as it is done with. Without a bound the
    /// card would never come to the end, and neither would the shell's thread, which other guests share.)
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

    /// The host says where the ring begins, and demands a look.
    ///
    /// # Errors
    /// [`RingFault::Moved`] while the card walks it, which goes on as before; [`RingFault::Unaligned`].
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

    /// Stops: descriptors that the card has are not written back any more, and what was read is not looked at.
    pub fn stop(&mut self) {
        self.state = State::Stopped;
        self.generation += 1;
        self.taken.clear();
    }

    /// There may be descriptors of the card's where it came to the end: the host says so, or the card needs one, as for
    /// a frame that has come.
    pub fn demand(&mut self) {
        self.allowance = self.demand_looks;
        match &mut self.state {
            State::Suspended => self.state = State::Running,
            State::Looking { is_demanded, .. } => *is_demanded = true,
            State::Stopped | State::Running => {}
        }
    }

    /// Whether the host has started the ring and it is not broken.
    pub fn is_started(&self) -> bool {
        self.state != State::Stopped
    }

    /// Whether the card finds no more until it has given one back: it has as many as it can, or all that there are. A
    /// card that then waits for the rest of something waits for ever. (The attacks: descriptors that never end what
    /// they begin, and a chain that leads back into itself.)
    pub fn is_exhausted(&self) -> bool {
        self.taken.len() >= self.max_taken || self.taken.contains(&self.next)
    }

    /// What must be read to find the next descriptor, in this order; [`Self::on_data`] gets the bytes, with this token.
    /// Nothing while the card waits for a read or a demand, or [has all](Self::is_exhausted).
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

    /// What the read with this token found: the bytes, if all of them are the guest's memory.
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
            // Beyond the end of all addresses is no guest's memory either: the next look says so.
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

    /// The card is done with a descriptor and gives it back: what [`Effects::write_back`] must write, after all else
    /// that the host shall find with it. Nothing when the ring was stopped meanwhile, and the memory may be somebody
    /// else's.
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
    // The ownership word came first.
    words[..=L::OWNERSHIP].rotate_left(1);
    Some(words)
}
