//! Cuts messages into frames, and reassembles them.

use niclab_abi::gamma::{FRAME_DATA, FRAME_FIRST, FRAME_KIND_MASK, FRAME_LAST, FrameHead};

/// The part of a message that one frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its offset in the message.
    pub offset: u32,
    /// Its length in bytes.
    pub bytes: u32,
    /// Whether it is the first part.
    pub is_first: bool,
    /// Whether it is the last part.
    pub is_last: bool,
}

impl Part {
    /// The part of a message of `bytes` bytes that begins at `offset`, with at most `most` bytes in a frame. `None`
    /// after the end; a message without bytes has one empty part.
    #[must_use]
    pub const fn at(offset: u32, bytes: u32, most: u32) -> Option<Self> {
        if offset > bytes || (offset == bytes && bytes > 0) || most == 0 {
            return None;
        }
        let left = bytes - offset;
        let part = if left < most { left } else { most };
        Some(Self { offset, bytes: part, is_first: offset == 0, is_last: part == left })
    }

    /// The head of its frame.
    #[must_use]
    pub const fn head(&self, protocol: u8, source_port: u8, target_port: u8, number: u32) -> FrameHead {
        let first = if self.is_first { FRAME_FIRST } else { 0 };
        let last = if self.is_last { FRAME_LAST } else { 0 };
        FrameHead { protocol, kind: FRAME_DATA | first | last, source_port, target_port, number }
    }
}

/// What to do with the part of a message in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// Store it at this offset of the message that the port receives.
    At {
        /// The offset.
        offset: u32,
        /// Whether the message is then complete.
        is_whole: bool,
        /// Whether an earlier message of the same sender is incomplete, and its end is lost.
        is_other_lost: bool,
    },
    /// Drop it: its message is already lost, or too long.
    Drop,
}

/// The incomplete message of one node. Frames of two messages from one node are never interleaved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Joining {
    /// The message's ports and received bytes; `None` if no message has begun, or if it is lost.
    begun: Option<(u8, u8, u32)>,
}

impl Joining {
    /// A frame before this one is lost, and with it the incomplete message. Returns whether there was one.
    pub const fn on_lost(&mut self) -> bool {
        self.begun.take().is_some()
    }

    /// Processes a received frame with `bytes` bytes after its head. A message has at most `most` bytes.
    pub fn join(&mut self, head: &FrameHead, bytes: u32, most: u32) -> Join {
        debug_assert_eq!(head.kind & FRAME_KIND_MASK, FRAME_DATA);
        let is_first = head.kind & FRAME_FIRST != 0;
        let ports = (head.source_port, head.target_port);
        let is_other_lost = is_first && self.begun.is_some();
        let come = match self.begun.take() {
            _ if is_first => 0,
            Some((source, target, come)) if (source, target) == ports => come,
            _ => return Join::Drop,
        };
        let Some(total) = come.checked_add(bytes).filter(|total| *total <= most) else { return Join::Drop };
        let is_whole = head.kind & FRAME_LAST != 0;
        self.begun = (!is_whole).then_some((ports.0, ports.1, total));
        Join::At { offset: come, is_whole, is_other_lost }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_message_is_one_frame() {
        let part = Part { offset: 0, bytes: 0, is_first: true, is_last: true };
        assert_eq!((Part::at(0, 0, 100), Part::at(1, 0, 100)), (Some(part), None));
    }

    #[test]
    fn later_frames_of_a_lost_message_are_dropped() {
        let head = |is_first, is_last| Part { offset: 0, bytes: 5, is_first, is_last }.head(1, 2, 3, 4);
        let mut joining = Joining::default();
        let at = |offset, is_whole| Join::At { offset, is_whole, is_other_lost: false };
        assert_eq!(joining.join(&head(true, false), 5, 100), at(0, false));
        assert!(joining.on_lost() && !joining.on_lost());
        assert_eq!(joining.join(&head(false, false), 5, 100), Join::Drop);
        assert_eq!(joining.join(&head(false, true), 5, 100), Join::Drop);
        assert_eq!(joining.join(&head(true, false), 5, 100), at(0, false));
        assert_eq!(joining.join(&head(false, false), 96, 100), Join::Drop, "longer than any message");
        assert_eq!(joining.join(&head(true, false), 5, 100), at(0, false));
        let again = Join::At { offset: 0, is_whole: true, is_other_lost: true };
        assert_eq!(joining.join(&head(true, true), 5, 100), again);
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_message(bytes in 0..10_000_u32, most in 1..2_000_u32) {
            let mut joining = Joining::default();
            let (mut offset, mut parts) = (0, 0);
            while let Some(part) = Part::at(offset, bytes, most) {
                let join = joining.join(&part.head(9, 1, 2, parts), part.bytes, bytes);
                let is_other_lost = false;
                prop_assert_eq!(join, Join::At { offset: part.offset, is_whole: part.is_last, is_other_lost });
                offset += part.bytes;
                parts += 1;
                if part.is_last {
                    break;
                }
            }
            prop_assert_eq!((offset, parts), (bytes, bytes.div_ceil(most).max(1)));
            prop_assert_eq!(joining, Joining::default());
        }
    }
}
