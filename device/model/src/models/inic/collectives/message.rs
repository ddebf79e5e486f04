//! Messages between cards, each in one packet. A bit before the paper's header distinguishes them from messages of
//! hosts.
//!
//! Seven words of 32 bits, most significant byte first, then data:
//!
//! ```text
//! word 0  kind 8 | code 8 | root 16
//! word 1  group
//! word 2  to: the receiver's membership, as announced to the sender; zero before
//! word 3  from: the sender's membership
//! word 4  number of the message among those of this membership to that one
//! word 5  number of the operation: of barriers and reductions of the group, or of multicasts of the root
//! word 6  bytes of the whole operation; of READY a sum over the members, in their order
//! ```
//!
//! A membership is the time of a card in a group, from the group's creation there to its end. The card gives each
//! membership a unique number. So messages in flight of a dropped group do not affect the next group of the same name.

use niclab_abi::inic::{
    POST_LEFT, POST_MAX_COLLECTIVE_BYTES, POST_NOT_RELIABLE, POST_UNALIKE, POST_UNREACHABLE,
};

use crate::models::inic::arithmetic::Task;
use crate::nic::FrameBytes;

/// Bytes before the data. Ours: the format.
pub(in crate::models::inic) const HEAD_BYTES: usize = 28;

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum CollectiveKind {
    /// To the parent: the group is made here and in the whole subtree.
    Ready = 1,
    /// To children: all members have made the group.
    Start,
    /// To the parent: combined values of this subtree.
    Up,
    /// To children: the result.
    Down,
    /// Data of a multicast.
    Cast,
    /// Reply to a multicast: all members on this side have the data in memory.
    Taken,
    /// The sender, or a member that it knows of, has left; the code is the reason.
    Leave,
    /// A probe without contents.
    Probe,
    /// The reply to a message for a membership that does not exist.
    Reset,
}

impl CollectiveKind {
    const ALL: [Self; 9] = [
        Self::Ready,
        Self::Start,
        Self::Up,
        Self::Down,
        Self::Cast,
        Self::Taken,
        Self::Leave,
        Self::Probe,
        Self::Reset,
    ];

    /// Whether messages of this kind are numbered, and taken in the order of their numbers.
    pub(super) const fn is_counted(self) -> bool {
        !matches!(self, Self::Probe | Self::Reset)
    }
}

/// The header before the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: CollectiveKind,
    pub(super) code: u8,
    pub(super) root: u16,
    pub(super) group: u32,
    pub(super) to: u32,
    pub(super) from: u32,
    pub(super) sequence: u32,
    pub(super) number: u32,
    pub(super) total: u32,
}

impl Head {
    /// The message with this head.
    pub(super) fn emit(&self, data: &[u8]) -> FrameBytes {
        let Self { kind, code, root, group, to, from, sequence, number, total } = *self;
        let first = (kind as u32) << 24 | u32::from(code) << 16 | u32::from(root);
        let mut message = FrameBytes::with_capacity(HEAD_BYTES + data.len());
        for word in [first, group, to, from, sequence, number, total] {
            message.extend_from_slice(&word.to_be_bytes());
        }
        message.extend_from_slice(data);
        message
    }

    /// Reads a message; none if it is invalid.
    pub(super) fn parse(message: &[u8]) -> Option<(Self, &[u8])> {
        let (head, data) = message.split_first_chunk::<HEAD_BYTES>()?;
        let mut words = head.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
        let mut word = || words.next();
        let (first, group, to, from, sequence, number, total) =
            (word()?, word()?, word()?, word()?, word()?, word()?, word()?);
        let kind = CollectiveKind::ALL.into_iter().find(|kind| *kind as u32 == first >> 24)?;
        let (code, root) = ((first >> 16) as u8, first as u16);
        let head = Self { kind, code, root, group, to, from, sequence, number, total };
        (head.from != 0 && head.is_sound(data.len())).then_some((head, data))
    }

