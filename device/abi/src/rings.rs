//! Descriptor rings ([`crate::config::FEATURE_RINGS`]).
//!
//! The card sends frames from host memory, and stores frames into host memory. Descriptors in two rings of host memory
//! name this memory, and the card walks the rings by itself.
//!
//! A descriptor has the 16 bytes of the DEC 21140 (*21140A PCI Fast Ethernet LAN Controller Hardware Reference Manual*,
//! section 4.2), in two words of 64 bits, least significant byte first:
//!
//! | word | bits | what |
//! |---|---|---|
//! | 0 | 31 | [`RING_OWN`]: the card's |
//! | 0 | 0..31 | status, once it is the host's again: `RING_` bits and, of what was received, the length |
//! | 0 | 32..43 | bytes of the first buffer |
//! | 0 | 43..54 | bytes of the second buffer |
//! | 0 | 56 | [`RING_CHAINED`]: the second address is that of the next descriptor |
//! | 0 | 57 | [`RING_END`]: the next descriptor is the ring's first |
//! | 0 | 61, 62 | [`RING_FIRST`], [`RING_LAST`], of what is sent: the frame begins, ends here |
//! | 1 | 0..32, 32..64 | addresses of the buffers |
//!
//! Between two unchained descriptors the card skips [`RingStart::skip_bytes`] bytes. After a chained descriptor there
//! are the same number of bytes. They are the driver's, except the first word of a transmit descriptor
//! ([`RING_MESSAGE_WORD`]). No hardware would read this word. For reports, it has the length of the message whose first
//! frame begins there, and the number of frames that the driver had received when it sent the frame. If these are all
//! frames that the card had reported by then, the device knows the order of the host's operations, and so their model
//! time.
//!
//! The driver fills all words except the first, then stores the first, which gives the descriptor to the card. The card
//! returns the descriptor with the same word. The driver then notifies queue 2 or 3 ([`crate::QUEUE_TRANSMIT`],
//! [`crate::QUEUE_RECEIVE`]), which never have a chain: a poll demand.

use crate::layout;

/// Starts a ring at an address, so that the card walks it: [`RingStart`]. The reply has no body.
pub const OP_RING_START: u32 = 18;
/// Stops a ring: [`RingName`]. After the reply the card accesses neither descriptors nor buffers.
pub const OP_RING_STOP: u32 = 19;
/// Sets when received frames interrupt: [`RingInterrupts`]. The reply has no body.
pub const OP_RING_INTERRUPTS: u32 = 20;
/// Reads the common terms of the drivers of this cluster. No body; the reply is [`RingTerms`].
pub const OP_RING_TERMS: u32 = 21;

/// CPU-driven ([`RingTerms::receive_buffers`] is zero): reads status and head of the first frame in the card's FIFO. No
/// body; the reply is [`FifoHead`].
pub const OP_FIFO_LOOK: u32 = 22;
/// CPU-driven: stores a part of the first frame in the FIFO into memory, and drops the frame: [`FifoTake`]. The reply,
/// when the part is stored, has no body.
pub const OP_FIFO_TAKE: u32 = 23;
/// CPU-driven: puts a frame into the transmit FIFO, with a head that the processor stores and data that the card reads:
/// [`FifoSend`]. The reply, when the card has read all data, has no body.
pub const OP_FIFO_SEND: u32 = 24;

/// [`RingStart::ring`], [`RingName::ring`]: frames to send.
pub const RING_TRANSMIT: u32 = 0;
/// [`RingStart::ring`], [`RingName::ring`]: room for received frames.
pub const RING_RECEIVE: u32 = 1;

layout! {
    /// Body of [`OP_RING_START`].
    pub struct RingStart: 24 {
        /// [`RING_TRANSMIT`] or [`RING_RECEIVE`].
        pub ring: u32,
        /// Bytes between two descriptors: a multiple of eight, from 8 to [`RING_MAX_SKIP_BYTES`].
        pub skip_bytes: u32,
        /// Guest-physical address of the first descriptor: a multiple of eight, below 4 GiB.
        pub first: u64,
        /// Zero.
        pub reserved: u64,
    }
}

layout! {
    /// Body of [`OP_RING_STOP`].
    pub struct RingName: 8 {
        /// [`RING_TRANSMIT`] or [`RING_RECEIVE`].
        pub ring: u32,
        /// Zero.
        pub reserved: u32,
    }
}

layout! {
    /// Body of [`OP_RING_INTERRUPTS`].
    pub struct RingInterrupts: 16 {
        /// Number of frames after which the card raises one interrupt; 0: never, for drivers that poll.
        pub frames: u32,
        /// Model time in nanoseconds after which the card raises an interrupt for fewer frames.
        pub delay_ns: u32,
        /// Zero.
        pub reserved: u64,
    }
}

layout! {
    /// Reply to [`OP_RING_TERMS`].
    pub struct RingTerms: 48 {
        /// Number of descriptors that the receive ring needs, each with a buffer for a complete frame. 0: there are no
        /// rings, and the processor drives each transfer ([`OP_FIFO_LOOK`]).
        pub receive_buffers: u32,
        /// Maximum number of unacknowledged frames from one node to another; 0: no limit.
        pub window: u32,
        /// Number of frames of a node after which a driver acknowledges them.
        pub acknowledge_every: u32,
        /// Number of buffers for other protocols, beyond those for windows and acknowledgements.
        pub other_buffers: u32,
        /// Ethernet address of this node for other protocols, first byte lowest.
        pub station: u64,
        /// Maximum length of a frame that the driver gives to the card; of active ports, without the check sequence.
        pub frame_bytes: u32,
        /// Default of [`RingInterrupts::frames`].
        pub interrupt_frames: u32,
        /// Default of [`RingInterrupts::delay_ns`].
        pub interrupt_delay_ns: u32,
        /// [`crate::gamma::FrameHead::protocol`] of frames that the card sends and accepts.
        pub protocol: u32,
        /// Number of drivers that have asked this card for its terms, including this one. A driver of real hardware
        /// would keep this count in the card's serial memory. See [`crate::gamma::INCARNATIONS`].
        pub incarnation: u32,
        /// Zero.
        pub reserved: u32,
    }
}

