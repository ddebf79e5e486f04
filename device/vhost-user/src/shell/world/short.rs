//! The short way of a message: from the sender's slot into the receiver's memory in one pass, where nothing is in the way.
//!
//! The models, the links and the ledgers do all that they do on the general way, by the same functions: what is left out is the frame
//! ([`niclab_model::nic::parcel`]), and the queues between the steps. What is in the way is looked for once for each look at a
//! node's pages ([`World::is_way_clear`]): somebody who watches, faults, programs that take turns, a card with work in hand; and for
//! each message whether anything is under way. Then, and for all that follows from a message (an acknowledgement, credit that goes
//! back, a line of status), the general way is taken, which gets the same out of the same outbox. `tests` holds one world that has the
//! short way against one that has not.

#[cfg(test)]
mod tests;

use niclab_model::fabric::{Port, Ports};
use niclab_model::time::Time;

use super::World;
use crate::shell::card::Card;
use crate::shell::network::Network;
use crate::shell::node::Node;
use crate::shell::turn::{Turn, frame_ns};

/// What a pass has done beside what its two ends and the links between them know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Done {
    /// Frames that arrived.
    acts: u64,
    /// The latest instant at which a model wanted something done.
    latest: Time,
}

/// The links of a pass.
struct Links<'a> {
    from: (u16, &'a mut Port),
    to: (u16, &'a mut Port),
    /// How many there are.
    count: usize,
}

impl Ports for Links<'_> {
    #[inline]
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn port(&mut self, number: u16) -> Option<&mut Port> {
        let Self { from, to, .. } = self;
        [from, to].into_iter().find(|(of, _)| *of == number).map(|(_, port)| &mut **port)
    }
}

impl World<'_> {
    /// Takes the short way away, as a world that is compared with another has none, or gives it back.
    pub fn set_short_way(&mut self, is_open: bool) {
        let cards = self.nodes.iter_mut().map(|(_, node)| &mut node.card);
        cards.filter_map(|card| card.nic.outbox()).for_each(|outbox| outbox.set_open(is_open));
    }

    /// Frames so far that went the short way.
    pub fn short_way_frames(&self) -> u64 {
        self.nodes.cards().map(|(_, card)| card.counts.short_way).sum()
    }

    /// Whether nothing is in the way of messages that are launched now. So it stays while slots are taken one after the other: none
    /// of those who could be in the way gets the world meanwhile, and cards on the short way have no work in hand.
    pub(super) fn is_way_clear(&self) -> bool {
        !self.is_in_lockstep()
            && !self.common.has_device_faults
            && !self.common.is_owing
            && !self.common.network.taps().is_any()
            && !self.common.network.is_any_faulty()
            && self.next_work().is_none()
    }

    /// Carries out what the model of `node` wants done, and all that follows from it on every node, as [`World::settle`] does.
    #[inline]
    pub(super) fn follow(&mut self, node: usize, is_way_clear: bool) {
        let is_clear = is_way_clear && self.common.cut.is_none() && self.common.network.is_idle();
        if !is_clear || !self.pass(node) {
            self.settle(node);
        }
    }

    /// Carries the parcel that the model of `from` has left, and then the rest. False when there is none that can be carried so:
    /// a part of the nodes that has not got its receiver yet gets it on the general way.
    #[inline]
    fn pass(&mut self, from: usize) -> bool {
        let Some(parcel) = self.nodes.card_mut(from).and_then(|card| card.nic.outbox()?.parcel()) else {
            return false;
        };
        let to = usize::from(parcel.to);
        let count = self.nodes.len();
        let Some((sender, receiver)) = self.nodes.pair(from, to) else {
            // To itself, or to somebody who is not here.
            return false;
        };
        let is_first = sender.unsent.is_empty() && receiver.unsent.is_empty();
        if !is_first || receiver.card.nic.outbox().is_none() {
            return false;
        }
        let common = &mut *self.common;
        let (network, turn) = (&mut common.network, &mut common.turn);
        let Done { acts, latest } = carry((from as u16, sender), (to as u16, receiver), count, network, turn);
        common.acts += acts;
        common.latest = common.latest.max(latest);
        // What else the receiver wants done comes before what else the sender does: rarely anything.
        if !self.is_all_done(to) {
            self.answer(to, None);
        }
        if !self.is_all_done(from) || self.common.network.is_moving() {
            self.settle(from);
        }
        true
    }

    #[inline]
    fn is_all_done(&mut self, node: usize) -> bool {
        self.nodes.card_mut(node).and_then(|card| card.nic.outbox()).is_none_or(|outbox| outbox.is_empty())
    }
}

/// Carries the parcel that the sender's model has left: over the links, and into the receiver's model and memory.
#[inline]
fn carry(
    (from, sender): (u16, &mut Node),
    (to, receiver): (u16, &mut Node),
    count: usize,
    network: &mut Network,
    turn: &mut Turn,
) -> Done {
    let mut done = Done::default();
    turn.spend_work(sender.card.take_work());
    let Card { nic, counts, .. } = &mut sender.card;
    let Some(outbox) = nic.outbox() else { return done };
    if let Some(parcel) = outbox.parcel() {
        counts.short_way += 1;
        counts.traffic.sent_frames += 1;
        counts.traffic.sent_bytes += parcel.bytes as u64;
        done.latest = parcel.ready.head;
        let mut links = Links { from: (from, &mut sender.port), to: (to, &mut receiver.port), count };
        if let Some(passage) = network.pass(&mut links, from, parcel) {
            turn.spend(frame_ns(parcel.bytes));
            done.acts += 1;
            let Node { card, bus, .. } = receiver;
            card.arrive_parcel(passage, parcel, bus);
            turn.spend_work(card.take_work());
            if let Some(deposit) = card.nic.outbox().and_then(|outbox| outbox.take_deposit()) {
                done.latest = done.latest.max(deposit.at);
                card.write(deposit.address, &deposit.words);
            }
        }
    }
    outbox.clear_parcel();
    done
}
