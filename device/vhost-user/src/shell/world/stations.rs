//! Ordinary frames: Ethernet functions and stations of cards on the two ends, whoever sends.
//!
//! A frame that is of no model's protocol goes to the Ethernet function of its node, or, by its address, to the card for a
//! station of its own, or to both ([`Concern`]). What a node's own stations send to all its Ethernet function hears, and the
//! other way round, neither over the link: the switch sends to all others. What is addressed goes through the switch and comes
//! back.

use niclab_model::fabric::ethernet::Concern;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::Passage;

use super::World;
use crate::shell::ethernet::ForStations;
use crate::shell::turn::Turn;

impl World {
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
            concern.is_for_stations(node) && self.cards.get(to).is_some_and(|card| card.nic.has_stations());
        if is_for_host {
            let spent = self.ethernet.receive(to, passage.tail, frame, message, &mut self.buses, &self.cards);
            self.turn.spend(spent);
        }
        if !is_for_host && !is_for_stations {
            self.ethernet.drop_frame(to);
        }
        is_for_stations
    }

    /// Sends what `node` has in its Ethernet function's transmit queue, as far as a turn goes. True when there is more.
    pub fn transmit(&mut self, node: usize) -> bool {
        self.turn = Turn::WHOLE;
        self.acts += 1;
        // What was sent to stations before is there before more is sent: however much that is, it waits in the guest.
        if self.serve_stations() {
            return true;
        }
        let Self { ethernet, network, turn, buses, cards, .. } = self;
        let more = ethernet.transmit(node, network, turn, buses, cards);
        let more_at_stations = self.serve_stations();
        if self.owes_stations {
            self.settle(node);
            self.owes_stations = self.network.is_moving();
        }
        more || more_at_stations || self.owes_stations
    }

    /// The driver of `node` has left receive buffers in its Ethernet function.
    pub fn refill(&mut self, node: usize) {
        self.acts += 1;
        self.ethernet.refill(node, &mut self.buses, &self.cards);
    }

    /// The fabric was quiet: Ethernet frames that a fault held back arrive. False when there are none.
    pub fn release_held(&mut self) -> bool {
        let any = self.ethernet.release_held(&mut self.buses, &self.cards);
        self.turn = Turn::WHOLE;
        self.serve_stations();
        any
    }

    /// Feeds to cards what guests sent to stations, and carries out what follows. True when there is more: one at least is fed.
    fn serve_stations(&mut self) -> bool {
        while let Some(next) = self.ethernet.for_stations.pop_front() {
            let to = next.to;
            if !self.arrive_in_lockstep(&next) {
                let ForStations { at, frame, message, .. } = next;
                self.arrive(to, at.into(), &frame, Some(message), Concern::Stations(to as u16));
                self.owes_stations = true;
                self.settle(to);
            }
            if self.turn.is_over() {
                break;
            }
        }
        !self.ethernet.for_stations.is_empty()
    }
}
