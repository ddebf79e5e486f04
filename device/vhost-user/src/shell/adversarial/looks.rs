//! How an adversarial card looks at pages: in any order, taking as much as it likes, with a doorbell word that changes at
//! every look.
//!
//! The word follows the manual's rule (docs/driver/DEVICE.md, section 5) all the same: while it says that no doorbell is
//! needed, the card is bound to look again by itself; before the card sleeps it asks for doorbells, executes a full
//! barrier, and looks once more.

use niclab_model::nic::adversarial::Kind;

use crate::shell::adversary::AdversaryState;
use crate::shell::card::Card;
use crate::shell::world::{Found, World};

/// Looks for which a card stays awake after a doorbell, at the most; mostly.
const MAX_LOOKS: u32 = 12;

/// One time in so many it stays awake for longer by [`LONGER`]: for as long as a program takes to launch many times, so
/// that there is no step of a launch, however short, at which no look ever falls.
const LONG_ONE_IN: u32 = 8;

/// See [`LONG_ONE_IN`]. All looks of a card together are bounded by its doorbells, a guest cannot make one longer.
const LONGER: u32 = 128;

/// Most slots of a port that a look takes which leaves some.
const MAX_SLOTS: u32 = 4;

impl AdversaryState {
    /// At which port a look begins, of so many, and how many slots of each port it takes.
    fn begin_look(&mut self, ports: u32) -> (u32, u32) {
        let first = self.pick(Kind::PortsReordered, ports as usize) as u32;
        let most = self.dice.draw(Kind::SlotsLeft, MAX_SLOTS).map_or(u32::MAX, |slots| 1 + slots);
        (first, most)
    }

    /// How many looks the card takes yet, this one not included; whether it has looked before.
    fn looks_left(&mut self) -> (u32, bool) {
        if !self.looks.is_on {
            let drawn = self.dice.draw(Kind::DoorbellChanged, MAX_LOOKS * LONG_ONE_IN);
            self.looks.left = drawn.map_or(0, |drawn| {
                let looks = 1 + drawn % MAX_LOOKS;
                if drawn < MAX_LOOKS { looks * LONGER } else { looks }
            });
        }
        (self.looks.left, std::mem::replace(&mut self.looks.is_on, true))
    }
}

impl World<'_> {
    /// Looks at the pages of `node`, because a doorbell was rung or a look before has promised it. Nothing where its
    /// card is kind.
    pub(in crate::shell) fn answer_doorbell_adversarially(&mut self, node: usize) -> Option<Found> {
        if !self.is_adversarial() {
            return None;
        }
        if self.is_in_lockstep() {
            // A look for each turn: no program may believe any more that the card looks by itself.
            let card = self.nodes.card_mut(node)?;
            if std::mem::take(&mut card.adversary.as_mut()?.looks).is_on {
                card.want_doorbell(true);
            }
            return None;
        }
        let card = self.nodes.card_mut(node)?;
        let is_polled = card.is_polled();
        let adversary = card.adversary.as_mut()?;
        if is_polled && !adversary.looks.is_on {
            // Somebody polls all the time.
            return None;
        }
        let (left, has_looked) = adversary.looks_left();
        // What is there at the first look was rung for.
        card.spare_doorbell(has_looked);
        let look = self.serve_pages(node);
        // A turn may have begun by this look.
        let goes_on = left > 0 && !self.is_in_lockstep();
        let adversary = self.nodes.card_mut(node).and_then(|card| card.adversary.as_mut())?;
        adversary.looks.left = left.saturating_sub(1);
        adversary.looks.is_on = goes_on;
        if goes_on {
            // It is awake until the next look, which comes at once: either word is right meanwhile.
            adversary.dice.count(Kind::DoorbellChanged);
            if left.is_multiple_of(2)
                && let Some(card) = self.nodes.card_mut(node)
            {
                card.want_doorbell(true);
            }
            return Some(Found { more: true, ..look });
        }
        if let Some(card) = self.nodes.card_mut(node) {
            card.want_doorbell(true);
        }
        // Behind the barrier in this: at what was stored before a guest could see that.
        Some(Found { more: look.more || self.has_news(node), ..look })
    }

    /// Looks at the open pages of an adversarial card: in any order, and takes as much as it likes. Nothing where the card
    /// is kind.
    pub(in crate::shell) fn look_adversarially(&mut self, node: usize) -> Option<Found> {
        let card = self.nodes.card_mut(node)?;
        let ports = card.ports();
        let (first, most) = card.adversary.as_mut()?.begin_look(ports);
        let work = self.serve_ports_from(node, first, most);
        let is_left = |card: &Card, port| card.is_open(port) && card.has_news(port);
        let card = self.nodes.card_mut(node)?;
        let more = most < u32::MAX && (0..ports).any(|port| is_left(card, port));
        if more {
            card.adversary.as_mut()?.dice.count(Kind::SlotsLeft);
        }
        Some(Found { work, more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_sleeps_after_few_looks_mostly_and_stays_awake_for_long_at_times() {
        let mut adversary = AdversaryState::new(1, 0);
        let (mut short, mut long) = (0, 0);
        for _ in 0..1_000 {
            adversary.looks.is_on = false;
            let (left, has_looked) = adversary.looks_left();
            assert!(!has_looked && left <= MAX_LOOKS * LONGER);
            short += u32::from((1..=MAX_LOOKS).contains(&left));
            long += u32::from(left >= LONGER);
            // Drawn once for a doorbell.
            assert_eq!(adversary.looks_left(), (left, true));
        }
        assert!(long > 20 && short > 4 * long, "{short} short, {long} long");
    }
}
