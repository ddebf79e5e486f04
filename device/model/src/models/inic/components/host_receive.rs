//! Reassembles messages from packets in the host's memory.
//!
//! The header contains neither message nor offset. If packets arrive in order, the packet that is marked as the last
//! ends a message, and the next packet begins one. Otherwise the sender puts a word before the data of each packet: the
//! number of the message, and the packet's number in it.
//!
//! When a message's first packet arrives, the message gets the room that was posted first. Without room its packets
//! wait in the card's memory, and packets of other nodes may overtake them.
//!
//! Constants: ours.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use niclab_abi::inic::{POST_INCOMPLETE, POST_OK};

use crate::models::inic::arrivals::Number;
use crate::models::inic::card::{Card, PORT, Received, Room};
use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::components::genp::PLACE_BYTES;
use crate::models::inic::per_node::{Begin, Numbered};
use crate::models::inic::token::{Data, Token};
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

/// Maximum packets of a message that may arrive after a missing one. This bounds the memory for a long message with a
/// lost packet.
const MAX_AHEAD: usize = 4_096;

/// Maximum later messages of a node that begin before the card gives up a message with missing packets. Also the number
/// of ended messages that it remembers, to drop their late packets. A reliable sender is never this far ahead of a
/// missing packet, because the mask of an acknowledgement has 32 bits.
const MESSAGES_BEHIND: u32 = 64;

/// A message with missing packets.
#[derive(Debug)]
struct Open {
    room: Room,
    /// The first missing packet, and the recorded packets after it.
    packets: u32,
    ahead: BTreeSet<u32>,
    /// Number of packets, once it is known.
    last: Option<u32>,
    bytes: u64,
    visible: Time,
    message: Option<TraceTag>,
    interrupts: bool,
}

impl Open {
    const fn new(room: Room, message: Option<TraceTag>) -> Self {
        let visible = room.ready;
        Self {
            room,
            packets: 0,
            ahead: BTreeSet::new(),
            last: None,
            bytes: 0,
            visible,
            message,
            interrupts: false,
        }
    }

    fn is_whole(&self) -> bool {
        self.last == Some(self.packets)
    }

    /// Counts a received packet. False if it arrived before.
    fn count(&mut self, packet: u32) -> bool {
        if packet < self.packets || !self.ahead.insert(packet) {
            return false;
        }
        while self.ahead.remove(&self.packets) {
            self.packets += 1;
        }
        true
    }
}

/// Packets of a node.
#[derive(Debug, Default)]
struct Peer {
    /// By number of the message, sorted. If packets arrive in order, at most one, with number zero.
    open: BTreeMap<u32, Open>,
    /// If packets arrive in order: whether the card drops the rest of the current message.
    is_skipping: bool,
    /// Ended messages with several packets.
    ended: VecDeque<u32>,
    /// The latest message that has begun.
    latest: u32,
    /// Packets that wait for room.
    waiting: VecDeque<(Time, Box<Data>)>,
}

impl Begin for Peer {
    fn at(first: Number) -> Self {
        Self { latest: first.get(), ..Self::default() }
    }
}

/// Message and packet number of a packet's data.
#[derive(Clone, Copy, Debug)]
struct PacketId {
    message: u32,
    packet: u32,
}

/// The word before a packet's data; none if the packet is void.
fn packet_id(data: &Data) -> Option<PacketId> {
    let word = data.frame.get(data.bytes.clone())?.first_chunk::<8>()?;
    let word = u64::from_be_bytes(*word);
    Some(PacketId { message: (word >> 32) as u32, packet: word as u32 })
}

pub(in crate::models::inic) struct HostReceive {
    is_placed: bool,
    /// Bytes of a message in each of its packets except the last.
    packet_bytes: u64,
    peers: Numbered<Peer>,
    /// Nodes with waiting packets, in the order of their first waiting packet.
    waiting: VecDeque<u16>,
    /// How many of these nodes are still to be checked since room was posted.
    left_to_ask: usize,
}

impl HostReceive {
    /// For packets with this number of payload bytes.
    pub(in crate::models::inic) fn new(is_placed: bool, packet_bytes: u64, first: Number) -> Self {
        Self {
            is_placed,
            packet_bytes,
            peers: Numbered::new(first),
            waiting: VecDeque::new(),
            left_to_ask: 0,
        }
    }

