//! A message that is pushed: its header and first segment, then segments that double (section 5.2).

use super::message::{Outgoing, Slot};
use crate::{BadValue, Page, Requester};

/// How payload is pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    first: u64,
}

impl Segments {
    /// Whole messages: the card begins to send when all is there.
    pub const WHOLE: Self = Self { first: 0 };

    /// So many bytes first, then twice as many, and so on. Zero: whole messages.
    #[must_use]
    pub const fn from(first: u64) -> Self {
        Self { first }
    }

    /// How much of a payload is pushed by the segment behind `pushed` bytes.
    const fn next(self, pushed: u64, bytes: u64) -> u64 {
        let more = match (self.first, pushed) {
            (0, _) => bytes,
            (first, 0) => first,
            (_, pushed) => pushed,
        };
        // Whole words, but for the payload's end.
        let end = pushed.saturating_add(more).next_multiple_of(8);
        if end < bytes { end } else { bytes }
    }
}

/// A message of which not all is pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushing {
    message: Outgoing,
    segments: Segments,
    offset: u64,
    pushed: u64,
    is_begun: bool,
}

impl Pushing {
    /// A message whose payload begins where the payload region does.
    ///
    /// # Errors
    /// [`BadValue`]: it is no message.
    pub fn new(message: Outgoing, segments: Segments) -> Result<Self, BadValue> {
        message.check()?;
        Ok(Self { message, segments, offset: 0, pushed: 0, is_begun: false })
    }

    /// Its payload has room at `offset` of the payload region.
    #[must_use]
    pub const fn at(self, offset: u64) -> Self {
        Self { offset, ..self }
    }

    /// The next segment: where in the payload region it goes, and which bytes of the payload it is. They are stored
    /// before [`Pushing::launch`].
    #[must_use]
    pub const fn next(&self) -> (u64, core::ops::Range<u64>) {
        let end = self.segments.next(self.pushed, self.message.payload_bytes());
        (self.offset + self.pushed, self.pushed..end)
    }

    /// Launches the segment, from the next slot of the page, which must be free. Returns the launch's number.
    pub fn launch(&mut self, requester: &mut Requester, page: &mut impl Page, received: u64) -> u64 {
        let (_, bytes) = self.next();
        self.pushed = bytes.end;
        let begun = core::mem::replace(&mut self.is_begun, true);
        let slot = match self.message.slot(self.offset, self.pushed) {
            Ok(slot) if !begun => slot,
            // It was a message when it was begun.
            _ => Slot::segment(self.pushed),
        };
        slot.launch(requester, page, received)
    }

    /// Whether all of it is launched.
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
