//! A card with a function (section 2: hardware accelerators; section 5.4: the companion FPGA card). It applies the
//! function to a stream of messages and sends the results back. The user provides the function.

use alloc::boxed::Box;
use alloc::vec::Vec;

use niclab_abi::grim::{CHANNEL_APPLIED, CHANNEL_APPLY, CHANNEL_PING, CHANNEL_PONG};

use super::{Arrival, Peripheral, PeripheralKind, Work};
use crate::nic::Address;

pub(super) static KIND: PeripheralKind = PeripheralKind {
    name: "function-card",
    channel_key: "function_card_channel",
    help: "The channel of a card on the node's bus that applies a function to messages: the check sequence (CRC-32) of \
           each. docs/driver/DEVICE.md describes how to replace the function. 0: the node has no such card.",
    memory_bytes: 1 << 20,
    has_mac_endpoint: false,
    machines: ["function_card", "function_card"],
    build: |_| Box::new(FunctionCard(CheckSequence)),
};

/// A function over streams of messages.
pub trait Function: Send {
    /// Returns the result for a message. `from` names the stream: the messages of each sender arrive in order.
    fn apply(&mut self, from: Address, message: &[u8]) -> Vec<u8>;
}

/// A card with this function.
#[derive(Clone, Copy, Debug)]
pub struct FunctionCard<F>(pub F);

impl<F: Function> Peripheral for FunctionCard<F> {
    fn on_message(&mut self, message: &Arrival, work: &mut Work) -> bool {
        let (handler, payload) = match message.handler {
            CHANNEL_PING => (CHANNEL_PONG, message.payload.clone()),
            CHANNEL_APPLY => {
                work.go_through(message.payload.len());
                (CHANNEL_APPLIED, self.0.apply(message.from, &message.payload))
            }
            _ => return false,
        };
        work.answer(message, handler, message.arguments, payload);
        true
    }
}

/// The function of the bundled card: the CRC-32 of the message in four bytes, most significant byte first.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckSequence;

impl Function for CheckSequence {
    fn apply(&mut self, _: Address, message: &[u8]) -> Vec<u8> {
        crc32fast::hash(message).to_be_bytes().into()
    }
}
