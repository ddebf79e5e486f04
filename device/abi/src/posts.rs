//! Posts ([`crate::config::FEATURE_POSTS`]): messages that are sent out of registered memory to nodes, and received
//! into memory that is posted for whatever comes next.
//!
//! Pages, slots, launch words, doorbell, receive queue, numbers and the status line are those of every card
//! ([`crate::bar`], [`crate::receive`]); memory is part of regions ([`crate::region`]). A slot carries a command, and a
//! slice of the receive queue an event, whose status word is polled as a slice's is. A card has one port, which sends
//! to every node: the header on its network names nodes, and no ports (Jaganathan, Underwood, Sass 2003).
//!
//! The device takes a command only while the receive queue has a place for the event that it is due: until then the
//! launch waits in the page. A receive holds its place until its message is there, a send until the card has its data.

use crate::layout;

/// Launch word, bits 0..8: the command, a `POST_SEND` or a `POST_RECEIVE`. Bits 8..32 are its flags.
pub const POST_MASK: u32 = 0xff;
/// Command, a [`SendCommand`]: sends part of a region to a node. Words of the slot behind a command's layout are zero.
pub const POST_SEND: u32 = 1;
/// Command, a [`ReceiveCommand`]: part of a region becomes room for one message, from whichever node. Room is taken in
/// the order in which it was posted, as the first packets of messages arrive.
pub const POST_RECEIVE: u32 = 2;

/// Command, a [`BarrierCommand`]: is done once every member of the group has asked for it.
pub const POST_BARRIER: u32 = 3;
/// Command, a [`MulticastCommand`]: sends part of a region to every other member of a group, where it is an ordinary
/// message ([`POST_EVENT_RECEIVED`]). Is done once all have it in their memory.
pub const POST_MULTICAST: u32 = 4;
/// Command, a [`ReduceCommand`]: every member names values in its memory, and has in their place what the operator
/// makes of those of all members.
pub const POST_REDUCE: u32 = 5;

/// Flag of [`POST_RECEIVE`]: one interrupt once the event of its message is stored. The network's header has no bit for
/// it, so that the receiver asks, and not the sender. Of [`POST_BARRIER`], [`POST_MULTICAST`] and [`POST_REDUCE`]: one
/// once [`POST_EVENT_DONE`] is stored.
pub const POST_INTERRUPT: u32 = 1 << 8;
/// Flag of [`POST_SEND`]: [`POST_EVENT_SENT`] tells when the card has the data: the memory may be used again. Messages
/// to several nodes may be sent in another order than that of their launches.
pub const POST_TELL_SENT: u32 = 1 << 9;

/// A message is a multiple of so many bytes, and not empty.
pub const POST_UNIT_BYTES: u64 = 4;
/// The longest message of any card, in bytes; a card may be made for shorter ones.
pub const POST_MAX_MESSAGE_BYTES: u64 = 1 << 30;

layout! {
    /// The words of [`POST_SEND`].
    pub struct SendCommand: 32 {
        /// User value, given back with every event of this command.
        pub user: u64,
        /// Region of the memory.
        pub region: u32,
        /// Target node.
        pub node: u16,
        /// Zero.
        pub reserved: u16,
        /// Offset in the region.
        pub offset: u64,
        /// Bytes of the message.
        pub bytes: u64,
    }
}

layout! {
    /// The words of [`POST_RECEIVE`].
    pub struct ReceiveCommand: 32 {
        /// User value, given back with the event of this command.
        pub user: u64,
        /// Region of the memory.
        pub region: u32,
        /// Zero.
        pub reserved: u32,
        /// Offset in the region.
        pub offset: u64,
        /// Bytes of room: as those of a message.
        pub bytes: u64,
    }
}

layout! {
    /// The words of [`POST_BARRIER`].
    pub struct BarrierCommand: 16 {
        /// User value, given back with the event of this command.
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
        /// User value, given back with the event of this command.
        pub user: u64,
        /// Region of the memory.
        pub region: u32,
        /// The group.
        pub group: u32,
        /// Offset in the region.
        pub offset: u64,
        /// Bytes, as those of a message, at most [`POST_MAX_COLLECTIVE_BYTES`].
        pub bytes: u64,
    }
}

