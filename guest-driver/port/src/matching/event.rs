//! Events: the results of messages and commands.

use niclab_abi::matching::{
    EVENT_ACK, EVENT_GET, EVENT_PORTAL_SHIFT, EVENT_PUT, EVENT_PUT_OVERFLOW, EVENT_PUT_UNEXPECTED,
    EVENT_REFUSED, EVENT_REPLY, EVENT_SENT, EVENT_UNLINKED, RESULT_BAD_COMMAND, RESULT_BAD_RANGE,
    RESULT_BAD_REGION, RESULT_BAD_VALUE, RESULT_LIST_FULL, RESULT_NO_MATCH, RESULT_NO_ROOM, RESULT_NO_TARGET,
    RESULT_NOT_FOUND, RESULT_OK, RESULT_TRUNCATED, event_kind, event_result,
};

use crate::{Address, Record};

/// A match entry or a command, by the number of its post. A port uses each handle once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(u32);

impl Handle {
    /// Its number, as in C programs and traces.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The handle of a number from [`Handle::number`].
    pub fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A message was stored in a posted entry.
    Put,
    /// A message was stored in an overflow entry: it was unexpected.
    Unexpected,
    /// A new entry has claimed an earlier message.
    Claimed {
        /// The overflow entry whose memory holds the message, at [`Event::offset`].
        overflow: Handle,
        /// The user value of that entry.
        overflow_user: u64,
    },
    /// A get has read the entry.
    Get,
    /// All of a put has left the memory.
    Sent,
    /// A put was stored at the receiver, or failed.
    Acknowledged,
    /// The data of a get was stored, or the get failed.
    Reply,
    /// The entry is not linked any more.
    Unlinked,
    /// The command was refused and had no effect.
    Refused,
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// Done, but truncated: the entry had less room than the length of the message.
    Truncated,
    /// No entry matched at the target.
    NoMatch,
    /// The target had no room for events or unexpected messages, or its program does not read events.
    NoRoom,
    /// The target port is not open, or there is no such node.
    NoTarget,
    /// The region is closed, or its memory was removed during the operation.
    BadRegion,
    /// Offset and bytes go beyond the region.
    BadRange,
    /// A value is out of its range.
    BadValue,
    /// There is no such command.
    BadCommand,
    /// No such entry is linked.
    NotFound,
    /// No room for another entry: device memory and the spill area are full, or the portal or the card has the maximum
    /// number of entries.
    ListFull,
    /// A result that this library does not know.
    Other(u32),
}

impl Outcome {
    /// The outcome of a number: a `RESULT_` constant of the contract.
    pub fn from_number(number: u32) -> Self {
        match number {
            RESULT_OK => Self::Done,
            RESULT_TRUNCATED => Self::Truncated,
            RESULT_NO_MATCH => Self::NoMatch,
            RESULT_NO_ROOM => Self::NoRoom,
            RESULT_NO_TARGET => Self::NoTarget,
            RESULT_BAD_REGION => Self::BadRegion,
            RESULT_BAD_RANGE => Self::BadRange,
            RESULT_BAD_VALUE => Self::BadValue,
            RESULT_BAD_COMMAND => Self::BadCommand,
            RESULT_NOT_FOUND => Self::NotFound,
            RESULT_LIST_FULL => Self::ListFull,
            other => Self::Other(other),
        }
    }

    /// Its number, as in the contract and in C programs.
    pub fn number(self) -> u32 {
        match self {
            Self::Done => RESULT_OK,
            Self::Truncated => RESULT_TRUNCATED,
            Self::NoMatch => RESULT_NO_MATCH,
            Self::NoRoom => RESULT_NO_ROOM,
            Self::NoTarget => RESULT_NO_TARGET,
            Self::BadRegion => RESULT_BAD_REGION,
            Self::BadRange => RESULT_BAD_RANGE,
            Self::BadValue => RESULT_BAD_VALUE,
            Self::BadCommand => RESULT_BAD_COMMAND,
            Self::NotFound => RESULT_NOT_FOUND,
            Self::ListFull => RESULT_LIST_FULL,
            Self::Other(number) => number,
        }
    }

