//! Posts ([`crate::config::FEATURE_POSTS`]).
//!
//! Messages are sent from registered memory to nodes, and received into posted memory, in the order of arrival.
//!
//! Pages, slots, launch words, doorbell, receive queue, numbers and the status line are those of every card
//! ([`crate::bar`], [`crate::receive`]). Memory is part of regions ([`crate::region`]). A slot has a command, and a
//! slice of the receive queue has an event, whose status word programs poll like that of a slice. A card has one port,
//! which sends to every node: the header on its network names nodes and no ports (Jaganathan, Underwood, Sass 2003).
//!
//! The device takes a command only if the receive queue has a slice for its event. Until then the post waits in the
//! page. A receive reserves its slice until its message has arrived, and a send until the card has its data.

use crate::layout;

/// Launch word, bits 0..8: the command, [`POST_SEND`] to [`POST_REDUCE`]. Bits 8..32 are its flags.
pub const POST_MASK: u32 = 0xff;
/// Command, a [`SendCommand`]: sends part of a region to a node. The words of the slot after a command's layout are
/// zero.
pub const POST_SEND: u32 = 1;
/// Command, a [`ReceiveCommand`]: posts part of a region as room for one message from any node. Messages take room in
/// the order of posting, when their first packets arrive.
pub const POST_RECEIVE: u32 = 2;

/// Command, a [`BarrierCommand`]: is done when every member of the group has posted it.
pub const POST_BARRIER: u32 = 3;
/// Command, a [`MulticastCommand`]: sends part of a region to every other member of a group, where it is an ordinary
/// message ([`POST_EVENT_RECEIVED`]). It is done when all members have it in their memory.
pub const POST_MULTICAST: u32 = 4;
/// Command, a [`ReduceCommand`]: every member names values in its memory. The operator combines the values of all
/// members, and the result replaces the values at every member.
pub const POST_REDUCE: u32 = 5;

/// Flag of [`POST_RECEIVE`]: raises one interrupt when the event of its message is stored. The network's header has no
/// bit for it, so the receiver requests the interrupt, and not the sender. Flag of [`POST_BARRIER`], [`POST_MULTICAST`]
/// and [`POST_REDUCE`]: raises one interrupt when [`POST_EVENT_DONE`] is stored.
pub const POST_INTERRUPT: u32 = 1 << 8;
/// Flag of [`POST_SEND`]: [`POST_EVENT_SENT`] reports when the card has the data, and the memory may be used again.
/// Messages to different nodes may be sent in another order than that of their posts.
pub const POST_TELL_SENT: u32 = 1 << 9;

/// The length of a message is a multiple of this number of bytes, and not zero.
pub const POST_UNIT_BYTES: u64 = 4;
/// The longest message of any card, in bytes. A card may have a lower limit.
pub const POST_MAX_MESSAGE_BYTES: u64 = 1 << 30;

layout! {
    /// The words of [`POST_SEND`].
    pub struct SendCommand: 32 {
        /// User value, returned with every event of this command.
        pub user: u64,
        /// Region of the memory.
        pub region: u32,
        /// Target node.
        pub node: u16,
        /// Zero.
        pub reserved: u16,
        /// Offset in the region.
        pub offset: u64,
        /// Length of the message in bytes.
        pub bytes: u64,
    }
}

layout! {
    /// The words of [`POST_RECEIVE`].
    pub struct ReceiveCommand: 32 {
        /// User value, returned with the event of this command.
        pub user: u64,
        /// Region of the memory.
        pub region: u32,
        /// Zero.
        pub reserved: u32,
        /// Offset in the region.
        pub offset: u64,
        /// Length of the room in bytes, with the same limits as for a message.
        pub bytes: u64,
    }
}

