//! Descriptor rings ([`crate::config::FEATURE_RINGS`]): frames are sent out of memory, and received into memory, that
//! descriptors in the host's memory name. The card walks them by itself.
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
//! Between two descriptors that are not chained the card skips so many bytes as [`RingStart::skip_bytes`] says; behind
//! a chained one lie as many. They are the driver's, but for the first word of them in what is sent
//! ([`RING_MESSAGE_WORD`]), which no hardware would read: it tells reports how long the message is whose first frame
//! begins there, and what the driver knew when it sent the frame. Where that is all that the card had told it by then,
//! the order in which the host did things is known, and with it when they were done in model time.
//!
//! The driver fills all words but the first, then stores the first, which makes the descriptor the card's; the card
//! gives it back by the same word. Then it notifies queue 2 or 3 ([`crate::QUEUE_TRANSMIT`], [`crate::QUEUE_RECEIVE`]),
//! which never hold a chain: a poll demand.

use crate::layout;

/// Says where a ring begins, and that the card shall walk it: [`RingStart`]. No answer's body.
pub const OP_RING_START: u32 = 18;
/// The card walks a ring no more: [`RingName`]. Once answered, it touches neither descriptors nor buffers.
pub const OP_RING_STOP: u32 = 19;
/// Says when frames that were received interrupt: [`RingInterrupts`]. No answer's body.
pub const OP_RING_INTERRUPTS: u32 = 20;
/// Asks what the drivers of this cluster have agreed on. No body, answered by [`RingTerms`].
pub const OP_RING_TERMS: u32 = 21;

/// CPU-driven ([`RingTerms::receive_buffers`] is zero): reads status and head of the first frame in the card's FIFO. No
/// body, answered by [`FifoHead`].
pub const OP_FIFO_LOOK: u32 = 22;
/// CPU-driven: stores a part of the first frame in the FIFO where it belongs, and drops the frame: [`FifoTake`].
/// Answered, without a body, when it is stored.
pub const OP_FIFO_TAKE: u32 = 23;
/// CPU-driven: puts a frame into the FIFO in front of the wire, a head that the processor stores and data that the card
/// reads: [`FifoSend`]. Answered, without a body, when the card has read all of it.
pub const OP_FIFO_SEND: u32 = 24;

/// [`RingStart::ring`], [`RingName::ring`]: what is to be sent.
pub const RING_TRANSMIT: u32 = 0;
/// [`RingStart::ring`], [`RingName::ring`]: room for what comes.
pub const RING_RECEIVE: u32 = 1;

layout! {
    /// Body of [`OP_RING_START`].
    pub struct RingStart: 24 {
        /// [`RING_TRANSMIT`] or [`RING_RECEIVE`].
        pub ring: u32,
        /// Bytes between two descriptors: a multiple of eight, eight at least, [`RING_MAX_SKIP_BYTES`] at most.
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
        /// Frames after which one interrupt is raised; 0: none ever, for drivers that poll.
        pub frames: u32,
        /// Model time in nanoseconds after which an interrupt is raised for fewer frames than that.
        pub delay_ns: u32,
        /// Zero.
        pub reserved: u64,
    }
}

layout! {
    /// Answer to [`OP_RING_TERMS`].
    pub struct RingTerms: 48 {
        /// Descriptors that the receive ring shall have, each with a buffer for a whole frame. 0: there are no rings,
        /// and the processor drives each transfer ([`OP_FIFO_LOOK`]).
        pub receive_buffers: u32,
        /// Frames that may be on their way from one node to another without acknowledgement; 0: any number.
        pub window: u32,
        /// Frames of a node after which its window is given back to it.
        pub acknowledge_every: u32,
        /// Buffers that are no window's and no acknowledgement's: other protocols may use so many.
        pub other_buffers: u32,
        /// Ethernet address by which other protocols of this node are known, first byte lowest.
        pub station: u64,
        /// Most bytes of a frame that the driver gives to the card: of active ports, without the check sequence.
        pub frame_bytes: u32,
        /// [`RingInterrupts::frames`], as drivers set it unless somebody wants otherwise.
        pub interrupt_frames: u32,
        /// [`RingInterrupts::delay_ns`], likewise.
        pub interrupt_delay_ns: u32,
        /// [`crate::active_ports::FrameHead::protocol`] of frames that the card sends and takes.
        pub protocol: u32,
        /// How many drivers have asked this card for its terms, this one included: what a driver of hardware would
        /// count in the card's serial memory. See [`crate::active_ports::INCARNATIONS`].
        pub incarnation: u32,
        /// Zero.
        pub reserved: u32,
    }
}

/// Most bytes of the head of a frame that the processor reads or stores: an Ethernet header and
/// [`crate::active_ports::FrameHead`] are 22.
pub const FIFO_HEAD_BYTES: u32 = 24;

