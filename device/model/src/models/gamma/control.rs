//! The control requests that only a card with descriptor rings takes.

use niclab_abi::rings::{
    OP_RING_INTERRUPTS, OP_RING_START, OP_RING_STOP, OP_RING_TERMS, RingInterrupts, RingName, RingStart,
};

use crate::nic::HostRanges;
use crate::parts::control::{ControlError, OwnOperation, empty, whole};

/// A request whose length is right.
#[derive(Debug)]
pub enum Operation {
    /// A ring begins there.
    Start(RingStart),
    /// A ring is walked no more.
    Stop(RingName),
    /// When to interrupt.
    Interrupts(RingInterrupts),
    /// What drivers have agreed on.
    Terms,
}

impl OwnOperation for Operation {
    fn decode(operation: u32, body: &[u8]) -> Result<Self, ControlError> {
        match operation {
            OP_RING_START => whole(body).map(Self::Start),
            OP_RING_STOP => whole(body).map(Self::Stop),
            OP_RING_INTERRUPTS => whole(body).map(Self::Interrupts),
            OP_RING_TERMS => empty(body, Self::Terms),
            _ => Err(ControlError::BadOperation),
        }
    }

    /// None is known when a ring is started: the shell checks each descriptor and each buffer as the card reads it.
    fn memory(&self) -> HostRanges {
        HostRanges::new()
    }
}
