//! The event queue: a total order over (time, node, order of arrival), and nothing else decides what comes next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use niclab_model::time::Time;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A frame is ready for its sender's link.
    Depart {
        /// Its place in [`Frames`].
        frame: u32,
    },
    /// A frame is through the switch and ready for the link behind it.
    Cross {
        /// Its place.
        frame: u32,
    },
    /// A frame is there, whole.
    Arrive {
        /// Its place in [`Frames`].
        frame: u32,
    },
    /// The host's program goes on.
    Host,
    /// The NIC's next deadline.
    Timeout,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Time,
    order: u64,
    node: u16,
    event: Event,
}

impl Entry {
    const fn key(&self) -> (Time, u16, u64) {
        (self.at, self.node, self.order)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// What is to come.
#[derive(Debug, Default)]
pub struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    order: u64,
    /// Events that are no deadline: while there are none, only timers can go on.
    lively: usize,
}

impl Queue {
    /// Adds an event of `node`.
    pub fn push(&mut self, at: Time, node: u16, event: Event) {
        self.order += 1;
        self.lively += usize::from(event != Event::Timeout);
        self.heap.push(Reverse(Entry { at, order: self.order, node, event }));
    }

    /// The next event: its time, its node, and what it is.
    pub fn pop(&mut self) -> Option<(Time, u16, Event)> {
        let Reverse(entry) = self.heap.pop()?;
        self.lively -= usize::from(entry.event != Event::Timeout);
        Some((entry.at, entry.node, entry.event))
    }

    /// Whether anything but deadlines is to come.
    pub const fn is_lively(&self) -> bool {
        self.lively > 0
    }
}

/// Frames under way, out of the heap so that its entries stay small.
#[derive(Debug)]
pub struct Frames<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Frames<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Frames<T> {
    /// Keeps a frame; its place.
    pub fn put(&mut self, frame: T) -> u32 {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some(frame);
            return place;
        }
        self.places.push(Some(frame));
        (self.places.len() - 1) as u32
    }

    /// Takes the frame out of its place.
    pub fn take(&mut self, place: u32) -> Option<T> {
        let frame = self.places.get_mut(place as usize)?.take();
        if frame.is_some() {
            self.free.push(place);
        }
        frame
    }

    /// Frames under way.
    pub fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn events_come_by_time_then_node_then_order(pushes in prop::collection::vec((0..20_u64, 0..4_u16), 0..100)) {
            let mut queue = Queue::default();
            let mut expected = Vec::new();
            for (order, (at, node)) in pushes.into_iter().enumerate() {
                queue.push(Time::from_ps(at), node, Event::Arrive { frame: order as u32 });
                expected.push((at, node, order as u32));
            }
            expected.sort_unstable();
            for (at, node, frame) in expected {
                prop_assert!(queue.is_lively());
                prop_assert_eq!(queue.pop(), Some((Time::from_ps(at), node, Event::Arrive { frame })));
            }
            prop_assert!(!queue.is_lively());
            prop_assert_eq!(queue.pop(), None);
        }
    }

    #[test]
    fn places_are_used_again_and_taken_once() {
        let mut frames = Frames::default();
        let first = frames.put('a');
        assert_eq!((frames.take(first), frames.take(first), frames.count()), (Some('a'), None, 0));
        assert_eq!(frames.put('b'), first);
        assert_eq!(frames.count(), 1);
    }
}
