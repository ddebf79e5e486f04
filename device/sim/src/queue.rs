//! The event queue, and the order of events.
//!
//! Events of one node and [`Lane`] are ordered by time. At the same time arrivals come first, ordered by the node that
//! caused them. Events with the same cause keep the order in which that node caused them.
//!
//! Nodes, and the lanes of one node, share no state. Between them only cause and effect give an order. An effect on
//! another node takes at least the network's minimum latency ([`MinLatency`]). So the queue advances in windows of
//! that length. In a window it goes from lane to lane, and in a lane from node to node. It processes all events of a
//! node in a window together, while the node's state is in the processor's caches (Lubachevsky's *bounded lag*, 1989).
//!
//! State passes from node to node only between the lane in which frames enter the switch and the lane in which they
//! leave it. The buckets between two such points are a *phase*.
//!
//! The queue keeps only windows with events, which are few at a time. It sorts each one once, when it begins.

use std::collections::BTreeMap;

use niclab_model::fabric::MinLatency;
use niclab_model::time::{EndOfTime, Time};

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A frame is ready for its sender's link.
    Depart {
        /// Index of the frame in [`Slab`].
        frame: u32,
    },
    /// A frame has passed the switch and is ready for the receiver's link.
    Cross {
        /// Index of the frame.
        frame: u32,
    },
    /// The last byte of a frame has arrived.
    Arrive {
        /// Index of the frame.
        frame: u32,
    },
    /// The host's program continues.
    Host,
    /// The wire that all nodes share is idle, or a station's backoff has ended.
    Silence,
    /// The NIC's next deadline.
    Timeout,
    /// A firmware reload of all cards is due.
    FirmwareReload,
}

/// Which state an event changes, in the order in which a frame passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    /// A node's host and card.
    Node,
    /// Its link to the switch.
    ToSwitch,
    /// Its link from the switch.
    ToNode,
}

impl Event {
    const fn lane(self) -> Lane {
        match self {
            Self::Host | Self::Timeout | Self::FirmwareReload | Self::Arrive { .. } => Lane::Node,
            Self::Depart { .. } | Self::Silence => Lane::ToSwitch,
            Self::Cross { .. } => Lane::ToNode,
        }
    }

    /// The same event with another index of its frame.
    pub(crate) fn moved(self, place: impl FnOnce(u32) -> Option<u32>) -> Option<Self> {
        Some(match self {
            Self::Depart { frame } => Self::Depart { frame: place(frame)? },
            Self::Cross { frame } => Self::Cross { frame: place(frame)? },
            Self::Arrive { frame } => Self::Arrive { frame: place(frame)? },
            Self::Host | Self::Silence | Self::Timeout | Self::FirmwareReload => self,
        })
    }
}

/// Number of lanes in a window.
const LANES: u64 = Lane::ToNode as u64 + 1;

/// A pending event. The key is its order within a bucket: node, time, whether it is not an arrival, cause.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u128,
    event: Event,
}

/// Bit positions in a key. The cause is in the lowest bits.
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

/// Number of buckets after the current one that are kept in an array. Most events fall into these.
const NEAR: u64 = u64::BITS as u64;

/// Pending events by bucket. A bucket is one lane of one window.
#[derive(Debug)]
pub struct Queue {
    min_latency: MinLatency,
    /// Length of a window in picoseconds.
    length: u64,
    /// The bucket that is being processed.
    current: u64,
    /// The events that it had when it began, sorted.
    due: Vec<Entry>,
    /// How many of these are processed.
    done: usize,
    /// Events added to it since, in reverse order. There are few at a time.
    late: Vec<Entry>,
    /// The buckets after it, at index number modulo [`NEAR`]; each in the order of arrival.
    near: Vec<Vec<Entry>>,
    /// Which of them have events. The lowest bit is the bucket after the current one.
    occupied: u64,
    /// All other buckets, by number. Of one bucket, these events were added before those in `near`.
    far: BTreeMap<u64, Vec<Entry>>,
    /// Number of events that are no timeouts. At 0 only timers can continue the run.
    lively: usize,
    /// The error of the first event that was due after the end of model time. The queue drops such events.
    past_end: Option<EndOfTime>,
}

impl Queue {
    /// An empty queue, on a network with this smallest latency.
    #[must_use]
    pub fn new(min_latency: MinLatency) -> Self {
        Self {
            min_latency,
            length: min_latency.to_node.as_ps().max(1),
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

    /// Adds an event of `node`, caused by `cause`. An event that another node caused must be later by at least `way`.
    ///
    /// Drops an event after the end of model time; [`Queue::past_end`] then returns the error.
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
            // After those with the same key.
            let place = self.late.iter().rposition(|late| late.key > entry.key);
            self.late.insert(place.map_or(0, |place| place + 1), entry);
        } else {
            self.far.entry(bucket).or_default().push(entry);
        }
    }

