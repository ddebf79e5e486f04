//! Cuts posted messages into packets and stores none of them (section 5). It replaces `genp` in assemblies without
//! acknowledgements.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::models::inic::arrivals::Number;
use crate::models::inic::card::Cut;
use crate::models::inic::circuit::{Component, Io};
use crate::models::inic::per_node::Numbered;
use crate::models::inic::token::{Message, Payload, Pinfo, Token};
use crate::time::Time;

pub(in crate::models::inic) struct GenpUnreliable {
    packet_bytes: u64,
    is_placed: bool,
    next: Numbered<Number>,
    /// Messages that are not completely cut, and whether the first one has started.
    messages: VecDeque<(Time, Message)>,
    is_begun: bool,
}

impl GenpUnreliable {
    pub(in crate::models::inic) fn new(packet_bytes: u64, is_placed: bool, first: Number) -> Self {
        Self {
            packet_bytes,
            is_placed,
            next: Numbered::new(first),
            messages: VecDeque::new(),
            is_begun: false,
        }
    }
}

impl Component for GenpUnreliable {
    fn step(&mut self, io: &mut Io<'_>) -> bool {
        if let Some((at, Token::Message(message))) = io.take(0) {
            self.messages.push_back((at, message));
            return true;
        }
        if self.messages.is_empty() || !io.has_room(0) {
            return false;
        }
        let Some(&(at, Message { node, send })) = self.messages.front() else { return false };
        let cut = io.card.cut(send, self.packet_bytes, self.is_placed);
        // A message whose memory was closed ends with a packet that reports this.
        let cut = match cut {
            Some(cut) => cut,
            None if self.is_begun => Cut { payload: Payload::Void, is_last: true, message: None },
            None => {
                self.messages.pop_front();
                return true;
            }
        };
        if matches!(cut.payload, Payload::Own(_)) {
            // This assembly delivers nothing reliably, so it sends no messages between cards. This one waited since
            // before the reload.
            self.messages.pop_front();
            io.card.on_packet_over(send);
            return true;
        }
        self.is_begun = !cut.is_last;
        if cut.is_last {
            self.messages.pop_front();
        }
        let worked = io.work(at, 0);
        let next = self.next.of(node);
        let number = *next;
        *next = number.next();
        let Cut { payload, is_last, message } = cut;
        let (is_again, is_kept, for_card) = (false, false, false);
        let pinfo = Pinfo { node, number, payload, is_last, is_again, is_kept, for_card, message };
        io.card.effects.counters.packets_sent += 1;
        io.put(0, worked, Token::Pinfo(Box::new(pinfo)));
        true
    }
}
