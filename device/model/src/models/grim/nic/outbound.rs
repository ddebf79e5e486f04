//! Makes frames of outbound queues, and handles their acknowledgements, refusals and timeouts.

use alloc::vec::Vec;
use core::ops::Range;

use niclab_abi::grim::WINDOW_CHANNEL_PAYLOAD;
use niclab_abi::receive::REFUSED_SEGMENT;

use super::beside::channel_of;
use super::{Grim, GrimPort, Timer};
use crate::models::grim::channel::Channel;
use crate::models::grim::link::{Ending, FrameNumber, Kept, Link};
use crate::models::grim::wire::{Failures, Fragment, FrameKind, Header, seal};
use crate::nic::frame::SharedFrame;
use crate::nic::{FrameBytes, WindowRange};
use crate::parts::sequence::Sequence;
use crate::platform::trace_tag::TraceTag;
use crate::time::{Passage, Span, Time};

/// A frame whose payload the card is reading.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    place: usize,
    number: FrameNumber,
    passage: Passage,
    message: TraceTag,
}

impl Grim {
    /// When the card can make the next frame of a channel; none if it cannot.
    fn ready(&self, channel: usize) -> Option<Time> {
        let outgoing = self.channel(channel)?.queue.front()?;
        let place = self.places.get(&(outgoing.message.node, channel as u8));
        let can_send = place.is_none_or(|place| self.links[*place].can_send());
        let mut cutter = outgoing.cutter;
        let (bytes, _) = cutter.next(self.config.fragment_bytes());
        // A fragment is ready when its first byte was, but only after its last byte has arrived.
        outgoing.since(bytes.end).filter(|_| can_send)?;
        outgoing.since((bytes.start + 1).min(bytes.end))
    }

    /// Sends frames while the processor is idle.
    pub(super) fn pump(&mut self, now: Time) {
        loop {
            let idle_at = self.processor.idle_at();
            if idle_at > now {
                let channels = 0..self.config.channels as usize;
                let has_work = channels.into_iter().any(|channel| self.ready(channel).is_some());
                self.work_due = has_work.then_some(idle_at);
                return;
            }
            let mut schedule = self.schedule;
            let found =
                schedule.find(idle_at, |channel| self.ready(channel), |channel| self.config.weight(channel));
            self.schedule = schedule;
            let Some(found) = found else {
                self.work_due = None;
                return;
            };
            self.effects.counters.channels_scanned += u64::from(found.looked_at);
            self.send_frame(found.channel, self.schedule.span(found.looked_at));
        }
    }

    /// Makes the next frame of a channel, after the processor has searched for it.
    fn send_frame(&mut self, index: usize, looked: Span) {
        let most = self.config.fragment_bytes();
        let Some(channel) = self.channel_mut(index) else { return };
        let Some(outgoing) = channel.queue.front_mut() else { return };
        let whole = outgoing.whole.clone();
        let (message, tag, number) = (outgoing.message, outgoing.tag, outgoing.number);
        let is_first = outgoing.cutter.begun().is_none();
        let (bytes, is_last) = outgoing.cutter.next(most);
        let head_at = outgoing.since((bytes.start + 1).min(bytes.end)).unwrap_or_default();
        let tail_at = outgoing.since(bytes.end).unwrap_or_default();
        outgoing.forget(bytes.end);
        if is_last {
            channel.queue.pop_front();
        }
        let place = self.place_of(message.node, index as u8);
        let link = &mut self.links[place];
        let frame_number = link.frames.next_sequence();
        let payload_bytes = bytes.end - bytes.start;
        let header = Header {
            source: self.config.node,
            destination: message.node,
            channel: index as u8,
            kind: FrameKind::Message(Fragment {
                endpoint: message.endpoint,
                purpose: message.purpose,
                interrupt: message.interrupt,
                offset: bytes.start as u32,
                bytes: message.payload.bytes,
                owner: link.owner,
            }),
            asks: link.frames.asks(is_last),
            sequence: frame_number.get(),
        };
        link.begun = link.begun.wrapping_add(is_first.into());
        if is_last {
            link.endings.push_back(Ending { frame: frame_number, message: number });
            self.effects.card().messages_sent += 1;
        }
        self.effects.card().bytes_sent += payload_bytes;
        self.effects.counters.frames_sent += 1;
        self.effects.attribute(Some(tag));
        let head = self.work(self.firmware.send, head_at, payload_bytes, looked);
        let passage = Passage { head, tail: head.max(tail_at) };
        let mut kept = Kept { frame: SharedFrame::default(), message: Some(tag), is_report: false };
        if payload_bytes == 0 {
            kept.frame = header.emit().into();
            self.effects.frame(passage, kept.frame.clone(), kept.message);
        } else if let Some(payload) = whole {
            let mut frame = header.head();
            frame.extend_from_slice(payload.get(range_of(&bytes)).unwrap_or_default());
            seal(&mut frame);
            kept.frame = frame.into();
            self.effects.frame(passage, kept.frame.clone(), kept.message);
        } else {
            let token = self.effects.next_token();
            let begin = u64::from(message.payload.offset) + bytes.start;
            let range = WindowRange {
                window: WINDOW_CHANNEL_PAYLOAD,
                port: index as u32,
                bytes: begin..begin + payload_bytes,
            };
            self.effects.window_read(head, token, range, header.head());
            self.readings.push_back((token, Reading { place, number: frame_number, passage, message: tag }));
        }
        self.links[place].frames.send(passage.tail, kept);
        self.mind_timer(place);
    }

