//! Messages between cards. Outgoing messages are cut into frames, sent within the window of the link to each other
//! card, and kept until they are acknowledged. Incoming frames are put in order by the link, joined, and stored in
//! memory.
//!
//! Of a frame the card keeps only the location of its data, and reads the data again to retransmit the frame. So memory
//! is the sender's buffer until the program is notified that the message has left it. If the memory disappears in the
//! meantime, an empty frame replaces the other one. So the link continues, and the receiver ends the message.
//!
//! The transport knows nothing of commands, entries and events. It asks its user where an arriving message goes, and
//! notifies the user when a message has ended or has left ([`MessageUser`]).

mod messages;

pub(super) use self::messages::{Arrived, Beginning, MessageUser, Outgoing, Owner, RegionPart};

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

use niclab_abi::matching::{RESULT_BAD_REGION, RESULT_NO_ROOM, RESULT_NO_TARGET, RESULT_OK};

use crate::fabric::ethernet;
use crate::fabric::frame_head::FrameHead;
use crate::models::matching::config::{Config, PORTS};
use crate::models::matching::counters::Effects;
use crate::models::matching::wire::{
    FIRST_HEAD_BYTES, Frame, FrameKind, Header, Link, MORE_HEAD_BYTES, Operation, WireError, head, seal,
};
use crate::nic::FrameBytes;
use crate::nic::frame::{Data, Piece, SharedFrame};
use crate::parts::effects::Machine;
use crate::parts::fragments::{Cutter, Joiner};
use crate::parts::go_back_n::{self, GoBackN};
use crate::parts::sequence::Sequence;
use crate::parts::timers::{TimerName, Timers};
use crate::platform::trace_tag::TraceTag;
use crate::time::{Span, Time};

/// Maximum number of messages of a port that wait for one other card. A card has fewer commands in flight, and each of
/// them has one answer. Attack: a network that forges requests without end would fill the card's memory. Ours: a bound.
const MAX_QUEUED: usize = 4_096;

/// A message that was not sent completely.
#[derive(Clone, Copy, Debug)]
struct Sending {
    outgoing: Outgoing,
    cutter: Cutter,
}

/// The record of a frame until it is acknowledged.
#[derive(Clone, Copy, Debug)]
struct Sent {
    sequence: Sequence<32>,
    kind: FrameKind,
    port: usize,
    number: u32,
    memory: RegionPart,
    message: Option<TraceTag>,
}

/// A message that was sent completely, but not acknowledged completely.
#[derive(Clone, Copy, Debug)]
struct Finished {
    /// The number of its last frame.
    sequence: Sequence<32>,
    port: usize,
    number: u32,
    owner: Owner,
}

/// A message that has begun to arrive.
#[derive(Clone, Copy, Debug)]
struct Reception {
    header: Header,
    message: Option<TraceTag>,
    joiner: Joiner,
    /// The port of this card to which the message belongs.
    port: usize,
    owner: Owner,
    /// Memory for the part of the message that is stored.
    memory: RegionPart,
    /// When the data stored last is visible.
    visible: Time,
}

/// A frame whose data is being read.
#[derive(Clone, Debug)]
struct Reading {
    place: usize,
    link: Link,
    kind: FrameKind,
    port: usize,
    number: u32,
    at: Time,
    message: Option<TraceTag>,
}

/// The state for another card.
#[derive(Clone, Debug)]
struct Peer {
    node: u16,
    link: GoBackN<Sent>,
    /// By port; the first message of each port is being sent.
    sending: [VecDeque<Sending>; PORTS],
    /// The port that sends next.
    turn: usize,
    /// Number of messages to the card so far, and so the number of the next one.
    messages: u32,
    finished: VecDeque<Finished>,
    /// By the sending port of the other card.
    receiving: [Option<Reception>; PORTS],
    /// Messages, by port and number, whose memory disappeared during a read.
    dead: Vec<(usize, u32)>,
    /// Frames sent, including acknowledgements.
    frames: u64,
}

/// The timers of a card; each other card has one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Frames are not acknowledged: the card sends them again, in case they or their acknowledgements were lost.
    Retransmission,
}

impl TimerName for Timer {
    const ALL: &'static [Self] = &[Self::Retransmission];
}

