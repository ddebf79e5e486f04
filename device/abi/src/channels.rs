//! Channels ([`crate::config::FEATURE_CHANNELS`]): active messages over logical channels (Ulmer, Yalamanchili).
//!
//! Each port of the card is a logical channel, owned by the program that opened the port. A message is *pushed*: the
//! program stores its header into a slot of the requester page, the header ring of the channel's outbound queue, and
//! what more belongs to it into the queue's payload region, a window of its own ([`WINDOW_CHANNEL_PAYLOAD`]). Nothing
//! is read from the program's memory.
//!
//! A long message may be pushed in segments, so that the card sends its begin while the program still pushes its end:
//! the first launch says how much of it is there, and each [`CHANNEL_SEGMENT`] behind it how much there is by then. A
//! header and its segments are launched one behind the other, with nothing between them.
//!
//! A message that comes is a slice of the receive queue ([`crate::receive`]) with one payload word, the handler, and
//! the four integers as its tag; one with payload has another word before these, which says where in the endpoint's
//! payload region it is ([`payload_place`]). The program gives the room of a payload back with its slice.
//! [`crate::receive::SliceStatus`] names the sender's channel.
//!
//! A message stays in the outbound queue until the other card has acknowledged all of it.
//! [`crate::receive::StatusLine::sent`] counts the messages that have left it, in the order of their launches: by that
//! the program knows which part of the payload region is free. The card writes a status line for each message with
//! payload that leaves, and for each that asked for it ([`CHANNEL_NOTIFY`]). What another card refuses for good is
//! counted as refused there, with the reason, and as one that has left. A header that the card itself refuses counts
//! likewise, in its place, but for one with [`crate::receive::REFUSED_SEGMENT`].

use crate::layout;

/// [`crate::bar::Window::kind`]: the payload region of a channel's outbound queue. [`CHANNEL_PAYLOAD_BYTES`] for each
/// port, of which a card may offer less.
pub const WINDOW_CHANNEL_PAYLOAD: u32 = crate::bar::WINDOW_OF_MODEL;
/// Pages of a channel's payload region in the BAR.
pub const CHANNEL_PAYLOAD_PAGES: u32 = 48;
/// Bytes of a channel's payload region in the BAR.
pub const CHANNEL_PAYLOAD_BYTES: u64 = CHANNEL_PAYLOAD_PAGES as u64 * crate::PAGE_BYTES;

/// Launch word, bits 0..8: what is pushed. Bits 8..32 are flags.
pub const CHANNEL_MASK: u32 = 0xff;
/// A message without payload, [`MessageHeader`].
pub const CHANNEL_SHORT: u32 = 1;
/// A message with payload, [`BulkHeader`].
pub const CHANNEL_BULK: u32 = 2;
/// Bytes for a region of another program's memory, [`MemoryHeader`]: no handler, and nothing tells the receiver.
pub const CHANNEL_MEMORY: u32 = 3;
/// More of the message launched last is in the payload region, [`Segment`].
pub const CHANNEL_SEGMENT: u32 = 4;
/// Flag of [`CHANNEL_SHORT`] and [`CHANNEL_BULK`]: the receiving card interrupts its host once the message is stored.
pub const CHANNEL_INTERRUPT: u32 = 1 << 8;
/// Flag of the same: the card writes a status line once the message has left, as it does for all with payload.
pub const CHANNEL_NOTIFY: u32 = 1 << 9;

/// Most bytes of the payload of one message (section 5.1).
pub const CHANNEL_MAX_BULK_BYTES: u64 = 48 << 10;

/// Handlers below this number are predefined, the same everywhere: the library's own, and from [`CHANNEL_PING`] on
/// those of peripherals.
pub const CHANNEL_FIRST_HANDLER: u32 = 32;
/// Answer to a message for a handler that is not there: its number is the first integer.
pub const CHANNEL_UNKNOWN: u32 = 1;

// Peripherals are endpoints as programs are: cards beside the NIC, each with a channel of its own (section 5.5). These
// are the handlers by which they are used (section 5.4), and those of the programs that they answer.

