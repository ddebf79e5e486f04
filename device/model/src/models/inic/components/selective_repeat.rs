//! Keeps packets after a missing one, and passes them on when the missing one arrives. So the sender retransmits only
//! lost packets (announced in section 4.7). The component also finds duplicates, since it must know which packets
//! arrived.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};

use crate::models::inic::arrivals::Number;
use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::per_node::{Begin, Numbered};
use crate::models::inic::token::{Data, Header, Token};
use crate::time::Time;

const HEADERS: usize = 0;
const DATA: usize = 1;

#[derive(Clone, Debug)]
struct Peer {
    due: Number,
    /// By their distance from number zero, which is unique.
    kept: BTreeMap<u32, Box<Data>>,
}

impl Begin for Peer {
    fn at(first: Number) -> Self {
        Self { due: first, kept: BTreeMap::new() }
    }
}

pub(in crate::models::inic) struct SelectiveRepeat {
    /// Max stored packets of each node.
    buffer_packets: u32,
    peers: Numbered<Peer>,
    /// Packets to pass on when there is room.
    passing: VecDeque<(Time, Box<Data>)>,
}

impl SelectiveRepeat {
    pub(in crate::models::inic) fn new(buffer_packets: u32, first: Number) -> Self {
        Self { buffer_packets, peers: Numbered::new(first), passing: VecDeque::new() }
    }

    fn on_packet(&mut self, at: Time, header: Header, number: Number, data: Box<Data>, io: &mut Io<'_>) {
        let peer = self.peers.of(header.source);
        let ahead = number.ahead_of(peer.due);
        let mut told = Some(header);
        if number == peer.due {
            peer.due = number.next();
            self.passing.push_back((at, data));
            while let Some(data) = peer.kept.remove(&peer.due.get()) {
                peer.due = peer.due.next();
                io.card.waiting.remove(data.source, data.frame.len());
                self.passing.push_back((at, data));
            }
        } else if ahead == 0 || peer.kept.contains_key(&number.get()) {
            io.card.effects.counters.duplicates += 1;
        } else if ahead <= self.buffer_packets {
            io.card.waiting.add(data.source, data.frame.len());
            peer.kept.insert(number.get(), data);
        } else {
            io.card.effects.counters.out_of_order += 1;
            told = header.is_again.then_some(Header { is_dropped: true, ..header });
        }
        if let Some(told) = told {
            io.put(HEADERS, at, Token::Header(told));
        }
    }
}

impl Component for SelectiveRepeat {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        if (self.passing.is_empty() && !io.has(HEADERS)) || !io.has_room(DATA) {
            return false;
        }
        if let Some((at, data)) = self.passing.pop_front() {
            io.put(DATA, at, Token::Data(data));
            return true;
        }
        if !io.has_room(HEADERS) {
            return false;
        }
        let number = match io.peek(HEADERS) {
            Some((_, Token::Header(header))) => header.number.filter(|_| !header.is_dropped),
            _ => return false,
        };
        if number.is_some() && io.peek(DATA).is_none() {
            return false;
        }
        let Some((at, Token::Header(header))) = io.take(HEADERS) else { return false };
        let Some(number) = number else {
            let worked = io.work(at, 0);
            io.put(HEADERS, worked, Token::Header(header));
            return true;
        };
        let Some((there, Token::Data(data))) = io.take(DATA) else { return false };
        let worked = io.work(at.max(there), data.bytes.len());
        self.on_packet(worked, header, number, data, io);
        true
    }
}
