//! A logical channel: the outbound queue of its owner. The header ring holds a message from its post until the other
//! card has acknowledged all of it. Then the program may reuse the message's part of the payload region.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use smallvec::SmallVec;

use niclab_abi::receive::REFUSED_SEGMENT;

use crate::models::grim::command::Message;
use crate::parts::fragments::Cutter;
use crate::parts::port::RequesterPage;
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Maximum segments that the card records for a message. Doubling segments of a 48 KiB message are fewer. (The attack:
/// a program that pushes byte by byte fills the daemon's memory.) Ours: a bound.
const MAX_SEGMENTS: usize = 32;

/// Bytes pushed of a message so far, and their arrival time.
type Pushed = (u32, Time);

/// A message that is not completely sent.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    /// Number among its owner's messages.
    pub(super) number: u64,
    pub(super) message: Message,
    pub(super) tag: TraceTag,
    /// Segments that are not completely sent, the latest last.
    segments: SmallVec<[Pushed; 2]>,
    pub(super) cutter: Cutter,
    /// The payload, unless it lies in the host's window.
    pub(super) whole: Option<Arc<[u8]>>,
}

impl Outgoing {
    /// Whether the program has pushed all of the payload.
    pub(super) fn is_pushed(&self) -> bool {
        self.pushed() == self.message.payload.bytes
    }

    fn pushed(&self) -> u32 {
        self.segments.last().map_or(0, |(bytes, _)| *bytes)
    }

    /// When the byte before `end` arrived; none before that.
    pub(super) fn since(&self, end: u64) -> Option<Time> {
        self.segments.iter().find(|(bytes, _)| u64::from(*bytes) >= end).map(|(_, at)| *at)
    }

    /// Removes completely sent segments.
    pub(super) fn forget(&mut self, sent: u64) {
        let done = self.segments.iter().take_while(|(bytes, _)| u64::from(*bytes) < sent).count();
        self.segments.drain(..done);
    }
}

/// A message in the header ring.
#[derive(Clone, Copy, Debug)]
struct Flight {
    has_left: bool,
    /// Whether the card reports to the program when the message has left.
    is_told: bool,
}

/// An open channel.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    pub(super) page: RequesterPage,
    headers: usize,
    /// Messages with frames to make, in post order.
    pub(super) queue: VecDeque<Outgoing>,
    /// Messages in flight, from the oldest on.
    flights: VecDeque<Flight>,
    /// Number of messages that have left in post order, which is the number of the oldest in flight.
    left: u64,
}

impl Channel {
    pub(super) const fn new(page: RequesterPage, headers: u32) -> Self {
        Self { page, headers: headers as usize, queue: VecDeque::new(), flights: VecDeque::new(), left: 0 }
    }

    /// Whether the program has pushed all of the last message.
    fn is_whole(&self) -> bool {
        self.queue.back().is_none_or(Outgoing::is_pushed)
    }

    /// Whether the channel can take another slot: a segment of the last message, or a header if the ring has room.
    pub(super) fn has_room(&self) -> bool {
        self.flights.len() < self.headers || !self.is_whole()
    }

    /// Posts a message whose header and first segment arrive at `arrived`. Refused if the program has not pushed all of
    /// the message before.
    pub(super) fn launch(&mut self, message: Message, tag: TraceTag, arrived: Time) -> Result<(), u64> {
        if !self.is_whole() {
            return Err(REFUSED_SEGMENT);
        }
        self.add(message, tag, arrived, None);
        Ok(())
    }

    /// Posts a complete message of a peripheral, which arrives at `arrived`. Returns its number.
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

    /// Counts a refused header as a message that leaves after those before it. While a program pushes a message, the
    /// ring may be full, and the channel does not count the header. (The attack: a program that then posts only headers
    /// fills the daemon's memory.)
    pub(super) fn pass_over(&mut self) {
        if self.is_whole() {
            let number = self.left + self.flights.len() as u64;
            self.flights.push_back(Flight { has_left: false, is_told: false });
            self.leave(number);
        }
    }

    /// Checks a segment of the last message. Returns the bytes that it adds, and the message's tag.
    pub(super) fn check_segment(&self, pushed: u32) -> Result<(u32, TraceTag), u64> {
        let outgoing = self.queue.back().filter(|outgoing| !outgoing.is_pushed()).ok_or(REFUSED_SEGMENT)?;
        let before = outgoing.pushed();
        if pushed <= before || pushed > outgoing.message.payload.bytes {
            return Err(REFUSED_SEGMENT);
        }
        Ok((pushed - before, outgoing.tag))
    }

