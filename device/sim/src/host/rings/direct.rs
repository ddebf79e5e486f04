//! A driver whose processor controls each transfer ([`niclab_abi::rings::OP_FIFO_LOOK`]). It reads the head of the
//! first frame in the card's FIFO and derives the address in the program's memory. It then waits until the card has
//! stored the data there. The driver copies nothing.

use std::collections::VecDeque;

use niclab_abi::FromBytes;
use niclab_abi::control::{Request, STATUS_OK};
use niclab_abi::gamma::{FRAME_DATA, FRAME_FIRST, FRAME_KIND_MASK, FrameHead};
use niclab_abi::rings::{FifoHead, FifoSend, FifoTake, OP_FIFO_LOOK, OP_FIFO_SEND, OP_FIFO_TAKE};
use niclab_model::fabric::ethernet::{self, ETHER_TYPE_CLUSTER, mac_of_node, node_of_mac};
use niclab_model::nic::Input;
use niclab_model::time::Time;

use super::memory::HostRings;
use super::{RingHost, bytes_of, status_of};
use crate::checker::{Check, Checker};
use crate::host::{Effects, Host};

/// Token of the reply to a sent frame.
pub(super) const SEND_TOKEN: u64 = 1;
/// Bytes before a message's part.
const HEAD_BYTES: u32 = (ethernet::HEADER_BYTES + FrameHead::BYTES) as u32;

/// State of such a driver, in addition to that of all drivers.
#[derive(Debug, Default)]
pub(super) struct Direct {
    /// The processor waits for the card's reply that a frame is sent.
    pub(super) is_sending: bool,
    /// Number of frames that arrived and were not found in the FIFO yet. A polling driver polls for them.
    unfound: u32,
    /// Times of the next polls.
    looks: VecDeque<Time>,
}

impl RingHost {
    /// Whether the processor controls each transfer.
    pub(super) fn is_direct(&self) -> bool {
        self.terms.is_some_and(|terms| terms.receive_buffers == 0)
    }

    /// A frame has arrived.
    pub(super) fn on_came(&mut self, now: Time) {
        self.direct.unfound += 1;
        self.poll(now);
    }

    /// The FIFO may have frames that were not found yet. A polling driver polls again.
    pub(super) fn poll(&mut self, now: Time) {
        let is_polling = self.terms.is_none_or(|terms| terms.interrupt_frames == 0);
        if self.is_direct() && is_polling && self.direct.unfound > 0 {
            self.look_soon(now);
        }
    }

    /// The driver polls the FIFO as soon as it can.
    pub(super) fn look_soon(&mut self, now: Time) {
        if self.direct.looks.is_empty() {
            self.direct.looks.push_back(self.clock().max(now));
        }
    }

    /// Time of the next poll of the FIFO; none while the driver waits for the card.
    pub(super) fn next_look(&self) -> Option<Time> {
        self.direct.looks.front().filter(|_| !self.direct.is_sending).copied()
    }

    /// Polls the FIFO and takes its first frame. Returns whether this completes a message for a program.
    pub(super) fn look(&mut self, now: Time, checker: &mut Checker, effects: &mut Effects) -> bool {
        self.direct.looks.pop_front();
        self.not_before = self.not_before.max(now);
        let answer = self.control(OP_FIFO_LOOK, None::<&Request>, checker, effects);
        let found = answer.ok().and_then(|body| FifoHead::from_bytes(&body)).unwrap_or_default();
        if found.bytes == 0 {
            return false;
        }
        self.direct.unfound = self.direct.unfound.saturating_sub(1);
        let FifoHead { bytes, status, head_0, head_1, head_2 } = found;
        let head: Vec<u8> = [head_0, head_1, head_2].into_iter().flat_map(u64::to_le_bytes).collect();
        let (address, skip_bytes, part) = self.destination(&head, bytes, status);
        self.memory.expect(address, part.into());
        let take = FifoTake { address, skip_bytes, bytes: part };
        if let Err(refused) = self.control(OP_FIFO_TAKE, Some(&take), checker, effects) {
            let node = self.node;
            checker
                .fail(Check::FlowControl, || format!("node {node}: the card refused {take:?}: {refused:?}"));
        }
        // The FIFO may have further frames. After an interrupt the driver polls until the FIFO is empty.
        if self.terms.is_some_and(|terms| terms.interrupt_frames > 0) {
            self.look_soon(now);
        } else {
            self.poll(now);
        }
        if status != 0 {
            self.raised.damaged += 1;
            return false;
        }
        let mut frame: Vec<u8> = head.into_iter().take(bytes.min(HEAD_BYTES) as usize).collect();
        frame.extend(self.memory.taken(address, part));
        self.on_frame(&frame, checker)
    }

