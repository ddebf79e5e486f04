//! Frames in flight that borrow their payload from the sending guest's memory. So the shell copies the payload once:
//! from there to where the receiver's card stores it.
//!
//! The shell lends payload only within one [`run_until_idle`](super::dispatch::run_until_idle), while no other thread
//! has the nodes, and only if nothing on the way needs the payload: no observer, no fault of a link or a card, no
//! lockstep. A [`LentFrame`] cannot be cloned. To keep one, [`LentFrame::into_owned`] makes it an ordinary frame: it
//! copies the payload after the head, and computes the check words, which no code has computed before.
//!
//! The guest may store into the payload meanwhile, as it may while a card reads. Each byte that arrives has a value
//! that was in memory before the message left it. The head is the card's own, and no code parses the payload. No check
//! word can fail: it is computed over the copy that contains it, or not at all.

use std::ops::Range;
use std::sync::Arc;

use niclab_model::nic::frame::{LentHead, SharedFrame};
use niclab_model::nic::{Finish, FrameBytes, HostRange, HostRanges};

use crate::memory::{DmaMemory, MemoryError};

/// Memory of a guest from which frames may borrow.
#[derive(Debug)]
pub struct Loan {
    memory: Arc<DmaMemory>,
    ranges: HostRanges,
    finish: Finish,
}

impl Loan {
    /// Lends these ranges to a card that finishes frames with `finish`. None if a range is outside guest memory.
    #[inline]
    pub fn new(memory: &Arc<DmaMemory>, ranges: &HostRanges, finish: Finish) -> Option<Self> {
        memory.check(ranges).ok()?;
        Some(Self { memory: Arc::clone(memory), ranges: ranges.clone(), finish })
    }

    /// The frame with this head and this payload. It is boxed, because its description is long and moves often.
    #[inline]
    pub fn behind(self, head: FrameBytes) -> Box<LentFrame> {
        let data_bytes = self.ranges.iter().map(|range| range.bytes as usize).sum();
        Box::new(LentFrame { head, data_bytes, loan: self })
    }
}

/// A frame with borrowed payload. It is intact.
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

    /// The part that cards may read.
    #[inline]
    pub fn head(&self) -> LentHead<'_> {
        LentHead { bytes: &self.head, frame_bytes: self.frame_bytes() }
    }

    /// Stores bytes of its payload into ranges of another guest's memory, as [`DmaMemory::store_bytes`] does.
    ///
    /// # Errors
    /// [`MemoryError`].
    #[inline]
    pub fn store(&self, bytes: &Range<usize>, to: &DmaMemory, into: &[HostRange]) -> Result<(), MemoryError> {
        // As there, bytes that the frame lacks are not stored.
        let is_data =
            self.head.len() <= bytes.start && bytes.start <= bytes.end && bytes.end <= self.frame_bytes();
        let part = if is_data { bytes.start - self.head.len()..bytes.end - self.head.len() } else { 0..0 };
        self.loan.memory.copy_bytes(&self.loan.ranges, part, to, into)
    }

    /// The same frame with a payload of its own, so that it can be kept and read.
    pub fn into_owned(self) -> SharedFrame {
        let Self { head, data_bytes, loan } = self;
        own(head, data_bytes, &loan)
    }

    /// A copy of the frame, with a payload of its own.
    pub fn to_owned_frame(&self) -> SharedFrame {
        own(self.head.clone(), self.data_bytes, &self.loan)
    }
}

/// The frame with this head and a copy of the lent payload.
fn own(head: FrameBytes, data_bytes: usize, loan: &Loan) -> SharedFrame {
    let mut bytes = head;
    let whole = bytes.len() + data_bytes;
    // Cannot fail: the ranges were checked when they were lent, and a memory table never changes.
    if loan.memory.load_bytes(&loan.ranges, &mut bytes).is_err() {
        bytes.resize(whole, 0);
    }
    (loan.finish)(&mut bytes);
    bytes.into()
}

/// A frame in flight.
#[derive(Debug)]
pub enum Carried {
    /// It owns its payload.
    Whole(SharedFrame),
    /// It borrows its payload.
    Lent(Box<LentFrame>),
}

impl Carried {
    /// Copies a borrowed payload, so that the frame can be kept.
    pub fn own(&mut self) {
        *self = match std::mem::replace(self, Self::Whole(SharedFrame::default())) {
            Self::Lent(frame) => Self::Whole(frame.into_owned()),
            whole => whole,
        };
    }
}
