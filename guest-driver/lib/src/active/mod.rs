//! Active ports: messages out of a program's own memory, by one system call, and into its receive buffers, by one copy.
//!
//! After Chiola, Ciaccio, Mancini, Rotondo. A [`Port`] is a file's alone; frames come by descriptor rings that the
//! driver walks, and handlers run in their process, when the program looks for what came. What was lost is raised
//! ([`Error::Raised`], [`Error::Stalled`]), once, and never sent again.
//!
//! ```no_run
//! use std::time::Duration;
//! use niclab_user::active::{Port, PortOptions};
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

pub use niclab_abi::active_ports::ACTIVE_PORT_MAX_MESSAGE_BYTES as MAX_MESSAGE_BYTES;
pub use port::{Message, Port, PortOptions};
