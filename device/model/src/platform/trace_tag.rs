//! Metadata that accompanies a frame but is not part of it: the frame's message, and when that message began.
//!
//! Hardware has no such metadata. Shells pass it along with the frame, so that each message's transactions can be
//! attributed and its latency is known at the receiver.

use crate::time::Time;

/// One message from a program to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceTag {
    /// The sending node.
    pub node: u16,
    /// The sender's port, or [`Self::ETHERNET`].
    pub port: u16,
    /// Number of the message at the sending node, from 1, in the order in which its host posted messages to the NIC,
    /// over all ports.
    pub number: u64,
    /// When the host's software began to send it.
    pub launched: Time,
    /// Bytes of payload, without tags and headers.
    pub bytes: u32,
}

impl TraceTag {
    /// Replaces the port if the message is a frame of the node's Ethernet function, which numbers its own frames.
    pub const ETHERNET: u16 = u16::MAX;

    /// Whether the message belongs to a node's Ethernet function, not its cluster NIC.
    pub const fn is_ethernet(&self) -> bool {
        self.port == Self::ETHERNET
    }
}
