//! Events: the results of messages and commands.

use niclab_abi::inic::{
    POST_BAD_COMMAND, POST_BAD_RANGE, POST_BAD_REGION, POST_BAD_VALUE, POST_EVENT_DONE, POST_EVENT_FAILED,
    POST_EVENT_RECEIVED, POST_EVENT_REFUSED, POST_EVENT_SENT, POST_HANDED_OVER, POST_INCOMPLETE, POST_LEFT,
    POST_NO_GROUP, POST_NO_TARGET, POST_NOT_RELIABLE, POST_OK, POST_TRUNCATED, POST_UNALIKE,
    POST_UNREACHABLE, post_event_kind, post_event_result,
};

use crate::Record;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The card has read a message completely; its memory may be reused.
    Sent,
    /// A message was stored in posted memory.
    Received,
    /// The command was refused and had no effect.
    Refused,
    /// A message was not delivered, and the card does not try again.
    Failed,
    /// A group's operation has ended, with success or not.
    Done,
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// Done, but truncated: the message is longer than the posted memory.
    Truncated,
    /// The region is closed, or its memory was removed during the operation.
    BadRegion,
    /// Offset and bytes go beyond the region.
    BadRange,
    /// A value is out of its range.
    BadValue,
    /// There is no such command.
    BadCommand,
    /// There is no such node.
    NoTarget,
    /// The other card has not acknowledged it after all retransmissions.
    Unreachable,
    /// Parts of the message never arrived, and are not retransmitted.
    Incomplete,
    /// The card loaded another program before the message arrived.
    HandedOver,
    /// This node has no such group.
    NoGroup,
    /// The card's protocol loses messages, so it does not support groups.
    NotReliable,
    /// A member has left the group.
    Left,
    /// Members have posted different operations.
    Unalike,
    /// A result that this library does not know.
    Other(u32),
}

/// Each result with its number, a `POST_` constant of the contract, and its text.
const OUTCOMES: [(Outcome, u32, &str); 14] = [
    (Outcome::Done, POST_OK, "done"),
    (Outcome::Truncated, POST_TRUNCATED, "the message was truncated: post more memory for it"),
    (
        Outcome::BadRegion,
        POST_BAD_REGION,
        "the region is no longer registered: keep it until the operation has ended",
    ),
    (Outcome::BadRange, POST_BAD_RANGE, "the bytes exceed the region: name bytes inside the region"),
    (
        Outcome::BadValue,
        POST_BAD_VALUE,
        "a value of the command is out of its range: a message is a multiple of four bytes, not empty, and at most \
         `max_message_bytes` long",
    ),
    (
        Outcome::BadCommand,
        POST_BAD_COMMAND,
        "the device does not know the command: build device and program from the same source",
    ),
    (Outcome::NoTarget, POST_NO_TARGET, "there is no such node: the cluster has fewer nodes"),
    (Outcome::Unreachable, POST_UNREACHABLE, "the other card does not answer: is the peer running?"),
    (
        Outcome::Incomplete,
        POST_INCOMPLETE,
        "parts of the message were lost, and the card does not retransmit them",
    ),
    (
        Outcome::HandedOver,
        POST_HANDED_OVER,
        "the card loaded another program before the message arrived: send it again",
    ),
    (Outcome::NoGroup, POST_NO_GROUP, "this node has no such group: create it at every member"),
    (
        Outcome::NotReliable,
        POST_NOT_RELIABLE,
        "the card's protocol loses messages: give the cluster an assembly that delivers (`conf2` to `conf4`)",
    ),
    (Outcome::Left, POST_LEFT, "a member has left the group: remove it, and create another"),
    (Outcome::Unalike, POST_UNALIKE, "members have posted different operations, or named different members"),
];

impl Outcome {
    /// The outcome of a number: a result of the contract.
    pub fn from_number(number: u32) -> Self {
        let known = OUTCOMES.iter().find(|(_, own, _)| *own == number);
        known.map_or(Self::Other(number), |(outcome, ..)| *outcome)
    }

    /// Its number, as in the contract and in C programs.
    pub fn number(self) -> u32 {
        if let Self::Other(number) = self {
            return number;
        }
        OUTCOMES.iter().find(|(outcome, ..)| *outcome == self).map_or(u32::MAX, |(_, number, _)| *number)
    }
}

