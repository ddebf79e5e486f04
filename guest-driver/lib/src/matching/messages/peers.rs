//! The other nodes: who can be sent to, and how far ahead of it this node is.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use super::{CREDITS, Endpoint, GREETING_INTERVAL, LONG, LONG_SERIAL_SHIFT, MEMORY, MESSAGES, OF_GREETING};
use crate::matching::{Append, Outcome, Put, Region, Target};
use crate::{Address, Error};

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
    Due(Instant),
    /// It is open.
    Answered,
}

/// A send that has not begun.
#[derive(Debug)]
pub(super) struct Send {
    pub(super) id: u64,
    pub(super) tag: u32,
    pub(super) region: Region,
    pub(super) range: Range<usize>,
    pub(super) is_long: bool,
}

impl Peer {
    pub(super) fn is_greeting_due(&self) -> bool {
        matches!(self.greeting, Greeting::Due(instant) if Instant::now() >= instant)
    }

    pub(super) fn waits_for_greeting(&self) -> bool {
        matches!(self.greeting, Greeting::Due(_))
    }
}

impl Endpoint {
    fn peer_target(&self, node: u32, portal: u32) -> Target {
        Target { port: Address { node, ..self.port.address() }, portal }
    }

    /// Sends what waits for `node`, as far as there is credit. The first time it is asked whether it is there.
    pub(super) fn send_to(&mut self, node: u32) -> Result<(), Error> {
        loop {
            let credits = self.credits;
            let Some(peer) = self.peers.get_mut(node as usize) else { return Ok(()) };
            if peer.greeting == Greeting::None {
                return self.greet(node);
            }
            if peer.greeting != Greeting::Answered || peer.sent - peer.taken_by_it >= credits {
                return Ok(());
            }
            let Some(send) = peer.backlog.pop_front() else { return Ok(()) };
            peer.sent += 1;
            self.begin(node, &send)?;
        }
    }

    /// Sends a message, or the header of a long one.
    fn begin(&mut self, node: u32, send: &Send) -> Result<(), Error> {
        let target = self.peer_target(node, MESSAGES);
        let span = send.region.span(send.range.clone())?;
        if !send.is_long {
            return self.launch(&Put::new(target, span).match_bits(send.tag.into()).user(send.id).ack());
        }
        self.last_serial = (self.last_serial + 1) & (u64::MAX >> LONG_SERIAL_SHIFT);
        let serial = self.last_serial;
        let memory =
            Append::get(MEMORY, span).match_bits(serial, 0).source_node(node).no_unlink_event().user(send.id);
        self.launch(&memory)?;
        let header = Put::new(target, send.region.span(send.range.start..send.range.start)?)
            .match_bits(LONG | u64::from(send.tag))
            .header_data(serial << LONG_SERIAL_SHIFT | send.range.len() as u64)
            .user(send.id)
            .ack();
        self.launch(&header)
    }

    /// Asks whether the port of `node` is open: an empty credit, acknowledged.
    pub(super) fn greet(&mut self, node: u32) -> Result<(), Error> {
        let region = self.overflow.region();
        let Some(peer) = self.peers.get_mut(node as usize) else { return Ok(()) };
        peer.greeting = Greeting::UnderWay;
        let taken = peer.told;
        let target = self.peer_target(node, CREDITS);
        self.launch(
            &Put::new(target, region.span(0..0)?)
                .header_data(taken)
                .user(OF_GREETING | u64::from(node))
                .ack(),
        )
    }

    pub(super) fn on_greeted(&mut self, node: u32, outcome: Outcome) -> Result<(), Error> {
        if let Some(peer) = self.peers.get_mut(node as usize) {
            peer.greeting = if outcome.is_done() {
                Greeting::Answered
            } else {
                Greeting::Due(Instant::now() + GREETING_INTERVAL)
            };
        }
        self.send_to(node)
    }

    /// `node` says how many of our messages its receives have taken.
    pub(super) fn on_credit(&mut self, node: u32, taken: u64) -> Result<(), Error> {
        if let Some(peer) = self.peers.get_mut(node as usize) {
            // Never more than were sent, whatever it says.
            peer.taken_by_it = peer.taken_by_it.max(taken.min(peer.sent));
        }
        if self.peers.get(node as usize).is_some_and(|peer| peer.backlog.is_empty()) {
            return Ok(());
        }
        self.send_to(node)
    }

    /// A receive has taken a message of `node`: it is told once half its credit is used up.
    pub(super) fn on_taken(&mut self, node: u32) -> Result<(), Error> {
        let step = self.credits / 2;
        let region = self.overflow.region();
        let Some(peer) = self.peers.get_mut(node as usize) else { return Ok(()) };
        peer.taken += 1;
        if peer.taken - peer.told < step {
            return Ok(());
        }
        peer.told = peer.taken;
        let taken = peer.told;
        let target = self.peer_target(node, CREDITS);
        self.launch(&Put::new(target, region.span(0..0)?).header_data(taken))
    }
}
