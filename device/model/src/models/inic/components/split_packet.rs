//! Splits a packet into header and data (section 4.2). Only this component and `xmit` know the format. Its output
//! numbers have the same width for all formats, so that other components do not depend on the format.
//!
//! The component trusts the sender in a header, as on any network on which only its cards send. A card always writes
//! its own number, and neither programs nor images can change it. The shell accepts no such frame from a guest's
//! Ethernet function (`ethernet_forged_cluster_frame`). (The attack: with a forged sender a guest makes two nodes
//! retransmit forever.)

use alloc::boxed::Box;

use crate::models::inic::arrivals::Number;
use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::per_node::{Begin, Numbered};
use crate::models::inic::token::{Data, Header, Token};
use crate::models::inic::wire::{self, CHECK_BYTES, Dialect, WireError, head_bytes};

const HEADERS: usize = 0;
const DATA: usize = 1;

/// The last numbers that a node has used, at the card's internal width.
#[derive(Clone, Copy, Debug)]
struct Last {
    sequence: Number,
    base: Number,
}

impl Begin for Last {
    fn at(first: Number) -> Self {
        let before = first.plus(u32::MAX);
        Self { sequence: before, base: before }
    }
}

pub(in crate::models::inic) struct SplitPacket {
    dialect: Dialect,
    nodes: u32,
    last: Numbered<Last>,
}

impl SplitPacket {
    /// For a card in a cluster of `nodes` nodes.
    pub(in crate::models::inic) fn new(dialect: Dialect, nodes: u32, first: Number) -> Self {
        Self { dialect, nodes, last: Numbered::new(first) }
    }

    /// The number with these lowest bits that is nearest to `last`; it becomes the new `last`.
    fn widen(&self, last: &mut Number, cut: u32) -> Number {
        let bits = self.dialect.format.sequence_bits();
        let above = u32::BITS - bits;
        // Sign-extended: half of all numbers are ahead, half are before.
        let distance = (cut.wrapping_sub(last.get()) << above) as i32 >> above;
        let number = Number::new(last.get().wrapping_add(distance as u32));
        if distance > 0 {
            *last = number;
        }
        number
    }
}

impl Component for SplitPacket {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        if !io.has(0) || !io.has_room(HEADERS) || !io.has_room(DATA) {
            return false;
        }
        let Some((at, Token::Packet(packet))) = io.take(0) else { return false };
        let worked = io.work(at, packet.frame.len());
        let header = match wire::Header::parse(self.dialect, &packet.frame) {
            Ok(header) if header.destination == io.card.node && u32::from(header.source) < self.nodes => {
                header
            }
            Err(WireError::Foreign) => {
                io.card.effects.card().foreign_frames += 1;
                return true;
            }
            Err(WireError::Assembly { .. }) => {
                io.card.effects.counters.other_assembly += 1;
                return true;
            }
            _ => {
                io.card.effects.card().malformed += 1;
                return true;
            }
        };
        let source = header.source;
        let mut last = *self.last.of(source);
        let number = header.has_number().then(|| self.widen(&mut last.sequence, header.sequence));
        let ack = header.ack.map(|ack| (self.widen(&mut last.base, ack.base), ack.mask));
        *self.last.of(source) = last;
        let wire::Header { is_last, is_again, .. } = header;
        // The acknowledgement is valid even for a packet without memory. Messages between cards do not wait for room
        // in the host's memory.
        let is_dropped = packet.is_too_much && header.has_data && !header.for_card;
        let told = Header { source, number, is_last, is_again, is_dropped, ack };
        io.put(HEADERS, worked, Token::Header(told));
        io.card.effects.card().overruns += u64::from(is_dropped);
        if number.is_some() && !is_dropped {
            io.card.effects.counters.packets_received += 1;
            let begin = head_bytes(self.dialect.format);
            let bytes = begin..packet.frame.len().saturating_sub(CHECK_BYTES).max(begin);
            let wire::Header { is_last, for_card, .. } = header;
            let data = Data {
                source,
                frame: packet.frame,
                bytes,
                is_last,
                for_card,
                message: packet.message,
                interrupts: false,
            };
            io.put(DATA, worked, Token::Data(Box::new(data)));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use niclab_components::Format;

    proptest! {
        #[test]
        fn numbers_are_widened_in_all_formats_and_after_wraps(
            first: u32,
            steps in prop::collection::vec(-100_i64..100, 1..100),
            format in prop::sample::select(alloc::vec![Format::Seq24Node4, Format::Seq8Node12]),
        ) {
            let split = SplitPacket::new(Dialect { format, assembly: 0 }, 2, Number::ZERO);
            let (mut last, mut true_last) = (Number::new(first), i64::from(first));
            for step in steps {
                let number = true_last + step;
                let cut = number as u32 & (u32::MAX >> (32 - format.sequence_bits()));
                prop_assert_eq!(split.widen(&mut last, cut), Number::new(number as u32));
                true_last = true_last.max(number);
                prop_assert_eq!(last, Number::new(true_last as u32));
            }
        }
    }
}