    /// Takes a packet, or returns it if there is no room for its message.
    fn on_data(&mut self, at: Time, data: Box<Data>, card: &mut Card) -> Option<Box<Data>> {
        let peer = self.peers.known(data.source)?;
        card.effects.attribute(data.message);
        if self.is_placed {
            Self::on_placed(peer, self.packet_bytes, at, data, card)
        } else {
            Self::on_ordered(peer, at, data, card)
        }
    }

    /// Takes a packet in order. An assembly that loses or reorders packets must place each packet instead (the check's
    /// `Unplaced`).
    fn on_ordered(peer: &mut Peer, at: Time, data: Box<Data>, card: &mut Card) -> Option<Box<Data>> {
        if peer.is_skipping {
            peer.is_skipping = !data.is_last;
            card.effects.counters.discarded += 1;
            return None;
        }
        if data.is_void() {
            // The rest of the earlier message never arrives.
            if let Some(open) = peer.open.remove(&0) {
                end(at, open, data.source, 0, POST_INCOMPLETE, card);
            }
            peer.is_skipping = !data.is_last;
            return None;
        }
        if let alloc::collections::btree_map::Entry::Vacant(vacant) = peer.open.entry(0) {
            let Some(room) = card.take_room() else { return Some(data) };
            vacant.insert(Open::new(room, data.message));
        }
        let open = peer.open.get_mut(&0)?;
        let offset = open.bytes;
        store(at, open, offset, data.bytes.clone(), &data, card);
        if data.is_last
            && let Some(open) = peer.open.remove(&0)
        {
            end(at, open, data.source, 0, POST_OK, card);
        }
        None
    }

    /// Takes a packet that names its message and position.
    fn on_placed(
        peer: &mut Peer,
        packet_bytes: u64,
        at: Time,
        data: Box<Data>,
        card: &mut Card,
    ) -> Option<Box<Data>> {
        let Some(PacketId { message, packet }) = packet_id(&data) else {
            // A void packet does not name its message. Later packets reveal what that message misses.
            return None;
        };
        // A packet with the maximum number would complete a message of which no packet has arrived.
        let Some(count) = packet.checked_add(1) else {
            card.effects.card().malformed += 1;
            return None;
        };
        let is_single = packet == 0 && data.is_last;
        if peer.ended.contains(&message) && !is_single {
            card.effects.counters.discarded += 1;
            return None;
        }
        if let alloc::collections::btree_map::Entry::Vacant(vacant) = peer.open.entry(message) {
            let Some(room) = card.take_room() else { return Some(data) };
            vacant.insert(Open::new(room, data.message));
            if Number::new(message).is_after(Number::new(peer.latest)) {
                peer.latest = message;
            }
        }
        let open = peer.open.get_mut(&message)?;
        if open.count(packet) {
            if data.is_last {
                open.last = Some(count);
            }
            let bytes = data.bytes.start + PLACE_BYTES as usize..data.bytes.end;
            store(at, open, u64::from(packet).saturating_mul(packet_bytes), bytes, &data, card);
        } else {
            card.effects.counters.duplicates += 1;
        }
        if open.is_whole()
            && let Some(open) = peer.open.remove(&message)
        {
            Self::remember(peer, message, is_single);
            end(at, open, data.source, message, POST_OK, card);
        }
        Self::give_up(peer, at, data.source, card);
        None
    }

    fn remember(peer: &mut Peer, message: u32, is_single: bool) {
        if is_single {
            return;
        }
        if peer.ended.len() == MESSAGES_BEHIND as usize {
            peer.ended.pop_front();
        }
        peer.ended.push_back(message);
    }

    /// Ends messages that are too far behind, and those with too many packets after a missing one.
    fn give_up(peer: &mut Peer, at: Time, source: u16, card: &mut Card) {
        let latest = Number::new(peer.latest);
        let is_late = |message: u32| latest.ahead_of(Number::new(message)) > MESSAGES_BEHIND;
        let late =
            peer.open.iter().filter(|(message, open)| is_late(**message) || open.ahead.len() > MAX_AHEAD);
        let late: alloc::vec::Vec<u32> = late.map(|(message, _)| *message).collect();
        for message in late {
            if let Some(open) = peer.open.remove(&message) {
                Self::remember(peer, message, false);
                end(at, open, source, message, POST_INCOMPLETE, card);
            }
        }
    }

