//! Moves frames from the network interface over the card's internal bus into its memory (section 4.8).
//!
//! Each node has a share of the card's memory, for packets that wait for room in the host's memory. So a packet that
//! completes a message with room always finds memory, regardless of other nodes and of programs that post no room. At
//! most the outstanding limit of packets can wait after it. A packet without memory is marked, and its header is still
//! read.

use crate::fabric::ethernet::{self, node_of_mac};
use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::token::Token;

/// Minimum share of a node: the range of an acknowledgement's mask, in the longest packets. Ours: a bound.
const MIN_SHARE_BYTES: usize = 64 << 10;

pub(in crate::models::inic) struct RcvPkt {
    share_bytes: usize,
}

impl RcvPkt {
    /// Divides the memory for waiting packets among the nodes.
    pub(in crate::models::inic) fn new(memory_bytes: usize, nodes: u32) -> Self {
        Self { share_bytes: (memory_bytes / nodes.max(1) as usize).max(MIN_SHARE_BYTES) }
    }
}

impl Component for RcvPkt {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        if !io.has(0) || !io.has_room(0) {
            return false;
        }
        let Some((at, Token::Packet(mut packet))) = io.take(0) else { return false };
        let bytes = packet.frame.len();
        let worked = io.work(at, bytes);
        // The node in the Ethernet header: this component does not read the packet's header.
        let source =
            ethernet::Frame::new_checked(&packet.frame).and_then(|frame| node_of_mac(&frame.source()));
        packet.is_too_much =
            source.is_some_and(|source| io.card.waiting.of(source) + bytes > self.share_bytes);
        let mut here = worked;
        for _ in 0..io.card.crossings[1] {
            here = io.card.effects.interface.local_bus(here, bytes as u64).end;
        }
        io.put(0, here, Token::Packet(packet));
        true
    }
}
