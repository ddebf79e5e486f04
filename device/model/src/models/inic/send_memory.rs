//! The card's memory for unacknowledged packets, from which it retransmits them.

use alloc::collections::VecDeque;

use crate::models::inic::per_node::PerNode;
use crate::nic::frame::SharedFrame;

/// Bytes of this memory. A node that does not answer occupies up to the outstanding limit.
/// Assumed: as in cards of that time; the paper gives no size.
const MEMORY_BYTES: usize = 4 << 20;

/// Packets to a node, in the order of their numbers.
#[derive(Debug, Default)]
struct Kept {
    /// The number of the first packet.
    oldest: u32,
    /// None for a packet without data, or one acknowledged before an older packet. Length at most the outstanding
    /// limit.
    frames: VecDeque<Option<SharedFrame>>,
}

impl Kept {
    const fn place(&self, number: u32) -> usize {
        number.wrapping_sub(self.oldest) as usize
    }
}

/// Unacknowledged packets.
#[derive(Debug, Default)]
pub(super) struct SendMemory {
    kept: PerNode<Kept>,
    bytes: usize,
}

impl SendMemory {
    /// Whether there is room for another packet.
    pub(super) const fn has_room(&self, bytes: usize) -> bool {
        self.bytes + bytes <= MEMORY_BYTES
    }

    /// Bytes of all packets.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Stores a packet until it is acknowledged. Its number must follow those of the stored packets to its node.
    pub(super) fn keep(&mut self, node: u16, number: u32, frame: &SharedFrame) {
        let kept = self.kept.of(node);
        if kept.frames.is_empty() {
            kept.oldest = number;
        }
        let place = kept.place(number);
        // First transmissions are in order of their unique numbers.
        debug_assert!(
            place >= kept.frames.len(),
            "packet {number} to node {node} is already stored, or out of order"
        );
        while kept.frames.len() < place {
            kept.frames.push_back(None);
        }
        self.bytes += frame.len();
        kept.frames.push_back(Some(frame.clone()));
    }

    /// A stored packet.
    pub(super) fn get(&self, node: u16, number: u32) -> Option<&SharedFrame> {
        let kept = self.kept.get(node)?;
        kept.frames.get(kept.place(number))?.as_ref()
    }

    /// Frees the memory of a packet.
    pub(super) fn free(&mut self, node: u16, number: u32) {
        let Some(kept) = self.kept.known(node) else { return };
        let place = kept.place(number);
        let Some(frame) = kept.frames.get_mut(place).and_then(Option::take) else { return };
        self.bytes = self.bytes.saturating_sub(frame.len());
        while kept.frames.front().is_some_and(Option::is_none) {
            kept.frames.pop_front();
            kept.oldest = kept.oldest.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compared with a map of all numbers: packets are freed in any order, and numbers wrap.
        #[test]
        fn packets_are_stored_until_they_are_freed(
            first: u32,
            steps in prop::collection::vec((0_u16..3, 0_u32..3, 0_usize..40, 0_usize..200), 0..200),
        ) {
            let (mut memory, mut plain) = (SendMemory::default(), BTreeMap::new());
            let mut next = [first; 3];
            for (node, skipped, freed, bytes) in steps {
                let number = &mut next[usize::from(node)];
                *number = number.wrapping_add(skipped);
                let frame = SharedFrame::from(&*vec![7; bytes]);
                memory.keep(node, *number, &frame);
                plain.insert((node, *number), frame);
                *number = number.wrapping_add(1);
                if let Some(&(node, number)) = plain.keys().nth(freed) {
                    plain.remove(&(node, number));
                    memory.free(node, number);
                    memory.free(node, number);
                }
                prop_assert!(plain.iter().all(|((node, number), frame)| memory.get(*node, *number) == Some(frame)));
                let unknown = (0..3)
                    .all(|node| plain.contains_key(&(node, next[0])) || memory.get(node, next[0]).is_none());
                prop_assert!(unknown);
                prop_assert_eq!(memory.bytes(), plain.values().map(|frame| frame.len()).sum::<usize>());
            }
        }
    }

    #[test]
    fn memory_accepts_exactly_its_free_bytes() {
        let mut memory = SendMemory::default();
        let frame = SharedFrame::from(&*vec![7; 1 << 20]);
        (0..3).for_each(|number| memory.keep(1, number, &frame));
        assert!(memory.has_room(1 << 20) && !memory.has_room((1 << 20) + 1));
        memory.free(1, 1);
        assert!(memory.has_room(2 << 20) && !memory.has_room((2 << 20) + 1));
    }
}
