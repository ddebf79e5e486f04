//! Lists of posted receives ([`crate::config::FEATURE_LISTS`]).
//!
//! Commands are in the requester page, events in the receive queue, and counters after the status line.
//!
//! Pages, slots, launch words, doorbell, receive queue, numbers and the status line are those of every card
//! ([`crate::bar`], [`crate::receive`]). A slot has a command in place of a packet, and a slice has an event in place
//! of a message. The status word, which the device writes last, has the number of the event in the same bits as that of
//! a slice. Programs poll it in the same way.
//!
//! The semantics are those of Portals 3.0. A port has [`PORTALS`] portal table entries, each with a list of posted
//! match entries and an overflow list after it. Here a match entry and its memory descriptor are one object.

use crate::layout;

/// Number of portal table entries of each port.
pub const PORTALS: u32 = 8;
/// Number of counters of each port.
pub const COUNTERS: u32 = 32;
/// Maximum number of match entries of a device, in all lists of all ports and in any memory (Portals 4:
/// `ptl_ni_limits_t.max_entries`).
pub const MAX_ENTRIES: u32 = 8192;
/// Maximum number of match entries of a portal, posted and overflow together (Portals 4:
/// `ptl_ni_limits_t.max_list_size`).
pub const MAX_LIST_SIZE: u32 = 4096;

/// Launch word, bits 0..8: the command, a `COMMAND_` constant. Bits 8..32 are its flags.
pub const COMMAND_MASK: u32 = 0xff;
/// Command, a [`TransferCommand`]: sends part of a region to a portal of another port. The words of the slot after a
/// command's layout are zero.
pub const COMMAND_PUT: u32 = 1;
/// Command, a [`TransferCommand`]: reads from a portal of another port into part of a region.
pub const COMMAND_GET: u32 = 2;
/// Command, an [`AppendCommand`]: appends a match entry to a list of this port. Its handle is the post's sequence
/// number. The device first searches the unexpected messages of the portal, oldest first. The entry takes those that it
/// matches at once ([`EVENT_PUT_OVERFLOW`]). Then the device links the entry.
pub const COMMAND_APPEND: u32 = 3;
/// Command, an [`UnlinkCommand`]: unlinks a match entry. The device answers with [`EVENT_UNLINKED`]. The entry still
/// takes the rest of messages that it has begun to take.
pub const COMMAND_UNLINK: u32 = 4;
/// Command, an [`ArmCounterCommand`]: raises one interrupt when a counter has this number of successes, or at once if
/// it has them already.
pub const COMMAND_ARM_COUNTER: u32 = 5;

layout! {
    /// The words of [`COMMAND_PUT`] and [`COMMAND_GET`].
    pub struct TransferCommand: 64 {
        /// Match bits.
        pub match_bits: u64,
        /// Header data, passed to the receiver with the event.
        pub header_data: u64,
        /// User value, returned with every event of this command.
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
        /// Length in bytes. If it is zero, the card ignores region and offset.
        pub bytes: u64,
        /// Remote offset, for entries with [`ENTRY_REMOTE_OFFSET`].
        pub remote_offset: u64,
        /// Counter plus one, or zero. The counter counts whenever [`EVENT_SENT`], [`EVENT_ACK`] or [`EVENT_REPLY`]
        /// would be due.
        pub counter: u64,
    }
}

layout! {
    /// The words of [`COMMAND_APPEND`].
    pub struct AppendCommand: 72 {
        /// Match bits.
        pub match_bits: u64,
        /// Ignore bits: match bits that the card does not compare.
        pub ignore_bits: u64,
        /// User value, returned with every event of this entry.
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
        /// Length in bytes.
        pub bytes: u64,
        /// Threshold: number of operations after which the card unlinks the entry, 1.., or [`THRESHOLD_INFINITE`].
        pub threshold: u64,
        /// Counter plus one, or zero. The counter counts the entry's operations.
        pub counter: u64,
        /// With [`ENTRY_MAX_SIZE`]: the card unlinks the entry when fewer bytes than this are left. With
        /// [`ENTRY_TRUNCATE`] as well, the value has no effect. Otherwise zero.
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
        /// Number of successes; zero disarms.
        pub threshold: u64,
    }
}

