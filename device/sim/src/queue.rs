//! The event queue, and the order of events that everything else follows from.
//!
//! Events of one node and [`Lane`] come by time; at the same time, arrivals first, and by the node that caused them; of
//! the same cause, in the order in which it caused them. Between nodes, and between the lanes of a node, which share no
//! state, there is no order but cause and effect. An effect on another node takes a while: so long as the network's
//! shortest [`Way`]. So the queue goes from window to window of that length, in a window from lane to lane, and in a
//! lane from node to node: all events of a node in a window are carried out in a row, while its state is in the
//! processor's caches (Lubachevsky's *bounded lag*, 1989).
//!
//! The one place where something passes from node to node is between the lane in which frames enter the switch and the
//! one in which they leave it. What lies between two such places is a *phase*.
//!
//! Only windows that hold events are kept, few at a time; each is sorted once, when its turn comes.

use std::collections::BTreeMap;

use niclab_model::fabric::Way;
use niclab_model::time::{EndOfTime, Time};

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A frame is ready for its sender's link.
    Depart {
        /// Its place in [`Slab`].
        frame: u32,
    },
    /// A frame is through the switch and ready for the link behind it.
    Cross {
        /// Its place.
        frame: u32,
    },
    /// A frame is there, whole.
    Arrive {
        /// Its place.
        frame: u32,
    },
    /// The host's program goes on.
    Host,
    /// The wire that all nodes share is silent, or a station has waited long enough.
    Silence,
    /// The NIC's next deadline.
    Timeout,
    /// It is time for all cards to take another program.
    HandOver,
}

/// What an event concerns, in the order in which a frame passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    /// A node's host and card.
    Node,
    /// Its link's direction to the switch.
    ToSwitch,
    /// The direction from the switch.
    ToNode,
}

impl Event {
    const fn lane(self) -> Lane {
        match self {
            Self::Host | Self::Timeout | Self::HandOver | Self::Arrive { .. } => Lane::Node,
            Self::Depart { .. } | Self::Silence => Lane::ToSwitch,
            Self::Cross { .. } => Lane::ToNode,
        }
    }

    /// The same event, of a frame whose place is another one.
    pub(crate) fn moved(self, place: impl FnOnce(u32) -> Option<u32>) -> Option<Self> {
        Some(match self {
            Self::Depart { frame } => Self::Depart { frame: place(frame)? },
            Self::Cross { frame } => Self::Cross { frame: place(frame)? },
            Self::Arrive { frame } => Self::Arrive { frame: place(frame)? },
            Self::Host | Self::Silence | Self::Timeout | Self::HandOver => self,
        })
    }
}

/// The lanes of one window.
const LANES: u64 = Lane::ToNode as u64 + 1;

/// An event to come. The key is its order within a bucket, in one number: node, time, whether it is no arrival, cause.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u128,
    event: Event,
}

/// Where in a key the parts above the cause begin.
const NO_ARRIVAL: u32 = u16::BITS;
const AT: u32 = NO_ARRIVAL + 1;
const NODE: u32 = AT + u64::BITS;

impl Entry {
    fn new(at: Time, node: u16, cause: u16, event: Event) -> Self {
        let is_no_arrival = !matches!(event, Event::Arrive { .. });
        let key = u128::from(node) << NODE
            | u128::from(at.as_ps()) << AT
            | u128::from(is_no_arrival) << NO_ARRIVAL
            | u128::from(cause);
        Self { key, event }
    }

    const fn at(&self) -> Time {
        Time::from_ps((self.key >> AT) as u64)
    }

    const fn node(&self) -> u16 {
        (self.key >> NODE) as u16
    }

    const fn cause(&self) -> u16 {
        self.key as u16
    }
}

/// Buckets that follow the current one, which most events fall into.
const NEAR: u64 = u64::BITS as u64;

/// What is to come, bucket by bucket: a bucket is a lane of a window.
#[derive(Debug)]
pub struct Queue {
    way: Way,
    /// Of a window, picoseconds.
    length: u64,
    /// The bucket that is carried out.
    current: u64,
    /// Its events that were known when it began, in their order.
    due: Vec<Entry>,
    /// How many of these were carried out.
    done: usize,
    /// Its other events, the last first: there are few at a time.
    late: Vec<Entry>,
    /// The buckets after it, each in the place of its number; the events of each as they came.
    near: Vec<Vec<Entry>>,
    /// Which of them hold events: the lowest bit is that of the bucket behind the current one.
    occupied: u64,
    /// All others, by number; of one bucket, what is here came first.
    far: BTreeMap<u64, Vec<Entry>>,
    /// Events that are no deadline: while there are none, only timers can go on.
    lively: usize,
    /// An event was due after the end of model time. It is not kept: the run ends with this error.
    past_end: Option<EndOfTime>,
}

