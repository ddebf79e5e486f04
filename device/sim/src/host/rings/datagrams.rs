//! Ordinary networking next to messages: a stack that sends datagrams of the maximum frame size on the same rings, and
//! receives those of other nodes.

use std::collections::VecDeque;

use niclab_abi::rings::RING_STATION;
use niclab_model::fabric::ethernet::{self, mac_of_endpoint};
use niclab_model::time::Time;
use niclab_port::gamma::rings::{Buffer, Told};

use super::memory::{BUFFER_BYTES, HostRings, Which};
use super::{RingHost, hold};
use crate::checker::Checker;
use crate::host::Effects;

/// The EtherType of IPv4.
const ETHER_TYPE_IPV4: u16 = 0x0800;

/// State of the stack.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    /// Number of messages after which it sends a datagram; 0: never.
    every: u64,
    messages: u64,
    /// Destinations of pending datagrams.
    waiting: VecDeque<u16>,
    /// Number of datagrams sent, and of those that arrived intact.
    pub(super) sent: u64,
    pub(super) received: u64,
}

impl Datagrams {
    pub(super) fn new(every: u64) -> Self {
        Self { every, ..Self::default() }
    }

    /// A program has sent a message.
    pub(super) fn on_message(&mut self, to: u16) {
        self.messages += 1;
        if self.every != 0 && self.messages.is_multiple_of(self.every) {
            self.waiting.push_back(to);
        }
    }

    /// The destination of the next datagram.
    pub(super) fn next(&self) -> Option<u16> {
        self.waiting.front().copied()
    }
}

impl RingHost {
    /// Sends a datagram of the maximum frame size.
    pub(super) fn send_datagram(&mut self, now: Time, to: u16, checker: &mut Checker, effects: &mut Effects) {
        self.datagrams.waiting.pop_front();
        self.datagrams.sent += 1;
        let most = self.terms.map_or(0, |terms| terms.frame_bytes).min(BUFFER_BYTES);
        let frame = datagram(self.node, to, most as usize);
        let (_, address) = HostRings::outgoing(self.transmit.next());
        self.memory.fill(address, &frame);
        let buffers = [Buffer { address: address as u32, bytes: frame.len() as u32 }, Buffer::default()];
        let told = Told { message_bytes: 0, received: self.receive.taken() };
        self.transmit.give(&mut self.memory.ring(Which::Transmit), buffers, (true, true), told);
        self.demand(now, checker, effects);
    }

    /// A frame has arrived that belongs to no active port.
    pub(super) fn on_datagram(&mut self, frame: &[u8], checker: &mut Checker) {
        let source = ethernet::Frame::new_checked(frame).map(|view| view.source());
        let sender = source.and_then(|source| ethernet::endpoint_of_mac(&source)).map(|(node, _)| node);
        let is_whole = sender.is_some_and(|sender| datagram(sender, self.node, frame.len()) == frame);
        self.datagrams.received += u64::from(is_whole);
        let node = self.node;
        if !is_whole && checker.is_lossless() {
            hold(Some(format!("node {node}: a datagram arrived that no node sent")), checker);
        }
    }
}

/// A datagram from one node to another, in an Ethernet frame of `bytes` bytes.
fn datagram(from: u16, to: u16, bytes: usize) -> Vec<u8> {
    let (destination, source) = (mac_of_endpoint(to, RING_STATION), mac_of_endpoint(from, RING_STATION));
    let header = ethernet::Header { destination, source, ether_type: ETHER_TYPE_IPV4 };
    let mut frame = header.emit().to_vec();
    frame.extend((frame.len()..bytes).map(|at| at as u8 ^ from as u8));
    frame
}