/// The transport of a card, with the state for each other card that it has exchanged frames with.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    node: u16,
    nodes: u32,
    mtu_bytes: usize,
    link: go_back_n::Config,
    places: BTreeMap<u16, usize>,
    peers: Vec<Peer>,
    timers: Timers<Timer>,
    /// Unanswered reads, by token.
    reads: VecDeque<(u64, Reading)>,
}

/// Duration of a window of full frames, there and back. A frame may take this long before it can count as lost. The
/// card does not know the links. Assumed: they are as fast as its own bus.
fn window_span(config: &Config) -> Span {
    let frame = config.profile.bus.dma_read.occupancy(config.mtu_bytes.into());
    frame.times(2 * u64::from(config.window_frames))
}

/// The kind of the frame that replaces a frame without available data.
const fn without_data(kind: &FrameKind) -> FrameKind {
    match *kind {
        // The initiator of a get waits for its answer.
        FrameKind::First(header) if matches!(header.operation, Operation::Reply) => {
            FrameKind::First(Header { bytes: 0, result: RESULT_BAD_REGION as u8, ..header })
        }
        FrameKind::First(header) => {
            FrameKind::Void { source_port: header.source_port, message: header.message }
        }
        FrameKind::More { source_port, message, .. } => FrameKind::Void { source_port, message },
        kind => kind,
    }
}

impl Transport {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            node: config.node,
            nodes: config.nodes,
            mtu_bytes: config.mtu_bytes as usize,
            link: go_back_n::Config {
                window_frames: config.window_frames,
                first_wait: config.retransmit_first + window_span(config),
                longest_wait: config.retransmit_most + window_span(config),
                // Links refuse no frame. A receiver without room for a message says so after the message has arrived.
                first_pause: config.retransmit_first,
            },
            places: BTreeMap::new(),
            peers: Vec::new(),
            timers: Timers::default(),
            reads: VecDeque::new(),
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.timers.next()
    }

    /// The index of a node's card among the peers. Nodes are those of the cluster, so their number is bounded.
    fn place_of(&mut self, node: u16) -> usize {
        *self.places.entry(node).or_insert_with(|| {
            self.peers.push(Peer {
                node,
                link: GoBackN::new(self.link),
                sending: Default::default(),
                turn: 0,
                messages: 0,
                finished: VecDeque::new(),
                receiving: Default::default(),
                dead: Vec::new(),
                frames: 0,
            });
            self.peers.len() - 1
        })
    }
}

// Outgoing messages.
impl Transport {
    /// Queues a message and sends what the window allows.
    pub(super) fn send(&mut self, mut outgoing: Outgoing, user: &mut impl MessageUser) {
        let Outgoing { node, ready, owner, .. } = outgoing;
        let place = self.place_of(node);
        let peer = &mut self.peers[place];
        let port = usize::from(outgoing.header.source_port) % PORTS;
        let sending = &mut peer.sending[port];
        if sending.len() >= MAX_QUEUED {
            user.effects().counters.card.malformed += 1;
            user.on_left(ready, port, owner, RESULT_NO_ROOM);
            return;
        }
        outgoing.header.message = peer.messages;
        peer.messages = peer.messages.wrapping_add(1);
        sending.push_back(Sending { outgoing, cutter: Cutter::new(outgoing.memory.bytes) });
        self.pump(ready, place, user);
    }

    /// Sends frames to a card, in turn from each port, while the window has room.
    fn pump(&mut self, now: Time, place: usize, user: &mut impl MessageUser) {
        loop {
            let peer = &mut self.peers[place];
            if !peer.link.can_send() {
                break;
            }
            let turn = peer.turn;
            let ports = (0..PORTS).map(|port| (turn + port) % PORTS);
            let Some(port) = ports.into_iter().find(|port| !peer.sending[*port].is_empty()) else { break };
            peer.turn = (port + 1) % PORTS;
            self.send_frame(now, place, port, user);
        }
        self.mind_timer(place);
    }

    /// Sets the timer of a card's link to the link's deadline.
    fn mind_timer(&mut self, place: usize) {
        self.timers.set(Timer::Retransmission, place, self.peers[place].link.deadline());
    }

