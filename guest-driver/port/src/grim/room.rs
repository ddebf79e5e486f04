//! The room in a channel's payload region. It is allocated like a ring, contiguously for each message, and is free
//! again when the message has left.

use alloc::collections::VecDeque;

use crate::Reports;

/// Word of the status line with the number of messages that have left.
const STATUS_SENT: usize = 3;
/// Payload begins on whole cache lines.
const ALIGNMENT: u64 = 64;

/// The room, as far as the program knows.
#[derive(Clone, Debug)]
pub struct PayloadRoom {
    bytes: u64,
    /// Earliest offset of the next message's payload.
    head: u64,
    /// Messages with payload that have not left, as far as the program knows: number, begin and end.
    taken: VecDeque<(u64, u64, u64)>,
    /// Number of messages posted.
    launched: u64,
}

impl PayloadRoom {
    /// An empty payload region of `bytes` bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self { bytes, head: 0, taken: VecDeque::new(), launched: 0 }
    }

    /// Bytes of the region.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether no message in flight has payload, as far as the program knows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// Whether all messages have left, according to the device.
    #[must_use]
    pub fn has_all_left(&self, page: &impl Reports) -> bool {
        page.status_word(STATUS_SENT) >= self.launched
    }

    /// The offset for a payload of `bytes` bytes, if all messages up to number `left` have left.
    fn place(&self, bytes: u64, left: u64) -> Option<u64> {
        let mut taken = self.taken.iter().skip_while(|(number, ..)| *number < left);
        let Some(&(_, tail, _)) = taken.next() else { return (bytes <= self.bytes).then_some(0) };
        let behind = |begin: u64, end: u64| begin.checked_add(bytes).is_some_and(|last| last <= end);
        if self.head > tail {
            // Free: from the head to the end, and from the beginning to the tail.
            if behind(self.head, self.bytes) {
                return Some(self.head);
            }
            return (bytes < tail).then_some(0);
        }
        // Never up to the tail itself: the region would then appear empty.
        (self.head + bytes < tail).then_some(self.head)
    }

    /// Whether a message with `bytes` bytes of payload has room, according to the device.
    #[must_use]
    pub fn has_room(&self, bytes: u64, page: &impl Reports) -> bool {
        bytes == 0 || self.place(bytes, page.status_word(STATUS_SENT)).is_some()
    }

    /// Counts a message without payload.
    #[inline]
    pub const fn pass(&mut self) {
        self.launched += 1;
    }

    /// Takes room for the payload of the next message; `None` if there is none yet. Every message is counted, also
    /// without payload.
    pub fn take(&mut self, bytes: u64, page: &impl Reports) -> Option<u64> {
        let left = page.status_word(STATUS_SENT);
        // The acquire orders the payload's stores after the device has finished reading the old payload.
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
        /// No byte belongs to two messages in flight, and an empty region has room for every payload up to its length.
        #[test]
        fn messages_in_flight_share_no_byte(
            cells in 1..20_u64,
            steps in prop::collection::vec((0..700_u64, 0..3_u64), 0..200),
        ) {
            let bytes = cells * ALIGNMENT;
            let mut room = PayloadRoom::new(bytes);
            let mut line = Line(0);
            let mut in_flight: Vec<(u64, u64, u64)> = Vec::new();
            let mut launched = 0;
            for (wanted, leaving) in steps {
                line.0 = (line.0 + leaving).min(launched);
                in_flight.retain(|(number, ..)| *number >= line.0);
                let has_room = room.has_room(wanted, &line);
                let found = room.take(wanted, &line);
                prop_assert_eq!(found.is_some(), has_room);
                prop_assert!(has_room || wanted > bytes || in_flight.iter().any(|(_, _, bytes)| *bytes > 0));
                let Some(begin) = found else { continue };
                prop_assert!(begin + wanted <= bytes);
                for (_, other, length) in in_flight.iter().filter(|(_, _, length)| *length > 0 && wanted > 0) {
                    prop_assert!(begin + wanted <= *other || other + length <= begin, "{:?}", room);
                }
                in_flight.push((launched, begin, wanted));
                launched += 1;
            }
        }
    }
}
