//! Frames on the byte stream.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | magic, `NLAG` |
//! | 4 | 4 | session |
//! | 8 | 4 | command id |
//! | 12 | 4 | kind |
//! | 16 | 4 | payload length in bytes, at most [`MAX_PAYLOAD_BYTES`] |
//! | 20 | 4 | CRC-32 of bytes 0..20 and the payload |
//! | 24 | | payload |
//!
//! Numbers are little-endian.

use std::ops::Range;

use crc::{CRC_32_ISO_HDLC, Crc};

/// The longest payload. Also limits what a decoder buffers.
pub const MAX_PAYLOAD_BYTES: usize = 64 * 1024;

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 24;

const MAGIC: [u8; 4] = *b"NLAG";
const MAGIC_AT: Range<usize> = 0..4;
const SESSION_AT: Range<usize> = 4..8;
const ID_AT: Range<usize> = 8..12;
const KIND_AT: Range<usize> = 12..16;
const LENGTH_AT: Range<usize> = 16..20;
const CRC_AT: Range<usize> = 20..24;

const CRC32: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// One frame, with an undecoded payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The session it belongs to.
    pub session: u32,
    /// The command that it refers to; 0 for none.
    pub id: u32,
    /// The kind of its message; see [`crate::message`].
    pub kind: u32,
    /// The body of its message.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Appends the frame's bytes to `out`.
    ///
    /// # Panics
    /// If the payload is longer than [`MAX_PAYLOAD_BYTES`]; [`crate::message`] never makes such a frame.
    pub fn encode(&self, out: &mut impl Extend<u8>) {
        assert!(self.payload.len() <= MAX_PAYLOAD_BYTES, "payload of {} bytes", self.payload.len());
        let mut header = [0; HEADER_BYTES];
        header[MAGIC_AT].copy_from_slice(&MAGIC);
        header[SESSION_AT].copy_from_slice(&self.session.to_le_bytes());
        header[ID_AT].copy_from_slice(&self.id.to_le_bytes());
        header[KIND_AT].copy_from_slice(&self.kind.to_le_bytes());
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_PAYLOAD_BYTES")]
        header[LENGTH_AT].copy_from_slice(&(self.payload.len() as u32).to_le_bytes());
        let crc = checksum(&header, &self.payload);
        header[CRC_AT].copy_from_slice(&crc.to_le_bytes());
        out.extend(header);
        out.extend(self.payload.iter().copied());
    }
}

/// The idle bytes that begin a session: enough to complete any truncated frame.
#[must_use]
pub fn preamble() -> Vec<u8> {
    vec![0; HEADER_BYTES + MAX_PAYLOAD_BYTES]
}

/// Finds frames in a byte stream that may begin anywhere and contain any other bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// The number of consumed bytes at the front of `buffer`.
    consumed: usize,
}

impl Decoder {
    /// Adds received bytes.
    ///
    /// Call [`Self::next_frame`] until it returns `None` before adding more. Then the buffer holds at most one frame
    /// and the bytes just added.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame, if there is one.
    pub fn next_frame(&mut self) -> Option<Frame> {
        loop {
            self.skip_to_magic();
            let rest = &self.buffer[self.consumed..];
            if rest.len() < HEADER_BYTES {
                return None;
            }
            let length = u32_at(rest, LENGTH_AT) as usize;
            if length <= MAX_PAYLOAD_BYTES {
                let end = HEADER_BYTES + length;
                if rest.len() < end {
                    return None;
                }
                let (header, payload) = rest[..end].split_at(HEADER_BYTES);
                if u32_at(header, CRC_AT) == checksum(header, payload) {
                    let frame = Frame {
                        session: u32_at(header, SESSION_AT),
                        id: u32_at(header, ID_AT),
                        kind: u32_at(header, KIND_AT),
                        payload: payload.to_vec(),
                    };
                    self.consumed += end;
                    return Some(frame);
                }
            }
            // The magic was part of other data, or the frame was truncated: a frame may begin inside its claimed
            // length.
            self.consumed += 1;
        }
    }