    /// Sends the next frame of a port's first message, which must exist.
    fn send_frame(&mut self, now: Time, place: usize, port: usize, user: &mut impl MessageUser) {
        let peer = &mut self.peers[place];
        let Some(Sending { outgoing, cutter }) = peer.sending[port].front_mut() else {
            debug_assert!(false, "the port that sends next has a message");
            return;
        };
        let Outgoing { header, memory, ready, message, owner, .. } = *outgoing;
        let (source_port, number) = (header.source_port, header.message);
        let (kind, head_bytes) = match cutter.begun() {
            None => (FrameKind::First(header), FIRST_HEAD_BYTES),
            Some(offset) => (FrameKind::More { source_port, message: number, offset }, MORE_HEAD_BYTES),
        };
        let is_first = cutter.begun().is_none();
        let is_there = !cutter.has_bytes_left() || user.region(port, memory.region).is_some();
        let most = if is_there { (self.mtu_bytes + ethernet::HEADER_BYTES - head_bytes) as u64 } else { 0 };
        let (bytes, is_end) = cutter.next(most);
        let kind = if is_there { kind } else { without_data(&kind) };
        let is_last = !is_there || is_end;
        let kept = Sent {
            sequence: peer.link.next_sequence(),
            kind,
            port,
            number,
            memory: RegionPart {
                region: memory.region,
                offset: memory.offset.saturating_add(bytes.start),
                bytes: bytes.end - bytes.start,
            },
            message,
        };
        // Requests and acknowledgements are not messages of programs.
        let is_counted = matches!(header.operation, Operation::Put | Operation::Reply);
        if is_last {
            peer.sending[port].pop_front();
        }
        let counters = &mut user.effects().counters.card;
        if is_first && matches!(kind, FrameKind::Void { .. }) {
            // No frame of this message was sent, so the receiver needs no notice.
            counters.discarded_at_close += 1;
            return;
        }
        let asks = is_last || peer.link.wants_acknowledgement();
        if is_last {
            peer.finished.push_back(Finished { sequence: kept.sequence, port, number, owner });
            counters.messages_sent += u64::from(is_counted);
        }
        counters.bytes_sent += kept.memory.bytes;
        let at = self.emit(ready.max(now), place, &kept, asks, user);
        self.peers[place].link.send(at, kept);
    }

    /// Sends a frame, or first reads its data. Returns when the frame is ready for the network.
    fn emit(
        &mut self,
        ready: Time,
        place: usize,
        sent: &Sent,
        asks: bool,
        user: &mut impl MessageUser,
    ) -> Time {
        let peer = &mut self.peers[place];
        let is_dead = peer.dead.contains(&(sent.port, sent.number));
        let link = self.link_head(place, sent.sequence, asks);
        user.effects().attribute(sent.message);
        let RegionPart { region, offset, bytes } = sent.memory;
        let ranges = user.region(sent.port, region).filter(|_| bytes > 0 && !is_dead);
        let Some(ranges) = ranges.map(|region| region.ranges(offset, bytes)) else {
            let kind = if bytes == 0 { sent.kind } else { without_data(&sent.kind) };
            return transmit(ready, head(&link, &kind, 0), sent.message, user.effects());
        };
        let effects = user.effects();
        let into = head(&link, &sent.kind, 0);
        let frame_bytes = into.len() as u64 + bytes;
        let token = effects.next_token();
        let read = effects.dma_read(ready, token, ranges, into);
        let at = effects.work(Machine::Transmit, read, frame_bytes).end;
        let Sent { kind, port, number, message, .. } = *sent;
        self.reads.push_back((token, Reading { place, link, kind, port, number, at, message }));
        at
    }

    /// The head of the next frame to a card.
    fn link_head(&mut self, place: usize, sequence: Sequence<32>, asks: bool) -> Link {
        let peer = &mut self.peers[place];
        peer.frames += 1;
        Link {
            destination: peer.node,
            source: self.node,
            sequence: sequence.get(),
            acknowledged: peer.link.acknowledge().get(),
            asks,
        }
    }

    /// The data of a read, after a frame's head. The frame precedes all outputs that were decided after the read.
    /// Returns data that was not read for the transport.
    pub(super) fn on_data(
        &mut self,
        token: u64,
        mut frame: FrameBytes,
        is_whole: bool,
        user: &mut impl MessageUser,
    ) -> Option<FrameBytes> {
        let read = self.reads.iter().position(|(read, _)| *read == token);
        let Some((_, reading)) = read.and_then(|read| self.reads.remove(read)) else { return Some(frame) };
        if !is_whole {
            self.on_memory_gone(&reading, user);
            frame = head(&reading.link, &without_data(&reading.kind), 0);
        }
        seal(&mut frame);
        user.effects().frame_first(reading.at, frame, reading.message);
        None
    }

