//! The cache of a few items (section 3.2), and local memory's one port that fills it.
//!
//! It holds the items that come next: between headers the first ones of the list that was searched last, behind a
//! header's begin those behind the item that is being sent. The walk goes along the list's links and asks for an item
//! as soon as a place is free. The item that is being sent stands in a register of its own, which is free while a
//! header is passed on: so at a header's begin the first item that is not in the cache is asked for. Behind the list's
//! last item, and when what a message leaves of its item is known, the walk begins at the head again.

use alloc::collections::VecDeque;

use super::{Handle, Linked, Search, Store, item_at, items_of};
use crate::models::matching::item::WORDS;

/// Items that are held at most: in as many places as a cache may have, and in the register. Section 3.2: "two or three
/// 64 byte items". A power of two.
const MOST: usize = 4;

/// An item that is here, or on its way.
#[derive(Clone, Copy, Debug)]
struct Held {
    handle: Handle,
    /// The cycle in which its first word is here. The others follow, one a cycle.
    at: u64,
}

/// Cache and port.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    places: usize,
    latency: u64,
    /// Whose items it holds.
    search: Search,
    /// A ring, in the order of the walk: the item at the walk's place n is at n modulo its size. Which places it holds,
    /// the first one and the one behind the last, is below.
    held: [Held; MOST],
    first: usize,
    /// The place in the walk of what is asked for next.
    next: usize,
    /// How many places the walk has.
    items: usize,
    /// Lists were changed since what is held was last compared with them, and their items were counted.
    is_stale: bool,
    /// When the port has delivered all that it was asked for.
    port_free_at: u64,
}

impl Cache {
    /// With so many places, but at most one less than [`MOST`].
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

    /// Items that it holds at most.
    pub(super) const fn places(&self) -> usize {
        self.places
    }

    /// What was there before the first cycle.
    pub(super) fn preload(&mut self, lists: &[VecDeque<Linked>]) {
        self.settle(0, lists);
        self.held.iter_mut().for_each(|held| held.at = 0);
        self.port_free_at = 0;
    }

    /// Lists change: what is held may not be at their heads any more.
    pub(super) const fn change(&mut self) {
        self.is_stale = true;
    }

    /// A header begins. What is held of another list, or is not at its head any more, is forgotten.
    #[inline]
    pub(super) fn begin(&mut self, now: u64, search: Search, lists: &[VecDeque<Linked>]) {
        if search != self.search {
            self.search = search;
            self.is_stale = true;
        }
        self.rewind(lists);
        self.fill(now, self.places + 1, lists);
    }

    /// In which cycle the first word of the walk's next item is here, which is in local memory.
    #[inline]
    pub(super) fn arrival(&mut self, now: u64, lists: &[VecDeque<Linked>]) -> u64 {
        if self.first == self.next {
            self.fill(now, 1, lists);
        }
        debug_assert!(self.first != self.next, "the walk is at this item");
        if self.first == self.next { now } else { self.held[self.first % MOST].at }
    }

    /// The item at `index` leaves for the unit, whether out of the cache or past it.
    #[inline]
    pub(super) fn leave(&mut self, now: u64, index: usize, is_cached: bool, lists: &[VecDeque<Linked>]) {
        if is_cached && self.first != self.next {
            self.first += 1;
        }
        if self.next <= index {
            // Nothing is held of what stands behind an item that passes by.
            (self.first, self.next) = (index + 1, index + 1);
        }
        self.fill(now, self.places, lists);
    }

    /// No further item is sent for a header, or a list has changed between headers: back to the head.
    #[inline]
    pub(super) fn settle(&mut self, now: u64, lists: &[VecDeque<Linked>]) {
        self.rewind(lists);
        self.fill(now, self.places, lists);
    }

    /// Words are written to local memory.
    pub(super) fn write(&mut self, now: u64, words: u64) {
        self.port_free_at = self.port_free_at.max(now) + words;
    }

    /// Keeps what stands at the head of what is searched, in its order. Where nothing has changed that is all or
    /// nothing.
    #[inline]
    fn rewind(&mut self, lists: &[VecDeque<Linked>]) {
        if self.is_stale {
            self.compare(lists);
        } else if self.first != 0 {
            (self.first, self.next) = (0, 0);
        }
    }

    /// Keeps what stands at the head of lists that have changed, in their order.
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

    /// Asks for items until as many are held as may be. It does not run past one that is not in local memory.
    #[inline]
    fn fill(&mut self, now: u64, most: usize, lists: &[VecDeque<Linked>]) {
        while self.next < self.items && self.next - self.first < most && self.ask(now, lists) {}
    }

    /// Asks for the walk's next item, if it is in local memory.
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

/// What decides on the cycles that the cache and the port take. Places count from an item of the walk, cycles from one
/// of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    first: isize,
    held: usize,
    at: [u64; MOST],
    port_free_at: u64,
}

impl Cache {
    /// What decides in cycle `now`, with the walk at `index`. What came before then, or is free since, is the same as
    /// if now. None while lists that have changed were not looked at.
    pub(super) fn phase(&self, now: u64, index: usize) -> Option<Phase> {
        let held = self.next.checked_sub(self.first).filter(|held| *held <= MOST && !self.is_stale)?;
        let mut at = [0; MOST];
        for (place, at) in at.iter_mut().take(held).enumerate() {
            *at = self.held[(self.first + place) % MOST].at.saturating_sub(now);
        }
        let first = isize::try_from(self.first).ok()?.checked_sub(isize::try_from(index).ok()?)?;
        Some(Phase { first, held, at, port_free_at: self.port_free_at.saturating_sub(now) })
    }

    /// Is as it was in such a phase.
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
