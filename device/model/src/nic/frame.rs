//! Frames that many may hold: the card that sent one and may have to send it again, the network, whoever captures it,
//! and the card that stores parts of it later.

use alloc::sync::Arc;
use core::fmt;
use core::ops::{Deref, Range};

use crate::nic::FrameBytes;

/// A finished frame: owned, counted, and never changed under anybody who holds it. A short one lives inline and is
/// copied where it is cloned; of a long one a clone is a reference. A card may keep it for as long as it likes.
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

/// The head of a frame whose data lies elsewhere. Whoever has it cannot look at the data, and keeps nothing of the
/// frame.
#[derive(Clone, Copy, Debug)]
pub struct LentHead<'a> {
    /// All of the frame before the data, without check words.
    pub bytes: &'a [u8],
    /// Bytes of the whole frame.
    pub frame_bytes: usize,
}

/// Data of a frame that has come.
#[derive(Clone, Debug)]
pub enum Data<'a> {
    /// It is in hand.
    Here(Piece<'a>),
    /// It is lent: which bytes of the frame it is.
    Lent(Range<usize>),
}

impl Data<'_> {
    /// Which bytes of the frame.
    #[inline]
    pub const fn bytes(&self) -> &Range<usize> {
        match self {
            Self::Here(piece) => &piece.bytes,
            Self::Lent(bytes) => bytes,
        }
    }

    /// How many.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Whether there is none.
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
    /// Bytes that it keeps elsewhere than inline, shared with its clones.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Bytes::Short(_) => 0,
            Bytes::Long(bytes) => bytes.capacity(),
        }
    }

    /// Flips a bit, counted from the lowest of the first byte, as a bad link does. Others that hold the frame keep it
    /// as it was. Nothing happens when it has no such bit.
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
        fn a_clone_keeps_its_bytes_whatever_befalls_the_other(
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