    /// The destination of a message part in a frame with this head: address, bytes of the head before it, and length.
    fn destination(&mut self, head: &[u8], bytes: u32, status: u32) -> (u64, u32, u32) {
        let nowhere = (0, 0, 0);
        let view = ethernet::Frame::new_checked(head).filter(|_| status == 0 && bytes >= HEAD_BYTES);
        let Some(view) = view.filter(|view| view.ether_type() == ETHER_TYPE_CLUSTER) else { return nowhere };
        let (source, frame) = (node_of_mac(&view.source()), FrameHead::from_bytes(view.payload()));
        let (Some(source), Some(frame)) = (source, frame) else { return nowhere };
        let part = bytes - HEAD_BYTES;
        if frame.kind & FRAME_KIND_MASK != FRAME_DATA || part == 0 {
            return nowhere;
        }
        // After the received part of the message, if it is the next part. Other parts are dropped, so their address
        // does not matter.
        let come = self.peer(source).joined.len() as u64;
        let offset = if frame.kind & FRAME_FIRST != 0 { 0 } else { come };
        (HostRings::destination(source) + offset, HEAD_BYTES, part)
    }

    /// Has the card send a frame, and waits for the reply.
    pub(super) fn send(
        &mut self,
        (target, head, part): (u16, &FrameHead, &[u8]),
        message_bytes: u64,
        checker: &mut Checker,
        effects: &mut Effects,
    ) {
        let (_, address) = HostRings::outgoing(0);
        self.memory.fill(address, part);
        let (destination, source) = (mac_of_node(target), mac_of_node(self.node));
        let header = ethernet::Header { destination, source, ether_type: ETHER_TYPE_CLUSTER };
        let mut bytes = header.emit().to_vec();
        bytes.extend(bytes_of(head));
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let word = |at: usize| {
            bytes
                .get(8 * at..)
                .and_then(|rest| rest.first_chunk())
                .map_or(0, |word| u64::from_le_bytes(*word))
        };
        let send = FifoSend {
            head_0: word(0),
            head_1: word(1),
            head_2: word(2),
            head_bytes: HEAD_BYTES,
            bytes: part.len() as u32,
            address: if part.is_empty() { 0 } else { address },
            message_bytes,
        };
        let mut request = bytes_of(&Request { operation: OP_FIFO_SEND, body_bytes: FifoSend::BYTES as u32 });
        request.extend(bytes_of(&send));
        // Every frame that does not continue a message is a system call.
        let goes_on = head.kind & FRAME_KIND_MASK == FRAME_DATA && message_bytes == 0;
        self.raised.calls += u64::from(!goes_on);
        self.direct.is_sending = true;
        self.handle(self.clock(), Input::Control { token: SEND_TOKEN, request: &request }, checker, effects);
    }

    /// The card has replied that a frame is sent.
    pub(super) fn on_sent(&mut self, at: Time, answer: &[u8], checker: &mut Checker) {
        self.direct.is_sending = false;
        self.not_before = self.not_before.max(at);
        let (node, status) = (self.node, status_of(answer));
        if status != Some(STATUS_OK) {
            checker.fail(Check::FlowControl, || {
                format!("node {node}: the card refused a frame with status {status:?}")
            });
        }
    }
}