impl Queue {
    /// No events, on a network whose shortest way this is.
    #[must_use]
    pub fn new(way: Way) -> Self {
        Self {
            way,
            length: way.to_node.as_ps().max(1),
            current: 0,
            due: Vec::new(),
            done: 0,
            late: Vec::new(),
            near: (0..NEAR).map(|_| Vec::new()).collect(),
            occupied: 0,
            far: BTreeMap::new(),
            lively: 0,
            past_end: None,
        }
    }

    /// Adds an event of `node`, caused by `cause`. What another node caused must be as much later as the way is long.
    ///
    /// An event after the end of model time is dropped, and [`Queue::past_end`] says so from then on.
    pub fn push(&mut self, at: Time, node: u16, cause: u16, event: Event) {
        if let Err(error) = at.within_limit() {
            self.past_end.get_or_insert(error);
            return;
        }
        self.lively += usize::from(event != Event::Timeout);
        let bucket = self.bucket_of(at, event.lane());
        let entry = Entry::new(at, node, cause, event);
        let ahead = bucket.wrapping_sub(self.current).wrapping_sub(1);
        if ahead < NEAR {
            if let Some(near) = self.near.get_mut((bucket % NEAR) as usize) {
                near.push(entry);
            }
            self.occupied |= 1 << ahead;
        } else if bucket <= self.current && !self.is_bucket_over() {
            // Behind those with the same key.
            let place = self.late.iter().rposition(|late| late.key > entry.key);
            self.late.insert(place.map_or(0, |place| place + 1), entry);
        } else {
            self.far.entry(bucket).or_default().push(entry);
        }
    }

    /// The bucket of an event. A frame that leaves a node in a window crosses the switch in that window as the lane
    /// counts it, and arrives in a later one.
    fn bucket_of(&self, at: Time, lane: Lane) -> u64 {
        let at = if lane == Lane::ToNode { at.before(self.way.through_switch) } else { at };
        at.as_ps() / self.length * LANES + lane as u64
    }

    /// The phase of a bucket: from the lane behind the switch to the one before it, which is the next window's. In one
    /// phase nothing that a node does concerns another one.
    const fn phase(bucket: u64) -> u64 {
        (bucket + LANES - Lane::ToNode as u64) / LANES
    }

    /// The phase in which an event comes.
    pub(crate) fn phase_of(&self, at: Time, event: Event) -> u64 {
        Self::phase(self.bucket_of(at, event.lane()))
    }

    /// The phase of the next event.
    pub(crate) fn next_phase(&self) -> Option<u64> {
        self.next_bucket().map(Self::phase)
    }

    /// The bucket of the next event.
    fn next_bucket(&self) -> Option<u64> {
        if !self.is_bucket_over() {
            return Some(self.current);
        }
        let near = (self.occupied != 0).then(|| self.current + 1 + u64::from(self.occupied.trailing_zeros()));
        let far = self.far.first_key_value().map(|(bucket, _)| *bucket);
        near.into_iter().chain(far).min()
    }

    /// The next event of a phase, if there is one.
    #[inline]
    pub(crate) fn pop_of(&mut self, phase: u64) -> Option<(Time, u16, Event)> {
        if self.is_bucket_over() && self.next_phase()? > phase {
            return None;
        }
        self.pop()
    }

    /// No event of a phase comes before.
    pub(crate) const fn begin_of(&self, phase: u64) -> Time {
        Time::from_ps(phase.saturating_sub(1) * self.length)
    }

    /// On which network it is.
    pub(crate) const fn way(&self) -> Way {
        self.way
    }

    /// All events, in an order in which they can be pushed again: time, node, cause, and what they are.
    pub(crate) fn drain(&mut self) -> Vec<(Time, u16, u16, Event)> {
        let mut all = Vec::new();
        while let Some(entry) = self.take_next() {
            all.push((entry.at(), entry.node(), entry.cause(), entry.event));
        }
        all
    }

    /// The beginning of the window: no event that comes is earlier.
    #[must_use]
    pub const fn horizon(&self) -> Time {
        Time::from_ps(self.current / LANES * self.length)
    }

    /// The next event: its time, its node, and what it is.
    #[inline]
    pub fn pop(&mut self) -> Option<(Time, u16, Event)> {
        let entry = self.take_next()?;
        Some((entry.at(), entry.node(), entry.event))
    }

