//! Decides when the card interrupts the host (section 4.10): after a number of bytes, for messages above some length,
//! or from some node. Drivers can change all rules at run time.

use niclab_abi::inic::POST_ANY_SOURCE;

use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::per_node::PerNode;
use crate::models::inic::token::{Data, Token};

/// The rules. Zero disables a rule.
#[derive(Clone, Copy, Debug)]
pub(in crate::models::inic) struct Rules {
    /// An interrupt for each such number of received bytes. Excess bytes count for the next interrupt.
    pub(in crate::models::inic) rcv_chunk_size: u64,
    /// An interrupt for each message of at least this length.
    pub(in crate::models::inic) min_message_bytes: u64,
    /// An interrupt at the end of a message when bytes are pooled.
    pub(in crate::models::inic) at_end: bool,
    /// The rules apply only to messages of this node; [`POST_ANY_SOURCE`]: of all nodes.
    pub(in crate::models::inic) source: u64,
}

pub(in crate::models::inic) struct Mitigate {
    rules: Rules,
    /// Bytes before the data of each packet that do not belong to the message.
    place_bytes: u64,
    /// Bytes received since the last interrupt for them.
    pooled: u64,
    /// Bytes so far of each node's current message.
    message: PerNode<u64>,
}

impl Mitigate {
    pub(in crate::models::inic) fn new(rules: Rules, place_bytes: u32) -> Self {
        Self { rules, place_bytes: place_bytes.into(), pooled: 0, message: PerNode::default() }
    }

    fn interrupts(&mut self, data: &Data) -> bool {
        let bytes = (data.bytes.len() as u64).saturating_sub(self.place_bytes);
        let message = self.message.of(data.source);
        *message += bytes;
        let message_bytes = if data.is_last { core::mem::take(message) } else { 0 };
        let Rules { rcv_chunk_size, min_message_bytes, at_end, source } = self.rules;
        if source != POST_ANY_SOURCE && source != u64::from(data.source) {
            return false;
        }
        let mut interrupts = min_message_bytes > 0 && data.is_last && message_bytes >= min_message_bytes;
        if rcv_chunk_size > 0 {
            self.pooled += bytes;
            interrupts |= self.pooled >= rcv_chunk_size;
            self.pooled %= rcv_chunk_size;
            if at_end && data.is_last && self.pooled > 0 {
                self.pooled = 0;
                interrupts = true;
            }
        }
        interrupts
    }
}

impl Component for Mitigate {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        if !io.has(0) || !io.has_room(0) {
            return false;
        }
        let Some((at, Token::Data(mut data))) = io.take(0) else { return false };
        let worked = io.work(at, 0);
        data.interrupts = !data.for_card && self.interrupts(&data);
        io.put(0, worked, Token::Data(data));
        true
    }

    fn set(&mut self, parameter: &str, value: u64) -> bool {
        match parameter {
            "rcv_chunk_size" => self.rules.rcv_chunk_size = value,
            "min_message_bytes" => self.rules.min_message_bytes = value,
            "at_end" => self.rules.at_end = value != 0,
            "source" => self.rules.source = value,
            _ => return false,
        }
        true
    }
}
