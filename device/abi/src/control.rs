//! Requests on the control queue.
//!
//! A request is one descriptor chain. The driver's part has a [`Request`] header and the operation's body. The device's
//! part follows, with a [`Reply`] header and the reply's body. The device refuses a body whose length is not the
//! operation's. It completes every chain that it takes, with a status. It completes and counts a chain without room for
//! a [`Reply`], with no bytes written.

use crate::config::{bytes_of_words, words_of_name};
use crate::layout;

layout! {
    /// Head of a request.
    pub struct Request: 8 {
        /// One of the `OP_` constants.
        pub operation: u32,
        /// Length of the body in bytes.
        pub body_bytes: u32,
    }
}

layout! {
    /// Head of a reply.
    pub struct Reply: 8 {
        /// [`STATUS_OK`], or the reason of the refusal, a `STATUS_` constant.
        pub status: u32,
        /// Length of the body in bytes; zero unless the status is [`STATUS_OK`].
        pub body_bytes: u32,
    }
}

/// Has no effect, and tests whether the device replies. No bodies.
pub const OP_PING: u32 = 1;
/// Opens a port: [`PortOpen`]. The reply is [`PortOpened`].
pub const OP_PORT_OPEN: u32 = 2;
/// Closes a port: [`PortName`]. The device discards and counts packets that are not sent yet, and does not write into
/// the port's memory after the reply. The driver then zeroes the port's pages of the BAR, as it zeroes all pages at its
/// start. So the pages of a closed port have no post.
pub const OP_PORT_CLOSE: u32 = 3;
/// Sets the destination of a port: [`Route`]. Fills the port's entry of the descriptor look-up table.
pub const OP_ROUTE: u32 = 4;
/// Allows a remote port to send to this one: [`Authorize`]. Adds an entry to the port authorization table.
pub const OP_AUTHORIZE: u32 = 5;
/// Revokes this right: [`Revoke`].
pub const OP_REVOKE: u32 = 6;
/// Reads the device's named counters, for example for `ethtool -S`: [`CountersFrom`]. The reply is [`CountersHead`] and
/// [`COUNTERS_PER_REPLY`] times [`Counter`].
pub const OP_COUNTERS: u32 = 7;
/// Closes every port; a driver sends it before it unloads. No bodies.
pub const OP_RESET: u32 = 8;

/// Done.
pub const STATUS_OK: u32 = 0;
/// The model does not have this operation.
pub const STATUS_BAD_OPERATION: u32 = 1;
/// The request is shorter than its header or body, or has no room for the reply.
pub const STATUS_BAD_LENGTH: u32 = 2;
/// The port does not exist or is not open.
pub const STATUS_BAD_PORT: u32 = 3;
/// The port is already open; with [`PORT_ANY`], all ports are.
pub const STATUS_PORT_BUSY: u32 = 4;
/// The memory is not aligned, or not completely memory of this guest.
pub const STATUS_BAD_ADDRESS: u32 = 5;
/// A value is out of range.
pub const STATUS_BAD_VALUE: u32 = 6;
/// The table is full: authorizations, FIFO memory, or credits beyond the receive queue.
pub const STATUS_NO_SPACE: u32 = 7;
/// The entry does not exist.
pub const STATUS_NOT_FOUND: u32 = 8;

/// Number of counters in one reply to [`OP_COUNTERS`].
pub const COUNTERS_PER_REPLY: u32 = 16;
/// Maximum number of counters of a device.
pub const MAX_COUNTERS: u32 = 128;
/// Bytes of a counter's name, including the terminating zero.
pub const COUNTER_NAME_BYTES: u32 = 32;

/// [`PortOpen::port`]: any free port.
pub const PORT_ANY: u32 = u32::MAX;

