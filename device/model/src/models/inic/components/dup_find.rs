//! Finds packets whose number has arrived before (section 4.6). It drops their data and passes their headers on, so
//! that the card repeats a lost acknowledgement.

use crate::models::inic::arrivals::{Arrival, Arrivals, Number};
use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::per_node::{Begin, Numbered};
use crate::models::inic::token::{Token, Verdict};

const HEADERS: usize = 0;
const VERDICTS: usize = 1;

impl Begin for Arrivals {
    fn at(first: Number) -> Self {
        Self::new(first)
    }
}

pub(in crate::models::inic) struct DupFind {
    /// Packets that it remembers after a missing one. Zero if the assembly has `order_pkts`: packets that `order_pkts`
    /// drops are retransmitted and are not duplicates, and the two components do not communicate (section 4.7).
    beyond: u32,
    arrivals: Numbered<Arrivals>,
}

impl DupFind {
    /// Creates a component that remembers this number of packets after a missing one.
    pub(in crate::models::inic) fn new(beyond: u32, first: Number) -> Self {
        Self { beyond, arrivals: Numbered::new(first) }
    }
}

impl Component for DupFind {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        if !io.has(0) || !io.has_room(HEADERS) || !io.has_room(VERDICTS) {
            return false;
        }
        let Some((at, Token::Header(header))) = io.take(0) else { return false };
        let worked = io.work(at, 0);
        if let Some(number) = header.number.filter(|_| !header.is_dropped) {
            let arrival = self.arrivals.of(header.source).arrive(number, self.beyond);
            let verdict = match arrival {
                Arrival::New => Verdict::Pass,
                Arrival::Duplicated => {
                    io.card.effects.counters.duplicates += 1;
                    Verdict::Drop
                }
                // With `order_pkts`, that component decides. Without it such a packet could be delivered twice.
                Arrival::Beyond if self.beyond == 0 => Verdict::Pass,
                Arrival::Beyond => {
                    io.card.effects.counters.out_of_order += 1;
                    Verdict::Drop
                }
            };
            io.put(VERDICTS, worked, Token::Verdict(verdict));
            if verdict == Verdict::Drop && arrival == Arrival::Beyond {
                // Not acknowledged, so that the sender retransmits it.
                return true;
            }
        }
        io.put(HEADERS, worked, Token::Header(header));
        true
    }
}
