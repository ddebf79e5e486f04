//! Active ports: what the drivers of two nodes whose cards have descriptor rings ([`crate::rings`]) say to one another
//! (Chiola, Ciaccio, Mancini, Rotondo, the paper on DEC 2114x with efficient flow control).
//!
//! A message is cut into frames. Behind the Ethernet header each has a [`FrameHead`], least significant byte first, and
//! then its part of the message; the card puts a check sequence of [`CHECK_BYTES`] behind it, and takes it away. That
//! and the head are 12 bytes: 12.2 of Fast Ethernet's 12.5 MB/s within 1 % leave 13.
//!
//! All frames from one node to another are numbered from 1, but for acknowledgements, so that a driver knows when one
//! was lost. Nothing is ever sent again. A node that has sent as many as its window has waits until the other has taken
//! them out of its receive ring and says so ([`FRAME_ACKNOWLEDGEMENT`]).
//!
//! A driver that was loaded again knows nothing of what its predecessor sent and took. So frames say which of a node's
//! drivers, one after another ([`INCARNATIONS`]), they are of and for. Who hears of a later one of a node than before
//! begins anew with it: both number from 1, with a whole window. What is of an earlier one is dropped, and so is what
//! is for an earlier one, which is answered by an acknowledgement. A driver that has a predecessor tells all others so
//! as it starts, by an acknowledgement of nothing.

use crate::layout;

/// Active ports of a node.
pub const ACTIVE_PORTS: u32 = 8;
/// The longest message, in bytes.
pub const ACTIVE_PORT_MAX_MESSAGE_BYTES: u64 = 1 << 20;
/// EtherType of frames between active ports. Their addresses are those of the cards
/// ([`crate::config::DeviceConfig::mac`]), which have the node's number as their last two bytes, the higher one first.
pub const ACTIVE_ETHER_TYPE: u16 = 0x88b5;
/// Bytes of the check sequence behind each frame.
pub const CHECK_BYTES: u32 = 4;

layout! {
    /// What stands behind the Ethernet header of each frame.
    pub struct FrameHead: 8 {
        /// The protocol's number.
        pub protocol: u8,
        /// A `FRAME_` kind, and for [`FRAME_DATA`] its flags.
        pub kind: u8,
        /// The sending port, [`PORT_MASK`], zero in acknowledgements; and which driver of the sending node sends it,
        /// [`INCARNATION_SHIFT`].
        pub source_port: u8,
        /// The receiving port, likewise; and which driver of the receiving node is meant.
        pub target_port: u8,
        /// Number of the frame, from 1 and wrapping; of an acknowledgement, of the last frame that was taken, zero
        /// where none was.
        pub number: u32,
    }
}

/// Kind, the lower four bits of [`FrameHead::kind`]: part of a message.
pub const FRAME_DATA: u8 = 1;
/// Kind: all frames up to the number have been taken out of the receive ring.
pub const FRAME_ACKNOWLEDGEMENT: u8 = 2;
/// [`FrameHead::kind`]: the kind.
pub const FRAME_KIND_MASK: u8 = 0xf;
/// [`FrameHead::source_port`], [`FrameHead::target_port`]: the port.
pub const PORT_MASK: u8 = 0xf;
/// [`FrameHead::source_port`], [`FrameHead::target_port`]: lowest bit of the driver's number; zero: the sender does not
/// know it, or there is but one.
pub const INCARNATION_SHIFT: u32 = 4;
/// A driver's number is 1 more than what is left of [`crate::rings::RingTerms::incarnation`], less 1, divided by this.
/// Of two, that one is later which is reached by fewer steps upwards, modulo this.
pub const INCARNATIONS: u32 = 15;
/// Flag of [`FRAME_DATA`]: the message begins here.
pub const FRAME_FIRST: u8 = 1 << 4;
/// Flag of [`FRAME_DATA`]: the message ends here.
pub const FRAME_LAST: u8 = 1 << 5;
