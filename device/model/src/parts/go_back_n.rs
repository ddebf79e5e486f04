//! Reliable delivery, in order, between two cards: go-back-N with cumulative acknowledgements.
//!
//! Each card has one [`GoBackN`] for each peer, with both directions. The sender numbers its frames and keeps each
//! until it is **acknowledged**. An acknowledgement names the first number that has not arrived, and so covers all
//! frames before it. At most a window of frames is kept. The receiver takes only the frame with the next number. It
//! discards duplicated frames and frames ahead, and answers with an acknowledgement, which repairs a lost one.
//!
//! A timer runs exactly while a frame is not acknowledged. When it expires, the sender retransmits all kept frames,
//! and the wait doubles up to a bound. An acknowledgement that moves the window resets the wait. The protocol never
//! gives up: links of a cluster lose frames, but do not end.
//!
//! A receiver may have no room for the next frame. It does not take the frame, and **refuses** it. The sender then
//! retransmits from this frame after a pause, and sends nothing new until then.
//!
//! The width of numbers is a parameter, because it is set by each model's header; numbers wrap. A frame or an
//! acknowledgement that is older than half of the range would be taken for a new one; a link must not delay one for so
//! long.
//!
//! The protocol does not know the format of frames: a model writes [`GoBackN::next_sequence`] and
//! [`GoBackN::acknowledge`] into its own headers, and checks frames for damage before it reads them.

use alloc::collections::VecDeque;

use crate::parts::sequence::Sequence;
use crate::time::{Span, Time};

/// Parameters that both cards agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Max unacknowledged frames. Zero counts as one, and values above [`Sequence::MAX_AHEAD`] count as that.
    pub window_frames: u32,
    /// Wait for an acknowledgement before the first retransmission. It must exceed a round trip with a full window in
    /// flight, or retransmissions are spurious.
    pub first_wait: Span,
    /// Max of the doubling wait, and of the pause.
    pub longest_wait: Span,
    /// Pause after the first refusal. The pause doubles with each further refusal.
    pub first_pause: Span,
}

/// Classification of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// The next frame: it counts as arrived, and must be delivered.
    Next,
    /// A frame that arrived before: discard it, and acknowledge.
    Duplicated,
    /// A frame after a missing one: discard it, and acknowledge.
    Ahead,
}

/// One card's state of the link to one peer, both directions. `F` is the stored data of a frame, `BITS` the width of
/// its number.
#[derive(Clone, Debug)]
pub struct GoBackN<F, const BITS: u32 = 32> {
    config: Config,
    /// Unacknowledged frames, oldest first.
    kept: VecDeque<F>,
    /// Number of the oldest unacknowledged frame, or of the next frame if there are none.
    oldest: Sequence<BITS>,
    wait: Span,
    /// The pause after the next refusal.
    pause: Span,
    /// Whether the oldest frame was refused, so that nothing is sent until the deadline.
    is_paused: bool,
    deadline: Option<Time>,
    /// Frames sent since the last one that requested an acknowledgement.
    unasked: u32,
    /// Number of the next expected frame.
    expected: Sequence<BITS>,
}

