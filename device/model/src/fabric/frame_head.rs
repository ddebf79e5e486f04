//! What the network sees of a frame.

/// The head of a frame, for code that needs no more, or whose data lies elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct FrameHead<'a> {
    /// The first bytes of the frame, with all headers. Of a frame whose data lies elsewhere: all bytes before the
    /// data, without check words.
    pub bytes: &'a [u8],
    /// Bytes of the whole frame.
    pub frame_bytes: usize,
}

impl<'a> From<&'a [u8]> for FrameHead<'a> {
    /// The head of a frame that is here completely.
    #[inline]
    fn from(frame: &'a [u8]) -> Self {
        Self { bytes: frame, frame_bytes: frame.len() }
    }
}
