//! The room of an endpoint's payload region: each message's in one piece, given back in any order, for the program
//! releases messages in the order in which they became whole and not in that in which they began.

use alloc::collections::BTreeMap;

/// Payload begins on whole cache lines of the time. Ours: a cache line.
const ALIGNMENT: u64 = 64;

/// A region of so many bytes, and what is taken of it.
#[derive(Clone, Debug)]
pub(super) struct PayloadRoom {
    bytes: u64,
    /// End of each piece, by where it begins. There are as many as messages of a receive queue at most.
    pieces: BTreeMap<u64, u64>,
    taken: u64,
    /// Where the piece taken last ends: the next one is behind it where there is room, as in a ring.
    next: u64,
}

impl PayloadRoom {
    /// All of a region; `bytes` is a multiple of 64, and not zero.
    pub(super) const fn new(bytes: u64) -> Self {
        Self { bytes, pieces: BTreeMap::new(), taken: 0, next: 0 }
    }

    /// Whether a message of so many bytes can ever have room.
    pub(super) const fn can_hold(&self, bytes: u64) -> bool {
        bytes <= self.bytes
    }

    /// Whether nothing is taken.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Where a piece of so many bytes, a multiple of the alignment, has room.
    fn find(&self, bytes: u64) -> Option<u64> {
        if self.taken + bytes > self.bytes {
            return None;
        }
        let end = self.pieces.range(self.next..).next().map_or(self.bytes, |(begin, _)| *begin);
        if self.next + bytes <= end {
            return Some(self.next);
        }
        // The room is in pieces, or at the begin.
        let mut from = 0;
        for (begin, end) in &self.pieces {
            if from + bytes <= *begin {
                return Some(from);
            }
            from = *end;
        }
        (from + bytes <= self.bytes).then_some(from)
    }

    /// Whether there is room for a message now.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.find(bytes.next_multiple_of(ALIGNMENT)).is_some()
    }

    /// Takes room for a message of at least a byte. Where it begins; none where there is no room.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let begin = self.find(bytes)?;
        self.pieces.insert(begin, begin + bytes);
        self.taken += bytes;
        self.next = begin + bytes;
        Some(begin)
    }

    /// Gives the piece back that begins here.
    pub(super) fn give_back(&mut self, begin: u64) {
        if let Some(end) = self.pieces.remove(&begin) {
            self.taken -= end - begin;
        }
        if self.pieces.is_empty() {
            self.next = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Pieces never overlap, lie inside, are found where there is a gap, and all room comes back.
        #[test]
        fn no_byte_is_two_messages(
            cells in 1..40_u64,
            steps in prop::collection::vec((1..900_u64, any::<bool>(), any::<prop::sample::Index>()), 0..200),
        ) {
            let bytes = cells * ALIGNMENT;
            let mut room = PayloadRoom::new(bytes);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (wanted, gives, which) in steps {
                if gives && !taken.is_empty() {
                    let (begin, _) = taken.swap_remove(which.index(taken.len()));
                    room.give_back(begin);
                    room.give_back(begin);
                    continue;
                }
                let is_free = |begin: u64| taken.iter().all(|(other, length)| begin + wanted <= *other || other + length <= begin);
                let has_gap = (0..cells).map(|cell| cell * ALIGNMENT).any(|begin| begin + wanted <= bytes && is_free(begin));
                prop_assert_eq!(room.has_room(wanted), has_gap);
                let found = room.take(wanted);
                prop_assert_eq!(found.is_some(), has_gap);
                let Some(begin) = found else { continue };
                prop_assert!(begin + wanted <= bytes && begin.is_multiple_of(ALIGNMENT) && is_free(begin));
                taken.push((begin, wanted));
            }
            taken.into_iter().for_each(|(begin, _)| room.give_back(begin));
            prop_assert!(room.is_empty() && room.has_room(bytes));
        }
    }
}
