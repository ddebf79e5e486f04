//! Which NIC, and how to use it: what all transports over one have in common.

use std::path::PathBuf;
use std::time::Duration;

use niclab_user::{Device, WaitPolicy};

use crate::Failure;

/// How to open the NIC and which peer to talk to.
#[derive(Clone, Debug)]
pub struct NicOptions {
    /// The character device, or none for the first.
    pub device: Option<PathBuf>,
    /// The port, at both ends.
    pub port: u32,
    /// Slices of the receive queue, all of them set aside for the peer (cards with slices), or events (cards with lists).
    pub slices: u32,
    /// How to wait.
    pub policy: WaitPolicy,
    /// Longest wait for a message or for room, wall time.
    pub timeout: Duration,
}

/// Opens the NIC that `options` names.
///
/// # Errors
///
/// [`Failure::Nic`].
pub fn open_device(options: &NicOptions) -> Result<Device, Failure> {
    Ok(match &options.device {
        Some(path) => Device::open(path)?,
        None => Device::open_first()?,
    })
}
