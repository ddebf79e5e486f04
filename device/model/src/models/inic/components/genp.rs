//! Chooses the next packet (section 4.3): cuts messages into packets, keeps them until their acknowledgement, and
//! retransmits packets without one.
//!
//! The outstanding limit bounds unacknowledged packets to each node. When a timer expires, the component retransmits
//! the last of them. The receiver then acknowledges what it has, and the component retransmits the rest. A 0 before a 1
//! in a mask is a lost packet. The component retransmits it at once, unless it was sent after the packet that arrived.
//!
//! After `retries` consecutive expiries without answer, all messages to the node fail. Their packets keep their numbers
//! and lose their data, so that the next message continues the number sequence. They are retransmitted as void packets
//! together with the next message.
//!
//! Constants: ours.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use niclab_abi::inic::POST_UNREACHABLE;

use crate::models::inic::arrivals::{MASK_BITS, Number};
use crate::models::inic::card::{Card, Cut};
use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::per_node::{Begin, Numbered};
use crate::models::inic::token::{Disable, Message, Next, Payload, Pinfo, Token};
use crate::platform::trace_tag::TraceTag;
use crate::time::Time;

const MESSAGES: usize = 0;
const HEADERS: usize = 1;
const EXPIRIES: usize = 2;
const PINFO: usize = 0;
const NEXT: usize = 1;
const DISABLE: usize = 2;

/// Bytes of the word that names the message and the packet of the data.
pub(in crate::models::inic) const PLACE_BYTES: u64 = 8;
/// Bytes of a frame in addition to its data, rounded up.
const FRAME_OVERHEAD: usize = 64;

/// The assembly's values for this component.
#[derive(Clone, Copy, Debug)]
pub(in crate::models::inic) struct Parameters {
    pub(in crate::models::inic) packet_bytes: u64,
    pub(in crate::models::inic) outstanding_limit: usize,
    pub(in crate::models::inic) is_placed: bool,
    /// Consecutive expiries after which messages to a node fail; zero: never.
    pub(in crate::models::inic) retries: u32,
}

/// An unacknowledged packet.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    /// The message; none if it failed.
    send: Option<u64>,
    is_last: bool,
    for_card: bool,
    message: Option<TraceTag>,
    /// Whether a mask has acknowledged it while earlier packets are missing.
    is_there: bool,
    /// Whether it waits for its retransmission.
    is_queued: bool,
    /// Its position among all transmissions to the node, at its last transmission.
    order: u64,
}

impl Outstanding {
    /// Whether `xmit` has sent it: then the card's memory has its frame, except for a packet of an ended message.
    fn has_left(&self, node: u16, number: Number, card: &Card) -> bool {
        self.send.is_none() || card.kept.get(node, number.get()).is_some()
    }
}

/// State of the traffic to a node.
#[derive(Clone, Debug, Default)]
struct Link {
    messages: VecDeque<u64>,
    /// Whether the first message has started.
    is_begun: bool,
    oldest: Number,
    outstanding: VecDeque<Outstanding>,
    /// Packets to retransmit.
    again: VecDeque<Number>,
    /// Number of transmissions so far, retransmissions included.
    sent: u64,
    /// Expiries since the last acknowledgement of the node.
    expiries: u32,
    /// Whether the last packet was retransmitted, to make the receiver report missing packets.
    is_probing: bool,
    /// Whether the node does not answer, so that its messages have failed.
    is_down: bool,
    /// Whether it is in the round-robin queue.
    is_waiting: bool,
    /// When new data to send arrived.
    ready: Time,
}

impl Begin for Link {
    fn at(first: Number) -> Self {
        Self { oldest: first, ..Self::default() }
    }
}

impl Link {
    fn next(&self) -> Number {
        self.oldest.plus(self.outstanding.len() as u32)
    }

    fn packet(&mut self, number: Number) -> Option<&mut Outstanding> {
        let index = number.get().wrapping_sub(self.oldest.get()) as usize;
        self.outstanding.get_mut(index)
    }

    /// Queues the missing packets among the first `count` for retransmission.
    fn send_again(&mut self, count: usize, unless_after: Option<u64>) {
        let oldest = self.oldest;
        for (index, packet) in self.outstanding.iter_mut().enumerate().take(count) {
            let is_lost = unless_after.is_none_or(|order| packet.order < order);
            if is_lost && !packet.is_there && !packet.is_queued {
                packet.is_queued = true;
                self.again.push_back(oldest.plus(index as u32));
            }
        }
    }
}

/// A packet has arrived: frees its memory, and possibly ends its message.
fn end(node: u16, number: Number, packet: &mut Outstanding, card: &mut Card) {
    card.kept.free(node, number.get());
    if let Some(send) = packet.send.take() {
        card.on_packet_over(send);
    }
}

