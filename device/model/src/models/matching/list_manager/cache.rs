//! The cache of a few items (section 3.2), and the only port of local memory, which fills it.
//!
//! The cache holds the next items. Between headers these are the first items of the list that was searched last. After
//! a header's start they are the items after the one that is being sent. The walk follows the list's links and requests
//! an item as soon as a slot is free. The item that is being sent is in a register of its own, which is free while a
//! header is sent. So at a header's start, the first item that is not in the cache is requested. The walk returns to
//! the head after the list's last item, and when the new state of a message's item is known.

use alloc::collections::VecDeque;

use super::{Handle, Linked, Search, Store, item_at, items_of};
use crate::models::matching::item::WORDS;

/// Maximum number of items held: in the slots that a cache may have, and in the register. Section 3.2: "two or three 64
/// byte items". A power of two.
const MOST: usize = 4;

/// An item that has arrived, or is on its way.
#[derive(Clone, Copy, Debug)]
struct Held {
    handle: Handle,
    /// The cycle in which its first word arrives. The others follow, one in each cycle.
    at: u64,
}

/// Cache and port.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    places: usize,
    latency: u64,
    /// The search whose items it holds.
    search: Search,
    /// A ring, in the order of the walk: the walk's item n is at index n modulo its size. `first` is the first item
    /// that it holds, and `next` the one after the last.
    held: [Held; MOST],
    first: usize,
    /// The walk's index of the item that is requested next.
    next: usize,
    /// Number of items of the walk.
    items: usize,
    /// Lists have changed since the held items were last compared with them, and since their items were counted.
    is_stale: bool,
    /// When the port has delivered all requested items.
    port_free_at: u64,
}

impl Cache {
    /// A cache with this number of slots, but with at most one less than [`MOST`].
    pub(super) fn new(places: usize, latency: u64) -> Self {
        Self {
            places: places.min(MOST - 1),
            latency,
            search: Search::default(),
            held: [Held { handle: Handle(0), at: 0 }; MOST],
            first: 0,
            next: 0,
            items: 0,
            is_stale: true,
            port_free_at: 0,
        }
    }

    /// Maximum number of items that it holds.
    pub(super) const fn places(&self) -> usize {
        self.places
    }

    /// Fills the cache before the first cycle.
    pub(super) fn preload(&mut self, lists: &[VecDeque<Linked>]) {
        self.settle(0, lists);
        self.held.iter_mut().for_each(|held| held.at = 0);
        self.port_free_at = 0;
    }

    /// Lists have changed. The held items may not be at their heads any more.
    pub(super) const fn change(&mut self) {
        self.is_stale = true;
    }

    /// A header begins. Items of another list, or items that are not at its head any more, are discarded.
    #[inline]
    pub(super) fn begin(&mut self, now: u64, search: Search, lists: &[VecDeque<Linked>]) {
        if search != self.search {
            self.search = search;
            self.is_stale = true;
        }
        self.rewind(lists);
        self.fill(now, self.places + 1, lists);
    }

    /// The cycle in which the first word of the walk's next item arrives. The item must be in local memory.
    #[inline]
    pub(super) fn arrival(&mut self, now: u64, lists: &[VecDeque<Linked>]) -> u64 {
        if self.first == self.next {
            self.fill(now, 1, lists);
        }
        debug_assert!(self.first != self.next, "the walk is at this item");
        if self.first == self.next { now } else { self.held[self.first % MOST].at }
    }

    /// The item at `index` leaves for the unit, from the cache or past it.
    #[inline]
    pub(super) fn leave(&mut self, now: u64, index: usize, is_cached: bool, lists: &[VecDeque<Linked>]) {
        if is_cached && self.first != self.next {
            self.first += 1;
        }
        if self.next <= index {
            // When an item bypasses the cache, the cache holds none of the items after it.
            (self.first, self.next) = (index + 1, index + 1);
        }
        self.fill(now, self.places, lists);
    }

    /// Goes back to the head, because no further item is sent for a header, or because a list has changed between
    /// headers.
    #[inline]
    pub(super) fn settle(&mut self, now: u64, lists: &[VecDeque<Linked>]) {
        self.rewind(lists);
        self.fill(now, self.places, lists);
    }

    /// Occupies the port with words that are written to local memory.
    pub(super) fn write(&mut self, now: u64, words: u64) {
        self.port_free_at = self.port_free_at.max(now) + words;
    }

    /// Keeps the held items that are at the head of the search, in its order. If no list has changed, these are all of
    /// them or none.
    #[inline]
    fn rewind(&mut self, lists: &[VecDeque<Linked>]) {
        if self.is_stale {
            self.compare(lists);
        } else if self.first != 0 {
            (self.first, self.next) = (0, 0);
        }
    }

    /// Keeps the held items that are at the head of changed lists, in their order.
    #[inline(never)]
    fn compare(&mut self, lists: &[VecDeque<Linked>]) {
        let (before, mut head) = (self.held, 0);
        for place in self.first..self.next {
            let held = before[place % MOST];
            if item_at(lists, self.search, head).is_some_and(|linked| linked.handle == held.handle) {
                self.held[head % MOST] = held;
                head += 1;
            }
        }
        (self.first, self.next) = (0, head);
        (self.items, self.is_stale) = (items_of(lists, self.search), false);
    }

    /// Requests items until `most` are held. It stops at an item that is not in local memory.
    #[inline]
    fn fill(&mut self, now: u64, most: usize, lists: &[VecDeque<Linked>]) {
        while self.next < self.items && self.next - self.first < most && self.ask(now, lists) {}
    }

    /// Requests the walk's next item, if it is in local memory.
    #[inline(never)]
    fn ask(&mut self, now: u64, lists: &[VecDeque<Linked>]) -> bool {
        let linked = item_at(lists, self.search, self.next).filter(|linked| linked.store == Store::Card);
        let Some(linked) = linked else { return false };
        let at = self.port_free_at.max(now + self.latency);
        self.port_free_at = at + WORDS as u64;
        self.held[self.next % MOST] = Held { handle: linked.handle, at };
        self.next += 1;
        true
    }
}

/// The state that determines the cycles of the cache and the port. Indices are relative to an item of the walk, times
/// to a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    first: isize,
    held: usize,
    at: [u64; MOST],
    port_free_at: u64,
}

impl Cache {
    /// The state in cycle `now`, with the walk at `index`. All earlier times count as `now`. `None` if lists have
    /// changed and were not compared since.
    pub(super) fn phase(&self, now: u64, index: usize) -> Option<Phase> {
        let held = self.next.checked_sub(self.first).filter(|held| *held <= MOST && !self.is_stale)?;
        let mut at = [0; MOST];
        for (place, at) in at.iter_mut().take(held).enumerate() {
            *at = self.held[(self.first + place) % MOST].at.saturating_sub(now);
        }
        let first = isize::try_from(self.first).ok()?.checked_sub(isize::try_from(index).ok()?)?;
        Some(Phase { first, held, at, port_free_at: self.port_free_at.saturating_sub(now) })
    }

    /// Sets this state.
    pub(super) fn set_phase(&mut self, now: u64, index: usize, phase: &Phase, lists: &[VecDeque<Linked>]) {
        self.first = index.saturating_add_signed(phase.first);
        self.next = self.first + phase.held;
        for (place, at) in (self.first..self.next).zip(phase.at) {
            let handle = item_at(lists, self.search, place).map_or(Handle(0), |linked| linked.handle);
            self.held[place % MOST] = Held { handle, at: now + at };
        }
        self.port_free_at = now + phase.port_free_at;
    }
}
