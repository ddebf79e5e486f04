//! The room of a channel's payload region: taken in a ring, each message's in one piece, and free again when the
//! message has left.

use alloc::collections::VecDeque;

use crate::Reports;

/// Word of the status line that counts the messages which have left.
const STATUS_SENT: usize = 3;
/// Payload begins on whole cache lines.
const ALIGNMENT: u64 = 64;

/// The room that a program knows of.
#[derive(Clone, Debug)]
pub struct PayloadRoom {
    bytes: u64,
    /// Where the next message's payload begins at the soonest.
    head: u64,
    /// Messages with payload that have not left, as far as this program knows: number, begin and end.
    taken: VecDeque<(u64, u64, u64)>,
    /// Messages launched.
    launched: u64,
}

impl PayloadRoom {
    /// All of a payload region of so many bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self { bytes, head: 0, taken: VecDeque::new(), launched: 0 }
    }

    /// Bytes of the region.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether no message that is under way has payload, as far as this program knows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// Whether all messages have left, for all that the device has said.
    #[must_use]
    pub fn has_all_left(&self, page: &impl Reports) -> bool {
        page.status_word(STATUS_SENT) >= self.launched
    }

    /// Where a payload of so many bytes has room now, if all messages up to the `left`-th have left.
    fn place(&self, bytes: u64, left: u64) -> Option<u64> {
        let mut taken = self.taken.iter().skip_while(|(number, ..)| *number < left);
        let Some(&(_, tail, _)) = taken.next() else { return (bytes <= self.bytes).then_some(0) };
        let behind = |begin: u64, end: u64| begin.checked_add(bytes).is_some_and(|last| last <= end);
        if self.head > tail {
            // Free: from the head to the end, and from the begin to the tail.
            if behind(self.head, self.bytes) {
                return Some(self.head);
            }
            return (bytes < tail).then_some(0);
        }
        // Never quite up to the tail: then the region would look empty.
        (self.head + bytes < tail).then_some(self.head)
    }

    /// Whether a message with so much payload has room, for all that the device has said.
    #[must_use]
    pub fn has_room(&self, bytes: u64, page: &impl Reports) -> bool {
        bytes == 0 || self.place(bytes, page.status_word(STATUS_SENT)).is_some()
    }

    /// The next message has no payload: it is counted.
    #[inline]
    pub const fn pass(&mut self) {
        self.launched += 1;
    }

    /// Takes room for the payload of the next message; none where there is none yet. Every message is counted, those
    /// without payload too.
    pub fn take(&mut self, bytes: u64, page: &impl Reports) -> Option<u64> {
        let left = page.status_word(STATUS_SENT);
        // What is stored there now is not stored before the device is known to be done with it.
        page.acquire();
        while self.taken.front().is_some_and(|(number, ..)| *number < left) {
            self.taken.pop_front();
        }
        let begin = if bytes == 0 { 0 } else { self.place(bytes, left)? };
        if bytes > 0 {
            let end = (begin + bytes).next_multiple_of(ALIGNMENT);
            self.head = end;
            self.taken.push_back((self.launched, begin, end));
        }
        self.launched += 1;
        Some(begin)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;

    struct Line(u64);

    impl Reports for Line {
        fn status_word(&self, index: usize) -> u64 {
            if index == STATUS_SENT { self.0 } else { u64::MAX }
        }
    }

    proptest! {
        /// No byte is that of two messages under way, and an empty region has room for all that fits into it.
        #[test]
        fn no_byte_is_two_messages(
            cells in 1..20_u64,
            steps in prop::collection::vec((0..700_u64, 0..3_u64), 0..200),
        ) {
            let bytes = cells * ALIGNMENT;
            let mut room = PayloadRoom::new(bytes);
            let mut line = Line(0);
            let mut under_way: Vec<(u64, u64, u64)> = Vec::new();
            let mut launched = 0;
            for (wanted, leaving) in steps {
                line.0 = (line.0 + leaving).min(launched);
                under_way.retain(|(number, ..)| *number >= line.0);
                let has_room = room.has_room(wanted, &line);
                let found = room.take(wanted, &line);
                prop_assert_eq!(found.is_some(), has_room);
                prop_assert!(has_room || wanted > bytes || under_way.iter().any(|(_, _, bytes)| *bytes > 0));
                let Some(begin) = found else { continue };
                prop_assert!(begin + wanted <= bytes);
                for (_, other, length) in under_way.iter().filter(|(_, _, length)| *length > 0 && wanted > 0) {
                    prop_assert!(begin + wanted <= *other || other + length <= begin, "{:?}", room);
                }
                under_way.push((launched, begin, wanted));
                launched += 1;
            }
        }
    }
}
