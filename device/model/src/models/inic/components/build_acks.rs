//! Makes acknowledgements: with each packet to a node, or in a separate packet if none is sent (section 4.4).

use crate::models::inic::arrivals::{Arrival, Arrivals, MASK_BITS, Number};
use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::per_node::{Begin, Numbered};
use crate::models::inic::token::{AckInfo, Header, Next, Token};

const HEADERS: usize = 0;
const NEXT: usize = 1;

/// Packets from a node.
#[derive(Clone, Copy, Debug)]
struct Peer {
    arrivals: Arrivals,
    /// The packet that is furthest ahead of all acknowledged ones; initially the number before the first.
    told: Number,
    has_sent: bool,
}

impl Begin for Peer {
    fn at(first: Number) -> Self {
        let arrivals = Arrivals::new(first);
        Self { told: arrivals.furthest(), arrivals, has_sent: false }
    }
}

impl Peer {
    /// The current acknowledgement.
    fn tell(&mut self, node: u16, is_forced: bool) -> AckInfo {
        self.told = self.arrivals.furthest();
        let ack = self.has_sent.then(|| self.arrivals.acknowledged());
        AckInfo { node, ack, is_forced }
    }
}

pub(in crate::models::inic) struct BuildAcks {
    /// Max unacknowledged packets before an acknowledgement is required (section 3).
    threshold: u32,
    /// Whether the last packet of a message is acknowledged at once. The paper has no such rule; with the paper's
    /// rules alone, the sender's timer must expire for the last packets of each message.
    acknowledge_last: bool,
    peers: Numbered<Peer>,
}

impl BuildAcks {
    pub(in crate::models::inic) fn new(threshold: u32, acknowledge_last: bool, first: Number) -> Self {
        Self { threshold, acknowledge_last, peers: Numbered::new(first) }
    }

    /// Whether a received packet requires a separate acknowledgement.
    fn must_tell(&mut self, header: &Header, number: Number) -> bool {
        let peer = self.peers.of(header.source);
        peer.has_sent = true;
        if header.is_dropped {
            // A retransmission asks which packets are missing.
            return header.is_again;
        }
        match peer.arrivals.arrive(number, MASK_BITS - 1) {
            Arrival::Duplicated => true,
            Arrival::Beyond => false,
            Arrival::New => {
                peer.arrivals.furthest().ahead_of(peer.told) > self.threshold
                    || (header.is_last && self.acknowledge_last)
            }
        }
    }
}

impl Component for BuildAcks {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        if !(io.has(HEADERS) || io.has(NEXT)) || !io.has_room(0) {
            return false;
        }
        if let Some((at, Token::Header(header))) = io.take(HEADERS) {
            let worked = io.work(at, 0);
            if let Some(number) = header.number
                && self.must_tell(&header, number)
            {
                let told = self.peers.of(header.source).tell(header.source, true);
                io.put(0, worked, Token::Ack(told));
            }
            return true;
        }
        let Some((at, Token::Next(Next { node }))) = io.take(NEXT) else { return false };
        let worked = io.work(at, 0);
        let told = self.peers.of(node).tell(node, false);
        io.put(0, worked, Token::Ack(told));
        true
    }
}