    /// Drops bytes that cannot begin a frame.
    fn skip_to_magic(&mut self) {
        let rest = &self.buffer[self.consumed..];
        let at = rest
            .windows(MAGIC.len())
            .position(|window| window == MAGIC)
            // The last three bytes may be the first bytes of a magic.
            .unwrap_or_else(|| {
                (1..MAGIC.len())
                    .rev()
                    .find(|&n| rest.ends_with(&MAGIC[..n]))
                    .map_or(rest.len(), |n| rest.len() - n)
            });
        self.consumed += at;
    }
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut digest = CRC32.digest();
    digest.update(&header[..CRC_AT.start]);
    digest.update(payload);
    digest.finalize()
}

fn u32_at(header: &[u8], at: Range<usize>) -> u32 {
    header[at].iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn frames() -> impl Strategy<Value = Vec<Frame>> {
        let frame = (any::<u32>(), any::<u32>(), any::<u32>(), vec(any::<u8>(), 0..200))
            .prop_map(|(session, id, kind, payload)| Frame { session, id, kind, payload });
        vec(frame, 0..8)
    }

    fn encode(frames: &[Frame]) -> Vec<u8> {
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.encode(&mut bytes));
        bytes
    }

    fn decode(decoder: &mut Decoder, bytes: &[u8], chunk: usize) -> Vec<Frame> {
        let mut found = Vec::new();
        for piece in bytes.chunks(chunk) {
            decoder.push(piece);
            found.extend(std::iter::from_fn(|| decoder.next_frame()));
        }
        found
    }

    proptest! {
        #[test]
        fn frames_are_found_in_chunks_of_any_size(frames in frames(), chunk in 1usize..300) {
            prop_assert_eq!(decode(&mut Decoder::default(), &encode(&frames), chunk), frames);
        }

        /// The stream may begin with any bytes and with any part of an earlier session. After the preamble the decoder
        /// finds every frame.
        #[test]
        fn a_preamble_resynchronizes(
            garbage in vec(any::<u8>(), 0..100),
            old in frames(),
            cut in any::<prop::sample::Index>(),
            frames in frames(),
            chunk in 1usize..100_000,
        ) {
            let mut bytes = garbage;
            let old = encode(&old);
            bytes.extend(&old[..cut.index(old.len() + 1)]);
            bytes.extend(preamble());
            bytes.extend(encode(&frames));
            let found = decode(&mut Decoder::default(), &bytes, chunk);
            prop_assert!(found.ends_with(&frames));
        }

        /// A truncated frame that claims the longest payload consumes exactly the preamble.
        #[test]
        fn longest_truncated_frame_consumes_only_the_preamble(sent in 0usize..HEADER_BYTES + 100, frames in frames()) {
            let longest = Frame { session: 1, id: 1, kind: 1, payload: vec![b'N'; MAX_PAYLOAD_BYTES] };
            let mut bytes = encode(&[longest])[..sent].to_vec();
            bytes.extend(preamble());
            bytes.extend(encode(&frames));
            prop_assert_eq!(decode(&mut Decoder::default(), &bytes, 4096), frames);
        }

        #[test]
        fn flipped_bit_never_yields_a_different_frame(
            frames in frames(),
            at in any::<prop::sample::Index>(),
            bit in 0u8..8,
        ) {
            let mut bytes = encode(&frames);
            prop_assume!(!bytes.is_empty());
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            for found in decode(&mut Decoder::default(), &bytes, 64) {
                prop_assert!(frames.contains(&found));
            }
        }

        #[test]
        fn garbage_does_not_grow_the_buffer(garbage in vec(any::<u8>(), 0..2000)) {
            let mut decoder = Decoder::default();
            for _ in 0..100 {
                decode(&mut decoder, &garbage, 100);
                prop_assert!(decoder.buffer.len() <= HEADER_BYTES + MAX_PAYLOAD_BYTES + 100);
            }
        }
    }
}