    /// The bucket of an event. A frame leaves its node and crosses the switch in the same window, because the lane
    /// subtracts the time through the switch. It arrives in a later window.
    fn bucket_of(&self, at: Time, lane: Lane) -> u64 {
        let at = if lane == Lane::ToNode { at.before(self.min_latency.through_switch) } else { at };
        at.as_ps() / self.length * LANES + lane as u64
    }

    /// The phase of a bucket. A phase begins with the lane from the switch and ends with the next window's lane to the
    /// switch. In one phase no node affects another one.
    const fn phase(bucket: u64) -> u64 {
        (bucket + LANES - Lane::ToNode as u64) / LANES
    }

    /// The phase of an event.
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

    /// A lower bound for the times of a phase's events.
    pub(crate) const fn begin_of(&self, phase: u64) -> Time {
        Time::from_ps(phase.saturating_sub(1) * self.length)
    }

    /// Smallest latency of the network.
    pub(crate) const fn min_latency(&self) -> MinLatency {
        self.min_latency
    }

    /// Removes all events, in an order in which they can be pushed again: time, node, cause, event.
    pub(crate) fn drain(&mut self) -> Vec<(Time, u16, u16, Event)> {
        let mut all = Vec::new();
        while let Some(entry) = self.take_next() {
            all.push((entry.at(), entry.node(), entry.cause(), entry.event));
        }
        all
    }

    /// The begin of the window. No later event is earlier.
    #[must_use]
    pub const fn horizon(&self) -> Time {
        Time::from_ps(self.current / LANES * self.length)
    }

    /// The next event: its time, its node, and its kind.
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
            // If two keys are equal, the event in `due` was added first.
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
        // If the bucket was not near, no near bucket has events: it would have been the next one.
        self.current = bucket;
        // The stable sort keeps events with the same key in the order of arrival.
        self.due.sort_by_key(|entry| entry.key);
    }

    /// Moves to a bucket before the current one. This happens after timeouts far in the future that caused no event.
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

    /// The error that ends the run, if an event was due after the end of model time.
    #[must_use]
    pub const fn past_end(&self) -> Option<EndOfTime> {
        self.past_end
    }

    /// Whether any event but a timeout is pending.
    pub const fn is_lively(&self) -> bool {
        self.lively > 0
    }
}

/// Values in numbered slots. A value keeps its slot until it is removed; free slots are reused.
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
    /// Stores a value and returns its slot.
    pub fn put(&mut self, value: T) -> u32 {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some(value);
            return place;
        }
        self.places.push(Some(value));
        (self.places.len() - 1) as u32
    }

    /// The value in a slot.
    #[must_use]
    pub fn get(&self, place: u32) -> Option<&T> {
        self.places.get(place as usize)?.as_ref()
    }

    /// The value in a slot, mutable.
    pub fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    /// Frees a slot.
    pub fn remove(&mut self, place: u32) {
        if let Some(occupied) = self.places.get_mut(place as usize).filter(|value| value.is_some()) {
            *occupied = None;
            self.free.push(place);
        }
    }

    /// Frees a slot and returns its value.
    pub fn take(&mut self, place: u32) -> Option<T> {
        let value = self.places.get_mut(place as usize)?.take()?;
        self.free.push(place);
        Some(value)
    }

    /// Number of values stored.
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

    fn min_latency(through_switch: u64, over_link: u64) -> MinLatency {
        let to_node = Span::from_ps(through_switch + over_link);
        MinLatency { through_switch: Span::from_ps(through_switch), to_node }
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
            Event::Host | Event::Timeout | Event::FirmwareReload | Event::Silence => (at.as_ps(), node, 3, 0),
        })
    }

    #[test]
    fn event_past_the_end_of_time_is_an_error_and_is_dropped() {
        let mut queue = Queue::new(min_latency(0, 10));
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
        fn events_are_ordered_by_window_lane_node_time_and_cause(
            pushes in pushes(0..3),
            through_switch in 0..10_u64,
            over_link in 1..10_u64,
        ) {
            let mut queue = Queue::new(min_latency(through_switch, over_link));
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

        /// Nodes send frames with different latencies and answer them. A queue with latency 0 orders events by time
        /// alone.
        #[test]
        fn window_length_does_not_change_what_a_node_sees(
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
                    // When all events are processed, the test pushes the first ones again, at earlier times.
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
            let plain = run(Queue::new(MinLatency::default()));
            prop_assert_eq!(&run(Queue::new(min_latency(through_switch, over_link))), &plain);
        }
    }

    #[test]
    fn slots_are_reused_and_freed_once() {
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
