//! A logical channel: the outbound queue of its owner. The header ring holds messages from their launch until the other
//! card has all of them; the payload region is the program's to use anew by then.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use smallvec::SmallVec;

use niclab_abi::receive::REFUSED_SEGMENT;

use crate::models::grim::command::Message;
use crate::parts::fragments::Cutter;
use crate::parts::port::RequesterPage;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Segments of a message that are told apart: more than growing ones of 48 KiB are. A program that pushes byte by byte
/// would fill the card's own memory. Ours: a bound.
const MAX_SEGMENTS: usize = 32;

/// How much of a message was pushed, and when it was there.
type Pushed = (u32, Time);

/// A message that has not left whole.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    /// Number among its owner's messages.
    pub(super) number: u64,
    pub(super) message: Message,
    pub(super) tag: TraceTag,
    /// Segments of which not all was sent, the latest last.
    segments: SmallVec<[Pushed; 2]>,
    pub(super) cutter: Cutter,
    /// The payload, where it is in no window of the host's.
    pub(super) whole: Option<Arc<[u8]>>,
}

impl Outgoing {
    /// Whether all of it is in the payload region.
    pub(super) fn is_pushed(&self) -> bool {
        self.pushed() == self.message.payload.bytes
    }

    fn pushed(&self) -> u32 {
        self.segments.last().map_or(0, |(bytes, _)| *bytes)
    }

    /// Since when the byte before `end` is there; none while it is not.
    pub(super) fn since(&self, end: u64) -> Option<Time> {
        self.segments.iter().find(|(bytes, _)| u64::from(*bytes) >= end).map(|(_, at)| *at)
    }

    /// Forgets segments of which all was sent.
    pub(super) fn forget(&mut self, sent: u64) {
        let done = self.segments.iter().take_while(|(bytes, _)| u64::from(*bytes) < sent).count();
        self.segments.drain(..done);
    }
}

/// A message in the header ring.
#[derive(Clone, Copy, Debug)]
struct Flight {
    has_left: bool,
    /// Its program waits to hear that it has left.
    is_told: bool,
}

/// An open channel.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    pub(super) page: RequesterPage,
    headers: usize,
    /// Messages of which not all frames were made, in the order of their launches.
    pub(super) queue: VecDeque<Outgoing>,
    /// Messages from the oldest that has not left.
    flights: VecDeque<Flight>,
    /// Messages that have left, in the order of their launches: the number of the first in flight.
    left: u64,
}

impl Channel {
    pub(super) const fn new(page: RequesterPage, headers: u32) -> Self {
        Self { page, headers: headers as usize, queue: VecDeque::new(), flights: VecDeque::new(), left: 0 }
    }

    /// Whether the message launched last is whole.
    fn is_whole(&self) -> bool {
        self.queue.back().is_none_or(Outgoing::is_pushed)
    }

    /// Whether another slot can be taken: a segment of the last message, or a header for which there is room.
    pub(super) fn has_room(&self) -> bool {
        self.flights.len() < self.headers || !self.is_whole()
    }

    /// A message is launched, whose header and first segment are there at `arrived`. Refused where the one before is
    /// not whole.
    pub(super) fn launch(&mut self, message: Message, tag: TraceTag, arrived: Time) -> Result<(), u64> {
        if !self.is_whole() {
            return Err(REFUSED_SEGMENT);
        }
        self.add(message, tag, arrived, None);
        Ok(())
    }

    /// A peripheral launches a message, all of which is there at `arrived`. Its number.
    pub(super) fn launch_whole(
        &mut self,
        message: Message,
        tag: TraceTag,
        arrived: Time,
        payload: Arc<[u8]>,
    ) -> u64 {
        self.add(message, tag, arrived, Some(payload))
    }

    fn add(&mut self, message: Message, tag: TraceTag, arrived: Time, whole: Option<Arc<[u8]>>) -> u64 {
        let number = self.left + self.flights.len() as u64;
        self.flights
            .push_back(Flight { has_left: false, is_told: message.notify || message.payload.bytes > 0 });
        self.queue.push_back(Outgoing {
            number,
            message,
            tag,
            segments: SmallVec::from_slice(&[(message.pushed, arrived)]),
            cutter: Cutter::new(message.payload.bytes.into()),
            whole,
        });
        number
    }