    /// The data of a read may stay in guest memory while the frame is in flight.
    pub(super) fn on_borrowed(&mut self, token: u64, into: FrameBytes, user: &mut impl MessageUser) {
        let read = self.reads.iter().position(|(read, _)| *read == token);
        let Some((_, reading)) = read.and_then(|read| self.reads.remove(read)) else {
            debug_assert!(false, "only data that follows a head is borrowed");
            return;
        };
        user.effects().borrowed_frame_first(reading.at, into, reading.message);
    }

    /// A region's memory does not belong to the guest any more. The message ends with what was sent so far.
    fn on_memory_gone(&mut self, reading: &Reading, user: &mut impl MessageUser) {
        let Reading { place, port, number, at, .. } = *reading;
        let peer = &mut self.peers[place];
        if peer.dead.contains(&(port, number)) {
            return;
        }
        peer.dead.push((port, number));
        let is_it = |sending: &&mut Sending| sending.outgoing.header.message == number;
        let owner = match peer.sending[port].front_mut().filter(is_it) {
            // The rest of the message is a frame that ends it.
            Some(Sending { outgoing, .. }) => {
                outgoing.memory.region = 0;
                Some(outgoing.owner)
            }
            None => {
                let mut finished = peer.finished.iter();
                finished.find(|it| (it.port, it.number) == (port, number)).map(|it| it.owner)
            }
        };
        if let Some(owner) = owner {
            user.on_left(at, port, owner, RESULT_BAD_REGION);
        }
    }

    /// Another card has received all frames of its link before `number`.
    fn on_acknowledged(
        &mut self,
        now: Time,
        place: usize,
        number: Sequence<32>,
        user: &mut impl MessageUser,
    ) {
        let peer = &mut self.peers[place];
        if !peer.link.on_acknowledged(now, number) {
            return;
        }
        if peer.link.deadline().is_none() {
            peer.dead.clear();
        }
        while let Some(&Finished { port, number: message, owner, .. }) =
            peer.finished.front().filter(|it| number.is_after(it.sequence))
        {
            peer.finished.pop_front();
            // None of its frames is sent again. Attack: a program removes the memory of one message after the other,
            // and sends without a pause. If the card remembered each message until the link is idle, its memory would
            // fill.
            peer.dead.retain(|dead| *dead != (port, message));
            user.on_left(now, port, owner, RESULT_OK);
        }
    }

    /// Sends an acknowledgement in a frame of its own.
    fn acknowledge(&mut self, now: Time, place: usize, effects: &mut Effects) {
        let link = self.link_head(place, Sequence::ZERO, false);
        effects.counters.card.acknowledgements_sent += 1;
        effects.attribute(None);
        transmit(now, head(&link, &FrameKind::Acknowledgement, 0), None, effects);
    }

    /// Sends the frames of those links again whose timers have expired.
    pub(super) fn on_timeout(&mut self, now: Time, user: &mut impl MessageUser) {
        while let Some((Timer::Retransmission, place)) = self.timers.take_expired(now) {
            let frames: Vec<Sent> = self.peers[place].link.expire(now).copied().collect();
            user.effects().counters.retransmissions += frames.len() as u64;
            let last = frames.len().saturating_sub(1);
            for (count, sent) in frames.iter().enumerate() {
                // The first frame requests an acknowledgement, too. If a short queue passes only the first frames, the
                // last one's request would never arrive.
                self.emit(now, place, sent, count == 0 || count == last, user);
            }
            self.mind_timer(place);
        }
    }
}

// Incoming frames.
impl Transport {
    /// A complete frame from the network.
    pub(super) fn on_frame(
        &mut self,
        now: Time,
        frame: &SharedFrame,
        message: Option<TraceTag>,
        user: &mut impl MessageUser,
    ) {
        let take = |data| Data::Here(Piece { frame, bytes: data });
        self.on_parsed(now, Frame::parse(frame), frame.len(), take, message, user);
    }