pub(in crate::models::inic) struct Genp {
    parameters: Parameters,
    links: Numbered<Link>,
    /// Nodes that may have data to send, in round-robin order.
    turns: VecDeque<u16>,
}

impl Genp {
    pub(in crate::models::inic) fn new(parameters: Parameters, first: Number) -> Self {
        Self { parameters, links: Numbered::new(first), turns: VecDeque::new() }
    }

    fn wait(&mut self, node: u16, at: Time) {
        let link = self.links.of(node);
        link.ready = link.ready.max(at);
        if !core::mem::replace(&mut link.is_waiting, true) {
            self.turns.push_back(node);
        }
    }

    fn on_message(&mut self, at: Time, message: Message) {
        let link = self.links.of(message.node);
        link.messages.push_back(message.send);
        if core::mem::take(&mut link.is_down) {
            link.send_again(usize::MAX, None);
        }
        self.wait(message.node, at);
    }

    /// Takes a node's acknowledgement. If it acknowledges anything new, returns whether it acknowledges all.
    fn on_ack(&mut self, at: Time, node: u16, (base, mask): (Number, u32), card: &mut Card) -> Option<bool> {
        let Some(link) = self.links.known(node) else {
            card.effects.counters.stray_acknowledgements += 1;
            return None;
        };
        let acknowledged = base.next().ahead_of(link.oldest) as usize;
        // The lowest bit of a mask is that of the missing packet, and must be zero. (Attack: a node sets it. Then all
        // packets have arrived and none is acknowledged, so that no packet is retransmitted, no timer runs, and
        // messages never end.) An acknowledgement of a packet that was not sent is invalid as well: its data would be
        // read later, and would stay in memory.
        let (oldest, mut first) = (link.oldest, link.outstanding.iter().take(acknowledged).zip(0..));
        let has_left = first.all(|(packet, index)| packet.has_left(node, oldest.plus(index), card));
        if acknowledged > link.outstanding.len() || mask & 1 != 0 || !has_left {
            card.effects.counters.stray_acknowledgements += 1;
            return None;
        }
        if acknowledged == 0 && base.next() != link.oldest {
            // An older acknowledgement, which arrived late.
            return None;
        }
        // The node answers, even if it has no room.
        link.expiries = 0;
        let mut is_progress = acknowledged > 0;
        for mut packet in link.outstanding.drain(..acknowledged) {
            end(node, link.oldest, &mut packet, card);
            link.oldest = link.oldest.next();
        }
        let (mut furthest, mut latest) = (0, 0);
        for bit in (0..MASK_BITS).filter(|bit| mask >> bit & 1 == 1) {
            let number = link.oldest.plus(bit);
            let Some(packet) = link.packet(number).filter(|packet| packet.has_left(node, number, card))
            else {
                continue;
            };
            (furthest, latest) = (bit as usize, latest.max(packet.order));
            if !core::mem::replace(&mut packet.is_there, true) {
                is_progress = true;
                end(node, number, packet, card);
            }
        }
        if core::mem::take(&mut link.is_probing) {
            link.send_again(usize::MAX, None);
        } else {
            link.send_again(furthest, Some(latest));
        }
        let is_empty = link.outstanding.is_empty();
        if is_empty {
            link.again.clear();
        }
        self.wait(node, at);
        is_progress.then_some(is_empty)
    }

    fn on_expiry(&mut self, at: Time, node: u16, card: &mut Card) {
        let retries = self.parameters.retries;
        let Some(link) = self.links.known(node).filter(|link| !link.outstanding.is_empty()) else { return };
        card.effects.counters.timeouts += 1;
        link.expiries += 1;
        if retries > 0 && link.expiries > retries {
            link.expiries = 0;
            link.is_down = true;
            link.is_probing = false;
            link.again.clear();
            let oldest = link.oldest;
            let mut failed: alloc::vec::Vec<u64> = link.messages.iter().copied().collect();
            for (index, packet) in link.outstanding.iter_mut().enumerate() {
                card.kept.free(node, oldest.plus(index as u32).get());
                packet.is_queued = false;
                failed.extend(packet.send.take());
            }
            for send in failed {
                card.effects.counters.unreachable += u64::from(card.memory_of(send).is_some());
                card.fail(at, send, POST_UNREACHABLE);
            }
            return;
        }
        link.is_probing = true;
        // The last missing packet: the memory of arrived packets is free.
        let oldest = link.oldest;
        let last = link.outstanding.iter_mut().enumerate().rev().find(|(_, packet)| !packet.is_there);
        if let Some((index, packet)) = last
            && !core::mem::replace(&mut packet.is_queued, true)
        {
            link.again.push_back(oldest.plus(index as u32));
        }
        self.wait(node, at);
    }

