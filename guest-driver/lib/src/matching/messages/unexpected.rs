//! Memory for messages that nobody has posted a receive for yet.
//!
//! It is cut into slabs, each an overflow entry that unlinks itself when another message might not fit. A slab whose
//! messages were all claimed is linked again. There are two more slabs than messages that can be unclaimed, so that
//! two are linked at any time, be it that each of the others is held up by one message alone.

use std::ops::Range;

use crate::Error;
use crate::matching::{Port, Region};

/// Messages of the largest size that a slab has room for.
const MESSAGES_PER_SLAB: usize = 2;

/// All slabs.
#[derive(Debug)]
pub(super) struct Overflow {
    region: Region,
    slabs: Vec<Slab>,
    slab_bytes: usize,
    /// On the way from a slab to the memory of a receive.
    scratch: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct Slab {
    /// Messages in it that nobody claimed; below zero while a claim was told before its message.
    held: i64,
    is_unlinked: bool,
}

impl Overflow {
    /// Room for `messages` of up to `eager_bytes`; nothing is linked yet.
    pub(super) fn allocate(port: &Port, eager_bytes: usize, messages: u64) -> Result<Self, Error> {
        let count = messages as usize + 2;
        let slab_bytes = eager_bytes.max(8) * MESSAGES_PER_SLAB;
        let region = port.allocate(slab_bytes.saturating_mul(count))?;
        let slabs = vec![Slab::default(); count];
        Ok(Self { region, slabs, slab_bytes, scratch: Vec::new() })
    }

    pub(super) fn region(&self) -> Region {
        self.region.clone()
    }

    /// How many there are.
    pub(super) fn slabs(&self) -> u64 {
        self.slabs.len() as u64
    }

    /// Where slab `slab` lies in the region.
    pub(super) fn range(&self, slab: u64) -> Range<usize> {
        let begin = slab as usize * self.slab_bytes;
        begin..begin + self.slab_bytes
    }

    /// A message was stored in it.
    pub(super) fn on_stored(&mut self, slab: u64) {
        if let Some(slab) = self.slabs.get_mut(slab as usize) {
            slab.held += 1;
        }
    }

    /// A message of it was claimed and copied. Whether the slab is to be linked again.
    pub(super) fn on_claimed(&mut self, slab: u64) -> bool {
        self.change(slab, |slab| slab.held -= 1)
    }

    /// It is full. Whether it is to be linked again, because all of it was claimed.
    pub(super) fn on_unlinked(&mut self, slab: u64) -> bool {
        self.change(slab, |slab| slab.is_unlinked = true)
    }

    fn change(&mut self, slab: u64, change: impl FnOnce(&mut Slab)) -> bool {
        let Some(slab) = self.slabs.get_mut(slab as usize) else { return false };
        change(slab);
        let is_free = slab.is_unlinked && slab.held == 0;
        if is_free {
            slab.is_unlinked = false;
        }
        is_free
    }

    /// Copies a message that begins at `offset` of the slab into `range` of `to`.
    pub(super) fn copy(
        &mut self,
        slab: u64,
        offset: u64,
        to: &Region,
        range: Range<usize>,
    ) -> Result<(), Error> {
        self.scratch.resize(range.len(), 0);
        let begin = self.range(slab).start.saturating_add(usize::try_from(offset).unwrap_or(usize::MAX));
        self.region.read(begin, &mut self.scratch)?;
        to.write(range.start, &self.scratch)
    }
}
