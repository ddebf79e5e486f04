//! Messages on their way out: cut into frames, sent within the window of the link to each other card, kept until they are
//! acknowledged.
//!
//! What is kept of a frame is where its data lies, and a frame that goes again is read again: memory is the sender's buffer, as
//! it is until the program is told that the message has left it. Where the memory is gone meanwhile, an empty frame goes in
//! the place of the other, so that the link goes on and the receiver ends the message.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use niclab_abi::matching::{RESULT_BAD_REGION, RESULT_NO_ROOM, RESULT_OK};

use crate::fabric::ethernet;
use crate::matching::commands::Memory;
use crate::matching::config::{Config, PORTS};
use crate::matching::effects::Machine;
use crate::matching::nic::{Match, Read};
use crate::matching::reception::Reception;
use crate::matching::wire::{FIRST_HEAD_BYTES, Header, Kind, Link, MORE_HEAD_BYTES, Operation, head, seal};
use crate::nic::{FrameBytes, Output};
use crate::parts::go_back_n::{self, GoBackN};
use crate::parts::message::Message;
use crate::time::{Span, Time};

/// Most messages of a port that wait for one other card. A card's commands under way are fewer, and each has one answer; a
/// network that forges requests without end would fill the card's memory.
const MOST_QUEUED: usize = 4_096;

/// Memory of no bytes.
pub(super) const NO_MEMORY: Memory = Memory { region: 0, offset: 0, bytes: 0 };

/// Whom to tell that a message has left its memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    /// Nobody.
    Nothing,
    /// A command of a port, by its token.
    Command { port: usize, token: u64 },
    /// A get that a port serves, by its number.
    Served { port: usize, number: u64 },
}

/// A message that is not sent to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) header: Header,
    /// Its data.
    pub(super) memory: Memory,
    pub(super) ready: Time,
    pub(super) message: Option<Message>,
    pub(super) done: Done,
    /// Bytes sent, once it has begun.
    pub(super) sent: Option<u64>,
}

/// What is kept of a frame until it is acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    sequence: u32,
    kind: Kind,
    port: usize,
    number: u32,
    memory: Memory,
    message: Option<Message>,
}

/// A message that was sent to its end, of which not all is acknowledged.
#[derive(Clone, Copy, Debug)]
struct Finished {
    /// Of its last frame.
    sequence: u32,
    port: usize,
    number: u32,
    done: Done,
}

/// Another card.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) node: u16,
    pub(super) link: GoBackN<Sent>,
    /// By port; the first of each is under way.
    pub(super) sending: [VecDeque<Outgoing>; PORTS],
    /// The port whose turn it is.
    turn: usize,
    /// Messages to it so far: the number of the next.
    messages: u32,
    finished: VecDeque<Finished>,
    /// By the sending port of the other card.
    pub(super) receiving: [Option<Reception>; PORTS],
    /// Messages, by port and number, whose memory went away under a read.
    dead: Vec<(usize, u32)>,
    /// Frames sent, acknowledgements too.
    pub(super) frames: u64,
    /// As the card has it among the deadlines.
    deadline: Option<Time>,
}

/// All cards that this one has had to do with.
#[derive(Clone, Debug)]
pub(super) struct Peers {
    link: go_back_n::Config,
    places: BTreeMap<u16, usize>,
    pub(super) all: Vec<Peer>,
    deadlines: BTreeSet<(Time, usize)>,
}

impl Peers {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            link: go_back_n::Config {
                window_frames: config.window_frames,
                first_wait: config.retransmit_first + window_span(config),
                longest_wait: config.retransmit_most + window_span(config),
            },
            places: BTreeMap::new(),
            all: Vec::new(),
            deadlines: BTreeSet::new(),
        }
    }

    /// The place of a node's card among all.
    pub(super) fn place_of(&mut self, node: u16) -> usize {
        *self.places.entry(node).or_insert_with(|| {
            self.all.push(Peer {
                node,
                link: GoBackN::new(self.link),
                sending: Default::default(),
                turn: 0,
                messages: 0,
                finished: VecDeque::new(),
                receiving: Default::default(),
                dead: Vec::new(),
                frames: 0,
                deadline: None,
            });
            self.all.len() - 1
        })
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    fn expired(&self, now: Time) -> Option<usize> {
        self.deadlines.first().filter(|(deadline, _)| *deadline <= now).map(|(_, place)| *place)
    }

    /// Enters the deadline of a card's link anew.
    fn mind_deadline(&mut self, place: usize) {
        let peer = &mut self.all[place];
        let deadline = peer.link.deadline();
        if deadline == peer.deadline {
            return;
        }
        if let Some(old) = core::mem::replace(&mut peer.deadline, deadline) {
            self.deadlines.remove(&(old, place));
        }
        if let Some(new) = deadline {
            self.deadlines.insert((new, place));
        }
    }
}