/// Maximum number of bytes of a frame's head that the processor reads or stores. An Ethernet header and
/// [`crate::gamma::FrameHead`] are 22.
pub const FIFO_HEAD_BYTES: u32 = 24;

layout! {
    /// Reply to [`OP_FIFO_LOOK`].
    pub struct FifoHead: 32 {
        /// Length of the first frame in the FIFO in bytes; zero: the FIFO is empty.
        pub bytes: u32,
        /// [`RING_STATUS_DAMAGED`] if its check sequence is wrong, otherwise zero.
        pub status: u32,
        /// Its first [`FIFO_HEAD_BYTES`], first byte lowest, padded with zeros. This word has the first eight.
        pub head_0: u64,
        /// The next eight.
        pub head_1: u64,
        /// The last eight.
        pub head_2: u64,
    }
}

layout! {
    /// Body of [`OP_FIFO_TAKE`].
    pub struct FifoTake: 16 {
        /// Guest-physical address to which the card stores the part.
        pub address: u64,
        /// Number of bytes of the frame before the part.
        pub skip_bytes: u32,
        /// Length of the part in bytes; zero: the card drops the frame and stores nothing.
        pub bytes: u32,
    }
}

layout! {
    /// Body of [`OP_FIFO_SEND`].
    pub struct FifoSend: 48 {
        /// The head of the frame, first byte lowest: its first eight bytes.
        pub head_0: u64,
        /// The next eight bytes.
        pub head_1: u64,
        /// The last eight bytes.
        pub head_2: u64,
        /// Length of the head in bytes, at most [`FIFO_HEAD_BYTES`].
        pub head_bytes: u32,
        /// Length of the data after it in bytes.
        pub bytes: u32,
        /// Guest-physical address of the data.
        pub address: u64,
        /// Length of the message whose first frame this is, otherwise zero. It is for reports; no hardware would read
        /// it.
        pub message_bytes: u64,
    }
}

/// The node's MAC endpoint of other protocols: the third byte from the end of [`RingTerms::station`], minus one.
pub const RING_STATION: u8 = 0;
/// Maximum number of bytes between two descriptors (CSR0, bits 2 to 6: 31 words of 32 bits, here in whole words of 64).
pub const RING_MAX_SKIP_BYTES: u32 = 120;
/// Index of the 64-bit word, counted from the descriptor's begin, of a transmit descriptor in which a frame begins. Its
/// lower half has the length of the message in bytes, if the frame is the message's first. Its upper half,
/// [`RING_RECEIVED_SHIFT`], has the number of frames that the driver has taken out of the receive ring since its start,
/// modulo 2^32.
pub const RING_MESSAGE_WORD: usize = 2;
/// Lowest bit of the upper half of that word.
pub const RING_RECEIVED_SHIFT: u32 = 32;

/// First word: the card owns the descriptor.
pub const RING_OWN: u64 = 1 << 31;
/// First word: the second address is that of the next descriptor.
pub const RING_CHAINED: u64 = 1 << 56;
/// First word: the next descriptor is the ring's first; takes precedence over [`RING_CHAINED`].
pub const RING_END: u64 = 1 << 57;
/// First word, transmit: the frame begins in this descriptor.
pub const RING_FIRST: u64 = 1 << 61;
/// First word, transmit: the frame ends in this descriptor.
pub const RING_LAST: u64 = 1 << 62;
/// First word: lowest bit of the size of the first buffer.
pub const RING_SIZE_SHIFT: u32 = 32;
/// First word: lowest bit of the size of the second buffer.
pub const RING_SECOND_SIZE_SHIFT: u32 = 43;
/// Maximum number of bytes of a buffer.
pub const RING_MAX_BUFFER_BYTES: u32 = (1 << 11) - 1;

/// Status: an error, which other bits describe (ES).
pub const RING_ERROR: u32 = 1 << 15;
/// Receive status: the frame begins in this descriptor (FS).
pub const RING_STATUS_FIRST: u32 = 1 << 9;
/// Receive status: the frame ends in this descriptor, and the length is valid (LS).
pub const RING_STATUS_LAST: u32 = 1 << 8;
/// Receive status: the check sequence is wrong (CE).
pub const RING_STATUS_DAMAGED: u32 = 1 << 1;
/// Receive status: the ring had too little room for the complete frame (DE).
pub const RING_STATUS_TRUNCATED: u32 = 1 << 14;
/// Receive status: lowest bit of the length in bytes, from the Ethernet header to the last stored byte.
pub const RING_LENGTH_SHIFT: u32 = 16;
/// Transmit status: the frame is shorter than its headers, longer than the network allows, or in too many descriptors.
pub const RING_STATUS_LENGTH: u32 = 1 << 2;
/// Transmit status: a buffer is not memory of the guest.
pub const RING_STATUS_ADDRESS: u32 = 1 << 3;
/// Transmit status: the source address is not the node's, or the frame's protocol is not this card's.
pub const RING_STATUS_FORGED: u32 = 1 << 4;
/// Transmit status: a descriptor begins a frame inside another one, or continues none.
pub const RING_STATUS_SEGMENT: u32 = 1 << 5;