/// Flag of [`COMMAND_PUT`]: the receiving NIC interrupts its host when the event is stored.
pub const COMMAND_INTERRUPT: u32 = 1 << 8;
/// Flag of [`COMMAND_PUT`]: [`EVENT_ACK`] reports the result at the receiver.
pub const COMMAND_ACK: u32 = 1 << 9;
/// Flag of [`COMMAND_PUT`]: [`EVENT_SENT`] reports when the memory may be used again.
pub const COMMAND_SENT: u32 = 1 << 10;
/// Flag of [`COMMAND_PUT`], [`COMMAND_GET`] and [`COMMAND_APPEND`]: the card counts successes and reports no events of
/// them, except [`EVENT_UNLINKED`]. It always reports failures by events.
pub const COMMAND_COUNT_ONLY: u32 = 1 << 11;

/// Flag of [`COMMAND_APPEND`]: the entry accepts puts.
pub const ENTRY_PUT: u32 = 1 << 16;
/// Flag of [`COMMAND_APPEND`]: the entry accepts gets.
pub const ENTRY_GET: u32 = 1 << 17;
/// Flag of [`COMMAND_APPEND`]: the initiator names the offset. Otherwise the entry has an offset of its own, which
/// advances.
pub const ENTRY_REMOTE_OFFSET: u32 = 1 << 18;
/// Flag of [`COMMAND_APPEND`]: [`AppendCommand::max_size`] applies, unless longer messages are truncated
/// ([`ENTRY_TRUNCATE`]). It does not unlink an entry whose offset the initiator names. Such an entry does not match a
/// message at whose offset fewer bytes are left.
pub const ENTRY_MAX_SIZE: u32 = 1 << 19;
/// Flag of [`COMMAND_APPEND`]: the entry truncates a longer message; otherwise it does not match one.
pub const ENTRY_TRUNCATE: u32 = 1 << 20;
/// Flag of [`COMMAND_APPEND`]: appends to the overflow list.
pub const ENTRY_OVERFLOW: u32 = 1 << 21;
/// Flag of [`COMMAND_APPEND`]: no event if the entry is unlinked automatically.
pub const ENTRY_NO_UNLINK_EVENT: u32 = 1 << 22;

/// Source of [`COMMAND_APPEND`]: from any node.
pub const ANY_NODE: u64 = 0xffff;
/// Source of [`COMMAND_APPEND`]: from any port.
pub const ANY_PORT: u64 = 0xff;
/// Threshold of [`COMMAND_APPEND`]: no number of operations unlinks the entry.
pub const THRESHOLD_INFINITE: u64 = 0xffff_ffff;

