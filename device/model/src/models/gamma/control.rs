//! Control requests that only GAMMA cards accept: those of descriptor rings, and those of CPU-driven transfers.

use niclab_abi::rings::{
    FifoSend, FifoTake, OP_FIFO_LOOK, OP_FIFO_SEND, OP_FIFO_TAKE, OP_RING_INTERRUPTS, OP_RING_START,
    OP_RING_STOP, OP_RING_TERMS, RingInterrupts, RingName, RingStart,
};

use crate::nic::{HostRange, HostRanges};
use crate::parts::control::{ControlError, OwnOperation, empty, whole};

/// A request of valid length.
#[derive(Debug)]
pub enum Operation {
    /// Starts a ring.
    Start(RingStart),
    /// Stops a ring.
    Stop(RingName),
    /// Sets after how many frames the card interrupts.
    Interrupts(RingInterrupts),
    /// Reads the terms on which the cluster's drivers agree.
    Terms,
    /// Reads status and header of the first frame in the FIFO.
    Look,
    /// Stores the first frame of the FIFO in host memory.
    Take(FifoTake),
    /// Sends a frame.
    Send(FifoSend),
}

impl OwnOperation for Operation {
    fn decode(operation: u32, body: &[u8]) -> Result<Self, ControlError> {
        match operation {
            OP_RING_START => whole(body).map(Self::Start),
            OP_RING_STOP => whole(body).map(Self::Stop),
            OP_RING_INTERRUPTS => whole(body).map(Self::Interrupts),
            OP_RING_TERMS => empty(body, Self::Terms),
            OP_FIFO_LOOK => empty(body, Self::Look),
            OP_FIFO_TAKE => whole(body).map(Self::Take),
            OP_FIFO_SEND => whole(body).map(Self::Send),
            _ => Err(ControlError::BadOperation),
        }
    }

    /// No memory is known when a ring starts. The shell checks each descriptor and buffer when the card reads it.
    fn memory(&self) -> HostRanges {
        let (address, bytes) = match *self {
            Self::Take(FifoTake { address, bytes, .. }) | Self::Send(FifoSend { address, bytes, .. }) => {
                (address, u64::from(bytes))
            }
            Self::Start(_) | Self::Stop(_) | Self::Interrupts(_) | Self::Terms | Self::Look => {
                return HostRanges::new();
            }
        };
        [HostRange { address, bytes }].into_iter().filter(|range| range.bytes > 0).collect()
    }
}