layout! {
    /// Answer to [`OP_FIFO_LOOK`].
    pub struct FifoHead: 32 {
        /// Bytes of the first frame in the FIFO; zero: there is none.
        pub bytes: u32,
        /// [`RING_STATUS_DAMAGED`] where its check sequence is wrong, else zero.
        pub status: u32,
        /// The first [`FIFO_HEAD_BYTES`] of it, first byte lowest, zeros behind its end.
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
        /// Guest-physical address of where the part goes.
        pub address: u64,
        /// Bytes of the frame in front of the part.
        pub skip_bytes: u32,
        /// Bytes of the part; zero: the frame is dropped, and nothing is stored.
        pub bytes: u32,
    }
}

layout! {
    /// Body of [`OP_FIFO_SEND`].
    pub struct FifoSend: 48 {
        /// The head of the frame, first byte lowest.
        pub head_0: u64,
        /// The next eight bytes.
        pub head_1: u64,
        /// The last eight bytes.
        pub head_2: u64,
        /// Bytes of the head: [`FIFO_HEAD_BYTES`] at most.
        pub head_bytes: u32,
        /// Bytes of the data behind it.
        pub bytes: u32,
        /// Guest-physical address of the data.
        pub address: u64,
        /// Bytes of the message whose first frame this is, else zero: for reports, no hardware would read it.
        pub message_bytes: u64,
    }
}

/// Last but two of the bytes of [`RingTerms::station`], less one: which of the node's stations other protocols are.
pub const RING_STATION: u8 = 0;
/// Most bytes between two descriptors (CSR0, bits 2 to 6: 31 words of 32 bits, here in whole words of 64).
pub const RING_MAX_SKIP_BYTES: u32 = 120;
/// Word of a descriptor and what lies behind it, of 64 bits, of a descriptor in which a frame begins that is sent. Its
/// lower half, where the frame is a message's first: the bytes of the message. Its upper half, [`RING_RECEIVED_SHIFT`]:
/// the frames that the driver had taken out of the receive ring since it was started, modulo 2^32.
pub const RING_MESSAGE_WORD: usize = 2;
/// The upper half of that word.
pub const RING_RECEIVED_SHIFT: u32 = 32;

/// First word: the descriptor is the card's.
pub const RING_OWN: u64 = 1 << 31;
/// First word: the second address is that of the next descriptor.
pub const RING_CHAINED: u64 = 1 << 56;
/// First word: the next descriptor is the ring's first; stronger than [`RING_CHAINED`].
pub const RING_END: u64 = 1 << 57;
/// First word, of what is sent: the frame begins in this descriptor.
pub const RING_FIRST: u64 = 1 << 61;
/// First word, of what is sent: the frame ends in this descriptor.
pub const RING_LAST: u64 = 1 << 62;
/// First word: lowest bit of the size of the first buffer.
pub const RING_SIZE_SHIFT: u32 = 32;
/// First word: lowest bit of the size of the second buffer.
pub const RING_SECOND_SIZE_SHIFT: u32 = 43;
/// Most bytes of a buffer.
pub const RING_MAX_BUFFER_BYTES: u32 = (1 << 11) - 1;

/// Status: something is wrong, and other bits say what (ES).
pub const RING_ERROR: u32 = 1 << 15;
/// Status of what was received: the frame begins in this descriptor (FS).
pub const RING_STATUS_FIRST: u32 = 1 << 9;
/// Status of what was received: the frame ends in this descriptor, and the length is valid (LS).
pub const RING_STATUS_LAST: u32 = 1 << 8;
/// Status of what was received: the check sequence is wrong (CE).
pub const RING_STATUS_DAMAGED: u32 = 1 << 1;
/// Status of what was received: the ring had too little room for the whole frame (DE).
pub const RING_STATUS_TRUNCATED: u32 = 1 << 14;
/// Status of what was received: lowest bit of the length in bytes, from the Ethernet header to the last byte that is
/// stored.
pub const RING_LENGTH_SHIFT: u32 = 16;
/// Status of what was sent: the frame is shorter than its headers, longer than the network's, or its buffers are in too
/// many descriptors.
pub const RING_STATUS_LENGTH: u32 = 1 << 2;
/// Status of what was sent: a buffer is not memory of the guest.
pub const RING_STATUS_ADDRESS: u32 = 1 << 3;
/// Status of what was sent: the source address is not the node's, or the frame is of a protocol that is not this
/// card's.
pub const RING_STATUS_FORGED: u32 = 1 << 4;
/// Status of what was sent: a descriptor that begins a frame within another, or goes on with none.
pub const RING_STATUS_SEGMENT: u32 = 1 << 5;
