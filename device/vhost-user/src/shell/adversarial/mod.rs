//! What a card's shell does that the manual allows and kind hardware seldom does: answers, events and interrupts that
//! come late, together or in another order, a doorbell word that changes all the time, slots that are left for a later
//! look. What a model's own effects are subject to stands in [`niclab_model::nic::adversarial`].
//!
//! Whatever is kept back is bound to come: after so many things that anybody did ([`Card::mind`], a tick for each), or
//! when nobody has done anything for [`patience::QUIET`]. Counts decide, and wall time where nothing happens alone; but
//! for very late answers and the magic word, whose limits are of wall time themselves. What is kept is bounded: a reply
//! for each request that is under way, of which a driver has no more than its queue has descriptors, and one promise of
//! an interrupt for each queue.

pub mod deferred;
mod looks;

use std::time::Instant;

use niclab_model::nic::ReplyBytes;
use niclab_model::nic::adversarial::{Adversarial, Kind};
use vhost_user_backend::VringT;

use super::adversary::{AdversaryState, KeptReply, OWED_QUEUES, Tick, When};
use super::card::Card;
use super::world::World;
use crate::vring;

impl Card {
    /// Answers a request, now or later.
    pub fn reply(&mut self, token: u64, bytes: &[u8]) {
        if let Some(adversary) = &mut self.adversary
            && let Some(when) = adversary.reply_when()
        {
            return adversary.replies.push(KeptReply { token, bytes: ReplyBytes::from_slice(bytes), when });
        }
        self.reply_now(token, bytes);
    }

    /// Goes on with what is kept back.
    fn mind(&mut self, tick: Tick, now: Option<Instant>) {
        let Some(adversary) = &mut self.adversary else { return };
        let is_past = |at: &Instant| now.is_some_and(|now| *at <= now);
        let mut due = Vec::new();
        for mut kept in std::mem::take(&mut adversary.replies) {
            let is_due = match &mut kept.when {
                When::Ticks(ticks) => {
                    *ticks = tick.from(*ticks);
                    *ticks == 0
                }
                When::At(at) => is_past(at),
            };
            if is_due { due.push(kept) } else { adversary.replies.push(kept) }
        }
        if let Some(first) = adversary.replies.first() {
            let overtaking = due.iter().filter(|kept| kept.token > first.token).count();
            (0..overtaking).for_each(|_| adversary.dice.count(Kind::ReplyReordered));
        }
        let had_events = adversary.events > 0;
        adversary.events = tick.from(adversary.events);
        let has_events = had_events && adversary.events == 0;
        let owed = adversary.owed;
        adversary.owed = owed.map(|ticks| tick.from(ticks));
        let is_owed = [0, 1].map(|place| owed[place] > 0 && adversary.owed[place] == 0);
        if adversary.magic.as_ref().is_some_and(is_past) {
            adversary.magic = None;
            self.pages.publish();
        }
        due.into_iter().for_each(|kept| self.reply_now(kept.token, &kept.bytes));
        if has_events {
            self.deliver_events();
        }
        let owed = OWED_QUEUES.into_iter().zip(is_owed).filter(|(_, is_owed)| *is_owed);
        owed.for_each(|(queue, _)| self.interrupt(queue));
    }

    /// Raises a queue's interrupt, whether or not there is anything to tell.
    fn interrupt(&self, queue: u32) {
        if let Some(vring) = self.vrings.get(queue as usize).filter(|_| self.is_running) {
            vring::interrupt(&vring.get_ref());
        }
    }

    /// Something was told by this queue. Calls once more at times, with nothing to tell.
    pub fn call_in_vain(&mut self, queue: u32) {
        if self.adversary.as_mut().is_some_and(|adversary| adversary.happens(Kind::InterruptSpurious)) {
            self.interrupt(queue);
        }
    }
}

impl World<'_> {
    /// Has the card of `node` be adversarial from now on.
    pub fn make_adversarial(&mut self, node: usize, seed: u64) {
        let Some(card) = self.nodes.card_mut(node) else { return };
        let (adversary, adversarial) =
            (AdversaryState::new(seed, node as u16), Adversarial::new(seed, node as u16));
        card.make_adversarial(adversary, adversarial);
        self.common.is_adversarial = true;
    }

    /// Has these cards draw by another seed from now on, all of them at the same instant: what each keeps back comes
    /// when it was to come. Where one of them is kind nothing is changed, and the answer is its node.
    ///
    /// # Errors
    /// The first node whose card is kind.
    pub fn reseed(&mut self, nodes: &[usize], seed: u64) -> Result<(), usize> {
        let is_kind = |node: &&usize| {
            self.nodes
                .card(**node)
                .is_none_or(|card| card.adversary.is_none() || card.nic.adversarial().is_none())
        };
        if let Some(kind) = nodes.iter().find(is_kind) {
            return Err(*kind);
        }
        for node in nodes {
            let Some(card) = self.nodes.card_mut(*node) else { continue };
            card.adversary.iter_mut().for_each(|adversary| adversary.reseed(seed));
            card.nic.adversarial_mut().into_iter().for_each(|adversarial| adversarial.reseed(seed));
        }
        Ok(())
    }

    /// Whether some card is adversarial.
    pub fn is_adversarial(&self) -> bool {
        self.common.is_adversarial
    }

    /// A request of `node` was taken. Whether its card leaves the others for a later turn.
    pub(super) fn leaves_requests(&mut self, node: usize) -> bool {
        let card = self.nodes.card_mut(node).filter(|card| card.adversary.is_some());
        let Some(card) = card.filter(|card| card.has_request()) else { return false };
        card.adversary.as_mut().is_some_and(|adversary| adversary.happens(Kind::RequestsOneByOne))
    }

    /// Goes on with what cards keep back.
    pub fn mind(&mut self, tick: Tick, now: Option<Instant>) {
        if self.common.is_adversarial {
            let cards = self.nodes.iter_mut().map(|(_, node)| &mut node.card);
            cards.filter(|card| !card.stands_still()).for_each(|card| card.mind(tick, now));
        }
    }

    /// Whether a card keeps something back, itself or in its model.
    fn is_keeping(&self) -> bool {
        let is_keeping = |card: &Card| {
            card.adversary.as_ref().is_some_and(|adversary| adversary.is_keeping())
                || card.nic.adversarial().is_some_and(|adversarial| adversarial.due().is_some())
        };
        self.nodes.cards().any(|(_, card)| is_keeping(card))
    }
}