    /// A valid frame from the network, whose data is elsewhere.
    pub(super) fn on_borrowed_frame(
        &mut self,
        now: Time,
        frame: FrameHead<'_>,
        message: Option<TraceTag>,
        user: &mut impl MessageUser,
    ) {
        let FrameHead { bytes, frame_bytes } = frame;
        self.on_parsed(
            now,
            Frame::parse_sound(bytes, frame_bytes),
            frame_bytes,
            Data::Borrowed,
            message,
            user,
        );
    }

    /// A frame of `frame_bytes` bytes; `data` gives the location of the bytes in a range of it.
    fn on_parsed<'a>(
        &mut self,
        now: Time,
        parsed: Result<Frame, WireError>,
        frame_bytes: usize,
        data_in: impl FnOnce(Range<usize>) -> Data<'a>,
        message: Option<TraceTag>,
        user: &mut impl MessageUser,
    ) {
        let effects = user.effects();
        effects.attribute(message);
        let Frame { link, kind, data } = match parsed {
            Ok(Frame { link, .. })
                if link.destination != self.node || u32::from(link.source) >= self.nodes =>
            {
                effects.counters.card.malformed += 1;
                return;
            }
            Ok(parsed) => parsed,
            Err(WireError::Foreign) => {
                effects.counters.card.foreign_frames += 1;
                return;
            }
            Err(WireError::Check) => {
                effects.counters.card.damaged += 1;
                return;
            }
            Err(_) => {
                effects.counters.card.malformed += 1;
                return;
            }
        };
        let data = data_in(data);
        let checked = effects.work(Machine::Receive, now, frame_bytes as u64).end;
        let place = self.place_of(link.source);
        let frames_before = self.peers[place].frames;
        self.on_acknowledged(checked, place, Sequence::new(link.acknowledged), user);
        if !matches!(kind, FrameKind::Acknowledgement) {
            match self.peers[place].link.receive(Sequence::new(link.sequence)) {
                go_back_n::Reception::Next => {
                    user.effects().attribute(message);
                    self.deliver(checked, place, &kind, data, message, user);
                }
                go_back_n::Reception::Duplicated | go_back_n::Reception::Ahead => {
                    user.effects().counters.out_of_order += 1;
                }
            }
        }
        self.pump(checked, place, user);
        // A frame that was sent in the meantime carries the acknowledgement.
        if link.asks && self.peers[place].frames == frames_before {
            self.acknowledge(checked, place, user.effects());
        }
    }

    /// Processes the next frame of a link.
    fn deliver(
        &mut self,
        now: Time,
        place: usize,
        kind: &FrameKind,
        data: Data<'_>,
        message: Option<TraceTag>,
        user: &mut impl MessageUser,
    ) {
        match *kind {
            FrameKind::First(header) => self.on_first(now, place, header, data, message, user),
            FrameKind::More { source_port, message, offset } => {
                let reception = self.reception_mut(place, source_port);
                let is_next =
                    |it: &&mut Reception| it.header.message == message && it.joiner.joined() == offset;
                if reception.filter(is_next).is_some() {
                    self.take_data(now, place, source_port, data, user);
                } else {
                    user.effects().counters.card.malformed += 1;
                }
            }
            FrameKind::Void { source_port, message } => {
                let is_it = |it: &&mut Reception| it.header.message == message;
                if self.reception_mut(place, source_port).filter(is_it).is_some() {
                    self.end_reception(now, place, source_port, RESULT_BAD_REGION, user);
                }
            }
            FrameKind::Acknowledgement => {}
        }
    }

    fn reception_mut(&mut self, place: usize, source_port: u8) -> Option<&mut Reception> {
        self.peers[place].receiving.get_mut(usize::from(source_port))?.as_mut()
    }

    /// The first frame of a message.
    fn on_first(
        &mut self,
        now: Time,
        place: usize,
        header: Header,
        data: Data<'_>,
        message: Option<TraceTag>,
        user: &mut impl MessageUser,
    ) {
        let source_port = header.source_port;
        if header.source_node != self.peers[place].node || usize::from(source_port) >= PORTS {
            user.effects().counters.card.malformed += 1;
            return;
        }
        // A card sends the messages of a port one after the other. So an earlier message that has not ended never will.
        self.end_reception(now, place, source_port, RESULT_BAD_REGION, user);
        let Beginning { owner, memory, ready, answer } = user.on_begin(now, &header, message);
        if let Some(answer) = answer {
            self.send(answer, user);
        }
        if matches!(header.operation, Operation::Get | Operation::Ack) {
            return;
        }
        self.peers[place].receiving[usize::from(source_port)] = Some(Reception {
            header,
            message,
            joiner: Joiner::new(header.data_bytes()),
            port: usize::from(header.target_port),
            owner,
            memory,
            visible: ready,
        });
        self.take_data(ready, place, source_port, data, user);
    }

    /// Stores the next data of a message, and ends the message after its last data.
    fn take_data(
        &mut self,
        now: Time,
        place: usize,
        source_port: u8,
        data: Data<'_>,
        user: &mut impl MessageUser,
    ) {
        let Some(reception) = self.reception_mut(place, source_port) else {
            debug_assert!(false, "the data belongs to a message that has begun");
            return;
        };
        let arrived = reception.joiner.join(data.len() as u64);
        let RegionPart { region, offset, bytes } = reception.memory;
        let stored = bytes.min(arrived.end).saturating_sub(arrived.start);
        if stored > 0
            && let Some(region) = user.region(reception.port, region)
        {
            let ranges = region.ranges(offset.saturating_add(arrived.start), stored);
            let effects = user.effects();
            let ready = effects.work(Machine::Store, now, stored).end;
            let at = effects.dma_data(ready, &data, stored as usize, ranges);
            effects.counters.card.bytes_received += stored;
            reception.visible = reception.visible.max(at);
        }
        if reception.joiner.is_whole() {
            self.end_reception(now, place, source_port, RESULT_OK, user);
        }
    }

    /// A message has arrived completely, or never will.
    fn end_reception(
        &mut self,
        now: Time,
        place: usize,
        source_port: u8,
        result: u32,
        user: &mut impl MessageUser,
    ) {
        let receiving = self.peers[place].receiving.get_mut(usize::from(source_port));
        let Some(reception) = receiving.and_then(Option::take) else { return };
        let Reception { header, message, port, owner, memory, joiner, visible } = reception;
        if owner == Owner::Unowned {
            return;
        }
        let is_success = result == RESULT_OK;
        let bytes = if is_success { memory.bytes } else { memory.bytes.min(joiner.joined()) };
        let arrived = Arrived { owner, port, header, message, bytes, result };
        if let Some(answer) = user.on_end(now.max(visible), arrived) {
            self.send(answer, user);
        }
    }
}

