//! The event queue of a port: how many events are stored, promised and consumed, and where the next one goes.

use alloc::collections::VecDeque;

use niclab_abi::receive::SLICE_BYTES;

use crate::time::Time;

/// Most events that one command, or one message that arrives, makes due at once. What it may cause later is promised then,
/// too, so that an event is never lost.
pub(super) const EVENTS_AT_ONCE: u64 = 2;

/// An event queue.
#[derive(Clone, Debug)]
pub(super) struct EventQueue {
    address: u64,
    places: u64,
    stored: u64,
    released: u64,
    /// Places promised to what is under way.
    promised: u64,
    /// Number of the event that interrupts; zero: none.
    armed: u64,
    /// Events that the program consumes between two stores of its register; zero: not known.
    release_interval: u64,
    /// Events whose release the host has been charged for.
    release_priced: u64,
    /// Releases that the host has been charged for and that were not seen yet: how many events, and when the store is there.
    releases_due: VecDeque<(u64, Time)>,
    last_visible: Time,
}

impl EventQueue {
    /// A queue of `places` events, a power of two.
    pub(super) const fn new(address: u64, places: u32) -> Self {
        Self {
            address,
            places: places as u64,
            stored: 0,
            released: 0,
            promised: 0,
            armed: 0,
            release_interval: 0,
            release_priced: 0,
            releases_due: VecDeque::new(),
            last_visible: Time::ZERO,
        }
    }

    /// Events stored since the port was opened.
    pub(super) const fn stored(&self) -> u64 {
        self.stored
    }

    /// When the last event is visible.
    pub(super) const fn last_visible(&self) -> Time {
        self.last_visible
    }

    /// Whether `events` more can be promised.
    pub(super) const fn has_room(&self, events: u64) -> bool {
        self.stored - self.released + self.promised + events <= self.places
    }

    /// Promises places.
    pub(super) const fn promise(&mut self, events: u64) {
        self.promised += events;
    }

    /// Takes a promise back that was not needed.
    pub(super) const fn forgo(&mut self, events: u64) {
        self.promised = self.promised.saturating_sub(events);
    }

    /// The next event takes a place that was promised: its number and address.
    pub(super) const fn take_place(&mut self) -> (u64, u64) {
        self.promised = self.promised.saturating_sub(1);
        let place = self.stored & (self.places - 1);
        self.stored += 1;
        (self.stored, self.address + place * SLICE_BYTES)
    }

    /// The event stored last is visible at `at`.
    pub(super) fn on_visible(&mut self, at: Time) {
        self.last_visible = self.last_visible.max(at);
    }

    /// Whether the program is due to store its register, now that it has the event stored last.
    pub(super) const fn is_release_due(&mut self) -> bool {
        let is_due = self.release_interval != 0 && self.stored - self.release_priced >= self.release_interval;
        if is_due {
            self.release_priced = self.stored;
        }
        is_due
    }

    /// The store that is due will be there at `at`.
    pub(super) fn on_release_priced(&mut self, at: Time) {
        self.releases_due.push_back((self.stored, at));
    }

    /// Whether the armed event is stored; that disarms.
    pub(super) const fn take_armed(&mut self) -> bool {
        let is_armed = self.armed != 0 && self.armed <= self.stored;
        if is_armed {
            self.armed = 0;
        }
        is_armed
    }

    /// Arms the event of this number; zero disarms.
    pub(super) const fn arm(&mut self, number: u64) {
        self.armed = number;
    }

    pub(super) fn set_release_interval(&mut self, events: u64) {
        self.release_interval = events.min(self.places);
    }

    /// Whether the register may hold this count.
    pub(super) const fn may_release(&self, released: u64) -> bool {
        released >= self.released && released <= self.stored
    }

    /// The program stored how many events it has consumed. That is seen late and by whole batches, as the wall clock has
    /// it; but the host was charged for each store when its last event was consumed, and that is when it took effect.
    /// Returns when the last such store was there.
    pub(super) fn on_released(&mut self, released: u64) -> Option<Time> {
        let mut last = None;
        while let Some(&(batch_end, arrived)) = self.releases_due.front().filter(|(end, _)| *end <= released)
        {
            self.releases_due.pop_front();
            self.released = self.released.max(batch_end);
            last = Some(arrived);
        }
        last
    }

    /// Whether the register says more than the stores that were due: the program released early, because it went to sleep or
    /// is of another mind.
    pub(super) const fn is_off_the_beat(&self, released: u64) -> bool {
        released > self.released || self.release_interval == 0
    }

    /// Takes such a store.
    pub(super) fn release_off_the_beat(&mut self, released: u64) {
        self.releases_due.clear();
        self.release_priced = released;
        self.released = released;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_promised_has_no_room_for_others() {
        let mut queue = EventQueue::new(0x1000, 8);
        assert!(queue.has_room(8) && !queue.has_room(9));
        queue.promise(6);
        assert!(queue.has_room(2) && !queue.has_room(3));
        assert_eq!(queue.take_place(), (1, 0x1000));
        assert!(queue.has_room(2) && !queue.has_room(3), "stored instead of promised");
        queue.forgo(5);
        assert!(queue.has_room(7) && !queue.has_room(8));
        assert!(queue.may_release(1) && !queue.may_release(2));
        queue.release_off_the_beat(1);
        assert!(queue.has_room(8) && !queue.may_release(0));
    }

    #[test]
    fn places_follow_one_another_and_begin_anew() {
        let mut queue = EventQueue::new(0x1000, 8);
        let places: [(u64, u64); 9] = core::array::from_fn(|_| {
            queue.promise(1);
            queue.take_place()
        });
        assert_eq!(places[1], (2, 0x1000 + SLICE_BYTES));
        assert_eq!(places[8], (9, 0x1000));
    }

    #[test]
    fn stores_on_the_beat_take_effect_when_they_were_due() {
        let mut queue = EventQueue::new(0, 8);
        queue.set_release_interval(2);
        for at in 1..=4 {
            queue.take_place();
            if queue.is_release_due() {
                queue.on_release_priced(Time::from_ps(at));
            }
        }
        assert_eq!(queue.on_released(1), None);
        assert_eq!(queue.on_released(4), Some(Time::from_ps(4)));
        assert!(!queue.is_off_the_beat(4) && queue.has_room(8));
    }
}
