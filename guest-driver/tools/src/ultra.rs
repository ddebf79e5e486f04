//! The ULTRA transport: one port of the NIC to one port of the peer.

use std::path::PathBuf;
use std::time::Duration;

use niclab_user::ultra::{Flags, Message, PAYLOAD_BYTES, Port, PortOptions};
use niclab_user::{Address, Device, WaitPolicy};

use crate::Failure;
use crate::channel::{Channel, Tag};

/// How to open the NIC and which peer to talk to.
#[derive(Clone, Debug)]
pub struct UltraOptions {
    /// The character device, or none for the first.
    pub device: Option<PathBuf>,
    /// The port, at both ends.
    pub port: u32,
    /// Slices of the receive queue, all of them set aside for the peer.
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
pub fn open_device(options: &UltraOptions) -> Result<Device, Failure> {
    Ok(match &options.device {
        Some(path) => Device::open(path)?,
        None => Device::open_first()?,
    })
}

/// A port connected to the same port of one peer.
pub struct UltraChannel {
    port: Port,
    peer_address: Address,
    peer: String,
    timeout: Duration,
}

impl UltraChannel {
    /// Opens the port, routes it to node `peer`, and authorizes that node's port.
    ///
    /// # Errors
    ///
    /// [`Failure::Nic`].
    pub fn open(device: &Device, options: &UltraOptions, peer: u32) -> Result<Self, Failure> {
        let mut port = Port::open(device, PortOptions::default().port(options.port).slices(options.slices))?;
        port.set_wait_policy(options.policy);
        let peer_address = Address { node: peer, port: options.port };
        port.authorize(peer_address, port.slices())?;
        port.route(peer_address)?;
        Ok(Self { port, peer_address, peer: peer_address.to_string(), timeout: options.timeout })
    }

    /// The port.
    pub fn port(&mut self) -> &mut Port {
        &mut self.port
    }

    fn accept(&self, message: &Message, buffer: &mut [u8]) -> Result<Tag, Failure> {
        let tag = Tag::decode(message.tag()).filter(|_| message.source() == self.peer_address);
        let Some(tag) = tag else {
            return Err(Failure::OutOfStep {
                peer: self.peer.clone(),
                expected: "a message of niclab-perf".into(),
                found: format!("tag {:x?} from {}", message.tag(), message.source()),
            });
        };
        message.copy_bytes(buffer);
        Ok(tag)
    }
}

/// Refuses payloads that a packet cannot carry.
///
/// # Errors
///
/// [`Failure::Usage`].
pub fn check_size(bytes: usize) -> Result<(), Failure> {
    if bytes <= PAYLOAD_BYTES && bytes.is_multiple_of(8) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "--size {bytes}: an ULTRA packet carries 0 to {PAYLOAD_BYTES} bytes in whole words of 8"
    )))
}

impl Channel for UltraChannel {
    fn peer(&self) -> &str {
        &self.peer
    }

    #[inline]
    fn try_send(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<bool, Failure> {
        Ok(self.port.sender().try_send_bytes(payload, tag.encode(), flags)?.is_some())
    }

    #[inline]
    fn send(&mut self, payload: &[u8], tag: Tag, flags: Flags) -> Result<(), Failure> {
        self.port.sender().send_bytes(payload, tag.encode(), flags, self.timeout)?;
        Ok(())
    }

    #[inline]
    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<Option<Tag>, Failure> {
        self.port.try_receive().map(|message| self.accept(&message, buffer)).transpose()
    }

    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> Result<Tag, Failure> {
        let message = self.port.receive(self.timeout)?;
        self.accept(&message, buffer)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.port.flush(self.timeout)?)
    }
}