// Closing regions and ports. After the reply nothing touches their memory, and all waiting programs are notified.
impl Transport {
    /// Closes a port that the user has already forgotten.
    pub(super) fn close_port(&mut self, now: Time, port: usize, user: &mut impl MessageUser) {
        for (place, source_port) in self.receptions_of(port, |_| true) {
            let Some(reception) = self.give_up(place, source_port) else { continue };
            let Reception { header, message, owner, .. } = reception;
            let arrived = Arrived { owner, port, header, message, bytes: 0, result: RESULT_NO_TARGET };
            if let Some(answer) = user.on_end(now, arrived) {
                self.send(answer, user);
            }
        }
        for place in 0..self.peers.len() {
            let sending = &mut self.peers[place].sending[port];
            let before = sending.len();
            // An empty frame ends a message that has begun. An initiator that waits for an answer gets one.
            sending.retain(|Sending { outgoing, cutter }| {
                let is_answer = matches!(outgoing.header.operation, Operation::Ack | Operation::Reply);
                cutter.begun().is_some() || is_answer
            });
            let discarded = (before - sending.len()) as u64;
            user.effects().counters.card.discarded_at_close += discarded;
            self.pump(now, place, user);
        }
    }

    /// A region of a port is closed: ends the messages that arrive for it.
    pub(super) fn close_region(&mut self, now: Time, port: usize, region: u32, user: &mut impl MessageUser) {
        for (place, source_port) in self.receptions_of(port, |it| it.memory.is_in(region)) {
            let Some(reception) = self.peers[place].receiving[source_port] else { continue };
            self.end_reception(now, place, source_port as u8, RESULT_BAD_REGION, user);
            self.peers[place].receiving[source_port] = Some(reception);
            self.give_up(place, source_port);
        }
    }

    /// Sends the messages that began to wait in the meantime.
    pub(super) fn pump_all(&mut self, now: Time, user: &mut impl MessageUser) {
        (0..self.peers.len()).for_each(|place| self.pump(now, place, user));
    }

