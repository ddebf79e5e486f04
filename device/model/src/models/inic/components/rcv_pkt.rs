//! Takes frames from the network interface (section 4.8): over the card's own bus into its memory.
//!
//! Each node's packets that wait for room in the host's memory have a share of the card's. Whatever other nodes send,
//! and however long a program posts no room, the packet that completes a message for which there is room finds memory:
//! behind it no more than the outstanding limit can wait. A packet for which there is none is marked: its header is
//! still read.

use crate::fabric::ethernet::{self, node_of_mac};
use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::token::Token;

/// The least share of a node: what the mask of an acknowledgement can be ahead, in the longest packets. Ours: a bound.
const LEAST_SHARE_BYTES: usize = 64 << 10;

pub(in crate::models::inic) struct RcvPkt {
    share_bytes: usize,
}

impl RcvPkt {
    /// With so much memory for packets that wait, of so many nodes.
    pub(in crate::models::inic) fn new(memory_bytes: usize, nodes: u32) -> Self {
        Self { share_bytes: (memory_bytes / nodes.max(1) as usize).max(LEAST_SHARE_BYTES) }
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
        // The node is that of the Ethernet header: the packet's own is not known here.
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
