//! Channels ([`crate::config::FEATURE_CHANNELS`]): active messages over logical channels (Ulmer, Yalamanchili).
//!
//! Each port of the card is a logical channel, owned by the program that opened the port. The program *pushes* a
//! message. It stores the header into a slot of the requester page, the header ring of the channel's outbound queue. It
//! stores the payload into the queue's payload region, a window of its own ([`WINDOW_CHANNEL_PAYLOAD`]). The card reads
//! nothing from the program's memory.
//!
//! The program may push a long message in segments, so that the card sends its begin while the program still pushes its
//! end. The first post says how many bytes are in the region, and each [`CHANNEL_SEGMENT`] after it raises this number.
//! The program posts nothing between a header and its last segment.
//!
//! A received message is a slice of the receive queue ([`crate::receive`]). It has one payload word, the handler, and
//! the four integers as its tag. A message with payload has another word before these: its position in the endpoint's
//! payload region ([`payload_place`]). The program frees the payload's room with its slice.
//! [`crate::receive::SliceStatus`] names the sender's channel.
//!
//! A message stays in the outbound queue until the other card has acknowledged all of it.
//! [`crate::receive::StatusLine::sent`] counts the messages that have left the queue, in the order of their posts. So
//! the program knows which part of the payload region is free. The card writes a status line for each sent message with
//! payload, and for each with [`CHANNEL_NOTIFY`]. A message that another card finally refuses counts as sent and as
//! refused, with the reason. So does a header that the card itself refuses, in its order, except with
//! [`crate::receive::REFUSED_SEGMENT`].

use crate::layout;

/// [`crate::bar::Window::kind`]: the payload region of a channel's outbound queue. Each port has
/// [`CHANNEL_PAYLOAD_BYTES`], of which a card may offer fewer.
pub const WINDOW_CHANNEL_PAYLOAD: u32 = crate::bar::WINDOW_OF_MODEL;
/// Pages of a channel's payload region in the BAR.
pub const CHANNEL_PAYLOAD_PAGES: u32 = 48;
/// Bytes of a channel's payload region in the BAR.
pub const CHANNEL_PAYLOAD_BYTES: u64 = CHANNEL_PAYLOAD_PAGES as u64 * crate::PAGE_BYTES;

/// Launch word, bits 0..8: the kind of the post. Bits 8..32 are flags.
pub const CHANNEL_MASK: u32 = 0xff;
/// A message without payload, [`MessageHeader`].
pub const CHANNEL_SHORT: u32 = 1;
/// A message with payload, [`BulkHeader`].
pub const CHANNEL_BULK: u32 = 2;
/// Bytes for an exposed region of another program, [`MemoryHeader`]. It has no handler, and the receiver is not
/// notified.
pub const CHANNEL_MEMORY: u32 = 3;
/// More of the last posted message is in the payload region, [`Segment`].
pub const CHANNEL_SEGMENT: u32 = 4;
/// Flag of [`CHANNEL_SHORT`] and [`CHANNEL_BULK`]: the receiving card interrupts its host when the message is stored.
pub const CHANNEL_INTERRUPT: u32 = 1 << 8;
/// Flag of the same: the card writes a status line when the message has left, as it does for all messages with payload.
pub const CHANNEL_NOTIFY: u32 = 1 << 9;

/// Maximum payload of one message in bytes (section 5.1).
pub const CHANNEL_MAX_BULK_BYTES: u64 = 48 << 10;

/// Handlers below this number are predefined, and the same everywhere: the library's own, and those of peripherals from
/// [`CHANNEL_PING`] on.
pub const CHANNEL_FIRST_HANDLER: u32 = 32;
/// Answer to a message for a handler that does not exist. Its first integer is the handler's number.
pub const CHANNEL_UNKNOWN: u32 = 1;

// Peripherals are endpoints like programs: peer devices on the node's bus, each with a channel of its own (section
// 5.5). The following are their handlers (section 5.4), and the handlers of the programs that they answer.

/// Any peripheral: returns the integers and the payload to the sender, for [`CHANNEL_PONG`].
pub const CHANNEL_PING: u32 = 16;
/// Answer to [`CHANNEL_PING`].
pub const CHANNEL_PONG: u32 = 17;
/// A bridge: sends the payload from its Ethernet port, in UDP datagrams. Integers: the receiving node; its IPv4
/// address; the bridge's own address; the ports, [`bridge_ports`].
pub const CHANNEL_BRIDGE: u32 = 18;
/// From a bridge, to the program that last sent by this address and port: a received datagram. Integers: the sending
/// node, or 65535 for another host; its IPv4 address; the bridge's own address; the ports, [`bridge_ports`].
pub const CHANNEL_BRIDGED: u32 = 19;
/// Block storage: stores the payload. Integers: the first block; three that are returned.
pub const CHANNEL_STORE: u32 = 20;
/// Answer to [`CHANNEL_STORE`]. Integers: the number of blocks stored, 0 if there is no room for them; the three of the
/// request.
pub const CHANNEL_STORED: u32 = 21;
/// Block storage: sends blocks. Integers: the first block; the number of blocks; two that are returned.
pub const CHANNEL_LOAD: u32 = 22;
/// Answer to [`CHANNEL_LOAD`] with the blocks. Integers: the first block; the number of blocks, 0 if they do not exist;
/// the two of the request.
pub const CHANNEL_LOADED: u32 = 23;
/// A card with a function: applies it to the payload. The integers are returned.
pub const CHANNEL_APPLY: u32 = 24;
/// Answer to [`CHANNEL_APPLY`] with the function's result.
pub const CHANNEL_APPLIED: u32 = 25;

