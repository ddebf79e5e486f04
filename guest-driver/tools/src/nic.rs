//! Opening a NIC: the options that all of its transports share.

use std::path::Path;
use std::time::Duration;

use niclab_user::{Device, WaitPolicy};

use crate::Failure;

/// How to open and use the NIC.
#[derive(Clone, Debug)]
pub struct NicOptions {
    /// The port, at both ends.
    pub port: u32,
    /// Slices of the receive queue, all of them reserved for the peer (cards with slices), or events (cards with
    /// lists).
    pub slices: u32,
    /// How to wait.
    pub policy: WaitPolicy,
    /// Longest wait for a message or for room, wall time.
    pub timeout: Duration,
}

/// Opens the NIC of this character device, or the first one.
///
/// # Errors
///
/// [`Failure::Nic`].
pub fn open_device(path: Option<&Path>) -> Result<Device, Failure> {
    Ok(match path {
        Some(path) => Device::open(path)?,
        None => Device::open_first()?,
    })
}
