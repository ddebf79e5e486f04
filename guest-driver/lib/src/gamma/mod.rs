//! Active ports: one system call sends a message from the program's memory; one copy stores it in receive buffers.
//!
//! After Chiola, Ciaccio, Mancini, Rotondo. A [`Port`] belongs to one open file. Frames arrive through descriptor rings
//! that the driver processes. Handlers run in the program's process when the program polls. A loss is reported once
//! ([`crate::Error::Raised`], [`crate::Error::Stalled`]); frames are never retransmitted.
//!
//! ```no_run
//! use std::time::Duration;
//! use niclab_user::gamma::{Port, PortOptions};
//! use niclab_user::{Address, Device};
//!
//! # fn main() -> Result<(), niclab_user::Error> {
//! let device = Device::open_first()?;
//! let mut port = Port::open(&device, PortOptions::default().port(0))?;
//! let limit = Duration::from_secs(1);
//! port.send(Address { node: 1, port: 0 }, b"hello", limit)?;
//! port.receive(limit, |message| println!("{} bytes from {}", message.bytes(), message.source()))?;
//! # Ok(())
//! # }
//! ```

mod port;
mod requests;

pub use niclab_abi::gamma::ACTIVE_PORT_MAX_MESSAGE_BYTES as MAX_MESSAGE_BYTES;
pub use port::{Message, Port, PortOptions};