    #[inline]
    fn take_next(&mut self) -> Option<Entry> {
        if self.is_bucket_over() {
            self.begin_bucket();
        }
        let is_late = match (self.due.get(self.done), self.late.last()) {
            // Of two with the same key, the one that was known before came first.
            (Some(due), Some(late)) => late.key < due.key,
            (due, _) => due.is_none(),
        };
        let entry = if is_late {
            self.late.pop()?
        } else {
            self.done += 1;
            *self.due.get(self.done - 1)?
        };
        self.lively -= usize::from(entry.event != Event::Timeout);
        Some(entry)
    }

    fn is_bucket_over(&self) -> bool {
        self.done == self.due.len() && self.late.is_empty()
    }

    fn begin_bucket(&mut self) {
        let Some(bucket) = self.next_bucket() else { return };
        self.due.clear();
        self.done = 0;
        if bucket < self.current {
            self.go_back(bucket);
        }
        if let Some(far) = self.far.first_entry().filter(|far| *far.key() == bucket) {
            self.due = far.remove();
        }
        let ahead = bucket.wrapping_sub(self.current).wrapping_sub(1);
        if ahead < NEAR {
            if let Some(near) = self.near.get_mut((bucket % NEAR) as usize) {
                if self.due.is_empty() {
                    std::mem::swap(&mut self.due, near);
                } else {
                    self.due.append(near);
                }
            }
            self.occupied = self.occupied.checked_shr(ahead as u32 + 1).unwrap_or(0);
        }
        // Where it was not near, none is: it would have come first.
        self.current = bucket;
        // Stable: events of one key stay in the order in which they came.
        self.due.sort_by_key(|entry| entry.key);
    }

    /// Begins with a bucket before the current one: when the last events were deadlines far ahead, of which nothing
    /// came.
    #[cold]
    fn go_back(&mut self, bucket: u64) {
        for ahead in (0..NEAR).filter(|ahead| self.occupied >> ahead & 1 != 0) {
            let number = self.current + 1 + ahead;
            let near = self.near.get_mut((number % NEAR) as usize).map(std::mem::take).unwrap_or_default();
            self.far.entry(number).or_default().extend(near);
        }
        self.occupied = 0;
        self.current = bucket;
    }

    /// Why the run ends, if an event was due after the end of model time.
    #[must_use]
    pub const fn past_end(&self) -> Option<EndOfTime> {
        self.past_end
    }

    /// Whether anything but deadlines is to come.
    pub const fn is_lively(&self) -> bool {
        self.lively > 0
    }
}

