//! The transport of cards with slices: one port of the NIC to one port of the peer.

use std::time::Duration;

use niclab_user::slices::{Flags, Message, PAYLOAD_BYTES, Port, PortOptions};
use niclab_user::{Address, Batching, Device};

use crate::Failure;
use crate::channel::{Channel, Interrupting, Tag};
use crate::nic::NicOptions;

/// A port connected to the same port of one peer.
pub struct SliceChannel {
    port: Port,
    peer_address: Address,
    peer: String,
    timeout: Duration,
}

impl SliceChannel {
    /// Opens the port, routes it to node `peer`, and authorizes that node's port.
    ///
    /// # Errors
    ///
    /// [`Failure::Nic`].
    pub fn open(device: &Device, options: &NicOptions, peer: u32) -> Result<Self, Failure> {
        let mut port = Port::open(device, PortOptions::default().port(options.port).slices(options.slices))?;
        port.set_wait_policy(options.policy);
        let peer_address = Address { node: peer, port: options.port };
        port.authorize(peer_address, port.slices())?;
        port.route(peer_address)?;
        Ok(Self { port, peer_address, peer: peer_address.to_string(), timeout: options.timeout })
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

/// Refuses payloads that a slice cannot carry.
///
/// # Errors
///
/// [`Failure::Usage`].
pub fn check_size(bytes: usize) -> Result<(), Failure> {
    if bytes <= PAYLOAD_BYTES && bytes.is_multiple_of(8) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "--size {bytes}: a slice carries 0 to {PAYLOAD_BYTES} bytes: give a multiple of 8"
    )))
}

impl Channel for SliceChannel {
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

    fn batching(&mut self) -> Option<&mut dyn Batching> {
        Some(&mut self.port)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.port.flush(self.timeout)?)
    }
}

impl Interrupting for SliceChannel {
    fn wait_interrupts(&mut self, timeout: Duration) -> Result<u64, Failure> {
        Ok(self.port.receiver().wait_interrupts(timeout)?)
    }
}
