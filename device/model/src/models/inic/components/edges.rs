//! The card's edges, at which tokens enter and leave the circuit, and the stub, which terminates an unused port.

use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::token::Token;

/// The inputs for the host's messages and for frames. The card puts them here.
pub(in crate::models::inic) struct Source;

impl Component for Source {
    fn step(&mut self, _: &mut Io<'_>) -> bool {
        false
    }
}

/// The output of frames to the network.
pub(in crate::models::inic) struct WireOut;

impl Component for WireOut {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        let Some((at, Token::Packet(packet))) = io.take(0) else { return false };
        io.card.effects.frame(at, packet.frame, packet.message);
        true
    }
}

/// Consumes all tokens and produces none (section 4.1).
pub(in crate::models::inic) struct Stub;

impl Component for Stub {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        io.take(0).is_some()
    }
}
