//! Tokens, which components pass to each other through FIFOs.

use alloc::boxed::Box;
use core::ops::Range;

use crate::models::inic::arrivals::Number;
use crate::nic::frame::SharedFrame;
use crate::platform::trace_tag::TraceTag;

/// A token of any type of port. It passes about ten FIFOs, so large tokens are boxed.
#[derive(Clone, Debug)]
pub(super) enum Token {
    Message(Message),
    Data(Box<Data>),
    Packet(Box<Packet>),
    Header(Header),
    Verdict(Verdict),
    Pinfo(Box<Pinfo>),
    Ack(AckInfo),
    Next(Next),
    Disable(Disable),
    Expiry(u16),
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) node: u16,
    /// Identifies the card's send.
    pub(super) send: u64,
}

/// The next packet to send, from `genp` to `xmit`.
#[derive(Clone, Debug)]
pub(super) struct Pinfo {
    pub(super) node: u16,
    pub(super) number: Number,
    pub(super) payload: Payload,
    pub(super) is_last: bool,
    pub(super) is_again: bool,
    /// Whether the card's memory stores it until it is acknowledged.
    pub(super) is_kept: bool,
    /// Whether it is a message between cards.
    pub(super) for_card: bool,
    pub(super) message: Option<TraceTag>,
}

/// Location of a packet's data.
#[derive(Clone, Debug)]
pub(super) enum Payload {
    /// In the host's memory.
    Host {
        /// The send.
        send: u64,
        /// The bytes of the message.
        bytes: Range<u64>,
        /// Number of the message among those to this node, and of the packet in it, for assemblies that put these
        /// before the data.
        place: Option<(u32, u32)>,
    },
    /// Here: a message between cards.
    Own(SharedFrame),
    /// In the card's memory: it was sent before.
    Card,
    /// None: its message failed, but its number must be sent.
    Void,
}

/// A frame to send, or a received frame.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) frame: SharedFrame,
    pub(super) message: Option<TraceTag>,
    /// Whether the card's memory has no room for its data.
    pub(super) is_too_much: bool,
}

/// The components' view of a received packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) source: u16,
    /// Its number; none for a packet that only acknowledges.
    pub(super) number: Option<Number>,
    pub(super) is_last: bool,
    pub(super) is_again: bool,
    /// Set by components: the packet was dropped, and does not count as arrived. If it is a retransmission, its sender
    /// waits for an answer.
    pub(super) is_dropped: bool,
    /// The last packet of this card up to which the peer misses none, and the mask of later ones.
    pub(super) ack: Option<(Number, u32)>,
}

/// The data of a received packet with a number.
#[derive(Clone, Debug)]
pub(super) struct Data {
    pub(super) source: u16,
    pub(super) frame: SharedFrame,
    /// Empty if the packet is void, because its message failed.
    pub(super) bytes: Range<usize>,
    pub(super) is_last: bool,
    /// Whether it is a message between cards, which no host sees.
    pub(super) for_card: bool,
    pub(super) message: Option<TraceTag>,
    /// Set by components: interrupt the host when the data is stored.
    pub(super) interrupts: bool,
}

impl Data {
    /// Whether it only uses up a number and has no data.
    pub(super) fn is_void(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Whether to deliver or drop the data of the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Drop,
}

/// An acknowledgement for the next packet to a node, or if forced, for a separate packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckInfo {
    pub(super) node: u16,
    pub(super) ack: Option<(Number, u32)>,
    pub(super) is_forced: bool,
}

/// A node has acknowledged packets for the first time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disable {
    pub(super) node: u16,
    /// Whether all packets are acknowledged, so that no timer is needed.
    pub(super) is_over: bool,
}

/// A packet was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) node: u16,
}
