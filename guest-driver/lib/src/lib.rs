//! User library of the niclab NIC: a program in a guest uses it to send and receive messages without the kernel.
//!
//! ```no_run
//! use std::time::Duration;
//! use niclab_user::slices::{Flags, Port, PortOptions};
//! use niclab_user::{Address, Device};
//!
//! # fn main() -> Result<(), niclab_user::Error> {
//! let device = Device::open_first()?;
//! let mut port = Port::open(&device, PortOptions::default().port(0))?;
//! let peer = Address { node: 1, port: 0 };
//! port.route(peer)?; // where this port sends
//! port.authorize(peer, 256)?; // the peer may be 256 slices ahead of the receiver
//! port.send(&[1, 2], [3, 4], Flags::NONE, Duration::from_secs(1))?;
//! let answer = port.receive(Duration::from_secs(1))?;
//! println!("{:?} from node {}", answer.payload(), answer.source().node);
//! # Ok(())
//! # }
//! ```
//!
//! The layers, from the outside in:
//!
//! - [`Device`] and [`DeviceInfo`]: find a NIC, read its properties and its [`Statistics`];
//! - one module for each kind of card interface: [`slices`], a port with a sender and a receiver; [`matching`], a port
//!   whose NIC matches messages with memory posted for them, and messages with MPI's semantics; [`inic`], a port that
//!   sends to every node and receives into memory posted for the next message; [`grim`], logical channels with
//!   handlers; [`gamma`], an active port over descriptor rings that the driver processes. [`commanded`] has the code
//!   that lists and posts share;
//! - [`Backing`]: the services that a port needs from its environment. The kernel driver's character device is one
//!   backing; tests and the in-process front end of the device daemon have others;
//! - `niclab_port`: the operations of a port on its memory, without clock and system call. The simulator's hosts and
//!   the in-process front end of the device daemon run the same code;
//! - [`SharedMemory`]: pages shared with a device. All `unsafe` code for them is in that module;
//! - [`capi`]: the C interface, header `include/niclab.h`.
//!
//! # Time
//!
//! All durations here are wall time. Every wait has a [`Deadline`] and a [`WaitPolicy`]. In addition, a wait without
//! progress checks every 100 ms whether the device is alive. If it is not, the wait ends with [`Error::DeviceGone`].

mod backing;
mod bare;
mod batch;
pub mod capi;
pub mod commanded;
mod device;
mod error;
pub mod gamma;
pub mod grim;
pub mod inic;
pub mod matching;
mod memory;
mod port;
mod region;
pub mod slices;
mod statistics;
mod wait;

pub use backing::Backing;
pub use bare::BarePort;
pub use batch::{Batch, Batching};
pub use device::{Device, DeviceInfo};
pub use error::Error;
pub use memory::SharedMemory;
pub use niclab_abi::config::{
    FEATURE_CHANNELS, FEATURE_FIRMWARE, FEATURE_LISTS, FEATURE_POSTS, FEATURE_REGIONS, FEATURE_RINGS,
    FEATURE_SLICES, FEATURE_SPILL, FEATURE_TURNS,
};
pub use niclab_port::Address;
pub use statistics::Statistics;
pub use wait::{Deadline, WaitPolicy};
