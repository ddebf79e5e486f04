//! What travels beside a frame and not in it: whose message it carries, and since when.
//!
//! Hardware has no such thing. Shells hand it along with the frame, so that each message's crossings can be told from
//! all others and its latency is known where it ends.

use crate::time::Time;

/// One message on its way from a program to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceTag {
    /// The sending node.
    pub node: u16,
    /// The sender's port, or [`Self::ETHERNET`].
    pub port: u16,
    /// The sending node's messages are numbered from 1 in the order in which its host handed them to the NIC, over all
    /// ports.
    pub number: u64,
    /// When the host's software began to send it.
    pub launched: Time,
    /// Bytes of payload, without tags and headers.
    pub bytes: u32,
}

impl TraceTag {
    /// In place of a port: the message is a frame of the node's Ethernet function, which counts its own.
    pub const ETHERNET: u16 = u16::MAX;

    /// Whether it is of a node's Ethernet function beside its cluster NIC.
    pub const fn is_ethernet(&self) -> bool {
        self.port == Self::ETHERNET
    }
}