/// How long a window of whole frames takes, there and back: what is sent is on its way for as long before it can be missed.
/// The card does not know the links; they are taken to be as fast as its own bus.
fn window_span(config: &Config) -> Span {
    let frame = config.profile.bus.dma_read.occupancy(config.mtu_bytes.into());
    frame.times(2 * u64::from(config.window_frames))
}

/// What goes in place of a frame whose data is not to be had.
const fn without_data(kind: &Kind) -> Kind {
    match *kind {
        // The initiator of a get waits for its answer.
        Kind::First(header) if matches!(header.operation, Operation::Reply) => {
            Kind::First(Header { bytes: 0, result: RESULT_BAD_REGION as u8, ..header })
        }
        Kind::First(header) => Kind::Void { source_port: header.source_port, message: header.message },
        Kind::More { source_port, message, .. } => Kind::Void { source_port, message },
        kind => kind,
    }
}

/// A frame whose data is being read.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    place: usize,
    link: Link,
    kind: Kind,
    port: usize,
    number: u32,
    at: Time,
    message: Option<Message>,
}

impl Match {
    /// Queues a message to `node` and sends what the window allows.
    pub(super) fn send_message(&mut self, now: Time, node: u16, outgoing: Outgoing) {
        let place = self.peers.place_of(node);
        let peer = &mut self.peers.all[place];
        let sending = &mut peer.sending[usize::from(outgoing.header.source_port) % PORTS];
        if sending.len() >= MOST_QUEUED {
            self.effects.counters.malformed += 1;
            self.on_done(now, outgoing.done, RESULT_NO_ROOM);
            return;
        }
        let mut outgoing = outgoing;
        outgoing.header.message = peer.messages;
        peer.messages = peer.messages.wrapping_add(1);
        sending.push_back(outgoing);
        self.pump(now, place);
    }

    /// Sends frames to a card, of each port in turn, while the window has room.
    pub(super) fn pump(&mut self, now: Time, place: usize) {
        loop {
            let peer = &mut self.peers.all[place];
            if !peer.link.can_send() {
                break;
            }
            let turn = peer.turn;
            let ports = (0..PORTS).map(|port| (turn + port) % PORTS);
            let Some(port) = ports.into_iter().find(|port| !peer.sending[*port].is_empty()) else { break };
            peer.turn = (port + 1) % PORTS;
            self.send_frame(now, place, port);
        }
        self.peers.mind_deadline(place);
    }

