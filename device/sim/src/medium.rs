//! A half-duplex wire that all nodes share, as behind an Ethernet repeater (IEEE 802.3, clause 4). A station with a
//! frame waits until the wire is idle. If several stations waited, all begin at once, collide, and back off for a
//! random number of slots.
//!
//! By the standard, the station that sent last tends to send again. For its next frame it chooses from few slots, and a
//! station with earlier collisions from many (the capture effect). Some cards avoid it (Ramakrishnan and Yang, *The
//! Ethernet capture effect: analysis and solution*, 1994). After their own frame they back off for two slots if the
//! first attempt collides, and for none if the second attempt collides.
//!
//! The wire comes before the fabric, whose links then never delay a frame. The model differs from the standard in two
//! points. Stations hear one another at once, so only stations collide that waited for the same idle wire or began at
//! the same instant. And no frame is dropped after sixteen collisions.

use std::collections::VecDeque;

use niclab_model::random::Random;
use niclab_model::time::{Span, Time};

/// Bytes of a slot, the unit of time for which a station backs off after a collision (clause 4.4.2: 512 bits).
pub const SLOT_BYTES: u64 = 64;
/// Bytes on the wire in a collision: a preamble and a jam of 32 bits.
pub const FRAGMENT_BYTES: u64 = 12;
/// Bytes of the gap between frames.
pub const GAP_BYTES: u64 = 12;
/// The range of slots doubles with each collision, up to 2^10 (clause 4.2.3.2.5).
const MAX_DOUBLINGS: u32 = 10;
/// First stream of the seed for stations. Links use the streams below.
const STREAMS: u64 = 1 << 40;

/// A card with frames for the wire.
#[derive(Debug)]
struct Station {
    frames: VecDeque<u32>,
    /// Collisions of its first frame.
    collisions: u32,
    /// The earliest time at which it begins.
    not_before: Time,
    /// Whether it was the last to send.
    was_last: bool,
    random: Random,
}

/// The wire.
#[derive(Debug)]
pub struct Medium {
    stations: Vec<Station>,
    avoids_capture: bool,
    silent_from: Time,
    slot: Span,
    /// Duration of a collision and the gap after it.
    lost: Span,
    /// Time of its pending event.
    due: Option<Time>,
    collisions: u64,
}

impl Medium {
    /// An idle wire. `span_of_bytes` is the time of a number of bytes on it.
    #[must_use]
    pub fn new(
        stations: usize,
        avoids_capture: bool,
        seed: u64,
        span_of_bytes: impl Fn(u64) -> Span,
    ) -> Self {
        let station = |number: usize| Station {
            frames: VecDeque::new(),
            collisions: 0,
            not_before: Time::ZERO,
            was_last: false,
            random: Random::new(seed, STREAMS | number as u64),
        };
        Self {
            stations: (0..stations).map(station).collect(),
            avoids_capture,
            silent_from: Time::ZERO,
            slot: span_of_bytes(SLOT_BYTES),
            lost: span_of_bytes(FRAGMENT_BYTES + GAP_BYTES),
            due: None,
            collisions: 0,
        }
    }

    /// A card has a frame for the wire, with this index in the slab of frames.
    pub fn offer(&mut self, station: u16, frame: u32) {
        if let Some(station) = self.stations.get_mut(usize::from(station)) {
            station.frames.push_back(frame);
        }
    }

    /// The time at which a station may begin, if a new event must be set for it.
    pub fn wake(&mut self, now: Time) -> Option<Time> {
        let waiting = self.stations.iter().filter(|station| !station.frames.is_empty());
        let soonest = waiting.map(|station| station.not_before).min()?;
        let at = soonest.max(self.silent_from).max(now);
        let is_news = self.due.is_none_or(|due| at < due);
        is_news.then(|| *self.due.insert(at))
    }

    /// The event is due. Returns the station that sends and its frame, if only one begins.
    pub fn begin(&mut self, now: Time) -> Option<(u16, u32)> {
        if self.due != Some(now) {
            // Another event was set at an earlier time.
            return None;
        }
        self.due = None;
        let is_ready = |station: &Station| !station.frames.is_empty() && station.not_before <= now;
        let ready = self.stations.iter().filter(|station| is_ready(station)).count();
        if ready > 1 {
            self.collisions += 1;
            self.silent_from = now + self.lost;
            for station in self.stations.iter_mut().filter(|station| is_ready(station)) {
                station.collisions += 1;
                let drawn = station.random.below(1 << station.collisions.min(MAX_DOUBLINGS));
                let slots = match station.collisions {
                    1 if self.avoids_capture && station.was_last => 2,
                    2 if self.avoids_capture && station.was_last => 0,
                    _ => drawn,
                };
                station.not_before = self.silent_from + self.slot.times(slots.into());
            }
            return None;
        }
        let number = self.stations.iter().position(is_ready)?;
        for (at, station) in self.stations.iter_mut().enumerate() {
            station.was_last = at == number;
        }
        let station = self.stations.get_mut(number)?;
        station.collisions = 0;
        Some((number as u16, station.frames.pop_front()?))
    }

