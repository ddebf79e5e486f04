//! Active ports.
//!
//! The protocol between the drivers of two nodes whose cards have descriptor rings ([`crate::rings`]; Chiola, Ciaccio,
//! Mancini, Rotondo, the paper on DEC 2114x with efficient flow control).
//!
//! A message is split into frames. In each frame a [`FrameHead`] follows the Ethernet header, least significant byte
//! first, and then a part of the message. The sending card appends a check sequence of [`CHECK_BYTES`], and the
//! receiving card removes it. Head and check sequence are 12 bytes. The paper's 12.2 of Fast Ethernet's 12.5 MB/s,
//! within 1 %, allow for 13.
//!
//! All frames from one node to another are numbered from 1, except acknowledgements. So a driver detects that a frame
//! was lost. No frame is retransmitted. A node that has sent a whole window waits until the other node has taken the
//! frames out of its receive ring and acknowledges them ([`FRAME_ACKNOWLEDGEMENT`]).
//!
//! A driver that was loaded again does not know the frames of its predecessor. So each frame names the incarnations of
//! the sending and the receiving driver ([`INCARNATIONS`]). When a driver sees a later incarnation of a node, it starts
//! again with this node: both number from 1, with a whole window. It drops frames of or for an earlier incarnation, and
//! answers the latter with an acknowledgement. A driver with a predecessor announces itself to all nodes when it
//! starts, by an acknowledgement of no frame.

use crate::layout;

/// Number of active ports of a node.
pub const ACTIVE_PORTS: u32 = 8;
/// The longest message, in bytes.
pub const ACTIVE_PORT_MAX_MESSAGE_BYTES: u64 = 1 << 20;
/// EtherType of frames between active ports. Their addresses are those of the cards
/// ([`crate::config::DeviceConfig::mac`]). The last two bytes are the node's number, the higher byte first.
pub const ACTIVE_ETHER_TYPE: u16 = 0x88b5;
/// Bytes of the check sequence at the end of each frame.
pub const CHECK_BYTES: u32 = 4;

layout! {
    /// The head after the Ethernet header of each frame.
    pub struct FrameHead: 8 {
        /// The protocol's number.
        pub protocol: u8,
        /// A `FRAME_` kind, with flags for [`FRAME_DATA`].
        pub kind: u8,
        /// The sending port, [`PORT_MASK`], zero in acknowledgements; and the incarnation of the sending driver,
        /// [`INCARNATION_SHIFT`].
        pub source_port: u8,
        /// The receiving port, likewise; and the incarnation of the receiving driver.
        pub target_port: u8,
        /// Number of the frame, from 1 and wrapping; in an acknowledgement, the number of the last frame taken, or zero
        /// if none was.
        pub number: u32,
    }
}

/// Kind, the lower four bits of [`FrameHead::kind`]: a part of a message.
pub const FRAME_DATA: u8 = 1;
/// Kind: the driver has taken all frames up to this number out of the receive ring.
pub const FRAME_ACKNOWLEDGEMENT: u8 = 2;
/// [`FrameHead::kind`]: mask of the kind.
pub const FRAME_KIND_MASK: u8 = 0xf;
/// [`FrameHead::source_port`], [`FrameHead::target_port`]: mask of the port.
pub const PORT_MASK: u8 = 0xf;
/// [`FrameHead::source_port`], [`FrameHead::target_port`]: lowest bit of the incarnation. Zero: the sender does not
/// know it, or there is only one.
pub const INCARNATION_SHIFT: u32 = 4;
/// Number of incarnations. An incarnation is ([`crate::rings::RingTerms::incarnation`] - 1) modulo this, plus 1. Of two
/// incarnations, the later one is reached from the other by fewer steps upwards, modulo this.
pub const INCARNATIONS: u32 = 15;
/// Flag of [`FRAME_DATA`]: the message begins in this frame.
pub const FRAME_FIRST: u8 = 1 << 4;
/// Flag of [`FRAME_DATA`]: the message ends in this frame.
pub const FRAME_LAST: u8 = 1 << 5;