    /// Sends the next frame of the first message of a port.
    fn send_frame(&mut self, now: Time, place: usize, port: usize) {
        let peer = &mut self.peers.all[place];
        let Some(outgoing) = peer.sending[port].front_mut() else { return };
        let begun = outgoing.sent;
        let sent = begun.unwrap_or(0);
        let left = outgoing.memory.bytes.saturating_sub(sent);
        let header = outgoing.header;
        let (source_port, number) = (header.source_port, header.message);
        let (kind, head_bytes) = match begun {
            None => (Kind::First(header), FIRST_HEAD_BYTES),
            Some(offset) => (Kind::More { source_port, message: number, offset }, MORE_HEAD_BYTES),
        };
        let most = (self.config.mtu_bytes as usize + ethernet::HEADER_BYTES - head_bytes) as u64;
        let is_there = left == 0 || self.regions[port].get(outgoing.memory.region).is_some();
        let (kind, bytes) = if is_there { (kind, left.min(most)) } else { (without_data(&kind), 0) };
        let is_last = !is_there || bytes == left;
        let ready = outgoing.ready.max(now);
        outgoing.sent = Some(sent + bytes);
        let memory = Memory {
            region: outgoing.memory.region,
            offset: outgoing.memory.offset.saturating_add(sent),
            bytes,
        };
        let kept = Sent {
            sequence: peer.link.next_sequence(),
            kind,
            port,
            number,
            memory,
            message: outgoing.message,
        };
        let done = outgoing.done;
        // Requests and acknowledgements are no messages of a program's.
        let is_counted = matches!(outgoing.header.operation, Operation::Put | Operation::Reply);
        if is_last {
            peer.sending[port].pop_front();
        }
        if begun.is_none() && matches!(kind, Kind::Void { .. }) {
            // Nobody has heard of it.
            self.effects.counters.discarded_at_close += 1;
            return;
        }
        let asks = is_last || peer.link.wants_acknowledgement();
        if is_last {
            peer.finished.push_back(Finished { sequence: kept.sequence, port, number, done });
            self.effects.counters.messages_sent += u64::from(is_counted);
        }
        self.effects.counters.bytes_sent += bytes;
        let at = self.emit(ready, place, &kept, asks);
        self.peers.all[place].link.send(at, kept);
    }

    /// Sends a frame, or reads its data first. Returns when it is ready for the network.
    fn emit(&mut self, ready: Time, place: usize, sent: &Sent, asks: bool) -> Time {
        let peer = &mut self.peers.all[place];
        peer.frames += 1;
        let is_dead = peer.dead.contains(&(sent.port, sent.number));
        let link = Link {
            destination: peer.node,
            source: self.config.node,
            sequence: sent.sequence,
            acknowledged: peer.link.acknowledge(),
            asks,
        };
        self.effects.interface.ledger_mut().attribute(sent.message);
        let Memory { region, offset, bytes } = sent.memory;
        let region = self.regions[sent.port].get(region).filter(|_| bytes > 0 && !is_dead);
        let Some(region) = region else {
            let kind = if bytes == 0 { sent.kind } else { without_data(&sent.kind) };
            let frame = head(&link, &kind, 0);
            return self.transmit(ready, frame, sent.message);
        };
        let ranges = region.ranges(offset, bytes);
        let into = head(&link, &sent.kind, bytes as usize);
        let frame_bytes = into.len() as u64 + bytes;
        let token = self.next_token();
        let read = self.effects.dma_read(ready, token, ranges, into);
        let at = self.effects.work(Machine::Transmit, read, frame_bytes).end;
        let reading = Reading {
            place,
            link,
            kind: sent.kind,
            port: sent.port,
            number: sent.number,
            at,
            message: sent.message,
        };
        self.reads.push_back((token, Read::Frame(reading)));
        at
    }

    /// Seals a frame without data and sends it.
    fn transmit(&mut self, ready: Time, mut frame: FrameBytes, message: Option<Message>) -> Time {
        let at = self.effects.work(Machine::Transmit, ready, frame.len() as u64).end;
        seal(&mut frame);
        self.effects.outputs.push_back(Output::Frame { at, frame, message });
        at
    }

    /// The data of a frame is here, behind its head. It goes before all that was decided after it.
    pub(super) fn on_frame_data(&mut self, reading: Reading, mut frame: FrameBytes, is_whole: bool) {
        if !is_whole {
            self.on_memory_gone(&reading);
            frame = head(&reading.link, &without_data(&reading.kind), 0);
        }
        seal(&mut frame);
        let output = Output::Frame { at: reading.at, frame, message: reading.message };
        self.effects.outputs.push_front(output);
    }

    /// A region's memory is not the guest's any more: the message ends with what was sent.
    fn on_memory_gone(&mut self, reading: &Reading) {
        let Reading { place, port, number, at, .. } = *reading;
        let peer = &mut self.peers.all[place];
        if peer.dead.contains(&(port, number)) {
            return;
        }
        peer.dead.push((port, number));
        let is_it = |outgoing: &&mut Outgoing| outgoing.header.message == number;
        let done = match peer.sending[port].front_mut().filter(is_it) {
            // What is left of it is the frame that ends it.
            Some(outgoing) => {
                outgoing.memory.region = 0;
                Some(outgoing.done)
            }
            None => {
                let mut finished = peer.finished.iter();
                finished.find(|it| (it.port, it.number) == (port, number)).map(|it| it.done)
            }
        };
        if let Some(done) = done {
            self.on_done(at, done, RESULT_BAD_REGION);
        }
    }

