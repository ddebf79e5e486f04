//! Frames that several owners hold: the sending card, which may retransmit it, the network, a capture, and the card
//! that stores parts of it later.

use alloc::sync::Arc;
use core::fmt;
use core::ops::{Deref, Range};

use crate::fabric::frame_head::FrameHead;
use crate::nic::FrameBytes;

/// A finished, reference-counted frame that never changes under its holders. A short frame is stored inline and copied
/// when cloned; a clone of a long frame is a reference. A card may keep it indefinitely.
#[derive(Clone)]
pub struct SharedFrame(Bytes);

/// A part of a frame.
#[derive(Clone, Debug)]
pub struct Piece<'a> {
    /// The frame.
    pub frame: &'a SharedFrame,
    /// Which of its bytes.
    pub bytes: Range<usize>,
}

impl<'a> From<&'a SharedFrame> for FrameHead<'a> {
    #[inline]
    fn from(frame: &'a SharedFrame) -> Self {
        Self::from(&**frame)
    }
}

/// Data of a received frame.
#[derive(Clone, Debug)]
pub enum Data<'a> {
    /// The frame contains it.
    Here(Piece<'a>),
    /// It is borrowed: its byte range in the frame.
    Borrowed(Range<usize>),
}

impl Data<'_> {
    /// Its byte range in the frame.
    #[inline]
    pub const fn bytes(&self) -> &Range<usize> {
        match self {
            Self::Here(piece) => &piece.bytes,
            Self::Borrowed(bytes) => bytes,
        }
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Whether the range is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }
}

#[derive(Clone)]
enum Bytes {
    Short(FrameBytes),
    Long(Arc<FrameBytes>),
}

impl SharedFrame {
    /// Bytes on the heap, which clones share.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Bytes::Short(_) => 0,
            Bytes::Long(bytes) => bytes.capacity(),
        }
    }

    /// Flips a bit, counted from the lowest bit of the first byte, as a bad link does. Other holders of the frame keep
    /// it unchanged. A bit beyond the frame's end changes nothing.
    pub fn flip(&mut self, bit: u32) {
        let bytes = match &mut self.0 {
            Bytes::Short(bytes) => bytes,
            Bytes::Long(bytes) => Arc::make_mut(bytes),
        };
        if let Some(byte) = bytes.get_mut(bit as usize / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

impl Default for SharedFrame {
    fn default() -> Self {
        Self(Bytes::Short(FrameBytes::new()))
    }
}

impl From<FrameBytes> for SharedFrame {
    #[inline]
    fn from(bytes: FrameBytes) -> Self {
        Self(if bytes.spilled() { Bytes::Long(Arc::new(bytes)) } else { Bytes::Short(bytes) })
    }
}

impl From<&[u8]> for SharedFrame {
    fn from(bytes: &[u8]) -> Self {
        FrameBytes::from_slice(bytes).into()
    }
}

impl Deref for SharedFrame {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short(bytes) => bytes,
            Bytes::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for SharedFrame {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedFrame {}

impl fmt::Debug for SharedFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn flip_changes_only_the_clone_it_is_applied_to(
            bytes in prop::collection::vec(any::<u8>(), 0..600),
            bit in 0..5_000_u32,
        ) {
            let kept = SharedFrame::from(&*bytes);
            let mut other = kept.clone();
            other.flip(bit);
            prop_assert_eq!(&*kept, &*bytes);
            prop_assert_eq!(kept == other, bit as usize / 8 >= bytes.len());
            other.flip(bit);
            prop_assert_eq!(kept, other);
        }
    }

    #[test]
    fn a_long_frame_is_not_copied() {
        let frame = SharedFrame::from(&[7; 1_500][..]);
        assert_eq!(frame.clone().as_ptr(), frame.as_ptr());
    }
}
