//! The cache of a few items (section 3.2), and local memory's one port that fills it.
//!
//! It holds the items that come next: between headers the first ones of the list that was searched last, behind a header's begin
//! those behind the item that is being sent. The walk goes along the list's links and asks for an item as soon as a place is
//! free. The item that is being sent stands in a register of its own, which is free while a header is passed on: so at a header's
//! begin the first item that is not in the cache is asked for. Behind the list's last item, and when what a message leaves of its
//! item is known, the walk begins at the head again.

use alloc::collections::VecDeque;

use super::{Handle, Linked, Search, Store, locate};
use crate::models::matching::item::WORDS;

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
    /// In the order of the walk.
    held: VecDeque<Held>,
    /// The place in the walk of what is asked for next.
    next: usize,
    /// When the port has delivered all that it was asked for.
    port_free_at: u64,
}

impl Cache {
    pub(super) fn new(places: usize, latency: u64) -> Self {
        let held = VecDeque::with_capacity(places + 1);
        Self { places, latency, search: Search::default(), held, next: 0, port_free_at: 0 }
    }

    /// What was there before the first cycle.
    pub(super) fn preload(&mut self, lists: &[VecDeque<Linked>]) {
        self.settle(0, lists);
        self.held.iter_mut().for_each(|held| held.at = 0);
        self.port_free_at = 0;
    }

    /// A header begins. What is held of another list, or is not at its head any more, is forgotten.
    pub(super) fn begin(&mut self, now: u64, search: Search, lists: &[VecDeque<Linked>]) {
        self.rewind(search, lists);
        self.fill(now, self.places + 1, lists);
    }

    /// In which cycle the first word of the walk's next item is here, which is in local memory.
    #[inline]
    pub(super) fn arrival(&mut self, now: u64, lists: &[VecDeque<Linked>]) -> u64 {
        if self.held.is_empty() {
            self.fill(now, 1, lists);
        }
        debug_assert!(!self.held.is_empty(), "the walk is at this item");
        self.held.front().map_or(now, |held| held.at)
    }

    /// The item at `index` leaves for the unit, whether out of the cache or past it.
    #[inline]
    pub(super) fn leave(&mut self, now: u64, index: usize, is_cached: bool, lists: &[VecDeque<Linked>]) {
        if is_cached {
            self.held.pop_front();
        }
        self.next = self.next.max(index + 1);
        self.fill(now, self.places, lists);
    }

    /// No further item is sent for a header, or a list has changed between headers: back to the head.
    pub(super) fn settle(&mut self, now: u64, lists: &[VecDeque<Linked>]) {
        self.rewind(self.search, lists);
        self.fill(now, self.places, lists);
    }

    /// Words are written to local memory.
    pub(super) fn write(&mut self, now: u64, words: u64) {
        self.port_free_at = self.port_free_at.max(now) + words;
    }

    /// Keeps what stands at the head of `search`, in its order.
    fn rewind(&mut self, search: Search, lists: &[VecDeque<Linked>]) {
        self.search = search;
        let mut head = 0;
        self.held.retain(|held| {
            let stands = item_at(lists, search, head).is_some_and(|linked| linked.handle == held.handle);
            head += usize::from(stands);
            stands
        });
        self.next = head;
    }

    /// Asks for items until as many are held as may be. It does not run past one that is not in local memory.
    fn fill(&mut self, now: u64, most: usize, lists: &[VecDeque<Linked>]) {
        while self.held.len() < most {
            let Some(linked) = item_at(lists, self.search, self.next) else { return };
            if linked.store != Store::Card {
                return;
            }
            let at = self.port_free_at.max(now + self.latency);
            self.port_free_at = at + WORDS as u64;
            self.held.push_back(Held { handle: linked.handle, at });
            self.next += 1;
        }
    }
}

/// The item at a place of a walk.
fn item_at(lists: &[VecDeque<Linked>], search: Search, index: usize) -> Option<&Linked> {
    let (list, place) = locate(lists, search, index)?;
    lists.get(list)?.get(place)
}