/// Values that stay where they are, by number; places are used again.
#[derive(Debug)]
pub struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Keeps a value; its place.
    pub fn put(&mut self, value: T) -> u32 {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some(value);
            return place;
        }
        self.places.push(Some(value));
        (self.places.len() - 1) as u32
    }

    /// The value at a place.
    #[must_use]
    pub fn get(&self, place: u32) -> Option<&T> {
        self.places.get(place as usize)?.as_ref()
    }

    /// The value at a place, to change it.
    pub fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    /// Frees a place.
    pub fn remove(&mut self, place: u32) {
        if let Some(occupied) = self.places.get_mut(place as usize).filter(|value| value.is_some()) {
            *occupied = None;
            self.free.push(place);
        }
    }

    /// Frees a place, and gives back what was there.
    pub fn take(&mut self, place: u32) -> Option<T> {
        let value = self.places.get_mut(place as usize)?.take()?;
        self.free.push(place);
        Some(value)
    }

    /// Values kept.
    #[must_use]
    pub fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use niclab_model::time::Span;
    use proptest::prelude::*;

    use super::*;

    /// Time, node, cause, lane.
    type Pushed = (u64, u16, u16, u8);

    fn pushes(lanes: std::ops::Range<u8>) -> impl Strategy<Value = Vec<Pushed>> {
        prop::collection::vec((prop_oneof![0..40_u64, 0..4_000_u64], 0..4_u16, 0..4_u16, lanes), 0..100)
    }

    fn way(through_switch: u64, over_link: u64) -> Way {
        let to_node = Span::from_ps(through_switch + over_link);
        Way { through_switch: Span::from_ps(through_switch), to_node }
    }

    fn push(queue: &mut Queue, (at, node, cause, lane): Pushed, frame: u32) {
        let event = match lane {
            0 => Event::Arrive { frame },
            1 => Event::Depart { frame },
            2 => Event::Cross { frame },
            _ => Event::Host,
        };
        queue.push(Time::from_ps(at), node, cause, event);
    }

    fn pop(queue: &mut Queue) -> Option<(u64, u16, u8, u32)> {
        queue.pop().map(|(at, node, event)| match event {
            Event::Arrive { frame } => (at.as_ps(), node, 0, frame),
            Event::Depart { frame } => (at.as_ps(), node, 1, frame),
            Event::Cross { frame } => (at.as_ps(), node, 2, frame),
            Event::Host | Event::Timeout | Event::HandOver | Event::Silence => (at.as_ps(), node, 3, 0),
        })
    }

    #[test]
    fn an_event_past_the_end_of_time_is_an_error_and_none_to_come() {
        let mut queue = Queue::new(way(0, 10));
        queue.push(Time::LIMIT, 0, 0, Event::Host);
        assert_eq!(queue.past_end(), None);
        for at in [Time::LIMIT + Span::SHORTEST, Time::END] {
            queue.push(at, 1, 1, Event::Timeout);
        }
        assert_eq!(queue.past_end(), Some(EndOfTime { at: Time::LIMIT + Span::SHORTEST }));
        assert_eq!(queue.pop(), Some((Time::LIMIT, 0, Event::Host)));
        assert_eq!(queue.pop(), None);
    }

    proptest! {
        #[test]
        fn events_come_by_window_then_lane_then_node_then_time_then_cause(
            pushes in pushes(0..3),
            through_switch in 0..10_u64,
            over_link in 1..10_u64,
        ) {
            let mut queue = Queue::new(way(through_switch, over_link));
            (0..).zip(&pushes).for_each(|(frame, pushed)| push(&mut queue, *pushed, frame));
            let mut expected: Vec<_> = (0..).zip(pushes).collect();
            expected.sort_by_key(|&(frame, (at, node, cause, lane))| {
                let at_sender = if lane == 2 { at.saturating_sub(through_switch) } else { at };
                (at_sender / (through_switch + over_link), lane, node, at, cause, frame)
            });
            for (frame, (at, node, _, lane)) in expected {
                prop_assert!(queue.is_lively());
                prop_assert!(queue.horizon() <= Time::from_ps(at));
                prop_assert_eq!(pop(&mut queue), Some((at, node, lane, frame)));
            }
            prop_assert!(!queue.is_lively());
            prop_assert_eq!(pop(&mut queue), None);
        }

        /// Nodes send frames that take a way each and are answered; the order of time alone is a queue whose way is
        /// zero.
        #[test]
        fn no_node_sees_how_long_the_windows_are(
            begin in pushes(0..1),
            steps in prop::collection::vec((0..7_u64, 0..30_u64, 0..4_u16), 1..60),
            through_switch in 0..10_u64,
            over_link in 1..10_u64,
        ) {
            let run = |mut queue: Queue| {
                (0..).zip(&begin).for_each(|(frame, pushed)| push(&mut queue, *pushed, frame));
                let mut seen = vec![Vec::new(); 16];
                let (mut left, mut again) = ([40_u32; 4], begin.clone());
                while let Some((at, node, lane, frame)) = pop(&mut queue).or_else(|| {
                    // When all is over, it begins again before.
                    let again = std::mem::take(&mut again);
                    again.iter().for_each(|pushed| push(&mut queue, *pushed, 7));
                    pop(&mut queue)
                }) {
                    seen[usize::from(node) * 4 + usize::from(lane)].push((at, frame));
                    let (soon, far, other) = steps[frame as usize % steps.len()];
                    match lane {
                        0 | 3 if left[usize::from(node)] > 0 => {
                            left[usize::from(node)] -= 1;
                            let number = 1_000 * (u32::from(node) + 1) + left[usize::from(node)];
                            push(&mut queue, (at + far, node, node, 1), number);
                            push(&mut queue, (at + soon, node, node, 3), 0);
                        }
                        0 | 3 => {}
                        1 => push(&mut queue, (at + through_switch + far, other, node, 2), frame),
                        _ => push(&mut queue, (at + over_link + soon, node, node, 0), frame),
                    }
                }
                seen
            };
            let plain = run(Queue::new(Way::default()));
            prop_assert_eq!(&run(Queue::new(way(through_switch, over_link))), &plain);
        }
    }

    #[test]
    fn places_are_used_again_and_freed_once() {
        let mut slab = Slab::default();
        let first = slab.put('a');
        slab.remove(first);
        slab.remove(first);
        assert_eq!((slab.get(first), slab.count()), (None, 0));
        assert_eq!(slab.put('b'), first);
        assert_ne!(slab.put('c'), first);
        assert_eq!((slab.get(first), slab.count()), (Some(&'b'), 2));
    }
}
