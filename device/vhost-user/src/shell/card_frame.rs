//! Frames of cards as the shell carries them. A frame owns its bytes, or borrows its payload from the sending guest's
//! memory. So the shell copies the payload once: from there to where the receiver's card stores it.
//!
//! A frame may borrow only within one [`run_until_idle`](super::dispatch::run_until_idle), while no other thread has
//! the nodes, and only if nothing on the way needs the payload: no observer, no fault of a link or a card, no lockstep.
//! A [`BorrowedFrame`] cannot be cloned. To keep one, [`CardFrame::into_owned`] makes it an ordinary frame: it copies
//! the payload after the head, and computes the check words, which no code has computed before.
//!
//! The guest may store into the payload meanwhile, as it may while a card reads. Each byte that arrives has a value
//! that was in memory before the message left it. The head is the card's own, and no code parses the payload. No check
//! word can fail: it is computed over the copy that contains it, or not at all.

use std::ops::Range;
use std::sync::Arc;

use niclab_model::fabric::ethernet::FrameClass;
use niclab_model::fabric::frame_head::FrameHead;
use niclab_model::nic::frame::SharedFrame;
use niclab_model::nic::{Finish, FrameBytes, HostRange, HostRanges};
use niclab_model::platform::trace_tag::TraceTag;
use niclab_model::time::Passage;

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
    pub fn behind(self, head: FrameBytes) -> CardFrame {
        let data_bytes = self.ranges.iter().map(|range| range.bytes as usize).sum();
        CardFrame::Borrowed(Box::new(BorrowedFrame { head, data_bytes, loan: self }))
    }
}

/// A frame with borrowed payload. It is intact.
#[derive(Debug)]
pub struct BorrowedFrame {
    head: FrameBytes,
    data_bytes: usize,
    loan: Loan,
}

impl BorrowedFrame {
    /// The part that cards may read.
    #[inline]
    pub fn head(&self) -> FrameHead<'_> {
        FrameHead { bytes: &self.head, frame_bytes: self.head.len() + self.data_bytes }
    }

    /// Stores bytes of its payload into ranges of another guest's memory, as [`DmaMemory::store_bytes`] does.
    ///
    /// # Errors
    /// [`MemoryError`].
    #[inline]
    pub fn store(&self, bytes: &Range<usize>, to: &DmaMemory, into: &[HostRange]) -> Result<(), MemoryError> {
        // As there, bytes that the frame lacks are not stored.
        let (head, all) = (self.head.len(), self.head.len() + self.data_bytes);
        let is_data = head <= bytes.start && bytes.start <= bytes.end && bytes.end <= all;
        let part = if is_data { bytes.start - head..bytes.end - head } else { 0..0 };
        self.loan.memory.copy_bytes(&self.loan.ranges, part, to, into)
    }

    /// The same frame with a copy of the payload.
    fn to_owned_frame(&self) -> SharedFrame {
        let Self { head, data_bytes, loan } = self;
        let mut bytes = head.clone();
        // Cannot fail: the ranges were checked when they were lent, and a memory table never changes.
        if loan.memory.load_bytes(&loan.ranges, &mut bytes).is_err() {
            bytes.resize(head.len() + data_bytes, 0);
        }
        (loan.finish)(&mut bytes);
        bytes.into()
    }
}

/// A frame of a card.
#[derive(Debug)]
pub enum CardFrame {
    /// It owns its payload.
    Owned(SharedFrame),
    /// It borrows its payload.
    Borrowed(Box<BorrowedFrame>),
}

impl CardFrame {
    /// What the network needs of it.
    #[inline]
    pub fn head(&self) -> FrameHead<'_> {
        match self {
            Self::Owned(frame) => FrameHead::from(&**frame),
            Self::Borrowed(frame) => frame.head(),
        }
    }

    /// A frame that can be kept and read. Copies a borrowed payload.
    #[inline]
    pub fn into_owned(self) -> SharedFrame {
        match self {
            Self::Owned(frame) => frame,
            Self::Borrowed(frame) => frame.to_owned_frame(),
        }
    }

    /// As [`CardFrame::into_owned`].
    #[inline]
    pub fn to_owned_frame(&self) -> SharedFrame {
        match self {
            Self::Owned(frame) => frame.clone(),
            Self::Borrowed(frame) => frame.to_owned_frame(),
        }
    }
}

/// A frame that a card sends.
#[derive(Debug)]
pub struct SentFrame {
    /// When it is ready for the link.
    pub ready: Passage,
    /// The frame.
    pub frame: CardFrame,
    /// The message that it carries.
    pub message: Option<TraceTag>,
    /// Its frame class.
    pub class: FrameClass,
}