/// Bytes of a block of a peripheral's storage.
pub const STORAGE_BLOCK_BYTES: u32 = 512;

/// The integer of a bridge's message with the UDP ports of its datagrams.
pub const fn bridge_ports(source: u16, destination: u16) -> u32 {
    (source as u32) << 16 | destination as u32
}

layout! {
    /// The words of [`CHANNEL_SHORT`]. A short message has 28 bytes (section 5.1): four for the channel, which the
    /// address of the store encodes, four for the handler and 16 for the integers. The others are the destination. With
    /// the word that notifies the card of the message, the burst has 32 bytes.
    pub struct MessageHeader: 32 {
        /// Target node.
        pub node: u16,
        /// Target endpoint: its port.
        pub endpoint: u16,
        /// Number of the handler.
        pub handler: u32,
        /// First integer for the handler.
        pub argument0: u32,
        /// Second.
        pub argument1: u32,
        /// Third.
        pub argument2: u32,
        /// Fourth.
        pub argument3: u32,
        /// Number of payload bytes in the region: zero.
        pub pushed: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// The words of [`CHANNEL_BULK`].
    pub struct BulkHeader: 40 {
        /// Target node.
        pub node: u16,
        /// Target endpoint: its port.
        pub endpoint: u16,
        /// Number of the handler.
        pub handler: u32,
        /// First integer for the handler.
        pub argument0: u32,
        /// Second.
        pub argument1: u32,
        /// Third.
        pub argument2: u32,
        /// Fourth.
        pub argument3: u32,
        /// Offset of the payload in the payload region.
        pub offset: u32,
        /// Length of the payload in bytes: 1..=[`CHANNEL_MAX_BULK_BYTES`].
        pub bytes: u32,
        /// Number of payload bytes that are in the region, from the first on.
        pub pushed: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// The words of [`CHANNEL_MEMORY`].
    pub struct MemoryHeader: 32 {
        /// Target node.
        pub node: u16,
        /// Target endpoint: the port whose program registered the region.
        pub endpoint: u16,
        /// Name of the target region, which must be exposed ([`OP_CHANNEL_EXPOSE`]).
        pub region: u32,
        /// Offset in the target region.
        pub place: u64,
        /// Offset of the bytes in the payload region.
        pub offset: u32,
        /// Number of bytes: 1..=[`CHANNEL_MAX_BULK_BYTES`].
        pub bytes: u32,
        /// Number of these bytes that are in the region, from the first on.
        pub pushed: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// The words of [`CHANNEL_SEGMENT`].
    pub struct Segment: 8 {
        /// Number of bytes of the message in the payload region: more than before, and at most its length.
        pub pushed: u32,
        /// Zero.
        pub reserved: u32,
    }
}

/// The word of a slice with the position of the payload: offset in the endpoint's payload region, and length.
pub const fn payload_place(offset: u32, bytes: u32) -> u64 {
    offset as u64 | (bytes as u64) << 32
}

/// Sets the payload region of messages for a port: [`ChannelPayload`]. Until then the card refuses messages with
/// payload for the port. The request fails with [`crate::control::STATUS_PORT_BUSY`] while the previous region has
/// payload.
pub const OP_CHANNEL_PAYLOAD: u32 = 16;
/// Allows memory messages to write into a region, or revokes this: [`ChannelExpose`].
pub const OP_CHANNEL_EXPOSE: u32 = 17;

layout! {
    /// Body of [`OP_CHANNEL_PAYLOAD`].
    pub struct ChannelPayload: 24 {
        /// The port.
        pub port: u32,
        /// A region of the port.
        pub region: u32,
        /// Offset of the payload region in it, a multiple of 64.
        pub offset: u64,
        /// Length in bytes, a multiple of 64.
        pub bytes: u64,
    }
}

layout! {
    /// Body of [`OP_CHANNEL_EXPOSE`].
    pub struct ChannelExpose: 16 {
        /// The port.
        pub port: u32,
        /// A region of the port.
        pub region: u32,
        /// One: memory messages may write into it. Zero: they may not.
        pub is_exposed: u32,
        /// Zero.
        pub reserved: u32,
    }
}
