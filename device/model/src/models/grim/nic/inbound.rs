//! Stores received frames at endpoints, or in card memory while an endpoint has no room. The card allocates buffers on
//! demand, and refuses a frame for which it has none (section 4.1).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use niclab_abi::bar::TAG_WORDS;
use niclab_abi::grim::payload_place;
use niclab_abi::receive::{REFUSED_CLOSED, REFUSED_MEMORY, REFUSED_NO_PAYLOAD, REFUSED_SEGMENT};

use super::{Grim, GrimPort, Timer};
use crate::models::grim::endpoint::Verdict;
use crate::models::grim::link::{Held, Joining, Sink};
use crate::models::grim::wire::{Failures, Fragment, FrameKind, HEAD_BYTES, Header, Purpose, WireError};
use crate::nic::Address;
use crate::nic::HostRanges;
use crate::nic::frame::SharedFrame;
use crate::parts::go_back_n::Reception;
use crate::parts::sequence::Sequence;
use crate::parts::slice::Slice;
use crate::platform::trace_tag::TraceTag;
use crate::time::{Span, Time};

impl Grim {
    /// A frame has arrived from the network.
    pub(super) fn on_frame(&mut self, now: Time, frame: &SharedFrame, message: Option<TraceTag>) {
        self.effects.attribute(message);
        if self.on_ethernet(now, frame) {
            return;
        }
        let card = &mut self.effects.counters.card;
        let header = match Header::parse(frame) {
            Ok((header, _)) => header,
            Err(WireError::Check) => return card.damaged += 1,
            Err(WireError::Foreign) => return card.foreign_frames += 1,
            Err(_) => return card.malformed += 1,
        };
        let is_known = header.destination == self.config.node
            && u32::from(header.source) < self.config.nodes
            && u32::from(header.channel) < self.config.channels.max(super::MAX_CHANNELS as u32);
        if !is_known {
            return card.malformed += 1;
        }
        match header.kind {
            FrameKind::Message(_) | FrameKind::Void | FrameKind::Report(_) => {
                self.on_numbered(now, &header, frame, message)
            }
            FrameKind::Acknowledgement(failures) | FrameKind::Refusal(failures) => {
                self.on_answer(now, &header, &failures);
            }
        }
    }

    /// Handles a numbered frame: a fragment of a message, a void, or a report.
    fn on_numbered(&mut self, now: Time, header: &Header, frame: &SharedFrame, message: Option<TraceTag>) {
        let place = self.place_of(header.source, header.channel);
        let number = Sequence::new(header.sequence);
        let at = self.work(self.firmware.receive, now, frame.len() as u64, Span::ZERO);
        let is_taken = match self.links[place].frames.foresee(number) {
            Reception::Duplicated => {
                self.effects.counters.duplicated += 1;
                return self.answer(at, place, FrameKind::Acknowledgement);
            }
            Reception::Ahead => {
                self.effects.counters.ahead += 1;
                if header.asks {
                    self.answer(at, place, FrameKind::Acknowledgement);
                }
                return;
            }
            Reception::Next => match header.kind {
                FrameKind::Message(fragment) => {
                    self.links[place].on_owner(fragment.owner);
                    let held = Held { fragment, frame: frame.clone(), message };
                    self.accept(at, place, held)
                }
                FrameKind::Report(failures) => {
                    self.tell(at, place, &failures, false);
                    self.effects.attribute(message);
                    true
                }
                _ => {
                    self.end_last(place);
                    true
                }
            },
        };
        if !is_taken {
            self.effects.card().overruns += 1;
            return self.answer(at, place, FrameKind::Refusal);
        }
        self.links[place].frames.receive(number);
        if header.asks {
            self.answer(at, place, FrameKind::Acknowledgement);
        }
        // An abandoned message has freed room for waiting ones.
        if self.has_room_back {
            self.drain(at);
        }
    }

