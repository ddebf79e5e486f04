//! A front end in this process: it takes the parts of QEMU and of a guest's drivers.
//!
//! It speaks vhost-user over the daemon's real sockets, has virtqueues in its own memory, maps the BAR when the
//! daemon asks for it, opens ports, posts slots and reads slices. So tests and benchmarks drive the daemon's complete
//! code, including rings and pages.
//!
//! * [`GuestMemory`]: a guest's memory, shared with the daemon;
//! * [`DriverRing`]: a driver's side of a virtqueue;
//! * [`Connection`]: a vhost-user connection of either function;
//! * [`ClusterGuest`] and [`GuestPort`]: the cluster function's driver, and one open port;
//! * [`matching`]: one open port of a card that works on registered regions;
//! * [`EthernetGuest`]: the Ethernet function's driver.

mod cluster;
mod connection;
mod ethernet;
pub mod matching;
mod memory;
mod port;
mod ring;

use thiserror::Error;

pub use self::cluster::{ClusterGuest, TIMEOUT};
pub use self::connection::{Connection, MappedBar};
pub use self::ethernet::{EthernetGuest, QueuePair};
pub use self::memory::GuestMemory;
pub use self::port::GuestPort;
pub use self::ring::DriverRing;

/// Why the front end failed.
#[derive(Debug, Error)]
pub enum FrontendError {
    /// The daemon broke the vhost-user protocol, or has ended.
    #[error("vhost-user with the daemon failed at {step}: {error}")]
    VhostUser {
        /// The message that failed.
        step: &'static str,
        /// Why.
        error: vhost::Error,
    },
    /// The operating system refused.
    #[error("{step} failed: {error}")]
    System {
        /// What was tried.
        step: &'static str,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// The guest's memory is used up.
    #[error("the guest's memory has no {bytes} bytes left; make it larger")]
    OutOfMemory {
        /// Requested bytes.
        bytes: u64,
    },
    /// The daemon did not answer in time.
    #[error("the daemon did not {what} within {wall_ms} ms of wall time")]
    TimedOut {
        /// The action that it did not do.
        what: &'static str,
        /// The time limit.
        wall_ms: u64,
    },
    /// A control request was refused.
    #[error("control request {operation} was refused with status {status}")]
    Refused {
        /// The `OP_` constant.
        operation: u32,
        /// The `STATUS_` constant.
        status: u32,
    },
    /// The daemon's answer violates the interface.
    #[error("the daemon's answer violates the interface: {0}")]
    Malformed(&'static str),
    /// The information page of the BAR violates the interface.
    #[error("the BAR violates the interface: {0}")]
    Bar(#[from] niclab_port::WindowError),
}