    /// Sends a frame whose payload has been read. It precedes all effects that were decided meanwhile.
    pub(super) fn on_payload(&mut self, token: u64, bytes: FrameBytes, is_whole: bool) {
        let place = self.readings.iter().position(|(known, _)| *known == token);
        let Some((_, reading)) = place.and_then(|place| self.readings.remove(place)) else { return };
        let Reading { place, number, passage, message } = reading;
        debug_assert!(is_whole, "the card's own window always exists");
        let mut bytes = bytes;
        seal(&mut bytes);
        let frame = SharedFrame::from(bytes);
        if let Some(kept) = self.links[place].frames.kept_mut(number) {
            kept.frame = frame.clone();
        }
        self.effects.frame_first(passage, frame, Some(message));
    }

    /// Sets a link's timer to the link's next deadline.
    fn mind_timer(&mut self, place: usize) {
        self.timers.set(Timer::Again, place, self.links[place].frames.deadline());
    }

    /// Retransmits frames of a link after an acknowledgement timeout or a pause.
    pub(super) fn send_again(&mut self, now: Time, place: usize) {
        let was_refused = self.links[place].frames.is_paused();
        let frames: Vec<Kept> = self.links[place].frames.expire(now).cloned().collect();
        let counters = &mut self.effects.counters;
        *(if was_refused { &mut counters.sent_after_refusal } else { &mut counters.repeated }) +=
            frames.len() as u64;
        for Kept { frame, message, .. } in frames {
            self.effects.attribute(message);
            let bytes = frame.len() as u64;
            let ready = self.work(self.firmware.send, now, bytes, Span::ZERO);
            self.effects.frame(ready, frame, message);
        }
        self.mind_timer(place);
    }

    /// The other card acknowledges frames, or refuses one for which it has no room.
    pub(super) fn on_answer(&mut self, now: Time, header: &Header, failures: &Failures) {
        let Some(&place) = self.places.get(&(header.source, header.channel)) else {
            self.effects.counters.stray_acknowledgements += 1;
            return;
        };
        let at = self.work(self.firmware.acknowledge, now, 0, Span::ZERO);
        let number = Sequence::new(header.sequence);
        let link = &mut self.links[place];
        let is_refusal = matches!(header.kind, FrameKind::Refusal(_));
        let has_moved = if is_refusal {
            self.effects.counters.refusals_received += 1;
            link.frames.on_refused(at, number)
        } else {
            link.frames.on_acknowledged(at, number)
        };
        if !has_moved {
            self.effects.counters.stray_acknowledgements += u64::from(!is_refusal);
            return self.mind_timer(place);
        }
        let is_line_due = self.count_left_messages(place);
        self.tell(at, place, failures, is_line_due);
        self.send_owed(at, place);
        self.mind_timer(place);
        self.pump(now);
    }

    /// Counts messages as left after a link's window moved. Returns whether the card must write a status line for
    /// them.
    fn count_left_messages(&mut self, place: usize) -> bool {
        let Self { links, ports, peripherals, .. } = self;
        let link = &mut links[place];
        let oldest = link.frames.oldest();
        let Some(channel) = channel_of(ports, peripherals, link.channel.into()) else {
            link.endings.clear();
            return false;
        };
        let mut is_line_due = false;
        while let Some(ending) = link.endings.front().filter(|ending| oldest.is_after(ending.frame)) {
            is_line_due |= channel.leave(ending.message);
            link.endings.pop_front();
        }
        is_line_due
    }

