//! Takes frames from the network interface (section 4.8): over the card's own bus into its memory, as long as there is room.

use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::token::Token;

/// A frame so short carries no data worth the memory: it is always taken. Otherwise a card whose program posts no room would
/// hear no acknowledgement, and never send what the other end waits for.
const ALWAYS_TAKEN_BYTES: usize = 64;

pub(in crate::models::inic) struct RcvPkt {
    memory_bytes: usize,
}

impl RcvPkt {
    /// With so much memory for packets that wait.
    pub(in crate::models::inic) const fn new(memory_bytes: usize) -> Self {
        Self { memory_bytes }
    }
}

impl Component for RcvPkt {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        if !io.has_room(0) {
            return false;
        }
        let Some((at, Token::Packet(packet))) = io.take(0) else { return false };
        let bytes = packet.frame.len();
        let worked = io.work(at, bytes);
        if bytes > ALWAYS_TAKEN_BYTES && io.card.waiting_bytes + bytes > self.memory_bytes {
            io.card.effects.card().overruns += 1;
            return true;
        }
        let mut here = worked;
        for _ in 0..io.card.crossings[1] {
            here = io.card.effects.interface.local_bus(here, bytes as u64).end;
        }
        io.put(0, here, Token::Packet(packet));
        true
    }
}