    /// Sends an acknowledgement or a refusal to the other card.
    fn answer(&mut self, now: Time, place: usize, kind: impl Fn(Failures) -> FrameKind) {
        let link = &self.links[place];
        let header = Header {
            source: self.config.node,
            destination: link.node,
            channel: link.channel,
            kind: kind(link.failures),
            asks: false,
            sequence: link.frames.acknowledge().get(),
        };
        let message = self.effects.interface.ledger().attributed();
        self.effects.attribute(None);
        let ready = self.work(self.firmware.acknowledge, now, 0, Span::ZERO);
        let is_refusal = matches!(header.kind, FrameKind::Refusal(_));
        self.effects.card().acknowledgements_sent += u64::from(!is_refusal);
        self.effects.frame(ready, header.emit(), None);
        self.effects.attribute(message);
    }

    /// Accepts the next frame in order: stores it at its endpoint, or keeps it in card memory. Returns false if
    /// neither has room.
    fn accept(&mut self, at: Time, place: usize, held: Held) -> bool {
        let is_first_in_line = self.links[place].queue.is_empty();
        if is_first_in_line && self.judge(&held.fragment) != Verdict::Wait {
            self.effects.counters.cut_through += 1;
            self.deliver(at, place, &held);
            return true;
        }
        let bytes = held.frame.len() as u64;
        if self.held_bytes + bytes > self.config.inbound_bytes() {
            return false;
        }
        self.held_bytes += bytes;
        self.effects.counters.queued += 1;
        self.effects.counters.queue_bytes_taken += bytes;
        self.links[place].queue.push_back(held);
        if is_first_in_line {
            self.waiting.push_back(place);
            self.mind_room(at);
        }
        true
    }

    /// Endpoints may have room again: moves frames from card memory to them, the oldest first.
    pub(super) fn drain(&mut self, at: Time) {
        // A round that abandons a message frees room, so another round follows. There are at most as many rounds as
        // partly received messages.
        loop {
            self.has_room_back = false;
            self.drain_once(at);
            if !self.has_room_back {
                break;
            }
        }
        if self.waiting.is_empty() {
            self.timers.stop(Timer::Room, 0);
        }
    }

    /// Starts the room timer if messages wait for room and the timer is not running.
    fn mind_room(&mut self, at: Time) {
        if !self.waiting.is_empty() && !self.timers.is_running(Timer::Room, 0) {
            self.timers.start(Timer::Room, 0, at, self.config.room_timeout());
        }
    }

    /// Abandons incomplete messages that make no progress while other messages wait for their endpoint. (The attack: a
    /// card begins a long message on each of its channels and ends none. It would hold all slices and payload room of
    /// an endpoint.)
    pub(super) fn take_room_back(&mut self, now: Time) {
        let waiting = self.waiting.iter().filter_map(|place| self.links[*place].queue.front());
        let wanted: BTreeSet<u16> = waiting.map(|held| held.fragment.endpoint).collect();
        let room_timeout = self.config.room_timeout();
        let mut next: Option<Time> = None;
        for place in 0..self.links.len() {
            let is_holding = |joining: &Joining| {
                matches!(joining.sink, Sink::Endpoint { .. } | Sink::Peripheral(_))
                    && wanted.contains(&joining.fragment.endpoint)
            };
            let Some(mut joining) = self.links[place].joining.take_if(|joining| is_holding(joining)) else {
                continue;
            };
            let due = joining.visible + room_timeout;
            if due > now {
                next = next.into_iter().chain([due]).min();
            } else {
                self.lose(place, &mut joining, REFUSED_SEGMENT);
            }
            self.links[place].joining = Some(joining);
        }
        self.timers.set(Timer::Room, 0, next);
        self.drain(now);
    }