    /// The host was reset, so pending reads of its memory are forgotten.
    pub(super) fn on_host_reset(&mut self) {
        self.reads.clear();
    }

    /// Messages with an owner that arrive for a port: index and port of the sending card.
    fn receptions_of(&self, port: usize, is_meant: impl Fn(&Reception) -> bool) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for (place, peer) in self.peers.iter().enumerate() {
            for (source_port, reception) in peer.receiving.iter().enumerate() {
                let of_port = |it: &&Reception| it.port == port && it.owner != Owner::Unowned;
                if reception.as_ref().filter(of_port).is_some_and(&is_meant) {
                    found.push((place, source_port));
                }
            }
        }
        found
    }

    /// Gives up a message. Its further data is not stored. Returns the previous reception.
    fn give_up(&mut self, place: usize, source_port: usize) -> Option<Reception> {
        let reception = self.peers[place].receiving.get_mut(source_port)?.as_mut()?;
        let before = *reception;
        (reception.owner, reception.memory) = (Owner::Unowned, RegionPart::NONE);
        Some(before)
    }
}

/// Seals a frame without data and sends it. Returns when it is ready for the network.
fn transmit(ready: Time, mut frame: FrameBytes, message: Option<TraceTag>, effects: &mut Effects) -> Time {
    let at = effects.work(Machine::Transmit, ready, frame.len() as u64).end;
    seal(&mut frame);
    effects.frame(at, frame, message);
    at
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use niclab_abi::ToBytes;
    use niclab_abi::control::{OP_PORT_OPEN, PortOpen, Request};
    use niclab_abi::matching::COMMAND_PUT;
    use niclab_abi::region::{Extent, OP_REGION_OPEN, RegionOpen};

    use super::*;
    use crate::models::matching::nic::Match;
    use crate::nic::alone::Alone;
    use crate::nic::{Input, Nic, Output, PageStore};
    use crate::platform::profile::Profile;

    fn bytes_of<T: ToBytes>(value: &T) -> Vec<u8> {
        let mut bytes = vec![0; T::BYTES];
        value.to_bytes(&mut bytes).unwrap();
        bytes
    }

    fn control(nic: &mut Alone<Match>, operation: u32, body: &[u8]) {
        let mut request = bytes_of(&Request { operation, body_bytes: body.len() as u32 });
        request.extend_from_slice(body);
        nic.handle(Time::ZERO, Input::Control { token: 1, request: &request });
        while nic.poll_output().is_some() {}
    }

    /// Attack: a program whose memory is gone sends without a pause, so that the link is never idle.
    #[test]
    fn message_without_memory_is_forgotten_with_its_last_frame() {
        let mut nic = Alone::new(Match::new(Config::new(0, 2, Profile::default())).unwrap());
        let open = PortOpen {
            slices: 1_024,
            slices_address: 0x1_0000,
            status_address: 0x1000,
            ..PortOpen::default()
        };
        control(&mut nic, OP_PORT_OPEN, &bytes_of(&open));
        let mut region = bytes_of(&RegionOpen { port: 0, extents: 1, bytes: 64, reserved: 0 });
        region.extend(bytes_of(&Extent { address: 0x10_0000, bytes: 64 }));
        control(&mut nic, OP_REGION_OPEN, &region);
        const MESSAGES: u32 = 200;
        for message in 0..MESSAGES {
            let words = [0, 0, 0, 1 << 48 | 1 << 16, 0, 64, 0, 0, 0, 0];
            assert!(nic.accepts_store(0));
            nic.handle(Time::ZERO, Input::PageStore(PageStore { port: 0, code: COMMAND_PUT, words }));
            while let Some(output) = nic.poll_output() {
                if let Output::DmaRead { token, into, .. } = output {
                    nic.handle(Time::ZERO, Input::DmaData { token, bytes: into, is_whole: false });
                }
            }
            // All but the last frame have arrived.
            let link = Link { destination: 0, source: 1, sequence: 0, acknowledged: message, asks: false };
            let mut frame = head(&link, &FrameKind::Acknowledgement, 0);
            seal(&mut frame);
            nic.handle(Time::ZERO, Input::Frame { head: Time::ZERO, frame: &frame.into(), message: None });
        }
        assert_eq!(nic.counters().events, MESSAGES.into(), "each message has failed, and was reported");
        assert_eq!(nic.transport.peers[0].dead.len(), 1);
    }
}
