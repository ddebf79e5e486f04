//! Block storage at the disk ports of an I/O card (section 2: intelligent storage devices).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use niclab_abi::grim::{CHANNEL_LOADED, CHANNEL_MAX_BULK_BYTES, CHANNEL_STORED, STORAGE_BLOCK_BYTES};

use super::{Arrival, Work};

const BLOCK_BYTES: usize = STORAGE_BLOCK_BYTES as usize;

/// Blocks. A block that was never stored contains zeros.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    blocks: u64,
    stored: BTreeMap<u64, [u8; BLOCK_BYTES]>,
}

impl Storage {
    pub(super) const fn new(bytes: u64) -> Self {
        Self { blocks: bytes / BLOCK_BYTES as u64, stored: BTreeMap::new() }
    }

    /// Whether these blocks exist from `first` on, and fit into one message.
    const fn has(&self, first: u64, count: u64) -> bool {
        count * BLOCK_BYTES as u64 <= CHANNEL_MAX_BULK_BYTES && first + count <= self.blocks
    }

    /// Stores a message's payload. The rest of a partly filled block becomes zero.
    pub(super) fn store(&mut self, message: &Arrival, work: &mut Work) {
        let [first, second, third, fourth] = message.arguments;
        let mut count = message.payload.len().div_ceil(BLOCK_BYTES) as u32;
        if self.has(first.into(), count.into()) {
            for (number, part) in (u64::from(first)..).zip(message.payload.chunks(BLOCK_BYTES)) {
                let mut block = [0; BLOCK_BYTES];
                block[..part.len()].copy_from_slice(part);
                self.stored.insert(number, block);
            }
            work.go_through(message.payload.len());
        } else {
            count = 0;
        }
        work.answer(message, CHANNEL_STORED, [count, second, third, fourth], Vec::new());
    }

    /// Sends blocks.
    pub(super) fn load(&self, message: &Arrival, work: &mut Work) {
        let [first, count, third, fourth] = message.arguments;
        let mut payload = Vec::new();
        let mut sent = 0;
        if self.has(first.into(), count.into()) {
            sent = count;
            for number in u64::from(first)..u64::from(first) + u64::from(count) {
                payload.extend(self.stored.get(&number).unwrap_or(&[0; BLOCK_BYTES]));
            }
            work.go_through(payload.len());
        }
        work.answer(message, CHANNEL_LOADED, [first, sent, third, fourth], payload);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::nic::Address;

    fn asks(arguments: [u32; 4], payload: Vec<u8>) -> Arrival {
        let from = Address { node: 3, port: 2 };
        Arrival { from, handler: 0, arguments, payload, interrupt: false }
    }

    fn answer(act: impl FnOnce(&mut Work)) -> ([u32; 4], Vec<u8>) {
        let mut work = Work::default();
        act(&mut work);
        let sending = work.sendings.pop().unwrap();
        assert_eq!((sending.to, work.sendings.len()), (Address { node: 3, port: 2 }, 0));
        (sending.arguments, sending.payload)
    }

    #[test]
    fn stored_blocks_are_loaded_and_other_blocks_are_zero() {
        let mut storage = Storage::new(4 * 512);
        let stored = answer(|work| storage.store(&asks([1, 7, 8, 9], vec![5; 600]), work));
        assert_eq!(stored, ([2, 7, 8, 9], Vec::new()));
        let (arguments, blocks) = answer(|work| storage.load(&asks([0, 4, 8, 9], Vec::new()), work));
        assert_eq!(arguments, [0, 4, 8, 9]);
        let expected = [vec![0; 512], vec![5; 600], vec![0; 424 + 512]].concat();
        assert_eq!(blocks, expected);
    }

    #[test]
    fn blocks_out_of_range_are_neither_stored_nor_loaded() {
        let mut storage = Storage::new(4 * 512);
        for (first, bytes) in [(4, 1), (3, 513), (u32::MAX, 512), (0, 49 << 10)] {
            let request = asks([first, 1, 2, 3], vec![1; bytes]);
            assert_eq!(answer(|work| storage.store(&request, work)).0, [0, 1, 2, 3], "{first}, {bytes}");
        }
        for (first, count) in [(4, 1), (0, 5), (u32::MAX, u32::MAX), (0, u32::MAX)] {
            let (arguments, blocks) =
                answer(|work| storage.load(&asks([first, count, 2, 3], Vec::new()), work));
            assert_eq!((arguments, blocks.len()), ([first, 0, 2, 3], 0));
        }
        assert!(storage.stored.is_empty());
    }
}