    /// Whether the operation was carried out, if only in part.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Done | Self::Truncated)
    }
}

impl core::fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            Self::Done => "done",
            Self::Truncated => "the message was truncated: post more memory for it",
            Self::NoMatch => {
                "no entry of the target matched: post it, or an overflow entry, before the message"
            }
            Self::NoRoom => {
                "the target had no room: its program must read its events, and take unexpected messages"
            }
            Self::NoTarget => "the target port is not open: is the peer running?",
            Self::BadRegion => "the region is no longer registered: keep it until the operation has ended",
            Self::BadRange => "the bytes exceed the region: name bytes inside the region",
            Self::BadValue => "a value of the command is out of its range",
            Self::BadCommand => "the device does not know the command: build device and program from the same source",
            Self::NotFound => "the entry is no longer linked",
            Self::ListFull => {
                "the card or the portal has no room for a match entry: unlink some, use more portals, or give the card \
                 more room (`match_entries`)"
            }
            Self::Other(_) => "a result that this library does not know: build device and program from the same source",
        })
    }
}

/// An event: a copy, so that its slot in the queue is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// How it ended.
    pub outcome: Outcome,
    /// The entry, or the command.
    pub handle: Handle,
    /// User value of the entry, or of the command.
    pub user: u64,
    /// The sender of the message. The NIC sets it, so a sender cannot forge it.
    pub initiator: Address,
    /// The portal.
    pub portal: u32,
    /// Match bits of the message.
    pub match_bits: u64,
    /// Header data of the put.
    pub header_data: u64,
    /// Bytes that the initiator requested.
    pub requested_bytes: u64,
    /// Bytes transferred.
    pub moved_bytes: u64,
    /// Offset of the first byte in the memory of the entry, the overflow entry, or the command.
    pub offset: u64,
}

impl Event {
    /// Decodes a record with this status; its words are in the order of `niclab_abi::matching::ListEvent`. `None` for a
    /// kind that this library does not know.
    #[inline]
    pub fn decode(record: &impl Record, status: u64) -> Option<Self> {
        let kind = match event_kind(status) {
            EVENT_PUT => EventKind::Put,
            EVENT_PUT_UNEXPECTED => EventKind::Unexpected,
            EVENT_PUT_OVERFLOW => {
                EventKind::Claimed { overflow: Handle(record.word(7) as u32), overflow_user: record.word(8) }
            }
            EVENT_GET => EventKind::Get,
            EVENT_SENT => EventKind::Sent,
            EVENT_ACK => EventKind::Acknowledged,
            EVENT_REPLY => EventKind::Reply,
            EVENT_UNLINKED => EventKind::Unlinked,
            EVENT_REFUSED => EventKind::Refused,
            _ => return None,
        };
        let source = record.word(6);
        Some(Self {
            kind,
            outcome: Outcome::from_number(event_result(status)),
            handle: Handle(source as u32),
            user: record.word(0),
            initiator: Address { node: (source >> 48) as u32, port: (source >> 32) as u32 & 0xffff },
            portal: (status >> EVENT_PORTAL_SHIFT) as u32 & 0xff,
            match_bits: record.word(1),
            header_data: record.word(2),
            requested_bytes: record.word(3),
            moved_bytes: record.word(4),
            offset: record.word(5),
        })
    }
}

/// Record type of such a port's receive queue: an event.
#[derive(Clone, Copy, Debug)]
pub struct EventRecord;

impl crate::Kind for EventRecord {
    #[inline]
    fn is_written(status: u64) -> bool {
        event_kind(status) != 0
    }

    #[inline]
    fn is_sound(status: u64) -> bool {
        (EVENT_PUT..=EVENT_REFUSED).contains(&event_kind(status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_round_trip_through_their_numbers() {
        for number in 0..20 {
            assert_eq!(Outcome::from_number(number).number(), number);
        }
        assert_eq!(Outcome::from_number(RESULT_LIST_FULL), Outcome::ListFull);
        assert!(Outcome::Truncated.is_done() && !Outcome::NoMatch.is_done());
    }
}
