//! The other nodes: who can be sent to, and how far ahead of it this node is.

use alloc::collections::VecDeque;

use super::{Buffer, CREDITS, LONG, LONG_SERIAL_SHIFT, MEMORY, MESSAGES, Messages, OF_GREETING};
use crate::Address;
use crate::lists::{Append, Outcome, Part, Put, Target};

/// Another node.
#[derive(Debug, Default)]
pub(super) struct Peer {
    greeting: Greeting,
    /// Messages sent to it.
    pub(super) sent: u64,
    /// Of these, taken by its receives, as far as it said.
    taken_by_it: u64,
    /// Messages of it that our receives have taken.
    taken: u64,
    /// Of these, told to it.
    told: u64,
    /// Sends that wait for credit.
    pub(super) backlog: VecDeque<Send>,
}

/// Whether its port is known to be open.
#[derive(Debug, Default, PartialEq, Eq)]
enum Greeting {
    /// Nobody asked yet.
    #[default]
    None,
    /// It was asked.
    UnderWay,
    /// It was not open; it will be asked again.
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

    /// Whether a peer that is to be sent to was not there when it was asked.
    #[must_use]
    pub fn waits_for_greeting(&self) -> bool {
        self.peers.iter().any(|peer| peer.greeting == Greeting::Due)
    }

    /// Asks those again that were not there.
    pub fn greet_again(&mut self) {
        for node in 0..self.nodes() {
            if self.peers.get(node as usize).is_some_and(|peer| peer.greeting == Greeting::Due) {
                self.greet(node);
            }
        }
    }

    /// Sends what waits for `node`, as far as there is credit. The first time it is asked whether it is there.
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

    /// Asks whether the port of `node` is open: an empty credit, acknowledged.
    fn greet(&mut self, node: u32) {
        let Some(peer) = self.peers.get_mut(node as usize) else { return };
        peer.greeting = Greeting::UnderWay;
        let credit = self.credit(node);
        self.push(&credit.user(OF_GREETING | u64::from(node)).ack());
    }

    pub(super) fn on_greeted(&mut self, node: u32, outcome: Outcome) {
        if let Some(peer) = self.peers.get_mut(node as usize) {
            peer.greeting = if outcome.is_done() { Greeting::Answered } else { Greeting::Due };
        }
        self.send_to(node);
    }

    /// `node` says how many of our messages its receives have taken.
    pub(super) fn on_credit(&mut self, node: u32, taken: u64) {
        let Some(peer) = self.peers.get_mut(node as usize) else { return };
        // Never more than were sent, whatever it says.
        peer.taken_by_it = peer.taken_by_it.max(taken.min(peer.sent));
        if !peer.backlog.is_empty() {
            self.send_to(node);
        }
    }

    /// A receive has taken a message of `node`: it is told once half its credit is used up.
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

    /// How many messages of `node` our receives have taken, as it was last told.
    fn credit(&self, node: u32) -> Put<Part> {
        let told = self.peers.get(node as usize).map_or(0, |peer| peer.told);
        Put::new(self.peer_target(node, CREDITS), self.overflow.nothing()).header_data(told)
    }
}
