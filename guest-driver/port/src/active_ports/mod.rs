//! Active ports over descriptor rings: what a driver does where the card knows nothing of ports
//! ([`niclab_abi::active_ports`]).
//!
//! - [`rings`]: descriptors given to the card, and taken back;
//! - [`window`]: what may be sent to another node, and what was taken of what it sent;
//! - [`message`]: messages cut into frames, and joined again.
//!
//! Nothing is sent again. What did not come is told once ([`window::Taken`]), and with it the message that it was part
//! of.

pub mod message;
pub mod rings;
pub mod window;