    /// A frame, with the gap after it, occupies the wire until this time.
    pub fn hold(&mut self, until: Time) {
        self.silent_from = self.silent_from.max(until);
    }

    /// Number of collisions.
    #[must_use]
    pub const fn collisions(&self) -> u64 {
        self.collisions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn medium(avoids_capture: bool) -> Medium {
        Medium::new(2, avoids_capture, 1, |bytes| Span::from_ps(80_000 * bytes))
    }

    const SLOT_PS: u64 = 512 * 10_000;

    /// Sends all offered frames. Returns the begin, station and number of each.
    fn run(medium: &mut Medium, mut now: Time, lasts: Span) -> Vec<(Time, u16, u32)> {
        let mut sent = Vec::new();
        while let Some(at) = medium.wake(now) {
            now = at;
            if let Some((station, frame)) = medium.begin(at) {
                medium.hold(at + lasts);
                sent.push((at, station, frame));
            }
        }
        sent
    }

    #[test]
    fn one_station_sends_its_frames_back_to_back() {
        let mut medium = medium(false);
        (0..3).for_each(|frame| medium.offer(0, frame));
        let lasts = Span::from_ns(6_720);
        let begins: Vec<u64> =
            run(&mut medium, Time::ZERO, lasts).iter().map(|sent| sent.0.as_ps()).collect();
        assert_eq!(begins, [0, 6_720_000, 13_440_000]);
        assert_eq!(medium.collisions(), 0);
    }

    #[test]
    fn stations_that_waited_collide_and_both_send_all_frames() {
        let mut medium = medium(false);
        (0..200).for_each(|frame| medium.offer((frame % 2) as u16, frame));
        let lasts = Span::from_ns(6_720);
        let sent = run(&mut medium, Time::ZERO, lasts);
        assert_eq!(sent.len(), 200);
        for station in 0..2 {
            let frames: Vec<u32> = sent.iter().filter(|sent| sent.1 == station).map(|sent| sent.2).collect();
            assert!(frames.is_sorted(), "a card sends in order");
        }
        assert!(sent.windows(2).all(|pair| pair[1].0.since(pair[0].0) >= lasts), "one at a time");
        let collisions = medium.collisions();
        assert!(collisions > 0, "{collisions}");
    }

    #[test]
    fn backoff_counts_slots_and_its_range_doubles() {
        let mut medium = medium(false);
        medium.offer(0, 0);
        medium.offer(1, 1);
        let at = medium.wake(Time::ZERO).unwrap();
        assert_eq!(medium.begin(at), None);
        let first: Vec<u64> = medium.stations.iter().map(|station| station.not_before.as_ps()).collect();
        assert!(first.iter().all(|at| [0, SLOT_PS].contains(&(at - 1_920_000))), "{first:?}");
        let backoffs = (0..64).map(|_| {
            let station = &mut medium.stations[0];
            station.collisions = 3;
            station.random.below(1 << station.collisions)
        });
        assert_eq!(backoffs.max(), Some(7));
    }

    #[test]
    fn last_sender_captures_the_wire_unless_it_avoids_that() {
        // Maximum number of frames that a station with a full queue sends while another station waits with one frame.
        let most_first = |avoids_capture| {
            let mut medium = medium(avoids_capture);
            (0..2_000).for_each(|frame| medium.offer(0, frame));
            let (mut now, mut first, mut most) = (Time::ZERO, 0, 0);
            while let Some(at) = medium.wake(now) {
                now = at;
                match medium.begin(at) {
                    Some((0, _)) => {
                        first += 1;
                        if medium.stations[1].frames.is_empty() {
                            (first, _) = (0, medium.offer(1, 0));
                        }
                        medium.hold(at + Span::from_ns(123_040));
                    }
                    Some(_) => {
                        most = most.max(first);
                        medium.hold(at + Span::from_ns(6_720));
                    }
                    None => {}
                }
            }
            most
        };
        assert_eq!(most_first(true), 0);
        assert!(most_first(false) > 20, "{}", most_first(false));
    }

    #[test]
    fn earlier_event_replaces_a_later_one() {
        let mut medium = medium(false);
        medium.hold(Time::from_ps(5));
        medium.offer(0, 7);
        assert_eq!(medium.wake(Time::ZERO), Some(Time::from_ps(5)));
        assert_eq!(medium.wake(Time::ZERO), None, "the event is set already");
        assert_eq!(medium.begin(Time::from_ps(4)), None);
        assert_eq!(medium.begin(Time::from_ps(5)), Some((0, 7)));
        assert_eq!(medium.wake(Time::ZERO), None);
    }
}
