//! Lists of posted receives ([`crate::config::FEATURE_LISTS`]): commands in the requester page, events in the receive
//! queue, counters beside the status line.
//!
//! Pages, slots, launch words, doorbell, receive queue, numbers and the status line are those of every card
//! ([`crate::bar`], [`crate::receive`]). A slot carries a command where that of a card with slices carries a packet,
//! and a slice carries an event in place of a message: the status word, which is written last, has the number of the
//! event in the same bits as a slice has its own, and is polled in the same way.
//!
//! Semantics are those of Portals 3.0: a port has [`PORTALS`] portal table entries, each with a list of posted match
//! entries and an overflow list behind it. A match entry and its memory descriptor are one here.

use crate::layout;

/// Portal table entries of each port.
pub const PORTALS: u32 = 8;
/// Counters of each port.
pub const COUNTERS: u32 = 32;
/// Most match entries of a device, over all lists of all ports, wherever they lie (Portals 4:
/// `ptl_ni_limits_t.max_entries`).
pub const MAX_ENTRIES: u32 = 8192;
/// Most match entries of a portal, posted and for overflow together (Portals 4: `ptl_ni_limits_t.max_list_size`).
pub const MAX_LIST_SIZE: u32 = 4096;

/// Launch word, bits 0..8: the command, a `COMMAND_` constant. Bits 8..32 are its flags.
pub const COMMAND_MASK: u32 = 0xff;
/// Command, a [`TransferCommand`]: sends part of a region to a portal of another port. Words of the slot behind a
/// command's layout are zero.
pub const COMMAND_PUT: u32 = 1;
/// Command, a [`TransferCommand`]: fetches what a portal of another port has into part of a region.
pub const COMMAND_GET: u32 = 2;
/// Command, an [`AppendCommand`]: appends a match entry to a list of this port. Its handle is the launch's sequence
/// number. Before it is linked, the unexpected messages of the portal are searched, oldest first: those that it matches
/// are its own at once ([`EVENT_PUT_OVERFLOW`]).
pub const COMMAND_APPEND: u32 = 3;
/// Command, an [`UnlinkCommand`]: unlinks a match entry. Answered by [`EVENT_UNLINKED`]. Messages that it has begun to
/// take are taken to their end.
pub const COMMAND_UNLINK: u32 = 4;
/// Command, an [`ArmCounterCommand`]: one interrupt as soon as a counter has so many successes, at once when it has
/// them already.
pub const COMMAND_ARM_COUNTER: u32 = 5;

layout! {
    /// The words of [`COMMAND_PUT`] and [`COMMAND_GET`].
    pub struct TransferCommand: 64 {
        /// Match bits.
        pub match_bits: u64,
        /// Header data, given to the receiver with the event.
        pub header_data: u64,
        /// User value, given back with every event of this command.
        pub user: u64,
        /// Region of the memory.
        pub region: u32,
        /// Portal of the target.
        pub portal: u8,
        /// Target port.
        pub port: u8,
        /// Target node.
        pub node: u16,
        /// Offset in the region.
        pub offset: u64,
        /// Bytes; of none, region and offset are not looked at.
        pub bytes: u64,
        /// Remote offset, for entries with [`ENTRY_REMOTE_OFFSET`].
        pub remote_offset: u64,
        /// Counter plus one, or zero: counts what would have been an event of [`EVENT_SENT`] and [`EVENT_ACK`], or of
        /// [`EVENT_REPLY`].
        pub counter: u64,
    }
}

layout! {
    /// The words of [`COMMAND_APPEND`].
    pub struct AppendCommand: 72 {
        /// Match bits.
        pub match_bits: u64,
        /// Ignore bits: those that are not compared.
        pub ignore_bits: u64,
        /// User value, given back with every event of this entry.
        pub user: u64,
        /// Region of the memory.
        pub region: u32,
        /// Portal.
        pub portal: u8,
        /// Source port, or [`ANY_PORT`].
        pub port: u8,
        /// Source node, or [`ANY_NODE`].
        pub node: u16,
        /// Offset in the region.
        pub offset: u64,
        /// Bytes.
        pub bytes: u64,
        /// Threshold: operations after which it is unlinked, 1.., or [`THRESHOLD_INFINITE`].
        pub threshold: u64,
        /// Counter plus one, or zero: counts its operations.
        pub counter: u64,
        /// With [`ENTRY_MAX_SIZE`]: the entry is unlinked once fewer bytes than this are left; with [`ENTRY_TRUNCATE`],
        /// too, it says nothing. Otherwise zero.
        pub max_size: u64,
    }
}

