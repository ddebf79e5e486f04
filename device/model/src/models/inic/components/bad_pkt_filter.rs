//! Drops packets that the network interface's status word calls bad (section 4.8).

use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::token::Token;
use crate::models::inic::wire;

pub(in crate::models::inic) struct BadPktFilter;

impl Component for BadPktFilter {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        if !io.has(0) || !io.has_room(0) {
            return false;
        }
        let Some((at, Token::Packet(packet))) = io.take(0) else { return false };
        let worked = io.work(at, packet.frame.len());
        if wire::is_whole(&packet.frame) {
            io.put(0, worked, Token::Packet(packet));
        } else {
            io.card.effects.card().damaged += 1;
        }
        true
    }
}