layout! {
    /// The words of [`POST_REDUCE`].
    pub struct ReduceCommand: 40 {
        /// User value, given back with the event of this command.
        pub user: u64,
        /// Region of the values, and of what is made of them.
        pub region: u32,
        /// The group.
        pub group: u32,
        /// Offset in the region.
        pub offset: u64,
        /// Bytes of the values: a whole number of them, not none, at most [`POST_MAX_COLLECTIVE_BYTES`].
        pub bytes: u64,
        /// [`POST_SUM`], [`POST_MIN`] or [`POST_MAX`].
        pub operator: u32,
        /// What the values are: a `POST_` constant from [`POST_SIGNED_32`] to [`POST_DOUBLE`].
        pub element: u32,
    }
}

/// Most bytes of a multicast or a reduction.
pub const POST_MAX_COLLECTIVE_BYTES: u64 = 64 << 10;

/// Operator: the sum. Integers wrap; doubles are added in an order that the group's alone decides, so that every member
/// has the same bits. A sum that is no number is the one that [`POST_MIN`] names.
pub const POST_SUM: u32 = 1;
/// Operator: the least. Of doubles, -0 is less than 0, and with any that is no number the result is the quiet one
/// without sign and payload, `0x7ff8000000000000`.
pub const POST_MIN: u32 = 2;
/// Operator: the greatest, as [`POST_MIN`].
pub const POST_MAX: u32 = 3;

/// Values: integers of 32 bits with sign.
pub const POST_SIGNED_32: u32 = 1;
/// Values: integers of 64 bits with sign.
pub const POST_SIGNED_64: u32 = 2;
/// Values: integers of 32 bits without sign.
pub const POST_UNSIGNED_32: u32 = 3;
/// Values: integers of 64 bits without sign.
pub const POST_UNSIGNED_64: u32 = 4;
/// Values: IEEE 754 binary64.
pub const POST_DOUBLE: u32 = 5;

