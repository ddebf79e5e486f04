//! Peripherals: endpoints that are cards beside the NIC, with a channel of their own (sections 2 and 5.5).
//!
//! A peripheral says what it does with a message ([`Peripheral`]) and what it is ([`Kind`]); all else is alike for all
//! of them and in `peripheral_port`: queues in the card's own memory, a processor that handles one message at a time,
//! transfers from card to card over the node's bus, and a ledger. Nothing of it crosses the host.
//!
//! A new one is a file of this folder, an entry of [`KINDS`], and a parameter of the model that names its channel.

mod bridge;
mod function_card;
mod io_card;
mod storage;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::fabric::ethernet::Mac;
use crate::nic::{Address, FrameBytes};

pub use function_card::{CheckSequence, Function, FunctionCard};

/// A message that a peripheral has, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Who has sent it.
    pub from: Address,
    /// The handler that it is for.
    pub handler: u32,
    /// Its integers.
    pub arguments: [u32; 4],
    /// Its payload: at most 48 KiB.
    pub payload: Vec<u8>,
    /// Its sender wants answers to interrupt it.
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

/// What a handler of a peripheral has its card do.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Bytes that the processor goes through, beside those of messages that it sends.
    pub(super) bytes: u64,
    pub(super) sendings: Vec<Sending>,
    pub(super) frames: Vec<FrameBytes>,
}

impl Work {
    /// The card's processor goes through so many bytes.
    pub const fn go_through(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Sends a message to who has sent this one. Payload has 48 KiB at most, and what is longer than the channel's
    /// payload region is not sent, and counted.
    pub fn answer(&mut self, to: &Arrival, handler: u32, arguments: [u32; 4], payload: Vec<u8>) {
        let Arrival { from, interrupt, .. } = *to;
        self.send(from, interrupt, handler, arguments, payload);
    }

    /// Sends a message, as [`Self::answer`] does, to anybody.
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

/// What a card beside the NIC does. It has neither clock nor thread: it is called when its processor comes to a
/// message, and what it wants done is done when the processor is through with it.
pub trait Peripheral: Send {
    /// Handles a message. False where it has no such handler: its sender is told.
    fn on_message(&mut self, message: &Arrival, work: &mut Work) -> bool;

    /// Handles a frame that came to its Ethernet port: to its address, or to all.
    fn on_frame(&mut self, frame: &[u8], work: &mut Work) {
        let _ = (frame, work);
    }
}

/// Where a peripheral stands.
#[derive(Clone, Copy, Debug)]
pub struct PeripheralSeat {
    /// The address of its Ethernet port, if it has one.
    pub mac: Mac,
    /// Most bytes behind the Ethernet header of a frame.
    pub mtu_bytes: u32,
}

/// A kind of card.
#[derive(Debug)]
pub struct Kind {
    /// Its name in reports and timelines.
    pub name: &'static str,
    /// The parameter of the model that says which channel it has; 0 where there is none.
    pub channel_key: &'static str,
    /// What the manual says of that.
    pub help: &'static str,
    /// Memory for messages that come, bytes.
    pub memory_bytes: u64,
    /// Its Ethernet port is found by others: frames to all concern it.
    pub has_station: bool,
    /// The machines of a profile that say what its processor takes to receive a message, and to send one.
    pub machines: [&'static str; 2],
    /// Makes one.
    pub build: fn(PeripheralSeat) -> Box<dyn Peripheral>,
}

/// All kinds.
pub static KINDS: [&Kind; 2] = [&io_card::KIND, &function_card::KIND];