    fn drain_once(&mut self, at: Time) {
        // Checks each waiting frame once, and each queue once more.
        for _ in 0..self.waiting.len() {
            let Some(place) = self.waiting.pop_front() else { break };
            let failures = self.links[place].failures;
            while let Some(held) = self.links[place].queue.front() {
                if self.judge(&held.fragment) == Verdict::Wait {
                    break;
                }
                let Some(held) = self.links[place].queue.pop_front() else { break };
                let bytes = held.frame.len() as u64;
                self.held_bytes -= bytes;
                self.effects.counters.queue_bytes_freed += bytes;
                self.effects.attribute(held.message);
                let ready = self.work(self.firmware.receive, at, bytes, Span::ZERO);
                self.deliver(ready, place, &held);
            }
            if !self.links[place].queue.is_empty() {
                self.waiting.push_back(place);
            }
            if self.links[place].failures != failures {
                // The sender may have acknowledgements of all its frames and nothing more to send. So a report is
                // necessary.
                self.links[place].owes_report = true;
                self.send_owed(at, place);
            }
        }
    }

    /// Whether the endpoint of a frame can take it.
    fn judge(&self, fragment: &Fragment) -> Verdict {
        let endpoint = usize::from(fragment.endpoint);
        match self.ports.get(endpoint).and_then(Option::as_ref) {
            // The room was reserved with the first fragment, or the message was abandoned.
            _ if fragment.offset > 0 => Verdict::Now,
            Some(port) => port.endpoint.judge(fragment, &self.regions[endpoint]),
            None => match self.peripheral(endpoint) {
                Some(peripheral) => peripheral.judge(fragment),
                None => Verdict::Never(REFUSED_CLOSED),
            },
        }
    }

    /// Stores a frame that has room, or drops a frame that its endpoint never takes.
    fn deliver(&mut self, at: Time, place: usize, held: &Held) {
        if held.fragment.offset == 0 {
            self.end_reception(place);
            let verdict = self.judge(&held.fragment);
            self.begin_reception(at, place, &held.fragment, verdict);
        }
        self.join(at, place, held);
    }

    /// Reserves room for a message that begins.
    fn begin_reception(&mut self, at: Time, place: usize, fragment: &Fragment, verdict: Verdict) {
        let mut sink = Sink::Nowhere;
        let port = self.ports.get_mut(usize::from(fragment.endpoint)).and_then(Option::as_mut);
        match (verdict, port, fragment.purpose) {
            (Verdict::Now, Some(_), Purpose::Memory { .. }) => sink = Sink::Memory,
            (Verdict::Now, Some(GrimPort { endpoint, .. }), Purpose::Handler { .. }) => {
                let bytes = u64::from(fragment.bytes);
                let room = if bytes == 0 { Some(0) } else { endpoint.take_room(bytes) };
                if let Some(place) = room {
                    sink = Sink::Endpoint { promise: endpoint.queue.promise(1), place };
                }
            }
            (Verdict::Never(reason), ..) => self.fail(place, fragment, reason),
            (Verdict::Now, None, Purpose::Handler { .. }) => {
                if let Some(peripheral) = self.peripheral_mut(fragment.endpoint.into()) {
                    peripheral.take_room(fragment.bytes);
                    sink = Sink::Peripheral(Vec::with_capacity(fragment.bytes as usize));
                }
            }
            (Verdict::Now, None, _) | (Verdict::Wait, ..) => {
                debug_assert!(false, "the caller has found room")
            }
        }
        self.links[place].joining = Some(Joining { fragment: *fragment, joined: 0, sink, visible: at });
    }

    /// Counts a failed message. The sender gets the report with the acknowledgement of the last frame, or after it.
    fn fail(&mut self, place: usize, fragment: &Fragment, reason: u64) {
        let counters = &mut self.effects.counters;
        match reason {
            REFUSED_CLOSED => counters.closed += 1,
            REFUSED_MEMORY => counters.bad_memory += 1,
            REFUSED_SEGMENT => counters.unfinished += 1,
            _ => counters.no_payload_region += 1,
        }
        self.links[place].fail(fragment.owner, reason);
    }

