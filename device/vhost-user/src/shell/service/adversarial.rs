//! How an adversarial card polls pages: in any order, any number of slots, with a doorbell word that changes at every
//! poll.
//!
//! The word still follows the manual's rule (docs/driver/DEVICE.md, section 5). While it says that no doorbell is
//! needed, the card must poll again by itself. Before the card sleeps it enables doorbells, executes a full barrier,
//! and polls once more.

use niclab_model::nic::adversarial::AdversarialKind;

use super::{Found, has_new_posts, serve_pages};
use crate::shell::adversary::AdversaryState;
use crate::shell::card::Card;
use crate::shell::dispatch::pages;
use crate::shell::locks::LockedNodes;

/// Usual maximum of polls for which a card stays awake after a doorbell.
const MAX_POLLS: u32 = 12;

/// One time in this many the card stays awake [`LONGER`] times as long: for many posts of a program, so that a poll may
/// fall on every step of a post, however short.
const LONG_ONE_IN: u32 = 8;

/// See [`LONG_ONE_IN`]. The doorbells of a card bound its polls, so a guest cannot extend them.
const LONGER: u32 = 128;

/// Maximum of slots that an incomplete poll takes of a port.
const MAX_SLOTS: u32 = 4;

impl AdversaryState {
    /// The port at which a poll of `ports` ports begins, and the slots that it takes of each.
    fn begin_poll(&mut self, ports: u32) -> (u32, u32) {
        let first = self.pick(AdversarialKind::PortsReordered, ports as usize) as u32;
        let max_slots =
            self.sampler.draw(AdversarialKind::SlotsLeft, MAX_SLOTS).map_or(u32::MAX, |slots| 1 + slots);
        (first, max_slots)
    }

    /// How many polls follow this one, and whether one preceded it.
    fn polls_left(&mut self) -> (u32, bool) {
        if !self.polls.is_on {
            let sample = self.sampler.draw(AdversarialKind::DoorbellChanged, MAX_POLLS * LONG_ONE_IN);
            self.polls.left = sample.map_or(0, |sample| {
                let polls = 1 + sample % MAX_POLLS;
                if sample < MAX_POLLS { polls * LONGER } else { polls }
            });
        }
        (self.polls.left, std::mem::replace(&mut self.polls.is_on, true))
    }
}

/// Polls the pages of `node` after a doorbell, or because an earlier poll promised it. `None` if its card is not
/// adversarial.
pub fn serve_doorbell(locked: &mut LockedNodes<'_>, node: usize) -> Option<Found> {
    if !locked.common.is_adversarial {
        return None;
    }
    if locked.is_in_lockstep() {
        // One poll for each grant: no program may rely on polls that the card makes by itself.
        let card = locked.nodes.card_mut(node)?;
        if std::mem::take(&mut card.host.adversary.as_mut()?.polls).is_on {
            card.host.want_doorbell(true);
        }
        return None;
    }
    let card = locked.nodes.card_mut(node)?;
    let is_polled = card.host.is_polled();
    let adversary = card.host.adversary.as_mut()?;
    if is_polled && !adversary.polls.is_on {
        // A thread polls all the time.
        return None;
    }
    let (left, has_polled) = adversary.polls_left();
    // The doorbell announced what the first poll finds.
    card.host.suppress_doorbell(has_polled);
    let found = serve_pages(locked, node);
    // Lockstep may have begun with this poll.
    let stays_awake = left > 0 && !locked.is_in_lockstep();
    let adversary = locked.nodes.card_mut(node).and_then(|card| card.host.adversary.as_mut())?;
    adversary.polls.left = left.saturating_sub(1);
    adversary.polls.is_on = stays_awake;
    if stays_awake {
        // The next poll comes at once, so either word is right until then.
        adversary.sampler.count(AdversarialKind::DoorbellChanged);
        if left.is_multiple_of(2)
            && let Some(card) = locked.nodes.card_mut(node)
        {
            card.host.want_doorbell(true);
        }
        return Some(Found { more: true, ..found });
    }
    if let Some(card) = locked.nodes.card_mut(node) {
        card.host.want_doorbell(true);
    }
    // After the barrier in `want_doorbell`: for posts that a guest stored before it could see the word.
    Some(Found { more: found.more || has_new_posts(locked, node), ..found })
}

/// Polls the open pages of an adversarial card. `None` if the card is not adversarial.
pub fn poll(locked: &mut LockedNodes<'_>, node: usize) -> Option<Found> {
    let card = locked.nodes.card_mut(node)?;
    let ports = card.ports();
    let (first, max_slots) = card.host.adversary.as_mut()?.begin_poll(ports);
    let work = pages::serve_ports_from(locked, node, first, max_slots);
    let is_left = |card: &Card, port| card.is_open(port) && card.has_news(port);
    let card = locked.nodes.card_mut(node)?;
    let more = max_slots < u32::MAX && (0..ports).any(|port| is_left(card, port));
    if more {
        card.host.adversary.as_mut()?.sampler.count(AdversarialKind::SlotsLeft);
    }
    Some(Found { work, more })
}

/// Whether the card of `node` defers its other requests after it has taken one.
pub fn leaves_requests(locked: &mut LockedNodes<'_>, node: usize) -> bool {
    let card = locked.nodes.card_mut(node).filter(|card| card.host.adversary.is_some());
    let Some(card) = card.filter(|card| card.host.has_request()) else { return false };
    card.host.adversary.as_mut().is_some_and(|adversary| adversary.happens(AdversarialKind::RequestsOneByOne))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn card_usually_sleeps_after_few_polls_and_sometimes_late() {
        let mut adversary = AdversaryState::new(1, 0);
        let (mut short, mut long) = (0, 0);
        for _ in 0..1_000 {
            adversary.polls.is_on = false;
            let (left, has_polled) = adversary.polls_left();
            assert!(!has_polled && left <= MAX_POLLS * LONGER);
            short += u32::from((1..=MAX_POLLS).contains(&left));
            long += u32::from(left >= LONGER);
            // Sampled once for each doorbell.
            assert_eq!(adversary.polls_left(), (left, true));
        }
        assert!(long > 20 && short > 4 * long, "{short} short, {long} long");
    }
}
