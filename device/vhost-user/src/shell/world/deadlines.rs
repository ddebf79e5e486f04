//! How model time passes while nobody does anything that has it pass: deadlines of cards, and frames that faults hold
//! back.

use std::collections::BTreeMap;
use std::time::Duration;

use niclab_model::time::Time;

use super::World;
use crate::shell::turn::Turn;

/// Deadlines that were there at a look, each with how long it has stood by then, in wall time: one at most of each
/// card.
#[derive(Debug, Default)]
pub struct Standing {
    deadlines: BTreeMap<usize, (Time, Duration)>,
}

impl World<'_> {
    /// Whether anything waits for model time to pass.
    pub fn is_waiting(&self) -> bool {
        if self.is_in_lockstep() {
            // Model time passes as its programs have it.
            return false;
        }
        self.has_pending() || self.common.network.is_holding() || self.deadlines().next().is_some()
    }

    /// How far off the earliest deadline is, where nothing is under way.
    pub fn far_deadline(&self) -> Option<Duration> {
        if self.has_pending() || self.common.network.is_holding() || self.common.ethernet.is_holding() {
            return None;
        }
        let (deadline, _) = self.deadlines().min()?;
        Some(self.wall_until(deadline))
    }

    /// The earliest deadline of each card that has one and whose model time passes, with its node.
    fn deadlines(&self) -> impl Iterator<Item = (Time, usize)> + '_ {
        let deadlines =
            self.nodes.cards().filter_map(|(node, card)| Some((card.nic.poll_timeout()?, node, card)));
        let passing = deadlines.filter(|(_, node, card)| !self.time_waits(*node, card));
        passing.map(|(deadline, node, _)| (deadline, node))
    }

    /// How long it is in model time until a deadline, as wall time.
    fn wall_until(&self, deadline: Time) -> Duration {
        Duration::from_nanos(deadline.since(self.model_time()).as_ps() / 1_000)
    }

    /// Others go on, and have all the while: fires the deadlines of those who have waited since the look before, so
    /// long ago in wall time, and has frames arrive that were held back then already. Whether there was any.
    pub fn pass_by(&mut self, standing: &mut Standing, since: Duration) -> bool {
        if self.is_in_lockstep() {
            standing.deadlines.clear();
            return false;
        }
        let mut any = self.release_standing();
        let before = std::mem::take(&mut standing.deadlines);
        let mut now: Vec<_> = self.deadlines().collect();
        now.sort_unstable();
        for (deadline, node) in now {
            let stood = before.get(&node).filter(|(earlier, _)| *earlier == deadline);
            let stood = stood.map_or(Duration::ZERO, |(_, stood)| *stood + since);
            if stood.is_zero() || stood < self.wall_until(deadline) {
                standing.deadlines.insert(node, (deadline, stood));
            } else if self.nodes.card(node).and_then(|card| card.nic.poll_timeout()) == Some(deadline) {
                // What fired before it did not take it back.
                self.expire(node, deadline);
                any = true;
            }
        }
        any
    }

    /// Frames that faults have held back since the look before arrive. Whether there were any.
    fn release_standing(&mut self) -> bool {
        let any = self.common.network.release_standing();
        // What is under way already may take deadlines back.
        if self.has_pending() {
            self.common.turn = Turn::WHOLE;
            self.settle(0);
            self.serve_stalled();
        }
        self.common.ethernet.still_holds() && self.release_held() || any
    }

    /// The fabric was quiet: lets frames arrive that were held back, or else fires the earliest deadline of all models.
    /// Nothing is in flight, so that nothing can precede it.
    pub fn pass_time(&mut self) {
        self.common.turn = Turn::WHOLE;
        if !self.has_pending() && !self.common.network.release_all() {
            let Some((deadline, node)) = self.deadlines().min() else { return };
            return self.expire(node, deadline);
        }
        self.settle(0);
        self.serve_stalled();
    }

    /// A deadline of a card has come, though nobody knows whether others got that far.
    pub(in crate::shell) fn expire(&mut self, node: usize, deadline: Time) {
        self.common.turn = Turn::WHOLE;
        if let Some((card, bus)) = self.node(node) {
            card.expire(deadline, bus);
        }
        self.carry_out(node);
        self.settle(0);
        self.serve_stalled();
    }
}