    /// Messages that have left.
    pub(super) const fn left(&self) -> u64 {
        self.left
    }

    /// A header was refused: as a message it counts as one that has left, behind those before it. Not while one is
    /// being pushed, when the ring may be full: a program that launches nothing but headers then would fill the card's
    /// own memory.
    pub(super) fn pass_over(&mut self) {
        if self.is_whole() {
            let number = self.left + self.flights.len() as u64;
            self.flights.push_back(Flight { has_left: false, is_told: false });
            self.leave(number);
        }
    }

    /// Checks a segment: how much more it pushes of the message launched last, and whose that is.
    pub(super) fn check_segment(&self, pushed: u32) -> Result<(u32, TraceTag), u64> {
        let outgoing = self.queue.back().filter(|outgoing| !outgoing.is_pushed()).ok_or(REFUSED_SEGMENT)?;
        let before = outgoing.pushed();
        if pushed <= before || pushed > outgoing.message.payload.bytes {
            return Err(REFUSED_SEGMENT);
        }
        Ok((pushed - before, outgoing.tag))
    }

    /// So much of the message launched last is there at `arrived`.
    pub(super) fn push(&mut self, pushed: u32, arrived: Time) {
        let Some(outgoing) = self.queue.back_mut() else { return };
        if outgoing.segments.len() >= MAX_SEGMENTS {
            // All but the first, which says when the message begins, may count as a later one.
            outgoing.segments.remove(1);
        }
        outgoing.segments.push((pushed, arrived));
    }

    /// Whether the last message is still being pushed.
    pub(super) fn is_pushing(&self) -> bool {
        !self.is_whole()
    }

    /// Gives up the message that is still being pushed. Says where it was going, and whether it had begun.
    pub(super) fn give_up(&mut self) -> Option<(Message, bool)> {
        if self.is_whole() {
            return None;
        }
        let outgoing = self.queue.pop_back()?;
        self.leave(outgoing.number);
        Some((outgoing.message, outgoing.cutter.begun().is_some()))
    }

