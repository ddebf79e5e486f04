//! A front end in this process: the role of QEMU and of a guest's drivers, without either.
//!
//! It speaks vhost-user over the daemon's very sockets, lays virtqueues out in memory of its own, maps the BAR when the
//! daemon asks for it, opens ports, launches slots and reads slices. Tests and benchmarks drive the daemon's own code
//! with it, rings, pages and all.
//!
//! * [`GuestMemory`]: a guest's memory, shared with the daemon;
//! * [`DriverRing`]: a driver's side of a virtqueue;
//! * [`Connection`]: what every vhost-user connection goes through;
//! * [`ClusterGuest`] and [`GuestPort`]: the cluster function's driver, and one open port;
//! * [`lists`]: one open port of a card with lists of posted receives;
//! * [`EthernetGuest`]: the Ethernet function's driver.

mod cluster;
mod connection;
mod ethernet;
pub mod lists;
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
    /// The daemon broke the vhost-user protocol, or is gone.
    #[error("vhost-user with the daemon failed at {step}: {error}")]
    VhostUser {
        /// What was asked.
        step: &'static str,
        /// Why.
        error: vhost::Error,
    },
    /// The operating system refused something.
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
        /// Bytes wanted.
        bytes: u64,
    },
    /// The daemon did not answer in time.
    #[error("the daemon did not {what} within {wall_ms} ms of wall time")]
    TimedOut {
        /// What it should have done.
        what: &'static str,
        /// How long it was waited for.
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
    /// The daemon's answer is not what the interface says.
    #[error("the daemon's answer is not what the interface says: {0}")]
    Malformed(&'static str),
    /// The information page of the BAR is not what the interface says.
    #[error("the BAR is not what the interface says: {0}")]
    Bar(#[from] niclab_port::WindowError),
}
