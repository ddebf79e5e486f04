//! Frames under way whose data still lies in the memory of the guest that sends it, so that it is copied once: from
//! there to where the receiver's card stores it.
//!
//! Data is lent for as long as one look at the pages carries things through (`World::settle`), while nobody else has
//! the world, and only where nobody looks at it or keeps it on the way: no tap, no fault of a link or of a card, no
//! turns of programs. A [`LentFrame`] cannot be cloned, and whoever wants to keep one makes it a frame like any other
//! ([`LentFrame::into_owned`]): the data is copied behind the head and the check words are written, which nobody has
//! computed before.
//!
//! The guest may store into its memory meanwhile, as it may while a card reads: what arrives of a byte is a value that
//! was there before the message had left it. The head is the card's own, and no code parses the data. No check word can
//! fail for it, for it is computed over the copy that it stands in, or not at all.

use std::ops::Range;
use std::sync::Arc;

use niclab_model::nic::frame::{LentHead, SharedFrame};
use niclab_model::nic::{Finish, FrameBytes, HostRange, HostRanges};

use crate::memory::{DmaMemory, MemoryError};

/// Memory of a guest that is lent to its card.
#[derive(Debug)]
pub struct Loan {
    memory: Arc<DmaMemory>,
    ranges: HostRanges,
    finish: Finish,
}

impl Loan {
    /// Lends these ranges to a card that finishes frames so. None where not all of it is the guest's memory.
    #[inline]
    pub fn new(memory: &Arc<DmaMemory>, ranges: &HostRanges, finish: Finish) -> Option<Self> {
        memory.check(ranges).ok()?;
        Some(Self { memory: Arc::clone(memory), ranges: ranges.clone(), finish })
    }

    /// The frame with this head, whose data it is. It stays in one place on its way: what describes it is long, and is
    /// handed on often.
    #[inline]
    pub fn behind(self, head: FrameBytes) -> Box<LentFrame> {
        let data_bytes = self.ranges.iter().map(|range| range.bytes as usize).sum();
        Box::new(LentFrame { head, data_bytes, loan: self })
    }
}

/// A frame whose data is lent. It is sound.
#[derive(Debug)]
pub struct LentFrame {
    head: FrameBytes,
    data_bytes: usize,
    loan: Loan,
}

impl LentFrame {
    /// Bytes of the frame.
    #[inline]
    pub fn frame_bytes(&self) -> usize {
        self.head.len() + self.data_bytes
    }

    /// What cards may see of it.
    #[inline]
    pub fn head(&self) -> LentHead<'_> {
        LentHead { bytes: &self.head, frame_bytes: self.frame_bytes() }
    }

    /// Stores bytes of its data into ranges of another guest's memory, as [`DmaMemory::store_bytes`] does.
    ///
    /// # Errors
    /// [`MemoryError`].
    #[inline]
    pub fn store(&self, bytes: &Range<usize>, to: &DmaMemory, into: &[HostRange]) -> Result<(), MemoryError> {
        // What a frame lacks is not stored, here as there.
        let is_data =
            self.head.len() <= bytes.start && bytes.start <= bytes.end && bytes.end <= self.frame_bytes();
        let part = if is_data { bytes.start - self.head.len()..bytes.end - self.head.len() } else { 0..0 };
        self.loan.memory.copy_bytes(&self.loan.ranges, part, to, into)
    }

    /// The same frame, whole, for whoever keeps it or looks at it.
    pub fn into_owned(self) -> SharedFrame {
        let Self { head, data_bytes, loan } = self;
        own(head, data_bytes, &loan)
    }

    /// A copy of the same frame, whole.
    pub fn to_owned_frame(&self) -> SharedFrame {
        own(self.head.clone(), self.data_bytes, &self.loan)
    }
}

/// The frame with this head and the lent data.
fn own(head: FrameBytes, data_bytes: usize, loan: &Loan) -> SharedFrame {
    let mut bytes = head;
    let whole = bytes.len() + data_bytes;
    // It was all there when it was lent, and a table is never changed.
    if loan.memory.load_bytes(&loan.ranges, &mut bytes).is_err() {
        bytes.resize(whole, 0);
    }
    (loan.finish)(&mut bytes);
    bytes.into()
}

/// A frame on its way.
#[derive(Debug)]
pub enum Carried {
    /// With its data.
    Whole(SharedFrame),
    /// Without.
    Lent(Box<LentFrame>),
}

impl Carried {
    /// Makes it one that can be kept.
    pub fn own(&mut self) {
        *self = match std::mem::replace(self, Self::Whole(SharedFrame::default())) {
            Self::Lent(frame) => Self::Whole(frame.into_owned()),
            whole => whole,
        };
    }
}
