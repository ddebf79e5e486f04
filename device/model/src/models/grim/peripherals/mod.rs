//! Peripherals: endpoints that are peer devices on the node's bus, each with its own channel (sections 2 and 5.5).
//!
//! A peripheral implements its handlers ([`Peripheral`]) and describes itself ([`PeripheralKind`]). `peripheral_port`
//! has the common code: queues in the card's memory, a processor that handles one message at a time, transfers between
//! cards over the node's bus, and a ledger. No data passes through host memory.
//!
//! A new peripheral needs a file in this folder, an entry in [`KINDS`], and a parameter of the model for its channel.

mod bridge;
mod function_card;
mod io_card;
mod storage;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::fabric::ethernet::Mac;
use crate::nic::{Address, FrameBytes};

pub use function_card::{CheckSequence, Function, FunctionCard};

/// A complete message at a peripheral.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The sender.
    pub from: Address,
    /// Number of the handler.
    pub handler: u32,
    /// Integer arguments.
    pub arguments: [u32; 4],
    /// Payload, at most 48 KiB.
    pub payload: Vec<u8>,
    /// Whether replies interrupt the sender.
    pub interrupt: bool,
}

/// A message that a peripheral sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sending {
    pub(super) to: Address,
    pub(super) handler: u32,
    pub(super) arguments: [u32; 4],
    pub(super) payload: Vec<u8>,
    pub(super) interrupt: bool,
}

/// Work that a handler gives to its card.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Bytes that the processor handles, in addition to those of sent messages.
    pub(super) bytes: u64,
    pub(super) sendings: Vec<Sending>,
    pub(super) frames: Vec<FrameBytes>,
}

impl Work {
    /// Charges the card's processor for handling `bytes` bytes.
    pub const fn go_through(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Sends a message to the sender of the handled one. Payload has at most 48 KiB. The card counts and does not send
    /// a message that is longer than the channel's payload region.
    pub fn answer(&mut self, to: &Arrival, handler: u32, arguments: [u32; 4], payload: Vec<u8>) {
        let Arrival { from, interrupt, .. } = *to;
        self.send(from, interrupt, handler, arguments, payload);
    }

    /// Sends a message as [`Self::answer`] does, to any address.
    pub fn send(
        &mut self,
        to: Address,
        interrupt: bool,
        handler: u32,
        arguments: [u32; 4],
        payload: Vec<u8>,
    ) {
        self.sendings.push(Sending { to, handler, arguments, payload, interrupt });
    }

    /// Sends a frame over the card's own Ethernet port.
    pub fn send_frame(&mut self, frame: FrameBytes) {
        self.frames.push(frame);
    }
}

/// The handlers of a peer device. They have neither clock nor thread. The card calls one when its processor starts a
/// message. The resulting work takes effect when the processor is done with the message.
pub trait Peripheral: Send {
    /// Handles a message. Returns false if the handler does not exist, which the card reports to the sender.
    fn on_message(&mut self, message: &Arrival, work: &mut Work) -> bool;

    /// Handles a frame that its Ethernet port has received: for its address, or a broadcast.
    fn on_frame(&mut self, frame: &[u8], work: &mut Work) {
        let _ = (frame, work);
    }
}

/// Addresses and limits of a peripheral's position in the cluster.
#[derive(Clone, Copy, Debug)]
pub struct PeripheralContext {
    /// The address of its Ethernet port, if it has one.
    pub mac: Mac,
    /// Maximum bytes of a frame after the Ethernet header.
    pub mtu_bytes: u32,
}

/// A kind of peripheral.
#[derive(Debug)]
pub struct PeripheralKind {
    /// Its name in reports and timelines.
    pub name: &'static str,
    /// The model's parameter for its channel; 0 for no such peripheral.
    pub channel_key: &'static str,
    /// Help text of that parameter.
    pub help: &'static str,
    /// Bytes of memory for received messages.
    pub memory_bytes: u64,
    /// Whether its Ethernet port receives broadcasts, so that other hosts find it.
    pub has_mac_endpoint: bool,
    /// The profile's machines that price receiving a message, and sending one.
    pub machines: [&'static str; 2],
    /// Makes one.
    pub build: fn(PeripheralContext) -> Box<dyn Peripheral>,
}

/// All kinds.
pub static KINDS: [&PeripheralKind; 2] = [&io_card::KIND, &function_card::KIND];
