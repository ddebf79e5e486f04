//! Memory for messages that nobody has posted a receive for yet.
//!
//! It is cut into slabs, each an overflow entry that unlinks itself when another message might not fit. A slab whose
//! messages were all claimed is linked again.

use alloc::vec;
use alloc::vec::Vec;

use super::{Buffer, Part, Place, Terms};

/// All slabs.
#[derive(Debug)]
pub(super) struct Overflow<B> {
    place: Place<B>,
    slabs: Vec<Slab>,
    slab_bytes: u64,
}

#[derive(Clone, Debug, Default)]
struct Slab {
    /// Messages in it that nobody claimed; below zero while a claim was told before its message.
    held: i64,
    is_unlinked: bool,
}

impl<B: Buffer> Overflow<B> {
    /// Slabs in memory that is large enough; nothing is linked yet.
    pub(super) fn new(place: Place<B>, terms: &Terms) -> Self {
        let slabs = vec![Slab::default(); terms.slabs() as usize];
        Self { place, slabs, slab_bytes: terms.slab_bytes() }
    }

    /// Where slab `slab` lies.
    pub(super) const fn part(&self, slab: u64) -> Part {
        self.place.sub(slab * self.slab_bytes, self.slab_bytes)
    }

    /// No bytes, of commands that move none.
    pub(super) const fn nothing(&self) -> Part {
        self.place.sub(0, 0)
    }

    /// So many messages more were stored in it than were claimed and copied, or it is full. Whether it is to be linked
    /// again, because it is full and all of it was claimed.
    pub(super) fn change(&mut self, slab: u64, messages: i64, is_unlinked: bool) -> bool {
        let Some(slab) = self.slabs.get_mut(slab as usize) else { return false };
        slab.held += messages;
        slab.is_unlinked |= is_unlinked;
        let is_free = slab.is_unlinked && slab.held == 0;
        slab.is_unlinked &= !is_free;
        is_free
    }

    /// Copies a message of so many bytes, which begins at `offset` of the slab, to the begin of `to`, which has room
    /// for it. Not where a faulty device says that it lies beyond.
    pub(super) fn copy(&self, slab: u64, offset: u64, to: &Place<B>, bytes: u64) -> bool {
        let end = offset.checked_add(bytes);
        let is_there = slab < self.slabs.len() as u64 && end.is_some_and(|end| end <= self.slab_bytes);
        if is_there {
            let from = self.place.sub(slab * self.slab_bytes + offset, bytes);
            self.place.buffer.copy(from, &to.buffer, to.part);
        }
        is_there
    }
}
