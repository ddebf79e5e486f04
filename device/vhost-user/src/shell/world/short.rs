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

use niclab_model::fabric::Deliveries;
use niclab_model::nic::parcel::Parcel;
use niclab_model::platform::node_bus::NodeBus;
use niclab_model::time::{Passage, Time};

use super::World;
use crate::shell::card::Card;
use crate::shell::network::Network;
use crate::shell::turn::{Turn, frame_ns};

/// One end of a message's way.
struct End<'a> {
    card: &'a mut Card,
    bus: &'a mut NodeBus,
}

/// What a pass has done beside what its two ends and the links between them know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Done {
    /// Frames that arrived.
    acts: u64,
    /// The latest instant at which a model wanted something done.
    latest: Time,
}

impl World {
    /// Takes the short way away, as a world that is compared with another has none, or gives it back.
    pub fn set_short_way(&mut self, is_open: bool) {
        self.has_short_way = is_open;
        self.cards.iter_mut().filter_map(|card| card.nic.outbox()).for_each(|outbox| outbox.set_open(is_open));
    }

    /// Whether nothing is in the way of messages that are launched now. So it stays while slots are taken one after the other: none
    /// of those who could be in the way gets the world meanwhile, and cards on the short way have no work in hand.
    pub(super) fn is_way_clear(&self) -> bool {
        self.has_short_way
            && !self.is_in_lockstep()
            && !self.has_device_faults
            && !self.network.taps().is_any()
            && !self.network.is_any_faulty()
            && self.next_work().is_none()
    }

    /// Carries out what the model of `node` wants done, and all that follows from it on every node, as [`World::settle`] does.
    #[inline]
    pub(super) fn follow(&mut self, node: usize, is_way_clear: bool) {
        if !is_way_clear || !self.network.is_idle() || !self.pass(node) {
            self.settle(node);
        }
    }

    /// Carries the parcel that the model of `from` has left, and then the rest. False when there is none that can be carried so.
    #[inline]
    fn pass(&mut self, from: usize) -> bool {
        let Some(parcel) = self.cards.get_mut(from).and_then(|card| card.nic.outbox()?.parcel()) else {
            return false;
        };
        let to = usize::from(parcel.to);
        let Self { cards, buses, network, turn, .. } = self;
        let (Ok([card, other]), Ok([bus, other_bus])) =
            (cards.get_disjoint_mut([from, to]), buses.get_disjoint_mut([from, to]))
        else {
            // To itself, or to nobody.
            return false;
        };
        if other.nic.outbox().is_none() {
            return false;
        }
        let (sender, receiver) = (End { card, bus }, End { card: other, bus: other_bus });
        let Done { acts, latest } = carry(from as u16, sender, receiver, network, turn);
        self.acts += acts;
        self.latest = self.latest.max(latest);
        // What else the receiver wants done comes before what else the sender does.
        for node in [to, from] {
            self.carry_rest(node, node == from);
        }
        if self.network.is_moving() {
            self.settle_rest();
        }
        true
    }

    /// Carries out what was left beside parcel and deposit: rarely anything.
    #[inline]
    fn carry_rest(&mut self, node: usize, is_sender: bool) {
        let is_empty = |card: &mut Card| card.nic.outbox().is_none_or(|outbox| outbox.is_empty());
        if self.cards.get_mut(node).is_none_or(is_empty) {
            return;
        }
        if is_sender {
            self.carry_out(node);
        } else {
            self.carry_out_kept(node);
        }
    }
}

/// Carries the parcel that the sender's model has left: over the links, and into the receiver's model and memory.
#[inline]
fn carry(from: u16, sender: End<'_>, receiver: End<'_>, network: &mut Network, turn: &mut Turn) -> Done {
    let mut done = Done::default();
    turn.spend_work(sender.card.take_work());
    let Card { nic, counts, .. } = sender.card;
    let Some(outbox) = nic.outbox() else { return done };
    if let Some(parcel) = outbox.parcel() {
        counts.short_way += 1;
        counts.traffic.sent_frames += 1;
        counts.traffic.sent_bytes += parcel.bytes as u64;
        done.latest = parcel.ready.head;
        if let Some(passage) = network.pass(from, parcel) {
            turn.spend(frame_ns(parcel.bytes));
            done.acts += 1;
            arrive(receiver, passage, parcel, &mut done, turn);
        }
    }
    outbox.clear_parcel();
    done
}

/// Gives a parcel to the receiver's model, and stores what that leaves first.
#[inline]
fn arrive(receiver: End<'_>, passage: Passage, parcel: &Parcel, done: &mut Done, turn: &mut Turn) {
    let End { card, bus } = receiver;
    card.arrive_parcel(passage, parcel, bus);
    turn.spend_work(card.take_work());
    if let Some(deposit) = card.nic.outbox().and_then(|outbox| outbox.take_deposit()) {
        done.latest = done.latest.max(deposit.at);
        card.write(deposit.address, &deposit.words);
    }
}

impl Network {
    /// Prices the way of a parcel from the card of node `from`. Nothing else is under way and no link is faulty, so that it has one
    /// arrival, or none where a link or its queue is in the way.
    #[inline]
    fn pass(&mut self, from: u16, parcel: &Parcel) -> Option<Passage> {
        let mut deliveries = Deliveries::new();
        self.fabric_mut().forward_parcel(from, parcel, &mut deliveries);
        let only = deliveries.first()?;
        self.note_arrival(only.at);
        Some(Passage { head: only.head, tail: only.at })
    }
}
