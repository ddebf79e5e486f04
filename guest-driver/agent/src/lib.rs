//! The guest agent's protocol.
//!
//! The launcher (the *host*) runs commands in a guest through a byte stream: a virtio-serial port in the guest, a unix
//! socket on the host. Layers, outermost first:
//!
//! * [`frame`]: converts bytes to [`Frame`]s; its decoder resynchronizes at any point of the stream;
//! * [`message`]: converts frames to [`ToGuest`] and [`ToHost`].
//!
//! # Sessions
//!
//! A virtio-serial port does not reliably report when the other side connects and disconnects, and either side may
//! disappear in the middle of a frame. So the host draws a session number and sends [`frame::preamble`], which is a run
//! of idle bytes as long as the longest frame, then [`ToGuest::Hello`]. The idle bytes complete any partial frame that
//! the guest still waits for, and its checksum fails.
//!
//! The agent ends the commands of the previous session, and answers with a preamble and [`ToHost::Welcome`]. Both sides
//! ignore frames of other sessions. An agent that starts sends [`ToHost::Booted`] in session 0. A host in the middle of
//! a session learns from it that its commands have ended.
//!
//! # Joining a cluster
//!
//! A guest that has booted, or was restored from a saved guest, is not a node yet. Each session begins with
//! [`ToGuest::Join`], which names the node. The first `Join` since the guest started makes it that node. Later ones
//! follow if the host lost its connection or init restarted the agent: they only give the agent the environment of its
//! commands.
//!
//! # Flow control
//!
//! Each command has a window of [`message::WINDOW_BYTES`] in each direction. A sender never has more bytes than that
//! unacknowledged; the receiver returns consumed bytes as credit. So a command that prints gigabytes blocks at its
//! pipe, a reader that stalls blocks only its own command, and memory is bounded at both ends.

pub mod frame;
mod interrupts;
pub mod message;

pub use frame::{Decoder, Frame};
pub use interrupts::interrupts_of;
pub use message::{
    Exec, ExitStatus, Health, Identity, Join, MessageError, Refusal, ToGuest, ToHost, WindowSize,
};

/// Version of the protocol. Both ends must have the same one.
pub const PROTOCOL_VERSION: u32 = 2;

/// The name by which the agent finds the virtio-serial port.
pub const PORT_NAME: &str = "niclab.agent";