layout! {
    /// The words of [`POST_BARRIER`].
    pub struct BarrierCommand: 16 {
        /// User value, returned with the event of this command.
        pub user: u64,
        /// The group.
        pub group: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// The words of [`POST_MULTICAST`].
    pub struct MulticastCommand: 32 {
        /// User value, returned with the event of this command.
        pub user: u64,
        /// Region of the memory.
        pub region: u32,
        /// The group.
        pub group: u32,
        /// Offset in the region.
        pub offset: u64,
        /// Length in bytes, as of a message, at most [`POST_MAX_COLLECTIVE_BYTES`].
        pub bytes: u64,
    }
}

layout! {
    /// The words of [`POST_REDUCE`].
    pub struct ReduceCommand: 40 {
        /// User value, returned with the event of this command.
        pub user: u64,
        /// Region of the values and of the result.
        pub region: u32,
        /// The group.
        pub group: u32,
        /// Offset in the region.
        pub offset: u64,
        /// Length of the values in bytes: one or more complete values, at most [`POST_MAX_COLLECTIVE_BYTES`].
        pub bytes: u64,
        /// [`POST_SUM`], [`POST_MIN`] or [`POST_MAX`].
        pub operator: u32,
        /// Type of the values: [`POST_SIGNED_32`] to [`POST_DOUBLE`].
        pub element: u32,
    }
}

/// Maximum length of a multicast or a reduction in bytes.
pub const POST_MAX_COLLECTIVE_BYTES: u64 = 64 << 10;

/// Operator: the sum. Integers wrap. Doubles are added in an order that depends only on the group, so every member has
/// the same bits. A sum that is not a number is the one of [`POST_MIN`].
pub const POST_SUM: u32 = 1;
/// Operator: the minimum. Of doubles, -0 is less than 0. If any value is not a number, the result is the quiet NaN
/// without sign and payload, `0x7ff8000000000000`.
pub const POST_MIN: u32 = 2;
/// Operator: the maximum, with the rules of [`POST_MIN`].
pub const POST_MAX: u32 = 3;

/// Values: signed integers of 32 bits.
pub const POST_SIGNED_32: u32 = 1;
/// Values: signed integers of 64 bits.
pub const POST_SIGNED_64: u32 = 2;
/// Values: unsigned integers of 32 bits.
pub const POST_UNSIGNED_32: u32 = 3;
/// Values: unsigned integers of 64 bits.
pub const POST_UNSIGNED_64: u32 = 4;
/// Values: IEEE 754 binary64.
pub const POST_DOUBLE: u32 = 5;

layout! {
    /// An event in a slice of the receive queue. The device stores the words in ascending order, the status last.
    pub struct PostEvent: 88 {
        /// User value of the command.
        pub user: u64,
        /// Length of the message in bytes; of a refused command, the requested length.
        pub bytes: u64,
        /// Number of bytes that were stored or sent.
        pub moved_bytes: u64,
        /// [`POST_EVENT_RECEIVED`]: the node that sent the message. [`POST_EVENT_DONE`]: the group. Otherwise: the node
        /// to which the message was sent.
        pub source: u64,
        /// Number of the message between this node and the other one, as the card counts them, from 1. Zero if the card
        /// does not count, for multicasts, and for [`POST_EVENT_DONE`].
        pub message: u64,
        /// Zero.
        pub reserved0: u64,
        /// Zero.
        pub reserved1: u64,
        /// Zero.
        pub reserved2: u64,
        /// Zero.
        pub reserved3: u64,
        /// Zero.
        pub reserved4: u64,
        /// Kind, bits 0..8; result, 8..16; zero, 16..32; the event's number, from 1 and wrapping, 32..64.
        pub status: u64,
    }
}
const _: () = assert!(size_of::<PostEvent>() as u64 == crate::receive::SLICE_BYTES);

/// [`PostEvent::status`]: lowest bit of the result.
pub const POST_RESULT_SHIFT: u32 = 8;

/// Kind: the card has all data of a message with [`POST_TELL_SENT`], or has given it up, and does not need the memory.
pub const POST_EVENT_SENT: u32 = 1;
/// Kind: a message was stored in the memory that was posted for it.
pub const POST_EVENT_RECEIVED: u32 = 2;
/// Kind: a command was refused, for the reason in the result. It had no effect.
pub const POST_EVENT_REFUSED: u32 = 3;
/// Kind: a message was not delivered, as far as the card knows, and the card has given up. The event waits until the
/// queue has a slice, because none is reserved for it.
pub const POST_EVENT_FAILED: u32 = 4;
/// Kind: a barrier, a multicast or a reduction of this member has ended; the result says whether it succeeded.
pub const POST_EVENT_DONE: u32 = 5;

/// Result: success.
pub const POST_OK: u32 = 0;
/// Result: success, but the message was truncated, because it is longer than the room posted for it.
pub const POST_TRUNCATED: u32 = 1;
/// Result: the region is closed, or does not belong to this port; or memory of it was removed during the operation.
pub const POST_BAD_REGION: u32 = 2;
/// Result: offset and bytes exceed the region.
pub const POST_BAD_RANGE: u32 = 3;
/// Result: reserved bits or words are not zero, or the length is invalid for a message or too long for the card.
pub const POST_BAD_VALUE: u32 = 4;
/// Result: the command is unknown.
pub const POST_BAD_COMMAND: u32 = 5;
/// Result: the node does not exist.
pub const POST_NO_TARGET: u32 = 6;
/// Result: the other card has not acknowledged the message after all retransmissions.
pub const POST_UNREACHABLE: u32 = 7;
/// Result: parts of the message did not arrive, and no card retransmits them. The memory has the parts that arrived.
pub const POST_INCOMPLETE: u32 = 8;
/// Result: the card's firmware was reloaded before the message had arrived.
pub const POST_HANDED_OVER: u32 = 9;
/// Result: this node has no such group.
pub const POST_NO_GROUP: u32 = 10;
/// Result: the card's protocol loses messages. Collectives need a protocol that delivers.
pub const POST_NOT_RELIABLE: u32 = 11;
/// Result: a member has dropped the group, or its program has ended.
pub const POST_LEFT: u32 = 12;
/// Result: the members posted different operations, or made the group of different members.
pub const POST_UNALIKE: u32 = 13;

/// Changes when the card interrupts the host of a port, while the card runs: [`PostRules`]. Refused if the card's
/// protocol has no component for it.
pub const OP_POST_RULES: u32 = 14;

layout! {
    /// Body of [`OP_POST_RULES`]. Zero disables a rule.
    pub struct PostRules: 32 {
        /// The port.
        pub port: u32,
        /// One: at the end of a message, the card interrupts the host for the bytes counted so far.
        pub at_end: u32,
        /// Interrupt after this number of received bytes.
        pub rcv_chunk_size: u64,
        /// Interrupt for each message of at least this number of bytes.
        pub min_message_bytes: u64,
        /// The rules apply to messages of this node; [`POST_ANY_SOURCE`]: of all nodes.
        pub source: u64,
    }
}

/// [`PostRules::source`]: any node.
pub const POST_ANY_SOURCE: u64 = 0xffff;

/// Makes a group of nodes, or drops it: [`PostGroup`]. Refused with [`crate::control::STATUS_BAD_VALUE`] if the name is
/// in use or the members are invalid; with [`crate::control::STATUS_NO_SPACE`] beyond [`POST_GROUPS`]; with
/// [`crate::control::STATUS_BAD_OPERATION`] if the card's protocol loses messages; with
/// [`crate::control::STATUS_NOT_FOUND`] if the group to drop does not exist.
pub const OP_POST_GROUP: u32 = 15;

/// Maximum number of groups of a card.
pub const POST_GROUPS: u32 = 16;
/// Maximum number of members of a group.
pub const POST_MAX_MEMBERS: u32 = 256;

layout! {
    /// Body of [`OP_POST_GROUP`]; `members` [`PostMember`]s follow.
    pub struct PostGroup: 16 {
        /// The port.
        pub port: u32,
        /// Name of the group: any number, the same at every member.
        pub group: u32,
        /// Number of members, at most [`POST_MAX_MEMBERS`]. This node is one of them, none occurs twice, and the order
        /// is the same at every member. Zero: the group is dropped.
        pub members: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// A member of a group.
    pub struct PostMember: 4 {
        /// Its node.
        pub node: u32,
    }
}

/// Kind of an event, from its status word.
pub const fn post_event_kind(status: u64) -> u32 {
    (status & 0xff) as u32
}

/// Result of an event, from its status word.
pub const fn post_event_result(status: u64) -> u32 {
    (status >> POST_RESULT_SHIFT & 0xff) as u32
}

/// Status word of an event.
pub const fn post_event_status(kind: u32, result: u32, number: u32) -> u64 {
    (kind as u64 & 0xff)
        | (result as u64 & 0xff) << POST_RESULT_SHIFT
        | (number as u64) << crate::receive::SLICE_NUMBER_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_status_word_do_not_overlap() {
        let status = post_event_status(POST_EVENT_FAILED, POST_INCOMPLETE, u32::MAX);
        assert_eq!(
            (post_event_kind(status), post_event_result(status)),
            (POST_EVENT_FAILED, POST_INCOMPLETE)
        );
        assert_eq!(status >> crate::receive::SLICE_NUMBER_SHIFT, u64::from(u32::MAX));
        assert_eq!(status >> 16 & 0xffff, 0);
    }

    #[test]
    fn commands_have_their_documented_words() {
        let send = SendCommand { user: 1, region: 2, node: 3, offset: 4, bytes: 8, ..Default::default() };
        assert_eq!(crate::to_words::<10>(&send), [1, 0x0003_0000_0002, 4, 8, 0, 0, 0, 0, 0, 0]);
        let receive = ReceiveCommand { user: 1, region: 2, offset: 4, bytes: 8, ..Default::default() };
        assert_eq!(crate::to_words::<10>(&receive), [1, 2, 4, 8, 0, 0, 0, 0, 0, 0]);
    }
}