    /// Takes one waiting packet, if there is room now. A guest that posts no room for long fills the memory with
    /// waiting packets. Each is a step, so that the circuit can pause between them.
    fn resume_waiting(&mut self, io: &mut Io<'_>) -> bool {
        if self.left_to_ask == 0 && io.card.has_room_posted() {
            self.left_to_ask = self.waiting.len();
        }
        while self.left_to_ask > 0
            && let Some(source) = self.waiting.pop_front()
        {
            let next = self.peers.known(source).and_then(|peer| peer.waiting.pop_front());
            let Some((at, data)) = next else {
                self.left_to_ask -= 1;
                continue;
            };
            let bytes = data.frame.len();
            let Some(data) = self.on_data(at.max(io.now), data, io.card) else {
                io.card.waiting.remove(source, bytes);
                self.waiting.push_front(source);
                return true;
            };
            self.peers.of(source).waiting.push_front((at, data));
            self.waiting.push_back(source);
            self.left_to_ask -= 1;
        }
        self.left_to_ask = 0;
        false
    }
}

/// Stores the data of a packet of a message.
fn store(
    at: Time,
    open: &mut Open,
    offset: u64,
    bytes: core::ops::Range<usize>,
    data: &Data,
    card: &mut Card,
) {
    open.bytes += bytes.len() as u64;
    let stored = card.store(at.max(open.room.ready), &open.room, offset, &data.frame, bytes);
    open.visible = open.visible.max(stored);
    open.interrupts |= data.interrupts && data.is_last;
    if data.interrupts && !data.is_last {
        let cause = niclab_abi::event::CAUSE_MESSAGE;
        card.effects.interrupt(stored, cause, PORT, data.message);
    }
}

/// Ends a message.
fn end(at: Time, open: Open, source: u16, number: u32, result: u32, card: &mut Card) {
    let Open { room, bytes, visible, message, interrupts, .. } = open;
    let received = Received { source, number, bytes, result, message, interrupts };
    card.on_received(at.max(visible), room, &received);
}

impl Component for HostReceive {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        // Waiting packets precede new ones.
        if self.left_to_ask > 0 && self.resume_waiting(io) {
            return true;
        }
        let Some((at, Token::Data(data))) = io.take(0) else { return self.resume_waiting(io) };
        let worked = io.work(at, data.bytes.len());
        if data.for_card {
            // A message between cards: it does not wait for hosts' packets, and no host sees it.
            io.card.on_message(worked, &data);
            return true;
        }
        let source = data.source;
        let peer = self.peers.of(source);
        let has_waiting = !peer.waiting.is_empty();
        // A packet of a message with room must not wait for other packets, which may wait for this message's room.
        let has_room =
            self.is_placed && packet_id(&data).is_some_and(|packet| peer.open.contains_key(&packet.message));
        let kept = if has_waiting && !has_room { Some(data) } else { self.on_data(worked, data, io.card) };
        if let Some(data) = kept {
            io.card.waiting.add(source, data.frame.len());
            self.peers.of(source).waiting.push_back((worked, data));
            if !has_waiting {
                self.waiting.push_back(source);
            }
        }
        true
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Ends all messages with missing packets.
    fn on_firmware_reload(&mut self, io: &mut Io<'_>) {
        self.waiting.clear();
        self.left_to_ask = 0;
        for (source, peer) in self.peers.iter_mut() {
            for (message, open) in core::mem::take(&mut peer.open) {
                end(io.now, open, source, message, POST_INCOMPLETE, io.card);
            }
            io.card.effects.counters.lost_at_firmware_reload += peer.waiting.len() as u64;
            peer.waiting.clear();
        }
    }

    fn on_close(&mut self, io: &mut Io<'_>) {
        self.waiting.clear();
        self.left_to_ask = 0;
        for (_, peer) in self.peers.iter_mut() {
            for (message, open) in core::mem::take(&mut peer.open) {
                peer.is_skipping = true;
                Self::remember(peer, message, false);
                Card::drop_room(open.room);
            }
            for (_, data) in peer.waiting.drain(..) {
                io.card.waiting.remove(data.source, data.frame.len());
                io.card.effects.counters.discarded += 1;
                // The rest of this message belongs to no program, and the next message belongs to the next program.
                peer.is_skipping = !data.is_last;
            }
        }
    }
}

impl Drop for HostReceive {
    fn drop(&mut self) {
        for (_, peer) in self.peers.iter_mut() {
            core::mem::take(&mut peer.open).into_values().for_each(|open| Card::drop_room(open.room));
        }
    }
}