layout! {
    /// An event: what a slice of the receive queue carries. The words are stored in ascending order, the status last.
    pub struct PostEvent: 88 {
        /// User value of the command.
        pub user: u64,
        /// Bytes of the message; of a refused command, those that it asked for.
        pub bytes: u64,
        /// Bytes that were stored or sent.
        pub moved_bytes: u64,
        /// [`POST_EVENT_RECEIVED`]: the node that sent the message. [`POST_EVENT_DONE`]: the group. Else the node that
        /// it was for.
        pub source: u64,
        /// Number of the message among those between this node and the other, as the card counts them, from 1; zero
        /// where it does not, and of multicasts. [`POST_EVENT_DONE`]: zero.
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

/// Kind: the card has all data of a message with [`POST_TELL_SENT`], or has given it up, and needs the memory no more.
pub const POST_EVENT_SENT: u32 = 1;
/// Kind: a message is in the memory that was posted for it.
pub const POST_EVENT_RECEIVED: u32 = 2;
/// Kind: a command was refused; the result says why. Nothing of it was done.
pub const POST_EVENT_REFUSED: u32 = 3;
/// Kind: a message was not delivered, as far as the card knows, and it has given up. Comes once the queue has a place,
/// as none is held for it.
pub const POST_EVENT_FAILED: u32 = 4;
/// Kind: a barrier, a multicast or a reduction that this member asked for is over; the result says whether it is done.
pub const POST_EVENT_DONE: u32 = 5;

/// Result: done.
pub const POST_OK: u32 = 0;
/// Result: done, but cut: the message is longer than the room that was posted for it.
pub const POST_TRUNCATED: u32 = 1;
/// Result: the region is closed, or never was one of this port; or memory of it went away meanwhile.
pub const POST_BAD_REGION: u32 = 2;
/// Result: offset and bytes go beyond the region.
pub const POST_BAD_RANGE: u32 = 3;
/// Result: reserved bits or words are not zero, or a length is none of a message, or too long for the card.
pub const POST_BAD_VALUE: u32 = 4;
/// Result: there is no such command.
pub const POST_BAD_COMMAND: u32 = 5;
/// Result: there is no such node.
pub const POST_NO_TARGET: u32 = 6;
/// Result: the other card has not acknowledged it, as often as it was sent.
pub const POST_UNREACHABLE: u32 = 7;
/// Result: parts of the message never came, and nobody sends them again. The memory holds those that came.
pub const POST_INCOMPLETE: u32 = 8;
/// Result: the card was given another program before the message had arrived.
pub const POST_HANDED_OVER: u32 = 9;
/// Result: there is no such group here.
pub const POST_NO_GROUP: u32 = 10;
/// Result: the card's protocol loses messages. What cards do among themselves needs one that delivers.
pub const POST_NOT_RELIABLE: u32 = 11;
/// Result: a member has dropped the group, or its program is gone.
pub const POST_LEFT: u32 = 12;
/// Result: members have asked for different things, or have made the group of different members.
pub const POST_UNALIKE: u32 = 13;

/// Changes when the card interrupts the host of a port, while it runs: [`PostRules`]. Refused where the card's protocol
/// has no component for it.
pub const OP_POST_RULES: u32 = 14;

layout! {
    /// Body of [`OP_POST_RULES`]. Zero turns a rule off.
    pub struct PostRules: 32 {
        /// The port.
        pub port: u32,
        /// One: at the end of a message the host is interrupted for the bytes that are pooled.
        pub at_end: u32,
        /// An interrupt for so many bytes that came.
        pub rcv_chunk_size: u64,
        /// An interrupt for each message of so many bytes or more.
        pub min_message_bytes: u64,
        /// The rules are about messages of this node; [`POST_ANY_SOURCE`]: of all.
        pub source: u64,
    }
}

/// [`PostRules::source`]: any node.
pub const POST_ANY_SOURCE: u64 = 0xffff;

/// Makes a group of nodes, or drops it: [`PostGroup`]. Refused with [`crate::control::STATUS_BAD_VALUE`] where there is
/// a group of this name, or the members are none of a group; with [`crate::control::STATUS_NO_SPACE`] beyond
/// [`POST_GROUPS`]; with [`crate::control::STATUS_BAD_OPERATION`] where the card's protocol loses messages. To be
/// dropped there must be one, else [`crate::control::STATUS_NOT_FOUND`].
pub const OP_POST_GROUP: u32 = 15;

/// Most groups of a card at a time.
pub const POST_GROUPS: u32 = 16;
/// Most members of a group.
pub const POST_MAX_MEMBERS: u32 = 256;

layout! {
    /// Body of [`OP_POST_GROUP`], which so many [`PostMember`]s follow.
    pub struct PostGroup: 16 {
        /// The port.
        pub port: u32,
        /// Name of the group: any number, the same at every member.
        pub group: u32,
        /// Members, at most [`POST_MAX_MEMBERS`], this node among them, none twice, in the same order at every member;
        /// none: the group is dropped.
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
    fn the_status_word_keeps_its_fields_apart() {
        let status = post_event_status(POST_EVENT_FAILED, POST_INCOMPLETE, u32::MAX);
        assert_eq!(
            (post_event_kind(status), post_event_result(status)),
            (POST_EVENT_FAILED, POST_INCOMPLETE)
        );
        assert_eq!(status >> crate::receive::SLICE_NUMBER_SHIFT, u64::from(u32::MAX));
        assert_eq!(status >> 16 & 0xffff, 0);
    }

    #[test]
    fn commands_are_told_by_the_words_of_a_slot() {
        let send = SendCommand { user: 1, region: 2, node: 3, offset: 4, bytes: 8, ..Default::default() };
        assert_eq!(crate::to_words::<10>(&send), [1, 0x0003_0000_0002, 4, 8, 0, 0, 0, 0, 0, 0]);
        let receive = ReceiveCommand { user: 1, region: 2, offset: 4, bytes: 8, ..Default::default() };
        assert_eq!(crate::to_words::<10>(&receive), [1, 2, 4, 8, 0, 0, 0, 0, 0, 0]);
    }
}