layout! {
    /// The words of [`COMMAND_UNLINK`].
    pub struct UnlinkCommand: 8 {
        /// Handle of the match entry.
        pub handle: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// The words of [`COMMAND_ARM_COUNTER`].
    pub struct ArmCounterCommand: 16 {
        /// The counter.
        pub counter: u64,
        /// Successes; zero disarms.
        pub threshold: u64,
    }
}

/// Flag of [`COMMAND_PUT`]: the receiving NIC interrupts its host once the event is stored.
pub const COMMAND_INTERRUPT: u32 = 1 << 8;
/// Flag of [`COMMAND_PUT`]: [`EVENT_ACK`] tells what became of it at the receiver.
pub const COMMAND_ACK: u32 = 1 << 9;
/// Flag of [`COMMAND_PUT`]: [`EVENT_SENT`] tells when the memory may be used again.
pub const COMMAND_SENT: u32 = 1 << 10;
/// Flag of [`COMMAND_PUT`], [`COMMAND_GET`] and [`COMMAND_APPEND`]: successes are counted and not told by events, but
/// for [`EVENT_UNLINKED`]. Failures are always told by events.
pub const COMMAND_COUNT_ONLY: u32 = 1 << 11;

/// Flag of [`COMMAND_APPEND`]: answers puts.
pub const ENTRY_PUT: u32 = 1 << 16;
/// Flag of [`COMMAND_APPEND`]: answers gets.
pub const ENTRY_GET: u32 = 1 << 17;
/// Flag of [`COMMAND_APPEND`]: the initiator says the offset. Otherwise the entry keeps its own, which moves on.
pub const ENTRY_REMOTE_OFFSET: u32 = 1 << 18;
/// Flag of [`COMMAND_APPEND`]: [`AppendCommand::max_size`] counts, unless a longer message is cut ([`ENTRY_TRUNCATE`]).
/// An entry whose offset the initiator says is not unlinked by it: a message at whose offset fewer bytes are left does
/// not match.
pub const ENTRY_MAX_SIZE: u32 = 1 << 19;
/// Flag of [`COMMAND_APPEND`]: a longer message is cut; otherwise it does not match.
pub const ENTRY_TRUNCATE: u32 = 1 << 20;
/// Flag of [`COMMAND_APPEND`]: for the overflow list.
pub const ENTRY_OVERFLOW: u32 = 1 << 21;
/// Flag of [`COMMAND_APPEND`]: no event when it unlinks itself.
pub const ENTRY_NO_UNLINK_EVENT: u32 = 1 << 22;

/// Source of [`COMMAND_APPEND`]: from any node.
pub const ANY_NODE: u64 = 0xffff;
/// Source of [`COMMAND_APPEND`]: from any port.
pub const ANY_PORT: u64 = 0xff;
/// Threshold of [`COMMAND_APPEND`]: never unlinks itself for it.
pub const THRESHOLD_INFINITE: u64 = 0xffff_ffff;

layout! {
    /// An event: what a slice of the receive queue carries. The words are stored in ascending order, the status last.
    pub struct ListEvent: 88 {
        /// User value of the entry, or of the command.
        pub user: u64,
        /// Match bits of the message.
        pub match_bits: u64,
        /// Header data of the put.
        pub header_data: u64,
        /// Bytes that the initiator asked for.
        pub requested_bytes: u64,
        /// Bytes that were stored or sent.
        pub moved_bytes: u64,
        /// Offset of the first of them in the entry's memory, or in the command's.
        pub offset: u64,
        /// Initiator: node, bits 48..64; port, 32..48. Handle of the entry, or of the command, 0..32. [`event_source`].
        pub source: u64,
        /// [`EVENT_PUT_OVERFLOW`]: the handle of the overflow entry in whose memory the message is. Otherwise zero.
        pub overflow_handle: u64,
        /// [`EVENT_PUT_OVERFLOW`]: the user value of that entry. Otherwise zero.
        pub overflow_user: u64,
        /// Zero.
        pub reserved: u64,
        /// Kind, bits 0..8; result, 8..16; portal, 16..24; zero, 24..32; the event's number, from 1 and wrapping,
        /// 32..64.
        pub status: u64,
    }
}
const _: () = assert!(size_of::<ListEvent>() as u64 == crate::receive::SLICE_BYTES);

/// [`ListEvent::status`]: lowest bit of the result.
pub const EVENT_RESULT_SHIFT: u32 = 8;
/// [`ListEvent::status`]: lowest bit of the portal.
pub const EVENT_PORTAL_SHIFT: u32 = 16;

/// Kind: a put was stored in a posted entry.
pub const EVENT_PUT: u32 = 1;
/// Kind: a put was stored in an overflow entry: it was not expected.
pub const EVENT_PUT_UNEXPECTED: u32 = 2;
/// Kind: an entry that is appended takes a message that came before it. The data is in the overflow entry's memory.
pub const EVENT_PUT_OVERFLOW: u32 = 3;
/// Kind: a get has read a posted entry.
pub const EVENT_GET: u32 = 4;
/// Kind: all of a put has left the memory: the other card has it. Also tells that a put ended without, where it wants
/// no other event.
pub const EVENT_SENT: u32 = 5;
/// Kind: a put was stored at the receiver, or was not.
pub const EVENT_ACK: u32 = 6;
/// Kind: what a get asked for was stored, or could not be had.
pub const EVENT_REPLY: u32 = 7;
/// Kind: an entry is not linked any more, and the last operation that it had begun is over: its memory is the
/// program's. With result [`RESULT_NOT_FOUND`] it was not when [`COMMAND_UNLINK`] came.
pub const EVENT_UNLINKED: u32 = 8;
/// Kind: a command was refused; the result says why. Nothing of it was done.
pub const EVENT_REFUSED: u32 = 9;

/// Result: done.
pub const RESULT_OK: u32 = 0;
/// Result: done, but cut: the entry had less room than the message is long.
pub const RESULT_TRUNCATED: u32 = 1;
/// Result: no entry matched at the target, neither posted nor for overflow.
pub const RESULT_NO_MATCH: u32 = 2;
/// Result: the target had no room: for events, for unexpected messages, or the port does not read.
pub const RESULT_NO_ROOM: u32 = 3;
/// Result: the target port is not open, or there is no such node or portal.
pub const RESULT_NO_TARGET: u32 = 4;
/// Result: the region is closed, or never was one of this port; or memory of it went away meanwhile.
pub const RESULT_BAD_REGION: u32 = 5;
/// Result: offset and bytes go beyond the region.
pub const RESULT_BAD_RANGE: u32 = 6;
/// Result: reserved bits or words are not zero, or a value is out of its range.
pub const RESULT_BAD_VALUE: u32 = 7;
/// Result: there is no such command.
pub const RESULT_BAD_COMMAND: u32 = 8;
/// Result: no such entry is linked.
pub const RESULT_NOT_FOUND: u32 = 9;
/// Result: no room for another match entry: device memory is full and so is the spill area, the device has
/// [`MAX_ENTRIES`], or the portal has [`MAX_LIST_SIZE`].
pub const RESULT_LIST_FULL: u32 = 10;

layout! {
    /// A counter, in the port's first page of receive memory: counter `c` is at [`COUNTERS_OFFSET`]` + 16 c`. Both only
    /// grow. Written as one burst, `success` last.
    pub struct ListCounter: 16 {
        /// Operations that failed.
        pub failure: u64,
        /// Operations that were done.
        pub success: u64,
    }
}

/// Byte offset, from the status line, of a port's counters. The memory that a port opens with the status line is a
/// whole page on such cards.
pub const COUNTERS_OFFSET: u64 = 1024;
const _: () = assert!(COUNTERS_OFFSET + COUNTERS as u64 * 16 <= crate::PAGE_BYTES);

/// Gives the device host memory for match entries that its own does not hold: [`SpillOpen`], once, by the driver. The
/// device forgets it with [`crate::control::OP_RESET`], or with its own reset: then the memory is the driver's again.
pub const OP_SPILL_OPEN: u32 = 13;

layout! {
    /// Body of [`OP_SPILL_OPEN`].
    pub struct SpillOpen: 16 {
        /// Guest-physical address, aligned to 64 bytes.
        pub address: u64,
        /// Bytes: 64 for each match entry.
        pub bytes: u64,
    }
}

/// Kind of an event, from its status word.
pub const fn event_kind(status: u64) -> u32 {
    (status & 0xff) as u32
}

/// Result of an event, from its status word.
pub const fn event_result(status: u64) -> u32 {
    (status >> EVENT_RESULT_SHIFT & 0xff) as u32
}

/// Source word of an event.
pub const fn event_source(node: u16, port: u8, handle: u32) -> u64 {
    (node as u64) << 48 | (port as u64) << 32 | handle as u64
}

/// Status word of an event.
pub const fn event_status(kind: u32, result: u32, portal: u32, number: u32) -> u64 {
    (kind as u64 & 0xff)
        | (result as u64 & 0xff) << EVENT_RESULT_SHIFT
        | (portal as u64 & 0xff) << EVENT_PORTAL_SHIFT
        | (number as u64) << crate::receive::SLICE_NUMBER_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_word_keeps_its_fields_apart() {
        let status = event_status(EVENT_REFUSED, RESULT_LIST_FULL, PORTALS - 1, u32::MAX);
        assert_eq!((event_kind(status), event_result(status)), (EVENT_REFUSED, RESULT_LIST_FULL));
        assert_eq!(status >> EVENT_PORTAL_SHIFT & 0xff, u64::from(PORTALS) - 1);
        assert_eq!(status >> crate::receive::SLICE_NUMBER_SHIFT, u64::from(u32::MAX));
        assert_eq!(status >> 24 & 0xff, 0);
    }

    #[test]
    fn commands_are_told_by_the_words_of_a_slot() {
        let put =
            TransferCommand { region: 1, portal: 2, port: 3, node: 4, counter: 5, ..Default::default() };
        assert_eq!(crate::to_words::<10>(&put), [0, 0, 0, 0x0004_0302_0000_0001, 0, 0, 0, 5, 0, 0]);
        let append = AppendCommand {
            region: 1,
            portal: 2,
            port: ANY_PORT as u8,
            node: ANY_NODE as u16,
            max_size: 6,
            ..Default::default()
        };
        assert_eq!(crate::to_words::<10>(&append), [0, 0, 0, 0xffff_ff02_0000_0001, 0, 0, 0, 0, 6, 0]);
    }
}