layout! {
    /// Body of [`OP_PORT_OPEN`].
    pub struct PortOpen: 32 {
        /// The port to open, or [`PORT_ANY`].
        pub port: u32,
        /// Number of slices of the receive queue: a power of two in [`crate::receive::MIN_SLICES`]..=
        /// [`crate::config::DeviceConfig::max_slices`].
        pub slices: u32,
        /// Guest-physical address of the first slice, aligned to 8 bytes.
        pub slices_address: u64,
        /// Guest-physical address of the [`crate::receive::StatusLine`], aligned to 64 bytes; with
        /// [`crate::config::FEATURE_LISTS`] that of a page, aligned to [`crate::PAGE_BYTES`].
        pub status_address: u64,
        /// Share of the requester's FIFO memory in 64-bit words, or zero for an equal share.
        pub fifo_words: u32,
        /// [`PORT_BATCHES`], or zero.
        pub flags: u32,
    }
}

/// [`PortOpen::flags`]: the driver may ring one doorbell for several posts. Only the check of the rules uses this: of
/// other ports it expects a doorbell after each post.
pub const PORT_BATCHES: u32 = 1;

layout! {
    /// Reply to [`OP_PORT_OPEN`].
    pub struct PortOpened: 8 {
        /// The port that was opened.
        pub port: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// Body of [`OP_PORT_CLOSE`].
    pub struct PortName: 8 {
        /// The port.
        pub port: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// Body of [`OP_ROUTE`].
    pub struct Route: 16 {
        /// The sending port, on this node.
        pub port: u32,
        /// The receiving node.
        pub node: u32,
        /// The receiving port on that node.
        pub node_port: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// Body of [`OP_AUTHORIZE`]. A second request for the same remote port changes only the credits.
    pub struct Authorize: 16 {
        /// The receiving port, on this node.
        pub port: u32,
        /// The node that may send.
        pub node: u32,
        /// Its port that may send.
        pub node_port: u32,
        /// Slices of the receive queue that are reserved for this sender. Their sum over all senders is at most the
        /// port's slices, so an authorized sender never overruns the queue.
        pub credits: u32,
    }
}

layout! {
    /// Body of [`OP_REVOKE`].
    pub struct Revoke: 16 {
        /// The receiving port, on this node.
        pub port: u32,
        /// The node.
        pub node: u32,
        /// Its port.
        pub node_port: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// Body of [`OP_COUNTERS`].
    pub struct CountersFrom: 8 {
        /// Number of the first counter to read, from 0. Numbers and names of a device's counters do not change.
        pub first: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// Head of the reply to [`OP_COUNTERS`]; [`COUNTERS_PER_REPLY`] times [`Counter`] follow.
    pub struct CountersHead: 8 {
        /// Number of counters of the device, at most [`MAX_COUNTERS`].
        pub total: u32,
        /// Number of valid counters in this reply; the others are zero.
        pub count: u32,
    }
}

layout! {
    /// A counter. It counts since the device was created, and no driver resets it.
    pub struct Counter: 40 {
        /// Name, first byte lowest, padded with zeros, and always with a zero as the last byte: lower-case letters,
        /// digits and underscores. No two counters of a device have the same name.
        pub name_0: u64,
        /// The next eight bytes of the name.
        pub name_1: u64,
        /// The next eight bytes of the name.
        pub name_2: u64,
        /// The last eight bytes of the name.
        pub name_3: u64,
        /// The count.
        pub value: u64,
    }
}

impl Counter {
    /// A counter with this name, cut to [`COUNTER_NAME_BYTES`] minus one.
    #[must_use]
    pub fn new(name: &str, value: u64) -> Self {
        let [name_0, name_1, name_2, name_3] = words_of_name(name);
        Self { name_0, name_1, name_2, name_3: name_3 & u64::MAX >> 8, value }
    }

    /// The bytes of its name, including zeros; [`crate::config::name_in`] reads it.
    #[must_use]
    pub fn name_bytes(&self) -> [u8; COUNTER_NAME_BYTES as usize] {
        bytes_of_words([self.name_0, self.name_1, self.name_2, self.name_3])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::name_in;

    #[test]
    fn counter_name_round_trips_and_ends_with_a_zero() {
        let counter = Counter::new("frames_discarded", 7);
        assert_eq!((name_in(&counter.name_bytes()), counter.value), (Some("frames_discarded"), 7));
        let long = Counter::new("a_name_that_is_longer_than_there_is_room_for", 0);
        assert_eq!(name_in(&long.name_bytes()).map(str::len), Some(31));
    }
}
