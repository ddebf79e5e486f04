//! Pushing a message: its header and first segment, then segments of doubling length (section 5.2).

use super::message::{Outgoing, Slot};
use crate::{BadValue, Page, Requester};

/// How payload is divided into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    first: u64,
}

impl Segments {
    /// One segment: the card begins to send when the whole message is stored.
    pub const WHOLE: Self = Self { first: 0 };

    /// `first` bytes in the first segment; then each segment doubles the total. Zero: one segment.
    #[must_use]
    pub const fn from(first: u64) -> Self {
        Self { first }
    }

    /// The total bytes pushed after the segment that follows `pushed` bytes.
    const fn next(self, pushed: u64, bytes: u64) -> u64 {
        let more = match (self.first, pushed) {
            (0, _) => bytes,
            (first, 0) => first,
            (_, pushed) => pushed,
        };
        // Whole words, except at the payload's end.
        let end = pushed.saturating_add(more).next_multiple_of(8);
        if end < bytes { end } else { bytes }
    }
}

/// A message that is being pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushing {
    message: Outgoing,
    segments: Segments,
    offset: u64,
    pushed: u64,
    is_begun: bool,
}

impl Pushing {
    /// A message whose payload begins at the start of the payload region.
    ///
    /// # Errors
    /// [`BadValue`]: the message is invalid.
    pub fn new(message: Outgoing, segments: Segments) -> Result<Self, BadValue> {
        message.check()?;
        Ok(Self { message, segments, offset: 0, pushed: 0, is_begun: false })
    }

    /// Places its payload at `offset` of the payload region.
    #[must_use]
    pub const fn at(self, offset: u64) -> Self {
        Self { offset, ..self }
    }

    /// The next segment: its place in the payload region, and its range of the payload. The range must be stored before
    /// [`Pushing::launch`].
    #[must_use]
    pub const fn next(&self) -> (u64, core::ops::Range<u64>) {
        let end = self.segments.next(self.pushed, self.message.payload_bytes());
        (self.offset + self.pushed, self.pushed..end)
    }

    /// Posts the segment from the next slot of the page, which must be free. Returns the number of the post.
    pub fn launch(&mut self, requester: &mut Requester, page: &mut impl Page, received: u64) -> u64 {
        let (_, bytes) = self.next();
        self.pushed = bytes.end;
        let begun = core::mem::replace(&mut self.is_begun, true);
        let slot = match self.message.slot(self.offset, self.pushed) {
            Ok(slot) if !begun => slot,
            // The message was valid when its first segment was posted.
            _ => Slot::segment(self.pushed),
        };
        slot.launch(requester, page, received)
    }

    /// Whether all segments are posted.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.is_begun && self.pushed >= self.message.payload_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn segments_double_and_end_with_the_payload() {
        let pushed = |first: u64, bytes: u64| {
            let segments = Segments::from(first);
            core::iter::successors(Some(segments.next(0, bytes)), |pushed| {
                (*pushed < bytes).then(|| segments.next(*pushed, bytes))
            })
            .collect::<Vec<_>>()
        };
        assert_eq!(pushed(32, 300), [32, 64, 128, 256, 300]);
        assert_eq!(pushed(32, 32), [32]);
        assert_eq!(pushed(32, 7), [7]);
        assert_eq!(pushed(3, 40), [8, 16, 32, 40]);
        assert_eq!(pushed(0, 49_152), [49_152]);
        assert_eq!(pushed(32, 49_152).len(), 12);
    }
}
