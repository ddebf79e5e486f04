//! Logical channels: the formats of slots, payload regions and slices for active messages, which programs push.

mod message;
pub mod names;
mod pushing;
mod room;

use niclab_abi::grim::{ChannelExpose, ChannelPayload};

use crate::slices::{Flags, Message, Slice};
use crate::{Address, Queue, Records};

pub use message::{Bulk, Outgoing, RegionWrite, Short, ShortSlot};
pub use pushing::{Pushing, Segments};
pub use room::PayloadRoom;

/// Maximum payload bytes of a message.
pub const MAX_BULK_BYTES: u64 = niclab_abi::grim::CHANNEL_MAX_BULK_BYTES;
/// Handlers below this number are predefined.
pub const FIRST_HANDLER: u32 = niclab_abi::grim::CHANNEL_FIRST_HANDLER;

/// The place of a message's payload in an endpoint's payload region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Offset of its first byte.
    pub offset: u32,
    /// Number of bytes.
    pub bytes: u32,
}

/// A received message, as passed to a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The sender's channel. The NIC sets it, so a sender cannot forge it.
    pub source: Address,
    /// Number of its handler.
    pub handler: u32,
    /// Four integers.
    pub arguments: [u32; 4],
    /// Its payload, if it has one. It stays in place until the message's slice is released.
    pub payload: Option<Payload>,
    /// Whether it caused an interrupt.
    pub interrupt: bool,
}

impl Incoming {
    /// The message in a slice; `None` if the slice does not hold a channel message.
    #[must_use]
    pub fn decode(message: &Message) -> Option<Self> {
        let (payload, handler) = match *message.payload() {
            [handler] => (None, handler),
            [place, handler] => {
                (Some(Payload { offset: place as u32, bytes: (place >> 32) as u32 }), handler)
            }
            _ => return None,
        };
        let [first, second] = message.tag();
        Some(Self {
            source: message.source(),
            handler: handler as u32,
            arguments: [first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32],
            payload,
            interrupt: message.flags().contains(Flags::INTERRUPT),
        })
    }
}

/// The next message of the queue, if there is one. Its payload must be read before [`Queue::advance`].
#[inline]
pub fn front(queue: &Queue<Slice>, records: &impl Records) -> Option<Incoming> {
    crate::slices::front(queue, records).and_then(|message| Incoming::decode(&message))
}

/// The body of the control request that sets where the device stores the payload of messages for a port.
pub const fn payload_request(port: u32, region: u32, offset: u64, bytes: u64) -> ChannelPayload {
    ChannelPayload { port, region, offset, bytes }
}

/// The body of the control request that lets memory messages write to a region, or revokes that.
pub const fn expose_request(port: u32, region: u32, is_exposed: bool) -> ChannelExpose {
    ChannelExpose { port, region, is_exposed: is_exposed as u32, reserved: 0 }
}
