//! The guest agent's protocol.
//!
//! The launcher (the *host*) runs commands in a guest through a byte stream: a virtio-serial port in the guest, a unix
//! socket on the host. Layers, outermost first:
//!
//! * [`frame`]: bytes to [`Frame`]s, with a decoder that finds its footing again in the middle of anything;
//! * [`message`]: frames to [`ToGuest`] and [`ToHost`].
//!
//! # Sessions
//!
//! A virtio-serial port does not reliably say when the other side comes and goes, and either side may vanish in the
//! middle of a frame. So the host draws a session number and begins with [`frame::preamble`], a run of idle bytes as
//! long as the longest frame, then [`ToGuest::Hello`]: whatever half a frame the guest still waited for is completed by
//! the idle bytes and refused by its checksum. The agent ends the commands of the session before, and answers with a
//! preamble and [`ToHost::Welcome`]. Frames of another session are ignored. An agent that starts announces itself with
//! [`ToHost::Booted`] in session 0, which tells a host in the middle of a session that its commands are gone.
//!
//! # Becoming a node
//!
//! A guest that starts, be it by booting or from a saved guest, is no node yet. Each session begins with
//! [`ToGuest::Join`], which says what the guest is; the first one since the guest started makes it that node, and later
//! ones (the host lost its connection, or init started the agent anew) only tell the agent again what commands find in
//! their environment.
//!
//! # Flow control
//!
//! Each command has a window of [`message::WINDOW_BYTES`] in each direction. A sender never has more than that
//! unacknowledged; the receiver returns what it consumed as credit. So a command that prints gigabytes stops at its
//! pipe, a reader that stalls holds back its own command only, and memory is bounded at both ends.

pub mod frame;
mod interrupts;
pub mod message;

pub use frame::{Decoder, Frame};
pub use interrupts::interrupts_of;
pub use message::{
    Exec, ExitStatus, Health, Identity, Join, MessageError, Refusal, ToGuest, ToHost, WindowSize,
};

/// Version of the protocol. Both ends must have the same.
pub const PROTOCOL_VERSION: u32 = 2;

/// The virtio-serial port's name, by which the agent finds it.
pub const PORT_NAME: &str = "niclab.agent";
