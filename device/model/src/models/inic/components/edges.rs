//! The card's edges: where tokens come in, and where they go out. And the stub, which closes a port that is not used.

use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::token::Token;

/// Where the host's messages come in, and where frames do: the card puts them there.
pub(in crate::models::inic) struct Source;

impl Component for Source {
    fn step(&mut self, _: &mut Io<'_>) -> bool {
        false
    }
}

/// Where frames leave for the network.
pub(in crate::models::inic) struct WireOut;

impl Component for WireOut {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        let Some((at, Token::Packet(packet))) = io.take(0) else { return false };
        io.card.effects.frame(at, packet.frame, packet.message);
        true
    }
}

/// Takes whatever comes, and says nothing (section 4.1).
pub(in crate::models::inic) struct Stub;

impl Component for Stub {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        io.take(0).is_some()
    }
}