impl<F, const BITS: u32> GoBackN<F, BITS> {
    /// A link on which nothing was sent. Both cards begin at number zero.
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            kept: VecDeque::new(),
            oldest: Sequence::ZERO,
            wait: config.first_wait,
            pause: config.first_pause,
            is_paused: false,
            deadline: None,
            unasked: 0,
            expected: Sequence::ZERO,
        }
    }

    /// Whether the window has room for another frame, and the link does not pause.
    #[inline]
    pub fn can_send(&self) -> bool {
        self.kept.len() < self.window() && !self.is_paused
    }

    /// The number of the next frame to send.
    #[inline]
    pub fn next_sequence(&self) -> Sequence<BITS> {
        self.oldest.plus(self.kept.len() as u32)
    }

    /// Stores a frame that is sent at `now`, and returns its number. The caller has checked [`GoBackN::can_send`].
    #[inline]
    pub fn send(&mut self, now: Time, frame: F) -> Sequence<BITS> {
        let sequence = self.next_sequence();
        self.kept.push_back(frame);
        if self.deadline.is_none() {
            self.deadline = Some(now + self.wait);
        }
        sequence
    }

    /// Whether the next frame should request an acknowledgement so that the window keeps moving: one in a quarter of a
    /// window, and the one that fills it. The sender also sets the request on a frame with no frame soon after it.
    #[inline]
    pub fn wants_acknowledgement(&self) -> bool {
        self.fills_window() || self.next_sequence().next().get().is_multiple_of(self.quarter())
    }

    /// As [`Self::wants_acknowledgement`], counted from the last request instead of by numbers: requests of a message's
    /// frames then do not depend on earlier messages. Must be called once for each frame.
    #[inline]
    pub fn asks(&mut self, is_last: bool) -> bool {
        let asks = is_last || self.fills_window() || self.unasked + 1 >= self.quarter();
        self.unasked = if asks { 0 } else { self.unasked + 1 };
        asks
    }

    /// Takes an acknowledgement: all frames before `number` have arrived. True if the window moved. An old, duplicated
    /// or out-of-range acknowledgement changes nothing.
    #[inline]
    pub fn on_acknowledged(&mut self, now: Time, number: Sequence<BITS>) -> bool {
        let arrived = number.ahead_of(self.oldest) as usize;
        if arrived == 0 || arrived > self.kept.len() {
            return false;
        }
        self.kept.drain(..arrived);
        self.oldest = number;
        self.wait = self.config.first_wait;
        self.pause = self.config.first_pause;
        self.is_paused = false;
        self.deadline = (!self.kept.is_empty()).then(|| now + self.wait);
        true
    }

    /// Takes a refusal: all frames before `number` have arrived, and the receiver had no room for frame `number`. True
    /// if the window moved. An old, duplicated or out-of-range refusal changes nothing.
    pub fn on_refused(&mut self, now: Time, number: Sequence<BITS>) -> bool {
        let has_moved = self.on_acknowledged(now, number);
        if number == self.oldest && !self.kept.is_empty() && !self.is_paused {
            self.is_paused = true;
            self.deadline = Some(now + self.pause);
            self.pause = self.pause.times(2).min(self.config.longest_wait).max(self.config.first_pause);
        }
        has_moved
    }

    /// Whether the oldest frame was refused and its pause is not over.
    pub const fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// The stored data of the frame with this number, until it is acknowledged.
    pub fn kept_mut(&mut self, sequence: Sequence<BITS>) -> Option<&mut F> {
        let place = sequence.get().wrapping_sub(self.oldest.get()) & Sequence::<BITS>::new(u32::MAX).get();
        self.kept.get_mut(place as usize)
    }

    /// The stored data of all frames, oldest first, with their numbers.
    pub fn all_kept_mut(&mut self) -> impl Iterator<Item = (Sequence<BITS>, &mut F)> {
        let oldest = self.oldest;
        (0..).zip(&mut self.kept).map(move |(place, kept)| (oldest.plus(place), kept))
    }

    /// The number of the oldest unacknowledged frame, or of the next frame.
    pub const fn oldest(&self) -> Sequence<BITS> {
        self.oldest
    }

    /// Classification of a frame with this number, without taking it: a receiver checks it before it looks for room.
    #[inline]
    pub const fn foresee(&self, sequence: Sequence<BITS>) -> Reception {
        if sequence.get() == self.expected.get() {
            Reception::Next
        } else if sequence.is_after(self.expected) {
            Reception::Ahead
        } else {
            Reception::Duplicated
        }
    }

    /// Takes the number of an intact frame, and classifies it.
    #[inline]
    pub const fn receive(&mut self, sequence: Sequence<BITS>) -> Reception {
        let reception = self.foresee(sequence);
        if matches!(reception, Reception::Next) {
            self.expected = sequence.next();
        }
        reception
    }

    /// The current acknowledgement: the number before which all frames have arrived. It can be written into every
    /// frame at no cost.
    #[inline]
    pub const fn acknowledge(&self) -> Sequence<BITS> {
        self.expected
    }

    /// When the frames are retransmitted unless they are acknowledged; none without unacknowledged frames.
    #[inline]
    pub const fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// The frames to retransmit at `now`, oldest first: none before the deadline.
    pub fn expire(&mut self, now: Time) -> impl ExactSizeIterator<Item = &F> {
        let is_due = self.deadline.is_some_and(|deadline| deadline <= now);
        if is_due && !core::mem::take(&mut self.is_paused) {
            self.wait = self.wait.times(2).min(self.config.longest_wait).max(self.config.first_wait);
        }
        if is_due {
            self.deadline = Some(now + self.wait);
        }
        let count = if is_due { self.kept.len() } else { 0 };
        self.kept.range(..count)
    }

    fn fills_window(&self) -> bool {
        self.kept.len() + 1 >= self.window()
    }

    fn quarter(&self) -> u32 {
        (self.config.window_frames / 4).max(1)
    }

    fn window(&self) -> usize {
        self.config.window_frames.clamp(1, Sequence::<BITS>::MAX_AHEAD) as usize
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const CONFIG: Config = Config {
        window_frames: 8,
        first_wait: Span::from_ns(10),
        longest_wait: Span::from_ns(40),
        first_pause: Span::from_ns(3),
    };

    fn at(ns: u64) -> Time {
        Time::ZERO + Span::from_ns(ns)
    }

    fn starting_at<F, const BITS: u32>(config: Config, sequence: u32) -> GoBackN<F, BITS> {
        let sequence = Sequence::new(sequence);
        GoBackN { oldest: sequence, expected: sequence, ..GoBackN::new(config) }
    }

    #[test]
    fn timer_runs_exactly_while_a_frame_is_unacknowledged() {
        let mut link = GoBackN::<_>::new(CONFIG);
        assert_eq!(link.deadline(), None);
        assert_eq!(link.send(at(0), 'a').get(), 0);
        assert_eq!(link.send(at(5), 'b').get(), 1);
        assert_eq!(link.deadline(), Some(at(10)), "the deadline of the oldest frame");
        assert!(link.on_acknowledged(at(7), Sequence::new(1)));
        assert_eq!(link.deadline(), Some(at(17)), "restarted for the remaining frames");
        assert!(link.on_acknowledged(at(8), Sequence::new(2)));
        assert_eq!(link.deadline(), None);
    }

    #[test]
    fn wait_doubles_to_a_bound_and_progress_resets_it() {
        let mut link = GoBackN::<_>::new(CONFIG);
        link.send(at(0), 'a');
        link.send(at(0), 'b');
        assert_eq!(link.expire(at(9)).count(), 0);
        let mut deadlines = Vec::new();
        for _ in 0..4 {
            let due = link.deadline().unwrap();
            assert!(link.expire(due).eq(&['a', 'b']));
            deadlines.push(due);
        }
        assert_eq!(deadlines, [at(10), at(30), at(70), at(110)]);
        assert!(link.on_acknowledged(at(115), Sequence::new(1)));
        assert_eq!(link.deadline(), Some(at(125)));
    }

    #[test]
    fn every_window_contains_an_acknowledgement_request() {
        let mut link = GoBackN::<_>::new(CONFIG);
        let mut asked = Vec::new();
        while link.can_send() {
            asked.push(link.wants_acknowledgement());
            assert_eq!(link.asks(false), asked[asked.len() - 1], "the first window is the same");
            link.send(at(0), 0);
        }
        assert_eq!(asked, [false, true, false, true, false, true, false, true]);
        assert!(link.on_acknowledged(at(1), Sequence::new(3)));
        assert!(link.can_send());
        let mut one = GoBackN::<_>::new(Config { window_frames: 0, ..CONFIG });
        assert!(one.can_send() && one.wants_acknowledgement() && one.asks(false));
        one.send(at(0), 0);
        assert!(!one.can_send(), "a window of zero counts as one frame");
    }

    #[test]
    fn requests_do_not_depend_on_earlier_frames() {
        let asked = |before: u32| {
            let mut link = GoBackN::<_>::new(Config { window_frames: 16, ..CONFIG });
            let mut send = |is_last| {
                let asks = link.asks(is_last);
                let number = link.send(at(0), ());
                if asks {
                    link.on_acknowledged(at(0), number.next());
                }
                asks
            };
            for _ in 0..before {
                send(true);
            }
            [false, false, false, false, false, true].map(send)
        };
        assert_eq!(asked(0), [false, false, false, true, false, true]);
        assert!((1..9).all(|before| asked(before) == asked(0)));
    }

    #[test]
    fn out_of_range_acknowledgements_change_nothing() {
        let mut link = starting_at::<_, 32>(CONFIG, u32::MAX);
        assert_eq!([0, 1, 2].map(|frame| link.send(at(0), frame).get()), [u32::MAX, 0, 1]);
        for absurd in [u32::MAX, u32::MAX - 1, 3, 0x8000_0000] {
            assert!(!link.on_acknowledged(at(1), Sequence::new(absurd)), "{absurd}");
        }
        assert_eq!(link.expire(at(10)).len(), 3);
        assert!(link.on_acknowledged(at(11), Sequence::new(2)), "numbers wrap");
        assert_eq!((link.deadline(), link.next_sequence().get()), (None, 2));
    }

    #[test]
    fn refusal_pauses_and_the_pause_doubles_until_progress() {
        let mut link = GoBackN::<_>::new(CONFIG);
        for frame in 0..3 {
            link.send(at(0), frame);
        }
        assert!(link.on_refused(at(1), Sequence::new(1)), "the receiver took the first frame");
        assert!(!link.can_send() && link.is_paused());
        assert!(!link.on_refused(at(2), Sequence::new(1)), "a duplicated refusal changes nothing");
        assert_eq!(link.deadline(), Some(at(4)));
        assert!(link.expire(at(4)).eq(&[1, 2]));
        assert!(link.can_send(), "the refused frame was retransmitted");
        assert_eq!(link.deadline(), Some(at(14)));
        link.on_refused(at(5), Sequence::new(1));
        assert_eq!(link.deadline(), Some(at(11)), "twice as long");
        assert!(link.on_acknowledged(at(6), Sequence::new(2)));
        assert!(link.can_send(), "the receiver took a late frame");
        link.on_refused(at(7), Sequence::new(2));
        assert_eq!(link.deadline(), Some(at(10)), "as long as at first");
        for absurd in [0, 1, 4, u32::MAX] {
            assert!(!link.on_refused(at(8), Sequence::new(absurd)), "{absurd}");
        }
        assert!(link.on_acknowledged(at(9), Sequence::new(3)));
        assert!(!link.on_refused(at(9), Sequence::new(3)), "no frame is in flight");
        assert_eq!((link.deadline(), link.is_paused()), (None, false));
    }

    #[test]
    fn stored_frames_are_found_by_their_numbers() {
        let mut link = starting_at::<_, 8>(CONFIG, 254);
        for frame in 0..4 {
            link.send(at(0), frame);
        }
        assert_eq!(
            [254, 255, 0, 1, 2, 253].map(|number| link.kept_mut(Sequence::new(number)).copied()),
            [Some(0), Some(1), Some(2), Some(3), None, None]
        );
        let numbers = link.all_kept_mut().map(|(number, kept)| (number.get(), *kept));
        assert!(numbers.eq([(254, 0), (255, 1), (0, 2), (1, 3)]));
    }

    /// A message on the wire: destination, number, acknowledgement, whether it refuses the next frame, and the frame
    /// unless it is only an acknowledgement.
    #[derive(Clone, Copy, Debug)]
    struct Flight<const BITS: u32> {
        refuses: bool,
        to: usize,
        sequence: Sequence<BITS>,
        acknowledged: Sequence<BITS>,
        frame: Option<(u32, bool)>,
    }

    /// Two cards, and a wire that loses, duplicates, delays and reorders messages.
    struct LinkHarness<const BITS: u32> {
        links: [GoBackN<(u32, bool), BITS>; 2],
        wire: VecDeque<Flight<BITS>>,
        now: Time,
        sent: [u32; 2],
        delivered: [Vec<u32>; 2],
    }

    impl<const BITS: u32> LinkHarness<BITS> {
        fn new(window_frames: u32, sequence: u32) -> Self {
            let config = Config { window_frames, ..CONFIG };
            let link = starting_at(config, sequence);
            Self {
                links: [link.clone(), link],
                wire: VecDeque::new(),
                now: Time::ZERO,
                sent: [0; 2],
                delivered: Default::default(),
            }
        }

        fn send(&mut self, from: usize, is_last: bool) {
            let link = &mut self.links[from];
            if !link.can_send() {
                return;
            }
            let frame = (self.sent[from], is_last || link.wants_acknowledgement());
            self.sent[from] += 1;
            let acknowledged = link.acknowledge();
            let sequence = link.send(self.now, frame);
            let frame = Some(frame);
            self.wire.push_back(Flight { refuses: false, to: 1 - from, sequence, acknowledged, frame });
        }

        fn deliver(&mut self, flight: Flight<BITS>, has_room: bool) {
            let link = &mut self.links[flight.to];
            if flight.refuses {
                link.on_refused(self.now, flight.acknowledged);
            } else {
                link.on_acknowledged(self.now, flight.acknowledged);
            }
            let Some((number, is_asked)) = flight.frame else { return };
            if !has_room && link.foresee(flight.sequence) == Reception::Next {
                let acknowledged = link.acknowledge();
                return self.wire.push_back(Flight {
                    refuses: true,
                    to: 1 - flight.to,
                    acknowledged,
                    frame: None,
                    ..flight
                });
            }
            let reception = link.receive(flight.sequence);
            if reception == Reception::Next {
                self.delivered[flight.to].push(number);
            }
            if is_asked || reception != Reception::Next {
                let acknowledged = link.acknowledge();
                let frame = None;
                self.wire.push_back(Flight {
                    refuses: false,
                    to: 1 - flight.to,
                    acknowledged,
                    frame,
                    ..flight
                });
            }
        }

        fn expire(&mut self, from: usize) {
            let link = &mut self.links[from];
            let Some(due) = link.deadline() else { return };
            self.now = self.now.max(due);
            let (oldest, acknowledged) = (link.oldest, link.acknowledge());
            let again = link.expire(self.now).copied().enumerate().map(|(number, frame)| Flight {
                refuses: false,
                to: 1 - from,
                sequence: oldest.plus(number as u32),
                acknowledged,
                frame: Some(frame),
            });
            self.wire.extend(again);
        }

        fn step(&mut self, action: u8, node: usize, place: usize) {
            let place = place % (self.wire.len() + 1);
            self.now += Span::from_ns(1);
            match action {
                0..=5 => self.send(node, action == 0),
                6 => drop(self.wire.remove(place)),
                7 => {
                    if let Some(&flight) = self.wire.get(place) {
                        self.wire.push_back(flight);
                    }
                }
                8 | 9 => {
                    if let Some(flight) = self.wire.remove(place) {
                        self.deliver(flight, true);
                    }
                }
                10 => self.expire(node),
                _ => {
                    if let Some(flight) = self.wire.pop_front() {
                        self.deliver(flight, action < 17);
                    }
                }
            }
        }

        /// From now on the wire is reliable: messages arrive, and timers expire until none is left.
        fn finish(&mut self) {
            for _ in 0..4 {
                while let Some(flight) = self.wire.pop_front() {
                    self.deliver(flight, true);
                }
                (0..2).for_each(|node| self.expire(node));
            }
        }
    }

    fn check_script<const BITS: u32>(
        window: u32,
        first: u32,
        script: &[(u8, usize, usize)],
    ) -> Result<(), TestCaseError> {
        let mut harness = LinkHarness::<BITS>::new(window, first);
        for &(action, node, place) in script {
            harness.step(action, node, place);
            for link in &harness.links {
                prop_assert!(link.kept.len() <= link.window());
                prop_assert_eq!(link.deadline().is_some(), !link.kept.is_empty());
            }
        }
        harness.finish();
        for (node, link) in harness.links.iter().enumerate() {
            prop_assert!(harness.delivered[1 - node].iter().copied().eq(0..harness.sent[node]));
            prop_assert!(link.kept.is_empty(), "a frame is left unacknowledged");
            prop_assert_eq!(link.deadline(), None);
        }
        Ok(())
    }

    /// Both cards send 60 frames over a wire that loses most frames.
    fn check_losses<const BITS: u32>(losses: &[u8]) -> Result<(), TestCaseError> {
        let mut harness = LinkHarness::<BITS>::new(8, u32::MAX - 20);
        let mut losses = losses.iter().cycle();
        let mut rounds = 0;
        while harness.delivered.iter().any(|delivered| delivered.len() < 60) && rounds < 20_000 {
            rounds += 1;
            for node in 0..2 {
                if harness.sent[node] < 60 {
                    harness.send(node, false);
                }
            }
            for _ in 0..harness.wire.len() {
                let Some(flight) = harness.wire.pop_front() else { break };
                if losses.next() == Some(&0) {
                    harness.deliver(flight, true);
                }
            }
            (0..2).for_each(|node| harness.expire(node));
        }
        for delivered in &harness.delivered {
            prop_assert!(delivered.iter().copied().eq(0..60));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn frames_arrive_once_and_in_order_over_any_wire(
            window in 0..12_u32,
            first in prop_oneof![Just(0), Just(u32::MAX - 5), Just(i32::MAX as u32 - 5), any::<u32>()],
            script in prop::collection::vec((0..18_u8, 0..2_usize, any::<usize>()), 0..600),
        ) {
            check_script::<32>(window, first, &script)?;
            check_script::<24>(window, first, &script)?;
        }

        /// A wire that loses at any rate below one; only the timers retransmit frames.
        #[test]
        fn lossy_wire_only_takes_longer(losses in prop::collection::vec(0..4_u8, 2000)) {
            check_losses::<32>(&losses)?;
            check_losses::<8>(&losses)?;
        }
    }

    #[test]
    fn window_is_at_most_half_of_the_number_range() {
        let mut link = GoBackN::<_, 4>::new(Config { window_frames: 100, ..CONFIG });
        while link.can_send() {
            link.send(at(0), 0);
        }
        assert_eq!(link.expire(at(10)).len(), 7);
        assert!(link.on_acknowledged(at(11), Sequence::new(7)) && link.can_send());
    }
}