impl core::fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let known = OUTCOMES.iter().find(|(outcome, ..)| outcome == self);
        formatter.write_str(known.map_or(
            "a result that this library does not know: build device and program from the same source",
            |(.., words)| words,
        ))
    }
}

/// An event: a copy, so that its slot in the queue is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// How it ended.
    pub outcome: Outcome,
    /// User value of the command.
    pub user: u64,
    /// Bytes of the message.
    pub bytes: u64,
    /// Bytes transferred.
    pub moved_bytes: u64,
    /// Received message: the source node. [`EventKind::Done`]: the group. Otherwise: the target node. The NIC sets it,
    /// so a sender cannot forge it.
    pub node: u32,
    /// Number of the message among those between both nodes, from 1; zero if the card does not count them.
    pub message: u64,
}

impl Event {
    /// Decodes a record with this status; its words are in the order of `niclab_abi::inic::PostEvent`. `None` for a
    /// kind that this library does not know.
    #[inline]
    pub fn decode(record: &impl Record, status: u64) -> Option<Self> {
        let kind = match post_event_kind(status) {
            POST_EVENT_SENT => EventKind::Sent,
            POST_EVENT_RECEIVED => EventKind::Received,
            POST_EVENT_REFUSED => EventKind::Refused,
            POST_EVENT_FAILED => EventKind::Failed,
            POST_EVENT_DONE => EventKind::Done,
            _ => return None,
        };
        Some(Self {
            kind,
            outcome: Outcome::from_number(post_event_result(status)),
            user: record.word(0),
            bytes: record.word(1),
            moved_bytes: record.word(2),
            node: record.word(3) as u32,
            message: record.word(4),
        })
    }
}

/// Record type of such a port's receive queue: an event.
#[derive(Clone, Copy, Debug)]
pub struct PostRecord;

impl crate::Kind for PostRecord {
    #[inline]
    fn is_written(status: u64) -> bool {
        post_event_kind(status) != 0
    }

    #[inline]
    fn is_sound(status: u64) -> bool {
        (POST_EVENT_SENT..=POST_EVENT_DONE).contains(&post_event_kind(status))
    }
}

#[cfg(test)]
mod tests {
    use niclab_abi::inic::{PostEvent, post_event_status};
    use niclab_abi::to_words;
    use proptest::prelude::*;
    use std::string::ToString;

    use super::*;
    use crate::Kind as _;

    #[test]
    fn outcomes_round_trip_and_have_distinct_texts() {
        let words = |number| Outcome::from_number(number).to_string();
        for number in 0..20 {
            assert_eq!(Outcome::from_number(number).number(), number);
            assert!((0..number).all(|other| other > POST_UNALIKE || words(other) != words(number)));
        }
        assert_eq!(Outcome::from_number(POST_INCOMPLETE), Outcome::Incomplete);
        assert_eq!(Outcome::from_number(POST_UNALIKE + 1), Outcome::Other(POST_UNALIKE + 1));
    }

    proptest! {
        #[test]
        fn an_event_decodes_to_what_the_card_wrote(
            (kind, result, number) in (0..8_u32, 0..16_u32, any::<u32>()),
            (user, bytes, moved_bytes) in any::<(u64, u64, u64)>(),
            (source, message) in any::<(u16, u64)>(),
        ) {
            let status = post_event_status(kind, result, number);
            let written =
                PostEvent { user, bytes, moved_bytes, source: source.into(), message, status, ..PostEvent::default() };
            let record: [u64; 11] = to_words(&written);
            let kinds = [
                None,
                Some(EventKind::Sent),
                Some(EventKind::Received),
                Some(EventKind::Refused),
                Some(EventKind::Failed),
                Some(EventKind::Done),
            ];
            let expected = kinds.get(kind as usize).copied().flatten().map(|kind| Event {
                kind,
                outcome: Outcome::from_number(result),
                user,
                bytes,
                moved_bytes,
                node: source.into(),
                message,
            });
            prop_assert_eq!(Event::decode(&&record, status), expected);
            prop_assert_eq!(PostRecord::is_sound(status), expected.is_some());
            prop_assert_eq!(PostRecord::is_written(status), kind != 0);
        }
    }
}
