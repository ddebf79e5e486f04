//! Tokens, which components pass to each other through FIFOs.

use alloc::boxed::Box;
use core::ops::Range;

use crate::models::inic::arrivals::Number;
use crate::nic::frame::SharedFrame;
use crate::platform::trace_tag::TraceTag;

/// A token of any type of port. It goes through some ten FIFOs: what is long is moved as a reference.
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

/// A message that the host wants sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) node: u16,
    /// Which of the card's sends it is.
    pub(super) send: u64,
}

/// The next packet to be sent: what `genp` tells `xmit`.
#[derive(Clone, Debug)]
pub(super) struct Pinfo {
    pub(super) node: u16,
    pub(super) number: Number,
    pub(super) payload: Payload,
    pub(super) is_last: bool,
    pub(super) is_again: bool,
    /// Whether the card's memory keeps it until it is acknowledged.
    pub(super) is_kept: bool,
    /// It is of a card, and for one.
    pub(super) for_card: bool,
    pub(super) message: Option<TraceTag>,
}

/// Where the data of a packet is.
#[derive(Clone, Debug)]
pub(super) enum Payload {
    /// In the host's memory.
    Host {
        /// Of which send.
        send: u64,
        /// Which bytes of the message.
        bytes: Range<u64>,
        /// Number of the message among those to this node, and of the packet in it, where the data begins with them.
        place: Option<(u32, u32)>,
    },
    /// This: a message of the card's own.
    Own(SharedFrame),
    /// In the card's memory: it was sent before.
    Card,
    /// Nowhere: its message failed, and its number must not be missing.
    Void,
}

/// A frame, on its way out or in.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) frame: SharedFrame,
    pub(super) message: Option<TraceTag>,
    /// The card's memory has no room for its data.
    pub(super) is_too_much: bool,
}

/// What components know of a packet that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) source: u16,
    /// Its number. A packet that does nothing but acknowledge has none.
    pub(super) number: Option<Number>,
    pub(super) is_last: bool,
    pub(super) is_again: bool,
    /// Set by components: it was dropped, and has not arrived. If it was sent again, its sender waits for a word.
    pub(super) is_dropped: bool,
    /// The last packet of ours before which none is missing there, and the mask of those behind it.
    pub(super) ack: Option<(Number, u32)>,
}

/// The data of a packet that came and has a number.
#[derive(Clone, Debug)]
pub(super) struct Data {
    pub(super) source: u16,
    pub(super) frame: SharedFrame,
    /// None of them where the packet is void: its message failed.
    pub(super) bytes: Range<usize>,
    pub(super) is_last: bool,
    /// It is of another card, and no host sees it.
    pub(super) for_card: bool,
    pub(super) message: Option<TraceTag>,
    /// Set by components: the host is interrupted when it is there.
    pub(super) interrupts: bool,
}

impl Data {
    /// Whether it takes up a number and has no data.
    pub(super) fn is_void(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// What becomes of the data of the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Drop,
}

/// What is acknowledged, for the next packet to a node or, forced, for a packet of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckInfo {
    pub(super) node: u16,
    pub(super) ack: Option<(Number, u32)>,
    pub(super) is_forced: bool,
}

/// A node has acknowledged something that it had not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disable {
    pub(super) node: u16,
    /// All: there is nothing to wait for.
    pub(super) is_over: bool,
}

/// A packet is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) node: u16,
}