    /// The next packet to a node, if one may be sent.
    fn packet(&mut self, node: u16, card: &mut Card) -> Option<Pinfo> {
        let Parameters { packet_bytes, outstanding_limit, is_placed, .. } = self.parameters;
        let link = self.links.known(node)?;
        while let Some(number) = link.again.pop_front() {
            link.sent += 1;
            let order = link.sent;
            let Some(packet) = link.packet(number).filter(|packet| packet.is_queued) else { continue };
            packet.is_queued = false;
            if packet.is_there {
                continue;
            }
            // Before this retransmission, the first transmission puts the packet into the card's memory.
            let payload = if packet.send.is_some() { Payload::Card } else { Payload::Void };
            packet.order = order;
            card.effects.counters.retransmissions += 1;
            let (is_last, message, for_card) = (packet.is_last, packet.message, packet.for_card);
            let is_kept = packet.send.is_some();
            let is_again = true;
            return Some(Pinfo { node, number, payload, is_last, is_again, is_kept, for_card, message });
        }
        loop {
            let has_room = link.outstanding.len() < outstanding_limit
                && card.kept.has_room(packet_bytes as usize + FRAME_OVERHEAD);
            let send = link.messages.front().copied().filter(|_| has_room && !link.is_down)?;
            let cut = match card.cut(send, packet_bytes, is_placed) {
                Some(cut) => cut,
                None if link.is_begun => Cut { payload: Payload::Void, is_last: true, message: None },
                None => {
                    link.messages.pop_front();
                    continue;
                }
            };
            let Cut { payload, is_last, message } = cut;
            link.is_begun = !is_last;
            if is_last {
                link.messages.pop_front();
            }
            let number = link.next();
            link.sent += 1;
            let (is_kept, is_again) = (!matches!(payload, Payload::Void), false);
            let for_card = matches!(payload, Payload::Own(_));
            link.outstanding.push_back(Outstanding {
                send: is_kept.then_some(send),
                is_last,
                for_card,
                message,
                is_there: false,
                is_queued: false,
                order: link.sent,
            });
            card.effects.counters.packets_sent += 1;
            return Some(Pinfo { node, number, payload, is_last, is_again, is_kept, for_card, message });
        }
    }

    /// Sends one packet to the next node in round-robin order that may get one.
    fn send(&mut self, io: &mut Io<'_>) -> bool {
        for _ in 0..self.turns.len() {
            let Some(node) = self.turns.pop_front() else { return false };
            let Some(pinfo) = self.packet(node, io.card) else {
                // The node returns to the queue after an acknowledgement, an expiry, or a post.
                let link = self.links.of(node);
                link.is_waiting = false;
                continue;
            };
            let ready = self.links.of(node).ready;
            self.turns.push_back(node);
            let worked = io.work(ready, 0);
            io.put(NEXT, worked, Token::Next(Next { node }));
            io.put(PINFO, worked, Token::Pinfo(Box::new(pinfo)));
            return true;
        }
        false
    }

    /// The card's memory has room again: queues all nodes with data.
    fn wait_all(&mut self, at: Time) {
        let waiting = self.links.iter_mut().filter(|(_, link)| !link.is_waiting && !link.messages.is_empty());
        let nodes: alloc::vec::Vec<u16> = waiting.map(|(node, _)| node).collect();
        nodes.into_iter().for_each(|node| self.wait(node, at));
    }
}

impl Component for Genp {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        if io.has(HEADERS)
            && io.has_room(DISABLE)
            && let Some((at, Token::Header(header))) = io.take(HEADERS)
        {
            let worked = io.work(at, 0);
            if let Some(ack) = header.ack {
                let had_memory =
                    io.card.kept.has_room(self.parameters.packet_bytes as usize + FRAME_OVERHEAD);
                let node = header.source;
                if let Some(is_over) = self.on_ack(worked, node, ack, io.card) {
                    io.put(DISABLE, worked, Token::Disable(Disable { node, is_over }));
                }
                if !had_memory {
                    self.wait_all(worked);
                }
            }
            return true;
        }
        if let Some((at, Token::Expiry(node))) = io.take(EXPIRIES) {
            let worked = io.work(at, 0);
            self.on_expiry(worked, node, io.card);
            return true;
        }
        if let Some((at, Token::Message(message))) = io.take(MESSAGES) {
            self.on_message(at, message);
            return true;
        }
        !self.turns.is_empty() && io.has_room(PINFO) && io.has_room(NEXT) && self.send(io)
    }

    fn on_close(&mut self, io: &mut Io<'_>) {
        let now = io.now;
        // A message that has started ends with a packet that reports the failure.
        self.wait_all(now);
    }
}