    /// Records that the first `pushed` bytes of the last message have arrived at `arrived`.
    pub(super) fn push(&mut self, pushed: u32, arrived: Time) {
        let Some(outgoing) = self.queue.back_mut() else { return };
        if outgoing.segments.len() >= MAX_SEGMENTS {
            // A segment may count with a later one. The first stays: it determines when the message begins.
            outgoing.segments.remove(1);
        }
        outgoing.segments.push((pushed, arrived));
    }

    /// Whether the last message is still being pushed.
    pub(super) fn is_pushing(&self) -> bool {
        !self.is_whole()
    }

    /// Abandons the message that the program is pushing. Returns the message, and whether a frame of it was made.
    pub(super) fn give_up(&mut self) -> Option<(Message, bool)> {
        if self.is_whole() {
            return None;
        }
        let outgoing = self.queue.pop_back()?;
        self.leave(outgoing.number);
        Some((outgoing.message, outgoing.cutter.begun().is_some()))
    }

    /// Marks a message as left. Returns whether the card must write the status line, because payload room is free.
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
    fn segments_extend_the_last_message_up_to_its_end() {
        let mut channel = channel(4);
        assert_eq!(pushes(&channel, 1), Err(REFUSED_SEGMENT), "no message was posted");
        assert_eq!(launch(&mut channel, 0, 0, at(0)), Ok(()));
        assert_eq!(pushes(&channel, 1), Err(REFUSED_SEGMENT), "the message has no payload");
        assert_eq!(launch(&mut channel, 100, 40, at(1)), Ok(()));
        assert_eq!(
            [0, 39, 40, 101, u32::MAX].map(|pushed| pushes(&channel, pushed)),
            [Err(REFUSED_SEGMENT); 5]
        );
        assert_eq!([41, 100].map(|pushed| pushes(&channel, pushed)), [Ok(1), Ok(60)]);
        channel.push(60, at(2));
        assert_eq!((pushes(&channel, 60), pushes(&channel, 61)), (Err(REFUSED_SEGMENT), Ok(1)));
        assert_eq!(
            launch(&mut channel, 0, 0, at(3)),
            Err(REFUSED_SEGMENT),
            "the message before is not completely pushed"
        );
        channel.push(100, at(4));
        assert_eq!((channel.is_pushing(), pushes(&channel, 101)), (false, Err(REFUSED_SEGMENT)));
        assert_eq!(launch(&mut channel, 0, 0, at(5)), Ok(()));
    }

    #[test]
    fn byte_arrives_with_the_first_segment_that_contains_it() {
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
    fn byte_by_byte_push_keeps_few_segments_and_none_too_early() {
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
    fn messages_leave_the_header_ring_in_post_order() {
        let mut channel = channel(3);
        for bytes in [64, 0, 0] {
            assert!(channel.has_room());
            launch(&mut channel, bytes, bytes, at(0)).unwrap();
        }
        assert!(!channel.has_room());
        assert_eq!(channel.queue.iter().map(|outgoing| outgoing.number).sum::<u64>(), 3);
        assert!(!channel.leave(1));
        assert_eq!(
            (channel.page.line.sent, channel.has_room()),
            (0, false),
            "the first message has not left"
        );
        assert!(channel.leave(0), "the room of its payload is free");
        assert_eq!((channel.page.line.sent, channel.has_room()), (2, true));
        assert!(!channel.leave(2) && !channel.leave(2) && !channel.leave(77));
        assert_eq!(channel.page.line.sent, 3);
        launch(&mut channel, 0, 0, at(0)).unwrap();
        assert_eq!(channel.queue.back().unwrap().number, 3);
    }

    #[test]
    fn abandoned_message_counts_as_left() {
        let mut channel = channel(2);
        launch(&mut channel, 0, 0, at(0)).unwrap();
        assert!(channel.give_up().is_none(), "the message is completely pushed");
        launch(&mut channel, 100, 40, at(0)).unwrap();
        assert!(channel.has_room(), "room for a segment");
        channel.queue.back_mut().unwrap().cutter.next(40);
        let (message, has_begun) = channel.give_up().unwrap();
        assert_eq!((message.pushed, has_begun, channel.is_pushing()), (40, true, false));
        assert!(channel.has_room() || channel.page.line.sent == 0);
        channel.leave(0);
        assert_eq!(channel.page.line.sent, 2);
        launch(&mut channel, 100, 40, at(0)).unwrap();
        assert!(!channel.give_up().unwrap().1, "no frame of it was sent");
    }
}
