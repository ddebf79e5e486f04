//! Allocates an endpoint's payload region. Each message gets one contiguous piece. Pieces return in any order, because
//! the program releases messages in the order in which they completed, not in the order in which they began.

use alloc::collections::BTreeMap;

/// Payload begins at multiples of a cache line of the paper's time. Ours: a cache line.
const ALIGNMENT: u64 = 64;

/// A region of fixed length, and its allocated pieces.
#[derive(Clone, Debug)]
pub(super) struct PayloadRoom {
    bytes: u64,
    /// End of each piece, by its start. At most one piece for each message of a receive queue.
    pieces: BTreeMap<u64, u64>,
    taken: u64,
    /// End of the last allocated piece. The next one follows it if there is room, as in a ring.
    next: u64,
}

impl PayloadRoom {
    /// An empty region of `bytes` bytes, a multiple of 64 and not zero.
    pub(super) const fn new(bytes: u64) -> Self {
        Self { bytes, pieces: BTreeMap::new(), taken: 0, next: 0 }
    }

    /// Whether a message of `bytes` bytes fits into the empty region.
    pub(super) const fn can_hold(&self, bytes: u64) -> bool {
        bytes <= self.bytes
    }

    /// Whether no piece is allocated.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Start of free space for a piece of `bytes` bytes, a multiple of the alignment.
    fn find(&self, bytes: u64) -> Option<u64> {
        if self.taken + bytes > self.bytes {
            return None;
        }
        let end = self.pieces.range(self.next..).next().map_or(self.bytes, |(begin, _)| *begin);
        if self.next + bytes <= end {
            return Some(self.next);
        }
        // The search continues in gaps between pieces, and at the start of the region.
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

    /// Allocates room for a message of at least one byte. Returns its start; none if there is no room.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let begin = self.find(bytes)?;
        self.pieces.insert(begin, begin + bytes);
        self.taken += bytes;
        self.next = begin + bytes;
        Some(begin)
    }

    /// Frees the piece that begins here.
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
        /// Pieces lie inside the region and do not overlap. A fitting gap is found, and all room is freed in the end.
        #[test]
        fn pieces_do_not_overlap_and_all_room_returns(
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
                let is_free = |begin: u64| {
                    taken.iter().all(|(other, length)| begin + wanted <= *other || other + length <= begin)
                };
                let mut begins = (0..cells).map(|cell| cell * ALIGNMENT);
                let has_gap = begins.any(|begin| begin + wanted <= bytes && is_free(begin));
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
