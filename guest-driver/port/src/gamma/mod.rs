//! Active ports over descriptor rings: the driver's part, because the card does not know ports
//! ([`niclab_abi::gamma`]).
//!
//! - [`rings`]: descriptors that the driver gives to the card and takes back;
//! - [`window`]: how many frames may be sent to another node, and which of its frames were taken;
//! - [`message`]: messages cut into frames, and reassembled.
//!
//! No frame is retransmitted. Each loss is reported once ([`window::Taken`]), together with the incomplete message.

pub mod message;
pub mod rings;
pub mod window;