    /// Adds the next fragment of a message that has begun.
    fn join(&mut self, at: Time, place: usize, held: &Held) {
        let bytes = held.payload_bytes();
        let link = &mut self.links[place];
        let Some(mut joining) = link.joining.take() else {
            // The message was abandoned.
            return;
        };
        let is_next = (held.fragment.offset, held.fragment.bytes) == (joining.joined, joining.fragment.bytes)
            && held.fragment.endpoint == joining.fragment.endpoint;
        if !is_next {
            self.effects.card().malformed += 1;
            link.joining = Some(joining);
            return self.end_reception(place);
        }
        if bytes > 0 {
            self.store(at, place, held, &mut joining, bytes);
        }
        joining.joined += bytes as u32;
        if joining.joined == joining.fragment.bytes {
            self.finish(place, held, joining);
        } else {
            self.links[place].joining = Some(joining);
            self.mind_room(at);
        }
    }

    /// Stores the payload of a frame.
    fn store(&mut self, at: Time, place: usize, held: &Held, joining: &mut Joining, bytes: usize) {
        if matches!(joining.sink, Sink::Peripheral(_)) {
            return self.store_beside(at, held, joining, bytes);
        }
        let index = usize::from(joining.fragment.endpoint);
        let port = self.ports.get(index).and_then(Option::as_ref);
        let ranges = port.and_then(|GrimPort { endpoint, .. }| {
            let (region, begin) = match (&joining.sink, joining.fragment.purpose) {
                (Sink::Endpoint { place, .. }, _) => endpoint.payload_place(*place, &self.regions[index])?,
                (Sink::Memory, Purpose::Memory { region, place }) => {
                    (endpoint.memory(region, &self.regions[index])?, place)
                }
                _ => return None,
            };
            let begin = begin + u64::from(joining.joined);
            region.holds(begin, bytes as u64).then(|| region.ranges(begin, bytes as u64))
        });
        let Some(ranges): Option<HostRanges> = ranges else {
            return self.lose(place, joining, REFUSED_NO_PAYLOAD);
        };
        let part = HEAD_BYTES..HEAD_BYTES + bytes;
        let visible = self.effects.dma_frame(at, &held.frame, part, ranges);
        joining.visible = joining.visible.max(visible);
        self.effects.card().bytes_received += bytes as u64;
    }

    /// Gives up the destination of a partly received message, whose memory is gone or is needed. The card drops the
    /// rest.
    fn lose(&mut self, place: usize, joining: &mut Joining, reason: u64) {
        let index = usize::from(joining.fragment.endpoint);
        match core::mem::replace(&mut joining.sink, Sink::Nowhere) {
            Sink::Endpoint { promise, place: begin } => {
                match self.ports.get_mut(index).and_then(Option::as_mut) {
                    Some(GrimPort { endpoint, .. }) => {
                        endpoint.queue.forgo(promise);
                        endpoint.give_room_back(begin);
                        self.has_room_back = true;
                    }
                    None => promise.void(),
                }
                self.fail(place, &joining.fragment, reason);
            }
            Sink::Memory => self.fail(place, &joining.fragment, REFUSED_MEMORY),
            Sink::Peripheral(_) => {
                if let Some(peripheral) = self.peripheral_mut(index) {
                    peripheral.give_room_back(joining.fragment.bytes);
                    self.has_room_back = true;
                }
                self.fail(place, &joining.fragment, reason);
            }
            Sink::Nowhere => {}
        }
    }