    /// A message has left. True where the status line is due for it: its payload's room is free.
    pub(super) fn leave(&mut self, number: u64) -> bool {
        let place = number.checked_sub(self.left).map(|place| place as usize);
        if let Some(flight) = place.and_then(|place| self.flights.get_mut(place)) {
            flight.has_left = true;
        }
        let mut is_due = false;
        while let Some(flight) = self.flights.front().filter(|flight| flight.has_left) {
            is_due |= flight.is_told;
            self.left += 1;
            self.flights.pop_front();
        }
        self.page.line.sent = self.left;
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::grim::command::Payload;
    use crate::models::grim::wire::Purpose;
    use crate::time::Span;

    fn at(ns: u64) -> Time {
        Time::ZERO + Span::from_ns(ns)
    }

    fn channel(headers: u32) -> Channel {
        Channel::new(RequesterPage::new(0x1000), headers)
    }

    fn launch(channel: &mut Channel, bytes: u32, pushed: u32, arrived: Time) -> Result<(), u64> {
        let purpose = Purpose::Handler { handler: 20, arguments: [0; 4] };
        let payload = Payload { offset: 0, bytes };
        let message =
            Message { node: 1, endpoint: 0, purpose, interrupt: false, notify: false, payload, pushed };
        let tag = TraceTag { node: 0, port: 0, number: 1, launched: arrived, bytes };
        channel.launch(message, tag, arrived)
    }

    fn pushes(channel: &Channel, pushed: u32) -> Result<u32, u64> {
        channel.check_segment(pushed).map(|(more, _)| more)
    }

    #[test]
    fn segments_run_forwards_to_the_end_of_the_message_before_them() {
        let mut channel = channel(4);
        assert_eq!(pushes(&channel, 1), Err(REFUSED_SEGMENT), "there is no message");
        assert_eq!(launch(&mut channel, 0, 0, at(0)), Ok(()));
        assert_eq!(pushes(&channel, 1), Err(REFUSED_SEGMENT), "it has no payload");
        assert_eq!(launch(&mut channel, 100, 40, at(1)), Ok(()));
        assert_eq!(
            [0, 39, 40, 101, u32::MAX].map(|pushed| pushes(&channel, pushed)),
            [Err(REFUSED_SEGMENT); 5]
        );
        assert_eq!([41, 100].map(|pushed| pushes(&channel, pushed)), [Ok(1), Ok(60)]);
        channel.push(60, at(2));
        assert_eq!((pushes(&channel, 60), pushes(&channel, 61)), (Err(REFUSED_SEGMENT), Ok(1)));
        assert_eq!(launch(&mut channel, 0, 0, at(3)), Err(REFUSED_SEGMENT), "the one before is not whole");
        channel.push(100, at(4));
        assert_eq!((channel.is_pushing(), pushes(&channel, 101)), (false, Err(REFUSED_SEGMENT)));
        assert_eq!(launch(&mut channel, 0, 0, at(5)), Ok(()));
    }

    #[test]
    fn a_byte_is_there_since_the_first_segment_with_it() {
        let mut channel = channel(4);
        launch(&mut channel, 100, 32, at(10)).unwrap();
        channel.push(64, at(20));
        let outgoing = channel.queue.front_mut().unwrap();
        assert_eq!(
            [0, 1, 32, 33, 64, 65].map(|end| outgoing.since(end)).map(|at| at.map(|at| at.as_ps() / 1_000)),
            [Some(10), Some(10), Some(10), Some(20), Some(20), None]
        );
        outgoing.forget(50);
        assert_eq!([51, 64].map(|end| outgoing.since(end)), [Some(at(20)); 2]);
        channel.push(100, at(30));
        assert_eq!(channel.queue.front().unwrap().since(100), Some(at(30)));
    }

    #[test]
    fn of_a_message_pushed_byte_by_byte_few_segments_are_told_apart_and_none_too_early() {
        let mut channel = channel(4);
        launch(&mut channel, 1_000, 1, at(1)).unwrap();
        for pushed in 2..=1_000 {
            channel.push(pushed, at(pushed.into()));
        }
        let outgoing = channel.queue.front().unwrap();
        assert!(outgoing.segments.len() <= MAX_SEGMENTS);
        assert_eq!((outgoing.since(1), outgoing.since(1_000)), (Some(at(1)), Some(at(1_000))));
        assert!((1..=1_000).all(|end| outgoing.since(end).unwrap() >= at(end)));
    }

    #[test]
    fn messages_leave_the_header_ring_in_the_order_of_their_launches() {
        let mut channel = channel(3);
        for bytes in [64, 0, 0] {
            assert!(channel.has_room());
            launch(&mut channel, bytes, bytes, at(0)).unwrap();
        }
        assert!(!channel.has_room());
        assert_eq!(channel.queue.iter().map(|outgoing| outgoing.number).sum::<u64>(), 3);
        assert!(!channel.leave(1));
        assert_eq!((channel.page.line.sent, channel.has_room()), (0, false), "the first has not");
        assert!(channel.leave(0), "its payload's room is free");
        assert_eq!((channel.page.line.sent, channel.has_room()), (2, true));
        assert!(!channel.leave(2) && !channel.leave(2) && !channel.leave(77));
        assert_eq!(channel.page.line.sent, 3);
        launch(&mut channel, 0, 0, at(0)).unwrap();
        assert_eq!(channel.queue.back().unwrap().number, 3);
    }

    #[test]
    fn a_message_that_is_given_up_has_left() {
        let mut channel = channel(2);
        launch(&mut channel, 0, 0, at(0)).unwrap();
        assert!(channel.give_up().is_none(), "it is whole");
        launch(&mut channel, 100, 40, at(0)).unwrap();
        assert!(channel.has_room(), "for a segment");
        channel.queue.back_mut().unwrap().cutter.next(40);
        let (message, has_begun) = channel.give_up().unwrap();
        assert_eq!((message.pushed, has_begun, channel.is_pushing()), (40, true, false));
        assert!(channel.has_room() || channel.page.line.sent == 0);
        channel.leave(0);
        assert_eq!(channel.page.line.sent, 2);
        launch(&mut channel, 100, 40, at(0)).unwrap();
        assert!(!channel.give_up().unwrap().1, "nothing of it was sent");
    }
}
