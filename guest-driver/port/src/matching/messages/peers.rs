//! The state of the other nodes: whether they are ready, and the credit that each has given.

use alloc::collections::VecDeque;

use super::{Buffer, CREDITS, LONG, LONG_SERIAL_SHIFT, MEMORY, MESSAGES, Messages, OF_GREETING};
use crate::Address;
use crate::matching::{Append, Outcome, Part, Put, Target};

/// Another node.
#[derive(Debug, Default)]
pub(super) struct Peer {
    greeting: Greeting,
    /// Messages sent to it.
    pub(super) sent: u64,
    /// Messages of these that its receives have taken, as far as it has reported.
    taken_by_it: u64,
    /// Messages of it that this node's receives have taken.
    taken: u64,
    /// Messages of these that were reported to it.
    told: u64,
    /// Sends that wait for credit.
    pub(super) backlog: VecDeque<Send>,
}

/// Whether its port is known to be open.
#[derive(Debug, Default, PartialEq, Eq)]
enum Greeting {
    /// No greeting was sent yet.
    #[default]
    None,
    /// A greeting is in flight.
    InFlight,
    /// It was not open; it will be greeted again.
    Due,
    /// It is open.
    Answered,
}

/// A send that has not begun.
#[derive(Debug)]
pub(super) struct Send {
    pub(super) id: u64,
    pub(super) tag: u32,
    pub(super) part: Part,
    pub(super) is_long: bool,
}

impl<B: Buffer> Messages<B> {
    const fn peer_target(&self, node: u32, portal: u32) -> Target {
        Target { port: Address { node, port: self.own.port }, portal }
    }

    /// Whether a peer with pending sends was absent when it was greeted.
    #[must_use]
    pub fn waits_for_greeting(&self) -> bool {
        self.peers.iter().any(|peer| peer.greeting == Greeting::Due)
    }

    /// Greets absent peers again.
    pub fn greet_again(&mut self) {
        for node in 0..self.nodes() {
            if self.peers.get(node as usize).is_some_and(|peer| peer.greeting == Greeting::Due) {
                self.greet(node);
            }
        }
    }

    /// Sends pending messages to `node`, as far as there is credit. Greets the node first, once.
    pub(super) fn send_to(&mut self, node: u32) {
        loop {
            let credits = self.terms.credits;
            let Some(peer) = self.peers.get_mut(node as usize) else { return };
            if peer.greeting == Greeting::None {
                return self.greet(node);
            }
            if peer.greeting != Greeting::Answered || peer.sent - peer.taken_by_it >= credits {
                return;
            }
            let Some(send) = peer.backlog.pop_front() else { return };
            peer.sent += 1;
            self.begin(node, &send);
        }
    }

    /// Sends a message, or the header of a long one.
    fn begin(&mut self, node: u32, send: &Send) {
        let target = self.peer_target(node, MESSAGES);
        let &Send { id, tag, part, is_long } = send;
        if !is_long {
            return self.push(&Put::new(target, part).match_bits(tag.into()).user(id).ack());
        }
        self.last_serial = (self.last_serial + 1) & (u64::MAX >> LONG_SERIAL_SHIFT);
        let serial = self.last_serial;
        let memory =
            Append::get(MEMORY, part).match_bits(serial, 0).source_node(node).no_unlink_event().user(id);
        self.push(&memory);
        let header = Put::new(target, Part { bytes: 0, ..part })
            .match_bits(LONG | u64::from(tag))
            .header_data(serial << LONG_SERIAL_SHIFT | part.bytes)
            .user(id)
            .ack();
        self.push(&header);
    }

    /// Greets `node`: an empty credit with acknowledgement shows whether its port is open.
    fn greet(&mut self, node: u32) {
        let Some(peer) = self.peers.get_mut(node as usize) else { return };
        peer.greeting = Greeting::InFlight;
        let credit = self.credit(node);
        self.push(&credit.user(OF_GREETING | u64::from(node)).ack());
    }

    pub(super) fn on_greeted(&mut self, node: u32, outcome: Outcome) {
        if let Some(peer) = self.peers.get_mut(node as usize) {
            peer.greeting = if outcome.is_done() { Greeting::Answered } else { Greeting::Due };
        }
        self.send_to(node);
    }

    /// `node` reports how many of this node's messages its receives have taken.
    pub(super) fn on_credit(&mut self, node: u32, taken: u64) {
        let Some(peer) = self.peers.get_mut(node as usize) else { return };
        // Attack: a peer may claim more than were sent.
        peer.taken_by_it = peer.taken_by_it.max(taken.min(peer.sent));
        if !peer.backlog.is_empty() {
            self.send_to(node);
        }
    }

    /// A receive has taken a message of `node`. The node gets a report once half of its credit is used up.
    pub(super) fn on_taken(&mut self, node: u32) {
        let step = self.terms.credits / 2;
        let Some(peer) = self.peers.get_mut(node as usize) else { return };
        peer.taken += 1;
        if peer.taken - peer.told >= step {
            peer.told = peer.taken;
            let credit = self.credit(node);
            self.push(&credit);
        }
    }

    /// The report to `node` of how many of its messages were taken.
    fn credit(&self, node: u32) -> Put<Part> {
        let told = self.peers.get(node as usize).map_or(0, |peer| peer.told);
        Put::new(self.peer_target(node, CREDITS), self.overflow.nothing()).header_data(told)
    }
}
