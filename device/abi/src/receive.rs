//! Host memory that the device writes: the slices of a port's receive queue, and its status line.

use crate::bar::{PAYLOAD_WORDS, TAG_WORDS};
use crate::layout;

/// Number of 64-bit words of a slice: payload, tag, status (Fröning, Litz, Brüning 2007, section 3.4 and figure 5).
pub const SLICE_WORDS: usize = PAYLOAD_WORDS + TAG_WORDS + 1;
/// Bytes of a slice.
pub const SLICE_BYTES: u64 = SLICE_WORDS as u64 * 8;
/// Status word of the slice, which the device writes last. The payload and the tag end before it.
pub const SLICE_STATUS_WORD: usize = SLICE_WORDS - 1;
/// First tag word of the slice; `n` payload words are the words `8 - n .. 8`.
pub const SLICE_TAG_WORD: usize = PAYLOAD_WORDS;

/// Minimum number of slices of a receive queue. The number is a power of two.
pub const MIN_SLICES: u32 = 8;
/// Maximum number of slices of a receive queue.
pub const MAX_SLICES: u32 = 4096;

/// Slice status: number of payload words, bits 0..4.
pub const SLICE_WORDS_MASK: u64 = 0xf;
/// Slice status: the sender requested an interrupt.
pub const SLICE_INTERRUPT: u64 = 1 << 4;
/// Slice status: the sender requested an acknowledgement.
pub const SLICE_ACKNOWLEDGE: u64 = 1 << 5;
/// Slice status: set in every slice that the device has written.
pub const SLICE_VALID: u64 = 1 << 7;
/// Slice status: lowest of the eight bits of the sender's port.
pub const SLICE_PORT_SHIFT: u32 = 8;
/// Slice status: lowest of the sixteen bits of the sender's node.
pub const SLICE_NODE_SHIFT: u32 = 16;
/// Slice status: lowest of the 32 bits of the slice's number: 1 for the first since the port was opened, wrapping.
///
/// The paper has a valid bit that the host must clear. With the number no clearing is necessary: a slice is new exactly
/// if it has the number that the reader expects.
pub const SLICE_NUMBER_SHIFT: u32 = 32;

/// A decoded slice status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceStatus {
    /// Number of payload words, 0..=8.
    pub words: u8,
    /// The sender requested an interrupt.
    pub interrupt: bool,
    /// The sender requested an acknowledgement.
    pub acknowledge: bool,
    /// Port that sent the packet.
    pub source_port: u8,
    /// Node that sent the packet.
    pub source_node: u16,
    /// Number of the slice, from 1.
    pub number: u32,
}

impl SliceStatus {
    /// The status word.
    pub const fn encode(self) -> u64 {
        (self.words as u64 & SLICE_WORDS_MASK)
            | if self.interrupt { SLICE_INTERRUPT } else { 0 }
            | if self.acknowledge { SLICE_ACKNOWLEDGE } else { 0 }
            | SLICE_VALID
            | (self.source_port as u64) << SLICE_PORT_SHIFT
            | (self.source_node as u64) << SLICE_NODE_SHIFT
            | (self.number as u64) << SLICE_NUMBER_SHIFT
    }

    /// Decodes a status word; `None` if no device has written it.
    pub const fn decode(word: u64) -> Option<Self> {
        if word & SLICE_VALID == 0 || word & SLICE_WORDS_MASK > PAYLOAD_WORDS as u64 {
            return None;
        }
        Some(Self {
            words: (word & SLICE_WORDS_MASK) as u8,
            interrupt: word & SLICE_INTERRUPT != 0,
            acknowledge: word & SLICE_ACKNOWLEDGE != 0,
            source_port: (word >> SLICE_PORT_SHIFT) as u8,
            source_node: (word >> SLICE_NODE_SHIFT) as u16,
            number: (word >> SLICE_NUMBER_SHIFT) as u32,
        })
    }
}

/// Number of posts after which the device writes the status line without a request: a quarter of the requester page. So
/// a sender that fills the page always learns of free slots.
pub const STATUS_LINE_INTERVAL: u32 = crate::bar::SLOTS / 4;

layout! {
    /// A port's status line, which the device writes as one burst: every [`STATUS_LINE_INTERVAL`] posts, after a post
    /// with [`crate::bar::CODE_NOTIFY`], on an acknowledgement and on a violation. No word ever decreases.
    pub struct StatusLine: 64 {
        /// Number of slots that the device has taken since the port was opened. `launched + SLOTS` is the highest
        /// number that the program may post.
        pub launched: u64,
        /// Number of posts with the notification flag that have left the requester.
        pub notified: u64,
        /// Number of acknowledgements that have returned.
        pub acknowledged: u64,
        /// Number of packets that have left for the network.
        pub sent: u64,
        /// The reason for the last refused post or register store, a `REFUSED_` constant; zero if none was refused. The
        /// device stores the words in ascending order. So a reader that loads `refused` first, and then this word, has
        /// the reason of that refusal or of a later one.
        pub refusal: u64,
        /// Number of posts refused for a bad code or a missing route, and of register stores refused.
        pub refused: u64,
        /// Zero.
        pub reserved0: u64,
        /// Zero.
        pub reserved1: u64,
    }
}

/// [`StatusLine::refusal`]: reserved bits of the launch word are not zero.
pub const REFUSED_RESERVED_BITS: u64 = 1;
/// [`StatusLine::refusal`]: the length field is 9..16.
pub const REFUSED_LENGTH: u64 = 2;
/// [`StatusLine::refusal`]: the port has no route.
pub const REFUSED_NO_ROUTE: u64 = 3;
/// [`StatusLine::refusal`]: [`crate::bar::CompleterPage::released`] decreased, or exceeds the number of stored slices.
pub const REFUSED_RELEASE: u64 = 4;
/// [`StatusLine::refusal`]: the command was refused; its event has the reason.
pub const REFUSED_COMMAND: u64 = 5;
/// [`StatusLine::refusal`]: the command is unknown, or a reserved field of it is not zero.
pub const REFUSED_HEADER: u64 = 6;
/// [`StatusLine::refusal`]: the target node, or the endpoint on it, does not exist.
pub const REFUSED_TARGET: u64 = 7;
/// [`StatusLine::refusal`]: the payload is empty, too long, or outside the payload region.
pub const REFUSED_PAYLOAD: u64 = 8;
/// [`StatusLine::refusal`]: a segment goes backwards, exceeds its message, or belongs to no message. Or a message was
/// posted before the previous one was pushed completely. Or the card gave a message up, because nothing more was pushed
/// for too long.
pub const REFUSED_SEGMENT: u64 = 9;
/// [`StatusLine::refusal`]: no program has opened the target endpoint.
pub const REFUSED_CLOSED: u64 = 10;
/// [`StatusLine::refusal`]: the target endpoint has no payload region, or one smaller than the payload.
pub const REFUSED_NO_PAYLOAD: u64 = 11;
/// [`StatusLine::refusal`]: the target endpoint has not exposed the memory that a message addressed.
pub const REFUSED_MEMORY: u64 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_round_trip() {
        let status = SliceStatus {
            words: 8,
            interrupt: true,
            acknowledge: false,
            source_port: 7,
            source_node: 65_535,
            number: u32::MAX,
        };
        assert_eq!(SliceStatus::decode(status.encode()), Some(status));
    }

    #[test]
    fn memory_that_was_never_written_is_not_a_slice() {
        assert_eq!(SliceStatus::decode(0), None);
        assert_eq!(SliceStatus::decode(SLICE_VALID | 9), None);
    }
}