    /// Ends a completely received message.
    fn finish(&mut self, place: usize, held: &Held, joining: Joining) {
        if matches!(joining.sink, Sink::Peripheral(_)) {
            return self.finish_beside(place, held, joining);
        }
        let Joining { fragment, sink, visible, .. } = joining;
        let index = usize::from(fragment.endpoint);
        let Self { ports, effects, links, .. } = self;
        let port = ports.get_mut(index).and_then(Option::as_mut);
        let (promise, begin) = match (sink, &port) {
            (Sink::Endpoint { promise, place }, Some(_)) => (promise, place),
            (Sink::Endpoint { promise, .. }, None) => return promise.void(),
            (Sink::Memory, _) => {
                effects.counters.memory_received += 1;
                if let Some(message) = &held.message {
                    effects.interface.ledger_mut().complete(message, visible);
                }
                return;
            }
            (Sink::Nowhere | Sink::Peripheral(_), _) => return,
        };
        let (Some(GrimPort { endpoint, .. }), Purpose::Handler { handler, arguments }) =
            (port, fragment.purpose)
        else {
            return promise.void();
        };
        let link = &links[place];
        let source = Address { node: link.node, port: link.channel };
        let message = held.message.as_ref();
        let slice = Slice { source, interrupt: fragment.interrupt, acknowledge: false, message };
        let [first, second, third, fourth] = arguments.map(u64::from);
        let words = [
            payload_place(begin as u32, fragment.bytes),
            handler.into(),
            first | second << 32,
            third | fourth << 32,
        ];
        // Without payload the slice has one word less.
        let skipped = usize::from(fragment.bytes == 0);
        debug_assert!(words.len() == 2 + TAG_WORDS, "two words and the tag");
        let words = words.into_iter().skip(skipped);
        slice.store(visible, words, (index, &mut endpoint.queue, promise), effects);
        if fragment.bytes > 0 {
            endpoint.keep_room(begin);
        }
    }

    /// The sender has abandoned a link's last message. The card drops its frames in card memory and at the endpoint.
    /// The acknowledgement reports this to the sender, unless the message's failure was reported before.
    fn end_last(&mut self, place: usize) {
        let queue = &mut self.links[place].queue;
        let mut given_up = None;
        while let Some(held) = queue.pop_back() {
            if held.is_last() {
                // The message before it is complete.
                queue.push_back(held);
                break;
            }
            let bytes = held.frame.len() as u64;
            self.held_bytes -= bytes;
            self.effects.counters.queue_bytes_freed += bytes;
            if held.fragment.offset == 0 {
                given_up = Some(held.fragment.owner);
                break;
            }
        }
        let link = &mut self.links[place];
        if link.queue.is_empty() {
            self.waiting.retain(|other| *other != place);
        }
        if given_up.is_none() && link.queue.is_empty() {
            let joining = link.joining.as_ref();
            let is_told = |joining: &&Joining| matches!(joining.sink, Sink::Nowhere);
            given_up = joining.filter(|joining| !is_told(joining)).map(|joining| joining.fragment.owner);
            self.end_reception(place);
        }
        if let Some(owner) = given_up {
            self.links[place].fail(owner, REFUSED_SEGMENT);
        }
    }

    /// Drops the received part of an incomplete message.
    fn end_reception(&mut self, place: usize) {
        let Some(joining) = self.links[place].joining.take() else { return };
        let index = usize::from(joining.fragment.endpoint);
        if let (Sink::Peripheral(_), Some(peripheral)) = (&joining.sink, self.peripheral_mut(index)) {
            peripheral.give_room_back(joining.fragment.bytes);
            self.has_room_back = true;
        }
        let Sink::Endpoint { promise, place: begin } = joining.sink else { return };
        match self.ports.get_mut(index).and_then(Option::as_mut) {
            Some(GrimPort { endpoint, .. }) => {
                endpoint.queue.forgo(promise);
                endpoint.give_room_back(begin);
                self.has_room_back = true;
            }
            None => promise.void(),
        }
    }

    /// Closes an endpoint: the card drops waiting and later frames for it.
    pub(super) fn end_receptions(&mut self, now: Time, index: usize) {
        for place in 0..self.links.len() {
            let is_its = |joining: &&mut Joining| usize::from(joining.fragment.endpoint) == index;
            let Some(joining) = self.links[place].joining.as_mut().filter(is_its) else { continue };
            let fragment = joining.fragment;
            match core::mem::replace(&mut joining.sink, Sink::Nowhere) {
                Sink::Nowhere => continue,
                Sink::Endpoint { promise, .. } => promise.void(),
                // No program has the port of a peripheral.
                Sink::Memory | Sink::Peripheral(_) => {}
            }
            self.fail(place, &fragment, REFUSED_CLOSED);
        }
        self.drain(now);
    }
}
