//! The short way of a message: from the sender's slot into the receiver's memory in one pass, where nothing is in the
//! way.
//!
//! The models, the links and the ledgers do all that they do on the general way, by the same functions: what is left
//! out is the frame ([`niclab_model::nic::packet`]), and the queues between the steps. What is in the way is looked for
//! once for each look at a node's pages ([`World::is_way_clear`]): somebody who watches, faults, programs that take
//! turns, a card with work in hand; and for each message whether anything is under way. Lines of status and credits
//! that go back are packets and stores like others. Where something is in the way, and for what a message causes at its
//! receiver beside a store (an acknowledgement, an interrupt), the general way is taken, which gets the same out of the
//! same effect_queue. Launches that ask for the same go together ([`series`]). `tests` holds one world that has the short way
//! against one that has not.

mod series;
#[cfg(test)]
mod tests;

use super::{Common, World};
use crate::shell::card::Card;
use crate::shell::node::Node;
use crate::shell::turn::frame_ns;

impl World<'_> {
    /// Takes the short way away, as a world that is compared with another has none, or gives it back.
    pub fn set_short_way(&mut self, is_open: bool) {
        let cards = self.nodes.iter_mut().map(|(_, node)| &mut node.card);
        cards
            .filter_map(|card| card.nic.effect_queue())
            .for_each(|effect_queue| effect_queue.set_open(is_open));
    }

    /// Frames so far that went the short way.
    pub fn short_way_frames(&self) -> u64 {
        self.nodes.cards().map(|(_, card)| card.counts.short_way).sum()
    }

    /// Of these, those that went as a series.
    pub fn messages_in_series(&self) -> u64 {
        self.nodes.cards().map(|(_, card)| card.counts.series).sum()
    }

    /// Of these, those whose instants nobody worked out ([`niclab_model::platform::steady`]).
    pub fn messages_carried_on(&self) -> u64 {
        self.nodes.cards().map(|(_, card)| card.counts.carried_on).sum()
    }

    /// Whether nothing is in the way of messages that are launched now. So it stays while slots are taken one after the
    /// other: none of those who could be in the way gets the world meanwhile, and cards on the short way have no work
    /// in hand.
    pub(super) fn is_way_clear(&self) -> bool {
        !self.is_in_lockstep()
            && !self.common.has_device_faults
            && !self.common.is_owing
            && !self.common.network.taps().is_any()
            && !self.common.network.is_any_faulty()
            && self.next_work().is_none()
    }

    /// Carries out what the model of `node` wants done, and all that follows from it on every node, as
    /// [`World::settle`] does.
    #[inline]
    pub(super) fn follow(&mut self, node: usize, is_way_clear: bool) {
        let is_clear = is_way_clear && self.common.cut.is_none() && self.common.network.is_idle();
        if !is_clear || !self.pass(node) {
            self.settle(node);
        }
    }

    /// Carries out what the model of `from` has left lying, as far as that goes the short way: in a part of the nodes a
    /// receiver that is not here yet joins it. False when there is more, or something is under way then.
    #[inline]
    fn pass(&mut self, from: usize) -> bool {
        let Some(sender) = self.nodes.get_mut(from).filter(|sender| sender.unsent.is_empty()) else {
            return false;
        };
        self.common.turn.spend_work(sender.card.take_work());
        loop {
            let Some(sender) = self.nodes.get_mut(from) else { return false };
            let Some(effect_queue) = sender.card.nic.effect_queue() else { return false };
            let Some(packet) = effect_queue.packet() else {
                if !sender.card.inline_write(&mut self.common.latest) {
                    return sender
                        .card
                        .nic
                        .effect_queue()
                        .is_some_and(|effect_queue| effect_queue.is_empty());
                }
                continue;
            };
            let to = usize::from(packet.to);
            // A receiver that cannot be had the general way does not get, either, and says what follows.
            if self.common.is_part && !self.has_joined(to) {
                return false;
            }
            // Not to itself, nor to somebody whom there is not.
            let Some((sender, receiver)) = self.nodes.pair(from, to) else { return false };
            let is_stopped = receiver.card.stands_still();
            if !receiver.unsent.is_empty() || is_stopped || receiver.card.nic.effect_queue().is_none() {
                return false;
            }
            match carry(sender, receiver, &mut self.common) {
                Rest::None => return true,
                Rest::Sender => {}
                Rest::Receiver => {
                    // What else the receiver wants done comes before what else the sender does: rarely anything.
                    self.answer(to, None);
                    return false;
                }
            }
        }
    }
}

/// Who wants something done behind a packet.
enum Rest {
    None,
    Sender,
    Receiver,
}

/// Carries the packet that the sender's model has left first: over the links, and into the receiver's model and memory.
/// Who has more to do then.
#[inline]
fn carry(sender: &mut Node, receiver: &mut Node, common: &mut Common) -> Rest {
    let Card { nic, counts, .. } = &mut sender.card;
    let Some(effect_queue) = nic.effect_queue() else { return Rest::None };
    let mut is_receiver_done = true;
    if let Some(packet) = effect_queue.packet() {
        counts.short_way += 1;
        counts.traffic.sent_frames += 1;
        counts.traffic.sent_bytes += packet.bytes as u64;
        common.latest = common.latest.max(packet.ready.head);
        if let Some(passage) = common.network.pass(&mut sender.port, &mut receiver.port, packet) {
            common.turn.spend(frame_ns(packet.bytes));
            common.acts += 1;
            let Node { card, bus, .. } = receiver;
            card.arrive_packet(passage, packet, bus);
            common.turn.spend_work(card.take_work());
            while card.inline_write(&mut common.latest) {}
            is_receiver_done = card.nic.effect_queue().is_none_or(|effect_queue| effect_queue.is_empty());
        }
    }
    effect_queue.clear_first();
    match (is_receiver_done, effect_queue.is_empty()) {
        (false, _) => Rest::Receiver,
        (true, false) => Rest::Sender,
        (true, true) => Rest::None,
    }
}