    /// All frames of the link to a card before `number` have arrived there.
    pub(super) fn on_link_acknowledged(&mut self, now: Time, place: usize, number: u32) {
        let peer = &mut self.peers.all[place];
        if !peer.link.on_acknowledged(now, number) {
            return;
        }
        if peer.link.deadline().is_none() {
            peer.dead.clear();
        }
        loop {
            let finished = &mut self.peers.all[place].finished;
            let is_before = |sequence: u32| number.wrapping_sub(sequence) as i32 > 0;
            let Some(Finished { port, number: message, done, .. }) =
                finished.front().copied().filter(|it| is_before(it.sequence))
            else {
                break;
            };
            finished.pop_front();
            // No frame of it goes again. Were it remembered until the link is idle, a program that takes its memory away
            // under one message after the other, and never pauses, would fill the card's memory.
            self.peers.all[place].dead.retain(|dead| *dead != (port, message));
            self.on_done(now, done, RESULT_OK);
        }
    }

    /// Sends an acknowledgement in a frame of its own.
    pub(super) fn acknowledge(&mut self, now: Time, place: usize) {
        let peer = &mut self.peers.all[place];
        peer.frames += 1;
        let link = Link {
            destination: peer.node,
            source: self.config.node,
            sequence: 0,
            acknowledged: peer.link.acknowledge(),
            asks: false,
        };
        self.effects.counters.acknowledgements_sent += 1;
        self.effects.interface.ledger_mut().attribute(None);
        self.transmit(now, head(&link, &Kind::Acknowledgement, 0), None);
    }

    /// Sends the frames of one link again whose time has come; false when there are none.
    pub(super) fn retransmit(&mut self, now: Time) -> bool {
        let Some(place) = self.peers.expired(now) else { return false };
        let frames: Vec<Sent> = self.peers.all[place].link.expire(now).copied().collect();
        self.effects.counters.retransmissions += frames.len() as u64;
        let last = frames.len().saturating_sub(1);
        for (count, sent) in frames.iter().enumerate() {
            // The first asks, too: where a short queue lets no more than the first ones through, the others would never be
            // heard of.
            self.emit(now, place, sent, count == 0 || count == last);
        }
        self.peers.mind_deadline(place);
        true
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use niclab_abi::ToBytes;
    use niclab_abi::control::{OP_PORT_OPEN, PortOpen, Request};
    use niclab_abi::matching::{COMMAND_PUT, Extent, OP_REGION_OPEN, RegionOpen};

    use super::*;
    use crate::nic::{Input, Nic, PageStore};
    use crate::parts::profile::Profile;

    fn bytes_of<T: ToBytes>(value: &T) -> Vec<u8> {
        let mut bytes = vec![0; T::BYTES];
        value.to_bytes(&mut bytes).unwrap();
        bytes
    }

    fn control(nic: &mut Match, operation: u32, body: &[u8]) {
        let mut request = bytes_of(&Request { operation, body_bytes: body.len() as u32 });
        request.extend_from_slice(body);
        nic.handle(Time::ZERO, Input::Control { token: 1, request: &request });
        while nic.poll_output().is_some() {}
    }

    /// The attack: a program whose memory is gone sends without a pause, so that the link is never idle.
    #[test]
    fn a_message_whose_memory_is_gone_is_forgotten_with_its_last_frame() {
        let mut nic = Match::new(Config::new(0, 2, Profile::default())).unwrap();
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
            let mut frame = head(&link, &Kind::Acknowledgement, 0);
            seal(&mut frame);
            nic.handle(Time::ZERO, Input::Frame { frame: &frame, message: None });
        }
        assert_eq!(nic.effects.counters.events, MESSAGES.into(), "each has failed, and was told");
        assert_eq!(nic.peers.all[0].dead.len(), 1);
    }
}
