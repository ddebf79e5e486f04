//! Ordinary frames: Ethernet functions and stations of cards on the two ends, whoever sends.
//!
//! A frame that is of no model's protocol goes to the Ethernet function of its node, or, by its address, to the card
//! for a station of its own, or to both ([`Concern`]). What a node's own stations send to all its Ethernet function
//! hears, and the other way round, neither over the link: the switch sends to all others. What is addressed goes
//! through the switch and comes back.

use niclab_model::fabric::ethernet::Concern;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::Passage;

use super::{Common, World};
use crate::shell::ethernet::ForStations;
use crate::shell::turn::Turn;

impl World<'_> {
    /// An ordinary frame of a model: the Ethernet function of `to` gets what is its own. Whether stations get it, too.
    #[cold]
    pub(super) fn is_for_stations(
        &mut self,
        to: usize,
        passage: Passage,
        frame: &SharedFrame,
        message: Option<TraceTag>,
        concern: Concern,
    ) -> bool {
        let node = to as u16;
        let is_for_host = concern.is_for_host(node);
        let is_for_stations =
            concern.is_for_stations(node) && self.nodes.card(to).is_some_and(|card| card.nic.has_stations());
        if is_for_host {
            let spent = self.common.ethernet.receive(to, passage.tail, frame, message, &mut self.nodes);
            self.common.turn.spend(spent);
        }
        if !is_for_host && !is_for_stations {
            self.common.ethernet.drop_frame(to);
        }
        is_for_stations
    }

    /// Sends what `node` has in a transmit queue of its Ethernet function, by pair, as far as a turn goes. True when
    /// there is more.
    pub fn transmit(&mut self, node: usize, pair: usize) -> bool {
        self.common.turn = Turn::WHOLE;
        self.common.acts += 1;
        // What it sent to stations before is there before it sends more: however much that is, it waits in the guest.
        if self.serve_stations(node) {
            return true;
        }
        let Common { ethernet, network, turn, .. } = &mut *self.common;
        let more = ethernet.transmit((node, pair), network, turn, &mut self.nodes);
        let more = self.serve_stations(node) || more;
        self.settle_stations(node) || more
    }

    /// The driver of `node` has left receive buffers in a queue of its Ethernet function, by pair.
    pub fn refill(&mut self, node: usize, pair: usize) {
        self.common.acts += 1;
        self.common.ethernet.refill((node, pair), &mut self.nodes);
    }

    /// The fabric was quiet: Ethernet frames that a fault held back arrive. False when there are none.
    pub fn release_held(&mut self) -> bool {
        let any = self.common.ethernet.release_held(&mut self.nodes);
        for node in 0..self.common.ethernet.states.len() {
            // Whoever sent them may send nothing more, and there are no more than may be held back.
            self.common.turn = Turn::WHOLE;
            while self.serve_stations(node) {
                self.common.turn = Turn::WHOLE;
            }
            self.settle_stations(node);
        }
        any
    }

    /// Feeds to cards what the guest of `node` sent to stations, and carries out what follows, as far as the turn goes.
    /// True when there is more: one frame at least is fed.
    fn serve_stations(&mut self, node: usize) -> bool {
        while let Some(sender) = self.common.ethernet.states.get_mut(node)
            && let Some(next) = sender.for_stations.pop_front()
        {
            sender.owes_settling = true;
            if !self.arrive_in_lockstep(&next) {
                let ForStations { to, at, frame, message } = next;
                self.arrive(to, at.into(), &frame, Some(message), Concern::Stations(to as u16));
                self.settle(to);
            }
            if self.common.turn.is_over() {
                break;
            }
        }
        self.common.ethernet.states.get(node).is_some_and(|sender| !sender.for_stations.is_empty())
    }

    /// Goes on with what followed from frames of `node` for stations. True when there is more.
    fn settle_stations(&mut self, node: usize) -> bool {
        if self.common.ethernet.states.get(node).is_none_or(|sender| !sender.owes_settling) {
            return false;
        }
        self.settle(node);
        self.serve_stalled();
        let owes = self.common.network.is_moving() && !self.is_in_lockstep();
        if let Some(sender) = self.common.ethernet.states.get_mut(node) {
            sender.owes_settling = owes;
        }
        owes
    }
}
