//! What the shell of a card does within the specification and hardware seldom does: late, merged or reordered replies,
//! events and interrupts, a doorbell word that changes all the time, slots that wait for a later poll.
//! [`niclab_model::nic::adversarial`] does the same to a model's own effects.
//!
//! What is delayed always comes: after a number of activities anywhere ([`tick`]), or when no thread was active for
//! [`deferred::IDLE`]. Wall time alone decides only for very late replies and the magic word, whose limits are wall
//! time. A card delays at most one reply for each pending request, of which a driver has no more than its queue has
//! descriptors, and one interrupt for each queue.

pub mod deferred;

use std::time::Instant;

use niclab_model::nic::adversarial::{Adversarial, AdversarialNic};

use super::adversary::{AdversaryState, Tick};
use super::card::{self, Card};
use super::locks::LockedNodes;

/// Makes the card of `node` adversarial.
pub fn make_adversarial(locked: &mut LockedNodes<'_>, node: usize, seed: u64) {
    let Some(card) = locked.nodes.card_mut(node) else { return };
    let number = node as u16;
    card.wrap_nic(|nic| Box::new(AdversarialNic::new(nic, Adversarial::new(seed, number))));
    card.host.adversary = Some(Box::new(AdversaryState::new(seed, number)));
    locked.common.is_adversarial = true;
}

/// Has these cards sample from another seed from now on, all at the same instant. What they delay keeps its due time.
///
/// # Errors
/// The first node whose card is not adversarial; then nothing is changed.
pub fn reseed(locked: &mut LockedNodes<'_>, nodes: &[usize], seed: u64) -> Result<(), usize> {
    let is_plain = |node: &&usize| {
        let card = locked.nodes.card(**node);
        card.is_none_or(|card| card.host.adversary.is_none() || card.nic.adversarial().is_none())
    };
    if let Some(plain) = nodes.iter().find(is_plain) {
        return Err(*plain);
    }
    for node in nodes {
        let Some(card) = locked.nodes.card_mut(*node) else { continue };
        card.host.adversary.iter_mut().for_each(|adversary| adversary.reseed(seed));
        card.nic.adversarial_mut().into_iter().for_each(|adversarial| adversarial.reseed(seed));
    }
    Ok(())
}

/// Releases what cards delay and what is due after this tick.
pub fn tick(locked: &mut LockedNodes<'_>, tick: Tick, now: Option<Instant>) {
    if locked.common.is_adversarial {
        let cards = locked.nodes.iter_mut().map(|(_, node)| &mut node.card);
        for card in cards.filter(|card| !card.host.state.is_stopped()) {
            let injector = card.nic.fault_injector_mut();
            card::adversarial::tick(&mut card.host, tick, now, injector);
        }
    }
}

/// Whether a card or its model delays anything.
fn is_delaying(locked: &LockedNodes<'_>) -> bool {
    let is_delaying = |card: &Card| {
        card.host.adversary.as_ref().is_some_and(|adversary| adversary.is_keeping())
            || card.nic.adversarial().is_some_and(|adversarial| adversarial.due().is_some())
    };
    locked.nodes.cards().any(|(_, card)| is_delaying(card))
}
