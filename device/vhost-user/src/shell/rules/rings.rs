//! Checks descriptors in rings of guest memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use niclab_abi::rings::{
    OP_RING_START, OP_RING_STOP, RING_CHAINED, RING_END, RING_ERROR, RING_OWN, RING_STATUS_ADDRESS,
    RING_STATUS_LENGTH, RING_STATUS_SEGMENT, RING_TRANSMIT, RingName, RingStart,
};
use niclab_model::nic::HostRange;

use super::book::{Book, Operation, ring_name};
use super::requests::Asked;
use crate::memory::DmaMemory;

/// Bytes of a descriptor's first two words: flags, and addresses of its buffers.
const DESCRIPTOR_BYTES: u64 = 16;
/// Max known descriptor addresses of a ring. (The attack: a chain through all of memory.)
const MAX_KNOWN: usize = 4096;

/// A ring that the card walks.
#[derive(Debug)]
struct Ring {
    first: u64,
    skip_bytes: u64,
    /// The card has accepted `OP_RING_START`. It reads the ring before it replies.
    is_begun: bool,
    /// Addresses of the descriptors that the walk has shown so far.
    known: BTreeSet<u64>,
    /// The first two words of each descriptor that the card holds, as the card read them.
    taken: BTreeMap<u64, [u64; 2]>,
}

/// The rings of a card.
#[derive(Debug, Default)]
pub struct Rings {
    rings: BTreeMap<u32, Ring>,
}

impl Rings {
    /// The card may start a ring. A ring that it walks already stays as it is.
    pub fn on_start(&mut self, start: &RingStart) {
        self.rings.entry(start.ring).or_insert_with(|| Ring {
            first: start.first,
            skip_bytes: start.skip_bytes.into(),
            is_begun: false,
            known: [start.first].into(),
            taken: BTreeMap::new(),
        });
    }

    /// The card has replied to a request, which need not concern a ring. `is_accepted`: it accepted the request.
    pub fn on_answered(&mut self, asked: &Asked, is_accepted: bool) {
        match asked.operation() {
            OP_RING_START => {
                let Some(start) = asked.body::<RingStart>() else { return };
                if let Some(ring) = self.rings.get_mut(&start.ring).filter(|_| is_accepted) {
                    ring.is_begun = true;
                }
                self.rings.retain(|_, ring| ring.is_begun);
            }
            OP_RING_STOP if is_accepted => {
                if let Some(name) = asked.body::<RingName>() {
                    self.rings.remove(&name.ring);
                }
            }
            _ => {}
        }
    }

    /// Number and first address of the ring that this request starts.
    pub fn begins(&self, asked: &Asked) -> Option<(u32, u64)> {
        let start = (asked.operation() == OP_RING_START).then(|| asked.body::<RingStart>()).flatten()?;
        Some((start.ring, start.first))
    }

    /// The card has read these bytes, which may be a descriptor. A descriptor's first word is the first range.
    #[inline]
    pub fn on_read(&mut self, ranges: &[HostRange], bytes: &[u8], book: &mut Book) {
        let Some(HostRange { address, bytes: 8 }) = ranges.first() else { return };
        for (number, ring) in self.rings.iter_mut().filter(|(_, ring)| ring.known.contains(address)) {
            let Some(words) = bytes.first_chunk::<{ DESCRIPTOR_BYTES as usize }>() else { continue };
            let (words, _) = words.as_chunks::<8>();
            let [Some(first), Some(second)] =
                [0, 1].map(|word| words.get(word).copied().map(u64::from_le_bytes))
            else {
                continue;
            };
            if first & RING_OWN == 0 {
                continue;
            }
            book.note(Operation::Descriptor { ring: *number, address: *address });
            let next = if first & RING_END != 0 {
                ring.first
            } else if first & RING_CHAINED != 0 {
                second >> 32
            } else {
                address.saturating_add(DESCRIPTOR_BYTES + ring.skip_bytes)
            };
            if ring.known.len() < MAX_KNOWN {
                ring.known.insert(next);
            }
            ring.taken.insert(*address, [first, second]);
        }
    }

    /// The card is about to store these words, which may return a descriptor.
    #[inline]
    pub fn on_write(&mut self, memory: &DmaMemory, address: u64, words: &[u64], book: &mut Book) {
        let [word] = words else { return };
        for (number, ring) in &mut self.rings {
            let Some(was) = ring.taken.remove(&address) else { continue };
            let status = *word as u32;
            book.note(Operation::GivenBack { ring: *number, address, status });
            let current = memory.words::<AtomicU64>(address, 2);
            let load = |index| current.ok()?.load(index, Ordering::Acquire);
            if let (Some(first), Some(second)) = (load(0), load(1)) {
                let is = [first, second];
                if is != was {
                    let ([was_0, was_1], [is_0, is_1], name) = (was, is, ring_name(*number));
                    let seen = format_args!(
                        "the {name} descriptor at {address:#x} changed while the card held it, from \
                         {was_0:#x} {was_1:#x} to {is_0:#x} {is_1:#x}"
                    );
                    book.broken("descriptor-owned", None, seen);
                }
            }
            let reason = status & (RING_STATUS_LENGTH | RING_STATUS_ADDRESS | RING_STATUS_SEGMENT);
            if *number == RING_TRANSMIT && status & RING_ERROR != 0 && reason != 0 {
                let seen = format_args!(
                    "the card returns the transmit descriptor at {address:#x} with status {status:#x}"
                );
                book.broken("descriptor-sound", None, seen);
            }
        }
    }
}