    /// Writes the status line of a channel's program: failed messages of the other card, or any other change.
    pub(super) fn tell(&mut self, at: Time, place: usize, failures: &Failures, is_line_due: bool) {
        let Self { links, ports, effects, .. } = self;
        let link = &mut links[place];
        let refused = link.on_failures(failures);
        effects.card().malformed += u64::from(refused.is_none());
        let refused = refused.unwrap_or(0);
        effects.attribute(None);
        let Some(GrimPort { channel, .. }) =
            ports.get_mut(usize::from(link.channel)).and_then(Option::as_mut)
        else {
            return self.tell_beside(at, place, refused, is_line_due);
        };
        if refused == 0 && !is_line_due {
            return;
        }
        // Wall time decides the order of this line and the lines of later posts on the bus.
        effects.card().unordered += 1;
        if refused > 0 {
            // One status line for all failures.
            channel.page.line.refused += u64::from(refused) - 1;
            channel.page.refuse(at, failures.reason.into(), effects);
        } else {
            channel.page.write(at, effects);
        }
    }

    /// Sends pending voids and reports, which are numbered frames, once the window has room.
    pub(super) fn send_owed(&mut self, now: Time, place: usize) {
        while let Some(kind) = self.links[place].take_owed() {
            let number = self.links[place].frames.next_sequence();
            let frame = SharedFrame::from(self.told_in_order(place, kind, number).emit());
            self.effects.attribute(None);
            let ready = self.work(self.firmware.send, now, 0, Span::ZERO);
            self.effects.frame(ready, frame.clone(), None);
            let kept = Kept { frame, message: None, is_report: kind != FrameKind::Void };
            self.links[place].frames.send(ready, kept);
        }
        self.mind_timer(place);
    }

    /// Header of a numbered frame without message: a void or a report.
    fn told_in_order(&self, place: usize, kind: FrameKind, number: FrameNumber) -> Header {
        let Link { node: destination, channel, .. } = self.links[place];
        let source = self.config.node;
        Header { source, destination, channel, kind, asks: true, sequence: number.get() }
    }

    /// Abandons a message that its program has stopped pushing, and reports this to the program once. If a part of it
    /// was sent, the other card reports it, because it may have refused the message before.
    pub(super) fn give_up(&mut self, now: Time, index: usize) {
        let Some(GrimPort { channel, .. }) = self.ports.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let Some((message, has_begun)) = channel.give_up() else { return };
        self.effects.attribute(None);
        self.effects.counters.stalled += 1;
        if has_begun {
            // The status line returns the room of the payload.
            channel.page.write(now, &mut self.effects);
            let place = self.place_of(message.node, index as u8);
            self.links[place].owes_void = true;
            self.send_owed(now, place);
        } else {
            channel.page.refuse(now, REFUSED_SEGMENT, &mut self.effects);
        }
    }

    /// The program of a channel has ended: its unacknowledged frames become voids, so that no receiver waits for the
    /// rest.
    pub(super) fn void_messages(&mut self, now: Time, index: usize, channel: &Channel) {
        self.effects.card().discarded_at_close += channel.queue.len() as u64;
        let begun = channel.queue.front().filter(|outgoing| outgoing.cutter.begun().is_some());
        let begun = begun.map(|outgoing| self.place_of(outgoing.message.node, index as u8));
        for place in 0..self.links.len() {
            if usize::from(self.links[place].channel) != index {
                continue;
            }
            let header = self.told_in_order(place, FrameKind::Void, Sequence::ZERO);
            let link = &mut self.links[place];
            self.effects.counters.voided += link.endings.len() as u64;
            link.endings.clear();
            for (number, kept) in link.frames.all_kept_mut().filter(|(_, kept)| !kept.is_report) {
                kept.frame = Header { sequence: number.get(), ..header }.emit().into();
                kept.message = None;
            }
            link.owes_void |= begun == Some(place);
            link.end_owner();
            self.send_owed(now, place);
        }
    }
}

/// A range of payload bytes as a range in memory.
fn range_of(bytes: &Range<u64>) -> Range<usize> {
    bytes.start as usize..bytes.end as usize
}