layout! {
    /// An event in a slice of the receive queue. The device stores the words in ascending order, the status last.
    pub struct ListEvent: 88 {
        /// User value of the entry, or of the command.
        pub user: u64,
        /// Match bits of the message.
        pub match_bits: u64,
        /// Header data of the put.
        pub header_data: u64,
        /// Number of bytes that the initiator requested.
        pub requested_bytes: u64,
        /// Number of bytes that were stored or sent.
        pub moved_bytes: u64,
        /// Offset of these bytes in the entry's memory, or in the command's.
        pub offset: u64,
        /// The initiator's node, bits 48..64, and port, 32..48; handle of the entry or of the command, 0..32.
        /// [`event_source`].
        pub source: u64,
        /// [`EVENT_PUT_OVERFLOW`]: the handle of the overflow entry whose memory has the message. Otherwise zero.
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

/// Kind: a put was stored by a posted entry.
pub const EVENT_PUT: u32 = 1;
/// Kind: a put was stored by an overflow entry, because no posted entry matched.
pub const EVENT_PUT_UNEXPECTED: u32 = 2;
/// Kind: an appended entry takes a message that arrived before it. The data is in the overflow entry's memory.
pub const EVENT_PUT_OVERFLOW: u32 = 3;
/// Kind: a get has read from a posted entry.
pub const EVENT_GET: u32 = 4;
/// Kind: all data of a put has left the memory, and the other card has it. Also reports that a put has failed, if the
/// command requested no other event.
pub const EVENT_SENT: u32 = 5;
/// Kind: a put was stored at the receiver, or was not.
pub const EVENT_ACK: u32 = 6;
/// Kind: the data of a get was stored, or was not available.
pub const EVENT_REPLY: u32 = 7;
/// Kind: an entry is not linked any more, and its last operation is complete. Its memory is the program's. With result
/// [`RESULT_NOT_FOUND`], the entry was not linked when [`COMMAND_UNLINK`] arrived.
pub const EVENT_UNLINKED: u32 = 8;
/// Kind: a command was refused, for the reason in the result. It had no effect.
pub const EVENT_REFUSED: u32 = 9;

/// Result: success.
pub const RESULT_OK: u32 = 0;
/// Result: success, but the message was truncated, because it is longer than the entry's room.
pub const RESULT_TRUNCATED: u32 = 1;
/// Result: no entry matched at the target, neither posted nor overflow.
pub const RESULT_NO_MATCH: u32 = 2;
/// Result: the target had no room for events or unexpected messages, or its port does not read.
pub const RESULT_NO_ROOM: u32 = 3;
/// Result: the target port is not open, or the node or portal does not exist.
pub const RESULT_NO_TARGET: u32 = 4;
/// Result: the region is closed, or does not belong to this port; or memory of it was removed during the operation.
pub const RESULT_BAD_REGION: u32 = 5;
/// Result: offset and bytes exceed the region.
pub const RESULT_BAD_RANGE: u32 = 6;
/// Result: reserved bits or words are not zero, or a value is out of range.
pub const RESULT_BAD_VALUE: u32 = 7;
/// Result: the command is unknown.
pub const RESULT_BAD_COMMAND: u32 = 8;
/// Result: the entry is not linked.
pub const RESULT_NOT_FOUND: u32 = 9;
/// Result: no room for another match entry. Device memory and spill area are full, the device has [`MAX_ENTRIES`], or
/// the portal has [`MAX_LIST_SIZE`].
pub const RESULT_LIST_FULL: u32 = 10;

layout! {
    /// A counter, in the page of the port's status line: counter `c` is at [`COUNTERS_OFFSET`]` + 16 c`. Neither word
    /// ever decreases. The device writes both in one burst, `success` last.
    pub struct ListCounter: 16 {
        /// Number of operations that failed.
        pub failure: u64,
        /// Number of operations that succeeded.
        pub success: u64,
    }
}

/// Byte offset of a port's counters from the status line. On such cards, the memory of the status line that a port
/// opens is a whole page.
pub const COUNTERS_OFFSET: u64 = 1024;
const _: () = assert!(COUNTERS_OFFSET + COUNTERS as u64 * 16 <= crate::PAGE_BYTES);

/// Gives the device host memory for match entries that do not fit into its own: [`SpillOpen`], once, by the driver. The
/// device forgets the memory at [`crate::control::OP_RESET`] or at its own reset. Then it is the driver's again.
pub const OP_SPILL_OPEN: u32 = 13;

layout! {
    /// Body of [`OP_SPILL_OPEN`].
    pub struct SpillOpen: 16 {
        /// Guest-physical address, aligned to 64 bytes.
        pub address: u64,
        /// Length in bytes: 64 for each match entry.
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
    fn fields_of_the_status_word_do_not_overlap() {
        let status = event_status(EVENT_REFUSED, RESULT_LIST_FULL, PORTALS - 1, u32::MAX);
        assert_eq!((event_kind(status), event_result(status)), (EVENT_REFUSED, RESULT_LIST_FULL));
        assert_eq!(status >> EVENT_PORTAL_SHIFT & 0xff, u64::from(PORTALS) - 1);
        assert_eq!(status >> crate::receive::SLICE_NUMBER_SHIFT, u64::from(u32::MAX));
        assert_eq!(status >> 24 & 0xff, 0);
    }

    #[test]
    fn commands_have_their_documented_words() {
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
