//! Memory for messages without a posted receive.
//!
//! It is divided into slabs. Each slab is an overflow entry that the NIC unlinks when another message might not fit. A
//! slab whose messages were all claimed is linked again.

use alloc::vec;
use alloc::vec::Vec;

use super::{Buffer, BufferPart, Part, Terms};

/// All slabs.
#[derive(Debug)]
pub(super) struct Overflow<B> {
    memory: BufferPart<B>,
    slabs: Vec<Slab>,
    slab_bytes: u64,
}

#[derive(Clone, Debug, Default)]
struct Slab {
    /// Unclaimed messages in it; negative while a claim was reported before its message.
    held: i64,
    is_unlinked: bool,
}

impl<B: Buffer> Overflow<B> {
    /// Divides memory, which must be large enough, into slabs. None is linked yet.
    pub(super) fn new(memory: BufferPart<B>, terms: &Terms) -> Self {
        let slabs = vec![Slab::default(); terms.slabs() as usize];
        Self { memory, slabs, slab_bytes: terms.slab_bytes() }
    }

    /// The memory of slab `slab`.
    pub(super) const fn part(&self, slab: u64) -> Part {
        self.memory.sub(slab * self.slab_bytes, self.slab_bytes)
    }

    /// An empty part, for commands without data.
    pub(super) const fn nothing(&self) -> Part {
        self.memory.sub(0, 0)
    }

    /// Adds `messages` to the unclaimed messages of a slab, or marks it unlinked. Returns whether the slab must be
    /// linked again, because it is unlinked and all its messages were claimed.
    pub(super) fn change(&mut self, slab: u64, messages: i64, is_unlinked: bool) -> bool {
        let Some(slab) = self.slabs.get_mut(slab as usize) else { return false };
        slab.held += messages;
        slab.is_unlinked |= is_unlinked;
        let is_free = slab.is_unlinked && slab.held == 0;
        slab.is_unlinked &= !is_free;
        is_free
    }

    /// Copies a message of `bytes` bytes from `offset` of the slab to the beginning of `to`, which has room for it.
    /// Returns `false`, without copying, if a faulty device reports a range beyond the slab.
    pub(super) fn copy(&self, slab: u64, offset: u64, to: &BufferPart<B>, bytes: u64) -> bool {
        let end = offset.checked_add(bytes);
        let is_there = slab < self.slabs.len() as u64 && end.is_some_and(|end| end <= self.slab_bytes);
        if is_there {
            let from = self.memory.sub(slab * self.slab_bytes + offset, bytes);
            self.memory.buffer.copy(from, &to.buffer, to.part);
        }
        is_there
    }
}
