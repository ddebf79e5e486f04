//! What the device writes into host memory: the slices of a port's receive queue, and its status line.

use crate::bar::{PAYLOAD_WORDS, TAG_WORDS};
use crate::layout;

/// 64-bit words of a slice: payload, tag, status (Fröning, Litz, Brüning 2007, section 3.4 and figure 5).
pub const SLICE_WORDS: usize = PAYLOAD_WORDS + TAG_WORDS + 1;
/// Bytes of a slice.
pub const SLICE_BYTES: u64 = SLICE_WORDS as u64 * 8;
/// Word of the slice with its status, written last; the payload and the tag end right before it.
pub const SLICE_STATUS_WORD: usize = SLICE_WORDS - 1;
/// Word of the slice where the tag begins; `n` payload words take the words `8 - n .. 8`.
pub const SLICE_TAG_WORD: usize = PAYLOAD_WORDS;

/// Fewest slices of a receive queue. A queue's slices are a power of two.
pub const MIN_SLICES: u32 = 8;
/// Most slices of a receive queue.
pub const MAX_SLICES: u32 = 4096;

/// Slice status: payload words, bits 0..4.
pub const SLICE_WORDS_MASK: u64 = 0xf;
/// Slice status: the sender asked for an interrupt.
pub const SLICE_INTERRUPT: u64 = 1 << 4;
/// Slice status: the sender asked for an acknowledgement.
pub const SLICE_ACKNOWLEDGE: u64 = 1 << 5;
/// Slice status: set in every slice that was ever written.
pub const SLICE_VALID: u64 = 1 << 7;
/// Slice status: the sender's port, eight bits from here.
pub const SLICE_PORT_SHIFT: u32 = 8;
/// Slice status: the sender's node, sixteen bits from here.
pub const SLICE_NODE_SHIFT: u32 = 16;
/// Slice status: number of the slice, 32 bits from here: 1 for the first since the port was opened, wrapping.
///
/// The paper has a valid bit that the host must clear. The number makes clearing unnecessary: a slice is new exactly
/// when it carries the number that the reader expects.
pub const SLICE_NUMBER_SHIFT: u32 = 32;

/// A decoded slice status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceStatus {
    /// Payload words, 0..=8.
    pub words: u8,
    /// The sender asked for an interrupt.
    pub interrupt: bool,
    /// The sender asked for an acknowledgement.
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

    /// Decodes a status word; `None` when it was never written by a device.
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

/// Launches after which the device writes the status line unasked: a quarter of the requester page, so that a sender
/// that fills the page always learns of free slots.
pub const STATUS_LINE_INTERVAL: u32 = crate::bar::SLOTS / 4;

layout! {
    /// A port's status line: one burst, written by the device every [`STATUS_LINE_INTERVAL`] launches, after a launch
    /// with [`crate::bar::CODE_NOTIFY`], on an acknowledgement and on a violation. Every word only grows.
    pub struct StatusLine: 64 {
        /// Slots taken out of the requester page since the port was opened: `launched + SLOTS` is the last number that
        /// the program may launch.
        pub launched: u64,
        /// Launches with the notification flag that left the requester.
        pub notified: u64,
        /// Acknowledgements that returned.
        pub acknowledged: u64,
        /// Packets that left for the network.
        pub sent: u64,
        /// Why the last launch or register write was refused: a `REFUSED_` constant; zero when none was. The words are
        /// stored in ascending order: whoever loads this one behind `refused` has the reason of that refusal, or of a
        /// later one.
        pub refusal: u64,
        /// Launches refused for a bad code or because the port has no route, and register writes refused.
        pub refused: u64,
        /// Zero.
        pub reserved0: u64,
        /// Zero.
        pub reserved1: u64,
    }
}

/// [`StatusLine::refusal`]: reserved bits of the launch word were set.
pub const REFUSED_RESERVED_BITS: u64 = 1;
/// [`StatusLine::refusal`]: the length field holds 9..16.
pub const REFUSED_LENGTH: u64 = 2;
/// [`StatusLine::refusal`]: the port has no route.
pub const REFUSED_NO_ROUTE: u64 = 3;
/// [`StatusLine::refusal`]: [`crate::bar::CompleterPage::released`] fell or ran ahead of what was stored.
pub const REFUSED_RELEASE: u64 = 4;
/// [`StatusLine::refusal`]: the command was refused; the event says why.
pub const REFUSED_COMMAND: u64 = 5;
/// [`StatusLine::refusal`]: there is no such command, or a reserved field of it is not zero.
pub const REFUSED_HEADER: u64 = 6;
/// [`StatusLine::refusal`]: there is no such node, or no such endpoint on a node.
pub const REFUSED_TARGET: u64 = 7;
/// [`StatusLine::refusal`]: the payload is empty, too long, or beyond the payload region.
pub const REFUSED_PAYLOAD: u64 = 8;
/// [`StatusLine::refusal`]: a segment that runs backwards, goes past its message, or belongs to none; a message
/// launched before the one before it was pushed whole; or one of which no more was pushed for so long that the card
/// gave it up.
pub const REFUSED_SEGMENT: u64 = 9;
/// [`StatusLine::refusal`]: no program has the target endpoint open.
pub const REFUSED_CLOSED: u64 = 10;
/// [`StatusLine::refusal`]: the target endpoint has no payload region, or a smaller one than the payload.
pub const REFUSED_NO_PAYLOAD: u64 = 11;
/// [`StatusLine::refusal`]: the target endpoint has not exposed the memory that a message was for.
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
    fn memory_never_written_is_no_slice() {
        assert_eq!(SliceStatus::decode(0), None);
        assert_eq!(SliceStatus::decode(SLICE_VALID | 9), None);
    }
}