/// Any peripheral: sends the integers and the payload back to its sender, for [`CHANNEL_PONG`].
pub const CHANNEL_PING: u32 = 16;
/// Answer to [`CHANNEL_PING`].
pub const CHANNEL_PONG: u32 = 17;
/// A bridge: sends the payload over its Ethernet port, in UDP datagrams. Integers: the node that gets them; its IPv4
/// address; the bridge's own; the ports, [`bridge_ports`].
pub const CHANNEL_BRIDGE: u32 = 18;
/// From a bridge, to who last sent by its address and port: a datagram that came there. Integers: the node that it is
/// from, 65535 for somebody else; its IPv4 address; the bridge's own; the ports, [`bridge_ports`].
pub const CHANNEL_BRIDGED: u32 = 19;
/// Block storage: stores the payload. Integers: the first block; three that come back.
pub const CHANNEL_STORE: u32 = 20;
/// Answer to [`CHANNEL_STORE`]. Integers: how many blocks were stored, 0 where there is no room for them; the three of
/// the request.
pub const CHANNEL_STORED: u32 = 21;
/// Block storage: sends blocks. Integers: the first; how many; two that come back.
pub const CHANNEL_LOAD: u32 = 22;
/// Answer to [`CHANNEL_LOAD`] with the blocks. Integers: the first; how many, 0 where they are not there; the two of
/// the request.
pub const CHANNEL_LOADED: u32 = 23;
/// A card with a function: applies it to the payload. The integers come back.
pub const CHANNEL_APPLY: u32 = 24;
/// Answer to [`CHANNEL_APPLY`] with what the function makes of it.
pub const CHANNEL_APPLIED: u32 = 25;

/// Bytes of a block of a peripheral's storage.
pub const STORAGE_BLOCK_BYTES: u32 = 512;

/// The integer of a bridge's message that holds the UDP ports of its datagrams.
pub const fn bridge_ports(source: u16, destination: u16) -> u32 {
    (source as u32) << 16 | destination as u32
}

layout! {
    /// The words of [`CHANNEL_SHORT`]. Of the 28 bytes of a short message (section 5.1) four are the channel, which the
    /// place of the store says, four the handler and 16 the integers; the others are the destination. With the word
    /// that tells the card of it the burst has 32.
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
        /// Bytes of the payload that are in the region: zero.
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
        /// Where in the payload region the payload begins.
        pub offset: u32,
        /// Its bytes: 1..=[`CHANNEL_MAX_BULK_BYTES`].
        pub bytes: u32,
        /// Of these, from the first on, so many are in the region.
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
        /// Name of the region there, which must be exposed ([`OP_CHANNEL_EXPOSE`]).
        pub region: u32,
        /// Offset in that region.
        pub place: u64,
        /// Where in the payload region the bytes begin.
        pub offset: u32,
        /// How many: 1..=[`CHANNEL_MAX_BULK_BYTES`].
        pub bytes: u32,
        /// Of these, from the first on, so many are in the region.
        pub pushed: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// The words of [`CHANNEL_SEGMENT`].
    pub struct Segment: 8 {
        /// Bytes of the message that are in the payload region by now: more than before, and not more than it has.
        pub pushed: u32,
        /// Zero.
        pub reserved: u32,
    }
}

/// The payload word of a slice whose message has payload: where it begins in the endpoint's payload region, and its
/// bytes.
pub const fn payload_place(offset: u32, bytes: u32) -> u64 {
    offset as u64 | (bytes as u64) << 32
}

/// Says where the payload of messages for a port goes: [`ChannelPayload`]. Until then messages with payload for it are
/// refused. Refused itself with [`crate::control::STATUS_PORT_BUSY`] while payload is in the region before.
pub const OP_CHANNEL_PAYLOAD: u32 = 16;
/// Lets memory messages write into a region, or takes that back: [`ChannelExpose`].
pub const OP_CHANNEL_EXPOSE: u32 = 17;

layout! {
    /// Body of [`OP_CHANNEL_PAYLOAD`].
    pub struct ChannelPayload: 24 {
        /// The port.
        pub port: u32,
        /// A region of the port.
        pub region: u32,
        /// Where in it the payload region begins, a multiple of 64.
        pub offset: u64,
        /// Its bytes, a multiple of 64.
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