    /// Whether fields that its kind does not use are zero, and the others are in range.
    fn is_sound(&self, data_bytes: usize) -> bool {
        let Self { kind, code, root, number, total, .. } = *self;
        let is_some_of = total as u64 <= POST_MAX_COLLECTIVE_BYTES && data_bytes <= total as usize;
        let has_data = data_bytes > 0;
        let plain = (code, root, number) == (0, 0, 0) && !has_data;
        match kind {
            CollectiveKind::Ready => plain,
            CollectiveKind::Start | CollectiveKind::Probe | CollectiveKind::Reset => plain && total == 0,
            CollectiveKind::Up | CollectiveKind::Down => {
                let takes = Task::of_code(code).is_some_and(|task| task.takes(total.into()));
                takes && root == 0 && is_some_of && has_data == (total > 0)
            }
            CollectiveKind::Cast => code == 0 && is_some_of && has_data && total.is_multiple_of(4),
            CollectiveKind::Taken => code == 0 && total == 0 && !has_data,
            CollectiveKind::Leave => {
                let is_reason =
                    [POST_UNREACHABLE, POST_LEFT, POST_UNALIKE, POST_NOT_RELIABLE].contains(&code.into());
                is_reason && (root, number, total) == (0, 0, 0) && !has_data
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn any_head() -> impl Strategy<Value = (Head, Vec<u8>)> {
        let kind = prop::sample::select(CollectiveKind::ALL.to_vec());
        let codes = prop_oneof![Just(0_u8), Just(0x11), Just(0x35), 7..14_u8, any::<u8>()];
        let small = || prop_oneof![2 => Just(0_u32), 1 => any::<u32>()];
        let totals = prop_oneof![Just(0_u32), (0..70_000_u32).prop_map(|total| total * 4), any::<u32>()];
        let data = prop_oneof![Just(Vec::new()), prop::collection::vec(any::<u8>(), 0..80)];
        (kind, codes, small(), any::<[u32; 4]>(), small(), totals, data).prop_map(
            |(kind, code, root, [group, to, from, sequence], number, total, data)| {
                (Head { kind, code, root: root as u16, group, to, from, sequence, number, total }, data)
            },
        )
    }

    proptest! {
        #[test]
        fn messages_round_trip((head, data) in any_head()) {
            let message = head.emit(&data);
            if let Some(read) = Head::parse(&message) {
                prop_assert_eq!(read, (head, &*data));
                prop_assert!(u64::from(head.total) <= POST_MAX_COLLECTIVE_BYTES || head.kind == CollectiveKind::Ready);
                prop_assert!(data.len() <= head.total as usize);
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _ = Head::parse(&bytes);
        }
    }

    #[test]
    fn invalid_messages_are_rejected() {
        let up = Head {
            kind: CollectiveKind::Up,
            code: 0x15,
            root: 0,
            group: 7,
            to: 1,
            from: 2,
            sequence: 3,
            number: 4,
            total: 16,
        };
        let reads = |head: Head, bytes: usize| Head::parse(&head.emit(&[0; 100][..bytes])).is_some();
        assert!(reads(up, 16) && reads(up, 8) && !reads(up, 0) && !reads(up, 24));
        for wrong in [
            Head { code: 0x45, ..up },
            Head { code: 0, ..up },
            Head { root: 1, ..up },
            Head { from: 0, ..up },
            Head { total: 12, ..up },
            Head { total: 65_544, ..up },
            Head { kind: CollectiveKind::Cast, ..up },
        ] {
            assert!(!reads(wrong, 8), "{wrong:?}");
        }
        let leave = Head { kind: CollectiveKind::Leave, code: POST_LEFT as u8, number: 0, total: 0, ..up };
        assert!(reads(leave, 0) && !reads(leave, 4) && !reads(Head { code: 0, ..leave }, 0));
        assert!(reads(Head { kind: CollectiveKind::Ready, code: 0, ..leave }, 0));
        assert!(!reads(Head { kind: CollectiveKind::Start, code: 0, total: 4, ..leave }, 0));
        assert!(!reads(Head { kind: CollectiveKind::Taken, code: 0, total: 4, ..leave }, 0));
        assert!(Head::parse(&[0; HEAD_BYTES - 1]).is_none());
    }
}
