//! Item memory, the items on their way out of it, and the scratch memory, whose meaning only the program knows.
//!
//! Constants: ours.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::models::matching::item::{Item, WORDS};

/// The slot with the end of a list.
pub const SLOT_OF_END: u16 = 0;

/// Slots for items: a slot number has 16 bits, and one slot has the end of the list.
pub const MAX_ITEMS: usize = u16::MAX as usize;

/// Words of scratch memory for each slot.
const SCRATCH_WORDS: usize = 4;

/// Maximum number of items that are fetched and not sent: four ahead, and those requested before the program knows that
/// the list has ended.
const MAX_FETCHED: usize = 6;

/// An item from memory.
#[derive(Clone, Copy, Debug)]
pub struct Fetched {
    /// Its words.
    pub words: [u64; WORDS],
    /// The cycle in which the first word is there; the others follow, one in each cycle.
    pub at: u64,
}

/// Item memory and scratch memory. They have as many slots as the program has used.
#[derive(Clone, Debug)]
pub struct ItemMemory {
    latency: u64,
    items: Vec<[u64; WORDS]>,
    scratch: Vec<[u64; SCRATCH_WORDS]>,
    fetched: VecDeque<(u16, Fetched)>,
    /// When the memory's port is free again.
    free_at: u64,
}

impl ItemMemory {
    /// A memory with the end of the list in its slot. `latency` is the number of cycles from a request to the first
    /// word.
    pub fn new(latency: u64) -> Self {
        Self {
            latency,
            items: vec![Item::END.to_words()],
            scratch: vec![[0; SCRATCH_WORDS]],
            fetched: VecDeque::new(),
            free_at: 0,
        }
    }

    /// A word of a slot's scratch memory. A slot that was never used has zeros.
    pub fn load(&self, slot: u16, index: u16) -> Option<u64> {
        if usize::from(index) >= SCRATCH_WORDS {
            return None;
        }
        let word = self.scratch.get(usize::from(slot)).and_then(|words| words.get(usize::from(index)));
        Some(word.copied().unwrap_or(0))
    }

    /// Changes a word of a slot's scratch memory.
    pub fn store(&mut self, slot: u16, index: u16, value: u64) -> Option<()> {
        let slot = usize::from(slot);
        if slot >= self.scratch.len() {
            self.scratch.resize(slot + 1, [0; SCRATCH_WORDS]);
        }
        *self.scratch.get_mut(slot)?.get_mut(usize::from(index))? = value;
        Some(())
    }

    /// Puts an item into a slot, except the slot with the end of the list.
    pub fn place(&mut self, slot: u16, item: &Item) -> Option<()> {
        if slot == SLOT_OF_END {
            return None;
        }
        let slot = usize::from(slot);
        if slot >= self.items.len() {
            self.items.resize(slot + 1, Item::END.to_words());
        }
        *self.items.get_mut(slot)? = item.to_words();
        Some(())
    }

    /// The length, in bytes, of the memory of a slot's item.
    pub fn length(&self, slot: u16) -> Option<u64> {
        let [_, _, _, length, ..] = self.items.get(usize::from(slot))?;
        Some(*length)
    }

    /// A slot's item as the program has written it.
    pub fn item(&self, slot: u16) -> Option<Item> {
        self.items.get(usize::from(slot)).map(Item::from_words)
    }

    /// Slots of items that were fetched and not sent, in order.
    pub fn fetched(&self) -> impl Iterator<Item = u16> {
        self.fetched.iter().map(|(slot, _)| *slot)
    }

    /// Changes a word of an item.
    pub fn write(&mut self, slot: u16, index: u16, value: u64) -> Option<()> {
        if slot == SLOT_OF_END {
            return None;
        }
        *self.items.get_mut(usize::from(slot))?.get_mut(usize::from(index))? = value;
        Some(())
    }

    /// Requests an item, after those requested before. `None` if too many are pending, or the slot does not exist.
    pub fn fetch(&mut self, now: u64, slot: u16) -> Option<()> {
        if self.fetched.len() >= MAX_FETCHED {
            return None;
        }
        let words = *self.items.get(usize::from(slot))?;
        let at = (now + self.latency).max(self.free_at);
        self.free_at = at + WORDS as u64;
        self.fetched.push_back((slot, Fetched { words, at }));
        Some(())
    }

    /// The first item that was fetched and not sent, and its slot.
    pub fn next_fetched(&mut self) -> Option<(u16, Fetched)> {
        self.fetched.pop_front()
    }

    /// Discards the items that were fetched and not sent. The port is free for other requests at once.
    pub fn drop_fetched(&mut self) {
        self.fetched.clear();
        self.free_at = 0;
    }
}
